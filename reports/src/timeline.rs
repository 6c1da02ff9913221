//! `timeline.json`: which op ran when on which lane, in the Trace Event Format that Perfetto (ui.perfetto.dev) and
//! `chrome://tracing` open: a process a run, a thread a lane, a complete event an op.
//!
//! The format: "Trace Event Format", Google, 2016; times are microseconds since the start of the run.

use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tenantry_core::board::OpRan;
use tenantry_core::op::{Layers, Manage, OpKind};
use tenantry_core::run::Observer;
use tenantry_traces::{Subject, Time};

use crate::error::ReportError;
use crate::summary::RunLabels;
use crate::whole::{Part, PartFile, WholeFile};
use crate::{group, human};

/// A part of `timeline.json`: the ops of one run that ran within a window, even in part. Watch the run with it.
#[derive(Debug)]
pub struct TimelinePart {
    path: PathBuf,
    window: Range<Time>,
    process: u64,
    name: String,
    ops: u64,
    out: PartFile,
    /// The first thing that went wrong; nothing is written after it.
    failed: Option<io::Error>,
}

impl TimelinePart {
    /// A part of the file at `path`, whose folder must exist. `process` tells the runs of a file apart.
    ///
    /// # Errors
    /// When the folder is not writable.
    pub fn new(
        path: &Path,
        window: Range<Time>,
        process: u64,
        labels: &RunLabels,
    ) -> Result<TimelinePart, ReportError> {
        let title = group::title(&labels.system, &labels.parameters);
        Ok(TimelinePart {
            path: path.to_owned(),
            window,
            process,
            name: format!("{title}, {}, repeat {}", labels.machine, labels.repeat),
            ops: 0,
            out: Part::begin(path).map_err(|source| ReportError::io(path, source))?,
            failed: None,
        })
    }

    /// Whether no op has run within the window so far.
    pub fn is_empty(&self) -> bool {
        self.ops == 0
    }

    /// The run is over; `lanes` are the names of its lanes, in the order of their ids.
    ///
    /// # Errors
    /// When an event could not be written.
    pub fn finish<'a>(mut self, lanes: impl IntoIterator<Item = &'a str>) -> Result<Part, ReportError> {
        let process = self.process;
        self.write(&json!({
            "ph": "M", "name": "process_name", "pid": process, "args": { "name": self.name.clone() },
        }));
        for (lane, name) in lanes.into_iter().enumerate() {
            self.write(&json!({
                "ph": "M", "name": "thread_name", "pid": process, "tid": lane, "args": { "name": name },
            }));
            self.write(&json!({
                "ph": "M", "name": "thread_sort_index", "pid": process, "tid": lane, "args": { "sort_index": lane },
            }));
        }
        let path = self.path;
        match self.failed {
            Some(error) => Err(error),
            None => Part::end(self.out),
        }
        .map_err(|source| ReportError::io(&path, source))
    }

    fn write(&mut self, event: &Value) {
        if self.failed.is_none()
            && let Err(error) = writeln!(self.out, "{event},")
        {
            self.failed = Some(error);
        }
    }
}

impl Observer for TimelinePart {
    fn watches_ops(&self) -> bool {
        true
    }

    fn ran(&mut self, ran: &OpRan) {
        if ran.ended <= self.window.start || ran.started >= self.window.end {
            return;
        }
        self.ops += 1;
        let micros = |ns: u64| ns as f64 / 1e3;
        let (name, category) = name(&ran.kind);
        let event = json!({
            "ph": "X",
            "name": name,
            "cat": category,
            "pid": self.process,
            "tid": ran.lane.0,
            "ts": micros(ran.started.0),
            "dur": micros(ran.ended.0.saturating_sub(ran.started.0)),
            "args": {
                "batch": format!("{}.{}", ran.op.batch.slot, ran.op.batch.generation),
                "op": ran.op.index,
                "instance": ran.instance.0,
                "requests": ran.shape.requests,
                "tokens": ran.shape.tokens,
                "tenants": ran.shape.tenants,
            },
        });
        self.write(&event);
    }
}

