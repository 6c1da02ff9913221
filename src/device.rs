//! The device of `execute` and `validate`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tenantry_core::spec::{EngineSpec, StreamsSpec};
use tenantry_core::{SystemSpec, Topology};
use tenantry_executor::machine::execute::{self, ExecuteError};
use tenantry_executor::{Building, ExecutorError, Files, Progress};
use tenantry_profiles::Card;
use tenantry_reports::Run;
use tenantry_scenarios::RunSpec;
use tenantry_traces::Time;

use crate::cards::cluster;
use crate::failure::Failure;
use crate::keep::{Kept, Watch};
use crate::runs::{run_failure, seen, summarized};

/// A device of this machine.
pub struct Device {
    name: String,
    torch: tenantry_executor::Device,
}

/// A run that was executed.
pub struct ExecutedRun {
    pub run: Run,
    pub interrupted: bool,
    pub caveats: Vec<String>,
    /// What was written down of it.
    pub kept: Option<Kept>,
}

impl Device {
    /// `cpu` or `cuda:N`.
    pub fn find(name: &str) -> Result<Device, Failure> {
        let torch = tenantry_executor::find_device(name).map_err(Failure::bad_input)?;
        Ok(Device {
            name: name.to_owned(),
            torch,
        })
    }

    /// As the user calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is the host's processor.
    pub fn is_cpu(&self) -> bool {
        self.torch == tenantry_executor::Device::Cpu
    }

    /// libtorch's handle.
    pub fn torch(&self) -> tenantry_executor::Device {
        self.torch
    }

    /// Serves a run's requests for real.
    pub fn execute(
        &self,
        run: &RunSpec,
        card: &Card,
        repeat: u32,
        interrupt: &Arc<AtomicBool>,
        mut watch: Option<Watch>,
    ) -> Result<ExecutedRun, Failure> {
        if run.system.pool.runtimes.is_some() && self.torch != tenantry_executor::Device::Cpu {
            return Err(Failure::BadInput(format!(
                "system {}: runtimes on a GPU, which are to be captured graphs, cannot be executed yet; `tenantry simulate` can",
                run.system.name
            )));
        }
        let spec = execute::Run {
            device: self.torch,
            card,
            cluster: cluster(run, card),
            system: &run.system,
            tenants: run.tenants,
            warm_up: Time::ZERO + run.warm_up,
            seed: run.seed,
            outcomes: run.answers.as_ref().map(|answers| (answers, run.seed)),
            max_host_bytes: tenantry_executor::available_host_bytes() / 2,
            files: Files {
                model: run.files.model.clone(),
                domains: run.files.domains.clone(),
                tenants: run.files.tenants.clone(),
                corpus: run.files.corpus.clone(),
            },
            tables: tenantry_executor::tables_folder(),
            building: say_building,
        };
        let mut workload = tenantry_traces::build(&run.workload).map_err(Failure::bad_input)?;
        let interrupt = Arc::clone(interrupt);
        let mut seen = seen(run);
        let done = match &mut watch {
            None => execute::execute(&spec, &mut *workload, interrupt, &mut seen),
            Some(watch) => execute::execute(&spec, &mut *workload, interrupt, (&mut seen, watch)),
        };
        let done = done.map_err(|error| {
            let message = format!("system {} on {}: {error}", run.system.name, self.name);
            match &error {
                ExecuteError::Server(_)
                | ExecuteError::Answers(_)
                | ExecuteError::Executor(ExecutorError::Input { .. }) => Failure::BadInput(message),
                ExecuteError::Run(error) => run_failure(message, error),
                ExecuteError::Executor(_) | ExecuteError::Law(_) => Failure::Running(message),
            }
        })?;
        let mut caveats = Vec::new();
        if let Some(sets) = done.shared_sets {
            caveats.push(format!(
                "Host memory holds {sets} different parameter sets of {}; its {} tenants share them in turn.",
                run.system.name, run.tenants
            ));
        }
        let refused = done.refused.iter();
        caveats.extend(refused.map(|reason| format!("{}: refused: {reason}", run.system.name)));
        if self.torch != tenantry_executor::Device::Cpu {
            caveats.extend(one_stream(&run.system, &self.name));
        }
        let lanes = Topology::new(&spec.cluster, &run.system.pool).lanes.len();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if lanes > cores {
            caveats.push(format!(
                "{lanes} lanes share {cores} cores, so that they slow each other down."
            ));
        }
        Ok(ExecutedRun {
            kept: watch.map(|watch| watch.finish(&done.record)).transpose()?,
            interrupted: done.record.interrupted,
            run: summarized(run, &self.name, repeat, &done.record).with_seen(&seen),
            caveats,
        })
    }
}

/// A sentence on tasks' operators that are to run on several streams of a GPU, which executions do not.
fn one_stream(system: &SystemSpec, device: &str) -> Option<String> {
    let EngineSpec::Shared { streams, .. } = system.pool.tasks.as_ref()?.engine else {
        return None;
    };
    let most = match streams {
        StreamsSpec::ByProfile { many: count }
        | StreamsSpec::Fixed { count }
        | StreamsSpec::Even { count }
        | StreamsSpec::InTurn { count } => count,
        StreamsSpec::OneEach => u32::MAX,
    };
    (most > 1).then(|| {
        format!(
            "{}: tasks' operators all issue to the one stream of {device}; several streams on a GPU are simulated only.",
            system.name
        )
    })
}

/// Now and then a line, since tables of a large model take minutes.
fn say_building(building: Building<'_>) {
    const FRAGMENTS_BETWEEN: u64 = 1 << 15;
    if let Progress::Encoding { done, total } = building.progress
        && (done == total || done.is_multiple_of(FRAGMENTS_BETWEEN))
    {
        eprintln!(
            "table of {}, fragments of {} tokens: {done} of {total}",
            building.node, building.fragment_tokens
        );
    }
}

#[cfg(test)]
mod tests {
    use tenantry_scenarios::Scenario;

    use super::*;

    #[test]
    fn several_streams_of_a_gpu_are_told_to_be_simulated_only() {
        let runs = Scenario::load("pets/mixed-64", &[]).unwrap().runs();
        let said: Vec<String> = runs
            .iter()
            .filter_map(|run| one_stream(&run.system, "cuda:0"))
            .collect();
        let expected = "two-streams: tasks' operators all issue to the one stream of cuda:0; several streams on a GPU are simulated only.";
        assert_eq!(said, [expected]);
    }
}
