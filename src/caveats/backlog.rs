//! Runs whose requests came faster than they were answered, so that their latencies say how long they lasted.

use tenantry_reports::Run;
use tenantry_reports::group::Group;
use tenantry_reports::human;

use super::first_named;

/// Fewer windows of arrivals tell no growth by themselves.
const WINDOWS: usize = 20;

/// Fewer requests waiting are told from none by chance alone.
const WAITING: f64 = 100.0;

/// A backlog grows that is so many times at the end of the arrivals what it was at half of them; one that grows
/// steadily is twice as much.
const GROWTH: f64 = 1.5;

/// A backlog that takes at least this part of the arrivals' time to be answered need not have grown since half of them:
/// more may have come before. It is compared with what was inside when few had come; clients who wait for their answers
/// are all inside by then.
const BEHIND: f64 = 0.3;
/// When few had come, in parts of the arrivals' time.
const EARLY: usize = 20;

/// A backlog that is answered within a smaller part of the arrivals' time is a queue like others.
const DRAIN: f64 = 0.1;

/// Of a backlog at least this part of the latency is waiting, for whatever it is; of who takes long to be computed it
/// is not.
const WAITS: f64 = 0.5;

/// One sentence on all systems and sweep points whose requests came faster than they were answered, in most of their
/// repeats.
pub fn backlog_caveat(runs: &[Run]) -> Option<String> {
    let groups = Group::all(runs);
    let of = |group: &Group<'_>| {
        let behind: Vec<f64> = group.runs.iter().filter_map(|run| backlog(run)).collect();
        let first = behind.first().filter(|_| 2 * behind.len() > group.runs.len())?;
        let inside = human::count(*first as u64);
        Some(format!(
            "{} on {} ({inside} inside when the last came)",
            group.title(),
            group.machine()
        ))
    };
    let behind: Vec<String> = groups.iter().filter_map(of).collect();
    (!behind.is_empty()).then(|| {
        let named = first_named(&behind);
        format!(
            "Requests came faster than they were answered: {named}. Their latencies grow with the run \
             (`workload.stop`), and tell how long it was; what the system answers a second is its throughput."
        )
    })
}

/// How many were inside when the last request came; nothing where they are no growing queue.
fn backlog(run: &Run) -> Option<f64> {
    let windows = &run.curves.series.windows;
    let last = windows.iter().rposition(|window| window.arrived > 0)?;
    let summary = &run.summary;
    let (latency, compute) = (summary.latency_ms?, summary.compute_ms?);
    if summary.interrupted || latency.mean - compute.mean < WAITS * latency.mean {
        return None;
    }
    // Who is not answered leaves as well: when is not known, so that they are taken to leave at once.
    let answered = summary.requests.finished as f64 / summary.requests.offered.max(1) as f64;
    let (mut inside, mut early, mut at_half, mut served) = (0.0, 0.0, 0.0, 0.0);
    for (index, window) in windows[..=last].iter().enumerate() {
        inside += window.arrived as f64 * answered - window.served as f64;
        served += window.served as f64;
        if index == last / EARLY {
            early = inside;
        }
        if index == last / 2 {
            at_half = inside;
        }
    }
    // Windows are as wide as a run is long: where nearly all of it is drain, few are left to tell growth by, and none
    // is needed.
    let is_mostly_drain = windows.len() > 2 * (last + 1);
    // In parts of the time in which requests came.
    let drain = inside / f64::max(served, 1.0);
    let before = if drain >= BEHIND { early } else { at_half };
    let grows = is_mostly_drain || last + 1 >= WINDOWS && inside >= GROWTH * before;
    (grows && inside >= WAITING && drain >= DRAIN).then_some(inside)
}

#[cfg(test)]
mod tests {
    use tenantry_core::RunRecord;
    use tenantry_core::ledger::{Counts, Window};
    use tenantry_traces::Duration;

    use super::*;
    use crate::caveats::testing::labels;

    fn window(arrived: u64, served: u64) -> Window {
        Window {
            arrived,
            served,
            ..Window::default()
        }
    }

    /// A run into which so many come in each of 100 windows, and out of which so many go, all others after them. They
    /// wait for most of their time.
    fn run(arrived: u64, served: u64) -> Run {
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
        record.compute.record(Duration::from_millis(100));
        record.latency.record(Duration::from_millis(1000));
        record.series.windows = vec![window(arrived, served); 100];
        record.series.windows.push(window(0, all - 100 * served));
        Run::new(labels("hmi"), &record)
    }

    #[test]
    fn what_does_not_keep_up_is_told_of() {
        assert_eq!(backlog_caveat(&[run(100, 100)]), None);
        // Nine in ten are answered at once, and the tenth waits for good.
        let told = backlog_caveat(&[run(100, 90)]).unwrap();
        assert!(
            told.contains("hmi on virtual (1,000 inside when the last came)"),
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

    /// Who is computed for long is inside, and waits for nobody.
    #[test]
    fn long_answers_are_no_backlog() {
        let mut long = run(100, 90);
        long.summary.compute_ms = long.summary.latency_ms;
        assert_eq!(backlog_caveat(&[long]), None);
    }

    /// Ten times as many come as are answered, for a tenth of the run.
    #[test]
    fn a_great_overload_has_few_windows_of_arrivals() {
        let mut overload = run(100, 10);
        let windows = &mut overload.curves.series.windows;
        windows.truncate(12);
        windows.extend(vec![window(0, 10); 108]);
        overload.summary.requests.offered = 1_200;
        overload.summary.requests.finished = 1_200;
        assert!(backlog_caveat(&[overload]).is_some());
    }

    /// A queue that is as long at the end as it was at half of the time is no overload, however long.
    #[test]
    fn a_queue_that_stays_is_none() {
        let mut steady = run(100, 100);
        steady.curves.series.windows[0].served = 0;
        steady.curves.series.windows.last_mut().unwrap().served = 100;
        assert_eq!(backlog_caveat(&[steady]), None);
    }

    /// Most come in the first half, so that the backlog has grown little since; clients who wait for their answers are
    /// as many all the time.
    #[test]
    fn one_that_came_early_is_as_much_behind() {
        let mut falling = run(100, 60);
        let windows = &mut falling.curves.series.windows;
        (0..100).for_each(|index| windows[index].arrived = if index < 50 { 140 } else { 60 });
        assert!(backlog_caveat(&[falling]).is_some());

        let mut clients = run(60, 60);
        let windows = &mut clients.curves.series.windows;
        windows[0].arrived += 4_000;
        windows[100].served += 4_000;
        let requests = &mut clients.summary.requests;
        (requests.offered, requests.finished) = (10_000, 10_000);
        assert_eq!(backlog_caveat(&[clients]), None);
    }

    /// Of repeats, one does not speak for the others.
    #[test]
    fn most_repeats_must_say_so() {
        let fine = || run(100, 100);
        assert_eq!(backlog_caveat(&[run(100, 90), fine(), fine()]), None);
        assert!(backlog_caveat(&[run(100, 90), run(100, 90), fine()]).is_some());
    }
}
