//! Calibration of several classes at once (Kull et al., NeurIPS 2019, which Tabi names in section 4.1): a temperature
//! makes a model as sure of one class as of another; this can tell that it takes one class for another too often, and
//! so may change the answer.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use argmin::core::{CostFunction, Error, Executor, Gradient};
use argmin::solver::linesearch::MoreThuenteLineSearch;
use argmin::solver::quasinewton::LBFGS;

use crate::calibration::{Confident, Temperature, check};
use crate::error::CascadeError;

/// What is tried against fitting too closely; both of the paper's penalties are the same. From the strongest, since the
/// fit with a weaker one is near.
const PENALTIES: [f64; 6] = [10.0, 1.0, 0.1, 1e-2, 1e-3, 1e-4];

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
    /// W, column by column, in which order scores are summed: `[classes × classes]`.
    columns: Vec<f64>,
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
        let column = |class: usize| weights.iter().map(move |row| row[class]);
        Ok(Dirichlet {
            columns: (0..classes).flat_map(column).collect(),
            intercepts: intercepts.to_vec(),
        })
    }

    /// Fitted by negative log-likelihood, with the penalty that does best on items that were held out, of equals the
    /// strongest. Every fifth item is of the same part. It begins as the items' temperature, and is never worse on
    /// them; where nothing is better it stays that: [`temperature`](Self::temperature).
    ///
    /// `items` are logits and label. With many classes it takes minutes: once `interrupt` is set it ends.
    ///
    /// # Errors
    /// As [`Temperature::fit`], and [`CascadeError::Interrupted`].
    pub fn fit<'a, I>(items: I, interrupt: &AtomicBool) -> Result<Dirichlet, CascadeError>
    where
        I: IntoIterator<Item = (&'a [f32], usize)> + Clone,
    {
        let temperature = Temperature::fit(items.clone())?;
        let items: Vec<Logged> = items.into_iter().map(Logged::of).collect();
        let start = Dirichlet::of_temperature(temperature, items[0].logs.len());
        let weakest = match items.len() {
            // Nothing can be held out.
            1 => PENALTIES[0],
            _ => start.best_penalty(&items, interrupt)?,
        };
        let all: Vec<&Logged> = items.iter().collect();
        let mut stronger = PENALTIES.iter().take_while(|penalty| **penalty >= weakest);
        stronger.try_fold(start, |fitted, penalty| fitted.improved(&all, *penalty, interrupt))
    }

    /// The penalty whose fits, begun here, do best on the parts of the items that they have not seen.
    fn best_penalty(&self, items: &[Logged], interrupt: &AtomicBool) -> Result<f64, CascadeError> {
        let folds = FOLDS.min(items.len());
        let losses_of = |fold: usize| {
            let (held, kept): (Vec<(usize, &Logged)>, Vec<_>) =
                items.iter().enumerate().partition(|(at, _)| at % folds == fold);
            let kept: Vec<&Logged> = kept.into_iter().map(|(_, item)| item).collect();
            let mut fitted = self.clone();
            let held_out = |penalty: &f64| {
                fitted = fitted.improved(&kept, *penalty, interrupt)?;
                Ok(held.iter().map(|(_, item)| fitted.surprise(item)).sum())
            };
            PENALTIES.iter().map(held_out).collect::<Result<Vec<f64>, _>>()
        };
        let by_fold = thread::scope(|scope| {
            let fits: Vec<_> = (0..folds).map(|fold| scope.spawn(move || losses_of(fold))).collect();
            let done = fits.into_iter().map(|fit| fit.join().expect("fits do not panic"));
            done.collect::<Result<Vec<_>, _>>()
        })?;
        let loss = |penalty: usize| by_fold.iter().map(|losses| losses[penalty]).sum::<f64>();
        let best = (0..PENALTIES.len()).min_by(|&one, &other| loss(one).total_cmp(&loss(other)));
        Ok(PENALTIES[best.expect("there are penalties")])
    }

    /// From here on to the least of the mean negative log-likelihood and the penalties on weights off the diagonal and
    /// on intercepts (Kull et al., section 3: ODIR).
    fn improved(&self, items: &[&Logged], penalty: f64, interrupt: &AtomicBool) -> Result<Dirichlet, CascadeError> {
        let start = self.clone().into_numbers();
        let solver = LBFGS::new(MoreThuenteLineSearch::new(), MEMORY)
            .with_tolerance_grad(FLAT)
            .and_then(|solver| solver.with_tolerance_cost(FLAT * FLAT))
            .expect("tolerances are above 0");
        let problem = Penalised::new(items, penalty, interrupt);
        let run = Executor::new(problem, solver)
            .configure(|state| state.param(start.clone()).max_iters(STEPS))
            .run();
        // An interruption ends the search as a step that cannot be made does, after which it has the best place so far.
        if interrupt.load(Ordering::Relaxed) {
            return Err(CascadeError::Interrupted);
        }
        let found = run.ok().and_then(|mut run| run.state.take_best_param());
        Ok(Dirichlet::of_numbers(found.unwrap_or(start), self.classes()))
    }

    /// What divides logits by a temperature: weights between no classes.
    fn of_temperature(temperature: Temperature, classes: usize) -> Dirichlet {
        let mut columns = vec![0.0; classes * classes];
        let own = columns.iter_mut().step_by(classes + 1);
        own.for_each(|own| *own = 1.0 / temperature.value());
        Dirichlet {
            columns,
            intercepts: vec![0.0; classes],
        }
    }

    /// The temperature that it stands for, where it has neither weights between classes nor intercepts.
    pub fn temperature(&self) -> Option<Temperature> {
        let own = self.columns[0];
        let is_own = |(place, weight): (usize, &f64)| match place % (self.classes() + 1) {
            0 => *weight == own,
            _ => *weight == 0.0,
        };
        let is_all = self.columns.iter().enumerate().all(is_own) && self.intercepts.iter().all(|b| *b == 0.0);
        is_all.then(|| Temperature::new(1.0 / own).ok()).flatten()
    }

    /// As the search has it: columns, then intercepts.
    fn of_numbers(mut numbers: Vec<f64>, classes: usize) -> Dirichlet {
        let intercepts = numbers.split_off(classes * classes);
        Dirichlet {
            columns: numbers,
            intercepts,
        }
    }

    fn into_numbers(mut self) -> Vec<f64> {
        self.columns.append(&mut self.intercepts);
        self.columns
    }

    /// How many classes it is for.
    pub fn classes(&self) -> usize {
        self.intercepts.len()
    }

    /// W, a row for each class.
    pub fn weights(&self) -> Vec<Vec<f64>> {
        let row = |class: usize| self.columns.iter().skip(class).step_by(self.classes()).copied();
        (0..self.classes()).map(|class| row(class).collect()).collect()
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
        let mut scores = self.scores(&Logged::of((logits, 0)).logs);
        to_shares(&mut scores);
        scores
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

    fn scores(&self, logs: &[f64]) -> Vec<f64> {
        scores(&self.columns, &self.intercepts, logs)
    }

    fn surprise(&self, item: &Logged) -> f64 {
        let mut scores = self.scores(&item.logs);
        let own = scores[item.label];
        to_shares(&mut scores) - own
    }
}

/// `W · logs + b`. A column is added at a time, since sums of their own need not wait for each other.
fn scores(columns: &[f64], intercepts: &[f64], logs: &[f64]) -> Vec<f64> {
    let mut scores = intercepts.to_vec();
    for (column, log) in columns.chunks(intercepts.len()).zip(logs) {
        for (score, weight) in scores.iter_mut().zip(column) {
            *score += weight * log;
        }
    }
    scores
}

/// The probabilities that scores stand for, in their place, and the logarithm of what these are divided by.
fn to_shares(scores: &mut [f64]) -> f64 {
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    scores.iter_mut().for_each(|score| *score = libm::exp(*score - most));
    let sum: f64 = scores.iter().sum();
    scores.iter_mut().for_each(|share| *share /= sum);
    most + libm::log(sum)
}

/// An item: the logarithms of its probabilities, and its label.
struct Logged {
    logs: Vec<f64>,
    label: usize,
}

impl Logged {
    fn of((logits, label): (&[f32], usize)) -> Logged {
        let mut shares: Vec<f64> = logits.iter().map(|&logit| f64::from(logit)).collect();
        let total = to_shares(&mut shares);
        // Of logits, since a probability may be none for a number in 64 bits.
        let logs = logits.iter().map(|&logit| f64::from(logit) - total).collect();
        Logged { logs, label }
    }
}

/// What is made least: of weights column by column, and then intercepts.
struct Penalised<'a> {
    items: &'a [&'a Logged],
    /// What the squares are multiplied by: of weights off the diagonal, and of intercepts.
    off_diagonal: f64,
    intercept: f64,
    interrupt: &'a AtomicBool,
    /// The search asks for the cost and the slope of the same place, one after the other.
    looked_at: RefCell<Place>,
}

