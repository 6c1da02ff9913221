//! What a conversion of aiconfigurator's tables to CSV says beside times: columns that are the same in all rows that
//! belong together, and versions.

use std::collections::BTreeSet;

use super::sheet::Sheet;
use crate::cells::one_of;
use crate::error::Invalid;

/// What a column of kernels' tables must say, where a conversion keeps it: rows of another number format or framework,
/// of sliding windows, or of new tokens after `step` cached ones would be taken for those beside them. Where
/// `kv_len_before` says how many are cached, `step` is it.
fn must_say(sheet: &Sheet, column: &str) -> Option<&'static [&'static str]> {
    match column {
        "step" if sheet.has("kv_len_before") => None,
        "window_size" | "step" => Some(&["0"]),
        "framework" => Some(&["VLLM", "vLLM", "vllm"]),
        column if column.ends_with("dtype") => Some(&["bfloat16", "bf16"]),
        _ => None,
    }
}

/// Refuses rows that are not of kernels as the others are.
pub(super) fn check(sheet: &Sheet) -> Result<(), Invalid> {
    for column in sheet.columns() {
        let Some(allowed) = must_say(sheet, column) else {
            continue;
        };
        for line in sheet.lines() {
            if !allowed.contains(&line.text(column)?) {
                return Err(line.invalid(column, &one_of(allowed)));
            }
        }
    }
    Ok(())
}

/// The versions of what was measured: in a column, or in the file's name after what it is `called`, as in
/// `gemm_bf16_vllm0.24.0.csv`. None where neither says them.
pub(super) fn versions(sheet: &Sheet, called: &str) -> Result<BTreeSet<String>, Invalid> {
    if sheet.has("version") {
        let versions = sheet.lines().map(|line| Ok(line.text("version")?.to_owned()));
        return versions.collect();
    }
    let name = sheet.name();
    let after = name.rsplit_once(called).map_or("", |(_, after)| after);
    let end = after.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(after.len());
    let version = after[..end].trim_matches('.');
    Ok((!version.is_empty()).then(|| version.to_owned()).into_iter().collect())
}

/// `vLLM 0.24.0`, or that nobody says which.
pub(super) fn told(what: &str, versions: &BTreeSet<String>) -> String {
    match versions.is_empty() {
        true => format!("{what} of a version that the files do not say"),
        false => {
            let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
            format!("{what} {}", versions.join(" and "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_of_a_column_or_of_the_files_name() {
        let of = |file: &str, text: &str, called: &str| {
            told(called, &versions(&Sheet::read(file, text).unwrap(), called).unwrap())
        };
        let text = "m\n1\n";
        assert_eq!(
            of("/vllm1/h100_gemm_bf16_vllm0.24.0.csv.gz", text, "vllm"),
            "vllm 0.24.0"
        );
        assert_eq!(of("nccl_2.29.2.csv", text, "nccl_"), "nccl_ 2.29.2");
        let none = "vllm of a version that the files do not say";
        assert_eq!(of("/vllm1/gemm.csv", text, "vllm"), none);
        assert_eq!(of("vllm.csv", text, "vllm"), none);
        let column = "m,version\n1,0.24.0\n2,0.19.0\n";
        assert_eq!(of("vllm7.csv", column, "vllm"), "vllm 0.19.0 and 0.24.0");
    }
}
