//! Tables of outcomes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenantry_traces::outcome::{Difficulties, OutcomeTable};
use tenantry_traces_fuzz::with_file;

fuzz_target!(|data: &[u8]| {
    with_file(data, |path| {
        let _ = OutcomeTable::read(path, &["a", "b"], None);
        let _ = OutcomeTable::read(path, &["a"], Some("b"));
        let _ = OutcomeTable::read_correctness(path, &["weak", "strong"]);
        let _ = Difficulties::read(path);
    });
});
