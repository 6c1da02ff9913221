//! Lengths of requests, as functions of the ticket.

use super::alias::Alias;
use crate::draw::{Draws, Purpose};
use crate::error::{TraceError, positive};
use crate::fit::quantiles::{LengthKnot, points, probability};
use crate::fit::{sharegpt, twitter};
use crate::read::{self, Records, tokenizer};
use crate::request::{Lengths, Ticket};
use crate::spec::{LengthSpec, LengthsSpec, MAX_TOKENS, QuantilePoint, Tweets};

/// Lengths by ticket.
pub enum LengthsByTicket {
    /// Input and output drawn on their own.
    Independent {
        input: (Draws, Length),
        output: (Draws, Length),
    },
    /// An input, then an output given the input's bin.
    Joint {
        input: (Draws, Length),
        output: Draws,
        bins: Vec<(u32, Length)>,
        /// What both come to at most; an output is at least 1 all the same.
        together: u32,
    },
    /// Pairs, all alike.
    Pairs { draws: Draws, pairs: Vec<Lengths> },
    /// What the arrivals bring.
    OfArrivals,
}

impl LengthsByTicket {
    pub fn new(seed: u64, spec: &LengthsSpec) -> Result<LengthsByTicket, TraceError> {
        let input_draws = Draws::new(seed, Purpose::InputLength);
        let output_draws = Draws::new(seed, Purpose::OutputLength);
        Ok(match spec {
            LengthsSpec::Independent { input, output } => {
                let input = Length::new("workload.lengths.input", input, Side::Input)?;
                if input.min() == 0 {
                    return Err(TraceError::spec("workload.lengths.input", "at least 1 token", 0));
                }
                LengthsByTicket::Independent {
                    input: (input_draws, input),
                    output: (
                        output_draws,
                        Length::new("workload.lengths.output", output, Side::Output)?,
                    ),
                }
            }
            LengthsSpec::ShareGpt => {
                let bins = sharegpt::OUTPUT_BY_INPUT.iter();
                LengthsByTicket::Joint {
                    input: (input_draws, Length::of_quantiles(&points(sharegpt::INPUT))),
                    output: output_draws,
                    bins: bins.map(|bin| (bin.0, Length::of_quantiles(&points(bin.1)))).collect(),
                    together: sharegpt::LONGEST_TOGETHER,
                }
            }
            LengthsSpec::Joint(joint) => {
                let field = "workload.lengths.joint";
                check_quantiles(&format!("{field}.input"), &joint.input)?;
                if joint.output_by_input.is_empty() {
                    let field = format!("{field}.output_by_input");
                    return Err(TraceError::spec(&field, "a list of at least one", "an empty list"));
                }
                let mut bins = Vec::new();
                for (i, bin) in joint.output_by_input.iter().enumerate() {
                    let field = format!("{field}.output_by_input[{i}]");
                    check_quantiles(&format!("{field}.output"), &bin.output)?;
                    if bins.last().is_some_and(|(before, _)| *before >= bin.longest_input) {
                        let field = format!("{field}.longest_input");
                        return Err(TraceError::spec(&field, "above the bin before", bin.longest_input));
                    }
                    bins.push((bin.longest_input, Length::of_quantiles(&bin.output)));
                }
                LengthsByTicket::Joint {
                    input: (input_draws, Length::of_quantiles(&joint.input)),
                    output: output_draws,
                    bins,
                    together: u32::MAX,
                }
            }
            LengthsSpec::Resampled {
                path,
                skip_bad_lines,
                tokenizer,
            } => LengthsByTicket::Pairs {
                draws: input_draws,
                pairs: read::lengths_with(path, *skip_bad_lines, tokenizer.as_deref())?,
            },
            LengthsSpec::OfArrivals => LengthsByTicket::OfArrivals,
        })
    }

