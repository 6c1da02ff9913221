//! Every way in which a profile can be broken is refused with the file, the line and what was expected.

use std::fs;
use std::path::Path;

use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{Added, Card, DType, DecoderStepRow, EncoderLayerRow, ProfileError, Stats};

/// A file, what is replaced in it by what, and the message after the folder's path.
type Broken = (&'static str, &'static str, &'static str, &'static str);

const BROKEN_CARDS: &[Broken] = &[
    (
        "card.yaml",
        "memory_bytes:",
        "memory_byte:",
        "card.yaml:5: device.memory_byte: must be name, kind, memory_bytes, reserve_bytes, shares_host_memory, driver, \
         libtorch or host, got an unknown key; did you mean memory_bytes?",
    ),
    (
        "card.yaml",
        "  seed: 0\n",
        "",
        "card.yaml:18: provenance.seed: must be given, got nothing",
    ),
    (
        "card.yaml",
        "kind: cpu",
        "kind: cdua",
        "card.yaml:4: device.kind: must be cpu or cuda, got cdua; did you mean cuda?",
    ),
    (
        "card.yaml",
        "host: 2",
        "host: two",
        "card.yaml:11: lanes.host: must be a whole number, got \"two\"",
    ),
    (
        "card.yaml",
        "host: 2",
        "host: 0",
        "card.yaml:11: lanes.host: must be at least 1, got 0",
    ),
    (
        "card.yaml",
        "host: 2",
        "host: -2",
        "card.yaml:11: lanes.host: must be a whole number, got -2",
    ),
    (
        "card.yaml",
        "1.2",
        "0.9",
        "card.yaml:14: contention.copy_beside_compute: must be a factor from 1 to 1000, got 0.9",
    ),
    (
        "card.yaml",
        "1.2",
        ".nan",
        "card.yaml:14: contention.copy_beside_compute: must be a factor from 1 to 1000, got NaN",
    ),
    (
        "card.yaml",
        "reserve_bytes: 67108864",
        "reserve_bytes: 1073741824",
        "card.yaml:6: device.reserve_bytes: must be less than device.memory_bytes (1073741824), got 1073741824",
    ),
    (
        "card.yaml",
        "date: 1970-01-01",
        "date: yesterday",
        "card.yaml:19: provenance.date: must be a day, as 2025-01-31, got \"yesterday\"",
    ),
    (
        "card.yaml",
        "date: 1970-01-01",
        "date: 1970-13-01",
        "card.yaml:19: provenance.date: must be a day, as 2025-01-31, got \"1970-13-01\"",
    ),
    (
        "card.yaml",
        "name: synthetic",
        "name: ''",
        "card.yaml:1: name: must be a name, got nothing",
    ),
    (
        "card.yaml",
        "name: synthetic",
        "name: \"synth\\netic\"",
        "card.yaml:1: name: must be a name without line breaks or other control characters, got \"synth\\netic\"",
    ),
    (
        "card.yaml",
        "name: synthetic",
        "name: 'synthetic",
        "card.yaml:20: card: must be valid YAML, got did not find expected key",
    ),
];

