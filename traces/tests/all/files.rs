//! Our own trace files: what is written is read, in each kind, and nothing stands under the name before it is whole.

use parquet::file::reader::{FileReader, SerializedFileReader};
use proptest::prelude::*;
use tenantry_traces::management::ManagementTrace;
use tenantry_traces::read::{Changes, Format, Record, Records};
use tenantry_traces::write::TraceFile;
use tenantry_traces::write::parquet::ROWS_PER_GROUP;
use tenantry_traces::{Action, Change, Duration, Entry, Listed, ManageRequest, Request, Time};

fn request() -> impl Strategy<Value = Request> {
    (any::<[u64; 2]>(), any::<u32>(), 1u32.., any::<u32>(), any::<u16>()).prop_map(
        |([ticket, arrival], tenant, input_tokens, output_tokens, class)| Request {
            ticket,
            tenant,
            arrival: Time(arrival),
            input_tokens,
            output_tokens,
            class,
        },
    )
}

fn expected(requests: &[Request]) -> Vec<Record> {
    let record = |request: &Request| Record {
        arrival: Some(request.arrival),
        tenant: Some(request.tenant),
        input_tokens: Some(request.input_tokens),
        output_tokens: Some(request.output_tokens),
        class: Some(request.class),
        change: None,
    };
    requests.iter().map(record).collect()
}

fn read(path: &std::path::Path) -> Vec<Record> {
    Records::open(path, false).unwrap().collect::<Result<_, _>>().unwrap()
}

proptest! {
    #[test]
    fn what_is_written_is_read(requests in proptest::collection::vec(request(), 0..50)) {
        let folder = tempfile::tempdir().unwrap();
        for name in ["trace.parquet", "trace.csv", "trace.csv.gz"] {
            let path = folder.path().join(name);
            let mut file = TraceFile::create(&path).unwrap();
            requests.iter().for_each(|request| file.write(request).unwrap());
            prop_assert!(!path.exists(), "not before it is whole");
            file.finish().unwrap();
            prop_assert_eq!(read(&path), expected(&requests));
        }
    }
}

/// Management requests come back as they were, apart from the requests beside them.
#[test]
fn changes_are_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let change = |at_ms: u64, change| ManageRequest {
        at: Time(at_ms * 1_000_000),
        change,
    };
    let changes = [
        change(0, Change::tenant(7, Action::Absent)),
        change(1, Change::tenant(7, Action::Create)),
        change(2, Change::domain(3, Action::Update)),
        change(4, Change::tenant(u32::MAX, Action::Delete)),
    ];
    let request = Request {
        ticket: 0,
        tenant: 7,
        arrival: Time(3_000_000),
        input_tokens: 9,
        output_tokens: 0,
        class: 0,
    };
    for name in ["trace.parquet", "trace.csv", "trace.csv.gz"] {
        let path = folder.path().join(name);
        let mut file = TraceFile::create_with_changes(&path).unwrap();
        let entries = changes.iter().map(|&change| Entry::Manage(change));
        let entries = entries.chain([Entry::Request(request)]).collect();
        assert_eq!(file.write_all(&mut Listed::new(entries)).unwrap(), 1);
        file.finish().unwrap();
        assert_eq!(read(&path), expected(&[request]));
        let spec = |speed, from_ms| ManagementTrace {
            path: path.clone(),
            speed,
            from: Duration::from_millis(from_ms),
            length: None,
        };
        let read = |spec| Changes::open(&spec).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
        assert_eq!(read(spec(1.0, 0)), changes);
        let later = read(spec(2.0, 2));
        let instants: Vec<u64> = later.iter().map(|change| change.at.0).collect();
        assert_eq!(instants, [0, 1_000_000], "who was absent has been created");
    }
    std::fs::write(
        folder.path().join("bad.csv"),
        "ticket,tenant,arrival_ns,input_tokens,output_tokens,class,change\n0,1,2,0,0,0,crate\n",
    )
    .unwrap();
    let error = Records::open(&folder.path().join("bad.csv"), false)
        .unwrap()
        .next()
        .unwrap()
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("change: must be empty or one of absent, create, update, "),
        "{error}"
    );
}

