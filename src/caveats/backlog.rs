//! Runs whose requests came faster than they were answered, so that their latencies say how long they lasted.

use tenantry_reports::Run;
use tenantry_reports::group::Group;
use tenantry_reports::human;

/// Fewer windows of arrivals tell no growth.
const WINDOWS: usize = 20;

/// Fewer requests waiting are told from none by chance alone.
const WAITING: f64 = 100.0;

/// A backlog grows that is so many times at the end of the arrivals what it was at half of them; one that grows steadily is twice as much.
const GROWTH: f64 = 1.5;

/// A backlog that is answered within a smaller part of the arrivals' time is a queue like others.
const DRAIN: f64 = 0.1;

/// Systems and sweep points that are named in a sentence.
const NAMED: usize = 4;

/// How many requests were inside at half of the time in which they came, and at its end.
struct Backlog {
    at_half: f64,
    at_end: f64,
}

/// One sentence on all systems and sweep points whose requests came faster than they were answered, in most of their repeats.
pub fn backlog_caveat(runs: &[Run]) -> Option<String> {
    let groups = Group::all(runs);
    let of = |group: &Group<'_>| {
        let behind: Vec<Backlog> = group.runs.iter().filter_map(|run| Backlog::of(run)).collect();
        let first = behind.first().filter(|_| 2 * behind.len() > group.runs.len())?;
        let counts = [first.at_half, first.at_end].map(|requests| human::count(requests as u64));
        Some(format!(
            "{} on {} ({} inside at half of their time, {} when the last came)",
            group.title(),
            group.machine(),
            counts[0],
            counts[1]
        ))
    };
    let behind: Vec<String> = groups.iter().filter_map(of).collect();
    let more = match behind.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let named = behind[..behind.len().min(NAMED)].join(", ");
    (!behind.is_empty()).then(|| {
        format!(
            "Requests came faster than they were answered: {named}{more}. Their latencies grow with the run (`workload.stop`), and tell how long it was; what the \
             system answers a second is its throughput."
        )
    })
}

impl Backlog {
    /// Nothing where it does not grow.
    fn of(run: &Run) -> Option<Backlog> {
        let series = &run.curves.series;
        let last = series.windows.iter().rposition(|window| window.arrived > 0)?;
        if last + 1 < WINDOWS || run.summary.interrupted {
            return None;
        }
        let requests = &run.summary.requests;
        // Who is not answered leaves as well: when is not known, so that they are taken to leave at once.
        let answered = requests.finished as f64 / requests.offered.max(1) as f64;
        let (mut inside, mut at_half, mut served) = (0.0, 0.0, 0.0);
        for (index, window) in series.windows[..=last].iter().enumerate() {
            inside += window.arrived as f64 * answered - window.served as f64;
            served += window.served as f64;
            if index == last / 2 {
                at_half = inside;
            }
        }
        let backlog = Backlog {
            at_half,
            at_end: inside,
        };
        // In parts of the time in which requests came.
        let drain = backlog.at_end / f64::max(served, 1.0);
        let grows = backlog.at_end >= WAITING.max(GROWTH * backlog.at_half) && drain >= DRAIN;
        grows.then_some(backlog)
    }
}

#[cfg(test)]
mod tests {
    use tenantry_core::RunRecord;
    use tenantry_core::ledger::{Counts, Window};
    use tenantry_reports::RunLabels;
    use tenantry_reports::summary::VIRTUAL;

    use super::*;

    /// A run into which so many come in each of 100 windows, and out of which so many go, all others after them.
    fn run(arrived: u64, served: u64) -> Run {
        let labels = RunLabels {
            system: "hmi".into(),
            parameters: Default::default(),
            repeat: 0,
            machine: VIRTUAL.into(),
            seed: 7,
            slo: None,
            card: "h200-sxm".into(),
            gpus: 1,
            price_per_hour: None,
        };
        let all = 100 * arrived;
        let mut record = RunRecord {
            counts: Counts {
                offered: all,
                served: all,
                ..Counts::default()
            },
            served: all,
            ..RunRecord::default()
        };
        let window = |arrived, served| Window {
            arrived,
            served,
            ..Window::default()
        };
        record.series.windows = vec![window(arrived, served); 100];
        record.series.windows.push(window(0, all - 100 * served));
        Run::new(labels, &record)
    }

    #[test]
    fn what_does_not_keep_up_is_told_of() {
        assert_eq!(backlog_caveat(&[run(100, 100)]), None);
        // Nine in ten are answered at once, and the tenth waits for good.
        let told = backlog_caveat(&[run(100, 90)]).unwrap();
        assert!(
            told.contains("(510 inside at half of their time, 1,000 when the last came)"),
            "{told}"
        );
        // A run that was stopped tells nothing.
        let mut stopped = run(100, 90);
        stopped.summary.interrupted = true;
        assert_eq!(backlog_caveat(&[stopped]), None);
        // What is refused at once is no backlog.
        let mut refusing = run(100, 90);
        refusing.summary.requests.finished = 9_000;
        refusing.curves.series.windows.pop();
        assert_eq!(backlog_caveat(&[refusing]), None);
    }

    /// A queue that is as long at the end as it was at half of the time is no overload, however long.
    #[test]
    fn a_queue_that_stays_is_none() {
        let mut steady = run(100, 100);
        steady.curves.series.windows[0].served = 0;
        steady.curves.series.windows.last_mut().unwrap().served = 100;
        assert_eq!(backlog_caveat(&[steady]), None);
    }

    /// Of repeats, one does not speak for the others.
    #[test]
    fn most_repeats_must_say_so() {
        let fine = || run(100, 100);
        assert_eq!(backlog_caveat(&[run(100, 90), fine(), fine()]), None);
        assert!(backlog_caveat(&[run(100, 90), run(100, 90), fine()]).is_some());
    }
}
