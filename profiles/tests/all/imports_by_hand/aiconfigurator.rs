//! aiconfigurator's kernels.

use tenantry_profiles::{Card, DType, DecoderDenseRow, Family, ImportSource, Source, Tables};

use super::{SECOND, import, median_us};

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
    // 64 × 128 rows: norms move three times as many numbers of two bytes as the layer is wide, the activation two of
    // 512.
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
        "1.csv:2: latency_ms: must be a time above 0 and up to 1e6, got \"-0.02\""
    );
}

/// As when a pattern of names has two cards' files.
#[test]
fn two_files_of_one_kind_are_refused() {
    for sheet in kernels() {
        let refused = import(ImportSource::Aiconfigurator, "h100-sxm", &["tiny"], &[&sheet, &sheet]);
        assert_eq!(refused.unwrap_err(), SECOND);
    }
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
    // Prompts of 256 tokens were measured up to 16 of them, and those between 128 and 256 lie between what was and what
    // was not.
    let beyond = |prompts: usize, tokens: u32| {
        let chunks = vec![(tokens, tokens); prompts];
        let mut told = None;
        decoder.beyond(&chunks, 0, 0, |family, beyond| {
            if family == Family::DecoderPrompts {
                told = Some(beyond.to_string());
            }
        });
        assert_eq!(
            decoder.covers(&chunks, 0, 0),
            told.is_none() && prompts as u32 * tokens <= 8192
        );
        told
    };
    assert_eq!(beyond(16, 256), None);
    assert_eq!(beyond(128, 128), None);
    assert_eq!(beyond(17, 129).as_deref(), Some("prompts 17, measured up to 16"));
    assert_eq!(beyond(100, 256).as_deref(), Some("prompts 100, measured up to 16"));
    let counts = card.tables.decoder_prompts.iter().filter(|row| row.tensor_parallel == 1);
    let unmeasured = counts.filter(|row| row.stats.count == 0).map(|row| (row.prompts, row.tokens));
    assert_eq!(unmeasured.collect::<Vec<_>>(), [(32, 256), (64, 256), (128, 256)]);

    // It is written and read as such.
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("card");
    card.save(&place).unwrap();
    assert_eq!(Card::load(&place).unwrap().tables, card.tables);
}

/// New tokens of as many sequences as were measured at their context, and of more.
#[test]
fn aiconfigurators_new_tokens_beyond_those_measured_are_told_of() {
    let mut new_tokens = String::from("batch_size,kv_len_before,num_heads,num_key_value_heads,head_dim,latency_ms\n");
    for (cached, most) in [(63, 256), (255, 64), (1023, 8)] {
        for batch in [1, 2, 4, 8, 64, 256].into_iter().filter(|batch| *batch <= most) {
            new_tokens += &format!("{batch},{cached},4,2,32,{}\n", 1e-5 * f64::from(batch * cached));
        }
    }
    let prompts =
        "batch_size,isl,num_heads,num_key_value_heads,head_dim,latency_ms\n1,64,4,2,32,0.01\n1,1024,4,2,32,0.02\n";
    let card = tiny_llama_of(prompts, &new_tokens);
    let decode = card.decoder(&card.model("tiny-llama").unwrap(), DType::Bf16, 1).unwrap().decode;
    let beyond = |sequences, context| decode.beyond(sequences, context).map(|beyond| beyond.to_string());
    for (sequences, context) in [(256, 64), (64, 256), (64, 65), (8, 1024), (1, 700)] {
        assert_eq!(beyond(sequences, context), None, "{sequences} × {context}");
        assert!(decode.covers(sequences, context));
    }
    for (sequences, context, measured) in [(65, 65, 64), (256, 256, 64), (9, 257, 8), (256, 1024, 8), (300, 700, 8)] {
        let told = format!("sequences {sequences}, measured up to {measured}");
        assert_eq!(beyond(sequences, context), Some(told), "{sequences} × {context}");
        assert!(!decode.covers(sequences, context));
    }
    assert_eq!(beyond(257, 64).as_deref(), Some("sequences 257, measured up to 256"));
    assert_eq!(beyond(1, 4096).as_deref(), Some("context 4096, measured up to 1024"));
}

/// A conversion to CSV that keeps what the shipped one leaves out.
#[test]
fn rows_of_other_kernels_are_refused_where_they_stand() {
    let [products, attention] = kernels();
    let with = |text: &str, column: &str, cells: [&str; 2]| {
        let line = |(number, line): (usize, &str)| match number {
            0 => format!("{line},{column}\n"),
            1 => format!("{line},{}\n", cells[0]),
            _ => format!("{line},{}\n", cells[1]),
        };
        text.lines().enumerate().map(line).collect::<String>()
    };
    let of = |products: &str, attention: &str| {
        import(
            ImportSource::Aiconfigurator,
            "h100-sxm",
            &["tiny"],
            &[products, attention],
        )
    };
    for (column, right, wrong, must) in [
        ("gemm_dtype", "bfloat16", "fp8_block", "bfloat16 or bf16"),
        ("dtype", "bf16", "float16", "bfloat16 or bf16"),
        ("framework", "VLLM", "TRTLLM", "VLLM, vLLM or vllm"),
    ] {
        assert!(of(&with(&products, column, [right; 2]), &attention).is_ok());
        assert_eq!(
            of(&with(&products, column, [right, wrong]), &attention).unwrap_err(),
            format!("0.csv:3: {column}: must be {must}, got \"{wrong}\"")
        );
    }
    for (column, right, wrong, must) in [
        ("attn_dtype", "bfloat16", "fp8", "bfloat16 or bf16"),
        ("kv_cache_dtype", "bfloat16", "fp8", "bfloat16 or bf16"),
        ("window_size", "0", "128", "0"),
        ("step", "0", "63", "0"),
    ] {
        assert!(of(&products, &with(&attention, column, [right; 2])).is_ok());
        assert_eq!(
            of(&products, &with(&attention, column, [right, wrong])).unwrap_err(),
            format!("1.csv:3: {column}: must be {must}, got \"{wrong}\"")
        );
    }
}

#[test]
fn versions_of_kernels_are_those_that_the_files_say() {
    let [products, attention] = kernels();
    let source = |products: &str| {
        let card = import(
            ImportSource::Aiconfigurator,
            "h100-sxm",
            &["tiny"],
            &[products, &attention],
        )
        .unwrap();
        card.origins.list()[0].source.clone()
    };
    let of = "aiconfigurator (ai-dynamo/aiconfigurator @095f58a, Apache-2.0), vLLM";
    let layer = "kernels, bf16: a layer composed of 8 kernels";
    assert_eq!(
        source(&products),
        format!("{of} of a version that the files do not say {layer}")
    );
    let cells = products.replace(".01\n", ".01,0.24.0\n").replacen("latency_ms", "latency_ms,version", 1);
    assert_eq!(source(&cells), format!("{of} 0.24.0 {layer}"));
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
    assert!(
        card.origins.list()[0]
            .source
            .ends_with(": nccl of a version that the files do not say, half; its sizes are numbers, two bytes each")
    );
}
