//! Azure Functions 2021.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenantry_traces_fuzz::{read_aggregates, read_records, with_file};

fuzz_target!(|data: &[u8]| {
    with_file(&[b"app,func,end_timestamp,duration\n", data].concat(), |path| {
        read_records(path);
        read_aggregates(path);
    });
});
