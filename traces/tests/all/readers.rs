//! Readers on small files: variants, broken lines, and bytes that are nothing at all.

use std::io::Write;
use std::path::Path;

use proptest::prelude::*;
use tenantry_traces::read::shape::RateShape;
use tenantry_traces::read::sharegpt::FOUR_CHARS_A_TOKEN;
use tenantry_traces::read::tokenizer::TokenizerJson;
use tenantry_traces::read::{Counts, Format, Record, Records, activity, own};
use tenantry_traces::{Request, Time};

fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn read(bytes: &[u8]) -> Result<Vec<Record>, String> {
    let file = file(bytes);
    let strip = |error: tenantry_traces::TraceError| error.to_string().replace(&*file.path().to_string_lossy(), "FILE");
    Records::open(file.path(), false).map_err(strip)?.collect::<Result<_, _>>().map_err(strip)
}

#[test]
fn line_ends_marks_and_gzip_do_not_matter() {
    let expected = read(b"num_prefill_tokens,num_decode_tokens\n1,2\n3,4\n").unwrap();
    assert_eq!(
        (expected.len(), expected[1].input_tokens, expected[1].output_tokens),
        (2, Some(3), Some(4))
    );
    assert_eq!(
        read(b"\xef\xbb\xbfnum_prefill_tokens,num_decode_tokens\r\n\r\n1,2\r\n3,4").unwrap(),
        expected
    );
    assert_eq!(
        read(b"more,\"num_decode_tokens\",num_prefill_tokens\nx,2,1\ny,\"4\", 3 \n").unwrap(),
        expected
    );
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(b"num_prefill_tokens,num_decode_tokens\n1,2\n3,4\n").unwrap();
    assert_eq!(read(&packed.finish().unwrap()).unwrap(), expected);
}

#[test]
fn a_gzip_file_that_is_not_whole_says_so() {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(b"num_prefill_tokens,num_decode_tokens\n").unwrap();
    (0..50_000u32).for_each(|i| writeln!(packed, "{},{}", i % 977 + 1, i.wrapping_mul(i) % 1009).unwrap());
    let whole = packed.finish().unwrap();
    assert_eq!(read(&whole).unwrap().len(), 50_000);
    // In the middle of the data, in gzip's own header, and without the sum at its end.
    for cut in [whole.len() / 2, 5, whole.len() - 3] {
        assert_eq!(
            read(&whole[..cut]).unwrap_err(),
            "FILE: must be a whole gzip file, got one that is cut off; copy or download it again"
        );
    }
    let mut damaged = whole.clone();
    damaged[whole.len() / 2..][..64].fill(0x55);
    let error = read(&damaged).unwrap_err();
    assert!(
        error.starts_with("FILE: must be a whole gzip file, got one that is damaged (")
            && error.ends_with("); copy or download it again"),
        "{error}"
    );
    // Members one after another, and what fills up a block.
    let half = |rows: &str| {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(rows.as_bytes()).unwrap();
        packed.finish().unwrap()
    };
    let members = [half("num_prefill_tokens,num_decode_tokens\n1,2\n3"), half(",4\n")].concat();
    assert_eq!(read(&members).unwrap().len(), 2);
    assert_eq!(read(&[&members[..], &[0; 100_000]].concat()).unwrap().len(), 2);
    for garbage in [&b"x"[..], b"\0\0x", b"more of something else"] {
        assert_eq!(
            read(&[&members[..], garbage].concat()).unwrap_err(),
            "FILE: must be a whole gzip file, got one with other bytes behind its end; copy or download it again"
        );
    }
    // Of an array of conversations as well, whose reader is another.
    let talk = "{\"conversations\": [{\"from\": \"human\", \"value\": \"x\"}]},\n".repeat(5_000);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    write!(packed, "[{talk}").unwrap();
    let packed = packed.finish().unwrap();
    let error = read(&packed[..packed.len() - 9]).unwrap_err();
    assert!(error.contains("got one that is cut off"), "{error}");
    let mut parquet = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    parquet.write_all(b"PAR1 and whatever comes then").unwrap();
    let parquet = parquet.finish().unwrap();
    assert_eq!(
        read(&parquet).unwrap_err(),
        "FILE: must be plain where it is Parquet, which is packed already, got Parquet inside gzip; unpack it with \
         `gunzip`"
    );
}

