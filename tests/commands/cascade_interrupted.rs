//! `tenantry cascade` that is told to stop.

use std::fs;

use crate::cascade::{PROFILE, example, with};
use crate::common::{interrupted_when, names, tenantry};
use tempfile::TempDir;
use tenantry_traces::outcome::{SavedCalibration, SavedOutputs};

/// With so many times the example's items to profile, so that it is under way when it is told to stop.
#[cfg(unix)]
fn example_of_items(times: usize) -> TempDir {
    let folder = example();
    let file = folder.path().join("profile.csv");
    let items = fs::read_to_string(&file).expect("the example has them");
    let (head, rows) = items.split_once('\n').expect("a head, and rows");
    fs::write(file, format!("{head}\n{}", rows.repeat(times))).expect("it is writable");
    folder
}

/// Ctrl-C in the middle of what is whole or not at all: nothing of it is left, and the code is the contract's.
#[cfg(unix)]
#[test]
fn what_is_interrupted_leaves_nothing() {
    let folder = example_of_items(50);
    let folder = folder.path();
    let before = names(folder);
    // Until it has said the first of what it does.
    let interrupted = |args: &[&str]| {
        let said = interrupted_when(folder, args, |_| true);
        let last = said.lines().last();
        assert_eq!(last, Some("interrupted: nothing was written"), "{args:?}");
        assert_eq!(names(folder), before, "{args:?}");
    };
    interrupted(&["cascade", "example", "--out", "trained"]);
    interrupted(&with(&PROFILE, &["--out", "profiled", "--route", "small=0.25,large"]));
}

/// What a pass over the items made is kept when the next one is interrupted, and is not made again.
#[cfg(unix)]
#[test]
fn an_interrupted_profile_goes_on() {
    // The second pass is under way when it is told to stop.
    let folder = example_of_items(8);
    let folder = folder.path();
    let args = with(&PROFILE, &["--out", "profiled"]);
    let said = interrupted_when(folder, &args, |line| line.starts_with("large: "));
    assert!(said.starts_with("small: "), "{said}");
    let kept = "interrupted: profiled.partial keeps what was finished, and the same command goes on with it";
    assert_eq!(said.lines().last(), Some(kept));
    let partial = folder.join("profiled.partial");
    assert_eq!(names(&partial), ["small.safetensors", "unfinished-profile-of"]);
    // Neither others' folders nor what was made of other items is gone on with, or removed.
    let of = fs::read_to_string(partial.join("unfinished-profile-of")).expect("it is text");
    fs::write(partial.join("unfinished-profile-of"), of.replace("items ", "items 0")).expect("it is writable");
    let must = "profiled.partial: must be what an interrupted run left of these models and items on this device";
    let refused = tenantry(folder, &args);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains(must), "{refused:?}");
    fs::write(partial.join("unfinished-profile-of"), of).expect("it is writable");

    let kept = SavedOutputs::read(&folder.join("profiled.partial/small.safetensors")).expect("it is whole");
    let output = tenantry(folder, &args);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
    assert!(message.contains("going on with profiled.partial"), "{message}");
    assert!(!message.contains("small: "), "{message}");
    assert!(!folder.join("profiled.partial").exists());
    let whole = SavedOutputs::read(&folder.join("profiled/small.safetensors")).expect("it is whole");
    let measured = |saved: SavedOutputs| (saved.logits, saved.service_us, saved.attended_us, saved.importance);
    assert_eq!(measured(whole), measured(kept));
}

/// Weights between classes take long to fit: what they are fitted to is kept before, and the fit hears the interrupt.
#[cfg(unix)]
#[test]
fn an_interrupted_fit_goes_on() {
    let folder = example_of_items(8);
    let folder = folder.path();
    let args = with(&PROFILE, &["--calibration", "dirichlet", "--out", "profiled"]);
    let said = interrupted_when(folder, &args, |line| {
        line == "small: fitting weights between its classes"
    });
    let kept = "interrupted: profiled.partial keeps what was finished, and the same command goes on with it";
    assert_eq!(said.lines().last(), Some(kept), "{said}");
    let partial = folder.join("profiled.partial");
    assert_eq!(names(&partial), ["small.safetensors", "unfinished-profile-of"]);
    let kept = SavedOutputs::read(&partial.join("small.safetensors")).expect("it is whole");
    assert_eq!(
        kept.calibration,
        SavedCalibration::Temperature(1.0),
        "nothing is fitted to it yet"
    );
}
