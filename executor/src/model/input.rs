//! A padded batch: its token ids, where they are embedded, and the mask that hides the padding.

use tch::{Device, Kind, Tensor};

use crate::device::{Stream, sent_to};
use crate::error::ExecutorError;

/// Numbers at whose multiples a GPU's attention kernels want a mask's rows to begin.
const ALIGNED_NUMBERS: usize = 8;

/// A padded batch on the device. Made by [`Encoder::input`](crate::Encoder::input), or by
/// [`of_lengths`](Self::of_lengths) where the first hidden states come from elsewhere.
#[derive(Debug)]
pub struct Input {
    batch: usize,
    tokens: usize,
    /// Token ids `[n, l]`, 64-bit; padding is id 0. None where nothing is embedded.
    pub(crate) ids: Option<Tensor>,
    /// Which of two texts each token is of, `[n, l]`, 64-bit. None where all are of the first.
    pub(crate) segments: Option<Tensor>,
    /// What is added to attention scores, `[n, 1, 1, l]`: 0 for tokens, minus infinity for padding. None where nothing
    /// is padded.
    pub(crate) mask: Option<Tensor>,
}

impl Input {
    /// Pads `sequences` to `tokens` ids each.
    ///
    /// # Errors
    /// No sequences, an empty one, one longer than `tokens`, or an id that is not below `vocabulary`: on a GPU, such an
    /// id would only be noticed later and take the process with it.
    pub(crate) fn pad(
        sequences: &[impl AsRef<[i64]>],
        tokens: usize,
        vocabulary: i64,
        kind: Kind,
        device: Device,
    ) -> Result<Input, ExecutorError> {
        let ids = Input::padded_ids(sequences, tokens, vocabulary)?;
        let padded = sequences.iter().any(|sequence| sequence.as_ref().len() < tokens);
        let (n, l) = (sequences.len() as i64, tokens as i64);
        let ids = sent_to(device, &Tensor::f_from_slice(&ids)?.f_view([n, l])?)?;
        let lengths: Vec<usize> = sequences.iter().map(|sequence| sequence.as_ref().len()).collect();
        let mask = padded.then(|| mask(&lengths, tokens, kind, device)).transpose()?;
        Ok(Input {
            batch: sequences.len(),
            tokens,
            ids: Some(ids),
            segments: None,
            mask,
        })
    }

    /// The ids of each of `sequences` padded to `tokens`, one after the other: `[n · l]`.
    ///
    /// # Errors
    /// As [`pad`](Self::pad).
    pub(crate) fn padded_ids(
        sequences: &[impl AsRef<[i64]>],
        tokens: usize,
        vocabulary: i64,
    ) -> Result<Vec<i64>, ExecutorError> {
        if sequences.is_empty() {
            return Err(ExecutorError::input("batch", "at least one sequence", "none"));
        }
        let mut ids = vec![0; sequences.len() * tokens];
        for (index, (sequence, row)) in sequences.iter().zip(ids.chunks_mut(tokens.max(1))).enumerate() {
            let sequence = sequence.as_ref();
            if !(1..=tokens).contains(&sequence.len()) {
                let must = format!("from 1 to {tokens} tokens");
                return Err(ExecutorError::input(
                    format!("sequence {index} of the batch"),
                    must,
                    sequence.len(),
                ));
            }
            if let Some(id) = sequence.iter().find(|id| !(0..vocabulary).contains(*id)) {
                let must = format!("token ids from 0 to {}", vocabulary - 1);
                return Err(ExecutorError::input(format!("sequence {index} of the batch"), must, id));
            }
            row[..sequence.len()].copy_from_slice(sequence);
        }
        Ok(ids)
    }

    /// A batch whose ids, `[n, l]`, and mask, `[n, 1, 1, l]`, are on the device already.
    pub(crate) fn of_tensors(ids: Tensor, mask: Tensor) -> Input {
        let size = ids.size();
        Input {
            batch: size[0] as usize,
            tokens: size[1] as usize,
            ids: Some(ids),
            segments: None,
            mask: Some(mask),
        }
    }

    /// The same batch of pairs of texts: for each sequence the segment of each of its tokens, 0 or 1.
    ///
    /// # Errors
    /// Another number of sequences, one that is longer than the padding allows, or a segment that there is not.
    pub fn with_segments(self, segments: &[impl AsRef<[i64]>]) -> Result<Input, ExecutorError> {
        let numbered = Input::pad(
            segments,
            self.tokens,
            2,
            Kind::Float,
            self.ids.as_ref().map_or(Device::Cpu, Tensor::device),
        )?;
        if numbered.batch != self.batch {
            let must = format!("one list for each of {} sequences", self.batch);
            return Err(ExecutorError::input("segments of the batch", must, numbered.batch));
        }
        Ok(Input {
            segments: numbered.ids,
            ..self
        })
    }

    /// Keeps its memory, should it be dropped, until what was issued to a stream has ended: [`Stream::keeps`].
    ///
    /// # Errors
    /// What libtorch says.
    pub(crate) fn kept_by(&self, stream: Stream) -> Result<(), ExecutorError> {
        let all = [&self.ids, &self.segments, &self.mask];
        all.into_iter().flatten().try_for_each(|tensor| stream.keeps(tensor))
    }

    /// A batch of sequences of these lengths, padded to `tokens`, without token ids; `kind` and `device` are the
    /// model's.
    ///
    /// # Errors
    /// No sequences, an empty one, or one longer than `tokens`.
    pub fn of_lengths(lengths: &[usize], tokens: usize, kind: Kind, device: Device) -> Result<Input, ExecutorError> {
        if lengths.is_empty() {
            return Err(ExecutorError::input("batch", "at least one sequence", "none"));
        }
        if let Some(index) = lengths.iter().position(|length| !(1..=tokens).contains(length)) {
            let must = format!("from 1 to {tokens} tokens");
            return Err(ExecutorError::input(
                format!("sequence {index} of the batch"),
                must,
                lengths[index],
            ));
        }
        let padded = lengths.iter().any(|&length| length < tokens);
        Ok(Input {
            batch: lengths.len(),
            tokens,
            ids: None,
            segments: None,
            mask: padded.then(|| mask(lengths, tokens, kind, device)).transpose()?,
        })
    }

    /// Sequences in the batch.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Tokens of each, padding included.
    pub fn tokens(&self) -> usize {
        self.tokens
    }
}

/// On a GPU rows begin where its attention kernels can read them; else every layer's attention would copy the mask so.
fn mask(lengths: &[usize], tokens: usize, kind: Kind, device: Device) -> Result<Tensor, ExecutorError> {
    let row = match device.is_cuda() {
        true => tokens.next_multiple_of(ALIGNED_NUMBERS),
        false => tokens,
    };
    let mut scores = vec![0f32; lengths.len() * row];
    for (&length, row) in lengths.iter().zip(scores.chunks_mut(row)) {
        row[length..].fill(f32::NEG_INFINITY);
    }
    let shape = [lengths.len() as i64, 1, 1, row as i64];
    let mask = sent_to(device, &Tensor::f_from_slice(&scores)?.f_view(shape)?.f_to_kind(kind)?)?;
    Ok(mask.f_narrow(3, 0, tokens as i64)?)
}
