//! All runs of a scenario on each of the two machines.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::ProgressBar;
use tenantry_reports::Run;
use tenantry_reports::summary::VIRTUAL;

use super::gauging::Gauging;
use crate::device::Device;
use tenantry::caveats::AnotherRate;
use tenantry::failure::Failure;
use tenantry::keep::{Keep, Kept};
use tenantry::runs::{Loaded, SimulatedRun, labels, simulate};

/// The two machines, and what is kept of their runs.
pub struct Both<'a> {
    pub device: &'a Device,
    pub keep: &'a Keep,
    pub bar: ProgressBar,
    /// Executions of each run.
    pub repeats: u32,
}

/// What was executed.
#[derive(Default)]
pub struct Executed {
    pub runs: Vec<Run>,
    pub kept: Vec<Kept>,
    pub caveats: Vec<String>,
    pub another_rate: Vec<AnotherRate>,
    pub interrupted: bool,
    /// Where a run failed; those before it are whole.
    pub failed: Option<Failure>,
}

impl Executed {
    /// What a command ends with that was stopped, and what there is of it.
    pub fn why_stopped(self, until_then: String) -> Failure {
        match self.failed {
            Some(why) => why.with(until_then),
            None => Failure::Interrupted(until_then),
        }
    }

    /// Nothing, since the user did not wait for it.
    fn stopped() -> Executed {
        Executed {
            interrupted: true,
            ..Executed::default()
        }
    }

    /// What there is where something failed, or the user stopped it while nothing ran; `is_simulated` says that there
    /// is something to be kept besides.
    fn ended_by(mut self, why: Failure, is_simulated: bool) -> Result<Executed, Failure> {
        match why {
            why if !is_simulated && self.runs.is_empty() => return Err(why),
            // While a table was built; the runs before it are whole.
            Failure::Interrupted(_) => self.interrupted = true,
            why => drop(self.failed.get_or_insert(why)),
        }
        Ok(self)
    }
}

impl Both<'_> {
    /// What can be simulated is known at once, and executions may take hours.
    pub fn simulate_then_execute(
        &self,
        loaded: &Loaded,
        interrupt: &Arc<AtomicBool>,
    ) -> Result<(Vec<SimulatedRun>, Executed), Failure> {
        let (simulated, ended) = self.simulate(loaded, interrupt);
        let executed = match ended {
            Ok(true) => Executed::stopped(),
            Ok(false) => self.execute(loaded, None, !simulated.is_empty(), interrupt)?,
            Err(why) => Executed::default().ended_by(why, !simulated.is_empty())?,
        };
        Ok((simulated, executed))
    }

    /// Where the machine is gauged: how fast it was meanwhile is known only afterwards, and is what the cards' ops are
    /// then priced by.
    pub fn execute_then_simulate(
        &self,
        loaded: &mut Loaded,
        interrupt: &Arc<AtomicBool>,
    ) -> Result<(Vec<SimulatedRun>, Executed), Failure> {
        let mut gauging = Gauging::of(loaded)?;
        let mut executed = self.execute(loaded, Some(&mut gauging), false, interrupt)?;
        if executed.failed.is_none()
            && let Err(why) = gauging.measure(loaded, self.device, interrupt)
        {
            executed = executed.ended_by(why, false)?;
        }
        if !executed.runs.is_empty() {
            executed.caveats.extend(gauging.price(loaded));
        }
        let is_stopped = interrupt.load(Ordering::Relaxed);
        executed.interrupted |= is_stopped;
        // What was executed until the user stopped it is worth nothing without these; who asks again ends the process.
        let own = match is_stopped {
            true => Arc::default(),
            false => Arc::clone(interrupt),
        };
        let (simulated, ended) = self.simulate(loaded, &own);
        match ended {
            Ok(stopped) => executed.interrupted |= stopped,
            Err(why) => executed = executed.ended_by(why, !simulated.is_empty())?,
        }
        Ok((simulated, executed))
    }

    /// Simulates all, one after another, and whether the user stopped it, or why it failed: the runs before are whole.
    fn simulate(&self, loaded: &Loaded, interrupt: &Arc<AtomicBool>) -> (Vec<SimulatedRun>, Result<bool, Failure>) {
        let mut simulated: Vec<SimulatedRun> = Vec::new();
        for (index, spec) in loaded.runs.iter().enumerate() {
            let watch = self.keep.watch(index, spec, &labels(spec, VIRTUAL, spec.repeat));
            let run = match watch.and_then(|watch| simulate(spec, loaded.card(spec), interrupt, watch)) {
                Ok(Some(run)) => run,
                Ok(None) => return (simulated, Ok(true)),
                Err(why) => return (simulated, Err(why)),
            };
            self.bar.inc(1);
            let interrupted = run.interrupted;
            simulated.push(run);
            if interrupted {
                return (simulated, Ok(true));
            }
        }
        (simulated, Ok(false))
    }

    /// Executes all, round by round, so that a machine that drifts does not favour the system that came first;
    /// `is_simulated` says that there is something to be kept where it ends early.
    fn execute(
        &self,
        loaded: &Loaded,
        mut gauging: Option<&mut Gauging>,
        is_simulated: bool,
        interrupt: &Arc<AtomicBool>,
    ) -> Result<Executed, Failure> {
        let mut executed = Executed::default();
        for round in 0..self.repeats {
            if let Some(gauging) = &mut gauging
                && let Err(why) = gauging.measure(loaded, self.device, interrupt)
            {
                return executed.ended_by(why, is_simulated);
            }
            for spec in &loaded.runs {
                let repeat = spec.repeat * self.repeats + round;
                let index = loaded.runs.len() + executed.runs.len();
                let watch = self.keep.watch(index, spec, &labels(spec, self.device.name(), repeat));
                let run = watch.and_then(|watch| {
                    self.device.execute(spec, loaded.card(spec), repeat, interrupt, &self.bar, watch)
                });
                let run = match run {
                    Err(why) => return executed.ended_by(why, is_simulated),
                    Ok(run) => run,
                };
                executed.kept.extend(run.kept);
                self.bar.inc(1);
                executed.caveats.extend(run.caveats);
                executed.another_rate.extend(run.another_rate);
                executed.runs.push(run.run);
                if run.interrupted {
                    executed.interrupted = true;
                    return Ok(executed);
                }
            }
        }
        Ok(executed)
    }
}
