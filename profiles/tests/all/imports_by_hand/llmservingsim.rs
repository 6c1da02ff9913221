//! LLMServingSim's layers in vLLM.

use std::fs;

use tenantry_profiles::{Card, DEFAULT_LAUNCH_OVERHEAD_US, Import, ImportSource};

use super::{SECOND, has_note, import, median_us};

/// What the profiler writes beside its tables.
const META: &str = "profiler_version: 1.0.0\nvllm_version: 0.19.0\ngpu: NVIDIA GeForce RTX 4090\narchitecture: llama\n\
                    model: meta-llama/Llama-3.1-8B\nvariant: bf16\ntp_degrees: [1]\nmeasurement_iterations: 3\n";

/// An import of these tables and of what is said of them.
fn profile(tables: &[&str]) -> Result<Card, String> {
    import(
        ImportSource::Llmservingsim,
        "rtx-4090",
        &[],
        &[tables, &[META]].concat(),
    )
}

const DECODES: &str = "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n0,0,1,16,10\n0,0,2,16,12\n";

/// A point beyond the others costs the table no more than itself, and what is left out is told.
#[test]
fn points_without_others_beside_them_are_left_out_and_told() {
    let decodes = |rows: &str| {
        let card = profile(&[&format!("{DECODES}{rows}")]).unwrap();
        let rows = card.tables.decoder_decode.iter();
        (rows.map(|row| (row.sequences, row.context)).collect::<Vec<_>>(), card)
    };
    let all = [(1, 16), (1, 32), (2, 16), (2, 32)];
    let (kept, card) = decodes("0,0,1,32,11\n0,0,2,32,13\n");
    assert_eq!(kept, all);
    assert!(card.provenance.notes.iter().all(|note| !note.contains("left out")));
    let (kept, card) = decodes("0,0,1,32,11\n0,0,2,32,13\n0,0,1,64,14\n");
    assert_eq!(kept, all);
    has_note(&card, "decodes without chunks: 1 of 5 points are left out");
}

/// The tables of one model and another are alike.
#[test]
fn a_profile_of_another_model_or_gpu_is_refused() {
    let refused = |from: &str, to: &str| {
        let meta = META.replace(from, to);
        assert_ne!(meta, META);
        import(ImportSource::Llmservingsim, "rtx-4090", &[], &[DECODES, &meta]).unwrap_err()
    };
    for (from, to, expected) in [
        (
            "Llama-3.1-8B",
            "Llama-3.1-70B",
            "1.yaml:5: model: must be meta-llama/Llama-3.1-8B, got meta-llama/Llama-3.1-70B",
        ),
        (
            "architecture: llama",
            "architecture: qwen3",
            "1.yaml:4: architecture: must be llama, got qwen3",
        ),
        (
            "variant: bf16",
            "variant: fp8",
            "1.yaml:6: variant: must be bf16, got fp8",
        ),
        ("0.19.0", "0.28.0", "1.yaml:2: vllm_version: must be 0.19.0, got 0.28.0"),
        (
            "iterations: 3",
            "iterations: 5",
            "1.yaml:8: measurement_iterations: must be 3, got 5",
        ),
        ("[1]", "[2, 4]", "1.yaml:7: tp_degrees: must be a list with 1, got 2, 4"),
        (
            "GeForce RTX 4090",
            "RTX PRO 6000 Blackwell Server Edition",
            "1.yaml:3: gpu: must be the GPU of --gpu rtx-4090, called rtx 4090, got NVIDIA RTX PRO 6000 Blackwell \
             Server Edition",
        ),
        ("variant: bf16\n", "", "1.yaml:1: variant: must be given, got nothing"),
    ] {
        assert_eq!(refused(from, to), expected);
    }
}

#[test]
fn tables_without_what_says_whose_they_are_are_taken_for_the_releases_and_say_so() {
    let import = |texts: &[&str]| import(ImportSource::Llmservingsim, "rtx-4090", &[], texts);
    let card = import(&[DECODES]).unwrap();
    let said = |card: &Card| card.provenance.notes.iter().any(|note| note.contains("no meta.yaml was given"));
    assert!(said(&card) && !said(&import(&[META, DECODES]).unwrap()));
    let must = "FILES: must be with one meta.yaml at most, which says whose all tables are";
    assert_eq!(
        import(&[META, DECODES, META]).unwrap_err(),
        format!("{must}, got 2 .yaml files")
    );
    assert_eq!(
        import(&[META]).unwrap_err(),
        "FILES: must be tables beside their meta.yaml, got none"
    );
}

