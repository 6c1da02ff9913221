//! Any bytes: which format they are in is up to the readers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenantry_traces_fuzz::{let_libraries_panic, read_aggregates, read_records, with_file};

fuzz_target!(init: let_libraries_panic(), |data: &[u8]| {
    with_file(data, |path| {
        read_records(path);
        read_aggregates(path);
    });
});
