//! `workload:` — what is asked, and when.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::raw::RawManagement;
use crate::scalar::{
    AboveOne, ClientCount, Count, LongCount, LongPeriod, Moment, NotNegative, Part, Period, Positive, Rate, RateOrZero,
    Share, Span, ThreadCount, Variation,
};

/// What is asked, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawWorkload {
    /// When requests arrive.
    pub arrivals: RawArrivals,
    /// How long they are.
    pub lengths: RawLengths,
    /// Tenants and domains that come, change and go meanwhile. Default: none do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub management: Option<RawManagement>,
    /// Clients that give up before they have their answer. Default: none do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancellations: Option<RawCancellations>,
    /// When it is over. Arrivals that never end need it.
    #[serde(default)]
    pub stop: RawStop,
    /// Requests that arrive in this time are served but left out of latencies and shares; throughput counts what is
    /// answered after it.
    #[serde(default)]
    pub warm_up: Span,
}

/// Clients that give up before they have their answer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawCancellations {
    /// Share of the requests whose clients would give up.
    pub share: Part,
    /// How long they wait on average, from arrival on; exponentially distributed. Whoever has its answer sooner does
    /// not give up.
    pub mean_after: Period,
}

/// When a workload is over, its management too: at the earlier of the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawStop {
    /// After this many requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<LongCount>,
    /// Nothing arrives or changes at this time or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Period>,
}

/// How long requests are: `input` and maybe `output`, drawn on their own, or `joint`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [{"required": ["input"]}, {"required": ["joint"]}]))]
pub struct RawLengths {
    /// Tokens of input. A trace's bring their outputs along, unless `output` says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<RawLength>,
    /// Tokens to generate. Default: none, of which decoders make one. Encoders generate nothing, and leave it aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<RawLength>,
    /// Inputs and outputs as they go together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joint: Option<RawJoint>,
}

/// Inputs and outputs as they go together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawJoint {
    /// ShareGPT's conversations, from a generator that was fitted to them.
    Sharegpt,
    /// Inputs, and outputs by how long the input is, as `tenantry trace fit` prints them.
    Bins {
        /// Points of the inputs' distribution function, linear between them.
        input: Vec<RawQuantilePoint>,
        /// By rising input; the last one holds all beyond.
        output_by_input: Vec<RawOutputBin>,
    },
    /// Drawn from the requests of a recording.
    Trace(RawRecordedLengths),
    /// As the recorded arrivals say.
    OfArrivals,
}

/// Outputs of requests whose inputs are of about one length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawOutputBin {
    /// The longest input of the bin, in tokens.
    pub longest_input: Count,
    /// Points of the outputs' distribution function, linear between them.
    pub output: Vec<RawQuantilePoint>,
}

/// Lengths of a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawRecordedLengths {
    /// A file of a known format with lengths. Relative to the working directory.
    pub path: PathBuf,
    /// Leave broken lines out rather than stop at the first.
    #[serde(default)]
    pub skip_bad_lines: bool,
    /// A tokenizer.json that counts the texts of ShareGPT. Default: four characters a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<PathBuf>,
}

