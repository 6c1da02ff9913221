//! `runtimes:` — one model compiled for several input lengths, each instance with one of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::scalar::{Count, LongPeriod, Name, Percent, Period, Span};

/// Runtimes of several lengths, who gets which request, and how many instances of each there are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct RawRuntimes {
    /// The latency promised, which says how many requests an instance may be given.
    pub slo: Period,
    /// The longest request that is served, in tokens.
    pub max_length: Count,
    /// Which runtimes there are.
    #[serde(default)]
    pub lengths: RawRuntimeLengths,
    /// What they are compiled for.
    #[serde(default)]
    pub shape: RawShapeKind,
    /// Which instance serves a request.
    #[serde(default)]
    pub dispatch: RawDispatch,
    /// How many instances each runtime has.
    #[serde(default)]
    pub allocate: RawAllocate,
    /// How the number of cards follows the load. Default: all cards are used all the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<RawScaling>,
    /// Further request streams that share the cards, each of the service class after the last; the system's own is
    /// class 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<RawStream>,
}

/// A request stream with a model and a target of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct RawStream {
    /// As reports call it.
    pub name: Name,
    /// A key of `models`, or a built-in model.
    pub model: String,
    /// The latency promised.
    pub slo: Period,
    /// The longest request that is served, in tokens.
    pub max_length: Count,
    /// Which runtimes there are.
    #[serde(default)]
    pub lengths: RawRuntimeLengths,
    /// What they are compiled for.
    #[serde(default)]
    pub shape: RawShapeKind,
}

/// Which runtimes there are, by the longest request that each serves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawRuntimeLengths {
    /// One for each step in which the card's latency rises with the length, up to the longest. Where the card's profile
    /// shows no steps: the lengths that the model was compiled for, or else eight equal parts of the longest.
    #[default]
    Staircase,
    /// One, of the longest.
    Longest,
    /// One for each step of so many tokens, up to the longest.
    Step(Count),
    /// So many, in equal steps up to the longest.
    Count(Count),
    /// These, ascending, the longest last.
    Of(Vec<Count>),
}

/// What runtimes are compiled for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawShapeKind {
    /// One length, to which every input is padded.
    #[default]
    Static,
    /// Any length up to the runtime's: nothing is padded, and everything takes longer.
    Dynamic,
}

/// Which instance serves a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawDispatch {
    /// The first runtime, from the shortest that serves it, whose least loaded instance is not crowded; the shortest if
    /// all are.
    Demote {
        /// From which share of its capacity on an instance of the shortest is crowded.
        threshold: Percent,
        /// What that share is multiplied by from one runtime to the next.
        decay: Percent,
        /// Runtimes that are looked at.
        peek: Count,
    },
    /// The least loaded instance of the shortest runtime that serves it.
    #[default]
    LeastPadding,
    /// The least loaded of all instances that serve it.
    LeastLoaded,
    /// The fullest of all instances that serve it and have room.
    Pack {
        /// Up to which share of its capacity an instance has room.
        fill: Percent,
    },
}

/// How many instances each runtime has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawAllocate {
    /// As many of each.
    #[default]
    Even,
    /// These, from the shortest runtime to the longest, stream by stream.
    Fixed(Vec<u32>),
    /// The cheapest for the lengths of the whole workload, solved before the start.
    Global {
        /// Who solves the program.
        #[serde(default)]
        solver: RawSolver,
    },
    /// The cheapest for the lengths of the last period, solved anew each period.
    Periodic {
        /// From one decision to the next.
        period: LongPeriod,
        /// When the first comes; until then instances are given evenly.
        first: Period,
        /// Instances that load another runtime at once, at most.
        at_once: Count,
        /// Who solves the program.
        #[serde(default)]
        solver: RawSolver,
    },
}

/// Who solves the allocation program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawSolver {
    /// A dynamic program: exact and fast.
    #[default]
    Dynamic,
    /// The integer program, by HiGHS.
    Highs,
}

/// How the number of cards follows the load, up to the cluster's or, in a cascade, up to the stage's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct RawScaling {
    /// Cards at the start.
    pub start: Count,
    /// Cards that are kept, at least.
    #[serde(default = "one")]
    pub min: Count,
    /// From the decision to add a card until it begins to load its model, unless another stage uses the card already.
    pub start_up: Span,
    /// When to add and when to release.
    pub rule: RawScalingRule,
}

/// When to add a card and when to release one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawScalingRule {
    /// By the tail of recent latencies.
    TargetTracking {
        /// Which percentile is tracked.
        percentile: Count,
        /// A card is added when it reaches this share of the SLO.
        add: Percent,
        /// The least busy card is released when it is below this share for a period.
        release: Percent,
        /// How far back recent requests go.
        recent: LongPeriod,
        /// How long the tail must stay low.
        period: Period,
        /// After a card was added, how long nothing is decided, and latencies are not observed: its start-up at least.
        settle: Span,
    },
    /// By the load: so many cards as the last interval's requests need, and some more.
    Headroom {
        /// Capacity beyond the load, as a share of it.
        spare: Percent,
        /// How often the load is looked at.
        interval: LongPeriod,
        /// Intervals in a row for which fewer cards must suffice before one is released.
        patience: Count,
    },
}

fn one() -> Count {
    Count(1)
}
