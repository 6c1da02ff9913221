//! LLMServingSim's layers in vLLM.

use tenantry_profiles::ImportSource;

use super::{SECOND, has_note, import, median_us};

/// Microseconds for milliseconds, in one row, either way.
#[test]
fn a_figure_in_another_unit_is_refused_where_it_stands() {
    let refused = |line_3: f64| {
        let text = format!(
            "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n0,0,1,16,10\n0,0,1,32,{line_3}\n0,0,1,64,14\n0,0,1,128,16\n"
        );
        import(ImportSource::Llmservingsim, "rtx-4090", &[], &[&text])
    };
    let table = "decoder_decode model=llama3.1-8b dtype=bf16 tensor_parallel=1";
    assert_eq!(
        refused(12_000.0).unwrap_err(),
        format!(
            "0.csv:3: {table}: must be at most 5 times what more work takes, 14 µs at 1 × 64 (line 4), in the same unit, \
             got 12000 µs at 1 × 32"
        )
    );
    assert_eq!(
        refused(0.012).unwrap_err(),
        format!(
            "0.csv:3: {table}: must be at least 1/5 of what less work takes, 10 µs at 1 × 16 (line 2), in the same unit, \
             got 0.012 µs at 1 × 32"
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

    for (one, place) in [(dense.as_str(), 1), (sequences, 2), (&attention, 3)] {
        let sheets = [&dense, sequences, &attention, one];
        let refused = import(ImportSource::Llmservingsim, "rtx-4090", &[], &sheets).unwrap_err();
        assert_eq!(refused, SECOND.replace('1', "3"), "sheet {place} twice");
    }

    let refused = import(ImportSource::Llmservingsim, "rtx-4090", &[], &[sequences]).unwrap_err();
    assert!(
        refused.starts_with("0.csv: header: must be given together with the same profile's dense file"),
        "{refused}"
    );
}
