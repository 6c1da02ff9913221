//! A model compiled for one shape, as Arlo's static runtimes are (section 3.3): on a GPU a captured graph.

use tch::{Device, Kind, Tensor};

use super::{Encoder, Heads, Input};
use crate::device::{Graph, copy_without_waiting, host_memory_for, synchronize};
use crate::error::ExecutorError;
use crate::likeliest::likeliest;

/// Passes before the capture: libtorch chooses its kernels and makes their workspaces at the first.
const WARM_UPS: usize = 3;

/// The whole model and its heads for batches of one shape, from token ids to the likeliest classes. Shorter sequences
/// are padded: they take what the longest takes.
///
/// All that differs from batch to batch is in one block of numbers, which is copied to the device before each pass.
/// Weights are read where they lie, so that others may be loaded over them.
pub(crate) struct CompiledModel {
    pass: Pass,
    /// As `pass.numbers`, in host memory that the device copies from.
    staged: Tensor,
    left: Left,
    /// Nothing on a CPU, where the pass is computed each time, and where nothing was captured.
    graph: Option<Graph>,
    uncaptured: Option<ExecutorError>,
}

/// What the pass leaves on the device.
struct Left {
    /// `[n, classes]`, or `[n, l, classes]` where heads label tokens.
    logits: Tensor,
    /// The likeliest: `[n]` or `[n, l]`.
    classes: Tensor,
}

/// What is captured.
struct Pass {
    encoder: Encoder,
    heads: Heads,
    /// Whether heads label tokens.
    tagging: bool,
    batch: usize,
    tokens: usize,
    /// `[n · l + n + n]`, 64-bit: token ids, lengths, tenants.
    numbers: Tensor,
}

impl CompiledModel {
    /// Compiles a model for `batch` sequences of up to `tokens` tokens, on the current stream of the model's device,
    /// which must not be its default one.
    ///
    /// # Errors
    /// More tokens than the model has positions, no batch, or no memory. Where operations cannot be captured, the pass
    /// is computed each time, and [`uncaptured`](Self::uncaptured) says so.
    pub fn new(
        encoder: &Encoder,
        heads: &Heads,
        tagging: bool,
        batch: usize,
        tokens: usize,
    ) -> Result<CompiledModel, ExecutorError> {
        let device = encoder.device();
        // Refuses what the model cannot take.
        encoder.input(&vec![[0_i64]; batch], tokens)?;
        let numbers = (batch * tokens + 2 * batch) as i64;
        let pass = Pass {
            encoder: encoder.share(),
            heads: heads.share(),
            tagging,
            batch,
            tokens,
            // Sequences of one token, of the first tenant.
            numbers: Tensor::f_zeros([numbers], (Kind::Int64, device))?,
        };
        let _ = pass.lengths()?.f_fill_(1)?;
        for _ in 0..WARM_UPS {
            pass.run()?;
        }
        synchronize(device)?;
        let captured = match device {
            Device::Cuda(_) => Some(Graph::capture(device, || pass.run())),
            _ => None,
        };
        let (graph, left, uncaptured) = match captured {
            Some(Ok((graph, left))) => (Some(graph), left, None),
            Some(Err(error)) if error.is_out_of_memory() => return Err(error),
            Some(Err(error)) => (None, pass.run()?, Some(ExecutorError::Uncaptured(Box::new(error)))),
            None => (None, pass.run()?, None),
        };
        let staged = Tensor::f_zeros([numbers], (Kind::Int64, Device::Cpu))?;
        Ok(CompiledModel {
            staged: host_memory_for(device, staged)?,
            pass,
            left,
            graph,
            uncaptured,
        })
    }

