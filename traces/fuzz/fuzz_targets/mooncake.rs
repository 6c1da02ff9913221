//! Mooncake's JSON lines.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenantry_traces::read::mooncake::Prefixes;
use tenantry_traces_fuzz::{read_records, with_file};

fuzz_target!(|data: &[u8]| {
    with_file(&[b"{\"timestamp\": 0, ", data].concat(), |path| {
        read_records(path);
        let _ = Prefixes::read(path, true);
    });
});
