//! Outcomes of any number of models by name, from tables or from a fitted generator, under a seed.

use std::path::PathBuf;

use super::{Difficulties, DifficultyDraws, GeneratedOutcomes, Outcome, OutcomeTable, Outcomes};
use crate::draw::{Draws, Purpose};
use crate::error::TraceError;
use crate::fit::cascade::{TwoLevels, normal_below};
use crate::fit::quantiles::{self, Knot};
use crate::request::Ticket;

/// What is known of the models' answers.
#[derive(Clone, Debug, PartialEq)]
pub enum AnswersSpec {
    /// They are drawn.
    Drawn(DrawnSpec),
    /// They are what trained models made of labelled texts: a folder that `tenantry cascade profile` wrote. Whoever
    /// executes it asks the models themselves.
    Profiled(PathBuf),
}

/// How answers are drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct DrawnSpec {
    /// What each model makes of each request.
    pub outcomes: OutcomesSpec,
    /// What is known of pruning, by rising degree. Empty where nothing is.
    pub pruned: Vec<PrunedPoint>,
    /// What is known of a generator's weighted averages.
    pub averages: Vec<KnownAverage>,
}

/// What pruning to a degree (Eq. 5) does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrunedPoint {
    /// α.
    pub degree: f64,
    /// The share of the words that goes.
    pub words: f64,
    /// By what it lowers the accuracy of a model that reads what is left (Tabi, Table 3), from 0 to 1; of a table's or
    /// a difficulty's models, the share of their right answers that turns wrong. Nothing where nobody knows.
    pub loss: Option<f64>,
}

/// What a weighted average of several models' answers (Eq. 6) does.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownAverage {
    /// A weight for each model; their proportions count.
    pub weights: Vec<f64>,
    /// By what it raises the accuracy of the last one asked on what was re-routed (section 7.3.4).
    pub gain: f64,
}

impl DrawnSpec {
    /// The share of words that goes at `degree`, and what that costs: at a point, or linear between two. Nothing where
    /// that is not known.
    pub fn pruning(&self, degree: f64) -> Option<(f64, f64)> {
        let above = self.pruned.partition_point(|point| point.degree < degree);
        let high = self.pruned.get(above)?;
        if high.degree == degree {
            return Some((high.words, high.loss?));
        }
        let low = self.pruned.get(above.checked_sub(1)?)?;
        let part = (degree - low.degree) / (high.degree - low.degree);
        let between = |low: f64, high: f64| low + part * (high - low);
        Some((between(low.words, high.words), between(low.loss?, high.loss?)))
    }

    /// What an average by these weights brings; nothing where that is not known.
    pub fn average_gain(&self, weights: &[f64]) -> Option<f64> {
        let known = self.averages.iter().find(|known| known.is_by(weights));
        known.map(|known| known.gain)
    }
}

impl KnownAverage {
    /// Whether it is an average by these weights: of the same proportions.
    pub fn is_by(&self, weights: &[f64]) -> bool {
        const ROUNDING: f64 = 1e-9;
        let sums: [f64; 2] = [&self.weights, weights].map(|weights| weights.iter().sum());
        let same = |(a, b): (&f64, &f64)| (a / sums[0] - b / sums[1]).abs() < ROUNDING;
        self.weights.len() == weights.len() && self.weights.iter().zip(weights).all(same)
    }
}

/// Where outcomes come from.
#[derive(Clone, Debug, PartialEq)]
pub enum OutcomesSpec {
    /// Real items.
    Table(TableSpec),
    /// Real items' difficulties.
    Difficulty(DifficultySpec),
    /// A generator.
    Generated(GeneratedSpec),
}

/// A CSV of real items, as [`OutcomeTable::read`] has it.
#[derive(Clone, Debug, PartialEq)]
pub struct TableSpec {
    /// The file.
    pub path: PathBuf,
    /// Models by name, and what the table's columns call them.
    pub models: Vec<(String, String)>,
    /// The column's name of the model whose answers count as right, where the table has no gold labels.
    pub reference: Option<String>,
}

/// A CSV of real items' difficulties, as [`Difficulties::read`] has it.
#[derive(Clone, Debug, PartialEq)]
pub struct DifficultySpec {
    /// The file.
    pub path: PathBuf,
    /// Models of that kind, by name.
    pub models: Vec<String>,
}

