//! The gallery: real questions, each answered here at small scale.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use crate::common::good_json;

fn gallery() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scenarios/gallery")
}

fn questions() -> Vec<(String, String)> {
    let files = fs::read_dir(gallery()).unwrap().map(|entry| entry.unwrap().path());
    let mut questions: Vec<(String, String)> = files
        .map(|path| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            (name, fs::read_to_string(&path).unwrap())
        })
        .collect();
    questions.sort();
    questions
}

#[test]
fn each_question_is_one_says_who_asks_and_is_in_the_index() {
    let index = fs::read_to_string(gallery().join("../../docs/gallery.md")).unwrap();
    let questions = questions();
    assert!(questions.len() >= 10, "{}", questions.len());
    for (name, text) in questions {
        let mut lines = text.lines();
        let question = lines.next().unwrap().trim_start_matches("# ");
        let asked = lines.next().unwrap();
        assert!(question.ends_with('?'), "{name}: {question}");
        assert!(asked.starts_with("# Asked by "), "{name}: {asked}");
        assert!(
            text.contains(&format!("\nname: {name}\n")),
            "{name} is named after its file"
        );
        let entry = format!("(../scenarios/gallery/{name}.yaml)");
        assert!(index.contains(&entry), "docs/gallery.md has no {entry}");
        assert!(index.contains(question), "docs/gallery.md does not ask: {question}");
        let page = format!("(gallery/{name}.html)");
        assert!(index.contains(&page), "docs/gallery.md does not link {page}");
    }
}

/// What stands in the docs is what comes out today.
#[test]
fn each_question_has_its_page_with_todays_answer() {
    let docs = gallery().join("../../docs/gallery");
    let (mut bytes, mut figures) = (0, BTreeSet::new());
    for (name, _) in questions() {
        let file = docs.join(format!("{name}.html"));
        let page =
            fs::read_to_string(&file).unwrap_or_else(|error| panic!("docs/gallery/{name}.html: {error}; make gallery"));
        bytes += page.len();
        let place = tempfile::tempdir().unwrap();
        let scenario = gallery().join(format!("{name}.yaml"));
        let arguments = ["simulate", scenario.to_str().unwrap(), "--out", "out"];
        let value = good_json(place.path(), &arguments);
        let index = fs::read_to_string(docs.join("../gallery.md")).unwrap();
        let runs = value["runs"].as_array().unwrap();
        assert!(runs.len() > 1, "{name} compares something");
        for run in runs {
            assert!(run["requests"]["finished"].as_u64().unwrap() > 0, "{name}: {run}");
            figures.extend(run.as_object().unwrap().keys().cloned());
        }
        let p98s: Vec<f64> = runs.iter().filter_map(|run| run["latency_ms"]["p98"].as_f64()).collect();
        for (said, ms, half_ms) in quoted_p98s(section(&index, &name)) {
            // A little more than half of the last digit, since what is rounded was rounded before.
            let is_there = p98s.iter().any(|p98| (p98 - ms).abs() <= half_ms * 1.02);
            assert!(is_there, "docs/gallery.md, {name}: no run has a {said}: {p98s:?}");
        }
        let fresh = fs::read_to_string(place.path().join("out/report.html")).unwrap();
        assert!(fresh.contains("chart-latency"), "{name}");
        assert_eq!(
            answer(&page),
            answer(&fresh),
            "docs/gallery/{name}.html is of yesterday: make gallery"
        );
        for no_place in ["<dt>Host</dt>", "<dt>Started</dt>", "<dt>Took</dt>"] {
            assert!(!page.contains(no_place), "{name}: {no_place}");
        }
    }
    let explained = fs::read_to_string(docs.join("../outputs.md")).unwrap();
    for figure in figures {
        assert!(
            explained.contains(&format!("`{figure}`")),
            "docs/outputs.md has no `{figure}`"
        );
    }
    assert!(bytes < 5_500_000, "docs/gallery's pages have {bytes} bytes");
    let pages = fs::read_dir(&docs).unwrap().map(|entry| entry.unwrap().path());
    let pages = pages.filter(|path| path.extension().is_some_and(|ending| ending == "html"));
    assert_eq!(
        pages.count(),
        questions().len(),
        "a page for each question, and no other"
    );
}

/// What the index says of a question.
fn section<'a>(index: &'a str, name: &str) -> &'a str {
    let (_, rest) = index.split_once(&format!("(../scenarios/gallery/{name}.yaml)")).expect("it is there");
    rest.split_once("[The whole report]").expect("the page is linked").0
}

/// Each `p98 … 12.3 ms` of a text as it stands there, in milliseconds, and half of its last digit.
fn quoted_p98s(text: &str) -> Vec<(String, f64, f64)> {
    let quoted = |rest: &str| {
        let start = rest.find(|c: char| c.is_ascii_digit())?;
        let (between, number) = rest.split_at(start);
        let end = number.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit) = number.split_at(end);
        let unit_ms = match unit.split(|c: char| !c.is_alphabetic() && c != ' ').next()?.split_whitespace().next()? {
            "ms" => 1.0,
            "s" => 1e3,
            _ => return None,
        };
        let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        let half = 0.5 * 10f64.powi(-(decimals as i32));
        (between.len() < 12 && !between.contains('.')).then_some(())?;
        Some((
            format!("p98{between}{number}{unit:.3}"),
            number.parse::<f64>().ok()? * unit_ms,
            half * unit_ms,
        ))
    };
    text.split("p98").skip(1).filter_map(quoted).collect()
}

#[test]
fn quotes_are_found() {
    let found = quoted_p98s(
        "a p98 of 27 ms, p98 is 5.7 ms on one; p98 14.6 s rather; p98 rises from 41 to 50 ms; the p98. Of 3 ms",
    );
    let figures: Vec<(f64, f64)> = found.into_iter().map(|(_, ms, half_ms)| (ms, half_ms)).collect();
    assert_eq!(figures, [(27.0, 0.5), (5.7, 0.05), (14_600.0, 50.0)]);
}

/// The section that a page begins with.
fn answer(page: &str) -> &str {
    let (_, rest) = page.split_once(r#"<section aria-label="The answer""#).expect("a page begins with the answer");
    rest.split_once("</section>").expect("the section ends").0
}
