//! Requests in each second.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenantry_traces_fuzz::{read_aggregates, with_file};

fuzz_target!(|data: &[u8]| {
    for header in ["requests\n", "second,requests\n"] {
        with_file(&[header.as_bytes(), data].concat(), |path| read_aggregates(path));
    }
});