/// A line each, as many of its copies come: read like an array, and a broken line is one line.
#[test]
fn conversations_are_read_from_json_lines_too() {
    let lines = [
        r#"{"id": "a", "conversations": [{"from": "human", "value": "12345678"}, {"from": "gpt", "value": "1234"}]}"#,
        r#"{"messages": [{"role": "system", "content": "1234"}, {"role": "user", "content": "timestamp"}, {"role": "assistant", "content": ""}]}"#,
        r#"{"conversations": [{"from": "human", "value": "ends on a question"}]}"#,
    ];
    let array = read(format!("[{}]", lines.join(",")).as_bytes()).unwrap();
    assert_eq!(array.len(), 3);
    assert_eq!(array[2].output_tokens, None);
    for line_end in ["\n", "\r\n", "\n\n"] {
        assert_eq!(read(lines.join(line_end).as_bytes()).unwrap(), array);
    }
    let marked = format!("\u{feff}{}", lines[0]);
    assert_eq!(read(marked.as_bytes()).unwrap(), array[..1]);
    assert_eq!(read(format!("\u{feff}[{}]", lines[0]).as_bytes()).unwrap(), array[..1]);

    let broken = [
        lines[0],
        "{\"conversations\": [{\"from\": \"alien\"}]}",
        "{\"conversations\": [{",
        lines[2],
    ]
    .join("\n");
    assert!(
        read(broken.as_bytes()).unwrap_err().starts_with(
            "FILE:2: column 35: must be {\"conversations\": [{\"from\": \"human\"|\"gpt\", \"value\": \
             text}]}, got unknown variant"
        ),
        "{:?}",
        read(broken.as_bytes())
    );
    let broken = file(broken.as_bytes());
    let mut records = Records::open(broken.path(), true).unwrap();
    assert_eq!(records.format(), Format::ShareGpt);
    assert_eq!(records.by_ref().collect::<Result<Vec<_>, _>>().unwrap().len(), 2);
    assert_eq!(records.skipped(), 2);

    // What is neither is not taken for either, unless it is said to be.
    let other = file(b"{\"who\": 1}\n");
    let error = Format::of(other.path()).unwrap_err().to_string();
    assert!(
        error.contains("must be") && error.contains("mooncake ({\"timestamp\""),
        "{error}"
    );
    for format in [Format::Mooncake, Format::ShareGpt] {
        let mut records = Records::open_as(other.path(), format, true, Box::new(FOUR_CHARS_A_TOKEN)).unwrap();
        assert!(records.next().is_none());
        assert_eq!(records.skipped(), 1);
    }
}

/// A dump without line ends is longer than any line may be.
#[test]
fn an_array_of_conversations_may_be_one_line() {
    let one = "{\"conversations\": [{\"from\": \"human\", \"value\": \"1234\"}]},";
    let count = (17 << 20) / one.len();
    let line = format!("[{}]", one.repeat(count).trim_end_matches(','));
    let file = file(line.as_bytes());
    assert_eq!(Records::open(file.path(), false).unwrap().count(), count);
}

#[test]
fn burstgpt_and_vidur_have_arrivals_in_seconds() {
    let burst = b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log \
                  Type\n5,ChatGPT,472,18,490,Conversation log\n45.5,GPT-4,1087,0,1087,API log\n";
    let rows = read(burst).unwrap();
    assert_eq!(
        (rows[1].arrival, rows[1].output_tokens),
        (Some(Time(45_500_000_000)), None),
        "a failure has no answer"
    );
    assert!(rows[1].is_unanswered() && !rows[0].is_unanswered());
    let vidur = read(b"arrived_at,num_prefill_tokens,num_decode_tokens\n0.25,10,20\n").unwrap();
    assert_eq!(vidur[0].arrival, Some(Time(250_000_000)));
}

