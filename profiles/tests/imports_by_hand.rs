//! Importers, without the public data: tables written by hand in each source's format, of times that are easy to add up.

use std::fs;

use tenantry_profiles::{
    Card, DEFAULT_LAUNCH_OVERHEAD_US, DType, DecoderDenseRow, Family, Import, ImportSource, ModelShape, Source, Stats,
    Tables,
};

/// What an import of these texts makes, or what it says of them.
fn import(source: ImportSource, gpu: &str, models: &[&str], texts: &[&str]) -> Result<Card, String> {
    let folder = tempfile::tempdir().unwrap();
    let write = |(index, text): (usize, &&str)| {
        let file = folder.path().join(format!("{index}.csv"));
        fs::write(&file, text).unwrap();
        file
    };
    let import = Import {
        source,
        gpu: gpu.to_owned(),
        models: models.iter().map(|name| ModelShape::builtin(name).unwrap()).collect(),
        launch_overhead_us: DEFAULT_LAUNCH_OVERHEAD_US,
        files: texts.iter().enumerate().map(write).collect(),
    };
    let card = import.run("card", "2026-01-01");
    card.map_err(|error| error.to_string().replace(&format!("{}/", folder.path().display()), ""))
}

fn median_us(rows: impl IntoIterator<Item = Stats>) -> Vec<f64> {
    rows.into_iter().map(|stats| stats.median_us).collect()
}

fn has_note(card: &Card, part: &str) {
    let notes = &card.provenance.notes;
    assert!(notes.iter().any(|note| note.contains(part)), "{notes:#?}");
}

/// Vidur's columns of operators: least, most, mean, median and deviation in milliseconds.
fn vidur(dimensions: &[(&str, &str)], operators: &[(&str, [f64; 5])]) -> String {
    let of =
        |operator: &str| ["min", "max", "mean", "median", "std"].map(|part| format!("time_stats.{operator}.{part}"));
    let header = dimensions.iter().map(|(name, _)| (*name).to_owned());
    let header: Vec<String> = header.chain(operators.iter().flat_map(|(name, _)| of(name))).collect();
    let cells = dimensions.iter().map(|(_, cell)| (*cell).to_owned());
    let times = operators.iter().flat_map(|(_, times)| times.map(|ms| ms.to_string()));
    let cells: Vec<String> = cells.chain(times).collect();
    format!("{}\n{}\n", header.join(","), cells.join(","))
}

/// The operators of a layer, those that are not given taking no time.
fn layer<'a>(given: &[(&'a str, [f64; 5])]) -> Vec<(&'a str, [f64; 5])> {
    let all = [
        "input_layernorm",
        "attn_pre_proj",
        "attn_rope",
        "attn_post_proj",
        "post_attention_layernorm",
        "mlp_up_proj",
        "mlp_act",
        "mlp_down_proj",
        "add",
    ];
    let others = all.into_iter().filter(|name| given.iter().all(|(of, _)| of != name));
    given
        .iter()
        .copied()
        .chain(others.map(|name| (name, [0.0; 5])))
        .collect()
}

/// What a profiler that was stopped leaves.
#[test]
fn a_table_without_rows_is_refused() {
    let of_layers = vidur(&LLAMA_7B, &[("mlp_up_proj", [1.0; 5])]);
    let of_attention = vidur(&LLAMA_7B, &[("attn_decode", [1.0; 5])]);
    for text in [of_layers, of_attention] {
        let header = text.lines().next().unwrap();
        let error = import(ImportSource::Vidur, "a100-sxm", &[], &[header]).unwrap_err();
        assert_eq!(error, "0.csv: lines: must be at least one below the header, got none");
    }
}

const LLAMA_7B: [(&str, &str); 7] = [
    ("n_embd", "4096"),
    ("n_head", "32"),
    ("n_kv_head", "32"),
    ("n_expanded_embd", "11008"),
    ("use_gated_mlp", "True"),
    ("num_tensor_parallel_workers", "2"),
    ("num_tokens", "16"),
];

