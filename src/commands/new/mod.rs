//! `tenantry new`: a commented scenario from a few answers, given as flags or asked for. What it writes, `check` accepts.

mod answers;
mod ask;
mod dialogue;
mod write;

use serde_json::json;
use tenantry_reports::whole::write_whole;

use crate::cli::{NewArgs, OutputArgs};
use crate::failure::Failure;
use crate::output::{next, print};

use answers::{Answers, tenants_of};
use ask::Dialogue;

pub fn run(args: &NewArgs, output: &OutputArgs) -> Result<(), Failure> {
    if args.file.exists() {
        return Err(Failure::BadInput(format!(
            "{}: must be a new file, got one that exists; name another as `tenantry new FILE`",
            args.file.display()
        )));
    }
    let asks = Dialogue::is_possible() && !args.defaults && !output.quiet && !output.json;
    let args = if asks { &dialogue::complete(args)? } else { args };
    let of_trace = args.trace.as_deref().map(tenants_of).transpose()?.flatten();
    let file = args.file.display().to_string();
    let (text, loaded) = Answers::of(args, of_trace)?.fitting(&file)?;
    if let Some(folder) = args.file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|error| Failure::Running(format!("{}: {error}", folder.display())))?;
    }
    write_whole(&args.file, text.as_bytes()).map_err(Failure::running)?;
    let value = json!({ "scenario": loaded.scenario.name, "file": args.file, "runs": loaded.runs.len() });
    print(output, &value, || {
        format!("{file} is written, and valid; read and change it as you like.")
    })?;
    next(output, &format!("tenantry simulate {file}"));
    Ok(())
}
