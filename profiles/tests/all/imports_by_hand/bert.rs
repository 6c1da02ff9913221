//! Whole models of BERT: TensorRT's, pairs of engines, FasterTransformer's.

use tenantry_profiles::{Card, DType, Family, ImportSource, ModelShape};

use super::{has_note, import, median_us};

/// Rows of TensorRT's README, as in the public table.
const TENSORRT: &str = "gpu,model,precision,seq_len,batch_size,avg_ms,p95_ms,p99_ms,readme_commit,readme_date\n\
    T4 16GB,BERT base,FP16,128,1,1.9,2.0,2.1,abc,2026-01-01\n\
    T4 16GB,BERT base,FP16,384,1,4.8,4.9,5.0,abc,2026-01-01\n\
    T4 16GB,BERT base,FP16,128,2,3.1,3.2,3.3,abc,2026-01-01\n\
    T4 16GB,BERT base,INT8,128,1,1.1,1.2,1.3,abc,2026-01-01\n\
    A30,BERT base,FP16,128,1,0.8,0.9,1.0,abc,2026-01-01\n";

#[test]
fn tensorrts_engines_are_whole_models_and_shares_of_them_layers() {
    let card = import(ImportSource::TensorrtBert, "t4", &[], &[TENSORRT]).unwrap();
    // A batch that was not measured at every length is left out, and so are other cards and formats.
    let whole = &card.tables.static_model;
    let at: Vec<_> = whole.iter().map(|row| (row.model.as_str(), row.dtype, row.batch, row.tokens)).collect();
    assert_eq!(
        at,
        [("bert-base", DType::F16, 1, 128), ("bert-base", DType::F16, 1, 384)]
    );
    assert_eq!(median_us(whole.iter().map(|row| row.stats)), [1900.0, 4800.0]);
    assert_eq!((whole[0].stats.p95_us, whole[0].stats.p99_us), (2000.0, 2100.0));
    composes("t4", DType::F16, &card, &[(1, 128, 1900.0), (1, 384, 4800.0)]);
    has_note(&card, "README of 2026-01-01 @abc");
    has_note(
        &card,
        "bert-base: 1 of 3 points are left out, of batches that were not measured at every length",
    );
    let refused = import(ImportSource::TensorrtBert, "l4", &[], &[TENSORRT]).unwrap_err();
    assert_eq!(refused, "0.csv: gpu: must be L4 in some row, got no such row");
    let refused = import(
        ImportSource::TensorrtBert,
        "t4",
        &[],
        &[&TENSORRT.replace("1.9", "1,9")],
    )
    .unwrap_err();
    assert!(
        refused.starts_with("0.csv:2: line: must be comma-separated values"),
        "{refused}"
    );
}

#[test]
fn times_that_cannot_be_are_refused() {
    let refused = |from: &str, to: &str| {
        let text = TENSORRT.replace(from, to);
        assert_ne!(text, TENSORRT);
        import(ImportSource::TensorrtBert, "t4", &[], &[&text]).unwrap_err()
    };
    assert_eq!(
        refused("1.9,2.0,2.1", "1.9,2.0,0.21"),
        "0.csv:2: p99_ms: must be at least p95_ms, 2, got \"0.21\""
    );
    // In seconds, beside milliseconds.
    assert_eq!(
        refused("1.9,2.0,2.1", "0.0019,2.0,2.1"),
        "0.csv:2: avg_ms: must be from 0.1 to 2.1, by p95_ms and p99_ms, got \"0.0019\""
    );
    assert_eq!(
        refused("avg_ms,p95_ms", "p95_ms,p95_ms"),
        "0.csv:1: header: must be each column once, got \"p95_ms\" again"
    );
    // 22.3 GFLOP at 65 TFLOP/s are 344 µs, summed up in half precision half of that.
    let fast = refused("1.9,2.0,2.1", "0.10,0.11,0.12");
    assert!(
        fast.starts_with("--gpu: must be a GPU that takes ")
            && fast.contains("for bert-base in f16, batch 1, 128 tokens"),
        "{fast}"
    );
}

