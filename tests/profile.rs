//! `tenantry profile show`, `compare` and `derive`: what they print, write and refuse; and that a run says what it used.

mod common;

use std::fs;

use common::{folder, good, good_json, tenantry};

fn refused(folder: &std::path::Path, args: &[&str]) -> String {
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
    let caveats: Vec<&str> = manifest["caveats"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c.as_str().unwrap())
        .collect();
    let derived: Vec<_> = caveats
        .iter()
        .filter(|caveat| caveat.contains("derived (roofline of datasheet t4"))
        .collect();
    // Each with the error of its own kind: of adapters nobody measured any.
    let [unknown, checked] = derived[..] else {
        panic!("{caveats:?}");
    };
    assert!(
        unknown.contains("adapter model=tiny dtype=f32") && unknown.contains("unknown"),
        "{caveats:?}"
    );
    assert!(
        checked.contains("encoder_layer model=tiny dtype=f32") && checked.contains("±22 %"),
        "{caveats:?}"
    );
    assert!(
        derived
            .iter()
            .all(|caveat| !caveat.contains("bert-base") && !caveat.contains("pet")),
        "not used: {caveats:?}"
    );

    let message = refused(at, &["profile", "derive", "--datasheet", "t5", "--out", "out/x"]);
    assert!(
        message.contains("--datasheet: name: must be a YAML file or one of"),
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
    assert!(
        made["outcomes"]
            .as_array()
            .unwrap()
            .iter()
            .any(|outcome| outcome["role"] == "predicted")
    );
    assert!(
        made["sensitivities"]
            .as_array()
            .unwrap()
            .iter()
            .any(|s| s["number"] == "link_gbytes_per_s")
    );
    let same = good_json(at, &["profile", "compare", "paper-p5000", "out/paper-p5000"]);
    let ratios = same["ratios"].as_array().unwrap();
    assert!(
        !ratios.is_empty() && ratios.iter().all(|ratios| ratios["drift"] == 0.0),
        "the shipped card is this one"
    );
    assert_eq!(same["first"]["digest"], same["second"]["digest"]);
    let message = refused(at, &["profile", "derive", "--paper", "paper-p500"]);
    assert!(message.contains("did you mean paper-p5000?"), "{message}");
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
        "Roofline of encoder layers",
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

/// Every kind of operation that this processor computes is what double precision makes of it, and a GPU that is not there is said not to be.
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
            assert!(message.contains("device: must be cpu"), "{message}");
        }
    }
    let message = refused(folder.path(), &["profile", "--device", "cpu", "--dtype", "f64"]);
    assert!(
        message.contains("--dtype: must be among f32, bf16, f16, got f64"),
        "{message}"
    );
}
