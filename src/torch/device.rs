//! The device of `execute` and `validate`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use indicatif::ProgressBar;
use tenantry_core::command::Finish;
use tenantry_executor::machine::clocks::LaneClocks;
use tenantry_executor::machine::errors::LaneErrors;
use tenantry_executor::machine::execute::{self, ExecuteError, Executed};
use tenantry_executor::{Building, DeviceMemory, ExecutorError, Progress};
use tenantry_plot::PlotError;
use tenantry_profiles::Card;
use tenantry_reports::Run;
use tenantry_reports::answers::{Answer, Read, Said};
use tenantry_reports::human;
use tenantry_scenarios::RunSpec;
use tenantry_traces::Time;
use tenantry_traces::generate::TenantGroups;

use crate::executable;
use tenantry::cards::{self, cluster, workload, workload_failure};
use tenantry::caveats::{AnotherRate, of_workload};
use tenantry::failure::Failure;
use tenantry::keep::{Kept, Watch};
use tenantry::runs::{run_failure, seen, summarized};

/// A device of this machine.
pub struct Device {
    name: String,
    torch: tenantry_executor::Device,
    /// Of the host, before anything ran.
    available_host_bytes: u64,
    /// Whether it is asked what each request got.
    answers: bool,
}

/// A run that was executed.
pub struct ExecutedRun {
    pub run: Run,
    pub interrupted: bool,
    pub caveats: Vec<String>,
    pub another_rate: Option<AnotherRate>,
    /// What was written down of it.
    pub kept: Option<Kept>,
}

impl Device {
    /// `cpu` or `cuda:N`, as `--device` gives it.
    pub fn find(name: &str) -> Result<Device, Failure> {
        let torch = tenantry_executor::find_device(name);
        let torch = torch.map_err(|error| Failure::BadInput(format!("--{error}")))?;
        Ok(Device {
            name: name.to_owned(),
            torch,
            available_host_bytes: tenantry_executor::available_host_bytes(),
            answers: false,
        })
    }

    /// The same, told of each request's tokens where `answers` are asked for.
    pub fn with_answers(self, answers: bool) -> Device {
        Device { answers, ..self }
    }

    /// Memory of the host that a run may use. What PyTorch has page-locked it keeps for the next run, though the system
    /// counts it as taken.
    pub fn available_host_bytes(&self) -> u64 {
        match self.is_cpu() {
            true => tenantry_executor::available_host_bytes(),
            false => self.available_host_bytes,
        }
    }

    /// Of the host, for what it keeps of tenants: of a processor's memory half, or what is left of it beside what
    /// stands for cards.
    fn bytes_for_tenants(&self, run: &RunSpec, card: &Card) -> Result<u64, Failure> {
        let there = self.available_host_bytes();
        if !self.is_cpu() {
            // PyTorch gives page-locked memory out in powers of two, so that tenants' parameters may take twice what
            // they are long.
            return Ok(there / 4);
        }
        let server = cards::server(run, card).map_err(Failure::BadInput)?;
        Ok((there / 2).min(there.saturating_sub(executable::needed_bytes(run, &server))))
    }

    /// Why a system is not executed here.
    pub fn failure(&self, system: &str, error: &ExecutorError) -> Failure {
        let message = format!("system {system} on {}: {error}", self.name);
        match error {
            error if error.is_bad_input() => Failure::BadInput(message),
            ExecutorError::Interrupted => Failure::Interrupted(message),
            ExecutorError::Plot(PlotError::Interrupted { .. }) => {
                Failure::Interrupted(format!("{message}; the same command goes on"))
            }
            _ => Failure::Running(message),
        }
    }

    /// As the user calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is the host's processor.
    pub fn is_cpu(&self) -> bool {
        self.torch == tenantry_executor::Device::Cpu
    }

    /// What it is.
    pub fn description(&self) -> Result<tenantry_profiles::Device, Failure> {
        tenantry_executor::describe(self.torch).map_err(Failure::running)
    }

    /// libtorch's handle.
    pub fn torch(&self) -> tenantry_executor::Device {
        self.torch
    }

