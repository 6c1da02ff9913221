//! PLOT: the lower layers of a transformer, precomputed for n-grams of tokens and looked up instead of run (HMI;
//! SkipBERT).
//!
//! This crate knows no model and no libtorch: what runs the lower layers is given to it ([`Encode`]). It has no clock
//! and no policy; when to look up, and what that costs, is the executor's and the profile's affair.
//!
//! - [`Builder`] counts a corpus's n-grams, chooses the most frequent, has them encoded, and writes a table;
//!   interrupted, it goes on.
//! - [`Table`] is such a file, opened and verified; [`Tree`] is the version tree: the root's tables, and each domain's.
//! - [`Engine`] looks up a [`Batch`] in a [`Snapshot`] of the tree and aggregates (Eq. 2 and 3).
//! - [`storage`] says what a table takes.
//! - [`Texts`] are what tables are built from and requests are written in, users' own ([`Corpus`]) or a made-up
//!   [`Language`]'s; [`Forecast`] says what look-ups would meet in tables of them.
//!
//! Read `format.rs` for the file, `find.rs` for who answers for a fragment, `retrieve.rs` for the sums.

mod builder;
mod corpus;
mod count;
mod draft;
mod error;
mod find;
mod forecast;
mod format;
mod language;
mod memory;
mod retrieve;
mod shape;
mod slots;
mod sorter;
pub mod storage;
mod table;
mod texts;
mod tree;

pub use builder::{BuildSpec, Builder, Encode, Progress};
pub use corpus::Corpus;
pub use count::{COUNTING_BYTES, Counted, Select};
pub use error::{Cause, PlotError};
pub use find::Counters;
pub use forecast::{Forecast, KeySets};
pub use language::Language;
pub use retrieve::{Batch, Engine, Text, Value};
pub use shape::{Context, FRAGMENT_TOKENS_MAX, HIDDEN_MAX, Shape};
pub use table::{Table, Tier};
pub use texts::{GivenTexts, Texts};
pub use tree::{Branch, DomainId, Node, Snapshot, Tiers, Tree};
