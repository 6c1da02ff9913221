//! Points of whole steps of a decoder, as a lane makes them: alone, and while other instances make theirs.

use std::time::Duration;

use tenantry_profiles::{AdapterImplementation, Added, ConcurrentStepRow, DecoderStepRow, Tables};

use super::Suite;
use super::axes::{Knots, on};
use super::decoder::{DecoderSubject, PAGE_TOKENS};
use super::held_out::{HoldOut, Spot};
use super::instances::{STREAMS, company, in_company};
use super::ops::ModelOps;
use super::schedule::Point;
use crate::adapters::AdapterCache;
use crate::decoder::KvCache;
use crate::error::ExecutorError;
use crate::lora::LoraCache;
use crate::machine::generating::{Probed, Slots, StepProbe};

/// The values of the grid's dimensions.
struct Grid {
    /// Tokens of a prompt in the step; 1 where there is none.
    chunk: Knots,
    /// Sequences in the step.
    sequences: Knots,
    /// Tokens that new tokens attend to on average.
    context: Knots,
}

const ON_CPU: Grid = Grid {
    chunk: Knots {
        quick: &[1, 32, 128],
        full: &[1, 8, 32, 128],
    },
    sequences: Knots {
        quick: &[1, 4, 16, 32],
        full: &[1, 2, 4, 8, 16, 24, 32],
    },
    context: Knots {
        quick: &[32, 128, 512],
        full: &[32, 128, 256, 512],
    },
};

/// A card holds more sequences, and longer ones.
const ON_GPU: Grid = Grid {
    chunk: Knots {
        quick: &[1, 128, 1024],
        full: &[1, 32, 128, 512, 1024],
    },
    sequences: Knots {
        quick: &[1, 8, 32, 128],
        full: &[1, 4, 8, 16, 32, 64, 128],
    },
    context: Knots {
        quick: &[32, 256, 1024],
        full: &[32, 128, 512, 1024],
    },
};

/// Sequences in steps beside others'. Multiples of four take up to a tenth less each than what lies beside them: the
/// numbers between are as close.
const SEQUENCES_BESIDE: Knots = Knots {
    quick: &[1, 8, 32],
    full: &[
        1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17, 19, 21, 23, 24, 25, 27, 29, 31, 32,
    ],
};

/// What tenants have of their own, in full slots.
#[derive(Clone, Copy)]
pub(crate) enum StepTenants<'a> {
    /// Nothing.
    Backbone,
    /// Low-rank products.
    Loras(&'a LoraCache),
    /// Adapters in every layer that is measured.
    Adapters(&'a AdapterCache),
}

impl StepTenants<'_> {
    /// How many there are.
    fn count(self) -> Option<u32> {
        match self {
            StepTenants::Backbone => None,
            StepTenants::Loras(cache) => Some(cache.slots()),
            StepTenants::Adapters(cache) => Some(cache.slots()),
        }
    }

    /// What is added to the backbone, in every way that the device has.
    fn added(self) -> Vec<Added> {
        match self {
            StepTenants::Backbone => vec![Added::Nothing],
            StepTenants::Loras(cache) => {
                let rank = cache.shape().rank;
                let of = |implementation| Added::Lora { implementation, rank };
                cache.implementations().into_iter().map(of).collect()
            }
            StepTenants::Adapters(cache) => {
                let bottleneck = cache.shape().bottleneck;
                let of = |implementation| Added::Adapters {
                    implementation,
                    bottleneck,
                };
                cache.implementations().into_iter().map(of).collect()
            }
        }
    }

    fn slots(self, implementation: Option<AdapterImplementation>) -> Slots {
        match (self, implementation) {
            (StepTenants::Loras(cache), Some(implementation)) => Slots::Loras(cache.share(), implementation),
            (StepTenants::Adapters(cache), Some(implementation)) => Slots::Adapters(cache.share(), implementation),
            _ => Slots::None,
        }
    }
}

/// The values of the grid's dimensions, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StepAxes {
    chunk: Vec<u32>,
    sequences: Vec<u32>,
    context: Vec<u32>,
}

