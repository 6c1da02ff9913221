//! What is wrong with the words of a command: the option is named, with what it must be, whatever the command.

use crate::common::{Case, check_bad, folder, good};

/// What closed sets have in them is listed, and a near miss told.
const NAMES: &[Case] = &[
    (
        &[
            "profile", "import", "--from", "vidr", "--gpu", "t4", "x.csv", "--out", "o",
        ],
        2,
        &[
            "invalid value 'vidr' for '--from <SOURCE>'",
            "[possible values: vidur, aiconfigurator, llmservingsim, tensorrt-bert, ",
            "a similar value exists: 'vidur'",
        ],
    ),
    (
        &["profile", "--device", "cpu", "--dtype", "f3"],
        2,
        &[
            "invalid value 'f3' for '--dtype <DTYPE>'",
            "[possible values: f32, bf16, f16]",
            "a similar value exists: 'f32'",
        ],
    ),
    (
        &["profile", "derive", "--paper", "paper-p500"],
        2,
        &[
            "invalid value 'paper-p500' for '--paper <NAME>'",
            "[possible values: paper-p5000, ",
            "a similar value exists: 'paper-p5000'",
        ],
    ),
    (
        &["trace", "info", "own.csv", "--format", "tenantri"],
        2,
        &[
            "invalid value 'tenantri' for '--format <NAME>'",
            "[possible values: tenantry, tenantry-parquet, vidur, ",
            "a similar value exists: 'tenantry'",
        ],
    ),
    (
        &[
            "profile", "import", "--from", "vidur", "--gpu", "h100-smx", "x.csv", "--out", "o",
        ],
        2,
        &[
            "error: --gpu: must be one of a100-pcie, ",
            "got h100-smx; did you mean h100-sxm?",
        ],
    ),
    (
        &["profile", "derive", "--datasheet", "h100-smx"],
        2,
        &[
            "error: --datasheet: must be a YAML file or one of a100-pcie, ",
            "got h100-smx; did you mean h100-sxm?",
        ],
    ),
    (
        &["reproduce", "hmi", "--profile", "p500"],
        2,
        &["error: --profile: must be a folder with a card.yaml or one of "],
    ),
];

/// A number that is none, and one below 0, of which none is taken for a flag.
const NUMBERS: &[Case] = &[
    (
        &["simulate", "s.yaml", "--seed", "-1"],
        2,
        &["'--seed <SEED>': must be a whole number from 0 to 18446744073709551615, got -1"],
    ),
    (
        &["simulate", "s.yaml", "--jobs", "-1"],
        2,
        &["'--jobs <N>': must be a whole number, at least 1, got -1"],
    ),
    (
        &["trace", "convert", "a.csv", "b.csv", "--scale", "-1"],
        2,
        &["'--scale <SCALE>': must be a number above 0, got -1"],
    ),
    (
        &["trace", "convert", "a.csv", "b.csv", "--input", "a"],
        2,
        &["'--input <N>': must be a whole number, at least 1, got a"],
    ),
    (
        &["new", "x.yaml", "--defaults", "--tenants", "-5"],
        2,
        &["--tenants: must be a whole number from 1 to 4294967295, got -5"],
    ),
    (
        &["cascade", "select", "profiled", "--accuracy", "a"],
        2,
        &["'--accuracy <PERCENT>': must be a number, got a"],
    ),
    (
        &["cascade", "select", "profiled", "--accuracy", "90", "--slope", "10,x"],
        2,
        &["'--slope <K,…>': must be a number, got x"],
    ),
    (
        &["cascade", "select", "profiled", "--accuracy", "90", "--levels", "9"],
        2,
        &["'--levels <LEVELS>': must be a whole number from 1 to 8, got 9"],
    ),
    (
        &["cascade", "example", "--levels", "-2"],
        2,
        &["'--levels <LEVELS>': must be a whole number from 2 to 3, got -2"],
    ),
    (
        &[
            "cascade",
            "judge",
            "small",
            "--items",
            "a",
            "--profiled",
            "b",
            "--cut-off",
            "nan",
        ],
        2,
        &["'--cut-off <CUT_OFF>': must be a number, got nan"],
    ),
    (
        &["cascade", "profile", "small", "--items", "a", "--tolerance", "inf"],
        2,
        &["'--tolerance <TOLERANCE>': must be a number, got inf"],
    ),
    (
        &[
            "profile",
            "import",
            "--from",
            "aiconfigurator",
            "--gpu",
            "t4",
            "x.csv",
            "--out",
            "o",
            "--launch-overhead-us",
            "-1",
        ],
        2,
        &["--launch-overhead-us: must be from 0 to 1000 µs, got -1"],
    ),
];

/// Files and folders that are not there.
const MISSING: &[Case] = &[
    (
        &["trace", "info", "nix.csv"],
        2,
        &["error: nix.csv: must be a file that can be read, got: No such file"],
    ),
    (
        &["new", "x.yaml", "--trace", "nix.csv", "--defaults"],
        2,
        &["error: --trace: nix.csv: must be a file that can be read, got: No such file"],
    ),
    (
        &[
            "profile", "import", "--from", "vidur", "--gpu", "t4", "nix.csv", "--out", "o",
        ],
        2,
        &["error: nix.csv: must be a file that can be read, got: No such file"],
    ),
    (
        &["profile", "derive", "--datasheet", "nix.yaml"],
        2,
        &["error: nix.yaml: must be a file that can be read, got: No such file"],
    ),
    (
        &["profile", "show", "./nix"],
        2,
        &["error: ./nix/card.yaml: must be a file that can be read, got: No such file"],
    ),
    (
        &["merge", "nix"],
        2,
        &["error: nix: must be a folder that `tenantry sweep` left, got no such folder"],
    ),
    (
        &["merge", "s.yaml"],
        2,
        &["error: s.yaml: must be a folder that `tenantry sweep` left, got a file"],
    ),
    (
        &["sweep", "s.yaml", "--reuse", "nix", "--out", "o"],
        2,
        &["error: nix: must be a folder that `tenantry sweep` left, got no such folder"],
    ),
];

#[test]
fn names_that_are_none_are_told_those_that_are() {
    check_bad(folder().path(), NAMES);
}

#[test]
fn numbers_that_are_none_are_told_what_they_must_be() {
    check_bad(folder().path(), NUMBERS);
}

#[test]
fn what_is_missing_is_told_alike_everywhere() {
    check_bad(folder().path(), MISSING);
}

#[test]
fn help_and_shells_are_told_the_names_of_closed_sets() {
    let folder = folder();
    for (command, names) in [
        (&["profile", "import"][..], "vidur, aiconfigurator, llmservingsim,"),
        (&["profile"], "f32, bf16, f16"),
        (&["profile", "derive"], "paper-p5000, paper-gtx1080ti,"),
        (&["trace", "info"], "tenantry, tenantry-parquet, vidur,"),
    ] {
        let help = good(folder.path(), &[command, &["--help"]].concat());
        let in_a_line = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let listed = format!("[possible values: {names}");
        assert!(in_a_line.contains(&listed), "{command:?}: {help}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = good(folder.path(), &["completions", shell]);
        for name in ["host-device-bandwidth", "bf16", "azure-functions-2021"] {
            assert!(script.contains(name), "{shell}: {name}");
        }
    }
}
