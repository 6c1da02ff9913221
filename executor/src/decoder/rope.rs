//! How fast a decoder's rotary positions turn, and how that is stretched for longer texts than it was first trained on.

use std::f64::consts::TAU;

use serde::Deserialize;

/// Llama 1's and 2's.
const THETA: f64 = 10_000.0;

/// Rotary positions (Su et al., 2021): pair `i` of a head's `width` numbers turns by `theta^(-2i / width)` a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Base of the wavelengths.
    pub theta: f64,
    /// What is made of the frequencies.
    pub scaling: RopeScaling,
}

/// How frequencies are stretched, by the names that Hugging Face has for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// `default`: not at all.
    None,
    /// `linear`: all of them alike (Chen et al., 2023).
    Linear {
        /// How much slower they turn.
        factor: f64,
    },
    /// `llama3`: those that turn `high` times or more over the first context are left, those that turn `low` times or
    /// less are stretched as a whole, and those between in proportion to their turns.
    Llama3 {
        /// How much slower the slow ones turn.
        factor: f64,
        /// Turns over the first context.
        low: f64,
        /// Turns over the first context, more than `low`.
        high: f64,
        /// Tokens of the context that the model was trained on before.
        first_context: f64,
    },
}

impl Default for Rope {
    fn default() -> Rope {
        Rope {
            theta: THETA,
            scaling: RopeScaling::None,
        }
    }
}

impl Rope {
    /// Radians a token by which each pair of a head as wide turns.
    pub(crate) fn frequencies(&self, width: u32) -> Vec<f64> {
        let frequency = |pair: u32| self.theta.powf(-2.0 * f64::from(pair) / f64::from(width));
        (0..width / 2).map(|pair| self.scaling.stretched(frequency(pair))).collect()
    }
}

impl RopeScaling {
    fn stretched(self, frequency: f64) -> f64 {
        match self {
            RopeScaling::None => frequency,
            RopeScaling::Linear { factor } => frequency / factor,
            RopeScaling::Llama3 {
                factor,
                low,
                high,
                first_context,
            } => {
                let turns = first_context * frequency / TAU;
                let left = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                left * frequency + (1.0 - left) * frequency / factor
            }
        }
    }
}

/// What a `config.json` says of it: as `rope_theta` and `rope_scaling` before version 5 of transformers, as
/// `rope_parameters` since.
#[derive(Deserialize)]
pub(super) struct Written {
    rope_theta: Option<f64>,
    partial_rotary_factor: Option<f64>,
    rope_scaling: Option<Parameters>,
    rope_parameters: Option<Parameters>,
}

#[derive(Default, PartialEq, Deserialize)]
struct Parameters {
    rope_type: Option<String>,
    /// Its older name, which may stand beside it.
    #[serde(rename = "type")]
    older_type: Option<String>,
    rope_theta: Option<f64>,
    partial_rotary_factor: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<f64>,
}

/// A field that is wrong, what it must be, and what it is.
pub(super) type Wrong = (String, String, String);

impl Written {
    /// What is computed of it for a model of so many positions. Of two sets of parameters the older one counts, where
    /// it says anything, as in transformers.
    pub fn rope(&self, positions: u32) -> Result<Rope, Wrong> {
        let named = [
            ("rope_scaling", &self.rope_scaling),
            ("rope_parameters", &self.rope_parameters),
        ];
        let nothing = Parameters::default();
        let said = named.into_iter().find_map(|(field, written)| {
            let written = written.as_ref().filter(|written| **written != nothing);
            Some((field, written?))
        });
        let partial = said.and_then(|(_, written)| written.partial_rotary_factor);
        if let Some(share) = partial.or(self.partial_rotary_factor).filter(|share| *share != 1.0) {
            return Err(("partial_rotary_factor".into(), "1".into(), share.to_string()));
        }
        let (theta_field, theta) = match said.and_then(|(of, written)| Some((of, written.rope_theta?))) {
            Some((of, theta)) => (format!("{of}.rope_theta"), theta),
            None => ("rope_theta".to_string(), self.rope_theta.unwrap_or(THETA)),
        };
        Ok(Rope {
            theta: above(theta_field, 0.0, Some(theta))?,
            scaling: said.map_or(Ok(RopeScaling::None), |(field, written)| {
                written.scaling(field, positions.into())
            })?,
        })
    }
}

