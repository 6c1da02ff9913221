//! The four ways in which requests fall on LoRA models (section 7).

use serde_json::{Value, json};

/// How popular LoRA models are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Each request has one of its own.
    Distinct,
    /// All are asked for alike.
    Uniform,
    /// Each is asked for 1.5 times as often as the next.
    Skewed,
    /// There is one.
    Identical,
}

impl Pattern {
    pub const ALL: [Pattern; 4] = [Pattern::Distinct, Pattern::Uniform, Pattern::Skewed, Pattern::Identical];

    /// As the paper has it.
    pub fn name(self) -> &'static str {
        match self {
            Pattern::Distinct => "distinct",
            Pattern::Uniform => "uniform",
            Pattern::Skewed => "skewed",
            Pattern::Identical => "identical",
        }
    }

    /// As a scenario's `tenants.popularity` has it.
    pub fn popularity(self) -> Value {
        match self {
            Pattern::Distinct => json!("distinct"),
            Pattern::Uniform => json!("uniform-sqrt"),
            Pattern::Skewed => json!({ "skewed": 1.5 }),
            Pattern::Identical => json!("identical"),
        }
    }

    /// Different models among so many requests of one batch. The text has the square root for uniform ones, rounded up,
    /// and no number for skewed ones: these are divided as in the authors' public benchmark (punica-ai/punica,
    /// benchmarks/benchmark_utils.py), from one request for the rarest on, each next with 1.5 times as many, rounded
    /// down, and what is left for the last.
    pub fn tenants(self, requests: u32) -> u32 {
        match self {
            Pattern::Distinct => requests,
            Pattern::Uniform => f64::from(requests).sqrt().ceil() as u32,
            Pattern::Skewed => {
                let (mut left, mut share, mut tenants) = (requests, 1.0_f64, 1);
                while (share as u32) < left {
                    left -= share as u32;
                    share *= 1.5;
                    tenants += 1;
                }
                tenants
            }
            Pattern::Identical => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_of_a_batch() {
        let of = |pattern: Pattern| [1, 2, 8, 32, 64].map(|requests| pattern.tenants(requests));
        assert_eq!(of(Pattern::Distinct), [1, 2, 8, 32, 64]);
        assert_eq!(of(Pattern::Uniform), [1, 2, 3, 6, 8]);
        // 1, 1, 2, 3, 5, 7, 11 and 17 requests, and 17 are left of 64; of 32, 2 after 11; of 8, 1 after 3.
        assert_eq!(of(Pattern::Skewed), [1, 2, 5, 8, 9]);
        assert_eq!(of(Pattern::Identical), [1; 5]);
    }
}
