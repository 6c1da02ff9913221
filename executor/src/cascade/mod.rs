//! Cascades of real models (Tabi, Wang et al., EuroSys '23): what their encoders make of real texts.
//!
//! [`Classifier`] computes logits and the attention that tokens receive; [`TextTokenizer`] says which words the tokens
//! are of, so that a word can be pruned for a model with another tokenizer; [`read_items`] are labelled texts. Nothing
//! here decides when a query is returned.

mod classifier;
mod config;
mod example;
mod importance;
mod items;
mod judge;
mod live;
mod outputs;
mod profiling;
mod reviews;
mod text;
mod train;

pub(crate) use classifier::read_encoder;
pub use classifier::{Classified, Classifier};
pub use config::{Answer, ClassifierConfig, described};
pub use example::{ExampleFiles, ExampleModel, ExampleSize, make_example};
pub(crate) use importance::layers_with_importance;
pub use items::{Item, Label, hash_items, read_items, write_items};
pub use judge::{CalibrationError, EnsembleEffect, Judged, Settings, Verdict, judge};
pub use live::{Answered, Cascade, Level, TextModel};
pub use outputs::{Calibration, CalibrationMethod, Observed, Outputs, Source};
pub use profiling::{Fitted, PassHeard, ProfileItems, ProfileRoute, Profiled, profile};
pub use reviews::{Difficulty, Review, Reviews, byte_pair_tokenizer, word_piece_tokenizer};
pub use text::{TextTokenizer, Texts, Tokens};
pub use train::{Training, train};
