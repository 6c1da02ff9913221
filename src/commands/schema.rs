//! `tenantry schema`: the JSON Schema of scenarios.

use crate::failure::Failure;
use crate::output::to_stdout;

pub fn run() -> Result<(), Failure> {
    let bytes = tenantry_reports::folder::json(&tenantry_scenarios::schema()).map_err(Failure::running)?;
    to_stdout(&bytes)
}
