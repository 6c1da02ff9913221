//! What decoders cost: layers, whole steps, LoRA, what cards do together.

use super::is_there;
use crate::beyond::{ChunkAttention, WholePromptAttention};
use crate::card::Card;
use crate::decoder::{Decoder, MixedAttention, PromptsTogether, WholeSteps};
use crate::error::MissingTable;
use crate::family::Family;
use crate::keys::{AdapterImplementation, Added, CollectiveOperation};
use crate::model::{DType, ModelShape};
use crate::surfaces::{Curve, Surface};

impl Card {
    /// What a decoder's steps cost.
    ///
    /// # Errors
    /// The card lacks one of the tables (those of mixed attention, of whole prompts and of prompts together apart,
    /// which not all cards have), or has those of another model of that name.
    pub fn decoder(&self, model: &ModelShape, dtype: DType, tensor_parallel: u32) -> Result<Decoder, MissingTable> {
        let asked = format!("model={} dtype={dtype} tensor_parallel={tensor_parallel}", model.name);
        self.check_shape(Family::DecoderDense, model, &asked)?;
        Ok(Decoder {
            dense: self.grid(&self.tables.decoder_dense, &asked).map(Curve)?,
            prefill: self.grid_by(&self.tables.decoder_prefill, &asked, &ChunkAttention).map(Surface)?,
            whole_prompt: is_there(&self.tables.decoder_whole_prompt, &asked)
                .then(|| self.grid_by(&self.tables.decoder_whole_prompt, &asked, &WholePromptAttention))
                .transpose()?
                .map(Curve),
            decode: self.grid(&self.tables.decoder_decode, &asked).map(Surface)?,
            mixed: self.grid_if_there(&self.tables.decoder_mixed, &asked)?.map(MixedAttention::new),
            together: self
                .grid_if_there(&self.tables.decoder_prompts, &asked)?
                .map(|grid| PromptsTogether(Surface(grid))),
            ends: self.grid(&self.tables.decoder_ends, &asked).map(Surface)?,
        })
    }

    /// Whole steps of a decoder, as a lane makes them; nothing where none were measured.
    ///
    /// # Errors
    /// A table with holes, or one of another model of that name.
    pub fn decoder_step(
        &self,
        model: &ModelShape,
        dtype: DType,
        added: Added,
    ) -> Result<Option<WholeSteps>, MissingTable> {
        let mut rows = self.tables.decoder_step.iter();
        let Some(row) = rows.find(|row| row.model == model.name && row.dtype == dtype && row.added == added) else {
            return Ok(None);
        };
        let asked = format!("model={} dtype={dtype} layers={} added={added}", model.name, row.layers);
        self.check_shape(Family::DecoderStep, model, &asked)?;
        Ok(Some(WholeSteps {
            layers: row.layers,
            grid: self.grid(&self.tables.decoder_step, &asked)?,
        }))
    }

    /// Whole steps on each of several instances at once, by instances and sequences; nothing where that was not
    /// measured.
    ///
    /// # Errors
    /// A table with holes, or one of another model of that name.
    pub fn concurrent_step(
        &self,
        model: &ModelShape,
        dtype: DType,
        added: Added,
    ) -> Result<Option<Surface>, MissingTable> {
        let asked = format!("model={} dtype={dtype} added={added}", model.name);
        if !is_there(&self.tables.concurrent_step, &asked) {
            return Ok(None);
        }
        self.check_shape(Family::ConcurrentStep, model, &asked)?;
        self.grid(&self.tables.concurrent_step, &asked).map(Surface).map(Some)
    }

    /// One decoder layer's LoRA products on each of the cards that share it, by tenants and tokens of the step.
    ///
    /// # Errors
    /// The card has no such table, or one of another model of that name.
    pub fn lora(
        &self,
        model: &ModelShape,
        dtype: DType,
        implementation: AdapterImplementation,
        rank: u32,
        tensor_parallel: u32,
    ) -> Result<Surface, MissingTable> {
        let mut asked = format!(
            "model={} dtype={dtype} implementation={implementation} rank={rank}",
            model.name
        );
        if tensor_parallel > 1 {
            asked += &format!(" tensor_parallel={tensor_parallel}");
        }
        self.check_shape(Family::Lora, model, &asked)?;
        self.grid(&self.tables.lora, &asked).map(Surface)
    }

    /// What cards do together, by cards and bytes.
    ///
    /// # Errors
    /// The card has no such table.
    pub fn collective(&self, operation: CollectiveOperation) -> Result<Surface, MissingTable> {
        self.grid(&self.tables.collective, &format!("operation={operation}")).map(Surface)
    }
}