#[test]
fn vidurs_operators_add_up_to_a_layer() {
    let up = ("mlp_up_proj", [0.09, 0.13, 0.11, 0.1, 0.003]);
    let add = ("add", [0.019, 0.023, 0.021, 0.02, 0.004]);
    let card = import(
        ImportSource::Vidur,
        "a100-sxm",
        &[],
        &[&vidur(&LLAMA_7B, &layer(&[up, add]))],
    )
    .unwrap();
    let [row] = &card.tables.decoder_dense[..] else {
        panic!("{:?}", card.tables.decoder_dense)
    };
    assert_eq!(
        (row.model.as_str(), row.dtype, row.tensor_parallel, row.tokens),
        ("llama-7b", DType::F16, 2, 16)
    );
    // Milliseconds there. Two operators of 3 and 4 µs of deviation have one of 5 together.
    let Stats {
        count,
        mean_us,
        median_us,
        p05_us,
        p95_us,
        ..
    } = row.stats;
    assert_eq!((count, mean_us, median_us), (20, 131.0, 120.0));
    assert_eq!((p05_us, p95_us), (111.8, 128.2));
    assert_eq!(card.origins.list().len(), 1);
}

/// A layer of fewer operators would be a faster one. Phi-2's alone has one norm.
#[test]
fn a_layer_without_one_of_its_operators_is_refused() {
    let without = |dimensions: &[(&str, &str)], operator: &str| {
        let operators: Vec<_> = layer(&[("mlp_up_proj", [0.1; 5])])
            .into_iter()
            .filter(|(name, _)| *name != operator)
            .collect();
        import(ImportSource::Vidur, "a100-sxm", &[], &[&vidur(dimensions, &operators)])
    };
    for operator in ["attn_pre_proj", "mlp_down_proj", "post_attention_layernorm"] {
        let refused = without(&LLAMA_7B, operator).unwrap_err();
        let expected = format!("0.csv:1: time_stats.{operator}.mean: must be a column, got no such column");
        assert!(refused.starts_with(&expected), "{refused}");
    }
    let mut phi_2 = LLAMA_7B;
    for (dimension, value) in phi_2.iter_mut().zip(["2560", "32", "32", "10240", "False"]) {
        dimension.1 = value;
    }
    assert!(without(&phi_2, "post_attention_layernorm").is_ok());
    assert!(without(&phi_2, "add").is_err());
}

#[test]
fn vidurs_attention_is_of_chunks_and_of_new_tokens() {
    let at = |prefill: &str, chunk: &str, batch: &str, cached: &str, median: f64| {
        let dimensions = [
            ("n_embd", "8192"),
            ("n_kv_head", "8"),
            ("num_tensor_parallel_workers", "2"),
            ("is_prefill", prefill),
            ("prefill_chunk_size", chunk),
            ("batch_size", batch),
            ("kv_cache_size", cached),
        ];
        let exactly = |ms: f64| [ms, ms, ms, ms, 0.0];
        let (prefill_ms, decode_ms) = if prefill == "True" {
            (median, 0.0)
        } else {
            (0.0, median)
        };
        let operators = [
            ("attn_prefill", exactly(prefill_ms)),
            ("attn_decode", exactly(decode_ms)),
            ("attn_input_reshape", exactly(0.001)),
            ("attn_output_reshape", exactly(0.002)),
        ];
        vidur(&dimensions, &operators)
    };
    let rows = [
        at("True", "64", "1", "0", 0.1),
        at("True", "64", "1", "64", 0.2),
        at("True", "128", "1", "0", 0.3),
        at("False", "0", "1", "32", 0.01),
        at("False", "0", "1", "64", 0.02),
        at("False", "0", "4", "32", 0.04),
        at("False", "0", "4", "64", 0.08),
        // Neither one of the first batches nor every fourth.
        at("False", "0", "5", "32", 0.05),
    ];
    let header = rows[0].lines().next().unwrap();
    let lines = rows.iter().map(|row| row.lines().nth(1).unwrap());
    let text = [header].into_iter().chain(lines).collect::<Vec<_>>().join("\n");
    let card = import(ImportSource::Vidur, "a100-sxm", &[], &[&text]).unwrap();
    let prefill = &card.tables.decoder_prefill;
    let at: Vec<_> = prefill.iter().map(|row| (row.tokens, row.context)).collect();
    assert_eq!(at, [(64, 64), (64, 128), (128, 128)]);
    assert_eq!(median_us(prefill.iter().map(|row| row.stats)), [103.0, 203.0, 303.0]);
    let decode = &card.tables.decoder_decode;
    assert_eq!(decode.iter().map(|row| row.sequences).collect::<Vec<_>>(), [1, 1, 4, 4]);
    assert_eq!(median_us(decode.iter().map(|row| row.stats)), [13.0, 23.0, 43.0, 83.0]);
    has_note(&card, "no mixed batches were measured");

    // Either kind alone is a table, and none of the other kind.
    let only = |kind: &str| {
        let kept = text
            .lines()
            .filter(|line| line.contains(kind) || line.starts_with("n_embd"));
        import(
            ImportSource::Vidur,
            "a100-sxm",
            &[],
            &[&kept.collect::<Vec<_>>().join("\n")],
        )
        .unwrap()
    };
    let families = |card: Card| {
        card.origins
            .list()
            .iter()
            .map(|origin| origin.family)
            .collect::<Vec<_>>()
    };
    assert_eq!(families(only("True")), [Family::DecoderPrefill]);
    assert_eq!(families(only("False")), [Family::DecoderDecode]);

    let narrow = text.replacen("8192", "4096", 1);
    let refused = import(ImportSource::Vidur, "a100-sxm", &[], &[&narrow]).unwrap_err();
    assert_eq!(
        refused,
        "0.csv:2: n_embd: must be that of Llama-2-70B, whose attention this table has, got \"4096\""
    );
}

