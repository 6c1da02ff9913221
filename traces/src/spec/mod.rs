//! What a workload is to be: plain data, checked when it is built by [`crate::generate::build`].
//!
//! The names are those of the scenario's `workload:` section; how they are written in YAML is the scenarios' affair.

mod tenants;

use std::path::PathBuf;

pub use tenants::{DiurnalSpec, GroupsSpec, LifetimesSpec, OnOffSpec, Phases, PopularitySpec, PresenceSpec};

use crate::fit;
use crate::fit::twitter::Regimes;
use crate::management::ManagementSpec;
use crate::time::{Duration, Time};

/// A whole workload.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadSpec {
    /// The one seed; every draw is a function of it, of a purpose and of a ticket.
    pub seed: u64,
    /// How many tenants there are, at least 1.
    pub tenants: u32,
    /// Which tenant asks.
    pub popularity: PopularitySpec,
    /// When each tenant is awake.
    pub presence: PresenceSpec,
    /// When requests arrive.
    pub arrivals: ArrivalsSpec,
    /// How long they are.
    pub lengths: LengthsSpec,
    /// Shares of the tenants in service class 0, 1, …, in any unit; empty where there is one class.
    pub class_shares: Vec<f64>,
    /// Shares of the tenants in other groups.
    pub groups: GroupsSpec,
    /// What changes while requests are served.
    pub management: ManagementSpec,
    /// Clients that give up, if any do.
    pub cancellations: Option<CancellationsSpec>,
    /// When it is over.
    pub stop: Stop,
}

/// Clients that give up before they have their answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CancellationsSpec {
    /// Share of the requests whose clients would.
    pub share: f64,
    /// How long they wait on average: exponentially distributed, from arrival on. Whoever has its answer sooner does
    /// not give up.
    pub mean_after: Duration,
}

/// When a workload is over, its management too: at the earlier of the two. Endless arrivals need one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stop {
    /// After this many requests.
    pub requests: Option<u64>,
    /// Nothing arrives or changes at this time or later.
    pub after: Option<Time>,
}

impl Stop {
    /// Nothing arrives at this time or later, whether or not that was asked for.
    pub(crate) fn end(&self) -> Time {
        self.after.map_or(Time::ARRIVALS_END, |after| after.min(Time::ARRIVALS_END))
    }
}

/// When requests arrive.
#[derive(Clone, Debug, PartialEq)]
pub enum ArrivalsSpec {
    /// Exponential gaps.
    Poisson {
        /// Mean requests per second.
        rate_per_s: f64,
    },
    /// Equal gaps, half of one before the first request.
    Constant {
        /// Requests per second.
        rate_per_s: f64,
    },
    /// Gaps from a gamma distribution: a renewal process of given burstiness (`cv` 1 is Poisson, above 1 bursty, below
    /// regular), from a random moment of a gap on.
    Gamma {
        /// Mean requests per second.
        rate_per_s: f64,
        /// Coefficient of variation of the gaps.
        cv: f64,
    },
    /// Markov-modulated Poisson: a Poisson process whose rate is that of the current state. Dwell times are
    /// exponential, the next state is any of the others with equal chance, and the first state is drawn from the
    /// stationary distribution.
    Mmpp {
        /// At least one state.
        states: Vec<MmppState>,
    },
    /// Poisson at a rate that runs linearly from point to point and ends at the last one (Punica, section 7.3: an
    /// hour's ramp).
    Ramp {
        /// Times rise, and the first is where arrivals begin.
        points: Vec<RampPoint>,
    },
    /// Every tenant asks once a period, from a random phase on (HMI, section 7.4: one request every 20 s). It says
    /// which tenant asks: popularity must be [`PopularitySpec::OfArrivals`].
    PeriodicPerTenant {
        /// Between two requests of one tenant.
        period: Duration,
    },
    /// Threads that start one after another and ask at a steady pace (HMI, section 7.4: 250 threads 50 ms apart, each
    /// 50 requests, one every 1.2 s).
    ThreadBursts {
        /// How many.
        threads: u32,
        /// Between the starts of two threads.
        stagger: Duration,
        /// Between two requests of one thread.
        period: Duration,
        /// Requests of one thread.
        repeats: u32,
    },
    /// Clients that wait for their answer, think, and ask again. All ask at the start.
    ClosedLoop {
        /// Requests in flight or being thought about.
        clients: u32,
        /// From an answer to the client's next request.
        think_time: Duration,
    },
    /// Per-second counts of a recorded trace, with the instants inside a second drawn.
    Counts(CountsSpec),
    /// The instants of a recorded trace.
    Trace(TraceSpec),
    /// Every tenant as active as in a recording, minute by minute, with the instants inside a minute drawn. It says
    /// which tenant asks: popularity must be [`PopularitySpec::OfArrivals`].
    Activity(ActivitySpec),
    /// The second-by-second rate of the Twitter sample stream as a fitted generator ([`crate::fit::twitter`]).
    Twitter {
        /// Mean requests per second; the pattern is scaled to it.
        rate_per_s: f64,
    },
    /// Calms and plateaus that were fitted to a recording ([`crate::fit::twitter::fit_rates`]).
    Regimes {
        /// Mean requests per second; the pattern is scaled to it.
        rate_per_s: f64,
        /// The pattern.
        regimes: Regimes,
    },
    /// Poisson at a rate that follows aggregated rates, step by step.
    Shape(ShapeSpec),
    /// Several at once.
    Superpose(Vec<ArrivalsSpec>),
    /// More or fewer of the same: rates are multiplied, and where there are instants rather than rates, time is
    /// compressed.
    Scaled {
        /// What rates are multiplied by.
        factor: f64,
        /// Of what.
        arrivals: Box<ArrivalsSpec>,
    },
    /// A part of others, once or again and again, after a while.
    Part(PartSpec),
}

