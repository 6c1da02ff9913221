//! What each operation costs on a card: the shapes of models, the schema of profiles, and interpolation.
//!
//! This crate measures nothing, runs nothing and has no clock; it knows neither requests nor policies. It says what an
//! op of a given shape takes on a given card, and how sure that is.
//!
//! - [`Card`] is a device with its measured [`Tables`]: [`Card::find`] loads one by name, a profiler fills one row by
//!   row and saves it with [`Card::save`].
//! - [`Surface`], [`Curve`] and [`AdapterSurface`] give the [`Cost`] of any shape, in tens of nanoseconds.
//! - [`ModelShape`] is a transformer's shape, from which its bytes follow.
//!
//! ```
//! use tenantry_profiles::{DType, ModelShape, testing::synthetic_card};
//!
//! let tiny = ModelShape::builtin("tiny").expect("it is built-in");
//! let layer = synthetic_card().encoder_layer(&tiny, DType::F32)?;
//! assert_eq!(layer.cost(8, 100).median_ns, 100_000);
//! assert!(layer.covers(8, 100) && !layer.covers(64, 100));
//! # Ok::<(), tenantry_profiles::MissingTable>(())
//! ```
//!
//! Read `card.rs` for what a card is, `rows/` for what is measured, `grid.rs` for how a cost between (and beyond) the
//! measured points comes about.

mod add;
mod beyond;
mod bind;
mod card;
mod cells;
mod certainty;
mod check;
mod checkpoint;
mod compare;
mod cost;
mod decoder;
mod error;
mod family;
mod find;
mod grid;
mod hand_over;
mod here;
mod import;
mod keys;
mod leap;
mod limits;
mod mend;
mod model;
mod names;
mod origin;
pub mod paper;
mod power;
pub mod roofline;
mod rows;
mod schema;
mod slice;
mod staircase;
mod static_model;
mod stats;
mod store;
mod summary;
mod surfaces;
mod tables;
pub mod testing;
mod yaml;

pub use card::{Card, Contention, Device, DeviceKind, Host, Lanes, Provenance, Source};
pub use certainty::Certainty;
pub use checkpoint::of_checkpoint;
pub use compare::{Ratios, Unlike, compare, unlike_models};
pub use cost::{Beyond, Cost, Drawn, Place, Spread};
pub use decoder::{Decoder, MixedAttention, WholeSteps};
pub use error::{Access, Invalid, MissingTable, ProfileError};
pub use family::Family;
pub use hand_over::{HandOver, Resume, Rhythm};
pub use here::{UNKNOWN_PROCESSOR, boot, cores, processor};
pub use import::{DEFAULT_LAUNCH_OVERHEAD_US, Import, ImportSource};
pub use keys::{
    AdapterImplementation, Added, Changing, CollectiveOperation, Direction, DispatchOperation, LoadSource,
    LookupOutcome, OtherCores, PetKind, PoolBatching, Tier, TokensOf,
};
pub use leap::Leap;
pub use limits::Limits;
pub use mend::Mended;
pub use model::{DType, ModelError, ModelKind, ModelShape};
pub use names::{did_you_mean, near_miss};
pub use origin::{BeyondLimits, Origin, Origins, UsedTable};
pub use rows::{
    AdapterRow, AttendedLayerRow, CollectiveRow, ConcurrentLayerRow, ConcurrentModelRow, ConcurrentPetRow,
    ConcurrentStepRow, CopyResumeRow, CopyRow, DecoderDecodeRow, DecoderDenseRow, DecoderEndsRow, DecoderMixedRow,
    DecoderPrefillRow, DecoderPromptsRow, DecoderStepRow, DecoderWholePromptRow, DispatchRow, EmbeddingRow,
    EncoderLayerRow, HandOverRow, HeadRow, LookupResumeRow, LoraRow, ModelLoadRow, PetRow, PlanRow, PlotLookupRow,
    ResumeRow, SolveRow, StaticModelRow, TaggingHeadRow, TextLookRow, TextPassRow,
};
pub use schema::TableForms;
pub use staircase::{Staircase, staircase};
pub use static_model::StaticModel;
pub use stats::{Stats, middle};
pub use summary::{AxisSummary, LeftOut, Miss, Moved, TableError, TableSummary, describe, leave_out_errors};
pub use surfaces::{AdapterSurface, Curve, LookupSurface, Surface, TaggingSurface};
pub use tables::Tables;
