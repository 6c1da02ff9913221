//! Points of trained classifiers over texts: whole passes, and what a lane makes of them, by the lane that serves.

use std::path::PathBuf;

use tenantry_core::spec::{BatchSpec, Padding, RouteSpec};
use tenantry_profiles::{DType, Tables, TextLookRow, TextPassRow};

use super::schedule::Point;
use crate::error::ExecutorError;
use crate::machine::{TextProbe, TextServing};

/// Texts in a batch, as far as any is so large; others lie between.
const BATCH: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Between which of the texts' lengths, in percent of them, the measured ones lie.
const PERCENT: [usize; 7] = [0, 10, 30, 50, 70, 90, 100];
/// What may be left of the shortest text where words are pruned before.
const LEFT: [u32; 2] = [4, 2];
/// Matrix products are at their best at multiples of this many rows, which few batches of texts have.
const ROUND: u32 = 8;

/// A route whose trained models are served.
#[derive(Clone, Debug)]
pub struct ServedRoute {
    /// What `tenantry cascade profile` wrote: it names the models and the texts.
    pub folder: PathBuf,
    /// The stages, with the degrees to which they prune.
    pub route: RouteSpec,
}

/// A stage's model, and on which batches it is measured.
pub(crate) struct TextSubject {
    pub probe: TextProbe,
    dtype: DType,
    batches: Vec<u32>,
    tokens: Vec<u32>,
    prunes: bool,
}

impl TextSubject {
    /// Those of routes: each model once plainly, and once where it prunes.
    pub fn all(routes: &[ServedRoute], seed: u64, device: tch::Device) -> Result<Vec<TextSubject>, ExecutorError> {
        let mut subjects: Vec<TextSubject> = Vec::new();
        for ServedRoute { folder, route } in routes {
            let serving = TextServing::new(folder, route, seed, device)?;
            let mut pruned = false;
            for (probe, stage) in serving.probes().into_iter().zip(&route.stages) {
                let prunes = probe.prunes();
                let subject = TextSubject {
                    batches: batches(largest(stage.pool.batch)),
                    tokens: match stage.pool.padding {
                        Padding::Longest => lengths(&probe.lengths(), pruned),
                        Padding::To(tokens) => vec![tokens],
                    },
                    dtype: stage.pool.dtype,
                    probe,
                    prunes,
                };
                pruned |= prunes;
                let same = |other: &&mut TextSubject| {
                    other.prunes == prunes && other.probe.shape().name == subject.probe.shape().name
                };
                match subjects.iter_mut().find(same) {
                    // The one that is measured must do for both.
                    Some(known) => {
                        for (all, more) in [
                            (&mut known.batches, &subject.batches),
                            (&mut known.tokens, &subject.tokens),
                        ] {
                            all.extend(more);
                            all.sort_unstable();
                            all.dedup();
                        }
                    }
                    None => subjects.push(subject),
                }
            }
        }
        Ok(subjects)
    }

    /// Lengths that are measured, ascending.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// All points; `looks_plain` unless another subject of this model has the plain look.
    pub fn points(&self, looks_plain: bool) -> Result<Vec<Point<'_>>, ExecutorError> {
        let (model, dtype, attended) = (self.probe.shape().name.clone(), self.dtype, self.prunes);
        let mut points = Vec::new();
        for &batch in &self.batches {
            for &tokens in &self.tokens {
                let (mut probe, name) = (self.probe.share(), model.clone());
                let row = move |tables: &mut Tables, stats| {
                    tables.text_pass.push(TextPassRow {
                        model: name.clone(),
                        dtype,
                        attended,
                        batch,
                        tokens,
                        stats,
                    });
                };
                let table = format!("text_pass of {model}, attended {attended}");
                points.push(Point::new(table, move || probe.pass(batch, tokens), row));
            }
            let pruned = [looks_plain.then_some(false), attended.then_some(true)];
            for pruned in pruned.into_iter().flatten() {
                let name = model.clone();
                let row = move |tables: &mut Tables, stats| {
                    tables.text_look.push(TextLookRow {
                        model: name.clone(),
                        pruned,
                        batch,
                        stats,
                    });
                };
                let table = format!("text_look of {model}, pruned {pruned}");
                points.push(Point::new(table, self.probe.looks(batch, pruned)?, row));
            }
        }
        Ok(points)
    }
}

fn largest(batch: BatchSpec) -> u32 {
    match batch {
        BatchSpec::PerTenant { max_size } | BatchSpec::SizeOrTimeout { max_size, .. } => max_size,
        BatchSpec::FixedSize { size } => size,
    }
}

/// Sizes of batches up to `largest`, that one too.
fn batches(largest: u32) -> Vec<u32> {
    let mut sizes: Vec<u32> = BATCH.into_iter().filter(|&size| size < largest).collect();
    sizes.push(largest);
    sizes
}

/// Lengths to be measured for texts of these ascending ones; much shorter ones too where words are pruned before.
fn lengths(ascending: &[u32], pruned: bool) -> Vec<u32> {
    let shortest = ascending[0];
    let left = LEFT.iter().filter(|_| pruned).map(|part| (shortest / part).max(1));
    let at = PERCENT.iter().map(|percent| ascending[(ascending.len() - 1) * percent / 100]);
    // Batches are padded to any length: what round ones cost says little of them.
    let odd = |length: u32| {
        if length > 1 && length.is_multiple_of(ROUND) {
            length - 1
        } else {
            length
        }
    };
    // The longest stays: costs of it would be extrapolated otherwise.
    let longest = ascending.last().copied();
    let mut lengths: Vec<u32> = left.chain(at).map(odd).chain(longest).collect();
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_of_the_texts_and_not_round() {
        let texts: Vec<u32> = (10..=60).collect();
        assert_eq!(lengths(&texts, false), [10, 15, 25, 35, 45, 55, 60]);
        assert_eq!(lengths(&texts, true), [2, 5, 10, 15, 25, 35, 45, 55, 60]);
        assert_eq!(lengths(&[24, 24], false), [23, 24]);
        assert_eq!(lengths(&[7, 24], false), [7, 23, 24]);
        assert_eq!(lengths(&[1], true), [1]);
    }

    #[test]
    fn the_largest_batch_is_measured() {
        assert_eq!(batches(8), [1, 2, 4, 8]);
        assert_eq!(batches(6), [1, 2, 4, 6]);
        assert_eq!(batches(1), [1]);
    }
}