/// One state of a Markov-modulated Poisson process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MmppState {
    /// Requests per second in this state; may be 0.
    pub rate_per_s: f64,
    /// Mean time in this state.
    pub mean_dwell: Duration,
}

/// A corner of a [`ArrivalsSpec::Ramp`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RampPoint {
    /// When.
    pub at: Time,
    /// Requests per second at that instant; may be 0.
    pub rate_per_s: f64,
}

/// Arrivals from per-second counts.
#[derive(Clone, Debug, PartialEq)]
pub struct CountsSpec {
    /// A CSV with a `requests` column, or `second,requests`; plain or gzip.
    pub path: PathBuf,
    /// Where in its second a request falls.
    pub placement: Placement,
    /// What the counts are multiplied by.
    pub scale: f64,
    /// Runs of at least this many zero seconds are left out, as holes of the recording (the Twitter archive lacks 29
    /// minutes every day).
    pub drop_zeros_from: Option<Duration>,
    /// Let a second with a broken line have no requests rather than stop at the first.
    pub skip_bad_lines: bool,
    /// Which part.
    pub cut: Cut,
}

/// Where in its second a request falls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Placement {
    /// The second's count is the rate of a Poisson process (Arlo, section 5: "Twitter-Stable").
    Poisson,
    /// The second's count is the rate of a Markov-modulated Poisson process (Arlo, section 5: "Twitter-Bursty", whose
    /// parameters the paper does not give): two states whose mean over time is the second's count.
    Bursty {
        /// Rate in a burst over the mean rate, above 1.
        peak: f64,
        /// Share of time in bursts; `peak * share` is at most 1.
        share: f64,
        /// Mean length of a burst.
        mean_burst: Duration,
    },
    /// Equal gaps within a second: exactly the count, with fractions of scaled counts carried on.
    Even,
}

/// A part of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Where it begins; this instant becomes the start of the run.
    pub from: Duration,
    /// How long it is; to the end where it is absent.
    pub length: Option<Duration>,
    /// Whether it begins again at its end.
    pub repeat: bool,
}

/// A part of other arrivals. Each round of a part that repeats has draws of its own; tenants and what is recorded stay
/// as they are.
#[derive(Clone, Debug, PartialEq)]
pub struct PartSpec {
    /// Which part, in the arrivals' own time.
    pub cut: Cut,
    /// Silence before the first round.
    pub delay: Duration,
    /// Of what.
    pub arrivals: Box<ArrivalsSpec>,
}