/// BERT-base, of ends that are derived and layers, takes what was measured of the whole, in microseconds by batch and
/// length.
fn composes(gpu: &str, dtype: DType, card: &Card, whole_us: &[(u32, u32, f64)]) {
    let mut card = card.clone();
    card.fill_from_datasheet(gpu).unwrap();
    let model = ModelShape::builtin("bert-base").unwrap();
    let [embedding, layer] = [card.embedding(&model, dtype), card.encoder_layer(&model, dtype)].map(Result::unwrap);
    let head = card.head(&model, dtype, 2).unwrap();
    for (batch, tokens, whole_us) in whole_us {
        let layer_ns = layer.cost(*batch, *tokens).median_ns;
        let ends_ns = embedding.cost(*batch, *tokens).median_ns + head.cost(u64::from(*batch)).median_ns;
        assert!(ends_ns > 0);
        let composed_us = (12 * layer_ns + ends_ns) as f64 / 1e3;
        assert!(
            (composed_us / whole_us - 1.0).abs() < 1e-3,
            "{batch} × {tokens}: {composed_us}, of {whole_us}"
        );
    }
}

/// Ends are derived with a launch for each kernel, which a small engine has in one graph.
#[test]
fn layers_of_a_small_engine_are_half_of_it_at_the_least() {
    let pairs = "model,precision,engine,batch_size,seq_len,mean_ms,median_ms,p95_ms,p99_ms\n\
        bert-tiny,FP32,dynamic,1,64,0.008,0.008,0.008,0.008\n";
    let card = import(ImportSource::TensorrtPairs, "rtx-4090", &[], &[pairs]).unwrap();
    assert_eq!(median_us(card.tables.encoder_layer.iter().map(|row| row.stats)), [2.0]);
}

#[test]
fn engines_for_one_length_and_for_any_are_the_two_runtimes_of_one_card() {
    let pairs = "model,precision,engine,batch_size,seq_len,mean_ms,median_ms,p95_ms,p99_ms\n\
        bert-base,FP32,static,1,64,1.2,1.152,1.3,1.5\n\
        bert-base,FP32,static,1,512,4.9,4.86,5.0,5.2\n\
        bert-base,FP32,dynamic,1,64,1.8,1.728,1.9,2.1\n\
        bert-base,FP32,dynamic,1,512,6.1,6.0,6.2,6.4\n";
    let card = import(ImportSource::TensorrtPairs, "rtx-4090", &[], &[pairs]).unwrap();
    assert_eq!(
        median_us(card.tables.static_model.iter().map(|row| row.stats)),
        [1152.0, 4860.0]
    );
    assert_eq!(card.tables.static_model[0].stats.mean_us, 1200.0);
    // Layers are of those that take any length.
    composes("rtx-4090", DType::F32, &card, &[(1, 64, 1728.0), (1, 512, 6000.0)]);
    has_note(
        &card,
        "takes 1.23 times as long as one for that length (from 1.23 to 1.50, 2 shapes)",
    );
    let model = ModelShape::builtin("bert-base").unwrap();
    let compiled = card.static_model(&model, DType::F32).unwrap();
    assert_eq!(compiled.length_for(65), Some(512), "a step, never a slope");

    let longest = "1,512,6.1";
    let wraps = pairs.replace(longest, "1,4294967360,6.1");
    assert_eq!(
        import(ImportSource::TensorrtPairs, "rtx-4090", &[], &[&wraps]).unwrap_err(),
        "0.csv:5: seq_len: must be a whole number from 1 to 2147483647, got \"4294967360\""
    );
    let apart = pairs.replace(longest, "2,512,6.1");
    assert_eq!(
        import(ImportSource::TensorrtPairs, "rtx-4090", &[], &[&apart]).unwrap_err(),
        "0.csv: batch_size: must be for bert-base, f32, dynamic with each length in some batch that all lengths have, \
         got no such batch"
    );
    let falling = pairs.replace("6.0,6.2,6.4", "6.0,6.2,6.1");
    assert_eq!(
        import(ImportSource::TensorrtPairs, "rtx-4090", &[], &[&falling]).unwrap_err(),
        "0.csv:5: p99_ms: must be no less than the quantile before it, got \"6.1\""
    );

    let slipped = pairs.replace("1.2,1.152", "1200,1.152");
    assert_eq!(
        import(ImportSource::TensorrtPairs, "rtx-4090", &[], &[&slipped]).unwrap_err(),
        "0.csv:2: mean_ms: must be at most 10 times p99_ms, got \"1200\""
    );

    let refused = |from: &str, to: &str| {
        import(
            ImportSource::TensorrtPairs,
            "rtx-4090",
            &[],
            &[&pairs.replacen(from, to, 1)],
        )
    };
    assert_eq!(
        refused("dynamic", "dynamics").unwrap_err(),
        "0.csv:4: engine: must be static or dynamic, got \"dynamics\""
    );
    assert_eq!(
        refused("bert-base", "llama-7b").unwrap_err(),
        "0.csv:2: model: must be a built-in encoder, such as bert-base, got \"llama-7b\""
    );
    assert_eq!(
        refused("FP32", "INT8").unwrap_err(),
        "0.csv:2: precision: must be FP32, FP16 or BF16, got \"INT8\""
    );
    let refused = refused("median_ms", "middle").unwrap_err();
    assert!(refused.starts_with("0.csv:1: median_ms: must be a column"), "{refused}");
}

