//! What encoders cost: layers, ends, adapters, tasks' operators, whole models.

use super::is_there;
use crate::beyond::EncoderLayers;
use crate::card::Card;
use crate::error::MissingTable;
use crate::family::Family;
use crate::grid::Grid;
use crate::keys::{AdapterImplementation, PetKind};
use crate::model::{DType, ModelShape};
use crate::slice::slice;
use crate::static_model::StaticModel;
use crate::surfaces::{AdapterSurface, Curve, Surface, TaggingSurface};

impl Card {
    /// One encoder layer's forward pass by batch and padded tokens.
    ///
    /// # Errors
    /// The card has no such table, or one of another model of that name.
    pub fn encoder_layer(&self, model: &ModelShape, dtype: DType) -> Result<Surface, MissingTable> {
        let asked = format!("model={} dtype={dtype}", model.name);
        self.check_shape(Family::EncoderLayer, model, &asked)?;
        self.grid_by(&self.tables.encoder_layer, &asked, &EncoderLayers::<0>(model)).map(Surface)
    }

    /// The same for a layer that also sums up the attention which each token receives; nothing where that was not
    /// measured.
    ///
    /// # Errors
    /// A table with holes, or one of another model of that name.
    pub fn attended_layer(&self, model: &ModelShape, dtype: DType) -> Result<Option<Surface>, MissingTable> {
        let asked = format!("model={} dtype={dtype}", model.name);
        if !is_there(&self.tables.attended_layer, &asked) {
            return Ok(None);
        }
        self.check_shape(Family::AttendedLayer, model, &asked)?;
        self.grid_by(&self.tables.attended_layer, &asked, &EncoderLayers::<0>(model))
            .map(|grid| Some(Surface(grid)))
    }

    /// A trained classifier's whole pass over texts, by batch and padded tokens; `attended` where it also sums up the
    /// attention that tokens receive. Nothing where that was not measured.
    ///
    /// # Errors
    /// A table with holes, or one of another model of that name.
    pub fn text_pass(&self, model: &ModelShape, dtype: DType, attended: bool) -> Result<Option<Surface>, MissingTable> {
        let asked = format!("model={} dtype={dtype} attended={attended}", model.name);
        if !is_there(&self.tables.text_pass, &asked) {
            return Ok(None);
        }
        self.check_shape(Family::TextPass, model, &asked)?;
        self.grid_by(&self.tables.text_pass, &asked, &EncoderLayers::<0>(model))
            .map(|grid| Some(Surface(grid)))
    }

    /// What a lane makes of such a pass, by batch; `pruned` where each of the texts goes on without some of its words.
    /// Nothing where that was not measured.
    ///
    /// # Errors
    /// A table with holes, or one of another model of that name.
    pub fn text_look(&self, model: &ModelShape, pruned: bool) -> Result<Option<Curve>, MissingTable> {
        let asked = format!("model={} pruned={pruned}", model.name);
        if !is_there(&self.tables.text_look, &asked) {
            return Ok(None);
        }
        self.check_shape(Family::TextLook, model, &asked)?;
        self.grid(&self.tables.text_look, &asked).map(Curve).map(Some)
    }

    /// From token ids to the first hidden state, by batch and padded tokens.
    ///
    /// # Errors
    /// The card has no such table, or one of another model of that name.
    pub fn embedding(&self, model: &ModelShape, dtype: DType) -> Result<Surface, MissingTable> {
        let asked = format!("model={} dtype={dtype}", model.name);
        self.check_shape(Family::Embedding, model, &asked)?;
        self.grid(&self.tables.embedding, &asked).map(Surface)
    }

    /// Classification heads gathered per request, by sequences in the batch.
    ///
    /// # Errors
    /// The card has no such table, or one of another model of that name.
    pub fn head(&self, model: &ModelShape, dtype: DType, classes: u32) -> Result<Curve, MissingTable> {
        let asked = format!("model={} dtype={dtype}", model.name);
        self.check_shape(Family::Head, model, &asked)?;
        let by_batch_and_classes: Grid<2> = self.grid(&self.tables.head, &asked)?;
        Ok(Curve(by_batch_and_classes.along_first(classes.into())))
    }