    /// Serves a run's requests for real. Where tables are to be built first, the bar shows how far they are.
    pub fn execute(
        &self,
        run: &RunSpec,
        card: &Card,
        repeat: u32,
        interrupt: &Arc<AtomicBool>,
        bar: &ProgressBar,
        mut watch: Option<Watch>,
    ) -> Result<ExecutedRun, Failure> {
        let groups = TenantGroups::new(&run.workload).map_err(|error| workload_failure(Some(&run.file), &error))?;
        let spec = execute::Run {
            device: self.torch,
            card,
            cluster: cluster(run, card),
            system: &run.system,
            tenants: run.tenants,
            warm_up: Time::ZERO + run.warm_up,
            target: run.slo.map(|slo| slo.target),
            seed: run.seed,
            outcomes: run.answers.as_ref().map(|answers| (answers, run.seed)),
            max_host_bytes: self.bytes_for_tenants(run, card)?,
            files: executable::files(run),
            tables: tenantry_executor::tables_folder(),
            tokens: self.answers,
            domains: groups.domains().clone(),
            building: &show_building(bar),
        };
        let mut workload = workload(run)?;
        let interrupt = Arc::clone(interrupt);
        let mut seen = seen(run);
        // Its memory is the run's own, and not in part that of one before it in this process.
        tenantry_executor::give_memory_back(self.torch)
            .and_then(|()| tenantry_executor::forget_peak_memory(self.torch))
            .map_err(|error| Failure::Running(error.to_string()))?;
        let done = match &mut watch {
            None => execute::execute(&spec, &mut *workload, interrupt, &mut seen),
            Some(watch) => execute::execute(&spec, &mut *workload, interrupt, (&mut seen, watch)),
        };
        let done = done.map_err(|error| {
            let message = format!("system {} on {}: {error}", run.system.name, self.name);
            match &error {
                ExecuteError::Server(_) | ExecuteError::Answers(_) => Failure::BadInput(message),
                ExecuteError::Executor(error) => self.failure(&run.system.name, error),
                ExecuteError::Run(error) => run_failure(run, message, error),
                ExecuteError::Law(_) => Failure::Running(message),
            }
        })?;
        if let Some(watch) = &mut watch {
            let read = |of: &Finish, stage: Option<u16>| Read {
                item: done.inputs.item(of.ticket),
                ids: done.inputs.ids(of).filter(|_| stage.unwrap_or(0) == 0),
            };
            watch.answers(answers(&done, run.system.route.is_some()), read)?;
        }
        let mut caveats = Vec::new();
        if let Some(sets) = done.shared_sets {
            caveats.push(format!(
                "There are {sets} different parameter sets of {} in host memory; its {} tenants share them in turn.",
                run.system.name, run.tenants
            ));
        }
        caveats.extend(done.disk_in_memory.then(|| disk_in_memory(&run.system.name)));
        let refused = done.refused.iter();
        caveats.extend(refused.map(|reason| format!("{}: refused: {reason}", run.system.name)));
        caveats.extend(done.errors.iter().map(|of| errors(&run.system.name, of)));
        caveats.extend(clocks(&run.system.name, &self.name, &done.clocks, done.device_memory));
        caveats.extend(shared_device(&run.system.name, run.gpus, self));
        let lanes = done.lanes;
        let cores = tenantry_profiles::cores() as usize;
        if lanes > cores {
            caveats.push(format!(
                "{}: {lanes} lanes share {cores} cores, so that they slow each other down.",
                run.system.name
            ));
        }
        let mut summarized = summarized(run, &self.name, repeat, &done.record).with_seen(&seen);
        // What was held, and not what all tenants' would be.
        if let Some(bytes) = &mut summarized.summary.host_memory_bytes {
            *bytes = done.host_bytes;
        }
        caveats.extend(of_workload(run, &summarized));
        Ok(ExecutedRun {
            kept: watch.map(|watch| watch.finish(&done.record)).transpose()?,
            interrupted: done.record.interrupted,
            another_rate: AnotherRate::of(run, &summarized.summary),
            run: summarized,
            caveats,
        })
    }
}

/// What models answered, of whatever kind, by ticket; `staged` where there is more than one that may be asked.
fn answers(done: &Executed, staged: bool) -> impl Iterator<Item = Answer> {
    let of = |ticket, stage, said| Answer { ticket, stage, said };
    let classes = done
        .answers
        .iter()
        .map(move |answer| of(answer.ticket, staged.then_some(answer.stage), Said::Class(answer.class)));
    let numbers = done.numbers.iter().map(move |number| {
        of(
            number.ticket,
            staged.then_some(number.stage),
            Said::Number(number.number),
        )
    });
    let labels = done.tagged.iter().map(move |tagged| {
        let labels = tagged.labels.iter().map(|&label| label.into());
        of(tagged.ticket, None, Said::Labels(labels.collect()))
    });
    let tokens = done.generated.iter().map(move |made| of(made.ticket, None, Said::Tokens(made.tokens.clone())));
    classes.chain(numbers).chain(labels).chain(tokens)
}

/// A sentence on parameters that were read from a disk which is none.
fn disk_in_memory(system: &str) -> String {
    format!(
        "{system}: the folder for temporary files lies in memory: what tenants have on the disk was read from there (TMPDIR may name another)."
    )
}

/// A sentence on what failed on a lane.
fn errors(system: &str, LaneErrors { lane, count, first }: &LaneErrors) -> String {
    let what = match count {
        1 => "an error".to_owned(),
        _ => format!("{count} errors, the first"),
    };
    format!("{system}: {what} on {lane}: {first}.")
}