/// What is known of a place.
#[derive(Default)]
struct Place {
    numbers: Vec<f64>,
    cost: f64,
    slope: Vec<f64>,
}

impl<'a> Penalised<'a> {
    fn new(items: &'a [&'a Logged], penalty: f64, interrupt: &'a AtomicBool) -> Penalised<'a> {
        let classes = items[0].logs.len();
        let over = |count: usize| penalty / count.max(1) as f64;
        Penalised {
            items,
            off_diagonal: over(classes * (classes - 1)),
            intercept: over(classes),
            interrupt,
            looked_at: RefCell::default(),
        }
    }

    fn look_at(&self, numbers: &[f64]) -> Result<(), Error> {
        if self.looked_at.borrow().numbers == numbers {
            return Ok(());
        }
        if self.interrupt.load(Ordering::Relaxed) {
            return Err(CascadeError::Interrupted.into());
        }
        let classes = self.items[0].logs.len();
        let (columns, intercepts) = numbers.split_at(classes * classes);
        let mut surprise = 0.0;
        let mut slope = vec![0.0; numbers.len()];
        for item in self.items {
            let mut errors = scores(columns, intercepts, &item.logs);
            let own = errors[item.label];
            surprise += to_shares(&mut errors) - own;
            errors[item.label] -= 1.0;
            // An intercept's logarithm is 1.
            for (of_column, log) in slope.chunks_mut(classes).zip(item.logs.iter().chain([&1.0])) {
                for (slope, error) in of_column.iter_mut().zip(&errors) {
                    *slope += error * log;
                }
            }
        }
        let items = self.items.len() as f64;
        let mut cost = surprise / items;
        for (place, (slope, number)) in slope.iter_mut().zip(numbers).enumerate() {
            let penalty = match place {
                place if place >= classes * classes => self.intercept,
                place if place % (classes + 1) == 0 => 0.0,
                _ => self.off_diagonal,
            };
            cost += penalty * number * number;
            *slope = *slope / items + 2.0 * penalty * number;
        }
        *self.looked_at.borrow_mut() = Place {
            numbers: numbers.to_vec(),
            cost,
            slope,
        };
        Ok(())
    }
}