    /// The likeliest class of each sequence, `[n]`, or the likeliest label of each token, `[n · l]`, padding included.
    /// Waits for the device.
    ///
    /// # Errors
    /// Another number of sequences or tenants than it was compiled for, an empty sequence, one that is too long, an id
    /// outside the vocabulary, or what the device says.
    ///
    /// # Panics
    /// If there is no such tenant.
    pub fn run(&mut self, sequences: &[impl AsRef<[i64]>], tenants: &[u32]) -> Result<Vec<i64>, ExecutorError> {
        let Pass { batch, tokens, .. } = self.pass;
        if [sequences.len(), tenants.len()] != [batch; 2] {
            let must = format!("{batch} sequences with a tenant each, as it was compiled for");
            return Err(ExecutorError::input("batch", must, sequences.len()));
        }
        let known = self.pass.heads.tenants();
        assert!(
            tenants.iter().all(|&tenant| tenant < known),
            "a tenant beyond the {known} that have heads"
        );
        let vocabulary = self.pass.encoder.shape().vocabulary.into();
        let mut numbers = Input::padded_ids(sequences, tokens, vocabulary)?;
        numbers.extend(sequences.iter().map(|sequence| sequence.as_ref().len() as i64));
        numbers.extend(tenants.iter().map(|&tenant| i64::from(tenant)));
        tch::no_grad(|| self.staged.f_copy_(&Tensor::f_from_slice(&numbers)?))?;
        copy_without_waiting(&mut self.pass.numbers, &self.staged)?;
        match &self.graph {
            Some(graph) => graph.replay()?,
            None => self.left = self.pass.run()?,
        }
        // Reading them waits for the device, and so for the copy of what is staged.
        Ok(Vec::try_from(&self.left.classes.f_view([-1])?)?)
    }

    /// The same, if it is a graph where the device has such.
    ///
    /// # Errors
    /// Why it was not captured.
    pub fn captured(mut self) -> Result<CompiledModel, ExecutorError> {
        match self.uncaptured.take() {
            Some(why) => Err(why),
            None => Ok(self),
        }
    }

    /// Why there is no graph on a GPU, where there is none.
    pub fn uncaptured(&self) -> Option<&ExecutorError> {
        self.uncaptured.as_ref()
    }

    /// What its answer to the last batch was the likeliest of: `[n, classes]`, or `[n, l, classes]` where heads label
    /// tokens.
    pub fn logits(&self) -> &Tensor {
        &self.left.logits
    }
}

impl Pass {
    /// The sequences' lengths, `[n]`: a part of `numbers`.
    fn lengths(&self) -> Result<Tensor, ExecutorError> {
        let n = self.batch as i64;
        Ok(self.numbers.f_narrow(0, n * self.tokens as i64, n)?)
    }

    /// Issues all of it, from `numbers` to classes, and neither copies from the host nor waits for the device.
    fn run(&self) -> Result<Left, ExecutorError> {
        tch::no_grad(|| {
            let (n, l) = (self.batch as i64, self.tokens as i64);
            let ids = self.numbers.f_narrow(0, 0, n * l)?.f_view([n, l])?;
            let tenants = self.numbers.f_narrow(0, n * l + n, n)?;
            let places = Tensor::f_arange(l, (Kind::Int64, self.numbers.device()))?;
            let padding = places.f_unsqueeze(0)?.f_ge_tensor(&self.lengths()?.f_unsqueeze(1)?)?;
            let mask = Tensor::f_zeros([n, l], (self.encoder.kind(), self.numbers.device()))?;
            let mask = mask.f_masked_fill(&padding, f64::NEG_INFINITY)?.f_view([n, 1, 1, l])?;
            let input = Input::of_tensors(ids, mask);
            let hidden = self.encoder.embed(&input)?;
            let layers = 0..self.encoder.shape().layers as usize;
            let hidden = self.encoder.layers(hidden, layers, &input, None)?;
            let logits = match self.tagging {
                true => self.heads.of(&hidden, &tenants)?,
                false => self.heads.of(&hidden.f_narrow(1, 0, 1)?, &tenants)?.f_squeeze_dim(1)?,
            };
            let classes = likeliest(&logits)?;
            Ok(Left { logits, classes })
        })
    }
}

#[cfg(test)]
mod tests {
    use tenantry_profiles::{DType, ModelShape};

    use super::*;
    use crate::likeliest::NOT_FINITE;
    use crate::whole_models::WholeModel;

    /// What was compiled answers as the model does, batch after batch, whatever stood in the numbers before.
    #[test]
    fn a_compiled_model_answers_as_the_model_does() {
        let shape = ModelShape::builtin("tiny").unwrap();
        let encoder = Encoder::random(&shape, 3, DType::F32, Device::Cpu).unwrap();
        let heads = Heads::random(&shape, 5, 7, 3, DType::F32, Device::Cpu).unwrap();
        let batches: [(Vec<Vec<i64>>, [u32; 2]); 3] = [
            (vec![(0..20).collect(), (100..103).collect()], [4, 0]),
            (vec![vec![7], (40..60).collect()], [1, 1]),
            (vec![vec![9, 11], vec![511]], [0, 3]),
        ];
        let mut differ = std::collections::BTreeSet::new();
        for tagging in [false, true] {
            let mut compiled = CompiledModel::new(&encoder, &heads, tagging, 2, 20).unwrap();
            for (sequences, tenants) in &batches {
                let input = encoder.input(sequences, 20).unwrap();
                let hidden = encoder.embed(&input).unwrap();
                let hidden = encoder.layers(hidden, 0..2, &input, None).unwrap();
                let logits = match tagging {
                    true => heads.tag(&hidden, tenants).unwrap(),
                    false => heads.forward(&hidden, tenants).unwrap(),
                };
                let expected = Vec::<i64>::try_from(logits.argmax(-1, false).view([-1])).unwrap();
                assert_eq!(compiled.run(sequences, tenants).unwrap(), expected);
                let difference = (compiled.logits() - logits).abs().max().double_value(&[]);
                assert!(difference < 1e-5, "{difference}");
                differ.extend(expected);
            }
        }
        assert!(differ.len() > 2, "answers that tell batches apart: {differ:?}");
    }