/// Arrivals from tenants' activity. It is kept in memory, 12 bytes for each minute of each tenant that has requests.
#[derive(Clone, Debug, PartialEq)]
pub struct ActivitySpec {
    /// Azure Functions' invocations a minute, as released or sparse ([`crate::read::activity`]). Where its number of
    /// tenants is not the workload's, its rows are drawn with replacement, and each copy is shifted by a random number
    /// of minutes.
    pub path: PathBuf,
    /// What the counts are multiplied by; a fraction of a request is one with that chance.
    pub scale: f64,
    /// Leave broken lines out rather than stop at the first.
    pub skip_bad_lines: bool,
    /// Whether the recording begins again at its end: in the wide form after its last minute, in others, which do not
    /// say when they end, after whole days.
    pub repeat: bool,
}

/// Arrivals at a rate that follows aggregated rates.
#[derive(Clone, Debug, PartialEq)]
pub struct ShapeSpec {
    /// A table of a value for each minute, hour or day ([`crate::read::shape`]).
    pub path: PathBuf,
    /// Mean requests per second over the table; the pattern is scaled to it.
    pub rate_per_s: f64,
    /// How long a step lasts; as long as the table says where it is absent.
    pub step: Option<Duration>,
    /// Whether it begins again at its end.
    pub repeat: bool,
}

/// Arrivals at the instants of a recorded trace.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSpec {
    /// A file of a known format with arrival times ([`crate::read`]).
    pub path: PathBuf,
    /// What time is divided by: 2 is twice the rate.
    pub speed: f64,
    /// Leave broken lines out rather than stop at the first.
    pub skip_bad_lines: bool,
    /// Which part, in the recording's own time.
    pub cut: Cut,
}

/// Lengths of input and output.
#[derive(Clone, Debug, PartialEq)]
pub enum LengthsSpec {
    /// Drawn independently of each other.
    Independent {
        /// Input tokens, at least 1.
        input: LengthSpec,
        /// Output tokens; fixed at 0 for encoders.
        output: LengthSpec,
    },
    /// Both at once, as in ShareGPT conversations under the Llama-2 tokenizer ([`crate::fit::sharegpt`]).
    ShareGpt,
    /// Inputs, and outputs by input, that were fitted to a recording ([`crate::fit::sharegpt::fit`]).
    Joint(JointSpec),
    /// Pairs drawn from the lengths of a recorded trace's requests that are answered; its rows are kept in memory.
    Resampled {
        /// A file of a known format with lengths ([`crate::read`]).
        path: PathBuf,
        /// Leave broken lines out rather than stop at the first.
        skip_bad_lines: bool,
        /// Counts ShareGPT's texts; four characters a token where it is absent ([`crate::read::tokenizer`]).
        tokenizer: Option<PathBuf>,
    },
    /// As the recorded arrivals say.
    OfArrivals,
}

/// Inputs, and outputs by how long the input is.
#[derive(Clone, Debug, PartialEq)]
pub struct JointSpec {
    /// Points of the inputs' distribution function.
    pub input: Vec<QuantilePoint>,
    /// By rising input, at least one; the last one holds all beyond.
    pub output_by_input: Vec<OutputBinSpec>,
}

/// The outputs of requests whose inputs are of about one length.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputBinSpec {
    /// The longest input of the bin, in tokens.
    pub longest_input: u32,
    /// Points of the outputs' distribution function.
    pub output: Vec<QuantilePoint>,
}

/// The longest length, in tokens, that a distribution may have: far above any model's context, and 8 MiB of table.
pub const MAX_TOKENS: u32 = 1 << 20;

