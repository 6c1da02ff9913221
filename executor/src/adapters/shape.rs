//! Sizes of an adapter, and which of its parameters lies where.

use std::ops::Range;

use tch::Tensor;
use tenantry_profiles::ModelShape;

use crate::error::ExecutorError;

/// The shape of a tenant's adapters: one after each layer's attention (HMI, Eq. 1),
/// `A(a) = W_up · relu(W_down · a + b_down) + b_up + a`.
///
/// One layer's parameters are one block: `W_down [hidden, bottleneck]`, `b_down`, `W_up [bottleneck, hidden]`, `b_up`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdapterShape {
    /// The lowest layer with an adapter.
    pub first_layer: u32,
    /// Layers from there on, each with an adapter.
    pub layers: u32,
    /// Width of the backbone's hidden state.
    pub hidden: u32,
    /// Width between the two projections.
    pub bottleneck: u32,
}

impl AdapterShape {
    /// The adapters of a backbone.
    ///
    /// # Errors
    /// A bottleneck of 0.
    pub fn new(model: &ModelShape, bottleneck: u32) -> Result<AdapterShape, ExecutorError> {
        AdapterShape::upper(model, 0, bottleneck)
    }

    /// The adapters of a backbone whose layers below `first_layer` have none.
    ///
    /// # Errors
    /// A bottleneck of 0, or no such layer.
    pub fn upper(model: &ModelShape, first_layer: u32, bottleneck: u32) -> Result<AdapterShape, ExecutorError> {
        if bottleneck == 0 {
            return Err(ExecutorError::input("bottleneck of the adapters", "at least 1", 0));
        }
        if first_layer >= model.layers {
            let must = format!("below {}, the layers of {}", model.layers, model.name);
            return Err(ExecutorError::input("first layer with an adapter", must, first_layer));
        }
        Ok(AdapterShape {
            first_layer,
            layers: model.layers - first_layer,
            hidden: model.hidden,
            bottleneck,
        })
    }

    /// Parameters of one layer's adapter.
    pub fn parameters_per_layer(&self) -> u64 {
        let (hidden, bottleneck) = (u64::from(self.hidden), u64::from(self.bottleneck));
        2 * hidden * bottleneck + bottleneck + hidden
    }

    /// Parameters of a tenant's adapters.
    pub fn parameters(&self) -> u64 {
        u64::from(self.layers) * self.parameters_per_layer()
    }

    /// A layer's place among those with an adapter.
    ///
    /// # Panics
    /// If the layer has none.
    pub(crate) fn index(&self, layer: usize) -> usize {
        let index = layer.checked_sub(self.first_layer as usize);
        index.filter(|&index| index < self.layers as usize).unwrap_or_else(|| {
            let end = self.first_layer + self.layers;
            panic!(
                "layer {layer} has no adapter: those from {} to {} have",
                self.first_layer,
                end - 1
            )
        })
    }

    /// Where the parameters of layers lie in a tenant's block.
    ///
    /// # Panics
    /// If one of them has none.
    pub(crate) fn layer_blocks(&self, layers: Range<usize>) -> Range<usize> {
        let length = self.parameters_per_layer() as usize;
        let first = self.index(layers.start);
        let end = layers.end.checked_sub(1).map_or(first, |last| self.index(last) + 1);
        first * length..end * length
    }

    /// Views of `blocks` `[k, parameters_per_layer]` as `k` adapters; nothing is copied.
    pub(crate) fn views(&self, blocks: &Tensor) -> Result<AdapterViews, ExecutorError> {
        let (hidden, bottleneck) = (i64::from(self.hidden), i64::from(self.bottleneck));
        let matrix = |offset: i64, rows: i64, columns: i64| {
            blocks.f_narrow(1, offset, rows * columns)?.f_view([-1, rows, columns])
        };
        let weights = hidden * bottleneck;
        Ok(AdapterViews {
            down: matrix(0, hidden, bottleneck)?,
            down_bias: matrix(weights, 1, bottleneck)?,
            up: matrix(weights + bottleneck, bottleneck, hidden)?,
            up_bias: matrix(2 * weights + bottleneck, 1, hidden)?,
        })
    }
}

/// `k` adapters of one layer, as views.
pub(crate) struct AdapterViews {
    /// `[k, hidden, bottleneck]`.
    pub down: Tensor,
    /// `[k, 1, bottleneck]`.
    pub down_bias: Tensor,
    /// `[k, bottleneck, hidden]`.
    pub up: Tensor,
    /// `[k, 1, hidden]`.
    pub up_bias: Tensor,
}