/// When requests arrive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawArrivals {
    /// Exponential gaps.
    Poisson {
        /// Mean requests per second.
        rate: Rate,
    },
    /// Equal gaps.
    Constant {
        /// Requests per second.
        rate: Rate,
    },
    /// Gaps from a gamma distribution, which begin at a random moment of one.
    Gamma {
        /// Mean requests per second.
        rate: Rate,
        /// Coefficient of variation of the gaps: 1 is Poisson, above it bursty, below it regular.
        cv: Variation,
    },
    /// Markov-modulated Poisson: bursts. The rate is that of the current state.
    Mmpp {
        /// From each, any of the others follows with equal chance.
        states: Vec<RawMmppState>,
    },
    /// A rate that runs linearly from point to point and ends at the last.
    Ramp {
        /// At least two, in order of time.
        points: Vec<RawRampPoint>,
    },
    /// Every tenant asks once a period, from a random phase on. `tenants.popularity` must be `of-arrivals`.
    PeriodicPerTenant {
        /// Between two requests of one tenant.
        period: Period,
    },
    /// Threads that start one after another and ask at a steady pace.
    Burst {
        /// How many threads.
        threads: ThreadCount,
        /// Between the starts of two threads.
        stagger: Span,
        /// Between two requests of one thread.
        period: Period,
        /// Requests of one thread.
        repeats: Count,
    },
    /// Clients that wait for their answer, think, and ask again.
    ClosedLoop {
        /// How many clients.
        clients: ClientCount,
        /// From an answer to the client's next request.
        think_time: Span,
    },
    /// Per-second counts of a recording, with the instants inside a second drawn.
    Counts(RawCounts),
    /// The instants of a recording.
    Trace(RawTrace),
    /// Every tenant as active as in a recording, minute by minute. `tenants.popularity` must be `of-arrivals`.
    Activity(RawActivity),
    /// Exponential gaps at a rate that follows a table of a value for each minute, hour or day.
    Shape(RawRateShape),
    /// The rate of the Twitter sample stream over time, from a generator that was fitted to it.
    Twitter {
        /// Mean requests per second; the pattern is scaled to it.
        rate: Rate,
    },
    /// Calms and plateaus in turns, as `tenantry trace fit` prints them.
    Regimes {
        /// Mean requests per second; the pattern is scaled to it.
        rate: Rate,
        /// Between plateaus. Its level goes on where it left off.
        calm: RawRegime,
        /// Stretches of a higher rate.
        plateau: RawRegime,
    },
    /// Several at once.
    Superpose(Vec<RawArrivals>),
    /// More or fewer of the same: rates are multiplied; where there are instants rather than rates, time is compressed.
    Scaled {
        /// What rates are multiplied by.
        factor: Positive,
        /// The arrivals that are scaled.
        arrivals: Box<RawArrivals>,
    },
    /// A part of others, once or again and again, after a while.
    Cut(RawPart),
}

/// A part of other arrivals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawPart {
    /// The arrivals that a part is taken from.
    pub arrivals: Box<RawArrivals>,
    /// Where it begins, in the arrivals' own time; this instant becomes the start.
    #[serde(default)]
    pub from: Moment,
    /// How long it is. Default: to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<Period>,
    /// Whether it begins again at its end, each time with draws of its own.
    #[serde(default)]
    pub repeat: bool,
    /// Silence before it.
    #[serde(default)]
    pub delay: Span,
}

/// One state of a Markov-modulated Poisson process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawMmppState {
    /// Mean requests per second in this state.
    pub rate: RateOrZero,
    /// Mean time in this state; the time itself is exponential.
    pub mean_dwell: LongPeriod,
}

/// A corner of a ramp.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawRampPoint {
    /// The instant, from the start on.
    pub at: Span,
    /// Requests per second at that instant.
    pub rate: RateOrZero,
}

/// A calm or a plateau. Points are of distribution functions, linear between them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawRegime {
    /// How long it lasts.
    pub lasts: Vec<RawTimePoint>,
    /// The rate in it, in any scale.
    pub rates: Vec<RawRatePoint>,
    /// Over what time the level is forgotten: the time constant of the autocorrelation of the normal variable that it
    /// is the quantile of. The rates' own is shorter where a few are far from the others, and that of counted requests
    /// is shorter still.
    pub memory: Period,
}

/// A point of a distribution of times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawTimePoint {
    /// Share of at most this time: rises from 0 to 1.
    pub share: NotNegative,
    /// The time; rises with the share.
    pub time: Span,
}

/// A point of a distribution of rates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawRatePoint {
    /// Share of at most this rate: rises from 0 to 1.
    pub share: NotNegative,
    /// The rate, in any scale; rises with the share.
    pub rate: RateOrZero,
}

/// Arrivals from per-second counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawCounts {
    /// A CSV with a `requests` column, or `second,requests`; plain or gzip. Relative to the working directory.
    pub path: PathBuf,
    /// Where in its second a request falls.
    #[serde(default)]
    pub placement: RawPlacement,
    /// What the counts are multiplied by.
    #[serde(default = "unscaled")]
    pub scale: Positive,
    /// Runs of zero seconds of at least this length are left out, as holes of the recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drop_zeros_from: Option<Period>,
    /// Let a second with a broken line have no requests rather than stop at the first.
    #[serde(default)]
    pub skip_bad_lines: bool,
    /// Where it begins, by the recording's own `second`s, or counted from its first row; this instant becomes the start
    /// of the run. At or before the first row it is the first row.
    #[serde(default)]
    pub from: Moment,
    /// How long it is. Default: to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<Period>,
    /// Whether it begins again at its end.
    #[serde(default)]
    pub repeat: bool,
}

fn unscaled() -> Positive {
    Positive(1.0)
}

