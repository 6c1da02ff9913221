//! `tenantry` alone, without the program that is linked with libtorch, and with another in its place.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// The program in a folder of its own, and beside it, where there is to be one, a program that does as this line of a
/// shell says.
fn alone(beside: Option<&str>) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("tenantry");
    // Who writes a program must not fork meanwhile, as other tests do: it would be busy.
    let shell = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh", env!("CARGO_BIN_EXE_tenantry")]);
        assert!(shell.current_dir(folder.path()).status().unwrap().success());
    };
    shell("cp \"$1\" tenantry");
    if let Some(line) = beside {
        shell(&format!(
            "printf '#!/bin/sh\n{line}\n' >tenantry-torch && chmod +x tenantry-torch"
        ));
    }
    (folder, program)
}

fn run(program: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = Command::new(program).args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

const ON_A_DEVICE: [&[&str]; 5] = [
    &["execute", "quickstart", "--device", "cpu"],
    &["validate", "quickstart", "--device", "cpu"],
    &["profile", "--device", "cpu"],
    &["cascade", "example", "--out", "out/example"],
    &["doctor", "--device", "cpu"],
];

/// Why there is none.
const WHY: &str = match cfg!(feature = "libtorch") {
    true => "tenantry-torch: must lie beside this program, which cannot execute or measure by itself",
    false => "this program was built without libtorch and cannot execute or measure",
};

/// It does what needs no device; what needs one it refuses, and says what is missing.
#[test]
fn a_copied_program_simulates_by_itself() {
    let (folder, program) = alone(None);
    let out = folder.path().join("out");
    let (code, _, said) = run(&program, &["simulate", "quickstart", "--out", out.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{said}");
    assert!(out.join("summary.json").exists());
    for args in ON_A_DEVICE {
        let (code, _, said) = run(&program, args);
        assert_eq!(code, Some(1), "{args:?}: {said}");
        assert!(said.contains(&format!("{WHY}; build it with `make build`")), "{said}");
    }
    let (code, found, _) = run(&program, &["doctor"]);
    assert_eq!(code, Some(0));
    assert!(found.contains(&format!("missing libtorch: {WHY}")), "{found}");
}

/// What lies beside a program that was built without libtorch is of another build.
#[cfg(not(feature = "libtorch"))]
#[test]
fn another_builds_program_is_left_alone() {
    let (_folder, program) = alone(Some("exit 7"));
    for args in ON_A_DEVICE {
        let (code, _, said) = run(&program, args);
        assert_eq!(code, Some(1), "{args:?}: {said}");
        assert!(said.contains(WHY), "{said}");
    }
}

/// What needs a device is done by the other program: with the same arguments, and it ends as that one does.
#[cfg(feature = "libtorch")]
#[test]
fn what_needs_a_device_is_handed_over() {
    let (_folder, program) = alone(Some("echo \"$@\"; exit 7"));
    for args in ON_A_DEVICE {
        let (code, printed, said) = run(&program, args);
        assert_eq!((code, printed.trim()), (Some(7), &*args.join(" ")), "{said}");
    }
    // What is wrong with the arguments is said without it.
    let (code, _, said) = run(&program, &["execute", "--devise", "cpu"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("--device"), "{said}");
}

/// A libtorch that is not where it was is what `doctor` is for.
#[cfg(feature = "libtorch")]
#[test]
fn doctor_says_why_the_other_program_does_not_start() {
    for (line, why) in [
        (
            "echo libtorch_cpu.so: cannot open >&2; exit 127",
            "libtorch_cpu.so: cannot open",
        ),
        ("kill -SEGV $$", "tenantry-torch ends with signal: 11"),
    ] {
        let (_folder, program) = alone(Some(line));
        let (code, found, _) = run(&program, &["doctor"]);
        assert_eq!(code, Some(0));
        assert!(found.contains(&format!("missing libtorch: {why}")), "{found}");
        assert!(found.contains("LD_LIBRARY_PATH"), "{found}");
    }
}