#[test]
fn vidurs_collectives_are_those_within_a_machine_and_its_hosts_time_is_a_note() {
    let mut text = String::from("num_workers,devices_per_node,size");
    for part in ["min", "max", "mean", "median", "std"] {
        text += &format!(",time_stats.all_reduce.{part}");
    }
    for (workers, on_a_node, bytes, ms) in [(2, 2, 1024, 0.01), (2, 2, 2048, 0.02), (2, 1, 1024, 9.0)] {
        text += &format!("\n{workers},{on_a_node},{bytes},{ms},{ms},{ms},{ms},0");
    }
    let host = "model_name,tensor_parallel_degree,batch_size,schedule_median,sampler_e2e_median,prepare_inputs_e2e_median,\
                model_execution_e2e_median,process_model_outputs_median\nphi-2,1,1,0.1,0.2,0.3,7.0,0.4\nphi-2,1,8,0.5,0.5,0.5,7.0,0.5\n";
    let card = import(ImportSource::Vidur, "a100-sxm", &[], &[&text, host]).unwrap();
    let collective = &card.tables.collective;
    let at: Vec<_> = collective.iter().map(|row| (row.workers, row.bytes)).collect();
    assert_eq!(at, [(2, 1024), (2, 2048)]);
    assert_eq!(median_us(collective.iter().map(|row| row.stats)), [10.0, 20.0]);
    has_note(&card, "phi-2 on 1: 1.00 ms at batch 1, 2.00 ms at 8");
}

#[test]
fn a_width_that_no_model_has_is_refused() {
    let mut wide = LLAMA_7B;
    wide[0].1 = "4097";
    let text = vidur(&wide, &[("mlp_up_proj", [1.0; 5])]);
    let refused = import(ImportSource::Vidur, "a100-sxm", &[], &[&text]).unwrap_err();
    assert_eq!(
        refused,
        "0.csv:2: n_embd: must be the width of a built-in decoder, or of one of --model, got \"4097\""
    );
    let text = vidur(&LLAMA_7B, &layer(&[])).replace(",16,", ",half,");
    let refused = import(ImportSource::Vidur, "a100-sxm", &[], &[&text]).unwrap_err();
    assert_eq!(
        refused,
        "0.csv:2: num_tokens: must be a whole number from 1 to 2147483647, got \"half\""
    );
}

/// Products and attention of which each takes 10 and 20 µs, whatever the rows.
fn kernels() -> [String; 2] {
    let mut products = String::from("m,n,k,latency_ms\n");
    for (n, k) in [(384, 128), (128, 128), (512, 128), (128, 512)] {
        for m in [1, 8192] {
            products += &format!("{m},{n},{k},0.01\n");
        }
    }
    let mut attention = String::from("batch_size,isl,num_heads,head_dim,latency_ms\n");
    for tokens in [16, 128, 256] {
        for batch in [1, 64] {
            attention += &format!("{batch},{tokens},2,64,0.02\n");
        }
    }
    [products, attention]
}

