//! Calibration of several classes at once (Kull et al., NeurIPS 2019, which Tabi names in section 4.1): a temperature makes a model as sure of one class as
//! of another; this can tell that it takes one class for another too often, and so may change the answer.

use argmin::core::{CostFunction, Error, Executor, Gradient};
use argmin::solver::linesearch::MoreThuenteLineSearch;
use argmin::solver::quasinewton::LBFGS;

use crate::calibration::{Confident, Temperature, check, softmax};
use crate::error::CascadeError;

/// What is tried against fitting too closely, from the weakest; both of the paper's penalties are the same.
const PENALTIES: [f64; 6] = [1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0];

/// Parts of the items, each held out once for each penalty.
const FOLDS: usize = 5;

/// Steps at most. The loss is convex, and its last digits mean nothing.
const STEPS: u64 = 200;

/// A slope that is none.
const FLAT: f64 = 1e-6;

/// Gradients that the search remembers.
const MEMORY: usize = 10;

/// `softmax(W · ln softmax(logits) + b)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Dirichlet {
    /// W, row by row: `[classes × classes]`.
    weights: Vec<f64>,
    /// b, of each class.
    intercepts: Vec<f64>,
}

impl Dirichlet {
    /// Of weights, a row for each class, and intercepts.
    ///
    /// # Errors
    /// No classes, other than as many rows of as many weights, or a number that is not finite.
    pub fn new(weights: &[Vec<f64>], intercepts: &[f64]) -> Result<Dirichlet, CascadeError> {
        let classes = intercepts.len();
        let lengths = |what, got| match got == classes {
            true => Ok(()),
            false => Err(CascadeError::Lengths {
                what,
                must: classes,
                got,
            }),
        };
        if classes == 0 {
            return Err(CascadeError::Nothing { what: "intercepts" });
        }
        lengths("rows of weights", weights.len())?;
        for row in weights {
            lengths("a row of weights", row.len())?;
        }
        let all = weights.iter().flatten().chain(intercepts);
        if let Some((item, got)) = all.enumerate().find(|(_, number)| !number.is_finite()) {
            let what = "weight or intercept";
            return Err(CascadeError::NotFinite { item, what, got: *got });
        }
        Ok(Dirichlet {
            weights: weights.concat(),
            intercepts: intercepts.to_vec(),
        })
    }

