//! From logits to the next tokens.

use tch::{Kind, Tensor};
use tenantry_traces::draw::{Draws, Purpose};

use crate::device::sent_to;
use crate::error::ExecutorError;
use crate::likeliest::{NOT_FINITE, likeliest};

/// How a sequence's next token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sampling {
    /// The most likely.
    Greedy,
    /// Drawn, each with the probability that its logit divided by the temperature gives it. The draw depends on what is
    /// here and on nothing else: a sequence recomputed elsewhere goes on with the same tokens.
    Temperature {
        /// Above 0; the larger, the more even.
        temperature: f32,
        /// Of the run.
        seed: u64,
        /// Which request.
        ticket: u64,
        /// Position of the token that is chosen.
        position: u32,
    },
}

/// The next token of each row of `logits`, `[n, vocabulary]`, on the host.
///
/// A row whose largest logit is not a finite number has none: its token is -1.
///
/// # Errors
/// Another number of samplings than rows, or a temperature that is not above 0.
pub fn sample(logits: &Tensor, samplings: &[Sampling]) -> Result<Vec<i64>, ExecutorError> {
    if logits.size()[0] != samplings.len() as i64 {
        let must = format!("one for each of {} rows", logits.size()[0]);
        return Err(ExecutorError::input("samplings", must, samplings.len()));
    }
    let mut drawn = Drawn::default();
    for (row, sampling) in samplings.iter().enumerate() {
        if let &Sampling::Temperature {
            temperature,
            seed,
            ticket,
            position,
        } = sampling
        {
            if !(temperature > 0.0 && temperature.is_finite()) {
                return Err(ExecutorError::input("temperature", "above 0", temperature));
            }
            drawn.rows.push(row as i64);
            drawn.temperatures.push(temperature);
            let mut draws = Draws::new(seed, Purpose::Tokens).part(position.into()).about(ticket);
            drawn.uniforms.push(draws.unit());
        }
    }
    tch::no_grad(|| {
        let mut tokens = likeliest(logits)?;
        if !drawn.rows.is_empty() {
            let device = logits.device();
            let rows = sent_to(device, &Tensor::f_from_slice(&drawn.rows)?)?;
            let chosen = drawn.choose(&logits.f_index_select(0, &rows)?)?;
            let broken = tokens.f_index_select(0, &rows)?.f_eq(NOT_FINITE)?;
            let chosen = chosen.f_masked_fill(&broken, NOT_FINITE)?;
            let _ = tokens.f_index_copy_(0, &rows, &chosen)?;
        }
        Ok(Vec::<i64>::try_from(&tokens)?)
    })
}

/// The rows that are drawn.
#[derive(Default)]
struct Drawn {
    rows: Vec<i64>,
    temperatures: Vec<f32>,
    uniforms: Vec<f64>,
}

impl Drawn {
    /// By inversion of the cumulative probabilities, in double precision: a vocabulary's many small ones add up exactly
    /// enough.
    fn choose(&self, logits: &Tensor) -> Result<Tensor, ExecutorError> {
        let column = |tensor: Tensor| Ok::<_, ExecutorError>(sent_to(logits.device(), &tensor)?.f_unsqueeze(1)?);
        let temperatures = column(Tensor::f_from_slice(&self.temperatures)?)?;
        let uniforms = column(Tensor::f_from_slice(&self.uniforms)?)?;
        let scaled = logits.f_to_kind(Kind::Float)?.f_div(&temperatures)?;
        let cumulative = scaled.f_softmax(1, Kind::Double)?.f_cumsum(1, Kind::Double)?;
        let last = logits.size()[1] - 1;
        let total = cumulative.f_narrow(1, last, 1)?;
        // The first token whose cumulative probability exceeds the draw; so none of probability 0.
        let chosen = uniforms.f_mul(&total)?.f_searchsorted::<Tensor>(&cumulative, false, true, "right", None)?;
        Ok(chosen.f_clamp_max(last)?.f_squeeze_dim(1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(temperature: f32, ticket: u64, position: u32) -> Sampling {
        Sampling::Temperature {
            temperature,
            seed: 5,
            ticket,
            position,
        }
    }

    #[test]
    fn greedy_takes_the_most_likely() {
        let logits = Tensor::from_slice2(&[[0.0f32, 3.0, 1.0], [9.0, -1.0, 8.0]]);
        assert_eq!(sample(&logits, &[Sampling::Greedy; 2]).unwrap(), [1, 0]);
    }

    #[test]
    fn draws_follow_the_probabilities_and_never_take_the_impossible() {
        // Probabilities 0.5, 0, 0.375, 0.125 at temperature 1.
        let row = [4f32.ln(), f32::NEG_INFINITY, 3f32.ln(), 0.0];
        let logits = Tensor::from_slice2(&vec![row; 8000]);
        let samplings: Vec<Sampling> = (0..8000).map(|ticket| drawn(1.0, ticket, 7)).collect();
        let tokens = sample(&logits, &samplings).unwrap();
        let share = |id| tokens.iter().filter(|token| **token == id).count() as f64 / 8000.0;
        assert_eq!(share(1), 0.0);
        for (id, probability) in [(0, 0.5), (2, 0.375), (3, 0.125)] {
            // Four standard deviations of a share of 8,000.
            assert!((share(id) - probability).abs() < 0.023, "token {id}: {}", share(id));
        }
        assert_eq!(sample(&logits, &samplings).unwrap(), tokens, "the same again");
    }

    #[test]
    fn a_row_is_drawn_alike_in_every_batch() {
        let logits = Tensor::from_slice2(&[[0.1f32, 0.2, 0.3, 0.4], [0.0, 0.0, 0.0, 0.0], [1.0, 2.0, 1.0, 2.0]]);
        let how = [drawn(0.7, 1, 3), Sampling::Greedy, drawn(2.0, 2, 9)];
        let together = sample(&logits, &how).unwrap();
        for row in 0..3 {
            let alone = sample(&logits.narrow(0, row, 1), &how[row as usize..=row as usize]).unwrap();
            assert_eq!(alone[0], together[row as usize]);
        }
    }

    #[test]
    fn impossible_temperatures_are_refused() {
        let logits = Tensor::from_slice2(&[[0.0f32, 1.0]]);
        let error = sample(&logits, &[drawn(0.0, 0, 0)]).unwrap_err().to_string();
        assert_eq!(error, "temperature: must be above 0, got 0");
        let error = sample(&logits, &[]).unwrap_err().to_string();
        assert_eq!(error, "samplings: must be one for each of 1 rows, got 0");
    }
}
