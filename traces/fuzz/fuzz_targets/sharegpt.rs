//! ShareGPT conversations.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenantry_traces_fuzz::{read_records, with_file};

fuzz_target!(|data: &[u8]| {
    with_file(&[b"[", data].concat(), |path| read_records(path));
});