    /// Tagging heads gathered per request, by batch, padded tokens and labels of each head.
    ///
    /// # Errors
    /// The card has no such table, or one of another model of that name.
    pub fn tagging_head(&self, model: &ModelShape, dtype: DType) -> Result<TaggingSurface, MissingTable> {
        let asked = format!("model={} dtype={dtype}", model.name);
        self.check_shape(Family::TaggingHead, model, &asked)?;
        self.grid(&self.tables.tagging_head, &asked).map(TaggingSurface)
    }

    /// One layer's adapters by tenants, batch and padded tokens.
    ///
    /// # Errors
    /// The card has no such table, or one of another model of that name.
    pub fn adapter(
        &self,
        model: &ModelShape,
        dtype: DType,
        implementation: AdapterImplementation,
        bottleneck: u32,
    ) -> Result<AdapterSurface, MissingTable> {
        let asked = format!(
            "model={} dtype={dtype} implementation={implementation} bottleneck={bottleneck}",
            model.name
        );
        self.check_shape(Family::Adapter, model, &asked)?;
        self.grid(&self.tables.adapter, &asked).map(AdapterSurface)
    }

    /// One encoder layer on each of several instances at once, by instances, batch and padded tokens.
    ///
    /// # Errors
    /// The card has no such table, or one of another model of that name.
    pub fn concurrent_layer(&self, model: &ModelShape, dtype: DType) -> Result<AdapterSurface, MissingTable> {
        let asked = format!("model={} dtype={dtype}", model.name);
        self.check_shape(Family::ConcurrentLayer, model, &asked)?;
        self.grid_by(&self.tables.concurrent_layer, &asked, &EncoderLayers::<1>(model))
            .map(AdapterSurface)
    }

    /// A whole compiled model on each of several instances at once, by instances, batch and the tokens that it was
    /// compiled for; nothing where that was not measured.
    ///
    /// # Errors
    /// A table with holes, or one of another model of that name.
    pub fn concurrent_model(&self, model: &ModelShape, dtype: DType) -> Result<Option<AdapterSurface>, MissingTable> {
        let asked = format!("model={} dtype={dtype}", model.name);
        let rows = &self.tables.concurrent_model;
        if !is_there(rows, &asked) {
            return Ok(None);
        }
        self.check_shape(Family::ConcurrentModel, model, &asked)?;
        self.grid(rows, &asked).map(AdapterSurface).map(Some)
    }

    /// One layer's operators of tasks on several streams at once, by streams, sequences of a mini-batch and padded
    /// tokens.
    ///
    /// # Errors
    /// The card has no such table, or one of another model of that name.
    pub fn concurrent_pet(&self, model: &ModelShape, dtype: DType) -> Result<AdapterSurface, MissingTable> {
        let asked = format!("model={} dtype={dtype}", model.name);
        self.check_shape(Family::ConcurrentPet, model, &asked)?;
        self.grid(&self.tables.concurrent_pet, &asked).map(AdapterSurface)
    }

    /// One task's own operators of a layer, by batch and padded tokens.
    ///
    /// # Errors
    /// The card has no such table, or one of another model of that name.
    pub fn pet(&self, model: &ModelShape, dtype: DType, kind: PetKind) -> Result<Surface, MissingTable> {
        let asked = format!("model={} dtype={dtype} kind={kind}", model.name);
        self.check_shape(Family::Pet, model, &asked)?;
        self.grid(&self.tables.pet, &asked).map(Surface)
    }

    /// A whole encoder compiled for a few lengths, by batch and tokens.
    ///
    /// # Errors
    /// The card has no such table, or one of another model of that name.
    pub fn static_model(&self, model: &ModelShape, dtype: DType) -> Result<StaticModel, MissingTable> {
        let asked = format!("model={} dtype={dtype}", model.name);
        self.check_shape(Family::StaticModel, model, &asked)?;
        let grid = self.grid(&self.tables.static_model, &asked)?;
        let slice = slice(&self.tables.static_model, &asked).expect("its grid was built");
        Ok(StaticModel::new(&slice, &grid))
    }
}