/// One length, in tokens. Bounds are inclusive; a distribution is cut at them, not piled up on them.
#[derive(Clone, Debug, PartialEq)]
pub enum LengthSpec {
    /// Always the same.
    Fixed(u32),
    /// Rounded to whole tokens.
    Normal {
        /// Before the cut.
        mean: f64,
        /// Before the cut.
        sd: f64,
        /// Shortest.
        min: u32,
        /// Longest.
        max: u32,
    },
    /// Rounded to whole tokens.
    Lognormal {
        /// Before the cut.
        median: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
        /// Shortest.
        min: u32,
        /// Longest.
        max: u32,
    },
    /// Each as likely as it is frequent here.
    Empirical(Vec<u32>),
    /// Points of the distribution function, linear between them.
    Quantiles(Vec<QuantilePoint>),
    /// Of ShareGPT's conversations, as a fitted generator ([`crate::fit::sharegpt`]): its inputs where an input is
    /// asked for, else its outputs, on their own.
    ShareGpt,
    /// Each as likely as it is frequent among the inputs, or the outputs, of a recorded trace's requests that are
    /// answered.
    Recorded {
        /// A file of a known format with lengths ([`crate::read`]).
        path: PathBuf,
        /// Leave broken lines out rather than stop at the first.
        skip_bad_lines: bool,
        /// Counts ShareGPT's texts; four characters a token where it is absent.
        tokenizer: Option<PathBuf>,
    },
    /// Tweets, as a fitted generator ([`crate::fit::twitter`]).
    Twitter {
        /// Whose tweets.
        tweets: Tweets,
        /// Lengths are multiplied by `span` / 125 and cut at `span`: 512 is Arlo's recalibration "to span up to a
        /// maximum length of 512" (section 5), of the measured tweets without the four of 10,000 that are longer than
        /// its longest, 125. 125 itself leaves them as they were.
        span: u32,
    },
    /// A mixture that drifts from one distribution to another and back: of request n, `to` has the share (1 − cos 2πn /
    /// `requests`) / 2. By requests and not by time, so that a closed loop's policy does not change them.
    Drifting {
        /// At the start.
        from: Box<LengthSpec>,
        /// Half-way.
        to: Box<LengthSpec>,
        /// From the start until it is as at the start, at least 2.
        requests: u64,
    },
}

/// A point of a distribution function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuantilePoint {
    /// Probability of at most `tokens`: rises from 0 to 1.
    pub probability: f64,
    /// Tokens; rises with the probability.
    pub tokens: f64,
}

/// Whose tweets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tweets {
    /// The sample stream of 2018-04-25 under bert-base-uncased: p50 33, p98 74.
    Measured,
    /// What Arlo reports of its own clips (section 2): p50 21, p98 72, cut at 125.
    Arlo,
}

impl WorkloadSpec {
    /// Until arrivals end, from tenants of one class who ask equally often, are awake all the time and wait for their
    /// answers; nothing changes meanwhile.
    pub fn new(seed: u64, tenants: u32, arrivals: ArrivalsSpec, lengths: LengthsSpec) -> WorkloadSpec {
        WorkloadSpec {
            seed,
            tenants,
            popularity: PopularitySpec::Uniform,
            presence: PresenceSpec::default(),
            arrivals,
            lengths,
            class_shares: Vec::new(),
            groups: GroupsSpec::default(),
            management: ManagementSpec::default(),
            cancellations: None,
            stop: Stop::default(),
        }
    }

    /// Where the numbers of the fitted generators in it come from, for reports.
    pub fn sources(&self) -> Vec<&'static str> {
        let mut sources = Vec::new();
        let is_twitter = |leaf: &&ArrivalsSpec| matches!(leaf, ArrivalsSpec::Twitter { .. });
        if self.arrivals.leaves().iter().any(is_twitter) {
            sources.push(fit::twitter::RATES_SOURCE);
        }
        match &self.lengths {
            LengthsSpec::Independent { input, output } => {
                let mut parts = input.parts();
                parts.extend(output.parts());
                let measured = |part: &&LengthSpec| {
                    matches!(
                        part,
                        LengthSpec::Twitter {
                            tweets: Tweets::Measured,
                            ..
                        }
                    )
                };
                if parts.iter().any(measured) {
                    sources.push(fit::twitter::LENGTHS_SOURCE);
                }
                if parts.contains(&&LengthSpec::ShareGpt) {
                    sources.push(fit::sharegpt::SOURCE);
                }
            }
            LengthsSpec::ShareGpt => sources.push(fit::sharegpt::SOURCE),
            LengthsSpec::Joint(_) | LengthsSpec::Resampled { .. } | LengthsSpec::OfArrivals => {}
        }
        if self.popularity == PopularitySpec::AzureFunctions {
            sources.push(fit::azure_functions::SOURCE);
        }
        sources
    }
}

