//! `requests.parquet`: one row a request, in the order in which they left.
//!
//! Each run fills a part of its own while it goes on, a row group at a time, and the parts are joined in the order of the runs:
//! memory does not grow with the number of requests, and the file does not depend on the number of threads.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use parquet::basic::Compression;
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::{BoolType, ByteArray, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaDataReader};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::TypePtr;
use tenantry_core::command::{Command, Commands, Finish, Verdict};
use tenantry_core::event::Event;
use tenantry_core::ids::{InstanceId, RequestId};
use tenantry_core::op::OpKind;
use tenantry_core::run::Observer;
use tenantry_traces::{Request, Ticket, Time};

use crate::error::ReportError;
use crate::summary::RunLabels;
use crate::whole::{Part, PartFile, WholeFile};

/// The columns. Instants are nanoseconds since the start of the run; what does not apply is null, never zero.
///
/// - `system`, `machine`, `repeat`, `seed`, `parameters`: which run; the sweep point is a JSON object. Requests of the same ticket are the same in
///   runs of the same seed and point.
/// - `ticket`, `tenant`, `class`, `input_tokens`, `output_tokens`: the request, as the workload has it; `output_tokens` is null where it
///   asks for none. `generated_tokens`: how many it was given, null where that is none: fewer where it did not finish, came to the model's last
///   position, or ended by a token.
/// - `arrival_ns`; `warm_up`, whether that is within the warm-up, so that most figures leave the request out; `start_ns`, when its batch was handed to the machine (of several, the first); `first_token_ns`, of a decoder's answer;
///   `end_ns`, when it left.
/// - `queue_ns`, `lane_ns`, `stall_ns`, `compute_ns`, `tell_ns`: the waits of `summary.json`. They add up to the latency.
/// - `batch`: which of the run's batches, from 0 (of several, the last), and `batch_requests`, how many requests were in it (of several, the most).
/// - `stage`: of a cascade, which of its models answered, from 0, and `right`, whether the answer is, where that is known.
/// - `outcome`: `finished`, `rejected`, `failed`, `cancelled` or `unfinished`; `reason` of the rejected and the failed.
pub const SCHEMA: &str = "
message request {
  required binary system (UTF8);
  required binary machine (UTF8);
  required int32 repeat (INTEGER(32,false));
  required int64 seed (INTEGER(64,false));
  required binary parameters (UTF8);
  required int64 ticket;
  required int32 tenant (INTEGER(32,false));
  required int32 class (INTEGER(32,false));
  required int32 input_tokens (INTEGER(32,false));
  optional int32 output_tokens (INTEGER(32,false));
  optional int32 generated_tokens (INTEGER(32,false));
  required int64 arrival_ns;
  required boolean warm_up;
  optional int64 start_ns;
  optional int64 first_token_ns;
  optional int64 end_ns;
  optional int64 queue_ns;
  optional int64 lane_ns;
  optional int64 stall_ns;
  optional int64 compute_ns;
  optional int64 tell_ns;
  optional int64 batch;
  optional int32 batch_requests (INTEGER(32,false));
  required binary outcome (UTF8);
  optional binary reason (UTF8);
  optional int32 stage (INTEGER(32,false));
  optional boolean right;
}";

static TYPE: LazyLock<TypePtr> =
    LazyLock::new(|| Arc::new(parse_message_type(SCHEMA).expect("the schema is well formed")));

/// Rows of a row group: some megabytes, as readers like it.
const GROUP_ROWS: usize = 1 << 16;

/// A part of `requests.parquet`: the requests of one run. Watch the run with it.
#[derive(Debug)]
pub struct RequestsPart {
    labels: [ByteArray; 3],
    repeat: u32,
    seed: u64,
    warm_up: Time,
    path: PathBuf,
    writer: SerializedFileWriter<PartFile>,
    columns: Vec<Column>,
    rows: usize,
    /// By ticket.
    inside: BTreeMap<u64, Inside>,
    batches: u64,
    /// Who is in every run of an instance until it is released: its ticket, and the instance.
    going_on: BTreeMap<RequestId, (u64, InstanceId)>,
    /// By instance: its last run.
    last_runs: BTreeMap<InstanceId, u64>,
    /// The first thing that went wrong; nothing is written after it.
    failed: Option<ParquetError>,
}