/// What an op is called, and its category.
pub(crate) fn name(kind: &OpKind) -> (String, &'static str) {
    let bytes = |bytes: u64| human::bytes(bytes as f64);
    match kind {
        OpKind::Lookup(lookup) => (format!("look up {} tokens", lookup.tokens), "lookup"),
        OpKind::Stage(stage) => (format!("copy looked up, {}", bytes(stage.bytes)), "copy"),
        OpKind::Fetch(fetch) => (format!("read {}", bytes(fetch.bytes)), "copy"),
        OpKind::Transfer(transfer) => {
            let size = bytes(u64::from(transfer.pages) * transfer.page_bytes);
            (format!("cached keys and values from {}, {size}", transfer.from), "copy")
        }
        OpKind::CopyIn(copy) => {
            let size = bytes(u64::from(copy.chunks) * copy.chunk_bytes);
            (format!("copy in {}, {size}", layers(copy.layers)), "copy")
        }
        OpKind::Encode(encode) => {
            let parts = [
                (encode.embed, "embed".to_owned()),
                (encode.layers.count > 0, layers(encode.layers)),
                (encode.heads, "heads".to_owned()),
            ];
            let parts: Vec<String> = parts.into_iter().filter_map(|(has, part)| has.then_some(part)).collect();
            (format!("encode {}", parts.join(" + ")), "compute")
        }
        OpKind::Inspect => ("confidence and attention".to_owned(), "compute"),
        OpKind::Run(run) => (format!("run of at most {} steps", run.max_steps), "compute"),
        OpKind::Pet(pet) => {
            let model = format!("tasks of model {}", pet.model);
            (format!("{model}, operators on {} streams", pet.streams), "compute")
        }
        OpKind::Manage(Manage::Store { subject, bytes: size }) => {
            (format!("store {}, {}", of(*subject), bytes(*size)), "manage")
        }
        OpKind::Manage(Manage::Discard { subject }) => (format!("discard {}", of(*subject)), "manage"),
        OpKind::Infer(infer) => (format!("runtime {}", infer.runtime.runtime), "compute"),
        OpKind::LoadRuntime(load) => {
            let size = bytes(load.bytes);
            (format!("load runtime {}, {size}", load.runtime.runtime), "copy")
        }
        OpKind::LoadModel(load) => (format!("load model, {}", bytes(load.bytes)), "copy"),
        OpKind::Solve(solve) => (format!("allocate {} instances", solve.instances), "solve"),
        OpKind::PlanPool(plan) => {
            let rules: Vec<&str> = plan.rules.iter().map(|rule| rule.name()).collect();
            let rules = rules.join(" and ");
            (
                format!("plan {} queries to {} tasks, {rules}", plan.queries, plan.tasks),
                "solve",
            )
        }
    }
}

fn of(subject: Subject) -> String {
    match subject {
        Subject::Tenant(tenant) => format!("tenant {tenant}"),
        Subject::Domain(domain) => format!("domain {domain}"),
    }
}

fn layers(layers: Layers) -> String {
    match layers.count {
        1 => format!("layer {}", layers.first),
        count => format!("layers {}–{}", layers.first, layers.first + count.max(1) - 1),
    }
}

/// Writes `timeline.json` from the parts of all runs, in their order.
///
/// # Errors
/// When the file cannot be written; the error names it.
pub fn join(path: &Path, parts: &[Part]) -> Result<(), ReportError> {
    let mut file = WholeFile::create(path)?;
    let mut write = || -> io::Result<()> {
        writeln!(file, "{{\"displayTimeUnit\": \"ms\", \"traceEvents\": [")?;
        for part in parts {
            io::copy(&mut part.open()?, &mut file)?;
        }
        // Each event ends with a comma, and JSON wants one event after the last.
        writeln!(
            file,
            "{}",
            json!({ "ph": "M", "name": "tenantry", "pid": 0, "args": {} })
        )?;
        writeln!(file, "]}}")
    };
    write().map_err(|source| ReportError::io(path, source))?;
    file.finish()
}