/// Two fitted levels and what else is known of other models.
#[derive(Clone, Debug, PartialEq)]
pub struct GeneratedSpec {
    /// The small model.
    pub small: String,
    /// The large model.
    pub large: String,
    /// What they make of the same items.
    pub levels: TwoLevels,
    /// Other models.
    pub others: Vec<OtherModel>,
    /// How much the others err on the same items, given what the large model does: the correlation, from 0 to 1, of the
    /// normal numbers by which they are drawn (a Gaussian copula of one factor). At 0 each is right by a draw of its
    /// own.
    pub correlation: f64,
}

/// A model of which is known how sure it is, and how often it is right where the large one is and where it is not.
#[derive(Clone, Debug, PartialEq)]
pub struct OtherModel {
    /// Its name.
    pub name: String,
    /// Its confidence: probability and value. It has nothing in common with the other models'.
    pub confidence: Vec<Knot>,
    /// Confidence and the chance that it is right where the large model is; one point is a constant.
    pub right_if_large_is: Vec<Knot>,
    /// As above, where the large one is wrong.
    pub right_if_large_is_not: Vec<Knot>,
}

/// What models make of requests.
#[derive(Clone, Debug)]
pub struct OutcomeSource {
    names: Vec<String>,
    kind: Kind,
    losses: Draws,
}

#[derive(Clone, Debug)]
enum Kind {
    Table(Outcomes),
    Difficulty(DifficultyDraws),
    Generated {
        two: GeneratedOutcomes,
        others: Vec<OtherModel>,
        correlation: f64,
        draws: Draws,
    },
}

/// Keeps the draws of other models apart from those of the two levels.
const OTHERS: u64 = 1 << 32;
/// Keeps the draws of what pruning costs apart from both.
const LOSSES: u64 = 1 << 33;
/// Among those, keeps what the others share apart from each one's own.
const SHARED: u64 = 1 << 31;

impl OutcomeSource {
    /// The outcomes under `seed`.
    ///
    /// # Errors
    /// As [`OutcomeTable::read`] and [`Difficulties::read`].
    pub fn new(spec: &OutcomesSpec, seed: u64) -> Result<OutcomeSource, TraceError> {
        let losses = Draws::new(seed, Purpose::Outcome).part(LOSSES);
        match spec {
            OutcomesSpec::Table(TableSpec {
                path,
                models,
                reference,
            }) => {
                let columns: Vec<&str> = models.iter().map(|(_, column)| column.as_str()).collect();
                let table = OutcomeTable::read(path, &columns, reference.as_deref())?;
                Ok(OutcomeSource {
                    names: models.iter().map(|(name, _)| name.clone()).collect(),
                    kind: Kind::Table(Outcomes::new(seed, table)),
                    losses,
                })
            }
            OutcomesSpec::Difficulty(DifficultySpec { path, models }) => Ok(OutcomeSource {
                names: models.clone(),
                kind: Kind::Difficulty(DifficultyDraws::new(seed, Difficulties::read(path)?)),
                losses,
            }),
            OutcomesSpec::Generated(GeneratedSpec {
                small,
                large,
                levels,
                others,
                correlation,
            }) => {
                let two = [small, large].into_iter().cloned();
                Ok(OutcomeSource {
                    names: two.chain(others.iter().map(|other| other.name.clone())).collect(),
                    kind: Kind::Generated {
                        two: GeneratedOutcomes::new(seed, levels.clone()),
                        others: others.clone(),
                        correlation: *correlation,
                        draws: Draws::new(seed, Purpose::Outcome).part(OTHERS),
                    },
                    losses,
                })
            }
        }
    }

    /// The models' names; of a generator the small one's, the large one's, then the others'.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether it is a generator, whose models' chances can be shifted.
    pub fn is_generated(&self) -> bool {
        matches!(self.kind, Kind::Generated { .. })
    }

    /// Whether all that is known of an item is how many models get it right.
    pub fn is_of_chances(&self) -> bool {
        matches!(self.kind, Kind::Difficulty(_))
    }