/// A sentence on how long ops spanned on a GPU's streams, which also wait for the host, on what they took by the host's
/// clock, and on the memory that they took.
fn clocks(system: &str, device: &str, clocks: &[LaneClocks], memory: Option<DeviceMemory>) -> Option<String> {
    let busy = clocks.iter().filter(|clocks| clocks.ops > 0);
    let lane = |of: &LaneClocks| {
        let (span, host) = (of.span.as_secs_f64(), of.host.as_secs_f64());
        format!("{} {span:.3} s and {host:.3} s in {} ops", of.lane, of.ops)
    };
    let lanes: Vec<String> = busy.map(lane).collect();
    let most = memory.map_or_else(String::new, |memory| {
        format!("; at most {} of tensors", human::bytes(memory.peak as f64))
    });
    (!lanes.is_empty()).then(|| {
        format!(
            "{system}: ops' spans on the streams of {device}, pauses included, and their times by the host's clock: \
             {}{most}.",
            lanes.join(", ")
        )
    })
}

/// A sentence where a GPU stands for several cards. On a CPU, whose workers have cores, it is lanes that are counted.
fn shared_device(system: &str, gpus: u32, device: &Device) -> Option<String> {
    (gpus > 1 && !device.is_cpu()).then(|| {
        format!(
            "{system}: {} is all of the {gpus} cards, which share what it computes and its memory: nothing is executed \
             on several GPUs yet.",
            device.name
        )
    })
}

/// Shows on the bar of a command's runs how far each table is, since those of a large model take minutes; after each,
/// the runs again.
fn show_building(bar: &ProgressBar) -> impl Fn(Building<'_>) + '_ {
    let (runs, total_runs, runs_done) = (bar.prefix(), bar.length().unwrap_or(0), bar.position());
    let show = move |what: String, total, done| {
        bar.set_prefix(what);
        bar.set_length(total);
        bar.set_position(done);
    };
    move |building| {
        let what = || format!("table of {}, fragments of {}", building.node, building.fragment_tokens);
        match building.progress {
            Progress::Counting { .. } => bar.set_prefix(format!("{}, counting", what())),
            Progress::Encoding { done, total } if done < total => show(what(), total, done),
            Progress::Encoding { .. } => {
                show(runs.clone(), total_runs, runs_done);
                bar.reset_eta();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_gpu_for_several_cards_is_told() {
        let gpu = Device {
            name: "cuda:1".to_owned(),
            torch: tenantry_executor::Device::Cuda(1),
            available_host_bytes: 1 << 30,
            answers: false,
        };
        let told = shared_device("punica", 4, &gpu).unwrap();
        assert!(told.starts_with("punica: cuda:1 is all of the 4 cards,"), "{told}");
        assert_eq!(shared_device("punica", 1, &gpu), None);
        let cpu = Device {
            name: "cpu".to_owned(),
            torch: tenantry_executor::Device::Cpu,
            available_host_bytes: 1 << 30,
            answers: false,
        };
        assert_eq!(shared_device("punica", 2, &cpu), None, "workers are lanes there");
    }

    #[test]
    fn a_disk_that_is_memory_is_told() {
        let told = disk_in_memory("punica");
        assert!(told.starts_with("punica: ") && told.contains("TMPDIR"), "{told}");
    }

    #[test]
    fn what_failed_on_a_lane_is_told() {
        let of = |count| LaneErrors {
            lane: "gpu0/copy".to_owned(),
            count,
            first: "libtorch: no kernel image".to_owned(),
        };
        assert_eq!(
            errors("hbert", &of(1)),
            "hbert: an error on gpu0/copy: libtorch: no kernel image."
        );
        assert_eq!(
            errors("hbert", &of(12)),
            "hbert: 12 errors, the first on gpu0/copy: libtorch: no kernel image."
        );
    }

    #[test]
    fn both_clocks_are_told_of_lanes_that_worked() {
        let lane = |lane: &str, ops, host, span| LaneClocks {
            lane: lane.to_string(),
            ops,
            host: Duration::from_millis(host),
            span: Duration::from_millis(span),
        };
        let all = [lane("compute-0", 20, 3500, 3100), lane("copy-0", 0, 0, 0)];
        let memory = DeviceMemory {
            free: 0,
            total: 0,
            peak: 3 << 29,
        };
        let told = clocks("pets", "cuda:0", &all, Some(memory)).unwrap();
        let expected = "pets: ops' spans on the streams of cuda:0, pauses included, and their times by the host's \
                        clock: compute-0 3.100 s and 3.500 s in 20 ops; at most 1.50\u{a0}GiB of tensors.";
        assert_eq!(told, expected);
        assert_eq!(clocks("pets", "cuda:0", &all[1..], Some(memory)), None);
    }
}
