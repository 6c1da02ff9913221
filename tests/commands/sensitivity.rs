//! `tenantry reproduce --sensitivity`: that no assumption is forgotten, that directions are those that reason gives,
//! and that `docs/sensitivity.md` holds what is simulated. Run with `UPDATE=1` to write the page's generated part
//! again.

use std::path::Path;
use std::{env, fs};

use crate::common::{check_bad, good};
use serde_json::Value;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/sensitivity.md");
const BEGIN: &str =
    "<!-- generated from here on: UPDATE=1 cargo test --features libtorch --test commands sensitivity -->\n\n";

/// The assumptions and interpretations of each paper's card, in order: what must be varied.
fn assumed() -> Vec<(String, Vec<String>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles/papers");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let inputs = files.filter(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    let of_file = |file: std::path::PathBuf| {
        let inputs: serde_yaml::Value = serde_yaml::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        let numbers = inputs["numbers"].as_mapping().unwrap().iter();
        let chosen =
            numbers.filter(|(_, number)| ["assumed", "interpreted"].contains(&number["kind"].as_str().unwrap()));
        let mut names: Vec<String> = chosen.map(|(name, _)| name.as_str().unwrap().to_owned()).collect();
        names.sort();
        (file.file_stem().unwrap().to_str().unwrap().to_owned(), names)
    };
    let mut all: Vec<_> = inputs.map(of_file).collect();
    all.sort();
    all
}

/// One of a card's main results with an assumption a fifth smaller, as it is, and a fifth larger.
fn varied(written: &Value, card: &str, number: &str, result: usize) -> [f64; 3] {
    let find = |list: &Value, key: &str, name: &str| {
        let found = list.as_array().unwrap().iter().find(|entry| entry[key] == name);
        found.unwrap_or_else(|| panic!("{name} is there")).clone()
    };
    let card = find(&written["cards"], "card", card);
    let assumption = find(&card["assumptions"], "number", number);
    let of = |value: &Value| value.as_f64().unwrap();
    let [less, more] = ["less", "more"].map(|side| of(&assumption[side]["results"][result]));
    [less, of(&card["results"][result]["ours"]), more]
}

#[test]
fn every_assumption_of_every_card_is_varied() {
    let place = tempfile::tempdir().unwrap();
    let printed = good(
        place.path(),
        &["reproduce", "all", "--sensitivity", "--json", "--out", "out"],
    );
    let file = |name: &str| fs::read_to_string(place.path().join("out").join(name)).unwrap();
    assert_eq!(printed, file("sensitivity.json"));
    let written: Value = serde_json::from_str(&printed).unwrap();

    let mut found = Vec::new();
    for card in written["cards"].as_array().unwrap() {
        let results = card["results"].as_array().unwrap();
        assert!(results.iter().all(|result| result["ours"].as_f64().is_some_and(f64::is_finite)));
        let mut names = Vec::new();
        for assumption in card["assumptions"].as_array().unwrap() {
            names.push(assumption["number"].as_str().unwrap().to_owned());
            for side in ["less", "more"] {
                let varied = &assumption[side];
                let finite = |of: &str| {
                    let values = varied[of].as_array();
                    values.is_some_and(|values| values.len() == results.len() && values.iter().all(Value::is_number))
                };
                let refused = varied["refused"].as_str().is_some_and(|why| !why.is_empty());
                assert!(
                    finite("results") && finite("changes") || refused,
                    "{}: {assumption}",
                    card["card"]
                );
                assert_eq!(
                    varied["rounded_away"] == true,
                    varied["value"] == assumption["value"],
                    "{assumption}"
                );
            }
        }
        names.sort();
        found.push((card["card"].as_str().unwrap().to_owned(), names));
    }
    found.sort();
    assert_eq!(found, assumed());

    // A slower link costs who waits for each copy; more control costs the cascade; slower dynamic runtimes cost DT.
    let [less, as_is, more] = varied(&written, "paper-p5000", "link_gbytes_per_s", 1);
    assert!(less > as_is && as_is > more, "{less} {as_is} {more}");
    let [less, as_is, more] = varied(&written, "paper-v100-tabi", "control_ms", 0);
    assert!(less > as_is && as_is > more, "{less} {as_is} {more}");
    let [less, as_is, more] = varied(&written, "paper-rtx3090", "dynamic_reduction", 1);
    assert!(less < as_is && as_is < more, "{less} {as_is} {more}");
    // A slower BERT-large is more than ST's cards can keep up with; a smaller batch falls apart into fewer pairs, which
    // costs BERT-dedicated.
    let [less, as_is, more] = varied(&written, "paper-rtx3090", "large_to_base", 2);
    assert!(less < 0.5 * as_is && more > 2.0 * as_is, "{less} {as_is} {more}");
    let [less, as_is, more] = varied(&written, "paper-p5000", "batch", 0);
    assert!(less > as_is && as_is > more, "{less} {as_is} {more}");

    let made = file("sensitivity.md");
    let page = fs::read_to_string(PAGE).unwrap();
    let (prose, generated) = page.split_once(BEGIN).expect("the page marks what is generated");
    if env::var_os("UPDATE").is_some() {
        fs::write(PAGE, format!("{prose}{BEGIN}{made}")).unwrap();
        return;
    }
    assert!(
        generated == made,
        "docs/sensitivity.md is not what is simulated: run this test with UPDATE=1"
    );
}

#[test]
fn another_card_has_no_assumptions_of_a_paper() {
    let place = tempfile::tempdir().unwrap();
    check_bad(
        place.path(),
        &[(
            &["reproduce", "hmi", "--sensitivity", "--profile", "h100-sxm"],
            2,
            &["--sensitivity", "cannot be used with", "--profile"],
        )],
    );
}
