//! How several models' answers become one (Tabi, section 4.3; Cocktail, NSDI 2022).

use crate::error::CascadeError;

/// Weights proportional to accuracies, one in all (Tabi, sections 4.3 and 5). Accuracies are those on the data that all these models answer:
/// in a cascade, what was re-routed.
///
/// # Errors
/// [`CascadeError::Range`] where an accuracy is outside [0, 1]; [`CascadeError::Nothing`] where none is above 0.
pub fn weights(accuracies: &[f64]) -> Result<Vec<f64>, CascadeError> {
    for &got in accuracies {
        if !(0.0..=1.0).contains(&got) {
            return Err(CascadeError::Range {
                what: "accuracy",
                must: "from 0 to 1",
                got,
            });
        }
    }
    let sum: f64 = accuracies.iter().sum();
    if sum <= 0.0 {
        return Err(CascadeError::Nothing { what: "weights" });
    }
    Ok(accuracies.iter().map(|accuracy| accuracy / sum).collect())
}

/// The weighted average of probabilities (Eq. 6): a weight for each model, and as many classes in each.
///
/// # Errors
/// [`CascadeError::Lengths`] where weights and models, or the models' classes, do not go together.
pub fn average(weights: &[f64], probabilities: &[&[f64]]) -> Result<Vec<f64>, CascadeError> {
    let fits = |what, must, got| match must == got {
        true => Ok(()),
        false => Err(CascadeError::Lengths { what, must, got }),
    };
    fits("weights", probabilities.len(), weights.len())?;
    let classes = probabilities.first().map_or(0, |first| first.len());
    let mut sums = vec![0.0; classes];
    for (weight, model) in weights.iter().zip(probabilities) {
        fits("classes", classes, model.len())?;
        for (sum, probability) in sums.iter_mut().zip(*model) {
            *sum += weight * probability;
        }
    }
    Ok(sums)
}

/// The likeliest class; the first among equals, 0 for none.
pub fn likeliest(probabilities: &[f64]) -> usize {
    let mut best = 0;
    for (class, probability) in probabilities.iter().enumerate() {
        if *probability > probabilities[best] {
            best = class;
        }
    }
    best
}

/// The class with the most votes, each of its model's weight; among equals, that of the heaviest voter, and the first among those.
/// Nothing where nobody votes.
pub fn vote(votes: &[(usize, f64)]) -> Option<usize> {
    let weight_of = |class: usize| -> f64 { votes.iter().filter(|vote| vote.0 == class).map(|vote| vote.1).sum() };
    let mut best: Option<(usize, f64, f64)> = None;
    for &(class, weight) in votes {
        let all = weight_of(class);
        if best.is_none_or(|(_, most, heaviest)| all > most || all == most && weight > heaviest) {
            best = Some((class, all, weight));
        }
    }
    best.map(|(class, ..)| class)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn weights_follow_accuracy_on_what_was_re_routed() {
        // SST-2, section 7.3.2: 76.2 % and 91.4 %.
        let weights = weights(&[0.762, 0.914]).unwrap();
        assert!((weights[1] - 0.545_3).abs() < 1e-4);
        assert!(super::weights(&[0.0]).is_err() && super::weights(&[1.2]).is_err());
    }

    #[test]
    fn the_average_is_equation_6() {
        let average = average(&[0.4, 0.6], &[&[0.9, 0.1], &[0.2, 0.8]]).unwrap();
        assert!((average[0] - 0.48).abs() < 1e-12);
        assert_eq!(likeliest(&average), 1);
        let error = super::average(&[1.0, 0.0], &[&[0.5, 0.5], &[1.0]])
            .unwrap_err()
            .to_string();
        assert_eq!(error, "classes: must be 2, got 1");
    }

    #[test]
    fn the_majority_wins_and_the_heaviest_breaks_ties() {
        assert_eq!(vote(&[(1, 0.8), (2, 0.9), (1, 0.7)]), Some(1));
        assert_eq!(vote(&[(1, 0.5), (2, 0.5), (0, 0.5)]), Some(1));
        assert_eq!(vote(&[(3, 0.25), (3, 0.25), (2, 0.5)]), Some(2));
        assert_eq!(vote(&[]), None);
    }

    proptest! {
        /// Probabilities stay probabilities, and models that agree are not overruled.
        #[test]
        fn the_average_is_a_distribution(a in 0.0..=1.0_f64, b in 0.0..=1.0_f64, w in 0.0..=1.0_f64) {
            let sums = average(&[w, 1.0 - w], &[&[a, 1.0 - a], &[b, 1.0 - b]]).unwrap();
            prop_assert!((sums.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            if (a > 0.5 + 1e-9) && (b > 0.5 + 1e-9) {
                prop_assert_eq!(likeliest(&sums), 0);
            }
        }
    }
}
