//! Aggregated rates.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenantry_traces_fuzz::{read_aggregates, with_file};

fuzz_target!(|data: &[u8]| {
    for header in ["day,requests,tokens\n", "minute,tokens_per_second\n"] {
        with_file(&[header.as_bytes(), data].concat(), |path| read_aggregates(path));
    }
});
