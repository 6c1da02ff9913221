//! `tenantry-torch`: `tenantry` with what is done on a device of this machine, through libtorch.

mod cascade;
mod device;
mod doctor;
mod executable;
mod execute;
mod profile;
mod validate;

use std::process::ExitCode;

use tenantry::OnDevice;
use tenantry::cli::OutputArgs;
use tenantry::failure::Failure;

fn main() -> ExitCode {
    tenantry::main(on_device)
}

fn on_device(asked: OnDevice, output: &OutputArgs) -> Result<(), Failure> {
    match asked {
        OnDevice::Execute(args) => execute::run(&args, output),
        OnDevice::Validate(args) => validate::run(&args, output),
        OnDevice::Cascade(command) => cascade::run(&command, output),
        OnDevice::Profile(args) => profile::measure::run(&args, output),
        OnDevice::Doctor(args) => doctor::run(&args, output),
    }
}
