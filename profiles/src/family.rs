//! The op families, each a file of a profile, and what of their costs is law.

use serde::{Deserialize, Serialize};

use crate::model::ModelKind;
use crate::names::named;

/// The op families, each a CSV file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// [`EncoderLayerRow`](crate::EncoderLayerRow).
    EncoderLayer,
    /// [`EmbeddingRow`](crate::EmbeddingRow).
    Embedding,
    /// [`HeadRow`](crate::HeadRow).
    Head,
    /// [`TaggingHeadRow`](crate::TaggingHeadRow).
    TaggingHead,
    /// [`AdapterRow`](crate::AdapterRow).
    Adapter,
    /// [`CopyRow`](crate::CopyRow).
    Copy,
    /// [`ModelLoadRow`](crate::ModelLoadRow).
    ModelLoad,
    /// [`DispatchRow`](crate::DispatchRow).
    Dispatch,
    /// [`HandOverRow`](crate::HandOverRow).
    HandOver,
    /// [`ResumeRow`](crate::ResumeRow).
    Resume,
    /// [`CopyResumeRow`](crate::CopyResumeRow).
    CopyResume,
    /// [`LookupResumeRow`](crate::LookupResumeRow).
    LookupResume,
    /// [`StaticModelRow`](crate::StaticModelRow).
    StaticModel,
    /// [`ConcurrentLayerRow`](crate::ConcurrentLayerRow).
    ConcurrentLayer,
    /// [`ConcurrentModelRow`](crate::ConcurrentModelRow).
    ConcurrentModel,
    /// [`ConcurrentPetRow`](crate::ConcurrentPetRow).
    ConcurrentPet,
    /// [`AttendedLayerRow`](crate::AttendedLayerRow).
    AttendedLayer,
    /// [`TextPassRow`](crate::TextPassRow).
    TextPass,
    /// [`TextLookRow`](crate::TextLookRow).
    TextLook,
    /// [`PlotLookupRow`](crate::PlotLookupRow).
    PlotLookup,
    /// [`PetRow`](crate::PetRow).
    Pet,
    /// [`DecoderDenseRow`](crate::DecoderDenseRow).
    DecoderDense,
    /// [`DecoderPrefillRow`](crate::DecoderPrefillRow).
    DecoderPrefill,
    /// [`DecoderWholePromptRow`](crate::DecoderWholePromptRow).
    DecoderWholePrompt,
    /// [`DecoderDecodeRow`](crate::DecoderDecodeRow).
    DecoderDecode,
    /// [`DecoderMixedRow`](crate::DecoderMixedRow).
    DecoderMixed,
    /// [`DecoderPromptsRow`](crate::DecoderPromptsRow).
    DecoderPrompts,
    /// [`DecoderEndsRow`](crate::DecoderEndsRow).
    DecoderEnds,
    /// [`DecoderStepRow`](crate::DecoderStepRow).
    DecoderStep,
    /// [`ConcurrentStepRow`](crate::ConcurrentStepRow).
    ConcurrentStep,
    /// [`LoraRow`](crate::LoraRow).
    Lora,
    /// [`CollectiveRow`](crate::CollectiveRow).
    Collective,
    /// [`SolveRow`](crate::SolveRow).
    Solve,
    /// [`PlanRow`](crate::PlanRow).
    Plan,
}
named!(Family {
    EncoderLayer => "encoder_layer",
    Embedding => "embedding",
    Head => "head",
    TaggingHead => "tagging_head",
    Adapter => "adapter",
    Copy => "copy",
    ModelLoad => "model_load",
    Dispatch => "dispatch",
    HandOver => "hand_over",
    Resume => "resume",
    CopyResume => "copy_resume",
    LookupResume => "lookup_resume",
    StaticModel => "static_model",
    ConcurrentLayer => "concurrent_layer",
    ConcurrentModel => "concurrent_model",
    ConcurrentPet => "concurrent_pet",
    AttendedLayer => "attended_layer",
    TextPass => "text_pass",
    TextLook => "text_look",
    PlotLookup => "plot_lookup",
    Pet => "pet",
    DecoderDense => "decoder_dense",
    DecoderPrefill => "decoder_prefill",
    DecoderWholePrompt => "decoder_whole_prompt",
    DecoderDecode => "decoder_decode",
    DecoderMixed => "decoder_mixed",
    DecoderPrompts => "decoder_prompts",
    DecoderEnds => "decoder_ends",
    DecoderStep => "decoder_step",
    ConcurrentStep => "concurrent_step",
    Lora => "lora",
    Collective => "collective",
    Solve => "solve",
    Plan => "plan",
});

