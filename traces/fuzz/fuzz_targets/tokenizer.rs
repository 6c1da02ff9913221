//! A `tokenizer.json`, and a text that it counts.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenantry_traces::read::sharegpt::Tokenize;
use tenantry_traces::read::tokenizer::TokenizerJson;
use tenantry_traces_fuzz::{let_libraries_panic, with_file};

fuzz_target!(init: let_libraries_panic(), |data: &[u8]| {
    with_file(data, |path| {
        if let Ok(mut tokenizer) = TokenizerJson::open(path) {
            let _ = tokenizer.count("Four score and seven years ago, naïve 漢字 🙂");
        }
    });
});
