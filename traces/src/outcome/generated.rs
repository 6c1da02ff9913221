//! Outcomes of two models from a fitted generator.

use super::Outcome;
use crate::draw::{Draws, Purpose};
use crate::fit::cascade::TwoLevels;
use crate::request::Ticket;

/// Outcomes by ticket. Three draws a ticket, whatever comes out: the small model's confidence, whether it is right at
/// that confidence, whether the large one is right given both.
#[derive(Clone, Debug)]
pub struct GeneratedOutcomes {
    draws: Draws,
    levels: TwoLevels,
}

impl GeneratedOutcomes {
    /// The outcomes under `seed`.
    pub fn new(seed: u64, levels: TwoLevels) -> GeneratedOutcomes {
        GeneratedOutcomes {
            draws: Draws::new(seed, Purpose::Outcome),
            levels,
        }
    }

    /// What the small and the large model make of `ticket`. The large one's confidence is its chance of being right
    /// given what the small one did.
    pub fn of(&self, ticket: Ticket) -> [Outcome; 2] {
        self.shifted(ticket, 0.0)
    }

    /// As [`of`](Self::of), where the large model is right with a chance that is greater by `shift`, within 0 and 1.
    pub fn shifted(&self, ticket: Ticket, shift: f64) -> [Outcome; 2] {
        let mut stream = self.draws.about(ticket);
        let confidence = self.levels.confidence_at(stream.unit());
        let small_right = stream.unit() < self.levels.small_right(confidence);
        let large_chance = (self.levels.large_right(confidence, small_right) + shift).clamp(0.0, 1.0);
        [
            Outcome {
                confidence: confidence as f32,
                correct: small_right,
                wrong: None,
            },
            Outcome {
                confidence: large_chance as f32,
                correct: stream.unit() < large_chance,
                wrong: None,
            },
        ]
    }
}

/// A number in `[0, 1)` for each ticket and stage, for a router that returns by chance, as Tabi's dispatcher does
/// (section 4.1, equation 4). It has nothing in common with the outcomes.
#[derive(Clone, Copy, Debug)]
pub struct DispatchCoins {
    draws: Draws,
}

impl DispatchCoins {
    /// The coins under `seed`.
    pub fn new(seed: u64) -> DispatchCoins {
        DispatchCoins {
            draws: Draws::new(seed, Purpose::Dispatch),
        }
    }

    /// That of `ticket` at `stage`.
    pub fn of(&self, ticket: Ticket, stage: u32) -> f64 {
        self.draws.part(u64::from(stage)).about(ticket).unit()
    }
}
