//! ShareGPT conversations, as an array and as lines.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenantry_traces_fuzz::{read_records, with_file};

fuzz_target!(|data: &[u8]| {
    with_file(&[b"[", data].concat(), |path| read_records(path));
    with_file(&[b"{\"conversations\": ", data].concat(), |path| read_records(path));
});
