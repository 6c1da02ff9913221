//! Sixteen cards under a load that rises and falls: Fig. 13.

use std::collections::BTreeMap;

use tenantry_core::event::Event;
use tenantry_core::op::{Op, OpKind};
use tenantry_core::{Command, Commands, Observer};
use tenantry_reports::RunSummary;
use tenantry_traces::Time;

use crate::commands::reproduce::lab::{Lab, latency_ms};
use crate::commands::reproduce::row::Row;
use crate::failure::Failure;

/// Cards of `punica/fig-13`.
const CARDS: f64 = 16.0;
/// Its largest batch.
const FULL: usize = 32;
/// From this batch on a card counts as full: requests end one by one, and one prompt a step takes their places.
const NEARLY_FULL: usize = 28;

/// How long batches of each size ran, on all cards together.
#[derive(Debug)]
struct Batches {
    /// Of the runs under way, by their batches' slots: since when, and how many requests.
    running: BTreeMap<u32, (Time, usize)>,
    /// Nanoseconds by requests.
    spent_ns: [u64; FULL + 1],
}

impl Batches {
    fn new() -> Batches {
        Batches {
            running: BTreeMap::new(),
            spent_ns: [0; FULL + 1],
        }
    }

    /// Share of their time in which cards that run are full, or nearly.
    fn full(&self) -> f64 {
        let of = |requests: &[u64]| requests.iter().sum::<u64>() as f64;
        of(&self.spent_ns[NEARLY_FULL..]) / of(&self.spent_ns)
    }
}

impl Observer for Batches {
    fn event(&mut self, now: Time, event: &Event<'_>) {
        if let Event::Done(done) = event
            && let Some((since, requests)) = self.running.remove(&done.batch.slot)
        {
            self.spent_ns[requests] += now.0 - since.0;
        }
    }

    fn command(&mut self, now: Time, command: &Command, commands: &Commands) {
        // Adapters that are copied are submitted too, beside what runs.
        let runs = |op: &Op| matches!(op.kind, OpKind::Run(_));
        if let Command::Submit(submission) = command
            && commands.ops(submission).iter().any(runs)
        {
            let requests = submission.shape.requests as usize;
            self.running.insert(submission.batch.slot, (now, requests));
        }
    }
}

/// Consolidation, batches and migrations.
pub fn figure_13(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 13";
    let loaded = lab.load("punica/fig-13", &[])?;
    let mut watched: Vec<(RunSummary, Batches)> = Vec::new();
    for run in &loaded.runs {
        let mut batches = Batches::new();
        let summary = lab.run(run, loaded.card(run), Some(&mut batches))?;
        watched.push((summary, batches));
    }
    let of = |system: &str| {
        let found = watched.iter().find(|(run, _)| run.system == system);
        found.expect("the scenario has the system")
    };
    let ((punica, batches), (spread, evenly)) = (of("punica"), of("least-loaded"));
    let idle = |run: &RunSummary| 1.0 - run.gpus_time_weighted.unwrap_or(f64::NAN) / CARDS;
    let generation = punica.generation.unwrap_or(tenantry_reports::summary::GenerationSummary {
        evictions: 0,
        migrations: 0,
        recomputed_tokens: 0,
        shared_tokens: None,
        reads: None,
        transfers: None,
        transferred_bytes: None,
        shortened: None,
    });
    let assumption = "assumes a rise to 130 requests/s, some three quarters of what the cards can do, and cards of up \
                      to 4 requests emptied every 10 s: the paper's load is lost, and its rule is not defined";
    Ok(vec![
        Row::shape(
            FIGURE,
            "a card that runs is full or nearly (28 to 32), share of its time: usually",
            "",
            batches.full(),
            batches.full() > 0.5 && batches.full() > 2.0 * evenly.full(),
        )
        .note(format!("{assumption}; least loaded instead: {:.2}", evenly.full())),
        Row::shape(
            FIGURE,
            "cards without a request, share of all cards' time: they stay idle",
            "",
            idle(punica),
            idle(punica) > idle(spread),
        )
        .note(format!("could be returned; least loaded instead: {:.2}", idle(spread))),
        Row::shape(
            FIGURE,
            "mean batch of a step",
            "",
            punica.batch_size_mean.unwrap_or(0.0),
            punica.batch_size_mean > spread.batch_size_mean,
        )
        .note(format!(
            "least loaded instead: {:.1}",
            spread.batch_size_mean.unwrap_or(0.0)
        )),
        Row::shape(
            FIGURE,
            "requests moved to other cards: few",
            "",
            generation.migrations as f64,
            generation.migrations > 0 && generation.migrations < punica.requests.finished / 100,
        )
        .note(format!(
            "of {}; {} left for want of memory, {} tokens were computed again",
            punica.requests.finished, generation.evictions, generation.recomputed_tokens
        )),
        Row::assumed(
            FIGURE,
            "mean latency over that with the least loaded card",
            "×",
            None,
            latency_ms(punica) / latency_ms(spread),
        )
        .note(format!(
            "what full cards cost, which the paper does not show; {assumption}"
        )),
        Row::not_checkable(
            FIGURE,
            "request rate, tokens a second and batches over time",
            "the figure is lost, and the text gives no number",
        ),
    ])
}

#[cfg(test)]
mod tests {
    use tenantry_core::event::{BatchTiming, Done};
    use tenantry_core::ids::{BatchId, InstanceId, LaneId};
    use tenantry_core::op::{BatchShape, CopyIn, GoingOn, Layers, Run, Until};
    use tenantry_core::spec::LookupsInSteps;

    use super::*;

    #[test]
    fn an_adapter_s_copy_is_no_batch_that_runs() {
        let run = OpKind::Run(Run {
            max_steps: 9,
            until: Until::FirstEnds,
            lookups: LookupsInSteps::None,
            going_on: GoingOn::default(),
        });
        let copy = OpKind::CopyIn(CopyIn {
            layers: Layers::all(32),
            chunks: 1,
            chunk_bytes: 1 << 20,
        });
        let mut batches = Batches::new();
        for (slot, kind, requests) in [(0, run, 30), (1, copy, 1)] {
            let mut commands = Commands::default();
            let mark = commands.mark();
            commands.ops.push(Op::alone(kind, LaneId(slot)));
            let (batch, shape) = (
                BatchId { slot, generation: 0 },
                BatchShape {
                    requests,
                    ..BatchShape::NOTHING
                },
            );
            commands.submit(batch, InstanceId(0), shape, mark);
            batches.command(Time(100), &commands.list[0], &commands);
            let done = Done {
                batch,
                op: 0,
                timing: BatchTiming::default(),
                failures: &[],
                run: None,
                allocation: None,
                plan: None,
                answers: &[],
            };
            batches.event(Time(150), &Event::Done(done));
        }
        assert_eq!(batches.spent_ns.iter().sum::<u64>(), 50);
        assert_eq!(batches.full(), 1.0);
    }
}