#[test]
fn aiconfigurators_kernels_are_composed_to_layers() {
    let [products, attention] = kernels();
    let card = import(
        ImportSource::Aiconfigurator,
        "h100-sxm",
        &["tiny"],
        &[&products, &attention],
    )
    .unwrap();
    let rows = &card.tables.encoder_layer;
    // 256 tokens are more than the model's positions.
    let at: Vec<_> = rows.iter().map(|row| (row.batch, row.tokens)).collect();
    assert_eq!((at.len(), at[0], at[13]), (14, (1, 16), (64, 128)));
    assert!(rows.iter().all(|row| row.dtype == DType::Bf16));
    // Four products, attention, two norms and an activation of 3 µs at least, and 1 µs after each of the eight.
    assert_eq!(rows[0].stats.median_us, 4.0 * 10.0 + 20.0 + 3.0 * 3.0 + 8.0);
    // 64 × 128 rows: norms move three times as many numbers of two bytes as the layer is wide, the activation two of 512.
    let bytes_per_us = 3.35e12 * 0.8 / 1e6;
    let moved = |numbers: f64| (8192.0 * numbers * 2.0 / bytes_per_us).max(3.0);
    let expected = 4.0 * 10.0 + 20.0 + 2.0 * moved(3.0 * 128.0) + moved(2.0 * 512.0) + 8.0;
    assert!(
        (rows[13].stats.median_us / expected - 1.0).abs() < 1e-3,
        "{} and {expected}",
        rows[13].stats.median_us
    );

    let nothing = import(
        ImportSource::Aiconfigurator,
        "h100-sxm",
        &["bert-base"],
        &[&products, &attention],
    )
    .unwrap_err();
    assert!(nothing.contains("must be tables that compose a layer"), "{nothing}");
    let broken = attention.replacen("0.02", "-0.02", 1);
    let refused = import(
        ImportSource::Aiconfigurator,
        "h100-sxm",
        &["tiny"],
        &[&products, &broken],
    )
    .unwrap_err();
    assert_eq!(
        refused,
        "1.csv:2: latency_ms: must be a time of at least 0, got \"-0.02\""
    );
}

/// Tiny-llama's layers on an H100 whose matrix products all take 10 µs.
fn tiny_llama_of(prompts: &str, new_tokens: &str) -> Card {
    let mut products = String::from("m,n,k,latency_ms\n");
    for (n, k) in [(64, 64), (64, 512), (1024, 64), (1024, 512)] {
        products += &format!("1,{n},{k},0.01\n8192,{n},{k},0.01\n");
    }
    let sheets: [&str; 3] = [&products, prompts, new_tokens];
    import(ImportSource::Aiconfigurator, "h100-sxm", &["tiny-llama"], &sheets).unwrap()
}

#[test]
fn aiconfigurators_chunks_read_what_is_cached_before_them() {
    let of_attention = |column: &str, lengths: [(u64, f64); 3]| {
        let mut text = format!("batch_size,{column},num_heads,num_key_value_heads,head_dim,latency_ms\n");
        for (length, us) in lengths {
            for batch in [1, 256] {
                text += &format!("{batch},{length},4,2,32,{}\n", us / 1e3);
            }
        }
        text
    };
    let prompts = of_attention("isl", [(1, 10.0), (64, 12.0), (1024, 60.0)]);
    let new_tokens = of_attention("kv_len_before", [(1, 5.0), (63, 6.0), (1023, 40.0)]);
    let card = tiny_llama_of(&prompts, &new_tokens);
    let us = |tokens: u32, context: u32| {
        let mut rows = card.tables.decoder_prefill.iter();
        let row = rows.find(|row| row.tensor_parallel == 1 && (row.tokens, row.context) == (tokens, context));
        row.expect("it is on the grid").stats.median_us
    };
    assert_eq!(
        [us(1, 1), us(64, 64), us(1024, 1024)],
        [11.0, 13.0, 61.0],
        "prompts, and a gap"
    );
    assert_eq!(us(1, 64), 11.0, "it takes 0.05 µs to attend, and a kernel 10");
    assert_eq!(us(1, 1024), 41.0, "one new token after 1,023 takes 40");
    // 960 are cached, and a new token after them lies on the line from 6 to 40.
    let reads = 7.0 + 34.0 * (961.0 - 64.0) / 960.0;
    assert!((us(64, 1024) - reads).abs() < 0.01, "{}", us(64, 1024));
}