#[test]
fn parquet_streams_over_row_groups() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.parquet");
    let requests: Vec<Request> = (0..ROWS_PER_GROUP as u64 + 5)
        .map(|ticket| Request {
            ticket,
            tenant: (ticket % 1000) as u32,
            arrival: Time(ticket * 1_000_003),
            input_tokens: 1 + (ticket % 512) as u32,
            output_tokens: 0,
            class: 0,
        })
        .collect();
    let mut file = TraceFile::create(&path).unwrap();
    let written = file.write_all(&mut Listed::new(
        requests.iter().map(|&request| tenantry_traces::Entry::Request(request)).collect(),
    ));
    assert_eq!(written.unwrap(), requests.len() as u64);
    file.finish().unwrap();
    let records = Records::open(&path, false).unwrap();
    assert_eq!(records.format(), Format::TenantryParquet);
    assert!(read(&path) == expected(&requests));
}

/// Somebody else's file: numbers with a sign are not ones without, and times are not nanoseconds.
#[test]
fn what_numbers_of_a_parquet_file_mean_is_asked() {
    use parquet::data_type::Int64Type;
    use parquet::file::writer::SerializedFileWriter;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("theirs.parquet");
    let first = |arrival: &str, input: i64| {
        let schema = format!(
            "message theirs {{ required int64 ticket; required int64 tenant; required int64 arrival_ns{arrival}; \
             required int64 input_tokens; required int64 output_tokens; required int64 class; }}"
        );
        let schema = std::sync::Arc::new(parquet::schema::parser::parse_message_type(&schema).unwrap());
        let file = std::fs::File::create(&path).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema, Default::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        for value in [0, 3, 7, input, 0, 0] {
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<Int64Type>().write_batch(&[value], None, None).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
        match Records::open(&path, false) {
            Ok(mut records) => records.next().unwrap(),
            Err(error) => Err(error),
        }
    };
    assert_eq!(first("", 5).unwrap().input_tokens, Some(5));
    let negative = first("", -5).unwrap_err().to_string();
    assert!(
        negative.contains("row 1: input_tokens: must be 0 to 4294967295, got `-5`"),
        "{negative}"
    );
    for annotation in [" (TIMESTAMP(MILLIS,true))", " (TIMESTAMP_MILLIS)", " (TIME_MICROS)"] {
        let times = first(annotation, 5).unwrap_err().to_string();
        assert!(
            times.contains("must have `arrival_ns` as whole numbers, got a column of dates, times or decimals"),
            "{annotation}: {times}"
        );
    }
}

/// As pandas writes what it holds as `int32`, `uint32` and `Int64`: every column may have holes, and classes are often
/// not there.
#[test]
fn a_parquet_file_may_have_integers_of_any_width_and_no_class() {
    use parquet::data_type::{Int32Type, Int64Type};
    use parquet::file::writer::SerializedFileWriter;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("theirs.parquet");
    let schema = "message schema { optional int64 arrival_ns; optional int32 tenant (INTEGER(32,false)); \
                  optional int32 input_tokens; optional int64 output_tokens (INTEGER(64,true)); }";
    let schema = std::sync::Arc::new(parquet::schema::parser::parse_message_type(schema).unwrap());
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Default::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    // The largest tenant's number, whose bits are those of -1.
    let values = [[7i64, 9], [-1, 3], [5, 6], [0, 2]];
    for (column, values) in values.into_iter().enumerate() {
        let mut writer = group.next_column().unwrap().unwrap();
        let levels = Some(&[1i16, 1][..]);
        match column {
            1 | 2 => {
                let values = values.map(|value| value as i32);
                writer.typed::<Int32Type>().write_batch(&values, levels, None).unwrap()
            }
            _ => writer.typed::<Int64Type>().write_batch(&values, levels, None).unwrap(),
        };
        writer.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
    let record = |arrival, tenant, input, output| Record {
        arrival: Some(Time(arrival)),
        tenant: Some(tenant),
        input_tokens: Some(input),
        output_tokens: Some(output),
        class: None,
        change: None,
    };
    assert_eq!(read(&path), [record(7, u32::MAX, 5, 0), record(9, 3, 6, 2)]);
}

/// Others compress as they like: polars by zstd, Hadoop's tools by gzip or LZ4 of two kinds.
#[test]
fn a_parquet_file_may_be_compressed_by_any_codec() {
    use parquet::basic::Compression;
    use parquet::data_type::Int64Type;
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("theirs.parquet");
    let names = [
        "ticket",
        "tenant",
        "arrival_ns",
        "input_tokens",
        "output_tokens",
        "class",
    ];
    let columns = names.map(|name| format!("required int64 {name};"));
    let schema = format!("message theirs {{ {} }}", columns.join(" "));
    let schema = std::sync::Arc::new(parquet::schema::parser::parse_message_type(&schema).unwrap());
    for codec in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::ZSTD(Default::default()),
        Compression::GZIP(Default::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
        Compression::BROTLI(Default::default()),
    ] {
        let properties = WriterProperties::builder().set_compression(codec).build();
        let file = std::fs::File::create(&path).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema.clone(), properties.into()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let values: Vec<i64> = (0..5000).map(|row| 1 + row % 700).collect();
        for _ in names {
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<Int64Type>().write_batch(&values, None, None).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
        let inputs = Records::open(&path, false).unwrap().map(|record| record.unwrap().input_tokens);
        assert!(inputs.eq(values.iter().map(|&value| Some(value as u32))), "{codec}");
    }
}

#[test]
fn a_codec_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lzo.parquet");
    let (mut bytes, _) = nine_requests(&path);
    // The tenants' codec, behind their name: Snappy's number is 1, LZO's 3, as Thrift writes them.
    let codec = bytes.windows(9).position(|window| window == b"\x06tenant\x15\x02");
    bytes[codec.unwrap() + 8] = 6;
    std::fs::write(&path, bytes).unwrap();
    let error = Records::open(&path, false).err().unwrap().to_string();
    assert!(
        error.contains(
            "lzo.parquet: must be compressed by snappy, zstd, gzip, lz4 or brotli, or not at all, got LZO; \
             write it anew"
        ),
        "{error}"
    );
}

/// A file with nine requests, and where the tenants' first page begins.
fn nine_requests(path: &std::path::Path) -> (Vec<u8>, usize) {
    let mut file = TraceFile::create(path).unwrap();
    let request = Request {
        ticket: 0,
        tenant: 3,
        arrival: Time(7),
        input_tokens: 5,
        output_tokens: 0,
        class: 0,
    };
    (0..9).for_each(|_| file.write(&request).unwrap());
    file.finish().unwrap();
    let file = SerializedFileReader::new(std::fs::File::open(path).unwrap()).unwrap();
    let at = file.metadata().row_group(0).column(1).byte_range().0 as usize;
    (std::fs::read(path).unwrap(), at)
}

/// What is wrong with a Parquet file of `bytes`.
fn broken(path: &std::path::Path, bytes: &[u8]) -> String {
    std::fs::write(path, bytes).unwrap();
    let error = match Records::open(path, false) {
        Ok(records) => records.filter_map(Result::err).next().expect("the file is broken"),
        Err(error) => error,
    };
    let error = error.to_string();
    let (_, got) = error.split_once(": must be a whole Parquet file, got ").unwrap_or_else(|| panic!("{error}"));
    got.to_owned()
}

/// Found by fuzzing: some bytes that claim two billion things which are not there. Each was asked of the system, or
/// room made for it, before the file was called broken.
#[test]
fn what_a_parquet_file_only_claims_is_not_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("claims.parquet");
    let (mut numbers, at) = nine_requests(&path);
    // A list of as many floating-point numbers in a page's header.
    numbers[at..at + 7].copy_from_slice(&[0xf9, 0xf7, 0xff, 0xff, 0xff, 0xff, 0x07]);
    assert_eq!(broken(&path, &numbers), "External: unexpected end of file");
    // In its dictionary's header, field 7 of it, the number of values: 63 instead of 1.
    let (mut dictionary, at) = nine_requests(&path);
    let values = dictionary[at..].windows(3).position(|bytes| bytes == [0x4c, 0x15, 0x02]).unwrap();
    dictionary[at + values + 2] = 0x7e;
    assert_eq!(
        broken(&path, &dictionary),
        "Parquet error: a dictionary of 63 integers in 4 bytes"
    );
}

/// Flags that have no bytes keep the library busy for a second each two billion: it skips what it does not know one by
/// one.
#[test]
fn flags_that_a_parquet_file_only_claims_are_not_gone_through() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flags.parquet");
    let (whole, at) = nine_requests(&path);
    let two_billion = [0xf1, 0xff, 0xff, 0xff, 0xff, 0x07];

    // In field 100 of the metadata, a hundred times, behind all that the library knows.
    let tail = whole.len() - 8;
    let length = u32::from_le_bytes(whole[tail..tail + 4].try_into().unwrap()) as usize;
    let claims = [&[0x09, 0xc8, 0x01][..], &two_billion].concat().repeat(100);
    let metadata = [&whole[tail - length..tail - 1], &claims, &[0]].concat();
    let in_metadata = [
        &whole[..tail - length],
        &metadata,
        &(metadata.len() as u32).to_le_bytes(),
        b"PAR1",
    ]
    .concat();
    // In the header of the tenants' first page.
    let mut in_page = whole.clone();
    in_page[at..at + 7].copy_from_slice(&[&[0xf9][..], &two_billion].concat());
    // Found by fuzzing: behind a number of a hundred bytes, and where fields have other types than the library takes
    // them for.
    let behind_a_number = [b"PAR1", &include_bytes!("../../fuzz/seeds/parquet/6")[..]].concat();
    let behind_another_type = [b"PAR1", &include_bytes!("../../fuzz/seeds/parquet/7")[..]].concat();
    let other_type = broken(&path, &behind_another_type);
    assert!(
        other_type.starts_with("Parquet error: metadata whose field "),
        "{other_type}"
    );
    for bytes in [in_metadata, in_page, behind_a_number] {
        assert_eq!(
            broken(&path, &bytes),
            "Parquet error: a claim of 2147483647 flags, more than there are bytes"
        );
    }
}

