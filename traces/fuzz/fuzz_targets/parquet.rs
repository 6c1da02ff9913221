//! Our own Parquet.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenantry_traces_fuzz::{let_libraries_panic, read_records, with_file};

fuzz_target!(init: let_libraries_panic(), |data: &[u8]| {
    with_file(&[b"PAR1", data].concat(), |path| read_records(path));
});