#[test]
fn a_broken_line_is_an_error_with_file_line_and_column() {
    let header = "num_prefill_tokens,num_decode_tokens\n";
    for (line, message) in [
        ("7,x", "FILE:3: num_decode_tokens: must be a whole number, got `x`"),
        ("7", "FILE:3: must have 2 columns as the first line has, got 1"),
        ("0,7", "FILE:3: num_prefill_tokens: must be at least 1, got `0`"),
        (
            "7,4294967296",
            "FILE:3: num_decode_tokens: must be below 2^32, got `4294967296`",
        ),
    ] {
        assert_eq!(
            read(format!("{header}1,2\n{line}\n3,4\n").as_bytes()).unwrap_err(),
            message
        );
    }
    let azure = b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15,374,44\n";
    assert_eq!(
        read(azure).unwrap_err(),
        "FILE:2: TIMESTAMP: must be a time as in `2023-11-16 18:15:46.680`, got `2023-11-16 18:15`"
    );
    let mooncake =
        b"{\"timestamp\": 0, \"input_length\": 5, \"output_length\": 1, \"hash_ids\": []}\n{\"timestamp\": 0}\n";
    assert!(
        read(mooncake).unwrap_err().starts_with("FILE:2: column 16: must be {\"timestamp\": ms"),
        "{:?}",
        read(mooncake)
    );
    let talk = b"[\n{\"conversations\": [{\"from\": \"human\", \"value\": \"x\"}]},\n{\"conversations\": [{\"from\": \
                 \"alien\"}]}\n]";
    assert!(
        read(talk).unwrap_err().starts_with("FILE:3: must be {\"conversations\""),
        "{:?}",
        read(talk)
    );
    assert_eq!(
        read(b"[{\"conversations\": []} oops").unwrap_err(),
        "FILE:1: must be `,` or `]` after a conversation, got `o`"
    );
}

#[test]
fn an_unknown_format_names_the_nearest() {
    let error = read(b"num_prefill_tokens,decode\n1,2\n").unwrap_err();
    assert!(
        error.contains("the nearest is sarathi, which lacks `num_decode_tokens`"),
        "{error}"
    );
    assert!(
        error.contains("azure-llm (TIMESTAMP,ContextTokens,GeneratedTokens)"),
        "{error}"
    );
    let error = read(b"TENANT,ARRIVAL_NS,INPUT_TOKENS,OUTPUT_TOKENS\n1,2,3,4\n").unwrap_err();
    assert!(
        error.contains(
            "the nearest is tenantry, whose columns are called `arrival_ns`, `tenant`, `input_tokens`, `output_tokens`"
        ),
        "{error}"
    );
    assert_eq!(
        read(b"").unwrap_err(),
        "FILE: must have a first line, got an empty file"
    );
    assert_eq!(
        read(b"requests\n5\n").unwrap_err(),
        "FILE: must hold requests one by one, got counts"
    );
}

#[test]
fn broken_lines_can_be_skipped_and_are_counted() {
    let file = file(b"num_prefill_tokens,num_decode_tokens\n1,2\nbroken\n3,4\n-1,4\n");
    let mut records = Records::open(file.path(), true).unwrap();
    assert_eq!(records.by_ref().collect::<Result<Vec<_>, _>>().unwrap().len(), 2);
    assert_eq!(records.skipped(), 2);
}

#[test]
fn a_column_that_is_read_stands_in_the_first_line_once() {
    let own = "ticket,tenant,arrival_ns,input_tokens,input_tokens,output_tokens,class";
    for (header, name) in [
        (own, "input_tokens"),
        (
            "arrived_at,num_prefill_tokens,num_decode_tokens,arrived_at",
            "arrived_at",
        ),
        ("tenant,minute,tenant,invocations", "tenant"),
    ] {
        let must_be = format!("FILE: must have one column `{name}`, got 2");
        assert_eq!(read(format!("{header}\n").as_bytes()).unwrap_err(), must_be);
    }
    let unread = read(b"more,num_prefill_tokens,num_decode_tokens,more\nx,1,2,y\n").unwrap();
    assert_eq!(unread.len(), 1);
    // Which of the columns is a minute's, nobody knows.
    for (header, name) in [
        ("HashOwner,HashApp,HashFunction,Trigger,1,2,3,2", "2"),
        ("HashOwner,HashApp,HashFunction,Trigger,1_minute,1_minute", "1_minute"),
        ("HashFunction,HashApp,HashFunction,Trigger,1,2", "HashFunction"),
    ] {
        let wide = file(format!("{header}\n").as_bytes());
        let error = Format::of(wide.path()).unwrap_err().to_string();
        assert!(
            error.ends_with(&format!("must have one column `{name}`, got 2")),
            "{error}"
        );
        assert!(Format::ActivityWide.confirm(wide.path()).is_err());
    }
    let wide = file(b"Hash,Hash,HashFunction,Trigger,1,2\na,b,c,http,1,2\n");
    assert_eq!(Format::of(wide.path()).unwrap(), Format::ActivityWide);
    let named = file(b"num_prefill_tokens,num_decode_tokens,num_decode_tokens\n1,2,3\n");
    assert!(Format::Sarathi.confirm(named.path()).is_err());
}

