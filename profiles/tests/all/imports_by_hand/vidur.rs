//! Vidur's operators, attention, collectives and host.

use tenantry_profiles::{Card, DType, Family, ImportSource, Stats};

use super::{has_note, import, median_us};

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

/// In milliseconds, too little to show beside other operators.
const NEXT_TO_NOTHING: [f64; 5] = [1e-9, 1e-9, 1e-9, 1e-9, 0.0];

/// The operators of a layer, those that are not given taking next to no time.
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
    given.iter().copied().chain(others.map(|name| (name, NEXT_TO_NOTHING))).collect()
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

/// Of one model on as many cards: they are two GPUs'.
#[test]
fn tables_that_a_file_before_has_are_refused() {
    let text = vidur(&LLAMA_7B, &layer(&[("mlp_up_proj", [0.1; 5])]));
    assert_eq!(
        import(ImportSource::Vidur, "a100-sxm", &[], &[&text, &text]).unwrap_err(),
        "1.csv:2: decoder_dense: must be of tables that no file before it has, got model=llama-7b dtype=f16 \
         tensor_parallel=2"
    );
}

/// A layer of fewer operators would be a faster one. Phi-2's alone has one norm.
#[test]
fn a_layer_without_one_of_its_operators_is_refused() {
    let without = |dimensions: &[(&str, &str)], operator: &str| {
        let operators: Vec<_> =
            layer(&[("mlp_up_proj", [0.1; 5])]).into_iter().filter(|(name, _)| *name != operator).collect();
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
fn operators_take_some_time_and_no_absurd_one_and_their_medians_lie_within_it() {
    let refused = |times: [f64; 5]| {
        let text = vidur(&LLAMA_7B, &layer(&[("mlp_up_proj", times)]));
        import(ImportSource::Vidur, "a100-sxm", &[], &[&text]).unwrap_err()
    };
    let column = |part: &str| format!("0.csv:2: time_stats.mlp_up_proj.{part}: must be");
    assert_eq!(
        refused([0.0; 5]),
        format!("{} a time above 0 and up to 1e6, got \"0\"", column("mean"))
    );
    let absurd = refused([0.1, 1e300, 0.1, 0.1, 0.0]);
    let expected = format!("{} a time above 0 and up to 1e6, got ", column("max"));
    assert!(absurd.starts_with(&expected), "{absurd}");
    for (part, mean, median) in [("median", 0.1, 0.08), ("median", 0.1, 0.14), ("mean", 100.0, 0.1)] {
        let wrong = if part == "mean" { mean } else { median };
        assert_eq!(
            refused([0.09, 0.13, mean, median, 0.003]),
            format!("{} from min to max of the same operator, got \"{wrong}\"", column(part))
        );
    }
}

/// Attention by width, heads, and heads of keys and values, which a degree of parallelism shares: one row for each
/// kernel, whose milliseconds are the last of its figures, after chunk, sequences and cached tokens.
fn attention_of(dimensions: [&str; 3], degree: &str, kernels: &[(&str, &str, &str, &str, f64)]) -> String {
    let [hidden, heads, kv_heads] = dimensions;
    let at = |&(prefill, chunk, batch, cached, median): &(&str, &str, &str, &str, f64)| {
        let dimensions = [
            ("n_embd", hidden),
            ("n_q_head", heads),
            ("n_kv_head", kv_heads),
            ("num_tensor_parallel_workers", degree),
            ("is_prefill", prefill),
            ("prefill_chunk_size", chunk),
            ("batch_size", batch),
            ("kv_cache_size", cached),
            ("attention_backend", "AttentionBackend.FLASH_ATTENTION"),
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
    let rows: Vec<String> = kernels.iter().map(at).collect();
    let header = rows[0].lines().next().unwrap();
    let lines = rows.iter().map(|row| row.lines().nth(1).unwrap());
    [header].into_iter().chain(lines).collect::<Vec<_>>().join("\n")
}

const LLAMA_70B: [&str; 3] = ["8192", "64", "8"];

#[test]
fn vidurs_attention_is_of_chunks_and_of_new_tokens() {
    let kernels = [
        ("True", "64", "1", "0", 0.1),
        ("True", "64", "1", "64", 0.2),
        ("True", "128", "1", "0", 0.3),
        ("False", "0", "1", "32", 0.01),
        ("False", "0", "1", "64", 0.02),
        ("False", "0", "4", "32", 0.04),
        ("False", "0", "4", "64", 0.08),
        // Neither one of the first batches nor every fourth.
        ("False", "0", "5", "32", 0.05),
    ];
    let text = attention_of(LLAMA_70B, "2", &kernels);
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
        let kept = text.lines().filter(|line| line.contains(kind) || line.starts_with("n_embd"));
        import(
            ImportSource::Vidur,
            "a100-sxm",
            &[],
            &[&kept.collect::<Vec<_>>().join("\n")],
        )
        .unwrap()
    };
    let families = |card: Card| card.origins.list().iter().map(|origin| origin.family).collect::<Vec<_>>();
    assert_eq!(families(only("True")), [Family::DecoderPrefill]);
    assert_eq!(families(only("False")), [Family::DecoderDecode]);
}

#[test]
fn vidurs_attention_is_a_table_for_each_degree_of_parallelism() {
    let of = |degree: &str, us: f64| attention_of(LLAMA_70B, degree, &[("False", "0", "1", "32", us / 1e3)]);
    let (two, four) = (of("2", 20.0), of("4", 10.0));
    let text = format!("{two}\n{}", four.lines().nth(1).unwrap());
    let card = import(ImportSource::Vidur, "h100-sxm", &[], &[&text]).unwrap();
    let rows = card.tables.decoder_decode.iter();
    let by_degree: Vec<_> = rows.map(|row| (row.tensor_parallel, row.stats.median_us)).collect();
    assert_eq!(by_degree, [(2, 23.0), (4, 13.0)], "three of each are reshapes");
    let origins = card.origins.list();
    assert_eq!(origins.len(), 2);
    // Nothing of a GPU or year that nobody gave.
    assert_eq!(
        origins[0].source,
        "Vidur (microsoft/vidur @7d47513, MIT), 0.csv: FLASH_ATTENTION, with its reshapes"
    );

    let other_kernel = text.replacen("FLASH_ATTENTION", "FLASHINFER", 1);
    assert_eq!(
        import(ImportSource::Vidur, "h100-sxm", &[], &[&other_kernel]).unwrap_err(),
        "0.csv:3: attention_backend: must be that of the rows above, as a table is of one kernel, got \
         \"AttentionBackend.FLASH_ATTENTION\""
    );
}

#[test]
fn vidurs_attention_is_that_of_the_model_with_its_heads() {
    let of = |dimensions, models: &[&str]| {
        let text = attention_of(dimensions, "1", &[("False", "0", "1", "32", 0.01)]);
        let card = import(ImportSource::Vidur, "a100-sxm", models, &[&text])?;
        Ok::<_, String>(card.tables.decoder_decode[0].model.clone())
    };
    assert_eq!(of(["4096", "32", "32"], &[]).as_deref(), Ok("llama-7b"));
    let llama_3 = ["4096", "32", "8"];
    // As the layers of these dimensions are.
    assert_eq!(of(llama_3, &[]).as_deref(), Ok("llama3-8b"));
    assert_eq!(of(llama_3, &["llama3.1-8b"]).as_deref(), Ok("llama3.1-8b"));
    for (dimensions, models) in [(["4096", "64", "8"], &[][..]), (llama_3, &["llama-70b"])] {
        assert_eq!(
            of(dimensions, models).unwrap_err(),
            "0.csv:2: n_embd: must be the width, with n_q_head and n_kv_head, of a built-in decoder, or of one of \
             --model, got \"4096\""
        );
    }
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
    let host = "model_name,tensor_parallel_degree,batch_size,schedule_median,sampler_e2e_median,prepare_inputs_e2e_median,model_execution_e2e_median,process_model_outputs_median\nphi-2,1,1,0.1,0.2,0.3,7.0,0.4\nphi-2,1,8,0.5,0.5,0.5,7.0,0.5\n";
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