const BROKEN_TABLES: &[Broken] = &[
    (
        "dispatch.csv",
        "tell,100,20.4,",
        "tell,0,20.4,",
        "dispatch.csv:3: count: must be at least 1, or 0 of a table's point with two measured ones before it along its \
         first axis, got 0",
    ),
    (
        "dispatch.csv",
        "wake,100,5.1,5,",
        "wake,100,5.1,NaN,",
        "dispatch.csv:2: median_us: must be microseconds above 0 and up to 1e10, got \"NaN\"",
    ),
    (
        "dispatch.csv",
        "wake,100,5.1,5,",
        "wake,100,5.1,inf,",
        "dispatch.csv:2: median_us: must be microseconds above 0 and up to 1e10, got \"inf\"",
    ),
    (
        "dispatch.csv",
        "wake,100,5.1,5,",
        "wake,100,5.1,-5,",
        "dispatch.csv:2: median_us: must be microseconds above 0 and up to 1e10, got \"-5\"",
    ),
    (
        "dispatch.csv",
        "wake,100,5.1,5,",
        "wake,100,5.1,0,",
        "dispatch.csv:2: median_us: must be microseconds above 0 and up to 1e10, got \"0\"",
    ),
    (
        "dispatch.csv",
        "wake,100,5.1,5,",
        "wake,100,5.1,,",
        "dispatch.csv:2: median_us: must be microseconds above 0 and up to 1e10, got \"\"",
    ),
    (
        "dispatch.csv",
        "wake,100,5.1,5,",
        "wake,100,5.1,4,",
        "dispatch.csv:2: median_us: must be at least p05_us (4.75), got 4",
    ),
    (
        "dispatch.csv",
        "wake,100,5.1,5,",
        "wake,100,5.1,6,",
        "dispatch.csv:2: p95_us: must be at least median_us (6), got 5.5",
    ),
    (
        "dispatch.csv",
        "5.5,6.5",
        "5.5,5.4",
        "dispatch.csv:2: p99_us: must be at least p95_us (5.5), got 5.4",
    ),
    (
        "dispatch.csv",
        "wake,100,5.1,",
        "wake,100,4,",
        "dispatch.csv:2: mean_us: must be at least what its quantiles add up to (4.6725), got 4",
    ),
    (
        "dispatch.csv",
        "tell,100",
        "tel,100",
        "dispatch.csv:3: operation: must be wake, tell, alarm, inspect or issue, got \"tel\"; did you mean tell?",
    ),
    (
        "dispatch.csv",
        "tell,100",
        "wake,100",
        "dispatch.csv:3: line: must be a point measured once, got operation=wake, which line 2 has",
    ),
    (
        "dispatch.csv",
        "tell,100",
        "tell,7,100",
        "dispatch.csv:3: line: must be 7 values, got 8",
    ),
    (
        "dispatch.csv",
        "p05_us",
        "p5_us",
        "dispatch.csv:1: header: must be operation, count, mean_us, median_us, p05_us, p95_us or p99_us, got \
         \"p5_us\"; did you mean p05_us?",
    ),
    (
        "dispatch.csv",
        "p05_us",
        "p95_us",
        "dispatch.csv:1: header: must be each column once, got \"p95_us\" again",
    ),
    (
        "dispatch.csv",
        "operation,count,",
        "count,",
        "dispatch.csv:1: operation: must be a column, got no such column",
    ),
    (
        "copy.csv",
        "false,1024,",
        "no,1024,",
        "copy.csv:2: pinned: must be true or false, got \"no\"",
    ),
    (
        "copy.csv",
        "false,1024,",
        "false,1 KiB,",
        "copy.csv:2: bytes: must be a whole number from 1 to 281474976710656, got \"1 KiB\"",
    ),
    (
        "head.csv",
        "tiny,f32,1,2,",
        "tiny,fp32,1,2,",
        "head.csv:14: dtype: must be f32, bf16 or f16, got \"fp32\"; did you mean f32?",
    ),
    (
        "head.csv",
        "tiny,f32,1,2,",
        "tiny,f32,0,2,",
        "head.csv:14: batch: must be a whole number from 1 to 4294967295, got \"0\"",
    ),
    (
        "head.csv",
        "tiny,f32,1,2,",
        ",f32,1,2,",
        "head.csv:14: model: must be a name, got \"\"",
    ),
    (
        "head.csv",
        "tiny,f32,1,2,",
        "tinny,f32,1,2,",
        "head.csv:14: model: must be a model listed in card.yaml or a built-in: tiny, bert-tiny, bert-mini, \
         bert-small, bert-base, bert-large, distilbert, tinybert-4, tinybert-6, tiny-opt, opt-125m, distilgpt2, \
         tiny-llama, phi-2, llama-7b, llama3-8b, llama3.1-8b, llama-13b or llama-70b, got \"tinny\"; did you mean \
         tiny?",
    ),
    (
        "head.csv",
        "tiny,f32,1,2,100,10.71,10.5,9.975,11.55,13.65\n",
        "",
        "head.csv:14: model=tiny dtype=f32: must be every combination of batch × classes, got no row for batch=1 \
         classes=2 beside this one (1 missing in all)",
    ),
    (
        "adapter.csv",
        "tiny,f32,loop,16,1,1,16,",
        "tiny,f32,loop,16,2,1,16,",
        "adapter.csv:506: tenants: must be at most batch (1), got 2",
    ),
    (
        "decoder_prefill.csv",
        "tiny-llama,f32,1,8,64,",
        "tiny-llama,f32,1,8,4,",
        "decoder_prefill.csv:7: tokens: must be at most context (4), got 8",
    ),
    (
        "decoder_prefill.csv",
        "tiny-llama,f32,1,8,64,",
        "tiny-llama,f32,1,8,65,",
        "decoder_prefill.csv:7: model=tiny-llama dtype=f32 tensor_parallel=1: must be every combination of tokens × \
         context, got no row for tokens=1 context=65 beside this one (3 missing in all)",
    ),
    (
        "decoder_decode.csv",
        "tiny-llama,f32,1,8,64,",
        "tiny-llama,f32,0,8,64,",
        "decoder_decode.csv:8: tensor_parallel: must be a whole number from 1 to 4294967295, got \"0\"",
    ),
    (
        "decoder_dense.csv",
        "tiny-llama,f32,1,8,100,",
        "tiny-lama,f32,1,8,100,",
        "decoder_dense.csv:3: model: must be a model listed in card.yaml or a built-in: ",
    ),
    (
        "decoder_ends.csv",
        "tiny-llama,f32,1,1,8,",
        "tiny-llama,f32,1,1,1,",
        "decoder_ends.csv:3: line: must be a point measured once, got model=tiny-llama dtype=f32 tensor_parallel=1 \
         sequences=1 tokens=1, which line 2 has",
    ),
    (
        "lora.csv",
        "grouped,8,1,1,",
        "groupd,8,1,1,",
        "lora.csv:2: implementation: must be loop, gather-bmm or grouped, got \"groupd\"; did you mean grouped?",
    ),
    (
        "plot_lookup.csv",
        "memory,any,texts,1,1,",
        "ram,any,texts,1,1,",
        "plot_lookup.csv:2: tier: must be memory or disk, got \"ram\"",
    ),
    (
        "plot_lookup.csv",
        "memory,any,texts,1,1,",
        "memory,root-hits,texts,1,1,",
        "plot_lookup.csv:2: outcome: must be any, domain-hit, root-hit or fallback, got \"root-hits\"; did you mean \
         root-hit?",
    ),
    (
        "plot_lookup.csv",
        "memory,any,texts,1,1,",
        "memory,any,sequence,1,1,",
        "plot_lookup.csv:2: tokens_of: must be texts or sequences, got \"sequence\"; did you mean sequences?",
    ),
    (
        "head.csv",
        "tiny,f32,32,2,100,26.52,26,24.7,28.6,33.800000000000004",
        "tiny,f32,32,2,100,2652000000,26,24.7,28.6,33.800000000000004",
        "head.csv:24: mean_us: must be at most 10 times p99_us (338",
    ),
    (
        "head.csv",
        "tiny,f32,32,2,100,26.52,26,24.7,28.6,33.800000000000004",
        "tiny,f32,32,2,100,10.2,10,10,11,12",
        "head.csv:24: median_us: must be no less than batch=8 classes=2's 14 (line 20) beyond the measured spread; \
         measure both again, got 10 for model=tiny dtype=f32 batch=32 classes=2",
    ),
];