#[test]
fn aiconfigurators_prompts_in_one_kernel_are_priced_as_measured() {
    let mut prompts = String::from("batch_size,isl,num_heads,num_key_value_heads,head_dim,latency_ms\n");
    // A start of 10 µs and 1 µs for each prompt of 64 tokens, 4 µs of 128. Of the longest there are eight at most.
    for (tokens, each_us, most) in [(64, 1.0, 256), (128, 4.0, 256), (256, 16.0, 16)] {
        for batch in [1, 2, 4, 8, 16, 256].into_iter().filter(|batch| *batch <= most) {
            let ms = (10.0 + each_us * f64::from(batch)) / 1e3;
            prompts += &format!("{batch},{tokens},4,2,32,{ms}\n");
        }
    }
    let new_tokens = prompts.replace(",isl,", ",kv_len_before,");
    let card = tiny_llama_of(&prompts, &new_tokens);
    let us = |prompts: u32, tokens: u32| {
        let mut rows = card.tables.decoder_prompts.iter();
        let row = rows.find(|row| row.tensor_parallel == 1 && (row.prompts, row.tokens) == (prompts, tokens));
        row.expect("it is on the grid").stats.median_us
    };
    // A gap beside each kernel.
    assert_eq!(
        [us(1, 64), us(8, 64), us(128, 128), us(8, 256)],
        [12.0, 19.0, 523.0, 139.0]
    );
    assert_eq!(us(128, 256), 11.0 + 16.0 * 128.0, "it goes on along a line");
    let origin = card.origin(Family::DecoderPrompts, "model=tiny-llama dtype=bf16 tensor_parallel=1");
    let error = origin.error.expect("lines went on");
    assert!(error.contains("off by 0 % in the median"), "{error}");

    let model = card.model("tiny-llama").unwrap();
    let decoder = card.decoder(&model, DType::Bf16, 1).unwrap();
    let attention_us = |chunks: &[(u32, u32)]| decoder.attention_ns(chunks, 0, 0) as f64 / 1e3;
    assert_eq!(attention_us(&[(64, 64)]), 12.0);
    let together = attention_us(&[(64, 64); 8]);
    assert!((together - 19.0).abs() < 0.01, "{together}");
    // A median is what all of it costs, and new tokens have a kernel of their own.
    let chunks = [(64, 64), (128, 128), (64, 256)];
    let all = decoder.attention(&chunks, 2, 100).median_ns;
    assert_eq!(all, decoder.attention_ns(&chunks, 2, 100));
    assert_eq!(
        all,
        decoder.attention_ns(&chunks, 0, 0) + decoder.attention_ns(&[], 2, 100)
    );
    // More work than one has, and less than all have one by one.
    let [least, most] = [
        attention_us(&[(64, 256)]),
        chunks.iter().map(|chunk| attention_us(&[*chunk])).sum(),
    ];
    let between = attention_us(&chunks);
    assert!(least < between && between < most, "{least} {between} {most}");
    assert!(decoder.covers(&[(64, 64); 128], 0, 0) && !decoder.covers(&[(64, 64); 129], 0, 0));
    let mut told = Vec::new();
    decoder.beyond(&[(64, 64); 129], 0, 0, |family, beyond| {
        told.push((family, beyond.asked))
    });
    assert!(told.contains(&(Family::DecoderPrompts, 129)), "{told:?}");
}

