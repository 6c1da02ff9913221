//! `tenantry` alone, without the program beside it that is linked with libtorch.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// The program in a folder of its own, and beside it, where there is to be one, a program that does as this line of a shell says.
fn alone(beside: Option<&str>) -> (TempDir, PathBuf) {
    // On the same disk, for a link. Who writes a program must not fork meanwhile, as other tests do: it would be busy.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = folder.path().join("tenantry");
    fs::hard_link(env!("CARGO_BIN_EXE_tenantry"), &program).unwrap();
    if let Some(line) = beside {
        let script = format!("printf '#!/bin/sh\n{line}\n' >tenantry-torch && chmod +x tenantry-torch");
        let made = Command::new("sh")
            .args(["-c", &script])
            .current_dir(folder.path())
            .status();
        assert!(made.unwrap().success());
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
        assert!(said.contains("tenantry-torch: must lie beside this program"), "{said}");
    }
    let (code, found, _) = run(&program, &["doctor"]);
    assert_eq!(code, Some(0));
    assert!(found.contains("missing libtorch: not in this build"), "{found}");
}

/// What needs a device is done by the other program: with the same arguments, and it ends as that one does.
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
#[test]
fn doctor_says_why_the_other_program_does_not_start() {
    let (_folder, program) = alone(Some("echo libtorch_cpu.so: cannot open >&2; exit 127"));
    let (code, found, _) = run(&program, &["doctor"]);
    assert_eq!(code, Some(0));
    assert!(
        found.contains("missing libtorch: libtorch_cpu.so: cannot open"),
        "{found}"
    );
    assert!(found.contains("LD_LIBRARY_PATH"), "{found}");
}
