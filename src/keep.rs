//! What is kept of runs beside their figures: `requests.parquet`, `answers.parquet`, `timeline.json`, and the requests
//! as a trace.

use std::fmt::Display;
use std::ops::Range;
use std::path::{Path, PathBuf};

use tenantry_core::board::OpRan;
use tenantry_core::command::Finish;
use tenantry_core::event::Event;
use tenantry_core::run::Observer;
use tenantry_core::{Command, Commands, RunRecord};
use tenantry_reports::answers::{self, Answer, Answered, Read};
use tenantry_reports::human;
use tenantry_reports::requests::{self, RequestsPart};
use tenantry_reports::timeline::{self, TimelinePart};
use tenantry_reports::whole::Part;
use tenantry_reports::{ReportError, RunLabels};
use tenantry_scenarios::RunSpec;
use tenantry_traces::management::ManagementSpec;
use tenantry_traces::spec::ArrivalsSpec;
use tenantry_traces::write::TraceFile;
use tenantry_traces::{Duration, Ticket, Time, TraceError};

use crate::cli::KeepArgs;
use crate::commands::trace::names;
use crate::failure::Failure;
use crate::output::{check_apart, check_file, check_folder, make_folder, make_folder_of};
use crate::runs::Loaded;
use crate::time_range;

const REQUESTS: &str = "requests.parquet";
const ANSWERS: &str = "answers.parquet";
const TIMELINE_FILE: &str = "timeline.json";
/// How much of a run is drawn where the user does not say.
const TIMELINE: Duration = Duration::from_secs(2);

/// What a plan leaves that would be taken for the runs'.
const OF_PLANS: [&str; 2] = ["plan.json", "plan.html"];
/// What a plan leaves too: a scenario, which may be the runs'.
const ANSWER: &str = "answer.yaml";
/// What `tenantry reproduce` leaves that would be taken for the runs' or a plan's.
const OF_REPRODUCTIONS: [&str; 4] = ["reproduce.json", "reproduce.md", "sensitivity.json", "sensitivity.md"];
/// What runs leave that would be taken for a plan's.
const OF_RUNS: [&str; 8] = [
    "summary.json",
    "summary.csv",
    "curves.json",
    "report.html",
    "validation.json",
    REQUESTS,
    ANSWERS,
    TIMELINE_FILE,
];

/// A sentence on what an earlier command left in a folder that one which has no such files writes to. It may also be
/// the user's own: it stays.
fn earlier(folder: &Path, names: impl Iterator<Item = &'static str>, of: &str) -> Option<String> {
    let there: Vec<String> = names
        .map(|name| folder.join(name))
        .filter(|path| path.exists())
        .map(|path| path.display().to_string())
        .collect();
    let (were, are) = if there.len() == 1 {
        ("was", "is")
    } else {
        ("were", "are")
    };
    (!there.is_empty()).then(|| format!("{} {were} there before, and {are} not of {of}.", there.join(", ")))
}

/// What earlier commands left in a sweep's folder.
pub fn earlier_than_sweep(folder: &Path) -> Option<String> {
    let others = [REQUESTS, ANSWERS, TIMELINE_FILE].into_iter().chain(OF_PLANS);
    earlier(folder, others.chain(OF_REPRODUCTIONS), "these runs")
}

/// What earlier commands left in a plan's folder.
pub fn earlier_than_plan(folder: &Path) -> Option<String> {
    earlier(folder, OF_RUNS.into_iter().chain(OF_REPRODUCTIONS), "this plan")
}

/// What earlier commands left in the folder of a reproduction that writes the files `own`.
pub fn earlier_than_reproduction(folder: &Path, own: &[&str]) -> Option<String> {
    let of_others = OF_RUNS.into_iter().chain(OF_PLANS).chain([ANSWER]);
    let others = of_others.chain(OF_REPRODUCTIONS).filter(|name| !own.contains(name));
    earlier(folder, others, "this reproduction")
}

