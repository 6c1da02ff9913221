//! What `tenantry cascade` refuses: files, labels and options that do not go together.

use std::fs;

use tenantry_traces::outcome::SavedOutputs;

use crate::cascade::{PROFILE, edited, example, with};
use crate::common::{check_bad, good};

#[test]
fn what_does_not_go_together_is_refused() {
    let folder = example();
    let folder = folder.path();
    let profile = |more: &[&'static str]| with(&PROFILE, more);
    let items = |name: &str, line: &str| {
        let text = fs::read_to_string(folder.join("profile.csv")).expect("it is there");
        fs::write(folder.join(name), format!("{text}{line}\n")).expect("it is writable");
    };
    items("label.csv", "the soup was bad,neutral");
    items("ragged.csv", "the soup was bad,negative,1");
    items("lost.csv", "the \u{200d} soup was bad,negative");
    check_bad(
        folder,
        &[
            (
                &[
                    "cascade",
                    "profile",
                    "small",
                    "large",
                    "--items",
                    "label.csv",
                    "--out",
                    "o",
                ],
                2,
                &[
                    "label.csv: line 62: label: must be",
                    "negative, positive",
                    "got neutral",
                ],
            ),
            (
                &[
                    "cascade", "profile", "small", "large", "--items", "lost.csv", "--out", "o",
                ],
                2,
                &[
                    "item 60: ",
                    "large/tokenizer.json: text 0: every word must have a token, got none for",
                ],
            ),
            (
                &[
                    "cascade",
                    "profile",
                    "small",
                    "--items",
                    "profile.csv",
                    "--route",
                    "small=0.5,lagre",
                    "--out",
                    "o",
                ],
                2,
                &["--route: must be of the models small, got lagre"],
            ),
            (
                &profile(&["--route", "small=0.5,lrge", "--out", "o"]),
                2,
                &["--route: must be of the models small, large, got lrge; did you mean large?"],
            ),
            (
                &["cascade", "select", "profiled", "--accuracy", "0.96"],
                2,
                &["--accuracy: must be in percent, above 1 and up to 100, got 0.96; did you mean 96?"],
            ),
            (
                &[
                    "cascade",
                    "profile",
                    "small",
                    "--items",
                    "profile.csv",
                    "--route",
                    "small=much",
                    "--out",
                    "o",
                ],
                2,
                &["must be MODEL=DEGREE or MODEL, a degree at least 0, got small=much"],
            ),
            (
                &["cascade", "profile", "small", "--items", "ragged.csv", "--out", "o"],
                2,
                &["ragged.csv: line 62: must be 2 columns, as the first line has, got 3"],
            ),
            (
                &["cascade", "select", "profiled", "--accuracy", "50", "--slope", "-3"],
                2,
                &["--slope: must be at least 0, got -3"],
            ),
            (
                &["cascade", "select", "profiled", "--accuracy", "-5"],
                2,
                &["--accuracy: must be in percent, above 1 and up to 100, got -5"],
            ),
            (
                &[
                    "cascade",
                    "judge",
                    "small",
                    "--items",
                    "test.csv",
                    "--profiled",
                    "profiled",
                    "--cut-off",
                    "1.2",
                ],
                2,
                &["--cut-off: must be from 0 to 1, got 1.2"],
            ),
            (
                &["cascade", "select", "nowhere", "--accuracy", "90"],
                2,
                &["error: nowhere: must be a folder that `tenantry cascade profile` left, got no such folder"],
            ),
            (
                &["cascade", "select", "profiled", "--accuracy", "50", "--mean-ms", "-1"],
                2,
                &["error: --mean-ms: must be above 0, got -1"],
            ),
            (
                &["cascade", "profile", "nowhere", "--items", "profile.csv", "--out", "o"],
                2,
                &["error: nowhere/config.json: must be a file that can be read, got: No such file"],
            ),
            (
                &["cascade", "profile", "small", "--items", "nowhere.csv", "--out", "o"],
                2,
                &["error: nowhere.csv: must be a file that can be read, got: No such file"],
            ),
            (
                &[
                    "cascade",
                    "profile",
                    "small",
                    "--items",
                    "profile.csv",
                    "--device",
                    "gpu",
                    "--out",
                    "o",
                ],
                2,
                &["error: --device: must be cpu"],
            ),
            (
                &profile(&["--out", "o", "--tolerance", "0.2"]),
                2,
                &[
                    "--tolerance: must be of a regression, whose answers are numbers, got the classes negative, positive",
                ],
            ),
            (
                &profile(&["--out", "o", "--tolerance", "0.2", "--calibrated-by", "profiled"]),
                2,
                &["'--tolerance <TOLERANCE>' cannot be used with '--calibrated-by <FOLDER>'"],
            ),
            (
                &["cascade", "select", "profiled", "--accuracy", "101"],
                2,
                &["--accuracy: must be in percent, above 1 and up to 100, got 101"],
            ),
        ],
    );
    assert!(!folder.join("o").exists(), "folders are written whole or not at all");

    // Classes that other models do not have.
    edited(&folder.join("large/config.json"), |text| {
        text.replace("positive", "LABEL_1")
    });
    check_bad(
        folder,
        &[(
            &profile(&["--out", "o"]),
            2,
            &["large/config.json: id2label: must be negative, positive, as small has it, got negative, LABEL_1"],
        )],
    );
    edited(&folder.join("large/config.json"), |text| {
        text.replace("LABEL_1", "positive")
    });

    // Labels in the configuration that the head does not have.
    edited(&folder.join("large/config.json"), |text| {
        text.replace("\"1\": \"positive\"", "\"1\": \"positive\", \"2\": \"neutral\"")
    });
    check_bad(
        folder,
        &[(
            &["cascade", "profile", "large", "--items", "profile.csv", "--out", "o"],
            2,
            &["large/model.safetensors: classifier.weight: must be of shape [3, 32], got [2, 32]"],
        )],
    );

    // Confidences that are none.
    good(
        folder,
        &[
            "cascade",
            "profile",
            "small",
            "--items",
            "profile.csv",
            "--out",
            "profiled",
        ],
    );
    let path = folder.join("profiled/small.safetensors");
    let mut saved = SavedOutputs::read(&path).expect("it was just written");
    saved.confidences[3] = 1.5;
    fs::write(&path, saved.to_bytes()).expect("it is writable");
    check_bad(
        folder,
        &[(
            &["cascade", "select", "profiled", "--accuracy", "50"],
            2,
            &["small.safetensors: confidence[3]: must be from 0 to 1, got 1.5"],
        )],
    );
}