    /// The lengths of `ticket`; `None` where only its arrival can tell.
    #[inline(always)]
    pub fn of(&self, ticket: Ticket) -> Option<Lengths> {
        Some(match self {
            LengthsByTicket::Independent { input, output } => Lengths {
                input: input.1.of(input.0, ticket),
                output: output.1.of(output.0, ticket),
            },
            LengthsByTicket::Joint {
                input,
                output,
                bins,
                together,
            } => {
                let tokens = input.1.of(input.0, ticket);
                let bin = bins.partition_point(|(longest_input, _)| *longest_input < tokens);
                let bin = bin.min(bins.len() - 1);
                Lengths {
                    input: tokens,
                    output: bins[bin].1.of(*output, ticket).min(together.saturating_sub(tokens).max(1)),
                }
            }
            LengthsByTicket::Pairs { draws, pairs } => pairs[draws.about(ticket).below(pairs.len() as u64) as usize],
            LengthsByTicket::OfArrivals => return None,
        })
    }
}

/// A distribution over whole tokens. Every kind but the fixed one becomes a table, so that a draw costs no logarithm.
pub enum Length {
    Fixed(u32),
    /// `first + i` in proportion to the table's weight i.
    Range {
        first: u32,
        alias: Alias,
    },
    /// `values[i]` likewise.
    Table {
        values: Vec<u32>,
        alias: Alias,
    },
    /// `to` in the place of `from` with a chance that rises and falls once in so many requests.
    Drifting {
        from: Box<Length>,
        to: Box<Length>,
        requests: u64,
        /// Which of the coins is this mixture's: one inside of another has a coin of its own.
        coin: u64,
    },
}

/// Which of the two lengths.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Input,
    Output,
}

impl Length {
    fn new(field: &str, spec: &LengthSpec, side: Side) -> Result<Length, TraceError> {
        match spec {
            LengthSpec::Fixed(tokens) => Ok(Length::Fixed(*tokens)),
            LengthSpec::Normal { mean, sd, min, max } => {
                let field = format!("{field}.normal");
                positive(&format!("{field}.mean"), *mean)?;
                positive(&format!("{field}.sd"), *sd)?;
                Length::of_distribution(&field, *min, *max, |tokens| normal_cdf((tokens - mean) / sd))
            }
            LengthSpec::Lognormal {
                median,
                sigma,
                min,
                max,
            } => {
                let field = format!("{field}.lognormal");
                positive(&format!("{field}.median"), *median)?;
                positive(&format!("{field}.sigma"), *sigma)?;
                Length::of_distribution(&field, *min, *max, |tokens| lognormal_cdf(tokens, *median, *sigma))
            }
            LengthSpec::Empirical(values) => {
                if values.is_empty() {
                    return Err(TraceError::spec(
                        &format!("{field}.empirical"),
                        "a list of lengths",
                        "an empty list",
                    ));
                }
                Ok(Length::of_frequencies(values))
            }
            LengthSpec::Quantiles(points) => {
                check_quantiles(&format!("{field}.quantiles"), points)?;
                Ok(Length::of_quantiles(points))
            }
            LengthSpec::ShareGpt => Ok(match side {
                Side::Input => Length::of_quantiles(&points(sharegpt::INPUT)),
                Side::Output => Length::of_mixture(&sharegpt::output_mixture()),
            }),
            LengthSpec::Recorded {
                path,
                skip_bad_lines,
                tokenizer,
            } => {
                let mut values = Vec::new();
                for record in Records::open_with(path, *skip_bad_lines, tokenizer::given(tokenizer.as_deref())?)? {
                    let record = record?;
                    // As in pairs and replays: who got no answer is left out whole.
                    if record.is_unanswered() {
                        continue;
                    }
                    values.extend(match side {
                        Side::Input => record.input_tokens,
                        Side::Output => record.output_tokens,
                    });
                }
                if values.is_empty() {
                    let what = if side == Side::Input { "inputs" } else { "outputs" };
                    return Err(TraceError::file(
                        path,
                        format!("must have answered requests that say their {what}, got none"),
                    ));
                }
                Ok(Length::of_frequencies(&values))
            }
            LengthSpec::Drifting { from, to, requests } => {
                let field = format!("{field}.drifting");
                if *requests < 2 {
                    return Err(TraceError::spec(&format!("{field}.requests"), "at least 2", requests));
                }
                let from = Length::new(&format!("{field}.from"), from, side)?;
                let to = Length::new(&format!("{field}.to"), to, side)?;
                Ok(Length::Drifting {
                    coin: from.coins().max(to.coins()),
                    from: Box::new(from),
                    to: Box::new(to),
                    requests: *requests,
                })
            }
            LengthSpec::Twitter { tweets, span } => {
                let field = format!("{field}.twitter.span");
                if *span == 0 || *span > MAX_TOKENS {
                    return Err(TraceError::spec(&field, &format!("1 to {MAX_TOKENS} tokens"), span));
                }
                let scale = f64::from(*span) / twitter::ARLO_LONGEST_TWEET_TOKENS;
                match tweets {
                    Tweets::Measured if scale == 1.0 => Ok(Length::of_quantiles(&points(twitter::LENGTHS))),
                    Tweets::Measured => {
                        let points = points(twitter::LENGTHS);
                        Length::of_distribution(&field, 1, *span, |tokens| probability(&points, tokens / scale))
                    }
                    Tweets::Arlo => {
                        let median = twitter::ARLO_MEDIAN_TOKENS * scale;
                        Length::of_distribution(&field, 1, *span, |t| lognormal_cdf(t, median, twitter::ARLO_SIGMA))
                    }
                }
            }
        }
    }

