//! The encoder against Hugging Face's: same checkpoint, same input, same output after the embedding and after each
//! layer.

use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use tch::Tensor;
use tenantry_executor::{Encoder, read_checkpoint};
use tenantry_profiles::{DType, ModelShape};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

#[test]
fn a_checkpoint_computes_what_the_reference_does() {
    // As `fixtures/make_tiny_bert.py` says.
    let shape = ModelShape {
        name: "fixture".into(),
        layers: 2,
        hidden: 32,
        heads: 4,
        kv_heads: 4,
        intermediate: 64,
        vocabulary: 64,
        positions: 16,
        ..ModelShape::builtin("tiny").unwrap()
    };
    let bytes = std::fs::read(fixture("tiny_bert_expected.safetensors")).unwrap();
    let expected = SafeTensors::deserialize(&bytes).unwrap();
    let whole = |name: &str| -> Vec<i64> {
        let data = expected.tensor(name).unwrap().data();
        data.chunks(8).map(|number| i64::from_le_bytes(number.try_into().unwrap())).collect()
    };
    let (ids, lengths) = (whole("ids"), whole("lengths"));
    let tokens = ids.len() / lengths.len();
    let sequences: Vec<&[i64]> = ids
        .chunks(tokens)
        .zip(&lengths)
        .map(|(sequence, length)| &sequence[..*length as usize])
        .collect();

    let parameters = read_checkpoint(&fixture("tiny_bert.safetensors"), &shape, DType::F32).unwrap();
    let encoder = Encoder::from_parameters(&shape, parameters).unwrap();
    let input = encoder.input(&sequences, tokens).unwrap();
    let close = |name: &str, found: &Tensor| {
        let data = expected.tensor(name).unwrap().data();
        let expected = Tensor::from_data_size(data, &found.size(), tch::Kind::Float);
        // What stands at padded positions means nothing, and nothing reads it.
        for (row, length) in lengths.iter().enumerate() {
            let tokens = |tensor: &Tensor| tensor.get(row as i64).narrow(0, 0, *length);
            let difference = (tokens(found) - tokens(&expected)).abs().max().double_value(&[]);
            assert!(difference < 1e-5, "{name}, sequence {row}: off by {difference}");
        }
    };
    let embedded = encoder.embed(&input).unwrap();
    close("embedded", &embedded);
    let after_layer_0 = encoder.layers(embedded, 0..1, &input, None).unwrap();
    close("after_layer_0", &after_layer_0);
    let after_layer_1 = encoder.layers(after_layer_0, 1..2, &input, None).unwrap();
    close("after_layer_1", &after_layer_1);
}
