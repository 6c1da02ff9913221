//! `tenantry profile`: what its commands print, write and refuse, that measuring can be stopped; and that a run says
//! what it used.

use std::fs;
use std::path::Path;

use crate::common::{folder, good, good_json, tenantry};
use tenantry_profiles::{Card, Source};

fn refused(folder: &Path, args: &[&str]) -> String {
    let output = tenantry(folder, args);
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_datasheet_becomes_a_card_that_says_so() {
    let folder = folder();
    let at = folder.path();
    let derive = [
        "profile",
        "derive",
        "--datasheet",
        "t4",
        "--models",
        "tiny,bert-base",
        "--out",
        "out/my-t4",
    ];
    let text = good(at, &derive);
    assert!(
        text.contains("my-t4: NVIDIA T4") && text.contains("measured on no device"),
        "{text}"
    );
    let shown = good_json(at, &["profile", "show", "out/my-t4"]);
    for table in shown["tables"].as_array().unwrap() {
        let kind = table["origin"]["kind"].as_str().unwrap();
        assert!(["derived", "assumed"].contains(&kind), "{table}");
    }
    // A scenario that is priced by it says which of its tables it used, once each.
    let scenario = at.join("s.yaml").display().to_string();
    good(at, &["simulate", &scenario, "--profile", "out/my-t4", "--out", "run"]);
    let manifest: serde_json::Value = serde_json::from_slice(&fs::read(at.join("run/manifest.json")).unwrap()).unwrap();
    let caveats: Vec<&str> = manifest["caveats"].as_array().unwrap().iter().map(|c| c.as_str().unwrap()).collect();
    let derived: Vec<_> =
        caveats.iter().filter(|caveat| caveat.contains("derived (roofline of datasheet t4")).collect();
    assert!(
        caveats.contains(
            &"Compute, copies and look-ups are taken not to slow each other down on my-t4: no source says by how much they do."
        ),
        "{caveats:?}"
    );
    // Each with the error of its own kind.
    let of = |table: &str| derived.iter().find(|caveat| caveat.contains(table)).expect(table);
    assert!(
        of("adapter model=tiny dtype=f32").contains("±27 % at the median"),
        "{caveats:?}"
    );
    assert!(
        of("encoder_layer model=tiny dtype=f32").contains("±22 %"),
        "{caveats:?}"
    );
    assert!(
        derived.iter().all(|caveat| !caveat.contains("bert-base") && !caveat.contains("pet")),
        "not used: {caveats:?}"
    );

    // What somebody measured or imported is not replaced, nor hidden by its name.
    let shipped = refused(at, &["profile", "derive", "--datasheet", "l4"]);
    assert!(
        shipped.contains("profiles/cards/l4: must be a card that was derived or no card, got one that was imported"),
        "{shipped}"
    );
    let copied = at.join("out/epyc");
    Card::embedded("cpu-epyc").unwrap().unwrap().save(&copied).unwrap();
    let measured = refused(at, &["profile", "derive", "--datasheet", "l4", "--out", "out/epyc"]);
    assert!(
        measured.contains("out/epyc: must be a card that was derived or no card, got one that was measured"),
        "{measured}"
    );
    assert_eq!(Card::load(&copied).unwrap().provenance.source, Source::Measured);

    let message = refused(at, &["profile", "derive", "--datasheet", "t5", "--out", "out/x"]);
    assert!(
        message.contains("--datasheet: must be a YAML file or one of"),
        "{message}"
    );
    fs::write(at.join("half.yaml"), "name: half\n").unwrap();
    let message = refused(at, &["profile", "derive", "--datasheet", "half.yaml", "--out", "out/x"]);
    assert!(
        message.contains("half.yaml") && message.contains("product: must be given"),
        "{message}"
    );
    assert!(!at.join("out/x").exists());
}

#[test]
fn a_paper_becomes_a_card_with_its_results_and_what_they_hang_on() {
    let folder = folder();
    let at = folder.path();
    let made = good_json(
        at,
        &[
            "profile",
            "derive",
            "--paper",
            "paper-p5000",
            "--out",
            "out/paper-p5000",
        ],
    );
    let inputs = made["inputs"].as_object().unwrap();
    assert_eq!(inputs["six_layers_ms"]["kind"], "stated");
    assert!(made["outcomes"].as_array().unwrap().iter().any(|outcome| outcome["role"] == "predicted"));
    assert!(made["sensitivities"].as_array().unwrap().iter().any(|s| s["number"] == "link_gbytes_per_s"));
    let same = good_json(at, &["profile", "compare", "paper-p5000", "out/paper-p5000"]);
    let ratios = same["ratios"].as_array().unwrap();
    assert!(
        !ratios.is_empty() && ratios.iter().all(|ratios| ratios["drift"] == 0.0),
        "the shipped card is this one"
    );
    assert_eq!(same["first"]["digest"], same["second"]["digest"]);
}

#[test]
fn a_profile_is_shown_as_a_page_and_its_form_as_a_schema() {
    let folder = folder();
    let at = folder.path();
    good(at, &["profile", "show", "card", "--report", "card.html"]);
    let html = fs::read_to_string(at.join("card.html")).unwrap();
    for what in [
        "Encoder layer by length",
        "Encoder layer by batch",
        "Copies to the card",
        "Roofline",
        "Adapters of a layer",
    ] {
        assert!(html.contains(what), "{what}");
    }
    assert!(!html.contains("src=\"http") && !html.contains("href=\"http"));
    let schema: serde_json::Value = serde_json::from_str(&good(at, &["profile", "show", "--schema"])).unwrap();
    for key in ["name", "device", "provenance", "origins", "models"] {
        assert!(schema["properties"][key].is_object(), "{key}");
    }
    assert!(
        schema["properties"]["tables"].is_null(),
        "tables lie in files of their own"
    );
    let text = good(at, &["profile", "compare", "card", "cpu"]);
    assert!(text.contains("encoder_layer") && text.contains("Drift"), "{text}");
}

/// Whether a cell is what a field of a Table Schema says.
fn conforms(cell: &str, field: &serde_json::Value) -> bool {
    let constraints = &field["constraints"];
    let number = || cell.parse::<f64>().unwrap_or(f64::NAN);
    let at_most = |most: &serde_json::Value| number() <= most.as_f64().unwrap();
    match field["type"].as_str().unwrap() {
        "boolean" => ["true", "false"].contains(&cell),
        "integer" => {
            cell.parse::<u64>()
                .is_ok_and(|whole| constraints["minimum"].as_u64().is_some_and(|least| least <= 1 && whole >= least))
                && at_most(&constraints["maximum"])
        }
        "number" => number() > constraints["exclusiveMinimum"].as_f64().unwrap() && at_most(&constraints["maximum"]),
        "string" => match constraints["enum"].as_array() {
            Some(names) => names.iter().any(|name| name == cell),
            None => !cell.is_empty(),
        },
        other => panic!("{other}"),
    }
}

#[test]
fn the_tables_of_every_measured_card_are_of_the_form_that_the_schema_gives() {
    let folder = folder();
    let forms: serde_json::Value =
        serde_json::from_str(&good(folder.path(), &["profile", "show", "--schema", "tables"])).unwrap();
    let resources = forms["resources"].as_array().unwrap();
    let cards = Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles/cards");
    let mut seen = std::collections::BTreeSet::new();
    for card in ["cpu", "cpu-epyc", "cpu-epyc-zen5", "rtx4090", "a100-sxm"] {
        for entry in fs::read_dir(cards.join(card)).unwrap() {
            let path = entry.unwrap().path();
            let Some(file) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".csv")) else {
                continue;
            };
            let family = file.trim_end_matches(".held-out");
            let resource = resources.iter().find(|resource| resource["name"] == family);
            let schema = &resource.unwrap_or_else(|| panic!("{family} has a form"))["schema"];
            let fields = schema["fields"].as_array().unwrap();
            let mut reader = csv::Reader::from_path(&path).unwrap();
            let header = reader.headers().unwrap().clone();
            let described: Vec<_> = header
                .iter()
                .map(|column| {
                    let field = fields.iter().find(|field| field["name"] == column);
                    field.unwrap_or_else(|| panic!("{family}.{column} has a form"))
                })
                .collect();
            for (line, record) in reader.records().enumerate() {
                for (cell, field) in record.unwrap().iter().zip(&described) {
                    assert!(conforms(cell, field), "{card}/{file}.csv:{}: {cell} {field}", line + 2);
                }
            }
            let mut keys = schema["primaryKey"].as_array().unwrap().iter();
            assert!(
                keys.all(|key| fields.iter().any(|field| field["name"] == *key)),
                "{family}"
            );
            seen.insert(family.to_owned());
        }
    }
    assert!(seen.len() >= 20, "{seen:?}");
    let described = |field: &serde_json::Value| field["description"].as_str().is_some_and(|text| text.len() > 3);
    let fields = resources.iter().flat_map(|resource| resource["schema"]["fields"].as_array().unwrap());
    assert!(fields.clone().count() > 200 && fields.clone().all(described));
}

