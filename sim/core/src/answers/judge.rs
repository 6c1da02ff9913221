//! Several models' answers become one, which is right or not.

use tenantry_cascade::ensemble;

use crate::spec::AnswerJoin;

/// How the answers of a route's models are joined and held against what is right.
#[derive(Clone, Debug)]
pub struct Judge {
    join: AnswerJoin,
    /// How far off a right number may be; nothing where classes are asked for.
    tolerance: Option<f64>,
}

impl Judge {
    /// A judge of classes, or of numbers within a tolerance.
    pub fn new(join: AnswerJoin, tolerance: Option<f64>) -> Judge {
        Judge { join, tolerance }
    }

    /// Whether what the stages that were asked put out, in their order, comes to `label`: probabilities of the classes
    /// and the class's place among them, or a number and the right one.
    ///
    /// # Panics
    /// If no stage was asked.
    pub fn is_right<N: Copy + Into<f64>>(&self, asked: &[(usize, &[N])], label: f64) -> bool {
        let joined = self.joined(asked);
        match self.tolerance {
            Some(tolerance) => (joined[0] - label).abs() <= tolerance,
            None => ensemble::likeliest(&joined) as f64 == label,
        }
    }

    fn joined<N: Copy + Into<f64>>(&self, asked: &[(usize, &[N])]) -> Vec<f64> {
        let wide = |output: &[N]| -> Vec<f64> { output.iter().map(|&number| number.into()).collect() };
        let (_, last) = asked.last().expect("somebody was asked");
        match &self.join {
            AnswerJoin::Last => wide(last),
            AnswerJoin::Average(weights) => {
                let weighted = asked.iter().map(|&(stage, output)| (weights[stage], output));
                ensemble::average(weighted).expect("a route's stages answer the same question")
            }
            AnswerJoin::Vote(weights) => {
                let votes: Vec<(usize, f64)> = asked
                    .iter()
                    .map(|&(stage, output)| (ensemble::likeliest(&wide(output)), weights[stage]))
                    .collect();
                let elected = ensemble::vote(&votes).expect("somebody was asked");
                (0..last.len()).map(|class| f64::from(u8::from(class == elected))).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: [(usize, &[f32]); 3] = [(0, &[0.9, 0.1]), (1, &[0.4, 0.6]), (2, &[0.45, 0.55])];

    fn answers(join: AnswerJoin, asked: &[(usize, &[f32])]) -> usize {
        let judge = Judge::new(join, None);
        (0..2).find(|&class| judge.is_right(asked, class as f64)).unwrap()
    }

    #[test]
    fn classes_are_joined_in_three_ways() {
        assert_eq!(answers(AnswerJoin::Last, &ASKED), 1);
        assert_eq!(answers(AnswerJoin::Average(vec![1.0, 1.0, 1.0]), &ASKED), 0);
        assert_eq!(answers(AnswerJoin::Average(vec![0.1, 1.0, 1.0]), &ASKED), 1);
        assert_eq!(answers(AnswerJoin::Vote(vec![1.0, 1.0, 1.0]), &ASKED), 1);
        assert_eq!(answers(AnswerJoin::Vote(vec![3.0, 1.0, 1.0]), &ASKED), 0);
        // Who was not asked has no weight, and among weights of 0 all are alike.
        assert_eq!(answers(AnswerJoin::Average(vec![5.0, 0.0, 0.0]), &ASKED[1..]), 1);
    }

    /// A vote over numbers has no meaning and scenarios refuse it; an average is one of those that were asked.
    #[test]
    fn numbers_are_right_within_the_tolerance() {
        let judge = Judge::new(AnswerJoin::Average(vec![0.25, 0.5, 0.25]), Some(0.1));
        // (0.25 · 2 + 0.5 · 5) / 0.75 = 4.
        let asked: [(usize, &[f64]); 2] = [(0, &[2.0]), (1, &[5.0])];
        assert!(judge.is_right(&asked, 4.05) && judge.is_right(&asked, 3.95));
        assert!(!judge.is_right(&asked, 4.2));
    }
}