/// Where in its second a request falls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawPlacement {
    /// The second's count is the rate of a Poisson process.
    #[default]
    Poisson,
    /// The second's count is the mean rate of a process with bursts.
    Bursty {
        /// Rate in a burst over the mean rate.
        peak: AboveOne,
        /// Share of the time in bursts; times `peak` at most 1.
        share: Share,
        /// Mean length of a burst.
        mean_burst: LongPeriod,
    },
    /// Equal gaps: exactly the count.
    Even,
}

/// Arrivals at the instants of a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawTrace {
    /// A file of a known format with arrival times. Relative to the working directory.
    pub path: PathBuf,
    /// What time is divided by: 2 is twice the rate.
    #[serde(default = "unscaled")]
    pub speed: Positive,
    /// Leave broken lines out rather than stop at the first.
    #[serde(default)]
    pub skip_bad_lines: bool,
    /// Where it begins, in the recording's own time; this instant becomes the start of the run.
    #[serde(default)]
    pub from: Moment,
    /// How long it is, in the recording's own time. Default: to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<Period>,
    /// Whether it begins again at its end.
    #[serde(default)]
    pub repeat: bool,
}

/// Arrivals from tenants' activity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawActivity {
    /// Azure Functions' invocations, of 2019 or 2021. Relative to the working directory.
    pub path: PathBuf,
    /// What the counts are multiplied by.
    #[serde(default = "unscaled")]
    pub scale: Positive,
    /// Leave broken lines out rather than stop at the first.
    #[serde(default)]
    pub skip_bad_lines: bool,
    /// Whether it begins again at its end: after the last minute that has a column, and in forms without such columns
    /// after whole days.
    #[serde(default)]
    pub repeat: bool,
}

/// A rate that follows a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawRateShape {
    /// A CSV such as `hour,requests_per_hour`. Relative to the working directory.
    pub path: PathBuf,
    /// Mean requests per second over the table; the pattern is scaled to it.
    pub rate: Rate,
    /// How long a step lasts. Default: as long as the table says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<LongPeriod>,
    /// Whether it begins again at its end.
    #[serde(default)]
    pub repeat: bool,
}

/// One length in tokens. Bounds are inclusive; a distribution is cut at them, not piled up on them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawLength {
    /// Always the same.
    Fixed(Count),
    /// A normal distribution.
    Normal {
        /// Mean before the cut, in tokens.
        mean: Positive,
        /// Standard deviation before the cut, in tokens.
        sd: Positive,
        /// Shortest length, in tokens.
        min: Count,
        /// Longest length, in tokens.
        max: Count,
    },
    /// A lognormal distribution.
    Lognormal {
        /// Median before the cut, in tokens.
        median: Positive,
        /// Standard deviation of the logarithm.
        sigma: Positive,
        /// Shortest length, in tokens.
        min: Count,
        /// Longest length, in tokens.
        max: Count,
    },
    /// Each length as likely as it is frequent in the list.
    Empirical(Vec<Count>),
    /// Tweets, from a generator that was fitted to them.
    Twitter {
        /// Whose tweets.
        #[serde(default)]
        tweets: RawTweets,
        /// The longest: lengths are multiplied by this over 125, the longest tweet of the Arlo paper, and cut at it.
        /// 512 is what that paper does for a model of 512 positions; 125 leaves them as they are.
        #[serde(default = "unstretched")]
        span: Count,
    },
    /// Points of the distribution function, linear between them.
    Quantiles(Vec<RawQuantilePoint>),
    /// ShareGPT's inputs, or as an output its outputs, from a generator that was fitted to them.
    Sharegpt,
    /// A mixture that drifts from one distribution to another and back.
    Drifting {
        /// Lengths at the start.
        from: Box<RawLength>,
        /// Lengths half-way, after half of `requests`.
        to: Box<RawLength>,
        /// From the start until it is as at the start.
        requests: LongCount,
    },
    /// Drawn from the lengths of a recording.
    Trace(RawRecordedLengths),
    /// As the recorded arrivals say.
    OfArrivals,
    /// As long as the texts that requests are about: the items of `outcomes`' profiled models, as each model's
    /// tokenizer counts them.
    OfItems,
}

/// A point of a distribution function.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawQuantilePoint {
    /// Share of the requests with at most so many tokens: rises from 0 to 1.
    pub share: NotNegative,
    /// Tokens; rises with the share.
    pub tokens: NotNegative,
}

fn unstretched() -> Count {
    Count(125)
}

/// Whose tweets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawTweets {
    /// The sample stream of 2018-04-25 under BERT's tokenizer: p50 33, p98 74, at most 134.
    #[default]
    Measured,
    /// What the Arlo paper reports of its clips: p50 21, p98 72, at most 125.
    Arlo,
}