fn message_of(broken: &Broken) -> String {
    let &(file, old, new, _) = broken;
    let folder = tempfile::tempdir().unwrap();
    let card = folder.path().join("card");
    synthetic_card().save(&card).unwrap();
    let text = fs::read_to_string(card.join(file)).unwrap();
    assert!(text.contains(old), "{file} has no {old:?}");
    fs::write(card.join(file), text.replacen(old, new, 1)).unwrap();
    let message = Card::load(&card).expect_err(&format!("{broken:?} must be refused")).to_string();
    message.replace(&format!("{}/", card.display()), "")
}

#[test]
fn broken_profiles_are_refused_where_they_are_broken() {
    let mut differences = Vec::new();
    for broken in BROKEN_CARDS.iter().chain(BROKEN_TABLES) {
        let message = message_of(broken);
        // A YAML parser's own words may go on after what is expected here.
        if !message.starts_with(broken.3) {
            differences.push(format!("     got: {message}\nexpected: {}", broken.3));
        }
    }
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
}

#[test]
fn broken_folders_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let message = |path: &Path| Card::load(path).unwrap_err().to_string();

    let absent = folder.path().join("absent");
    assert!(message(&absent).contains("absent/card.yaml: must be a file that can be read, got: No such file"));

    synthetic_card().save(&absent).unwrap();
    fs::write(absent.join("encoder_layers.csv"), "").unwrap();
    let unknown = message(&absent);
    assert!(unknown.contains("absent: encoder_layers.csv: must be encoder_layer.csv, embedding.csv, "));
    assert!(unknown.ends_with("got an unknown table; did you mean encoder_layer.csv?"));

    fs::remove_file(absent.join("encoder_layers.csv")).unwrap();
    fs::copy(absent.join("head.csv"), absent.join("head.held-out.csv")).unwrap();
    let priced = message(&absent);
    assert!(
        priced.contains("absent/head.held-out.csv:2: model=")
            && priced.contains("must be points that head.csv does not have, got batch=1"),
        "{priced}"
    );
    fs::remove_file(absent.join("head.held-out.csv")).unwrap();

    let heads = fs::read_to_string(absent.join("head.csv")).unwrap();
    fs::write(absent.join("head.csv"), heads.lines().next().unwrap()).unwrap();
    let emptied = message(&absent);
    assert!(
        emptied.ends_with("absent/head.csv: line: must be at least one point, got none below the header"),
        "{emptied}"
    );
    fs::write(absent.join("head.csv"), heads).unwrap();
    fs::write(absent.join("copy.csv"), [0xff, 0xfe]).unwrap();
    assert!(message(&absent).contains("absent/copy.csv: must be a file that can be read, got: "));
}