/// How costs change along a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// More never costs less, and beyond what was measured the last slope goes on.
    Rises,
    /// Whatever was measured; beyond, costs stay what they are at the ends.
    Any,
    /// Whatever was measured; beyond, what is above the least cost of the table goes on in proportion.
    RisesBeyond,
}

impl Family {
    /// The family's file in a profile's folder.
    pub fn file(self) -> String {
        format!("{self}.csv")
    }

    /// Whether a point can exist: a batch never has more tenants than requests, nor a chunk more tokens than its
    /// context.
    pub(crate) fn possible(self, at: &[u64]) -> bool {
        !self.is_triangular() || at[0] <= at[1]
    }

    /// Whether costs between two values of a dimension are interpolated; a model compiled for one length runs no other.
    pub(crate) fn interpolates(self, axis: usize) -> bool {
        (self, axis) != (Family::StaticModel, 1)
    }

    /// How costs change along a dimension. They rise but with the threads that share a look-up's work; with the tasks
    /// that split a pool before its dynamic programs do; with neither pauses nor work where work is handed over, since
    /// their ratio decides which core is woken; with the work before which a lane was idle, of which large products are
    /// less sensitive than many small ones; and with the labels of tokens, since a product of two columns takes longer
    /// than one of sixteen.
    pub(crate) fn growth(self, axis: usize) -> Growth {
        match (self, axis) {
            (Family::PlotLookup | Family::Plan, 0)
            | (Family::HandOver, _)
            | (Family::Resume | Family::CopyResume | Family::LookupResume, 1) => Growth::Any,
            (Family::TaggingHead, 2) => Growth::RisesBeyond,
            _ => Growth::Rises,
        }
    }

    /// Whether costs rise with a dimension.
    pub(crate) fn rises(self, axis: usize) -> bool {
        self.growth(axis) == Growth::Rises
    }

    /// What a column holds that older profiles do not have: their look-ups were of trigrams, whatever they met, and no
    /// cards shared a layer.
    pub(crate) fn default_of(self, column: &str) -> Option<&'static str> {
        match (self, column) {
            (Family::PlotLookup, "outcome") => Some("any"),
            (Family::PlotLookup, "tokens_of") => Some("texts"),
            (Family::PlotLookup, "fragment_tokens") => Some("3"),
            (Family::Resume, "from_layer") => Some("1"),
            (Family::Lora, "tensor_parallel") => Some("1"),
            _ => None,
        }
    }

    /// The kind of models that it prices; none where it prices both kinds, or what is of no model.
    pub(crate) fn model_kind(self) -> Option<ModelKind> {
        match self {
            Family::EncoderLayer
            | Family::Embedding
            | Family::Head
            | Family::TaggingHead
            | Family::StaticModel
            | Family::ConcurrentLayer
            | Family::ConcurrentModel
            | Family::ConcurrentPet
            | Family::AttendedLayer
            | Family::TextPass
            | Family::TextLook
            | Family::Pet => Some(ModelKind::Encoder),
            Family::DecoderDense
            | Family::DecoderPrefill
            | Family::DecoderWholePrompt
            | Family::DecoderDecode
            | Family::DecoderMixed
            | Family::DecoderPrompts
            | Family::DecoderEnds
            | Family::DecoderStep
            | Family::ConcurrentStep
            | Family::Lora => Some(ModelKind::Decoder),
            Family::Adapter
            | Family::Copy
            | Family::ModelLoad
            | Family::Dispatch
            | Family::HandOver
            | Family::Resume
            | Family::CopyResume
            | Family::LookupResume
            | Family::PlotLookup
            | Family::Collective
            | Family::Solve
            | Family::Plan => None,
        }
    }

    /// Whether the first two dimensions are tenants and what they share, so that the first cannot exceed the second.
    pub(crate) fn is_triangular(self) -> bool {
        matches!(
            self,
            Family::Adapter | Family::Lora | Family::DecoderPrefill | Family::Plan
        )
    }
}
