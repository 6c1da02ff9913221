//! Our own trace files: what is written is read, in each kind, and nothing stands under the name before it is whole.

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
        };
        let read = |spec| Changes::open(&spec).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
        assert_eq!(read(spec(1.0, 0)), changes);
        let later = read(spec(2.0, 2));
        let instants: Vec<u64> = later.iter().map(|change| change.at.0).collect();
        assert_eq!(
            instants,
            [0, 0, 1_000_000],
            "who is absent at the start is so in every part"
        );
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
        requests
            .iter()
            .map(|&request| tenantry_traces::Entry::Request(request))
            .collect(),
    ));
    assert_eq!(written.unwrap(), requests.len() as u64);
    file.finish().unwrap();
    let records = Records::open(&path, false).unwrap();
    assert_eq!(records.format(), Format::TenantryParquet);
    assert!(read(&path) == expected(&requests));
}

/// Found by fuzzing: files of two kilobytes that claim two billion things which are not there. Each was asked of the system, or room made for it,
/// before the file was called broken.
#[test]
fn what_a_parquet_file_only_claims_is_not_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("claims.parquet");
    let claims: [&[u8]; 2] = [
        include_bytes!("../fuzz/seeds/parquet/3"),
        include_bytes!("../fuzz/seeds/parquet/4"),
    ];
    let errors = claims.map(|claims| {
        std::fs::write(&path, [b"PAR1", claims].concat()).unwrap();
        let error = Records::open(&path, false).unwrap().find_map(Result::err);
        error.expect("the file is broken").to_string()
    });
    for (error, got) in errors.iter().zip(["unexpected end of file", "a dictionary of "]) {
        let must = "claims.parquet: must be a whole Parquet file, got ";
        assert!(error.contains(must) && error.contains(got), "{error}");
    }
}

#[test]
fn a_cut_parquet_file_is_an_error_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.parquet");
    std::fs::write(&path, b"PAR1 and then nothing of the kind").unwrap();
    let error = Records::open(&path, false).map(|_| ()).unwrap_err().to_string();
    assert!(
        error.contains("cut.parquet: must be a whole Parquet file, got "),
        "{error}"
    );
    let error = TraceFile::create(&folder.path().join("trace.xls"))
        .map(|_| ())
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("must end in .parquet, .csv or .csv.gz to be written, got another name"),
        "{error}"
    );
}