impl Parameters {
    fn scaling(&self, of: &str, positions: f64) -> Result<RopeScaling, Wrong> {
        let above = |field: &str, least, got| above(format!("{of}.{field}"), least, got);
        match self.rope_type.as_deref().or(self.older_type.as_deref()) {
            // What is dynamic begins behind the model's positions.
            Some("default" | "dynamic") => Ok(RopeScaling::None),
            None if self.factor.is_none() => Ok(RopeScaling::None),
            Some("linear") => Ok(RopeScaling::Linear {
                factor: above("factor", 0.0, self.factor)?,
            }),
            Some("llama3") => {
                let low = above("low_freq_factor", 0.0, self.low_freq_factor)?;
                let context = self.original_max_position_embeddings.or(Some(positions));
                Ok(RopeScaling::Llama3 {
                    factor: above("factor", 0.0, self.factor)?,
                    low,
                    high: above("high_freq_factor", low, self.high_freq_factor)?,
                    first_context: above("original_max_position_embeddings", 0.0, context)?,
                })
            }
            other => {
                let (must, got) = (
                    "default, dynamic, linear or llama3",
                    other.unwrap_or("nothing beside a factor"),
                );
                Err((format!("{of}.rope_type"), must.to_string(), got.to_string()))
            }
        }
    }
}

fn above(field: String, least: f64, got: Option<f64>) -> Result<f64, Wrong> {
    match got {
        Some(number) if number > least => Ok(number),
        got => {
            let got = got.map_or("nothing".to_string(), |number| number.to_string());
            Err((field, format!("above {least}"), got))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Llama 3.1's and 3.3's.
    const LLAMA_3_1: Rope = Rope {
        theta: 500_000.0,
        scaling: RopeScaling::Llama3 {
            factor: 8.0,
            low: 1.0,
            high: 4.0,
            first_context: 8_192.0,
        },
    };

    /// By the published rule, which goes by wavelengths: those below 2,048 tokens are left, those above 8,192 eight
    /// times as long.
    #[test]
    fn llama_3_1s_slow_positions_turn_slower() {
        let plain = Rope {
            scaling: RopeScaling::None,
            ..LLAMA_3_1
        };
        let (plain, scaled) = (plain.frequencies(128), LLAMA_3_1.frequencies(128));
        let mut seen = [0; 3];
        for (plain, scaled) in plain.into_iter().zip(scaled) {
            let wavelength = TAU / plain;
            let (case, must) = match wavelength {
                ..2_048.0 => (0, plain),
                8_192.0.. => (2, plain / 8.0),
                _ => {
                    let smooth = (8_192.0 / wavelength - 1.0) / (4.0 - 1.0);
                    (1, (1.0 - smooth) * plain / 8.0 + smooth * plain)
                }
            };
            seen[case] += 1;
            assert!(
                (scaled / must - 1.0).abs() < 1e-12,
                "{wavelength}: {scaled} and not {must}"
            );
        }
        assert_eq!(seen, [29, 6, 29]);
    }

    #[test]
    fn linear_scaling_stretches_all() {
        let stretched = Rope {
            scaling: RopeScaling::Linear { factor: 4.0 },
            ..Rope::default()
        };
        let (plain, stretched) = (Rope::default().frequencies(64), stretched.frequencies(64));
        assert_eq!(plain.len(), 32);
        assert!(plain.iter().zip(&stretched).all(|(plain, slow)| *slow == plain / 4.0));
    }
}
