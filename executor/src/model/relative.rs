//! Disentangled attention (DeBERTa, He et al., 2021): tokens attend by how far apart they are, too.
//!
//! As Hugging Face's `DebertaV2` computes it for version 3, with keys and queries of distances by the layer's own
//! projections.

use tch::{Device, Kind, Tensor};

use crate::error::ExecutorError;

/// Which distances are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Distances {
    /// Each way; the near half of them one by one, those beyond by their logarithm.
    pub buckets: u32,
    /// From which on all are one.
    pub longest: u32,
}

/// What a content scores with a distance, content with content, and a distance with content: as many products.
const PRODUCTS: f64 = 3.0;

impl Distances {
    /// Rows of the embedding of distances, both ways.
    pub fn rows(self) -> u32 {
        2 * self.buckets
    }

    /// What divides scores of heads so wide.
    pub fn scale(width: i64) -> f64 {
        1.0 / (PRODUCTS * width as f64).sqrt()
    }

    /// For each of `tokens` that pays attention (row) and each that is paid (column) the row of their distance's
    /// embedding. In single precision, as the reference has it: the ends of buckets hang on it.
    fn of_pairs(self, tokens: i64, device: Device) -> Result<Tensor, ExecutorError> {
        let (buckets, middle) = (i64::from(self.buckets), f64::from(self.buckets / 2));
        let places = Tensor::f_arange(tokens, (Kind::Int64, device))?;
        let distance = places.f_unsqueeze(1)?.f_sub(&places.f_unsqueeze(0)?)?;
        let length = distance.f_abs()?;
        // As libtorch has it in single precision. It is filled in there: a tensor that is copied from the host's memory
        // makes the host wait for the stream.
        let farthest = Tensor::f_from_slice(&[((f64::from(self.longest) - 1.0) / middle) as f32])?.f_log()?;
        let farthest = Tensor::f_full([1], f64::try_from(farthest.f_get(0)?)?, (Kind::Float, device))?;
        let beyond = length
            .f_clamp_min(1)?
            .f_to_kind(Kind::Float)?
            .f_div_scalar(middle)?
            .f_log()?
            .f_div(&farthest)?
            .f_mul_scalar(middle - 1.0)?
            .f_ceil()?
            .f_add_scalar(middle)?
            .f_mul(&distance.f_sign()?)?
            .f_to_kind(Kind::Int64)?;
        let bucket = distance.f_where_self(&length.f_le(middle)?, &beyond)?;
        Ok(bucket.f_add_scalar(buckets)?.f_clamp(0, 2 * buckets - 1)?)
    }
}

/// Keys and queries of distances, of each layer.
#[derive(Debug)]
pub(crate) struct Relative {
    pub distances: Distances,
    /// Each `[1, heads, width, rows]`.
    layers: Vec<[Tensor; 2]>,
}

impl Relative {
    /// Of queries and keys `[1, heads, rows, width]`, which each layer makes of the embedding of distances.
    pub fn new(distances: Distances, layers: Vec<[Tensor; 2]>) -> Result<Relative, ExecutorError> {
        let turned = |of: [Tensor; 2]| -> Result<[Tensor; 2], ExecutorError> {
            let [query, key] = of.map(|of| of.f_transpose(2, 3));
            Ok([query?, key?])
        };
        Ok(Relative {
            distances,
            layers: layers.into_iter().map(turned).collect::<Result<_, _>>()?,
        })
    }

    /// Another handle on the same memory.
    pub fn share(&self) -> Relative {
        let layer = |of: &[Tensor; 2]| [of[0].shallow_clone(), of[1].shallow_clone()];
        Relative {
            distances: self.distances,
            layers: self.layers.iter().map(layer).collect(),
        }
    }

    /// What is added to scaled scores, `[n, heads, l, l]`, of a layer's queries and keys, `[n, heads, l, width]`.
    pub fn scores(&self, layer: usize, query: &Tensor, key: &Tensor) -> Result<Tensor, ExecutorError> {
        let size = query.size();
        let (tokens, width) = (size[2], size[3]);
        let pairs = self.distances.of_pairs(tokens, query.device())?;
        let pairs = pairs.f_expand([size[0], size[1], tokens, tokens], false)?;
        let [of_query, of_key] = &self.layers[layer];
        let by_query = query.f_matmul(of_key)?.f_gather(-1, &pairs, false)?;
        // A key is scored with the same distance: that from who pays to who is paid.
        let by_key = key.f_matmul(of_query)?.f_gather(-1, &pairs.f_transpose(2, 3)?, false)?;
        let both = by_query.f_add(&by_key.f_transpose(2, 3)?)?;
        Ok(both.f_mul_scalar(Distances::scale(width))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where each bucket beyond the near ones begins, by Hugging Face's `make_log_bucket_position(_, 256, 512)`:
    /// transformers 5.23.0, PyTorch 2.11.0.
    const STARTS: [i64; 127] = [
        129, 130, 131, 133, 134, 136, 137, 139, 140, 142, 143, 145, 146, 148, 150, 151, 153, 155, 156, 158, 160, 161,
        163, 165, 167, 169, 170, 172, 174, 176, 178, 180, 182, 184, 186, 188, 190, 192, 194, 196, 198, 201, 203, 205,
        207, 210, 212, 214, 216, 219, 221, 224, 226, 229, 231, 234, 236, 239, 241, 244, 247, 249, 252, 255, 258, 260,
        263, 266, 269, 272, 275, 278, 281, 284, 287, 290, 294, 297, 300, 303, 307, 310, 313, 317, 320, 324, 327, 331,
        335, 338, 342, 346, 349, 353, 357, 361, 365, 369, 373, 377, 381, 385, 390, 394, 398, 403, 407, 411, 416, 420,
        425, 430, 434, 439, 444, 449, 454, 459, 464, 469, 474, 479, 484, 490, 495, 500, 506,
    ];

    /// As published DeBERTas of version 3 tell distances apart.
    #[test]
    fn buckets_are_the_references() {
        let distances = Distances {
            buckets: 256,
            longest: 512,
        };
        let found = distances.of_pairs(512, Device::Cpu).unwrap();
        let found = Vec::<Vec<i64>>::try_from(found).unwrap();
        for (distance, (row, behind)) in (0..).zip(found.iter().zip(&found[0])) {
            let beyond = STARTS.partition_point(|start| *start <= distance) as i64;
            let bucket = distance.min(128) + beyond;
            assert_eq!((row[0], *behind), (256 + bucket, 256 - bucket), "{distance}");
        }
    }
}