#[test]
fn counts_must_be_contiguous() {
    let file = file(b"second,requests\n100,5\n101,6\n103,7\n");
    let counts: Vec<_> = Counts::open(file.path(), false).unwrap().collect();
    assert_eq!(counts[1].as_ref().unwrap(), &6);
    let error = counts[2].as_ref().unwrap_err().to_string();
    assert!(
        error.ends_with(":4: second: must be 102, after the line before, got 103"),
        "{error}"
    );
}

#[test]
fn activity_is_read_wide_and_sparse() {
    let wide = file(b"HashOwner,HashApp,HashFunction,Trigger,1_minute,2_minute\na,b,c,http,0,3\nd,e,f,timer,1,0\n");
    let sparse = file(b"tenant,minute,invocations\n0,1,3\n1,0,1\n");
    let cells = |path: &Path| {
        let mut cells = Vec::new();
        activity::for_each(path, false, |cell| cells.push(cell)).unwrap();
        cells
    };
    assert_eq!(cells(wide.path()), cells(sparse.path()));
    // As Azure released it.
    let released = file(b"HashOwner,HashApp,HashFunction,Trigger,1,2\na,b,c,http,0,3\nd,e,f,timer,1,0\n");
    assert_eq!(cells(released.path()), cells(sparse.path()));
    assert_eq!(activity::totals(wide.path(), false).unwrap().0, [3.0, 1.0]);
    // Silent lines are tenants, and numbers that nobody has are none.
    let silent = file(b"HashOwner,HashApp,HashFunction,Trigger,1\na,b,c,http,0\na,b,d,http,2\na,b,e,http,0\n");
    let part = file(b"tenant,minute,invocations\n9,0,1\n4,1,2\n5,0,0\n");
    for (path, numbers, totals) in [
        (silent.path(), vec![0, 1, 2], vec![0.0, 2.0, 0.0]),
        (part.path(), vec![4, 9], vec![2.0, 1.0]),
    ] {
        assert_eq!(activity::numbers(path, false).unwrap().0, numbers);
        assert_eq!(activity::totals(path, false).unwrap().0, totals);
    }
}

#[test]
fn texts_are_counted_by_a_given_tokenizer() {
    let tokenizer = include_bytes!("../../fuzz/seeds/tokenizer/0");
    let tokenizer = TokenizerJson::open(file(tokenizer).path()).unwrap();
    let talk = file(
        b"[{\"conversations\": [{\"from\": \"human\", \"value\": \"Four score, and seven years ago\"}, \
          {\"from\": \"gpt\", \"value\": \"seven\"}]}]",
    );
    // four score , and sev ##en years ago; sev ##en.
    let with = Records::open_with(talk.path(), false, Box::new(tokenizer)).unwrap().next().unwrap().unwrap();
    assert_eq!((with.input_tokens, with.output_tokens), (Some(8), Some(2)));
    let without = Records::open(talk.path(), false).unwrap().next().unwrap().unwrap();
    assert_eq!(
        (without.input_tokens, without.output_tokens),
        (Some(8), Some(2)),
        "31 and 5 characters"
    );
    let error = TokenizerJson::open(file(b"{\"version\": 7}").path()).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains(": must be a tokenizer.json, got "), "{error}");
}

#[test]
fn invocations_begin_before_they_end() {
    let rows = read(b"app,func,end_timestamp,duration\na,f,10.5,0.5\na,g,10.25,0.125\nb,f,11,0\na,f,2,5\n").unwrap();
    let starts: Vec<u64> = rows.iter().map(|row| row.arrival.unwrap().0 / 1_000_000).collect();
    assert_eq!(
        starts,
        [10_000, 10_125, 11_000, 0],
        "what began before the recording arrives at its start"
    );
    let tenants: Vec<u32> = rows.iter().map(|row| row.tenant.unwrap()).collect();
    assert_eq!(tenants, [0, 1, 2, 0]);
    assert_eq!(
        read(b"app,func,end_timestamp,duration\na,f,10.5,-1\n").unwrap_err(),
        "FILE:2: duration: must be seconds, 0 or above, got `-1`"
    );
}

