//! Sixteen cards under a load that rises and falls: Fig. 13.

use tenantry_core::event::Event;
use tenantry_core::{Command, Commands, Observer};
use tenantry_reports::RunSummary;
use tenantry_traces::Time;

use crate::commands::reproduce::lab::{Lab, latency_ms};
use crate::commands::reproduce::row::Row;
use crate::failure::Failure;

/// Largest batch of `punica/fig-13`.
const FULL: usize = 32;
/// From this batch on a card counts as full: requests end one by one, and one prompt a step takes their places.
const NEARLY_FULL: usize = 28;

/// How long each card ran which batch.
#[derive(Debug)]
struct Batches {
    /// Of each instance: since when it runs how many requests.
    now: Vec<(Time, usize)>,
    /// Nanoseconds by batch, of all cards.
    spent_ns: [u64; FULL + 1],
}

impl Batches {
    fn new(cards: u32) -> Batches {
        Batches {
            now: vec![(Time::ZERO, 0); cards as usize],
            spent_ns: [0; FULL + 1],
        }
    }

    fn change(&mut self, instance: usize, now: Time, batch: usize) {
        let (since, before) = std::mem::replace(&mut self.now[instance], (now, batch));
        self.spent_ns[before] += now.0 - since.0;
    }

    /// Share of all cards' time with so many requests.
    fn share(&self, batches: std::ops::RangeInclusive<usize>) -> f64 {
        self.spent_ns[batches].iter().sum::<u64>() as f64 / self.spent_ns.iter().sum::<u64>() as f64
    }
}

/// Tells which instance a batch ran on by its handle.
#[derive(Debug)]
struct Watch {
    batches: Batches,
    /// Instances by the slots of their running batches.
    running: std::collections::BTreeMap<u32, usize>,
}

impl Observer for Watch {
    fn event(&mut self, now: Time, event: &Event<'_>) {
        if let Event::Done(done) = event
            && let Some(instance) = self.running.remove(&done.batch.slot)
        {
            self.batches.change(instance, now, 0);
        }
    }

    fn command(&mut self, now: Time, command: &Command, _: &Commands) {
        if let Command::Submit(submission) = command {
            let instance = submission.instance.index();
            self.running.insert(submission.batch.slot, instance);
            self.batches.change(instance, now, submission.shape.requests as usize);
        }
    }
}

/// Consolidation, batches and migrations.
pub fn figure_13(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 13";
    let loaded = lab.load("punica/fig-13", &[])?;
    let mut watched: Vec<(RunSummary, Batches)> = Vec::new();
    for run in &loaded.runs {
        let mut watch = Watch {
            batches: Batches::new(run.gpus),
            running: Default::default(),
        };
        let summary = lab.run(run, loaded.card(run), &mut watch)?;
        watched.push((summary, watch.batches));
    }
    let of = |system: &str| {
        let found = watched.iter().find(|(run, _)| run.system == system);
        found.expect("the scenario has the system")
    };
    let ((punica, batches), (spread, evenly)) = (of("punica"), of("least-loaded"));
    let full = |batches: &Batches| batches.share(NEARLY_FULL..=FULL) / batches.share(1..=FULL);
    let idle = |batches: &Batches| batches.share(0..=0);
    let generation = punica
        .generation
        .unwrap_or(tenantry_reports::summary::GenerationSummary {
            evictions: 0,
            migrations: 0,
            recomputed_tokens: 0,
            shared_tokens: None,
            reads: None,
            transfers: None,
            transferred_bytes: None,
            shortened: None,
        });
    let assumption = "assumes a rise to 130 requests/s, some three quarters of what the cards can do, and cards of up to 4 requests emptied \
                      every 10 s: the paper's load is lost, and its rule is not defined";
    Ok(vec![
        Row::shape(
            FIGURE,
            "a card that runs is full or nearly (28 to 32), share of its time: usually",
            "",
            full(batches),
            full(batches) > 0.5 && full(batches) > 2.0 * full(evenly),
        )
        .note(format!("{assumption}; least loaded instead: {:.2}", full(evenly))),
        Row::shape(
            FIGURE,
            "cards without a request, share of all cards' time: they stay idle",
            "",
            idle(batches),
            idle(batches) > idle(evenly),
        )
        .note(format!("could be returned; least loaded instead: {:.2}", idle(evenly))),
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
