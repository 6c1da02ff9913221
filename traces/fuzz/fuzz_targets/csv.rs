//! A CSV with a row per request, of the format that the first byte names.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenantry_traces_fuzz::{read_records, with_file};

fuzz_target!(|data: &[u8]| {
    let headers = [
        "ticket,tenant,arrival_ns,input_tokens,output_tokens,class",
        "arrived_at,num_prefill_tokens,num_decode_tokens",
        "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio",
        "prompt_tokens,response_tokens",
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        "timestamp_ms,lang,text_bert_tokens",
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
        "arrival_time_ns,input_toks,output_toks",
        "ticket,tenant,arrival_ns,input_tokens,output_tokens,class,change",
    ];
    let [first, rest @ ..] = data else { return };
    let header = headers[usize::from(*first) % headers.len()];
    let text = [header.as_bytes(), b"\n", rest].concat();
    with_file(&text, |path| read_records(path));
});