/// What is to be kept of a command's runs.
#[derive(Debug)]
pub struct Keep {
    /// Where files are begun, and mostly end.
    out: PathBuf,
    requests: bool,
    answers: bool,
    /// With the window that was asked for.
    timeline: Option<Option<Range<Time>>>,
    record: Option<PathBuf>,
    /// Files that earlier commands may have left where these runs write none of that name.
    of_others: Vec<&'static str>,
}

impl Keep {
    /// As the command line asks, with files in the folder `out`, which is made where it is missing.
    pub fn new(args: &KeepArgs, more: More<'_>, out: &Path, loaded: &Loaded) -> Result<Keep, Failure> {
        let More { record, answers } = more;
        let runs = &loaded.runs;
        let window = match args.timeline.as_deref() {
            None => None,
            Some("") => Some(None),
            Some(text) => Some(Some(time_range::parse("--timeline", text)?)),
        };
        if let (Some(_), Some(first)) = (record, runs.first()) {
            let others = runs.iter().filter(|run| run.workload != first.workload).count();
            if others > 0 {
                return Err(Failure::BadInput(format!(
                    "--record: must have one workload to record, got {others} runs with others than the first (a sweep \
                     or repeats); choose one with --set"
                )));
            }
            let closed = matches!(first.workload.arrivals, ArrivalsSpec::ClosedLoop { .. });
            if closed && runs.len() > 1 {
                return Err(Failure::BadInput(
                    "--record: must have one system where clients wait for their answers, since each system is then \
                     asked other requests; choose one with --set systems=[…]"
                        .into(),
                ));
            }
        }
        if let Some(record) = record {
            let scenarios = runs.iter().map(|run| PathBuf::from(&run.file));
            check_file(
                "--record",
                record,
                loaded.scenario.inputs().into_iter().chain(scenarios),
            )?;
        }
        check_folder("--out", out)?;
        if args.requests || answers || window.is_some() {
            make_folder(out)?;
        }
        let written = [
            (REQUESTS, args.requests),
            (ANSWERS, answers),
            (TIMELINE_FILE, window.is_some()),
        ];
        let not_written = written.into_iter().filter_map(|(name, written)| (!written).then_some(name));
        let not_written: Vec<_> = not_written.collect();
        for name in OF_RUNS.into_iter().filter(|name| !not_written.contains(name)) {
            let own = format!("{name} of --out");
            check_apart(("--record", record), (&own, Some(&out.join(name))))?;
        }
        // By whichever path the scenario was named.
        let answer = out.join(ANSWER).canonicalize().ok();
        let is_answer = |run: &RunSpec| answer.is_some() && Path::new(&run.file).canonicalize().ok() == answer;
        let answer = (!runs.iter().any(is_answer)).then_some(ANSWER);
        let of_others = OF_PLANS.into_iter().chain(answer).chain(OF_REPRODUCTIONS);
        Ok(Keep {
            out: out.to_owned(),
            requests: args.requests,
            answers,
            timeline: window,
            record: record.map(Path::to_owned),
            of_others: not_written.into_iter().chain(of_others).collect(),
        })
    }

    /// Watches the run that is number `index` of the command. Nothing where nothing is kept of it.
    pub fn watch(&self, index: usize, run: &RunSpec, labels: &RunLabels) -> Result<Option<Watch>, Failure> {
        let warm_up = Time::ZERO + run.warm_up;
        let timeline = self.timeline.as_ref().map(|window| {
            let window = window.clone().unwrap_or(warm_up..warm_up + TIMELINE);
            TimelinePart::new(&self.out.join(TIMELINE_FILE), window, index as u64 + 1, labels)
        });
        let requests = self.requests.then(|| RequestsPart::new(&self.out.join(REQUESTS), labels, warm_up));
        let record = self.record.as_ref().filter(|_| index == 0);
        let manages = run.workload.management != ManagementSpec::None;
        let answers = self.answers.then(|| WatchedAnswers {
            path: self.out.join(ANSWERS),
            labels: labels.clone(),
            answered: Answered::default(),
            written: None,
        });
        let watch = Watch {
            requests: requests.transpose().map_err(Failure::running)?,
            answers,
            timeline: timeline.transpose().map_err(Failure::running)?,
            record: record.map(|path| Recorder::create(path, manages)).transpose()?,
        };
        let anything =
            watch.requests.is_some() || watch.answers.is_some() || watch.timeline.is_some() || watch.record.is_some();
        Ok(anything.then_some(watch))
    }

