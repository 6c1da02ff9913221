//! `tenantry`: simulates, plans and reports, and hands over to `tenantry-torch` what is done on a device.

use std::path::{Path, PathBuf};
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
        (Ok(program), OnDevice::Doctor(DoctorArgs { device: None })) => match broken(&program) {
            None => become_of(&program),
            Some(broken) => doctor::run(without(broken), output),
        },
        (Ok(program), _) => become_of(&program),
        (Err(why), OnDevice::Doctor(DoctorArgs { device: None })) => doctor::run(
            without(Finding::bad("libtorch", why, "build it with `make build`")),
            output,
        ),
        (Err(why), _) => Err(Failure::Running(format!("{why}; build it with `make build`"))),
    }
}

const PROGRAM: &str = "tenantry-torch";

/// The program that is linked with libtorch, or why there is none.
fn program() -> Result<PathBuf, String> {
    // One that lies beside it all the same is of another build.
    if !cfg!(feature = "libtorch") {
        return Err("this program was built without libtorch and cannot execute or measure".into());
    }
    let here = std::env::current_exe().map_err(|error| format!("the program's own file: {error}"))?;
    let program = here.with_file_name(format!("{PROGRAM}{}", std::env::consts::EXE_SUFFIX));
    match program.is_file() {
        true => Ok(program),
        false => Err(format!(
            "{PROGRAM}: must lie beside this program, which cannot execute or measure by itself"
        )),
    }
}

/// Goes on as another program with the same arguments, under the name that the user gave this one.
#[cfg(unix)]
fn become_of(program: &Path) -> Result<(), Failure> {
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
fn become_of(program: &Path) -> Result<(), Failure> {
    match Command::new(program).args(std::env::args_os().skip(1)).status() {
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(error) => Err(Failure::Running(format!("{}: {error}", program.display()))),
    }
}

/// What there is to say of devices.
fn without(libtorch: Finding) -> Vec<Finding> {
    vec![libtorch, Finding::good("GPU", "not looked for without libtorch")]
}

/// What keeps the other program from starting: mostly that libtorch is not where it was.
fn broken(program: &Path) -> Option<Finding> {
    let why = match Command::new(program).arg("--version").output() {
        Ok(ended) if ended.status.success() => return None,
        Ok(ended) => match String::from_utf8_lossy(&ended.stderr).trim() {
            "" => format!("{PROGRAM} ends with {}", ended.status),
            said => said.to_owned(),
        },
        Err(error) => format!("{}: {error}", program.display()),
    };
    let remedy = "`make setup`, or name the `lib` folder of a libtorch 2.11 in LD_LIBRARY_PATH";
    Some(Finding::bad("libtorch", why, remedy))
}
