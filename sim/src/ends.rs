//! Where sequences end that make no tokens.

use tenantry_core::spec::StopSpec;
use tenantry_traces::draw::{Draws, Purpose};

/// Draws where each request's end-of-sequence token comes: each token is it with the same chance. It depends on the
/// seed and the ticket alone, so that no policy can move it, nor an eviction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    draws: Draws,
    /// Of tokens, less those whose place in the sequence counts as whole.
    mean_tokens: f64,
}

impl Ends {
    /// Nothing where sequences end by the workload's length.
    pub fn new(stop: StopSpec, seed: u64) -> Option<Ends> {
        match stop {
            StopSpec::EndOfSequence { chance_ppm, .. } if chance_ppm > 0 => Some(Ends {
                draws: Draws::new(seed, Purpose::EndOfSequence),
                mean_tokens: -1.0 / libm::log1p(-f64::from(chance_ppm.min(1_000_000)) / 1e6),
            }),
            _ => None,
        }
    }

    /// Tokens that a request makes, the last included: `longest` at most.
    pub fn output_tokens(&self, ticket: u64, longest: u32) -> u32 {
        // Rounded up, an exponential draw is a geometric one.
        let tokens = libm::ceil(self.draws.about(ticket).exponential() * self.mean_tokens);
        (tokens as u32).clamp(1, longest.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_geometric_and_never_beyond_the_length() {
        let stop = |chance_ppm| StopSpec::EndOfSequence { token: 2, chance_ppm };
        let ends = Ends::new(stop(100_000), 7).unwrap();
        let drawn: Vec<u32> = (0..20_000).map(|ticket| ends.output_tokens(ticket, u32::MAX)).collect();
        let share = |most: u32| drawn.iter().filter(|tokens| **tokens <= most).count() as f64 / 20_000.0;
        // Four standard deviations of a share of 20,000.
        assert!((share(1) - 0.1).abs() < 0.009, "{}", share(1));
        assert!((share(10) - (1.0 - 0.9_f64.powi(10))).abs() < 0.014, "{}", share(10));
        assert!((0..100).all(|ticket| (1..=5).contains(&ends.output_tokens(ticket, 5))));
        assert!(Ends::new(StopSpec::Length, 7).is_none() && Ends::new(stop(0), 7).is_none());
        assert_eq!(Ends::new(stop(1_000_000), 7).unwrap().output_tokens(3, 9), 1);
    }
}