#[test]
fn two_cards_are_compared_on_a_page() {
    let folder = folder();
    let at = folder.path();
    good(at, &["profile", "compare", "cpu", "card", "--report", "ratios.html"]);
    let html = fs::read_to_string(at.join("ratios.html")).unwrap();
    for what in ["chart-ratios", "all families", "encoder_layer", "p95"] {
        assert!(html.contains(what), "{what}");
    }
    assert!(!html.contains("src=\"http") && !html.contains("href=\"http"));
}

/// TensorRT's rows, written by hand, of BERT-base on a T4.
const ENGINES: &str = "gpu,model,precision,seq_len,batch_size,avg_ms,p95_ms,p99_ms,readme_commit,readme_date\n\
    T4 16GB,BERT base,FP16,128,1,1.9,2.0,2.1,abc,2026-01-01\nT4 16GB,BERT base,FP16,384,1,4.8,4.9,5.0,abc,2026-01-01\n";
const COPIES: &str = "gpu,link,direction,host_memory,bandwidth_GBps,note\nP100,PCIe 3.0 x16,h2d,pinned,12.0,\n";

#[test]
fn public_tables_become_a_card_source_by_source() {
    let folder = folder();
    let at = folder.path();
    fs::write(at.join("engines.csv"), ENGINES).unwrap();
    fs::write(at.join("copies.csv"), COPIES).unwrap();
    let import = |source: &'static str, file: &'static str| {
        [
            "profile",
            "import",
            "--from",
            source,
            "--gpu",
            "t4",
            file,
            "--out",
            "out/my-t4",
        ]
    };
    let made = good_json(at, &import("tensorrt-bert", "engines.csv"));
    assert_eq!((&made["name"], &made["folder"]), (&"my-t4".into(), &"out/my-t4".into()));
    let origins = |shown: &serde_json::Value| {
        let tables = shown["tables"].as_array().unwrap().iter();
        let name = |table: &serde_json::Value| {
            ["family", "table"].map(|part| table[part].as_str().unwrap().to_owned()).join(" ")
        };
        let named = tables.map(|table| (name(table), table["origin"]["kind"].clone()));
        named.collect::<std::collections::BTreeMap<_, _>>()
    };
    let pinned = "copy direction=host-to-device pinned=true";
    let first = origins(&good_json(at, &["profile", "show", "out/my-t4"]));
    assert_eq!(
        (&first["static_model model=bert-base dtype=f16"], &first[pinned]),
        (&"imported".into(), &"derived".into())
    );
    // Another source's table takes the place of the derived one, and leaves the others.
    good(at, &import("host-device-bandwidth", "copies.csv"));
    let both = good_json(at, &["profile", "show", "out/my-t4"]);
    let second = origins(&both);
    assert_eq!((first.len(), &second[pinned]), (second.len(), &"imported".into()));
    let command = both["provenance"]["command"].as_str().unwrap();
    assert_eq!(command.matches("tenantry profile import").count(), 2, "{command}");

    let message = refused(at, &import("tensorrt-bert", "copies.csv"));
    assert!(
        message.contains("copies.csv: gpu: must be T4 16GB in some row"),
        "{message}"
    );
    let gap = [
        &import("tensorrt-bert", "engines.csv")[..],
        &["--launch-overhead-us", "2"],
    ]
    .concat();
    let message = refused(at, &gap);
    assert!(
        message.contains("--launch-overhead-us: must be left out for tensorrt-bert: "),
        "{message}"
    );
    // A file's name is only a name; two that differ are of two cards.
    fs::copy(at.join("engines.csv"), at.join("a100_engines.csv")).unwrap();
    let text = good(at, &import("tensorrt-bert", "a100_engines.csv"));
    assert!(
        text.contains("tensorrt-bert: a100_engines.csv is taken as of t4, as --gpu says, and its name says a100"),
        "{text}"
    );
    fs::copy(at.join("engines.csv"), at.join("t4_engines.csv")).unwrap();
    let both = [&import("tensorrt-bert", "a100_engines.csv")[..], &["t4_engines.csv"]].concat();
    let message = refused(at, &both);
    assert!(
        message.contains("t4_engines.csv: name: must be of the GPU that a100_engines.csv says (a100): "),
        "{message}"
    );
    let message = refused(at, &import("tensorrt-bert", "engine.csv"));
    assert!(
        message.contains("engine.csv: must be a file that can be read, got: "),
        "{message}"
    );
    let other = [
        "profile",
        "import",
        "--from",
        "tensorrt-bert",
        "--gpu",
        "v100-16g",
        "engines.csv",
        "--out",
        "out/my-t4",
    ];
    let message = refused(at, &other);
    assert!(message.contains("gpu: must be V100 16GB"), "{message}");
    // Only what was imported is imported into.
    let message = refused(
        at,
        &[
            "profile",
            "import",
            "--from",
            "tensorrt-bert",
            "--gpu",
            "t4",
            "engines.csv",
            "--out",
            "card",
        ],
    );
    assert!(
        message.contains("provenance.source: must be imported, to be added to"),
        "{message}"
    );
}