/// A table of f16 that nobody published is the one of bf16, and not a datasheet's.
#[test]
fn decoders_in_f16_are_priced_as_in_bf16_where_only_that_is_imported() {
    let mut attention = String::from("batch_size,isl,num_heads,num_key_value_heads,head_dim,latency_ms\n");
    for batch in [1, 256] {
        attention += &format!("{batch},64,4,2,32,0.012\n{batch},256,4,2,32,0.03\n");
    }
    let new_tokens = attention.replace(",isl,", ",kv_len_before,");
    let imported = tiny_llama_of(&attention, &new_tokens);
    let layers = imported.tables.decoder_dense.iter().cloned();
    let in_f16: Vec<_> = layers
        .map(|row| DecoderDenseRow {
            dtype: DType::F16,
            ..row
        })
        .collect();

    // Filled before the kernels in bf16 were there, from the datasheet; and again after.
    let mut card = tiny_llama_of(&attention, &new_tokens);
    card.tables = Tables::default();
    card.tables.decoder_dense = in_f16;
    card.fill_from_datasheet("h100-sxm").unwrap();
    let table = "model=tiny-llama dtype=f16 tensor_parallel=1";
    assert_eq!(card.origin(Family::DecoderPrefill, table).kind, Source::Derived);
    card.add_imported(&imported).unwrap();
    card.fill_from_datasheet("h100-sxm").unwrap();
    let us = |dtype: DType| {
        let rows = card.tables.decoder_prefill.iter();
        let of = rows.filter(|row| row.dtype == dtype && row.tensor_parallel == 1);
        of.map(|row| (row.tokens, row.context, row.stats)).collect::<Vec<_>>()
    };
    assert!(!us(DType::Bf16).is_empty());
    assert_eq!(us(DType::F16), us(DType::Bf16));
    let origin = card.origin(Family::DecoderPrefill, table);
    assert_eq!(origin.kind, Source::Imported);
    assert!(origin.source.contains("taken for f16 too"), "{}", origin.source);
}

/// Upstream's table has some shapes twice.
#[test]
fn a_kernel_that_was_measured_twice_is_its_middle_time() {
    let [products, attention] = kernels();
    let once = import(
        ImportSource::Aiconfigurator,
        "h100-sxm",
        &["bert-mini"],
        &[&products, &attention],
    );
    let again: String = products.lines().skip(1).map(|line| format!("{line}\n")).collect();
    let twice = import(
        ImportSource::Aiconfigurator,
        "h100-sxm",
        &["bert-mini"],
        &[&format!("{products}{again}"), &attention],
    );
    assert_eq!(once.map(|card| card.digest()), twice.map(|card| card.digest()));
}

#[test]
fn aiconfigurators_all_reduces_count_numbers_of_two_bytes() {
    let nccl = "nccl_dtype,num_gpus,message_size,op_name,latency_ms\nhalf,2,1024,all_reduce,0.01\nhalf,2,4096,all_reduce,0.03\n\
                half,2,4096,all_gather,0.5\nint8,2,4096,all_reduce,0.5\n";
    let card = import(ImportSource::Aiconfigurator, "h100-sxm", &["tiny"], &[nccl]).unwrap();
    let rows = &card.tables.collective;
    let at: Vec<_> = rows.iter().map(|row| (row.workers, row.bytes)).collect();
    assert_eq!(at, [(2, 2048), (2, 8192)]);
    assert_eq!(median_us(rows.iter().map(|row| row.stats)), [10.0, 30.0]);
}