impl CostFunction for Penalised<'_> {
    type Param = Vec<f64>;
    type Output = f64;

    fn cost(&self, numbers: &Vec<f64>) -> Result<f64, Error> {
        self.look_at(numbers)?;
        Ok(self.looked_at.borrow().cost)
    }
}

impl Gradient for Penalised<'_> {
    type Param = Vec<f64>;
    type Gradient = Vec<f64>;

    fn gradient(&self, numbers: &Vec<f64>) -> Result<Vec<f64>, Error> {
        self.look_at(numbers)?;
        Ok(self.looked_at.borrow().slope.clone())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    static NEVER: AtomicBool = AtomicBool::new(false);

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
            let problem = Penalised::new(&items, penalty, &NEVER);
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
            let problem = Penalised::new(&items, 0.1, &NEVER);
            let fitted = Dirichlet::of_temperature(Temperature::ONE, 3).improved(&items, 0.1, &NEVER).unwrap().into_numbers();
            let near: Vec<f64> = fitted.iter().zip(off).map(|(number, off)| number + off).collect();
            prop_assert!(problem.cost(&fitted).unwrap() <= problem.cost(&near).unwrap() + 1e-9);
        }

        #[test]
        fn shares_are_probabilities(items in items()) {
            let fitted = Dirichlet::fit(borrowed(&items), &NEVER).unwrap();
            for (logits, _) in &items {
                let shares = fitted.shares(logits);
                prop_assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9 && shares.iter().all(|share| *share >= 0.0));
            }
            let again = Dirichlet::new(&fitted.weights(), fitted.intercepts()).unwrap();
            prop_assert_eq!(again, fitted);
        }
    }

    /// A model that says "second" for half of the first class's items: a temperature can only doubt all of them, this
    /// knows which.
    #[test]
    fn a_class_that_is_taken_for_another_is_told() {
        let item = |at: usize| match at % 4 {
            0 => (vec![2.0_f32, 0.0, -2.0], 0),
            1 => (vec![0.0, 2.0, -2.0], 0),
            2 => (vec![0.0, 2.2, -1.0], 1),
            _ => (vec![-2.0, 0.0, 3.0], 2),
        };
        let items: Vec<(Vec<f32>, usize)> = (0..400).map(item).collect();
        let fitted = Dirichlet::fit(borrowed(&items), &NEVER).unwrap();
        let temperature = Temperature::fit(borrowed(&items)).unwrap();
        let [ours, theirs] = [fitted.loss(borrowed(&items)), temperature.loss(borrowed(&items))].map(Result::unwrap);
        assert!(ours < 0.1 * theirs, "{ours} {theirs}");
        assert_eq!(temperature.confidence(&[0.0, 2.0, -2.0]).class, 1);
        assert_eq!(fitted.confidence(&[0.0, 2.0, -2.0]).class, 0);
        assert_eq!(fitted.confidence(&[0.0, 2.2, -1.0]).class, 1);
    }

    /// Begun far from the least, with logits in thousands of which one in five is wrong.
    #[test]
    fn very_large_logits_are_fitted() {
        let item = |at: usize| {
            let mut logits = vec![0.0_f32; 10];
            logits[at % 10] = 4000.0 + at as f32;
            (logits, if at.is_multiple_of(5) { (at + 3) % 10 } else { at % 10 })
        };
        let items: Vec<(Vec<f32>, usize)> = (0..200).map(item).collect();
        let temperature = Temperature::fit(borrowed(&items)).unwrap().loss(borrowed(&items)).unwrap();
        let fitted = Dirichlet::fit(borrowed(&items), &NEVER).unwrap();
        let loss = fitted.loss(borrowed(&items)).unwrap();
        assert!(loss < 1.0 && loss < temperature, "{loss} {temperature}");
        assert_eq!(fitted.temperature(), None);
    }

    /// Of items that are all answered rightly no weights are likelier than the sharpest temperature.
    #[test]
    fn where_nothing_is_better_it_is_the_temperature() {
        let items: Vec<(Vec<f32>, usize)> = (0..20).map(|at| (vec![f32::from(at % 2 == 0), 0.5], at & 1)).collect();
        let temperature = Temperature::fit(borrowed(&items)).unwrap();
        let fitted = Dirichlet::fit(borrowed(&items), &NEVER).unwrap();
        let same = fitted.temperature().unwrap().value();
        assert!((same - temperature.value()).abs() < 1e-12, "{same}");
    }

    #[test]
    fn a_fit_hears_the_interrupt() {
        let items = [(vec![1.0_f32, 0.0], 0), (vec![1.0, 0.0], 1)];
        let interrupted = Dirichlet::fit(borrowed(&items), &AtomicBool::new(true));
        assert_eq!(interrupted, Err(CascadeError::Interrupted));
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
        assert!(Dirichlet::fit([], &NEVER).is_err());
        let one: [(&[f32], usize); 1] = [(&[1.0, 0.0], 0)];
        assert!(Dirichlet::fit(one, &NEVER).is_ok());
    }
}