#[test]
fn shapes_rise_and_have_values() {
    let read = |text: &str| RateShape::read(file(text.as_bytes()).path()).map_err(|error| error.to_string());
    assert_eq!(
        read("minute,tokens_per_second\n1,2.5\n3,1\n").unwrap().values,
        [0.0, 2.5, 0.0, 1.0]
    );
    for (text, message) in [
        (
            "hour,requests_per_hour\n1,5\n1,6\n",
            ":3: hour: must rise, to below 16777216, got `1`",
        ),
        (
            "hour,requests_per_hour\n1,-5\n",
            ":2: requests_per_hour: must be a number, 0 or above, got `-5`",
        ),
        ("hour,requests_per_hour\n1,0\n", ": must have a value above 0, got none"),
        (
            "requests\n1\n",
            ": must be aggregated rates such as `hour,requests_per_hour`, got counts",
        ),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.ends_with(message), "{error}");
    }
}

fn request() -> impl Strategy<Value = Request> {
    (any::<u32>(), any::<u64>(), 1u32.., any::<u32>(), any::<u16>()).prop_map(
        |(tenant, arrival, input_tokens, output_tokens, class)| Request {
            ticket: 0,
            tenant,
            arrival: Time(arrival),
            input_tokens,
            output_tokens,
            class,
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read(requests in proptest::collection::vec(request(), 0..50)) {
        let mut writer = own::Writer::new(Vec::new(), false).unwrap();
        requests.iter().for_each(|request| writer.write(request).unwrap());
        let file = file(&writer.finish().unwrap());
        let records = Records::open(file.path(), false).unwrap();
        prop_assert_eq!(records.format(), Format::Tenantry);
        let records: Vec<Record> = records.collect::<Result<_, _>>().unwrap();
        let expected: Vec<Record> = requests.iter().map(|request| Record {
            arrival: Some(request.arrival),
            tenant: Some(request.tenant),
            input_tokens: Some(request.input_tokens),
            output_tokens: Some(request.output_tokens),
            class: Some(request.class),
            change: None,
        }).collect();
        prop_assert_eq!(records, expected);
    }

    #[test]
    fn no_bytes_make_a_reader_panic(
        header in prop_oneof![
            Just("num_prefill_tokens,num_decode_tokens\n"),
            Just("TIMESTAMP,ContextTokens,GeneratedTokens\n"),
            Just("ticket,tenant,arrival_ns,input_tokens,output_tokens,class\n"),
            Just("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"),
            Just("timestamp_ms,text_bert_tokens\n"), Just("{\"timestamp\": 1, \"input_length\": "), Just("[{\"conversations\": ["),
            Just("requests\n"), Just("second,requests\n"), Just("tenant,minute,invocations\n"), Just("HashFunction,a,b,1_minute\n"),
            Just(""), Just("\x1f\u{8b}"),
        ],
        body in proptest::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(&b"0123456789,\n\"{}[]:-. T"[..])], 0..200),
    ) {
        let file = file(&[header.as_bytes(), &body].concat());
        let most = body.len() + 2;
        if let Ok(records) = Records::open(file.path(), true) {
            records.take(most).for_each(drop);
        }
        if let Ok(counts) = Counts::open(file.path(), false) {
            counts.take(most).for_each(drop);
        }
        let _ = activity::for_each(file.path(), false, drop);
    }
}

#[test]
fn a_format_can_be_given_where_several_fit() {
    let file = file(b"arrived_at,num_prefill_tokens,num_decode_tokens\n0.25,10,20\n");
    let as_format = |format| {
        let records = Records::open_as(file.path(), format, false, Box::new(FOUR_CHARS_A_TOKEN));
        records.map(|mut records| records.next().unwrap().unwrap())
    };
    assert_eq!(Format::of(file.path()).unwrap(), Format::Vidur);
    assert_eq!(as_format(Format::Sarathi).unwrap().arrival, None);
    assert_eq!(as_format(Format::Vidur).unwrap().arrival, Some(Time(250_000_000)));
    for (format, marks) in [
        (Format::AzureLlm, "azure-llm does (TIMESTAMP,"),
        (Format::ShareGpt, "sharegpt does ("),
        (Format::TenantryParquet, "tenantry-parquet does (PAR1"),
    ] {
        let error = as_format(format).unwrap_err().to_string();
        assert!(error.contains(&format!("must begin as {marks}")), "{error}");
    }
}