    /// The whole numbers from `min` to `max`, each with the distribution function's rise over the token it rounds from.
    fn of_distribution(field: &str, min: u32, max: u32, cdf: impl Fn(f64) -> f64) -> Result<Length, TraceError> {
        if max < min || max > MAX_TOKENS {
            return Err(TraceError::spec(
                &format!("{field}.max"),
                &format!("{min} (`min`) to {MAX_TOKENS}"),
                max,
            ));
        }
        let edge = |tokens: u32| cdf(f64::from(tokens) - 0.5);
        let weights: Vec<f64> = (min..=max).map(|tokens| (edge(tokens + 1) - edge(tokens)).max(0.0)).collect();
        if weights.iter().sum::<f64>() <= 0.0 {
            let must_be = "bounds between which the distribution has any weight";
            return Err(TraceError::spec(field, must_be, format!("{min} to {max}")));
        }
        Ok(Length::Range {
            first: min,
            alias: Alias::new(&weights),
        })
    }

    /// The points must be in order, as [`check_quantiles`] demands. Nothing is shorter than one token.
    pub fn of_quantiles(points: &[QuantilePoint]) -> Length {
        let (first, last) = (points[0].tokens, points[points.len() - 1].tokens);
        let min = libm::round(first).max(1.0) as u32;
        let max = libm::round(last).max(f64::from(min)) as u32;
        let edges: Vec<f64> = (min..=max + 1).map(|tokens| probability(points, f64::from(tokens) - 0.5)).collect();
        let mut weights: Vec<f64> = edges.windows(2).map(|edge| edge[1] - edge[0]).collect();
        // The ends stand for all beyond them.
        weights[0] += edges[0];
        *weights.last_mut().expect("min is at most max") += 1.0 - edges[edges.len() - 1];
        Length::Range {
            first: min,
            alias: Alias::new(&weights),
        }
    }

    /// Parts by share.
    fn of_mixture(parts: &[(f64, &[LengthKnot])]) -> Length {
        let longest = parts.iter().filter_map(|(_, knots)| knots.last()).map(|knot| knot.1).max();
        let mut weights = vec![0.0; longest.expect("a mixture has parts") as usize];
        for (share, knots) in parts {
            let points = points(knots);
            for (tokens, weight) in (1..).zip(&mut weights) {
                let edge = |tokens: f64| probability(&points, tokens);
                *weight += share * (edge(f64::from(tokens) + 0.5) - edge(f64::from(tokens) - 0.5));
            }
        }
        Length::Range {
            first: 1,
            alias: Alias::new(&weights),
        }
    }