/// A request that has not left.
#[derive(Clone, Copy, Debug)]
struct Inside {
    request: Request,
    /// When the first batch with it was handed to the machine.
    start: Option<Time>,
    batch: Option<u64>,
    right: Option<bool>,
}

impl RequestsPart {
    /// A part of the file at `path`, whose folder must exist. The warm-up ends at `warm_up`.
    ///
    /// # Errors
    /// When the folder is not writable.
    pub fn new(path: &Path, labels: &RunLabels, warm_up: Time) -> Result<RequestsPart, ReportError> {
        let parameters = serde_json::to_string(&labels.parameters)?;
        let out = Part::begin(path).map_err(|source| ReportError::io(path, source))?;
        Ok(RequestsPart {
            labels: [labels.system.as_str(), &labels.machine, &parameters].map(ByteArray::from),
            repeat: labels.repeat,
            seed: labels.seed,
            warm_up,
            path: path.to_owned(),
            writer: SerializedFileWriter::new(out, TYPE.clone(), properties())
                .map_err(|source| ReportError::parquet(path, source))?,
            columns: columns(),
            rows: 0,
            inside: BTreeMap::new(),
            batches: 0,
            going_on: BTreeMap::new(),
            last_runs: BTreeMap::new(),
            failed: None,
        })
    }

    /// The run is over: who is still inside is unfinished.
    ///
    /// # Errors
    /// When a row could not be written.
    pub fn finish(mut self) -> Result<Part, ReportError> {
        for request in self.going_on.keys().copied().collect::<Vec<_>>() {
            self.released(request);
        }
        for inside in std::mem::take(&mut self.inside).into_values() {
            self.row(&inside, None);
        }
        let path = self.path.clone();
        self.close().map_err(|source| ReportError::parquet(&path, source))
    }

    fn close(mut self) -> Result<Part, ParquetError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.write_group()?;
        Ok(Part::end(self.writer.into_inner()?)?)
    }

    fn row(&mut self, inside: &Inside, left: Option<(Time, &Finish)>) {
        let Inside {
            request,
            start,
            batch,
            right,
        } = inside;
        let finish = left.map(|(_, finish)| finish);
        let (outcome, reason) = outcome(finish.map(|finish| finish.verdict));
        let ran = finish.filter(|finish| finish.batch_requests > 0);
        let wait = |read: fn(&Finish) -> u64| Value::long(ran.map(read));
        let [system, machine, parameters] = self.labels.clone();
        let row = [
            Value::Text(Some(system)),
            Value::Text(Some(machine)),
            Value::int(Some(self.repeat)),
            Value::long(Some(self.seed)),
            Value::Text(Some(parameters)),
            Value::long(Some(request.ticket)),
            Value::int(Some(request.tenant)),
            Value::int(Some(u32::from(request.class))),
            Value::int(Some(request.input_tokens)),
            Value::int((request.output_tokens > 0).then_some(request.output_tokens)),
            Value::int(finish.map(|finish| finish.output_tokens).filter(|&tokens| tokens > 0)),
            Value::long(Some(request.arrival.0)),
            Value::Bool(Some(request.arrival < self.warm_up)),
            Value::long(start.map(|start| start.0)),
            Value::long(finish.and_then(|finish| Some(finish.first_token?.0))),
            Value::long(left.map(|(now, _)| now.0)),
            wait(|finish| finish.waits.queue.0),
            wait(|finish| finish.waits.lane.0),
            wait(|finish| finish.waits.stall.0),
            wait(|finish| finish.waits.compute.0),
            wait(|finish| finish.waits.tell.0),
            Value::long(*batch),
            Value::int(ran.map(|finish| finish.batch_requests)),
            Value::text(Some(outcome)),
            Value::text(reason),
            Value::int(finish.and_then(|finish| Some(finish.returned?.stage.into()))),
            Value::Bool(*right),
        ];
        for (column, value) in self.columns.iter_mut().zip(row) {
            column.push(value);
        }
        self.rows += 1;
        if self.rows == GROUP_ROWS
            && self.failed.is_none()
            && let Err(error) = self.write_group()
        {
            self.failed = Some(error);
        }
    }

    /// A request that has been in all runs of its instance is in no more of them.
    fn released(&mut self, request: RequestId) {
        if let Some((ticket, instance)) = self.going_on.remove(&request)
            && let Some(inside) = self.inside.get_mut(&ticket)
        {
            inside.batch = self.last_runs.get(&instance).copied();
        }
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        for column in &mut self.columns {
            let mut writer = group.next_column()?.expect("a column of the schema");
            let levels = column.optional.then_some(&column.levels[..]);
            match &column.values {
                Values::Int(values) => writer.typed::<Int32Type>().write_batch(values, levels, None)?,
                Values::Long(values) => writer.typed::<Int64Type>().write_batch(values, levels, None)?,
                Values::Bool(values) => writer.typed::<BoolType>().write_batch(values, levels, None)?,
                Values::Text(values) => writer
                    .typed::<parquet::data_type::ByteArrayType>()
                    .write_batch(values, levels, None)?,
            };
            writer.close()?;
            column.clear();
        }
        group.close()?;
        self.rows = 0;
        Ok(())
    }
}