    /// Fitted by negative log-likelihood, with the penalty that does best on items that were held out, of equals the strongest. Every fifth item is of the
    /// same part.
    ///
    /// `items` are logits and label.
    ///
    /// # Errors
    /// As [`Temperature::fit`].
    pub fn fit<'a, I>(items: I) -> Result<Dirichlet, CascadeError>
    where
        I: IntoIterator<Item = (&'a [f32], usize)> + Clone,
    {
        check(items.clone())?;
        let items: Vec<Logged> = items.into_iter().map(Logged::of).collect();
        let folds = FOLDS.min(items.len());
        let held_out = |penalty: f64| -> f64 {
            let of_fold = |fold: usize| {
                let (held, kept): (Vec<(usize, &Logged)>, Vec<_>) =
                    items.iter().enumerate().partition(|(at, _)| at % folds == fold);
                let kept: Vec<&Logged> = kept.into_iter().map(|(_, item)| item).collect();
                let fitted = Dirichlet::penalised(&kept, penalty);
                held.iter().map(|(_, item)| fitted.surprise(item)).sum::<f64>()
            };
            (0..folds).map(of_fold).sum()
        };
        let penalty = match folds {
            // Nothing can be held out.
            0 | 1 => PENALTIES[PENALTIES.len() - 1],
            _ => {
                let losses = PENALTIES.iter().rev().map(|&penalty| (penalty, held_out(penalty)));
                let best = losses.min_by(|(_, one), (_, other)| one.total_cmp(other));
                best.expect("there are penalties").0
            }
        };
        let all: Vec<&Logged> = items.iter().collect();
        Ok(Dirichlet::penalised(&all, penalty))
    }

    /// The least of the mean negative log-likelihood and the penalties on weights off the diagonal and on intercepts (Kull et al., section 3: ODIR).
    fn penalised(items: &[&Logged], penalty: f64) -> Dirichlet {
        let classes = items[0].logs.len();
        let start = Dirichlet::identity(classes).into_numbers();
        let solver = LBFGS::new(MoreThuenteLineSearch::new(), MEMORY)
            .with_tolerance_grad(FLAT)
            .and_then(|solver| solver.with_tolerance_cost(FLAT * FLAT))
            .expect("tolerances are above 0");
        let run = Executor::new(Penalised { items, penalty }, solver)
            .configure(|state| state.param(start.clone()).max_iters(STEPS))
            .run();
        // A search that ends for want of a better step has found the least by then.
        let found = run.ok().and_then(|mut run| run.state.take_best_param());
        Dirichlet::of_numbers(found.unwrap_or(start), classes)
    }

    fn identity(classes: usize) -> Dirichlet {
        let mut weights = vec![0.0; classes * classes];
        weights.iter_mut().step_by(classes + 1).for_each(|own| *own = 1.0);
        Dirichlet {
            weights,
            intercepts: vec![0.0; classes],
        }
    }

    fn of_numbers(mut numbers: Vec<f64>, classes: usize) -> Dirichlet {
        let intercepts = numbers.split_off(classes * classes);
        Dirichlet {
            weights: numbers,
            intercepts,
        }
    }

    fn into_numbers(mut self) -> Vec<f64> {
        self.weights.append(&mut self.intercepts);
        self.weights
    }

    /// How many classes it is for.
    pub fn classes(&self) -> usize {
        self.intercepts.len()
    }

    /// W, a row for each class.
    pub fn weights(&self) -> Vec<Vec<f64>> {
        self.weights.chunks(self.classes()).map(<[f64]>::to_vec).collect()
    }

    /// b.
    pub fn intercepts(&self) -> &[f64] {
        &self.intercepts
    }

    /// The probabilities of the classes.
    ///
    /// # Panics
    /// For other than as many logits as it is for.
    pub fn shares(&self, logits: &[f32]) -> Vec<f64> {
        assert_eq!(logits.len(), self.classes(), "a logit for each class");
        self.of_logs(&Logged::of((logits, 0)).logs)
    }

    /// The confidence in the likeliest class, and which it is; the first among equals.
    ///
    /// # Panics
    /// As [`shares`](Self::shares).
    pub fn confidence(&self, logits: &[f32]) -> Confident {
        Confident::of(&self.shares(logits))
    }

    /// The mean negative log-likelihood of the labels, in nats.
    ///
    /// # Errors
    /// As [`Temperature::fit`].
    ///
    /// # Panics
    /// As [`shares`](Self::shares).
    pub fn loss<'a, I>(&self, items: I) -> Result<f64, CascadeError>
    where
        I: IntoIterator<Item = (&'a [f32], usize)> + Clone,
    {
        let count = check(items.clone())?;
        let all = items.into_iter().map(|item| self.surprise(&Logged::of(item)));
        Ok(all.sum::<f64>() / count as f64)
    }

    fn of_logs(&self, logs: &[f64]) -> Vec<f64> {
        let rows = self.weights.chunks(logs.len()).zip(&self.intercepts);
        let scores = rows.map(|(row, intercept)| intercept + row.iter().zip(logs).map(|(w, log)| w * log).sum::<f64>());
        let mut shares: Vec<f64> = scores.collect();
        let most = shares.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        shares.iter_mut().for_each(|score| *score = libm::exp(*score - most));
        let sum: f64 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share /= sum);
        shares
    }

    fn surprise(&self, item: &Logged) -> f64 {
        -libm::log(self.of_logs(&item.logs)[item.label].max(f64::MIN_POSITIVE))
    }
}

/// An item: the logarithms of its probabilities, and its label.
struct Logged {
    logs: Vec<f64>,
    label: usize,
}

impl Logged {
    fn of((logits, label): (&[f32], usize)) -> Logged {
        let shares = softmax(logits, Temperature::ONE);
        // A probability that is none for a number in 64 bits is still one.
        let logs = shares.into_iter().map(|share| libm::log(share.max(f64::MIN_POSITIVE)));
        Logged {
            logs: logs.collect(),
            label,
        }
    }
}

/// What is made least: weights row by row, and then intercepts.
struct Penalised<'a> {
    items: &'a [&'a Logged],
    penalty: f64,
}