    fn of_frequencies(values: &[u32]) -> Length {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        let (values, weights) = sorted
            .chunk_by(|a, b| a == b)
            .map(|equal| (equal[0], equal.len() as f64))
            .collect::<(Vec<u32>, Vec<f64>)>();
        Length::Table {
            values,
            alias: Alias::new(&weights),
        }
    }

    fn min(&self) -> u32 {
        match self {
            Length::Fixed(tokens) => *tokens,
            Length::Range { first, .. } => *first,
            Length::Table { values, .. } => values[0],
            Length::Drifting { from, to, .. } => from.min().min(to.min()),
        }
    }

    /// How many coins are tossed for one length.
    fn coins(&self) -> u64 {
        match self {
            Length::Drifting { coin, .. } => coin + 1,
            _ => 0,
        }
    }

    #[inline(always)]
    fn of(&self, draws: Draws, ticket: Ticket) -> u32 {
        match self {
            Length::Fixed(tokens) => *tokens,
            Length::Range { first, alias } => first + alias.pick(draws.about(ticket).bits()),
            Length::Table { values, alias } => values[alias.pick(draws.about(ticket).bits()) as usize],
            Length::Drifting {
                from,
                to,
                requests,
                coin,
            } => drifting([from, to], *requests, *coin, draws, ticket),
        }
    }
}

/// Apart from the others, which it would keep from being inlined.
#[inline(never)]
fn drifting([from, to]: [&Length; 2], requests: u64, coin: u64, draws: Draws, ticket: Ticket) -> u32 {
    let turn = (ticket % requests) as f64 / requests as f64;
    let share = (1.0 - libm::cos(std::f64::consts::TAU * turn)) / 2.0;
    // Which of the two is a draw of its own, so that both see the same draws of lengths.
    let is_far = draws.part(coin).about(ticket).unit() < share;
    if is_far { to } else { from }.of(draws, ticket)
}

fn normal_cdf(z: f64) -> f64 {
    0.5 * libm::erfc(-z / std::f64::consts::SQRT_2)
}

fn lognormal_cdf(tokens: f64, median: f64, sigma: f64) -> f64 {
    if tokens <= 0.0 {
        0.0
    } else {
        normal_cdf(libm::log(tokens / median) / sigma)
    }
}

fn check_quantiles(field: &str, points: &[QuantilePoint]) -> Result<(), TraceError> {
    let must_be = "a list of points from share 0 to share 1";
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Err(TraceError::spec(field, must_be, "an empty list"));
    };
    if (first.probability, last.probability) != (0.0, 1.0) {
        let got = match points.len() {
            1 => format!("one point, of share {}", first.probability),
            count => format!("{count} from {} to {}", first.probability, last.probability),
        };
        return Err(TraceError::spec(field, must_be, got));
    }
    for (i, point) in points.iter().enumerate() {
        let tokens_field = format!("{field}[{i}].tokens");
        // What rounds to the longest length is up to half a token above it, where fitted points have the share of at
        // most so many tokens.
        let most = f64::from(MAX_TOKENS) + 0.5;
        if !(point.tokens >= 0.0 && point.tokens <= most) {
            return Err(TraceError::spec(&tokens_field, &format!("0 to {most}"), point.tokens));
        }
        if i > 0 && point.tokens <= points[i - 1].tokens {
            let must_be = format!("above the point before, {}", points[i - 1].tokens);
            return Err(TraceError::spec(&tokens_field, &must_be, point.tokens));
        }
        let least = if i > 0 { points[i - 1].probability } else { 0.0 };
        if !(least..=1.0).contains(&point.probability) {
            let must_be = format!("from the point before, {least}, to 1");
            return Err(TraceError::spec(
                &format!("{field}[{i}].share"),
                &must_be,
                point.probability,
            ));
        }
    }
    Ok(())
}
