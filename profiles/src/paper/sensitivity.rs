//! What is varied to see what follows from an assumption, and what follows by first-order arithmetic.

use serde::Serialize;

use super::{Number, Paper};

/// By how much an assumption is made smaller and larger.
const CHANGE: f64 = 0.2;
/// Relative changes of a result smaller than this are none: they would be shown as 0.0 %.
pub const LEAST_CHANGE: f64 = 5e-4;
/// Units of what there is no half of.
const COUNTED: [&str; 4] = ["kernels", "passes", "requests", "tokens"];

/// What an assumption, or a number whose setting is one, does to a result where it is a fifth smaller and a fifth
/// larger.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sensitivity {
    /// The assumption.
    pub number: String,
    /// The result.
    pub outcome: &'static str,
    /// The result's relative change where it is smaller.
    pub less: f64,
    /// The same where it is larger.
    pub more: f64,
}

impl Number {
    /// The value a fifth smaller and a fifth larger; of what is counted the nearest whole numbers.
    pub fn varied(&self) -> [f64; 2] {
        [1.0 - CHANGE, 1.0 + CHANGE].map(|ratio| match COUNTED.contains(&self.unit.as_str()) {
            true => (self.value * ratio).round(),
            false => self.value * ratio,
        })
    }
}

impl Paper {
    /// The numbers of which something was chosen here, by name.
    pub fn assumptions(&self) -> impl Iterator<Item = (&str, &Number)> {
        let numbers = self.numbers().iter().filter(|(_, number)| number.kind.is_chosen());
        numbers.map(|(name, number)| (name.as_str(), number))
    }

    /// How each result changes when an assumption is a fifth smaller and a fifth larger, where it changes at all.
    pub fn sensitivities(&self) -> Vec<Sensitivity> {
        let before = self.outcomes(&self.card());
        let mut sensitivities = Vec::new();
        for (name, number) in self.assumptions() {
            let [less, more] = number.varied().map(|value| {
                let changed = self.with(name, value);
                changed.outcomes(&changed.card())
            });
            let after = less.into_iter().zip(more);
            sensitivities.extend(before.iter().zip(after).filter_map(|(before, (less, more))| {
                let [less, more] = [less, more].map(|after| after.ours / before.ours - 1.0);
                (less.abs().max(more.abs()) >= LEAST_CHANGE).then(|| Sensitivity {
                    number: name.to_owned(),
                    outcome: before.what,
                    less,
                    more,
                })
            }));
        }
        sensitivities
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::Knowledge;

    #[test]
    fn sensitivities_have_the_sign_that_reason_gives() {
        let hmi = Paper::load("paper-p5000").unwrap().sensitivities();
        let of = |number: &str, outcome: &str| {
            let found = hmi.iter().find(|s| s.number == number && s.outcome.contains(outcome));
            found.map(|s| (s.less, s.more))
        };
        // A faster link makes swapping without prefetch cheaper, and nothing else.
        let (slower, faster) = of("link_gbytes_per_s", "without adapter prefetch").unwrap();
        assert!(slower < 0.0 && faster > 0.0);
        assert_eq!(of("link_gbytes_per_s", "hBERT, requests"), None);
    }

    #[test]
    fn what_is_counted_stays_whole() {
        let varied = |value, unit: &str| {
            Number {
                value,
                unit: unit.into(),
                kind: Knowledge::Assumed,
                source: "nowhere".into(),
            }
            .varied()
        };
        assert_eq!(varied(32.0, "requests"), [26.0, 38.0]);
        assert_eq!(varied(3.0, "kernels"), [2.0, 4.0]);
        assert_eq!(varied(2.0, "kernels"), [2.0, 2.0], "rounding leaves it as it is");
        assert_eq!(varied(10.0, "us"), [8.0, 12.0]);
    }
}
