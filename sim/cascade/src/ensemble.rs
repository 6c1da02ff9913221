//! How several models' answers become one (Tabi, section 4.3; Cocktail, NSDI 2022).

use crate::error::CascadeError;

/// Weights proportional to accuracies, one in all (Tabi, sections 4.3 and 5). Accuracies are those on the data that all
/// these models answer: in a cascade, what was re-routed.
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

/// The weights of a cascade's models, one for each: proportional to their accuracies on what the first model re-routes
/// at all, or on everything where nothing is re-routed; alike where nobody is right about any of it. Where not all
/// models were asked, the weights of those that were count, by their sum ([`average`]). `re_routed` is the chance of
/// each item to be re-routed, `right` has for each model whether it is right about each item as that comes to it.
///
/// # Errors
/// [`CascadeError::Lengths`] where a model was not asked about as many items.
pub fn weights_of_route(re_routed: &[f64], right: &[Vec<bool>]) -> Result<Vec<f64>, CascadeError> {
    let (must, what) = (re_routed.len(), "answers");
    if let Some(got) = right.iter().map(Vec::len).find(|&got| got != must) {
        return Err(CascadeError::Lengths { what, must, got });
    }
    let sum: f64 = re_routed.iter().sum();
    let accuracy = |right: &Vec<bool>| {
        let chances = right.iter().zip(re_routed).filter(|(right, _)| **right);
        match sum > 0.0 {
            // Sums round.
            true => (chances.map(|(_, chance)| chance).sum::<f64>() / sum).min(1.0),
            false => chances.count() as f64 / must.max(1) as f64,
        }
    };
    let accuracies: Vec<f64> = right.iter().map(accuracy).collect();
    match accuracies.iter().all(|&accuracy| accuracy <= 0.0) {
        true => Ok(vec![1.0 / right.len() as f64; right.len()]),
        false => weights(&accuracies),
    }
}

/// The weighted average of probabilities (Eq. 6): the models that were asked, each with its weight, of which the sum
/// counts, and its probabilities, as many classes in each. All alike where no weight is above 0.
///
/// # Errors
/// [`CascadeError::Lengths`] where the models' classes do not go together.
pub fn average<'a, N: Copy + Into<f64> + 'a>(
    asked: impl IntoIterator<Item = (f64, &'a [N]), IntoIter: Clone>,
) -> Result<Vec<f64>, CascadeError> {
    let asked = asked.into_iter();
    let (models, all) = asked.clone().fold((0_u32, 0.0), |(models, all), (weight, _)| (models + 1, all + weight));
    let mut sums: Vec<f64> = Vec::new();
    for (index, (weight, probabilities)) in asked.enumerate() {
        if index == 0 {
            sums.resize(probabilities.len(), 0.0);
        }
        let (what, must, got) = ("classes", sums.len(), probabilities.len());
        if got != must {
            return Err(CascadeError::Lengths { what, must, got });
        }
        let share = match all > 0.0 {
            true => weight / all,
            false => 1.0 / f64::from(models),
        };
        for (sum, &probability) in sums.iter_mut().zip(probabilities) {
            *sum += share * probability.into();
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

/// The class with the most votes, each of its model's weight; among equals, that of the heaviest voter, and the first
/// among those. Nothing where nobody votes.
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
    fn a_route_s_weights_are_of_what_its_first_model_re_routes() {
        // The last two items go on, the second of them half of the time.
        let re_routed = [0.0, 0.0, 1.0, 0.5];
        let right = [
            vec![true, true, false, true],
            vec![true, true, true, false],
            vec![false, false, true, true],
        ];
        let weights = weights_of_route(&re_routed, &right).unwrap();
        let [first, second, third] = [0.5, 1.0, 1.5].map(|right| right / 3.0);
        assert!((weights[0] - first).abs() < 1e-12 && (weights[1] - second).abs() < 1e-12);
        assert!((weights[2] - third).abs() < 1e-12);
        // Nothing is re-routed: three, three and two of four. Nobody is right: all alike.
        let weights = weights_of_route(&[0.0; 4], &right).unwrap();
        assert!((weights[0] - 0.375).abs() < 1e-12 && (weights[2] - 0.25).abs() < 1e-12);
        assert_eq!(
            weights_of_route(&[1.0], &[vec![false], vec![false]]),
            Ok(vec![0.5, 0.5])
        );
        let error = weights_of_route(&[1.0, 1.0], &[vec![true]]).unwrap_err().to_string();
        assert_eq!(error, "answers: must be 2, got 1");
    }

    #[test]
    fn the_average_is_equation_6() {
        let of = |weights: [f64; 2], models: [&[f64]; 2]| average(weights.into_iter().zip(models));
        let equation = of([0.4, 0.6], [&[0.9, 0.1], &[0.2, 0.8]]).unwrap();
        assert!((equation[0] - 0.48).abs() < 1e-12);
        assert_eq!(likeliest(&equation), 1);
        // Where the third was not asked, the weights of those that were are 1 in all; weights of 0 are alike.
        let asked = of([0.2, 0.3], [&[0.9, 0.1], &[0.2, 0.8]]).unwrap();
        assert!((asked[0] - 0.48).abs() < 1e-12);
        let alike = of([0.0, 0.0], [&[0.9, 0.1], &[0.2, 0.8]]).unwrap();
        assert!((alike[0] - 0.55).abs() < 1e-12);
        let error = of([1.0, 0.0], [&[0.5, 0.5], &[1.0]]).unwrap_err().to_string();
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
            let (one, other) = ([a, 1.0 - a], [b, 1.0 - b]);
            let sums = average([(w, one.as_slice()), (1.0 - w, &other)]).unwrap();
            prop_assert!((sums.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            if (a > 0.5 + 1e-9) && (b > 0.5 + 1e-9) {
                prop_assert_eq!(likeliest(&sums), 0);
            }
        }
    }
}