#[test]
fn a_cut_parquet_file_is_an_error_with_its_name() {
    let folder = tempfile::Builder::new().prefix("traces").tempdir().unwrap();
    let folder_of_all = folder.path();
    let path = folder.path().join("cut.parquet");
    std::fs::write(&path, b"PAR1 and then nothing of the kind").unwrap();
    let error = Records::open(&path, false).map(|_| ()).unwrap_err().to_string();
    assert!(
        error.contains("cut.parquet: must be a whole Parquet file, got "),
        "{error}"
    );
    let error = TraceFile::create(&folder.path().join("trace.xls")).map(|_| ()).unwrap_err().to_string();
    assert!(
        error.ends_with("must end in .parquet, .csv or .csv.gz to be written, got another name"),
        "{error}"
    );
    for (name, folder) in [
        ("missing/trace.csv", "missing"),
        ("cut.parquet/trace.parquet", "cut.parquet"),
    ] {
        let path = folder_of_all.join(name);
        let error = TraceFile::create(&path).map(|_| ()).unwrap_err().to_string();
        let said = format!(
            "{}: must be a file that can be written, got: cannot write in the folder {}: ",
            path.display(),
            folder_of_all.join(folder).display()
        );
        assert!(error.starts_with(&said) && !error.contains(".tmp"), "{error}");
    }
}