#[test]
fn fastertransformers_layers_are_a_twelfth_and_unpadded_ones_tell_what_padding_costs() {
    let mut text = String::from("source_line,gpu,framework,precision,batch_size,seq_len,implementation,latency_ms\n");
    for (framework, precision, implementation, ms) in [
        ("PyTorch", "FP16", "FT", 2.4),
        ("PyTorch", "FP16", "EFF-FT", 1.2),
        ("PyTorch", "FP16", "TorchScript", 9.9),
        ("TensorFlow", "FP16", "FT", 9.9),
        ("PyTorch", "INT8-v1", "FT", 9.9),
        ("PyTorch", "FP32", "FT", 12.0),
    ] {
        text += &format!("1,T4,{framework},{precision},8,32,{implementation},{ms}\n");
    }
    let card = import(ImportSource::FastertransformerBert, "t4", &[], &[&text]).unwrap();
    let rows = card
        .tables
        .encoder_layer
        .iter()
        .map(|row| (row.dtype, row.batch, row.tokens, row.stats.median_us));
    assert_eq!(
        rows.collect::<Vec<_>>(),
        [(DType::F16, 8, 32, 200.0), (DType::F32, 8, 32, 1000.0)]
    );
    has_note(&card, "8×32: 50 %");
    let refused = import(ImportSource::FastertransformerBert, "h100-sxm", &[], &[&text]).unwrap_err();
    assert_eq!(refused, "--gpu: must be a GPU that this source has, got h100-sxm");
}

/// Kernels that take any shape are the layers' measure, whichever source comes last; engines for one length stay whole
/// models.
#[test]
fn engines_for_one_length_do_not_take_the_place_of_kernels_for_any() {
    let tensorrt = || import(ImportSource::TensorrtBert, "t4", &[], &[TENSORRT]).unwrap();
    let any = || {
        let rows = "gpu,framework,implementation,precision,seq_len,batch_size,latency_ms\n\
                    T4,PyTorch,FT,FP16,32,1,1.2\nT4,PyTorch,FT,FP16,128,1,2.4\n";
        import(ImportSource::FastertransformerBert, "t4", &[], &[rows]).unwrap()
    };
    let layers = |card: &Card| median_us(card.tables.encoder_layer.iter().map(|row| row.stats));
    for (mut card, other) in [(tensorrt(), any()), (any(), tensorrt())] {
        card.add_imported(&other).unwrap();
        card.validate().unwrap();
        assert_eq!(layers(&card), [100.0, 200.0]);
        let origin = card.origin(Family::EncoderLayer, "model=bert-base dtype=f16");
        assert!(
            origin.source.contains("FasterTransformer") && !origin.one_shape,
            "{origin:?}"
        );
        assert_eq!(
            median_us(card.tables.static_model.iter().map(|row| row.stats)),
            [1900.0, 4800.0]
        );
    }
    let mut again = tensorrt();
    again.add_imported(&tensorrt()).unwrap();
    assert_eq!(layers(&again), layers(&tensorrt()), "its own take the place of its own");
}

/// Lengths that the model has no positions for, and a whole file in microseconds.
#[test]
fn lengths_and_units_that_cannot_be_are_refused() {
    let refused = |text: &str| import(ImportSource::TensorrtBert, "t4", &[], &[text]).unwrap_err();
    assert_eq!(
        refused(&TENSORRT.replace("FP16,384", "FP16,1000")),
        "0.csv:3: seq_len: must be at most the 512 positions of bert-base, got \"1000\""
    );
    let in_us = |line: &str| -> String {
        let number = |field: &str| field.parse::<f64>().ok().filter(|_| field.contains('.'));
        let fields = line.split(',');
        let scaled = fields.map(|field| number(field).map_or(field.to_owned(), |ms| (ms * 1e3).to_string()));
        scaled.collect::<Vec<_>>().join(",")
    };
    let lines: Vec<String> = TENSORRT.lines().map(in_us).collect();
    let error = refused(&lines.join("\n"));
    assert!(
        error.starts_with("FILES: must be with times of encoder_layer for bert-base in f16 at most 100 times"),
        "{error}"
    );
    assert!(error.ends_with("is it another unit?"), "{error}");
}