/// A hundred rows that share no coordinate ask for a hundred million points, and are refused without room for these.
#[test]
fn what_a_table_lacks_is_not_written_out() {
    let folder = tempfile::tempdir().unwrap();
    let card = folder.path().join("card");
    synthetic_card().save(&card).unwrap();
    let mut rows = String::from(
        "model,dtype,tensor_parallel,tokens,first_context,sequences,context,count,mean_us,median_us,p05_us,p95_us,p99_us\n",
    );
    for row in 1..=100 {
        rows += &format!("tiny-llama,f32,1,{row},{row},{row},{row},1,{row},{row},{row},{row},{row}\n");
    }
    fs::write(card.join("decoder_mixed.csv"), rows).unwrap();
    let message = Card::load(&card).unwrap_err().to_string();
    assert!(
        message.contains(
            "got no row for tokens=1 first_context=1 sequences=1 context=2 beside this one (10000 or more \
             missing in all)"
        ),
        "{message}"
    );
}

/// Rows of a model that their family does not price, on cards that cannot share it, or of a second number of layers, of
/// which one is looked up.
#[test]
fn a_table_that_would_price_nothing_is_refused() {
    let refused = |change: &dyn Fn(&mut Card)| {
        let mut card = synthetic_card();
        change(&mut card);
        card.validate().unwrap_err().to_string()
    };
    let of_a_decoder = refused(&|card| {
        let rows = card.tables.encoder_layer.iter_mut();
        rows.for_each(|row| row.model = "tiny-llama".to_owned());
    });
    assert_eq!(
        of_a_decoder,
        "synthetic/encoder_layer.csv:2: model: must be a model of kind encoder, got tiny-llama of kind decoder"
    );
    let of_an_encoder = refused(&|card| {
        let rows = card.tables.decoder_dense.iter_mut();
        rows.for_each(|row| row.model = "tiny".to_owned());
    });
    assert_eq!(
        of_an_encoder,
        "synthetic/decoder_dense.csv:2: model: must be a model of kind decoder, got tiny of kind encoder"
    );
    let on_three_cards = refused(&|card| {
        let rows = card.tables.decoder_dense.iter_mut();
        rows.for_each(|row| row.tensor_parallel = 3);
    });
    assert_eq!(
        on_three_cards,
        "synthetic/decoder_dense.csv:2: tensor_parallel: must be a divisor of the 2 heads of tiny-llama that keys and values \
         have, got 3"
    );
    let of_two_depths = refused(&|card| {
        let step = |layers| DecoderStepRow {
            model: "tiny-llama".to_owned(),
            dtype: DType::F32,
            layers,
            added: Added::Nothing,
            chunk_tokens: 1,
            sequences: 1,
            context: 16,
            stats: card.tables.decoder_dense[0].stats,
        };
        card.tables.decoder_step = vec![step(1), step(2)];
    });
    assert_eq!(
        of_two_depths,
        "synthetic/decoder_step.csv:3: layers: must be 1, as line 2 has it of the same model, got 2"
    );
}

/// As some editors write them.
#[test]
fn a_byte_order_mark_is_no_part_of_a_card() {
    let folder = tempfile::tempdir().unwrap();
    let card = folder.path().join("card");
    synthetic_card().save(&card).unwrap();
    let text = fs::read_to_string(card.join("card.yaml")).unwrap();
    fs::write(card.join("card.yaml"), format!("\u{feff}{text}")).unwrap();
    assert_eq!(Card::load(&card).unwrap().digest(), synthetic_card().digest());
}

#[test]
fn a_card_that_could_not_be_loaded_is_not_saved() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("card");
    let mut card = synthetic_card();
    let stats = Stats {
        count: 1,
        mean_us: 1.0,
        median_us: f64::NAN,
        p05_us: 1.0,
        p95_us: 1.0,
        p99_us: 1.0,
    };
    card.tables.encoder_layer.push(EncoderLayerRow {
        model: "tiny".into(),
        dtype: DType::Bf16,
        batch: 1,
        tokens: 1,
        stats,
    });
    for result in [card.validate(), card.save(&path)] {
        let message = result.unwrap_err().to_string();
        assert!(
            message.contains("encoder_layer.csv:50: median_us: must be microseconds above 0"),
            "{message}"
        );
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn unknown_cards_are_answered_with_the_known() {
    let root = tempfile::tempdir().unwrap();
    synthetic_card().save(&root.path().join("profiles/cards/synthetic")).unwrap();
    let search = [root.path().to_path_buf()];
    let error = Card::find("sinthetic", &search).unwrap_err();
    assert!(matches!(error, ProfileError::UnknownCard { .. }));
    let message = error.to_string();
    assert!(
        message.starts_with("must be a folder with a card.yaml or one of "),
        "{message}"
    );
    assert!(message.ends_with("got sinthetic; did you mean synthetic?"), "{message}");
}