/// A card of another processor is not added to, and none that is not there; nothing is measured before that is said.
#[cfg(feature = "libtorch")]
#[test]
fn only_a_card_of_this_device_is_added_to() {
    let folder = folder();
    let add = |out: &'static str| ["profile", "--device", "cpu", "--models", "tiny", "--add", "--out", out];
    let message = refused(folder.path(), &add("card"));
    assert!(
        message.contains("synthetic: device.name: must be") && message.contains("to be added to"),
        "{message}"
    );
    assert!(!message.contains("measuring"), "{message}");
    let message = refused(folder.path(), &add("nowhere"));
    assert!(
        message.contains("nowhere") && !message.contains("measuring"),
        "{message}"
    );
}

/// Ctrl-C leaves what was measured and no card; the same command goes on with it, and another is told which would.
#[cfg(all(feature = "libtorch", unix))]
#[test]
fn an_interrupted_profile_is_kept_and_gone_on_with() {
    let folder = folder();
    let at = folder.path();
    let interrupted = || {
        let args = ["profile", "--device", "cpu", "--models", "tiny", "--out", "out/here"];
        crate::common::interrupted_when(at, &args, |line| line.starts_with("measuring tiny on cpu"))
    };
    let first = interrupted();
    assert!(first.contains("out/here.partial keeps what was measured"), "{first}");
    assert!(!first.contains("going on with"), "{first}");
    assert!(at.join("out/here.partial").is_file() && !at.join("out/here").exists());
    let second = interrupted();
    assert!(second.contains("going on with out/here.partial"), "{second}");
    let other = [
        "profile", "--device", "cpu", "--models", "tiny", "--suite", "full", "--out", "out/here",
    ];
    let message = refused(at, &other);
    assert!(
        message.contains("here.partial: minutes: must be 14.0, as asked for, got 1.0"),
        "{message}"
    );
    assert!(
        message.contains("`tenantry profile --device cpu --suite quick --models tiny --out out/here`"),
        "{message}"
    );
}

/// Every kind of operation that this processor computes is what double precision makes of it, and a GPU that is not
/// there is said not to be.
#[cfg(feature = "libtorch")]
#[test]
fn a_device_is_checked_against_double_precision() {
    let folder = folder();
    let checked = good_json(folder.path(), &["doctor", "--device", "cpu"]);
    let checks = checked["checks"].as_array().unwrap();
    assert!(checks.len() > 40, "{checked}");
    assert!(checks.iter().all(|check| check["holds"] == true), "{checked}");
    for device in ["gpu", "cuda:77"] {
        for command in ["doctor", "profile"] {
            let message = refused(folder.path(), &[command, "--device", device]);
            assert!(message.starts_with("error: --device: must be cpu"), "{message}");
        }
    }
}
