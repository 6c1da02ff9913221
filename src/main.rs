//! `tenantry`: simulates, plans and reports, and hands over to `tenantry-torch` what is done on a device.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use tenantry::OnDevice;
use tenantry::cli::{DoctorArgs, OutputArgs};
use tenantry::commands::doctor::{self, Finding};
use tenantry::failure::Failure;

fn main() -> ExitCode {
    tenantry::main(hand_over)
}

fn hand_over(asked: OnDevice, output: &OutputArgs) -> Result<(), Failure> {
    match (program(), asked) {
        (Some(program), OnDevice::Doctor(DoctorArgs { device: None })) => match broken(&program) {
            None => become_of(&program),
            Some(broken) => doctor::run(without(broken), output),
        },
        (Some(program), _) => become_of(&program),
        (None, OnDevice::Doctor(DoctorArgs { device: None })) => doctor::run(without(missing()), output),
        (None, _) => Err(Failure::Running(format!(
            "{PROGRAM}: must lie beside this program, which cannot execute or measure by itself; build it with `make build`"
        ))),
    }
}

const PROGRAM: &str = "tenantry-torch";

/// The program that is linked with libtorch, where this one was built with it.
fn program() -> Option<PathBuf> {
    let here = std::env::current_exe().ok()?;
    let program = here.with_file_name(format!("{PROGRAM}{}", std::env::consts::EXE_SUFFIX));
    program.is_file().then_some(program)
}

/// Goes on as another program with the same arguments, under the name that the user gave this one.
#[cfg(unix)]
fn become_of(program: &PathBuf) -> Result<(), Failure> {
    use std::os::unix::process::CommandExt;

    let mut arguments = std::env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    let error = command.args(arguments).exec();
    Err(Failure::Running(format!("{}: {error}", program.display())))
}

/// Runs another program with the same arguments, and ends as it does.
#[cfg(not(unix))]
fn become_of(program: &PathBuf) -> Result<(), Failure> {
    match Command::new(program).args(std::env::args_os().skip(1)).status() {
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(error) => Err(Failure::Running(format!("{}: {error}", program.display()))),
    }
}

/// What there is to say of devices.
fn without(libtorch: Finding) -> Vec<Finding> {
    vec![libtorch, Finding::good("GPU", "not looked for without libtorch")]
}

fn missing() -> Finding {
    Finding::bad(
        "libtorch",
        "not in this build: it simulates but cannot execute or measure",
        "build it with `make build`",
    )
}

/// What keeps the other program from starting: mostly that libtorch is not where it was.
fn broken(program: &PathBuf) -> Option<Finding> {
    let why = match Command::new(program).arg("--version").output() {
        Ok(ended) if ended.status.success() => return None,
        Ok(ended) => String::from_utf8_lossy(&ended.stderr).trim().to_owned(),
        Err(error) => format!("{}: {error}", program.display()),
    };
    let remedy = "`make setup`, or name the `lib` folder of a libtorch 2.11 in LD_LIBRARY_PATH";
    Some(Finding::bad("libtorch", why, remedy))
}