impl StepAxes {
    /// What of a suite's grid fits a model of so many positions. Where one measurement of every point would take longer
    /// than `pass`, a quick suite's, or its corners; nothing where even those would. `per_token` is what a token takes.
    fn affordable(grid: &Grid, positions: u32, suite: Suite, per_token: Duration, pass: Duration) -> Option<StepAxes> {
        let below = |axis: &[u32], most: u32| -> Vec<u32> { axis.iter().copied().filter(|&of| of <= most).collect() };
        let all = |suite| StepAxes {
            chunk: below(grid.chunk.of(suite), positions),
            sequences: grid.sequences.of(suite).to_vec(),
            // Half as much again for the longest.
            context: below(grid.context.of(suite), positions * 2 / 3),
        };
        let quick = all(Suite::Quick);
        let ends = |axis: &[u32]| -> Vec<u32> {
            let mut ends = vec![axis[0], axis[axis.len() - 1]];
            ends.dedup();
            ends
        };
        let corners = |all: &StepAxes| StepAxes {
            chunk: ends(&all.chunk),
            sequences: ends(&all.sequences),
            context: all.context[..1].to_vec(),
        };
        if quick.context.is_empty() {
            return None;
        }
        let tokens = |axes: &StepAxes| -> u32 {
            let step = |chunk: &u32| axes.sequences.iter().map(|sequences| chunk + sequences).sum::<u32>();
            axes.chunk.iter().map(step).sum::<u32>() * axes.context.len() as u32
        };
        let corners = corners(&quick);
        let fits = |axes: &StepAxes| f64::from(tokens(axes)) * per_token.as_secs_f64() <= pass.as_secs_f64();
        [all(suite), quick, corners].into_iter().find(fits)
    }
}

/// Sequences of which each is another tenant's; the first brings a prompt where `chunk_tokens` is above 1. The contexts
/// of those that generate lie evenly around `context`, from half to one and a half times that. `first_slot` is that of
/// the first of so many `tenants`.
fn sequences(count: u32, chunk_tokens: u32, context: u32, tenants: Option<u32>, first_slot: u32) -> Vec<Probed> {
    let prompts = u32::from(chunk_tokens > 1);
    let generating = count - prompts;
    let sequence = |index: u32| {
        let (chunk_tokens, context) = match index.checked_sub(prompts) {
            None => (chunk_tokens, chunk_tokens),
            Some(_) if generating == 1 => (1, context),
            Some(index) => (1, context / 2 + context * index / (generating - 1)),
        };
        Probed {
            chunk_tokens,
            context,
            slot: tenants.map(|tenants| (first_slot + index) % tenants),
        }
    };
    (0..count).map(sequence).collect()
}