impl Penalised<'_> {
    /// What the penalty is multiplied by: of a weight off the diagonal, and of an intercept.
    fn penalties(&self, classes: usize) -> [f64; 2] {
        let off_diagonal = (classes * (classes - 1)).max(1);
        [off_diagonal, classes].map(|count| self.penalty / count as f64)
    }

    fn classes(&self) -> usize {
        self.items[0].logs.len()
    }
}

impl CostFunction for Penalised<'_> {
    type Param = Vec<f64>;
    type Output = f64;

    fn cost(&self, numbers: &Vec<f64>) -> Result<f64, Error> {
        let classes = self.classes();
        let [off_diagonal, intercept] = self.penalties(classes);
        let at = Dirichlet::of_numbers(numbers.clone(), classes);
        let surprise: f64 = self.items.iter().map(|item| at.surprise(item)).sum();
        let off = { at.weights.iter().enumerate() }.filter(|(place, _)| place % (classes + 1) != 0);
        let off: f64 = off.map(|(_, weight)| weight * weight).sum();
        let intercepts: f64 = at.intercepts.iter().map(|b| b * b).sum();
        Ok(surprise / self.items.len() as f64 + off_diagonal * off + intercept * intercepts)
    }
}

impl Gradient for Penalised<'_> {
    type Param = Vec<f64>;
    type Gradient = Vec<f64>;

    fn gradient(&self, numbers: &Vec<f64>) -> Result<Vec<f64>, Error> {
        let classes = self.classes();
        let [off_diagonal, intercept] = self.penalties(classes);
        let at = Dirichlet::of_numbers(numbers.clone(), classes);
        let mut slope = vec![0.0; numbers.len()];
        for item in self.items {
            let shares = at.of_logs(&item.logs);
            for (row, share) in shares.iter().enumerate() {
                let error = share - f64::from(u8::from(row == item.label));
                let of_row = &mut slope[row * classes..][..classes];
                of_row
                    .iter_mut()
                    .zip(&item.logs)
                    .for_each(|(slope, log)| *slope += error * log);
                slope[classes * classes + row] += error;
            }
        }
        for (place, slope) in slope.iter_mut().enumerate() {
            let penalty = match place {
                place if place >= classes * classes => intercept,
                place if place % (classes + 1) == 0 => 0.0,
                _ => off_diagonal,
            };
            *slope = *slope / self.items.len() as f64 + 2.0 * penalty * numbers[place];
        }
        Ok(slope)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn items() -> impl Strategy<Value = Vec<(Vec<f32>, usize)>> {
        let item = (proptest::collection::vec(-4.0_f32..4.0, 3), 0_usize..3);
        proptest::collection::vec(item, 5..40)
    }

    fn borrowed(items: &[(Vec<f32>, usize)]) -> impl Iterator<Item = (&[f32], usize)> + Clone {
        items.iter().map(|(logits, label)| (logits.as_slice(), *label))
    }

    proptest! {
        #[test]
        fn the_slope_is_the_cost_s(items in items(), at in proptest::collection::vec(-2.0..2.0_f64, 12), penalty in 0.0..2.0_f64) {
            let items: Vec<Logged> = borrowed(&items).map(Logged::of).collect();
            let items: Vec<&Logged> = items.iter().collect();
            let problem = Penalised { items: &items, penalty };
            let slope = problem.gradient(&at).unwrap();
            for place in 0..12 {
                let [mut below, mut above] = [at.clone(), at.clone()];
                below[place] -= 1e-5;
                above[place] += 1e-5;
                let expected = (problem.cost(&above).unwrap() - problem.cost(&below).unwrap()) / 2e-5;
                prop_assert!((slope[place] - expected).abs() < 1e-6 * (1.0 + expected.abs()), "{place}: {} {expected}", slope[place]);
            }
        }

        /// Nothing around it costs less: the loss is convex.
        #[test]
        fn what_is_fitted_costs_least(items in items(), off in proptest::collection::vec(-0.1..0.1_f64, 12)) {
            let items: Vec<Logged> = borrowed(&items).map(Logged::of).collect();
            let items: Vec<&Logged> = items.iter().collect();
            let problem = Penalised { items: &items, penalty: 0.1 };
            let fitted = Dirichlet::penalised(&items, 0.1).into_numbers();
            let near: Vec<f64> = fitted.iter().zip(off).map(|(number, off)| number + off).collect();
            prop_assert!(problem.cost(&fitted).unwrap() <= problem.cost(&near).unwrap() + 1e-9);
        }

        #[test]
        fn shares_are_probabilities(items in items()) {
            let fitted = Dirichlet::fit(borrowed(&items)).unwrap();
            for (logits, _) in &items {
                let shares = fitted.shares(logits);
                prop_assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9 && shares.iter().all(|share| *share >= 0.0));
            }
            let again = Dirichlet::new(&fitted.weights(), fitted.intercepts()).unwrap();
            prop_assert_eq!(again, fitted);
        }
    }

    /// A model that says "second" for half of the first class's items: a temperature can only doubt all of them, this knows which.
    #[test]
    fn a_class_that_is_taken_for_another_is_told() {
        let item = |at: usize| match at % 4 {
            0 => (vec![2.0_f32, 0.0, -2.0], 0),
            1 => (vec![0.0, 2.0, -2.0], 0),
            2 => (vec![0.0, 2.2, -1.0], 1),
            _ => (vec![-2.0, 0.0, 3.0], 2),
        };
        let items: Vec<(Vec<f32>, usize)> = (0..400).map(item).collect();
        let fitted = Dirichlet::fit(borrowed(&items)).unwrap();
        let temperature = Temperature::fit(borrowed(&items)).unwrap();
        let [ours, theirs] = [fitted.loss(borrowed(&items)), temperature.loss(borrowed(&items))].map(Result::unwrap);
        assert!(ours < 0.1 * theirs, "{ours} {theirs}");
        assert_eq!(temperature.confidence(&[0.0, 2.0, -2.0]).class, 1);
        assert_eq!(fitted.confidence(&[0.0, 2.0, -2.0]).class, 0);
        assert_eq!(fitted.confidence(&[0.0, 2.2, -1.0]).class, 1);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let refused =
            |weights: &[Vec<f64>], intercepts: &[f64]| Dirichlet::new(weights, intercepts).unwrap_err().to_string();
        assert_eq!(refused(&[], &[]), "intercepts: must have items, got none");
        assert_eq!(refused(&[vec![1.0]], &[0.0, 0.0]), "rows of weights: must be 2, got 1");
        let rows = [vec![1.0, 0.0], vec![0.0]];
        assert_eq!(refused(&rows, &[0.0, 0.0]), "a row of weights: must be 2, got 1");
        let rows = [vec![1.0, f64::NAN], vec![0.0, 1.0]];
        assert_eq!(
            refused(&rows, &[0.0, 0.0]),
            "item 1: weight or intercept: must be finite, got NaN"
        );
        assert!(Dirichlet::fit([]).is_err());
        let one: [(&[f32], usize); 1] = [(&[1.0, 0.0], 0)];
        assert!(Dirichlet::fit(one).is_ok());
    }
}