impl Observer for RequestsPart {
    fn event(&mut self, _: Time, event: &Event<'_>) {
        if let Event::Arrived(request) = event {
            let request = *request;
            let inside = Inside {
                request,
                start: None,
                batch: None,
                right: None,
            };
            self.inside.insert(request.ticket, inside);
        }
    }

    fn judged(&mut self, ticket: Ticket, right: Option<bool>) {
        if let Some(inside) = self.inside.get_mut(&ticket) {
            inside.right = right;
        }
    }

    fn command(&mut self, now: Time, command: &Command, commands: &Commands) {
        match command {
            Command::Submit(submission) => {
                let ops = commands.ops(submission);
                let is_run = ops.iter().any(|op| matches!(op.kind, OpKind::Run(_)));
                // Plans, solutions, and what is looked up or copied by itself, are no batches.
                let is_batch = ops.iter().any(|op| op.kind.computes());
                for member in commands.members(submission) {
                    if let Some(inside) = self.inside.get_mut(&member.ticket) {
                        inside.start.get_or_insert(now);
                        if is_batch {
                            inside.batch = Some(self.batches);
                        }
                    }
                    if is_run && member.sequence.completes {
                        self.going_on
                            .insert(member.request, (member.ticket, submission.instance));
                    }
                }
                if is_run {
                    self.last_runs.insert(submission.instance, self.batches);
                }
                self.batches += u64::from(is_batch);
            }
            Command::Park { request, .. } | Command::Release { request, .. } => self.released(*request),
            Command::Finish(finish) => {
                if let Some(inside) = self.inside.remove(&finish.ticket) {
                    self.row(&inside, Some((now, finish)));
                }
            }
            _ => {}
        }
    }
}

fn outcome(verdict: Option<Verdict>) -> (&'static str, Option<&'static str>) {
    match verdict {
        Some(Verdict::Served) => ("finished", None),
        Some(Verdict::Rejected(reason)) => ("rejected", Some(reason.name())),
        Some(Verdict::Failed(reason)) => ("failed", Some(reason.name())),
        Some(Verdict::Cancelled) => ("cancelled", None),
        None => ("unfinished", None),
    }
}

/// Writes `requests.parquet` from the parts of all runs, in their order. Pages are copied as they are.
///
/// # Errors
/// When the file cannot be written; the error names it.
pub fn join(path: &Path, parts: &[Part]) -> Result<(), ReportError> {
    let mut file = WholeFile::create(path)?;
    copy_groups(&mut file, parts).map_err(|source| ReportError::parquet(path, source))?;
    file.finish()
}