    /// Who has no finite logits has no class and no labels, and the others of the batch have theirs.
    #[test]
    fn a_head_of_no_numbers_finds_nothing() {
        let shape = ModelShape::builtin("tiny").unwrap();
        let encoder = Encoder::random(&shape, 3, DType::F32, Device::Cpu).unwrap();
        let heads = Heads::random(&shape, 2, 7, 3, DType::F32, Device::Cpu).unwrap();
        let texts: [Vec<i64>; 2] = [vec![7, 8], vec![9, 10]];
        let all = |tagging| {
            let mut compiled = CompiledModel::new(&encoder, &heads, tagging, 2, 2).unwrap();
            compiled.run(&texts, &[0, 1]).unwrap()
        };
        let sound = [false, true].map(all);
        let broken = Tensor::full([7, i64::from(shape.hidden)], f64::NAN, (Kind::Float, Device::Cpu));
        heads.put(1, &broken, &broken.select(1, 0)).unwrap();
        for (tagging, sound) in [false, true].into_iter().zip(sound) {
            let found = all(tagging);
            let own = found.len() / 2;
            assert_eq!(found[..own], sound[..own], "the other tenant's");
            assert!(found[own..].iter().all(|&class| class == NOT_FINITE), "{found:?}");
            assert!(sound[own..].iter().all(|&class| class != NOT_FINITE), "{sound:?}");
        }
    }

    /// Weights are read where they lie: what is loaded over them answers from then on.
    #[test]
    fn weights_are_read_where_they_lie() {
        let shape = ModelShape::builtin("tiny").unwrap();
        let [first, second] = [1, 2].map(|seed| Encoder::random(&shape, seed, DType::F32, Device::Cpu).unwrap());
        let heads = Heads::random(&shape, 1, 1000, 3, DType::F32, Device::Cpu).unwrap();
        let text = [(0..16).collect::<Vec<i64>>()];
        let of = |encoder: &Encoder| {
            let mut compiled = CompiledModel::new(encoder, &heads, false, 1, 16).unwrap();
            compiled.run(&text, &[0]).unwrap()
        };
        let alone = [of(&first), of(&second)];
        assert_ne!(alone[0], alone[1]);
        let mut compiled = CompiledModel::new(&first, &heads, false, 1, 16).unwrap();
        assert_eq!(compiled.run(&text, &[0]).unwrap(), alone[0]);
        first.load(second.parameters()).unwrap();
        assert_eq!(compiled.run(&text, &[0]).unwrap(), alone[1]);
    }

    #[test]
    fn other_shapes_are_refused() {
        let shape = ModelShape::builtin("tiny").unwrap();
        let encoder = Encoder::random(&shape, 3, DType::F32, Device::Cpu).unwrap();
        let heads = Heads::random(&shape, 1, 2, 3, DType::F32, Device::Cpu).unwrap();
        let compile = |batch, tokens| CompiledModel::new(&encoder, &heads, false, batch, tokens);
        assert!(compile(1, 129).is_err_and(|error| error.to_string().contains("128 tokens")));
        assert!(compile(0, 8).is_err());
        let mut compiled = compile(2, 8).unwrap();
        let mut refused = |sequences: &[Vec<i64>]| compiled.run(sequences, &[0; 2]).unwrap_err().to_string();
        assert!(refused(&[vec![1]]).contains("2 sequences with a tenant each"));
        assert!(refused(&[vec![1; 9], vec![1]]).contains("from 1 to 8 tokens"));
        assert!(refused(&[vec![], vec![1]]).contains("from 1 to 8 tokens"));
        assert!(refused(&[vec![1], vec![-1]]).contains("token ids from 0"));
    }
}