#[test]
fn a_gap_in_counts_has_no_requests_where_broken_lines_are_left_out() {
    let gaps = file(b"second,requests\n5,1\n6,2\n9,3\n10,4\n500000,5\n12,6\n");
    let mut counts = Counts::open(gaps.path(), true).unwrap();
    let read: Vec<u32> = counts.by_ref().map(Result::unwrap).collect();
    assert_eq!(read, [1, 2, 0, 0, 3, 4, 0, 6], "a line more than a day ahead is broken");
    assert_eq!(counts.skipped(), 2);
    assert!(Counts::open(gaps.path(), false).unwrap().any(|count| count.is_err()));

    // An empty line is a second too; at the end of a file it is none.
    let empty = file(b"requests\n5\n\n\n7\n\n");
    let mut counts = Counts::open(empty.path(), true).unwrap();
    let read: Vec<u32> = counts.by_ref().collect::<Result<_, _>>().unwrap();
    assert_eq!((read, counts.skipped()), (vec![5, 0, 0, 7], 2));
    let error = Counts::open(empty.path(), false).unwrap().find_map(Result::err).unwrap();
    let expected = ":5: requests: must be a whole number in each line, got 2 empty ones before this";
    assert!(error.to_string().ends_with(expected), "{error}");
}

#[test]
fn broken_lines_of_counts_and_activity_can_be_left_out() {
    let counts = file(b"second,requests\n4294967294,5\n4294967295,x\n0,1\n");
    assert!(Counts::open(counts.path(), false).unwrap().any(|count| count.is_err()));
    let counts = file(b"second,requests\n7,5\n8,x\n9,2\n");
    let error = Counts::open(counts.path(), false).unwrap().find_map(Result::err);
    assert!(error.unwrap().to_string().contains(":3: requests: must be a whole number, got `x`"));
    let broken = file(b"second,requests\n7,x\ny,5\n9,2\n10,3\n");
    let mut leading = Counts::open(broken.path(), true).unwrap();
    assert_eq!(leading.next().unwrap().unwrap(), 0);
    assert_eq!(leading.first_second(), 7, "known with the first count");
    let rest: Vec<u32> = leading.by_ref().collect::<Result<_, _>>().unwrap();
    assert_eq!((rest, leading.skipped()), (vec![0, 2, 3], 2));
    let broken = file(b"second,requests\nx,1\ny,5\n");
    let mut all = Counts::open(broken.path(), true).unwrap();
    assert_eq!(all.by_ref().map(Result::unwrap).collect::<Vec<_>>(), [0, 0]);
    assert!(all.next().is_none());
    let mut left = Counts::open(counts.path(), true).unwrap();
    let kept: Vec<u32> = left.by_ref().collect::<Result<_, _>>().unwrap();
    assert_eq!(
        (kept, left.skipped()),
        (vec![5, 0, 2], 1),
        "the others keep their second"
    );

    for (bytes, cells) in [
        (&b"tenant,minute,invocations\n0,1,2\n0,x,9\n1,0,4\n1,2\n"[..], vec![(0, 1, 2), (1, 0, 4)]),
        (
            b"HashOwner,HashApp,HashFunction,Trigger,1_minute,2_minute\na,b,c,http,0,2\na,b,d,http,7,x\na,b,e,http,4,0\na\n",
            vec![(0, 1, 2), (1, 0, 4)],
        ),
        (b"app,func,end_timestamp,duration\na,f,60.5,0.5\na,f,x,1\na,g,1,0.5\na\n", vec![(0, 1, 1), (1, 0, 1)]),
    ] {
        let file = file(bytes);
        let mut got = Vec::new();
        let skipped = activity::for_each(file.path(), true, |cell| got.push((cell.tenant, cell.minute, cell.requests)));
        assert_eq!((skipped.unwrap().skipped, got), (2, cells));
        assert!(activity::for_each(file.path(), false, |_| ()).is_err());
    }
}

#[test]
fn activity_is_read_by_the_names_of_its_columns() {
    for bytes in [
        &b"minute,id,invocations,tenant\n5,77,2,1\n"[..],
        b"duration,func,app,end_timestamp\n1,f,a,2\n1,g,a,301.5\n",
        b"HashFunction,1_minute,2_minute,3_minute,4_minute,5_minute,6_minute\nf,0,0,0,0,0,0\ng,0,0,0,0,0,2\n",
    ] {
        let file = file(bytes);
        let mut last = None;
        activity::for_each(file.path(), false, |cell| last = Some((cell.tenant, cell.minute))).unwrap();
        assert_eq!(last, Some((1, 5)));
    }
    // A minute beyond all recordings would wrap the length of a round.
    let far = file(b"tenant,minute,invocations\n0,4294967295,1\n");
    let error = activity::totals(far.path(), false).unwrap_err().to_string();
    assert!(
        error.contains(":2: minute: must be below 16777216, got 4294967295"),
        "{error}"
    );
}