fn copy_groups(out: &mut WholeFile, parts: &[Part]) -> Result<(), ParquetError> {
    let mut writer = SerializedFileWriter::new(out, TYPE.clone(), properties())?;
    for part in parts {
        let part = part.open()?;
        let metadata = ParquetMetaDataReader::new()
            .with_page_index_policy(PageIndexPolicy::Optional)
            .parse_and_finish(&part)?;
        let index = metadata.page_index();
        for (g, group) in metadata
            .row_groups()
            .iter()
            .enumerate()
            .filter(|(_, group)| group.num_rows() > 0)
        {
            let mut copy = writer.next_row_group()?;
            for (c, column) in group.columns().iter().enumerate() {
                let result = ColumnCloseResult {
                    bytes_written: column.compressed_size() as u64,
                    rows_written: group.num_rows() as u64,
                    metadata: column.clone(),
                    bloom_filter: None,
                    column_index: index.and_then(|index| index.column_index(g, c)).cloned(),
                    offset_index: index.and_then(|index| index.offset_index(g, c)).cloned(),
                };
                copy.append_column(&part, result)?;
            }
            copy.close()?;
        }
    }
    writer.close()?;
    Ok(())
}

fn properties() -> Arc<WriterProperties> {
    Arc::new(WriterProperties::builder().set_compression(Compression::SNAPPY).build())
}

/// A cell.
enum Value {
    Int(Option<i32>),
    Long(Option<i64>),
    Bool(Option<bool>),
    Text(Option<ByteArray>),
}

impl Value {
    /// The bits of an unsigned number, as Parquet keeps them.
    fn int(value: Option<u32>) -> Value {
        Value::Int(value.map(|value| value as i32))
    }

    fn long(value: Option<u64>) -> Value {
        Value::Long(value.map(|value| value as i64))
    }

    fn text(value: Option<&'static str>) -> Value {
        Value::Text(value.map(ByteArray::from))
    }
}

/// A column of the row group that is being filled.
#[derive(Debug)]
struct Column {
    optional: bool,
    values: Values,
    /// 1 where there is a value.
    levels: Vec<i16>,
}

#[derive(Debug)]
enum Values {
    Int(Vec<i32>),
    Long(Vec<i64>),
    Bool(Vec<bool>),
    Text(Vec<ByteArray>),
}

impl Column {
    fn push(&mut self, value: Value) {
        let present = match (&mut self.values, value) {
            (Values::Int(values), Value::Int(value)) => value.map(|value| values.push(value)),
            (Values::Long(values), Value::Long(value)) => value.map(|value| values.push(value)),
            (Values::Bool(values), Value::Bool(value)) => value.map(|value| values.push(value)),
            (Values::Text(values), Value::Text(value)) => value.map(|value| values.push(value)),
            _ => unreachable!("rows have the types of the schema"),
        };
        debug_assert!(self.optional || present.is_some(), "a required column has a value");
        if self.optional {
            self.levels.push(i16::from(present.is_some()));
        }
    }

    fn clear(&mut self) {
        self.levels.clear();
        match &mut self.values {
            Values::Int(values) => values.clear(),
            Values::Long(values) => values.clear(),
            Values::Bool(values) => values.clear(),
            Values::Text(values) => values.clear(),
        }
    }
}

fn columns() -> Vec<Column> {
    let column = |field: &TypePtr| Column {
        optional: field.is_optional(),
        values: match field.get_physical_type() {
            parquet::basic::Type::INT32 => Values::Int(Vec::new()),
            parquet::basic::Type::INT64 => Values::Long(Vec::new()),
            parquet::basic::Type::BOOLEAN => Values::Bool(Vec::new()),
            _ => Values::Text(Vec::new()),
        },
        levels: Vec::new(),
    };
    TYPE.get_fields().iter().map(column).collect()
}