/// A profile of several degrees has a folder for each.
#[test]
fn the_degree_of_a_table_is_in_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let meta = folder.path().join("meta.yaml");
    let import = |degrees: &str, table: &str| {
        fs::write(&meta, META.replace("[1]", degrees)).unwrap();
        let table = folder.path().join(table);
        fs::create_dir_all(table.parent().unwrap()).unwrap();
        fs::write(&table, DECODES).unwrap();
        let import = Import {
            source: ImportSource::Llmservingsim,
            gpu: "rtx-4090".to_owned(),
            models: Vec::new(),
            launch_overhead_us: DEFAULT_LAUNCH_OVERHEAD_US,
            files: vec![table, meta.clone()],
        };
        let card = import.run("card", "2026-01-01").map_err(|error| error.to_string());
        card.map_err(|error| error.replace(&format!("{}/", folder.path().display()), ""))
    };
    assert!(import("[1, 2]", "tp1/attention.csv").is_ok());
    assert!(import("[1, 2]", "RTX4090_tp1_attention.csv").is_ok());
    assert!(import("[1]", "attention.csv").is_ok());
    let must = "path: must be in a folder or of a name with tp1, as the profile is of degrees 1, 2";
    assert_eq!(
        import("[1, 2]", "tp2/attention.csv").unwrap_err(),
        format!("tp2/attention.csv: {must}, got tp2")
    );
    assert_eq!(
        import("[1, 2]", "attention.csv").unwrap_err(),
        format!("attention.csv: {must}, got none")
    );
}

/// Microseconds for milliseconds, in one row, either way.
#[test]
fn a_figure_in_another_unit_is_refused_where_it_stands() {
    let refused = |line_3: f64| {
        let text = format!(
            "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n0,0,1,16,10\n0,0,1,32,{line_3}\n0,0,1,64,14\n0,0,1,128,16\n"
        );
        profile(&[&text])
    };
    let table = "decoder_decode model=llama3.1-8b dtype=bf16 tensor_parallel=1";
    assert_eq!(
        refused(12_000.0).unwrap_err(),
        format!(
            "0.csv:3: {table}: must be at most 5 times what more work takes, 14 µs at 1 × 64 (line 4), in the same \
             unit, got 12000 µs at 1 × 32"
        )
    );
    assert_eq!(
        refused(0.012).unwrap_err(),
        format!(
            "0.csv:3: {table}: must be at least 1/5 of what less work takes, 10 µs at 1 × 16 (line 2), in the same \
             unit, got 0.012 µs at 1 × 32"
        )
    );
    // A step of kernels is mended.
    let card = refused(20.0).unwrap();
    assert_eq!(
        median_us(card.tables.decoder_decode.iter().map(|row| row.stats)),
        [10.0, 17.0, 17.0, 18.0]
    );
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
    let card = profile(&[&dense, sequences, &attention]).unwrap();
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
    let at: Vec<_> = tables.decoder_prefill.iter().map(|row| (row.tokens, row.context)).collect();
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

    let of_decodes = profile(&[DECODES]).unwrap();
    assert_eq!(of_decodes.tables.decoder_decode.len(), 2);
    assert_eq!(
        of_decodes.origins.list().len(),
        1,
        "nothing is said of chunks that the source has not"
    );
    let twice = format!("{DECODES}0,0,1,16,11\n");
    assert_eq!(
        profile(&[&twice]).unwrap_err(),
        "0.csv:4: kv_decode: must be of a shape that no row above has, got \"16\""
    );

    for (one, place) in [(dense.as_str(), 1), (sequences, 2), (&attention, 3)] {
        let refused = profile(&[&dense, sequences, &attention, one]).unwrap_err();
        assert_eq!(refused, SECOND.replace('1', "3"), "sheet {place} twice");
    }

    let refused = profile(&[sequences]).unwrap_err();
    assert!(
        refused.starts_with("0.csv: header: must be given together with the same profile's dense file"),
        "{refused}"
    );
}
