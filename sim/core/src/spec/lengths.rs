//! Which lengths a model is compiled for, where the card says it (Arlo, section 3.3, "Determine the max_length of each
//! runtime").
//!
//! The paper compiles for every step of the staircase in which latency rises with the length: 64 tokens on its card,
//! eight runtimes up to 512. A card whose measured lengths show no such steps has something in their place, which
//! [`LengthsFound`] tells.

use tenantry_profiles::{Card, DeviceKind};

use super::runtimes::{RuntimeSpec, ShapeKind, StreamSpec};

/// Runtimes where nothing is known of steps: as many as the paper's staircase gives, of which it finds that twice as
/// many are no better (section 5.2.3, Fig. 11).
const WITHOUT_STEPS: u32 = 8;

/// A runtime whose next longer one takes no more than this share longer is not worth having: the paper's "usually less
/// than 5 %" within a step.
const LEVEL: f64 = 0.05;

/// How the lengths of a stream's runtimes were found on a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LengthsFound {
    /// Latency rises in steps of so many tokens.
    Steps(u32),
    /// No steps are known. The model was compiled for certain lengths: those of them that take noticeably less than the
    /// next.
    Compiled,
    /// No steps are known, and any length can be had: equal parts of the longest.
    EqualParts(u32),
}

impl StreamSpec {
    /// The runtimes that the card says there are: up to the longest of those given, in its shape.
    ///
    /// # Panics
    /// When the stream has no runtime.
    pub fn runtimes_on(&self, card: &Card) -> Vec<RuntimeSpec> {
        let longest = *self.runtimes.last().expect("a stream has a longest runtime");
        let shorter = self.lengths_on(card).1.into_iter();
        let shorter = shorter.filter(|length| *length < longest.max_length);
        let shorter = shorter.map(|max_length| RuntimeSpec { max_length, ..longest });
        shorter.chain([longest]).collect()
    }

    /// How they are found.
    ///
    /// # Panics
    /// When the stream has no runtime.
    pub fn lengths_found(&self, card: &Card) -> LengthsFound {
        self.lengths_on(card).0
    }

    /// Ascending lengths, among them all that are shorter than the longest runtime.
    fn lengths_on(&self, card: &Card) -> (LengthsFound, Vec<u32>) {
        let longest = self.runtimes.last().expect("a stream has a longest runtime");
        if let Some(stairs) = card.staircase(&self.model, self.dtype) {
            let step = stairs.step;
            let lengths = (1..longest.max_length.div_ceil(step)).map(|at| at * step);
            return (LengthsFound::Steps(step), lengths.collect());
        }
        if longest.shape == ShapeKind::Static
            && card.device.kind == DeviceKind::Cuda
            && let Ok(compiled) = card.static_model(&self.model, self.dtype)
        {
            let mut lengths: Vec<u32> = compiled.lengths().filter(|length| *length <= longest.max_length).collect();
            let ns = |length: u32| compiled.cost(1, length).map_or(f64::INFINITY, |cost| cost.median_ns as f64);
            let mut next_ns = ns(longest.max_length);
            // From the longest down, each that is faster than the last that was kept.
            lengths.reverse();
            lengths.retain(|&length| {
                let is_faster = ns(length) * (1.0 + LEVEL) < next_ns;
                if is_faster {
                    next_ns = ns(length);
                }
                is_faster
            });
            lengths.reverse();
            return (LengthsFound::Compiled, lengths);
        }
        let mut lengths: Vec<u32> = (1..WITHOUT_STEPS).map(|part| longest.max_length * part / WITHOUT_STEPS).collect();
        lengths.retain(|length| *length > 0);
        lengths.dedup();
        (LengthsFound::EqualParts(WITHOUT_STEPS), lengths)
    }
}

#[cfg(test)]
mod tests {
    use tenantry_profiles::{DType, ModelShape};
    use tenantry_traces::Duration;

    use super::*;
    use crate::spec::RuntimeLengths;

    fn stream(model: &str, dtype: DType, max_length: u32) -> StreamSpec {
        StreamSpec {
            name: model.into(),
            model: ModelShape::builtin(model).expect("it is built-in"),
            dtype,
            classes: 2,
            slo: Duration::from_millis(150),
            runtimes: vec![RuntimeSpec {
                max_length,
                shape: ShapeKind::Static,
            }],
            lengths: RuntimeLengths::OfCard,
            service: Vec::new(),
        }
    }

    fn on(card: &str, stream: &StreamSpec) -> (LengthsFound, Vec<u32>) {
        let card = Card::find(card, &[]).expect("it ships");
        let runtimes = stream.runtimes_on(&card).into_iter();
        (
            stream.lengths_found(&card),
            runtimes.map(|runtime| runtime.max_length).collect(),
        )
    }

    #[test]
    fn the_papers_card_has_eight_runtimes_of_64_tokens() {
        for model in ["bert-base", "bert-large"] {
            let (found, lengths) = on("paper-rtx3090", &stream(model, DType::F32, 512));
            assert_eq!(found, LengthsFound::Steps(64));
            assert_eq!(lengths, [64, 128, 192, 256, 320, 384, 448, 512], "{model}");
        }
        // What is longer than the longest is left out, and the longest is there though no step ends with it.
        assert_eq!(
            on("paper-rtx3090", &stream("bert-base", DType::F32, 150)).1,
            [64, 128, 150]
        );
    }

    #[test]
    fn a_processor_without_steps_has_eight_equal_parts() {
        let (found, lengths) = on("cpu", &stream("bert-mini", DType::F32, 134));
        assert_eq!(found, LengthsFound::EqualParts(8));
        assert_eq!(lengths, [16, 33, 50, 67, 83, 100, 117, 134]);
        assert_eq!(on("cpu", &stream("bert-mini", DType::F32, 3)).1, [1, 2, 3]);
    }

    #[test]
    fn a_card_with_compiled_models_has_those_worth_having() {
        // TensorRT's published lengths.
        let (found, lengths) = on("a100-sxm", &stream("bert-base", DType::F16, 384));
        assert_eq!(found, LengthsFound::Compiled);
        assert_eq!(lengths, [128, 384]);
        // Six lengths, of which some take as long as the next.
        let stream = stream("bert-base", DType::Bf16, 512);
        let (found, lengths) = on("h100-sxm", &stream);
        assert_eq!(found, LengthsFound::Compiled);
        let card = Card::find("h100-sxm", &[]).expect("it ships");
        let compiled = card.static_model(&stream.model, stream.dtype).expect("it has it");
        assert!(
            lengths.len() > 1 && lengths.len() < compiled.lengths().count(),
            "{lengths:?}"
        );
        let ns = |length| compiled.cost(1, length).expect("it is compiled").median_ns as f64;
        assert!(
            lengths.windows(2).all(|pair| ns(pair[1]) > 1.05 * ns(pair[0])),
            "{lengths:?}"
        );
    }
}