/// All points of a decoder with what tenants add to it, in every implementation that is asked for.
pub(crate) fn points<'a>(
    subject: &'a DecoderSubject,
    tenants: StepTenants<'a>,
    ops: &ModelOps,
    time: Duration,
    hold_out: HoldOut,
) -> Result<Vec<Point<'a>>, ExecutorError> {
    let layers = subject.decoder.shape().layers;
    let Some(axes) = StepAxes::affordable(
        on(subject.decoder.device(), &ON_CPU, &ON_GPU),
        subject.decoder.shape().positions,
        subject.suite,
        subject.per_token * layers,
        time.div_f64(super::decoder::PASSES),
    ) else {
        return Ok(Vec::new());
    };
    let pages = |probed: &[Probed]| -> u32 { probed.iter().map(|one| one.context.div_ceil(PAGE_TOKENS)).sum() };
    let longest = |chunk: &u32| {
        let (most, context) = (axes.sequences.last(), axes.context.last());
        pages(&sequences(
            *most.expect("there are some"),
            *chunk,
            *context.expect("there are some"),
            None,
            0,
        ))
    };
    // Larger than that of most steps, as an instance's is.
    let kv = subject.cache_at_least(axes.chunk.iter().map(longest).max().expect("there are some"))?;
    let wanted = |added: &Added| added.implementation().is_none_or(|of| ops.adapters.contains(&of));
    let mut grid = Vec::new();
    for &chunk in &axes.chunk {
        for &count in &axes.sequences {
            grid.extend(axes.context.iter().map(|&context| [chunk, count, context]));
        }
    }
    let spots = hold_out.spots(grid, Some);
    let mut points = Vec::new();
    for added in tenants.added().into_iter().filter(wanted) {
        let probe = |kv: &KvCache, sequences: &[Probed]| {
            let slots = tenants.slots(added.implementation());
            StepProbe::new(&subject.decoder, kv, slots, sequences, 1)
        };
        for &Spot {
            at: [chunk_tokens, count, context],
            held_out,
        } in &spots
        {
            let mut probe = probe(&kv, &sequences(count, chunk_tokens, context, tenants.count(), 0));
            let (model, dtype) = (subject.decoder.shape().name.clone(), subject.dtype);
            let row = move |tables: &mut Tables, stats| {
                tables.decoder_step.push(DecoderStepRow {
                    model: model.clone(),
                    dtype,
                    layers,
                    added,
                    chunk_tokens,
                    sequences: count,
                    context,
                    stats,
                });
            };
            let table = format!("decoder_step of {}, added {added}", subject.decoder.shape().name);
            points.push(Point::new(table, move || probe.step(), row).held_out(held_out));
        }
        let (context, all_streams) = (axes.context[0], company(subject.decoder.device())?);
        // Instances on other devices than the host's processor do not share its cores.
        let concurrent = ops.concurrent && !subject.decoder.device().is_cuda();
        let companies = STREAMS.into_iter().filter(|&streams| concurrent && streams as usize <= all_streams.len());
        let beside = SEQUENCES_BESIDE.of(subject.suite);
        let grid = companies.flat_map(|streams| beside.iter().map(move |&count| [streams, count]));
        for Spot {
            at: [streams, count],
            held_out,
        } in hold_out.spots(grid.collect(), Some)
        {
            let instance = |instance: u32| -> Result<StepProbe, ExecutorError> {
                let sequences = sequences(count, 1, context, tenants.count(), instance * count);
                Ok(probe(&subject.cache_of(pages(&sequences))?, &sequences))
            };
            let mut instances = (0..streams).map(instance).collect::<Result<Vec<_>, _>>()?;
            let own = all_streams[..streams as usize].to_vec();
            let (model, dtype) = (subject.decoder.shape().name.clone(), subject.dtype);
            let row = move |tables: &mut Tables, stats| {
                tables.concurrent_step.push(ConcurrentStepRow {
                    model: model.clone(),
                    dtype,
                    added,
                    streams,
                    sequences: count,
                    stats,
                });
            };
            let table = format!("concurrent_step of {}, added {added}", subject.decoder.shape().name);
            let measure = move || in_company(&mut instances, &own, StepProbe::step);
            points.push(Point::new(table, measure, row).held_out(held_out));
        }
    }
    Ok(points)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_and_time_limit_the_grid() {
        let (cheap, pass) = (Duration::from_nanos(1), Duration::from_secs(1));
        for (grid, suite) in [
            (&ON_CPU, Suite::Quick),
            (&ON_CPU, Suite::Full),
            (&ON_GPU, Suite::Quick),
            (&ON_GPU, Suite::Full),
        ] {
            let all = StepAxes::affordable(grid, 2048, suite, cheap, pass).unwrap();
            assert_eq!(
                (all.chunk, all.sequences, all.context),
                (
                    grid.chunk.of(suite).to_vec(),
                    grid.sequences.of(suite).to_vec(),
                    grid.context.of(suite).to_vec()
                )
            );
        }
        let affordable =
            |positions, per_token, pass| StepAxes::affordable(&ON_CPU, positions, Suite::Full, per_token, pass);
        let short = affordable(64, cheap, pass).unwrap();
        assert_eq!((short.chunk, short.context), (vec![1, 8, 32], vec![32]));
        assert_eq!(affordable(32, cheap, pass), None);
        // A full grid's steps have 6,124 tokens, a quick one's 2,409.
        let less = affordable(2048, Duration::from_micros(300), pass).unwrap();
        assert_eq!(less.sequences, ON_CPU.sequences.quick);
        let slow = affordable(2048, Duration::from_millis(1), pass).unwrap();
        assert_eq!(
            (slow.chunk, slow.sequences, slow.context),
            (vec![1, 128], vec![1, 32], vec![32])
        );
        assert_eq!(affordable(2048, pass, pass), None);
    }

    #[test]
    fn contexts_lie_around_their_mean() {
        let contexts: Vec<u32> = sequences(5, 1, 40, None, 0).iter().map(|one| one.context).collect();
        assert_eq!(contexts, [20, 30, 40, 50, 60]);
        // A prompt's is its own, and those beside it are around the mean all the same.
        let beside_a_prompt = |count| -> Vec<(u32, u32)> {
            let all = sequences(count, 8, 40, None, 0);
            all.iter().map(|one| (one.chunk_tokens, one.context)).collect()
        };
        assert_eq!(beside_a_prompt(4), [(8, 8), (1, 20), (1, 40), (1, 60)]);
        assert_eq!(beside_a_prompt(2), [(8, 8), (1, 40)]);
        assert_eq!(beside_a_prompt(1), [(8, 8)]);
    }
}