    /// Writes the files from what was kept of all runs, in their order, in `folder`: that of `--out`, or another where
    /// finished results are to stay there; then an earlier trace stays too where the run of the new one was stopped.
    /// What must be known of them: files that lay in the folder before and are not of these runs, and a timeline with
    /// nothing in it.
    pub fn write(self, kept: Vec<Kept>, folder: &Path) -> Result<Vec<String>, Failure> {
        let is_own = folder == self.out;
        let nothing_ran = !kept.is_empty() && kept.iter().all(|kept| kept.nothing_ran);
        let earlier = earlier(folder, self.of_others.into_iter(), "these runs");
        let (mut requests, mut answered, mut timeline, mut recorded) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for kept in kept {
            requests.extend(kept.requests);
            answered.extend(kept.answers);
            timeline.extend(kept.timeline);
            if let Some(trace) = kept.record {
                recorded.extend(trace.write(is_own)?);
            }
        }
        if self.requests {
            requests::join(&folder.join(REQUESTS), &requests).map_err(Failure::running)?;
        }
        if self.answers {
            answers::join(&folder.join(ANSWERS), &answered).map_err(Failure::running)?;
        }
        if self.timeline.is_some() {
            timeline::join(&folder.join(TIMELINE_FILE), &timeline).map_err(Failure::running)?;
        }
        let empty = self.timeline.filter(|_| nothing_ran).map(|window| {
            let window = window.map_or_else(
                || format!("the {} s after the warm-up", TIMELINE.as_secs_f64()),
                |Range { start, end }| format!("from {} to {} s", start.as_secs_f64(), end.as_secs_f64()),
            );
            format!("{TIMELINE_FILE} has no ops: none of any run ran in its window, {window}.")
        });
        Ok(earlier.into_iter().chain(empty).chain(recorded).collect())
    }
}

/// What some commands are asked for besides.
#[derive(Clone, Copy, Debug, Default)]
pub struct More<'a> {
    /// The requests of the first run, as a trace.
    pub record: Option<&'a Path>,
    /// What a real machine answers.
    pub answers: bool,
}

/// Watches one run.
#[derive(Debug)]
pub struct Watch {
    requests: Option<RequestsPart>,
    answers: Option<WatchedAnswers>,
    timeline: Option<TimelinePart>,
    record: Option<Recorder>,
}

/// Who was answered, until what is known.
#[derive(Debug)]
struct WatchedAnswers {
    path: PathBuf,
    labels: RunLabels,
    answered: Answered,
    written: Option<Part>,
}

/// What was kept of one run.
pub struct Kept {
    requests: Option<Part>,
    answers: Option<Part>,
    timeline: Option<Part>,
    /// No op ran within the timeline's window.
    nothing_ran: bool,
    record: Option<Recorded>,
}

/// A sentence on a trace of a workload in which clients give up.
pub fn without_cancellations(path: &impl Display, cancellations: u64) -> String {
    format!(
        "{path} has no cancellations, of which there were {}: traces hold none; `workload.cancellations` in the \
         scenario that replays it has clients give up.",
        human::count(cancellations)
    )
}

/// A trace that is written but for its name.
struct Recorded {
    path: PathBuf,
    file: TraceFile,
    requests: u64,
    cancellations: u64,
    interrupted: bool,
}

impl Recorded {
    /// Gives the trace its name, unless it is cut short and one that is there is to stay; what must be known of it.
    fn write(self, may_replace: bool) -> Result<Vec<String>, Failure> {
        if self.interrupted && !may_replace && self.path.exists() {
            let path = self.path.display();
            return Ok(vec![format!(
                "{path} is left as it was, since the run whose requests it was to hold was stopped."
            )]);
        }
        let notes = self.notes();
        names::remove(&self.path)?;
        self.file.finish()?;
        Ok(notes)
    }