#[test]
fn llmservingsims_kinds_add_up_to_a_layer_and_its_ends() {
    let mut dense = String::from("layer,tokens,time_us\n");
    for layer in [
        "layernorm",
        "qkv_proj",
        "rotary_emb",
        "o_proj",
        "gate_up_proj",
        "act_fn",
        "down_proj",
        "embedding",
        "final_layernorm",
    ] {
        dense += &format!("{layer},1,2.5\n{layer},2,5\n");
    }
    let sequences = "layer,sequences,time_us\nlm_head,1,100\nsampler,1,7\n";
    let mut attention = String::from("prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n");
    for (chunk, cached, decodes, context, us) in [
        (16, 0, 0, 0, 10.0),
        (16, 16, 0, 0, 14.0),
        (32, 0, 0, 0, 20.0),
        (0, 0, 1, 64, 3.0),
        (0, 0, 1, 128, 4.0),
        (16, 0, 1, 64, 15.0),
    ] {
        attention += &format!("{chunk},{cached},{decodes},{context},{us}\n");
    }
    let card = import(
        ImportSource::Llmservingsim,
        "rtx-4090",
        &[],
        &[&dense, sequences, &attention],
    )
    .unwrap();
    let tables = &card.tables;
    // Seven kinds, the norm twice.
    assert_eq!(
        median_us(tables.decoder_dense.iter().map(|row| row.stats)),
        [20.0, 40.0]
    );
    assert_eq!(tables.decoder_dense[0].stats.count, 3);
    assert_eq!(
        median_us(tables.decoder_ends.iter().map(|row| row.stats)),
        [112.0, 117.0]
    );
    let at: Vec<_> = tables
        .decoder_prefill
        .iter()
        .map(|row| (row.tokens, row.context))
        .collect();
    assert_eq!(at, [(16, 16), (16, 32), (32, 32)]);
    assert_eq!(
        median_us(tables.decoder_prefill.iter().map(|row| row.stats)),
        [10.0, 14.0, 20.0]
    );
    assert_eq!(median_us(tables.decoder_decode.iter().map(|row| row.stats)), [3.0, 4.0]);
    let [mixed] = &tables.decoder_mixed[..] else {
        panic!("{:?}", tables.decoder_mixed)
    };
    assert_eq!(
        (mixed.tokens, mixed.first_context, mixed.sequences, mixed.context),
        (16, 1, 1, 64)
    );
    assert_eq!(mixed.stats.median_us, 15.0);
    has_note(&card, "the sum of the parts is off by -13 % in the median");

    let decodes = "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n0,0,1,16,10\n0,0,2,16,12\n";
    let of_decodes = import(ImportSource::Llmservingsim, "rtx-4090", &[], &[decodes]).unwrap();
    assert_eq!(of_decodes.tables.decoder_decode.len(), 2);
    assert_eq!(
        of_decodes.origins.list().len(),
        1,
        "nothing is said of chunks that the source has not"
    );
    let twice = format!("{decodes}0,0,1,16,11\n");
    assert_eq!(
        import(ImportSource::Llmservingsim, "rtx-4090", &[], &[&twice]).unwrap_err(),
        "0.csv:4: kv_decode: must be of a shape that no row above has, got \"16\""
    );

    let refused = import(ImportSource::Llmservingsim, "rtx-4090", &[], &[sequences]).unwrap_err();
    assert!(
        refused.starts_with("0.csv: header: must be given together with the same profile's dense file"),
        "{refused}"
    );
}

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
    let at: Vec<_> = whole
        .iter()
        .map(|row| (row.model.as_str(), row.dtype, row.batch, row.tokens))
        .collect();
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

/// BERT-base, of ends that are derived and layers, takes what was measured of the whole, in microseconds by batch and length.
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
        bert-base,FP32,dynamic,1,64,0.048,0.048,0.048,0.048\n";
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
        "0.csv: batch_size: must be for bert-base, f32, dynamic with each length in some batch that all lengths have, got no such batch"
    );
    let falling = pairs.replace("6.0,6.2,6.4", "6.0,6.2,6.1");
    assert_eq!(
        import(ImportSource::TensorrtPairs, "rtx-4090", &[], &[&falling]).unwrap_err(),
        "0.csv:5: p99_ms: must be no less than the quantile before it, got \"6.1\""
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
    assert_eq!(
        refused,
        "--gpu: value: must be a GPU that this source has, got h100-sxm"
    );
}

#[test]
fn published_copies_are_a_start_and_a_bandwidth() {
    let header = "gpu,link,direction,host_memory,bandwidth_GBps,note\n";
    let own = format!(
        "{header}Tesla V100,PCIe 3.0 x16,h2d,pinned,12.0,\nTesla V100,PCIe 3.0 x16,d2h,pinned,13.0,\n\
         Tesla V100,PCIe 3.0 x16,h2d,pinned,3.8,remote socket\nP100,PCIe 3.0 x16,h2d,pinned,10.0,\nP100,PCIe 3.0 x16,h2d,pageable,6.0,\n"
    );
    let copy = |gpu: &str| {
        let card = import(ImportSource::HostDeviceBandwidth, gpu, &[], &[&own]).unwrap();
        let row = card.tables.copy.last().unwrap().clone();
        assert!(row.pinned && row.bytes == 1 << 28);
        row.stats.median_us
    };
    let us = |bytes_per_us: f64| 10.0 + f64::from(1 << 28) / bytes_per_us;
    assert!((copy("v100-16g") / us(12e3) - 1.0).abs() < 1e-3);
    // Of the T4 nobody published any: the middle one of its link.
    assert!((copy("t4") / us(12e3) - 1.0).abs() < 1e-3);
    let refused = import(
        ImportSource::HostDeviceBandwidth,
        "t4",
        &[],
        &[&own.replace("12.0", "fast")],
    )
    .unwrap_err();
    assert_eq!(
        refused,
        "0.csv:2: bandwidth_GBps: must be a time of at least 0, got \"fast\""
    );
}