    /// Whether this is a generator's small model, which [neither loss nor gain](Self::shifted) moves.
    pub fn is_small(&self, model: usize) -> bool {
        self.is_generated() && model == 0
    }

    /// How sure the model with this index among the names is where it is least so; nothing where probabilities are not
    /// averaged, as in a generator.
    pub fn least_confidence(&self, model: usize) -> Option<f32> {
        match &self.kind {
            Kind::Table(outcomes) => Some(outcomes.table().least_confidence(model)),
            Kind::Difficulty(_) | Kind::Generated { .. } => None,
        }
    }

    /// Whether nobody says what a model of a table answered to some item that it has wrong.
    pub fn has_unknown_answers(&self, model: usize) -> bool {
        match &self.kind {
            Kind::Table(outcomes) => outcomes.table().has_unknown_answers(model),
            Kind::Difficulty(_) | Kind::Generated { .. } => false,
        }
    }

    /// How many different wrong answers models give to one item, at most, as far as that is known.
    pub fn wrong_answers(&self) -> u32 {
        match &self.kind {
            Kind::Table(outcomes) => outcomes.table().wrong_answers(),
            Kind::Difficulty(_) | Kind::Generated { .. } => 0,
        }
    }

    /// What the model with this index among the names makes of `ticket`.
    pub fn of(&self, ticket: Ticket, model: usize) -> Outcome {
        self.shifted(ticket, model, [0.0; 2])
    }

