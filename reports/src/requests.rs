//! `requests.parquet`: one row a request, in the order in which they left.
//!
//! Each run fills a part of its own while it goes on, a row group at a time, and the parts are joined in the order of
//! the runs: memory does not grow with the number of requests, and the file does not depend on the number of threads.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use parquet::schema::parser::parse_message_type;
use parquet::schema::types::TypePtr;
use tenantry_core::command::{Command, Commands, Finish, Verdict};
use tenantry_core::event::Event;
use tenantry_core::ids::{InstanceId, RequestId};
use tenantry_core::op::OpKind;
use tenantry_core::run::Observer;
use tenantry_traces::{Request, Ticket, Time};

use crate::error::ReportError;
use crate::rows::{self, Rows, Value};
use crate::summary::RunLabels;
use crate::whole::Part;

/// The columns. Instants are nanoseconds since the start of the run; what does not apply is null, never zero.
///
/// - `system`, `machine`, `repeat`, `seed`, `parameters`: which run; the sweep point is a JSON object. Requests of the
///   same ticket are the same in runs of the same seed and point.
/// - `ticket`, `tenant`, `class`, `input_tokens`, `output_tokens`: the request, as the workload has it; `output_tokens`
///   is null where it asks for none. `generated_tokens`: how many it was given, null where that is none: fewer where it
///   did not finish, came to the model's last position, or ended by a token.
/// - `arrival_ns`; `warm_up`, whether that is within the warm-up, so that most figures leave the request out;
///   `start_ns`, when its batch was handed to the machine (of several, the first); `first_token_ns`, of a decoder's
///   answer; `end_ns`, when it left.
/// - `queue_ns`, `lane_ns`, `stall_ns`, `compute_ns`, `tell_ns`: the waits of `summary.json`. They add up to the
///   latency.
/// - `batch`: which of the run's batches, from 0 (of several, the last), and `batch_requests`, how many requests were
///   in it (of several, the most).
/// - `stage`: of a cascade, which of its models answered, from 0, and `right`, whether the answer is, where that is
///   known.
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

/// A part of `requests.parquet`: the requests of one run. Watch the run with it.
#[derive(Debug)]
pub struct RequestsPart {
    labels: [Value; 5],
    warm_up: Time,
    rows: Rows,
    /// By ticket.
    inside: BTreeMap<u64, Inside>,
    batches: u64,
    /// Who is in every run of an instance until it is released: its ticket, and the instance.
    going_on: BTreeMap<RequestId, (u64, InstanceId)>,
    /// By instance: its last run.
    last_runs: BTreeMap<InstanceId, u64>,
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
        Ok(RequestsPart {
            labels: rows::labels(labels)?,
            warm_up,
            rows: Rows::new(path, &TYPE)?,
            inside: BTreeMap::new(),
            batches: 0,
            going_on: BTreeMap::new(),
            last_runs: BTreeMap::new(),
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
        self.rows.finish()
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
        let row = [
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
        self.rows.push(self.labels.clone().into_iter().chain(row));
    }

    /// A request that has been in all runs of its instance is in no more of them.
    fn released(&mut self, request: RequestId) {
        if let Some((ticket, instance)) = self.going_on.remove(&request)
            && let Some(inside) = self.inside.get_mut(&ticket)
        {
            inside.batch = self.last_runs.get(&instance).copied();
        }
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
                        self.going_on.insert(member.request, (member.ticket, submission.instance));
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

/// Writes `requests.parquet` from the parts of all runs, in their order.
///
/// # Errors
/// When the file cannot be written; the error names it.
pub fn join(path: &Path, parts: &[Part]) -> Result<(), ReportError> {
    rows::join(path, &TYPE, parts)
}