    /// What it lacks of what was asked.
    fn notes(&self) -> Vec<String> {
        let path = self.path.display();
        let cut = self.interrupted.then(|| {
            format!(
                "{path} holds the first {} requests alone, since the run was stopped.",
                human::count(self.requests)
            )
        });
        let given_up = (self.cancellations > 0).then(|| without_cancellations(&path, self.cancellations));
        cut.into_iter().chain(given_up).collect()
    }
}

impl Watch {
    /// What was answered, where that is kept, and what was read of a request by which of a cascade's models.
    pub fn answers(
        &mut self,
        answers: impl IntoIterator<Item = Answer>,
        read: impl Fn(&Finish, Option<u16>) -> Read,
    ) -> Result<(), Failure> {
        if let Some(kept) = &mut self.answers {
            let written = kept.answered.write(&kept.path, &kept.labels, answers, read);
            kept.written = Some(written.map_err(Failure::running)?);
        }
        Ok(())
    }

    /// The run is over.
    pub fn finish(self, run: &RunRecord) -> Result<Kept, Failure> {
        let lanes = || run.lanes.iter().map(|lane| lane.name.as_str());
        let part = |part: Option<Result<Part, ReportError>>| part.transpose().map_err(Failure::running);
        Ok(Kept {
            nothing_ran: self.timeline.as_ref().is_some_and(TimelinePart::is_empty),
            requests: part(self.requests.map(RequestsPart::finish))?,
            answers: self.answers.and_then(|kept| kept.written),
            timeline: part(self.timeline.map(|timeline| timeline.finish(lanes())))?,
            record: self.record.map(|record| record.finish(run.interrupted)).transpose()?,
        })
    }
}

impl Observer for Watch {
    fn event(&mut self, now: Time, event: &Event<'_>) {
        if let Some(requests) = &mut self.requests {
            requests.event(now, event);
        }
        if let Some(record) = &mut self.record {
            record.event(now, event);
        }
    }

    fn command(&mut self, now: Time, command: &Command, commands: &Commands) {
        if let Some(requests) = &mut self.requests {
            requests.command(now, command, commands);
        }
        if let Some(kept) = &mut self.answers {
            kept.answered.command(now, command, commands);
        }
    }

    fn judged(&mut self, ticket: Ticket, right: Option<bool>) {
        if let Some(requests) = &mut self.requests {
            requests.judged(ticket, right);
        }
    }

    fn watches_ops(&self) -> bool {
        self.timeline.is_some()
    }

    fn ran(&mut self, ran: &OpRan) {
        if let Some(timeline) = &mut self.timeline {
            timeline.ran(ran);
        }
    }
}

/// Writes the requests of a run down as they arrive, those of its management among them.
struct Recorder {
    path: PathBuf,
    trace: TraceFile,
    requests: u64,
    cancellations: u64,
    /// The first thing that went wrong; nothing is written after it.
    failed: Option<TraceError>,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

impl Recorder {
    fn create(path: &Path, manages: bool) -> Result<Recorder, Failure> {
        make_folder_of(path)?;
        let trace = match manages {
            true => TraceFile::create_with_changes(path),
            false => TraceFile::create(path),
        };
        Ok(Recorder {
            path: path.to_owned(),
            trace: trace?,
            requests: 0,
            cancellations: 0,
            failed: None,
        })
    }

    fn finish(self, interrupted: bool) -> Result<Recorded, Failure> {
        match self.failed {
            Some(error) => Err(error.into()),
            None => Ok(Recorded {
                path: self.path,
                file: self.trace,
                requests: self.requests,
                cancellations: self.cancellations,
                interrupted,
            }),
        }
    }
}

impl Observer for Recorder {
    fn event(&mut self, _: Time, event: &Event<'_>) {
        if self.failed.is_some() {
            return;
        }
        let written = match event {
            Event::Arrived(request) => {
                self.requests += 1;
                self.trace.write(request)
            }
            Event::Manage(request) => self.trace.write_change(request),
            Event::Cancelled(_) => {
                self.cancellations += 1;
                Ok(())
            }
            Event::Done(_) | Event::Timer(_) => Ok(()),
        };
        self.failed = written.err();
    }
}