impl LengthSpec {
    /// What it is mixed of; itself where it is no mixture.
    fn parts(&self) -> Vec<&LengthSpec> {
        match self {
            LengthSpec::Drifting { from, to, .. } => [from.parts(), to.parts()].concat(),
            _ => vec![self],
        }
    }
}

impl ArrivalsSpec {
    /// Requests a second that are asked for in the mean over a time without end; none of recordings, of what ends by
    /// itself, and of what hangs on tenants or answers.
    pub fn rate_per_s(&self) -> Option<f64> {
        match self {
            ArrivalsSpec::Poisson { rate_per_s }
            | ArrivalsSpec::Constant { rate_per_s }
            | ArrivalsSpec::Gamma { rate_per_s, .. }
            | ArrivalsSpec::Twitter { rate_per_s }
            | ArrivalsSpec::Regimes { rate_per_s, .. } => Some(*rate_per_s),
            // Each state follows any other with equal chance: the time in it is in proportion to its dwell.
            ArrivalsSpec::Mmpp { states } => {
                let over_time = |of: fn(&MmppState) -> f64| -> f64 {
                    states.iter().map(|state| of(state) * state.mean_dwell.as_secs_f64()).sum()
                };
                Some(over_time(|state| state.rate_per_s) / over_time(|_| 1.0))
            }
            ArrivalsSpec::Superpose(parts) => parts.iter().map(ArrivalsSpec::rate_per_s).sum(),
            ArrivalsSpec::Scaled { factor, arrivals } => Some(factor * arrivals.rate_per_s()?),
            ArrivalsSpec::Ramp { .. }
            | ArrivalsSpec::PeriodicPerTenant { .. }
            | ArrivalsSpec::ThreadBursts { .. }
            | ArrivalsSpec::ClosedLoop { .. }
            | ArrivalsSpec::Counts(_)
            | ArrivalsSpec::Trace(_)
            | ArrivalsSpec::Activity(_)
            | ArrivalsSpec::Shape(_)
            | ArrivalsSpec::Part(_) => None,
        }
    }

    /// What they are made of; themselves where they are made of nothing else.
    pub fn leaves(&self) -> Vec<&ArrivalsSpec> {
        match self {
            ArrivalsSpec::Superpose(parts) => parts.iter().flat_map(ArrivalsSpec::leaves).collect(),
            ArrivalsSpec::Scaled { arrivals, .. } => arrivals.leaves(),
            ArrivalsSpec::Part(part) => part.arrivals.leaves(),
            _ => vec![self],
        }
    }

    /// Whether they go on for ever.
    pub fn is_endless(&self) -> bool {
        match self {
            ArrivalsSpec::Ramp { .. } | ArrivalsSpec::ThreadBursts { .. } => false,
            ArrivalsSpec::Counts(counts) => counts.cut.repeat,
            ArrivalsSpec::Trace(trace) => trace.cut.repeat,
            ArrivalsSpec::Activity(activity) => activity.repeat,
            ArrivalsSpec::Shape(shape) => shape.repeat,
            ArrivalsSpec::Superpose(parts) => parts.iter().any(ArrivalsSpec::is_endless),
            ArrivalsSpec::Scaled { arrivals, .. } => arrivals.is_endless(),
            ArrivalsSpec::Part(part) => part.cut.repeat || (part.cut.length.is_none() && part.arrivals.is_endless()),
            ArrivalsSpec::Poisson { .. }
            | ArrivalsSpec::Constant { .. }
            | ArrivalsSpec::Gamma { .. }
            | ArrivalsSpec::Mmpp { .. }
            | ArrivalsSpec::PeriodicPerTenant { .. }
            | ArrivalsSpec::ClosedLoop { .. }
            | ArrivalsSpec::Regimes { .. }
            | ArrivalsSpec::Twitter { .. } => true,
        }
    }
}
