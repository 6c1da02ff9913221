//! Azure Functions 2019, sparse and wide.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenantry_traces_fuzz::{read_aggregates, with_file};

fuzz_target!(|data: &[u8]| {
    for header in [
        "tenant,minute,invocations\n",
        "HashOwner,HashApp,HashFunction,Trigger,1_minute,2_minute\n",
    ] {
        with_file(&[header.as_bytes(), data].concat(), |path| read_aggregates(path));
    }
});