    /// As [`of`](Self::of), where the model reads what pruning left and is joined by others: of a generator, any model
    /// but the small one is right with a chance that is greater by `gain` less `loss` (Tabi, Table 3 and section
    /// 7.3.4); of tables and difficulties, a share `loss` of what the model has right turns wrong, and averages are of
    /// what was answered.
    pub fn shifted(&self, ticket: Ticket, model: usize, [gain, loss]: [f64; 2]) -> Outcome {
        let shift = gain - loss;
        let read_less = |outcome: Outcome| Outcome {
            correct: outcome.correct && self.losses.part(model as u64).about(ticket).unit() >= loss,
            ..outcome
        };
        match &self.kind {
            Kind::Table(outcomes) => read_less(outcomes.of(ticket)[model]),
            Kind::Difficulty(draws) => read_less(draws.of(ticket, model as u32)),
            Kind::Generated {
                two,
                others,
                correlation,
                draws,
            } => match model {
                0 => two.of(ticket)[0],
                1 => two.shifted(ticket, shift)[1],
                other => {
                    let model = &others[other - 2];
                    let large_right = two.of(ticket)[1].correct;
                    let mut stream = draws.part(other as u64).about(ticket);
                    let confidence = quantiles::value_at(&model.confidence, stream.unit());
                    let chances = match large_right {
                        true => &model.right_if_large_is,
                        false => &model.right_if_large_is_not,
                    };
                    let own = match *correlation {
                        0.0 => stream.unit(),
                        shared => {
                            // What all of the others find hard in this item; of no model's index.
                            let common = draws.part(SHARED).about(ticket).normal();
                            let normal = shared.sqrt() * common + (1.0 - shared).sqrt() * stream.normal();
                            normal_below(normal)
                        }
                    };
                    Outcome {
                        confidence: confidence as f32,
                        correct: own < quantiles::value_at(chances, confidence) + shift,
                        wrong: None,
                    }
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::cascade::MNLI;

    fn source() -> OutcomeSource {
        source_with(0.0)
    }

    fn source_with(correlation: f64) -> OutcomeSource {
        let other = |name: &str| OtherModel {
            name: name.into(),
            confidence: vec![(0.0, 0.5), (1.0, 1.0)],
            right_if_large_is: vec![(1.0, 0.9)],
            right_if_large_is_not: vec![(1.0, 0.5)],
        };
        let spec = GeneratedSpec {
            small: "small".into(),
            large: "large".into(),
            levels: MNLI,
            others: vec![other("middle"), other("like it")],
            correlation,
        };
        OutcomeSource::new(&OutcomesSpec::Generated(spec), 7).unwrap()
    }

    /// Where the large model is wrong, both others are right by chances of a half: they are right together in 1/4 +
    /// asin(ρ) / 2π of the items.
    #[test]
    fn others_err_on_the_same_items_as_far_as_they_are_correlated() {
        for (correlation, expected) in [(0.0, 0.25), (0.5, 1.0 / 3.0), (1.0, 0.5)] {
            let source = source_with(correlation);
            let wrong: Vec<u64> = (0..60_000).filter(|&ticket| !source.of(ticket, 1).correct).collect();
            let both = |ticket: &&u64| source.of(**ticket, 2).correct && source.of(**ticket, 3).correct;
            let share = wrong.iter().filter(both).count() as f64 / wrong.len() as f64;
            assert!(
                (share - expected).abs() < 0.02,
                "{correlation}: {share} instead of {expected}"
            );
        }
    }

    #[test]
    fn other_models_are_right_as_often_as_they_are_said_to_be() {
        [0.0, 0.5, 1.0].map(source_with).iter().for_each(right_as_often_as_said);
    }

    fn right_as_often_as_said(source: &OutcomeSource) {
        let (mut of, mut right) = ([0_u32; 2], [0_u32; 2]);
        for ticket in 0..40_000 {
            let large = usize::from(source.of(ticket, 1).correct);
            of[large] += 1;
            right[large] += u32::from(source.of(ticket, 2).correct);
        }
        for (large, expected) in [(1, 0.9), (0, 0.5)] {
            let share = f64::from(right[large]) / f64::from(of[large]);
            assert!((share - expected).abs() < 0.02, "{share} instead of {expected}");
        }
    }

    #[test]
    fn what_pruning_costs_moves_all_models_but_the_small_one() {
        let source = source();
        let share = |model, loss| share_right(&source, model, loss);
        assert_eq!(share(0, 0.1), share(0, 0.0));
        for model in [1, 2] {
            let lost = share(model, 0.0) - share(model, 0.1);
            assert!((lost - 0.1).abs() < 0.005, "{model}: {lost}");
        }
    }

    fn share_right(source: &OutcomeSource, model: usize, loss: f64) -> f64 {
        let right = |&ticket: &u64| source.shifted(ticket, model, [0.0, loss]).correct;
        (0..40_000).filter(right).count() as f64 / 40_000.0
    }

    /// What a table's model answers of fewer words is not in the table: a share of what it has right is lost.
    #[test]
    fn of_real_items_a_share_of_the_right_answers_is_lost() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, b"a_conf,a_correct\n0.9,1\n0.8,1\n0.7,1\n0.6,0\n").unwrap();
        let spec = TableSpec {
            path: file.path().into(),
            models: vec![("a".into(), "a".into())],
            reference: None,
        };
        let source = OutcomeSource::new(&OutcomesSpec::Table(spec), 7).unwrap();
        let [whole, pruned] = [0.0, 0.2].map(|loss| share_right(&source, 0, loss));
        assert!((whole - 0.75).abs() < 0.01, "{whole}");
        assert!((pruned - 0.75 * 0.8).abs() < 0.01, "{pruned}");
    }

    #[test]
    fn pruning_is_known_at_points_and_between_those_that_say_what_it_costs() {
        let point = |degree, words, loss| PrunedPoint { degree, words, loss };
        let known = DrawnSpec {
            outcomes: OutcomesSpec::Difficulty(DifficultySpec {
                path: PathBuf::new(),
                models: Vec::new(),
            }),
            pruned: vec![
                point(0.0, 0.0, Some(0.0)),
                point(0.5, 0.1, Some(0.02)),
                point(1.0, 0.6, None),
            ],
            averages: vec![KnownAverage {
                weights: vec![0.4, 0.6],
                gain: 0.1,
            }],
        };
        assert_eq!(known.pruning(0.5), Some((0.1, 0.02)));
        assert_eq!(known.pruning(0.25), Some((0.05, 0.01)));
        for unknown in [0.7, 1.0, 1.5] {
            assert_eq!(known.pruning(unknown), None, "{unknown}");
        }
        assert_eq!(known.average_gain(&[4.0, 6.0]), Some(0.1));
        assert_eq!(known.average_gain(&[0.6, 0.4]), None);
        assert_eq!(known.average_gain(&[0.4, 0.6, 0.0]), None);
    }
}
