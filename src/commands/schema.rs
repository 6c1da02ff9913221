//! `tenantry schema`: the JSON Schema of scenarios.

use crate::failure::Failure;

pub fn run() -> Result<(), Failure> {
    let bytes = tenantry_reports::folder::json(&tenantry_scenarios::schema()).map_err(Failure::running)?;
    print!("{}", String::from_utf8(bytes).expect("JSON is UTF-8"));
    Ok(())
}
