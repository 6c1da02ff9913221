//! Points that say what they take, on a schedule.

use std::cell::{Cell, RefCell};

use tenantry_profiles::{CopyResumeRow, CopyRow, Direction};

use super::*;

const IN_TIME: Duration = Duration::from_secs(60);

/// Points of a table of copies, of 1, 2, … bytes, that say they take the durations of `took`.
fn points<'a>(count: u64, took: impl Fn(u64) -> Duration + Copy + 'a) -> Vec<Point<'a>> {
    let point = |bytes| {
        let row = move |stats| CopyRow {
            direction: Direction::HostToDevice,
            pinned: false,
            bytes,
            stats,
        };
        let record = move |tables: &mut Tables, stats| tables.copy.push(row(stats));
        Point::new("copy".to_string(), move || Ok(took(bytes)), record)
    };
    (1..=count).map(point).collect()
}

/// Of points that say at once what they take: one call warms them up.
fn warm(points: Vec<Point<'_>>, seed: u64) -> Schedule<'_> {
    Schedule {
        warm_up: Duration::ZERO,
        ..Schedule::new(points, Device::Cpu, seed)
    }
}

fn run(points: Vec<Point<'_>>, time: Duration, interrupted: &AtomicBool) -> (Outcome, Tables) {
    let mut schedule = warm(points, 1);
    measure(&mut schedule, time, interrupted);
    let mut tables = Tables::default();
    (schedule.record(&mut tables, &mut Tables::default()), tables)
}

/// Measures, and returns the state that was kept last.
fn measure(schedule: &mut Schedule<'_>, time: Duration, interrupted: &AtomicBool) -> Option<State> {
    let mut kept = None;
    let mut watch = Watch {
        until: Instant::now() + time,
        progress: &mut |_| {},
        keep: &mut |state| {
            kept = Some(state);
            Ok(())
        },
        interrupted,
    };
    schedule.measure(&mut watch).unwrap();
    kept
}

#[test]
fn steady_points_finish_early() {
    let (outcome, tables) = run(points(3, Duration::from_micros), IN_TIME, &AtomicBool::new(false));
    assert_eq!(
        outcome,
        Outcome {
            points: 3,
            known: 3,
            widest: 0.0,
            middle: 0.0,
            left_out: vec![],
            failed: BTreeMap::new(),
        }
    );
    let mut rows: Vec<_> = tables.copy.iter().map(|row| (row.bytes, row.stats.median_us)).collect();
    rows.sort_by_key(|row| row.0);
    assert_eq!(rows, [(1, 1.0), (2, 2.0), (3, 3.0)]);
}

#[test]
fn many_points_in_a_short_time_have_short_visits() {
    let visit = |count, seconds| {
        let schedule = Schedule::new(points(count, Duration::from_micros), Device::Cpu, 1);
        schedule.within(Duration::from_secs(seconds)).visit
    };
    // 8.125 ms for each of sixteen visits, of which the warm-up takes 5.
    assert_eq!(visit(1000, 130), Duration::from_micros(3125));
    assert_eq!((visit(100, 45), visit(3000, 45)), (VISIT, VISIT_LEAST));
    assert_eq!(visit(0, 1), VISIT);
}

#[test]
fn what_is_held_out_is_no_part_of_a_table() {
    let never = AtomicBool::new(false);
    let mut all = points(3, Duration::from_micros);
    let checked = all.remove(1).held_out(true);
    all.push(checked);
    let mut schedule = warm(all, 1);
    measure(&mut schedule, IN_TIME, &never);
    let (mut tables, mut held_out) = (Tables::default(), Tables::default());
    schedule.record(&mut tables, &mut held_out);
    let certainty = schedule.certainty();
    assert_eq!(certainty.len(), 1);
    assert_eq!(
        (certainty[0].points, certainty[0].untold, certainty[0].widest),
        (2, 0, Some(0.0))
    );
    assert_eq!(certainty[0].table, "direction=host-to-device pinned=false");
    let bytes = |tables: &Tables| tables.copy.iter().map(|row| row.bytes).collect::<Vec<_>>();
    assert_eq!((bytes(&tables), bytes(&held_out)), (vec![1, 3], vec![2]));
}

/// Three visits of each of 20 points, of which one was disturbed: its median is its own, and its spread that of all.
#[test]
fn what_is_visited_rarely_spreads_as_all_such_do() {
    let mut schedule = warm(points(20, Duration::from_micros), 1);
    for (index, point) in schedule.points.iter_mut().enumerate() {
        let us = 100.0 * (index + 1) as f64;
        for third in [us, us, if index == 7 { 3.0 * us } else { us }] {
            let mut visit = Samples::default();
            visit.push(third);
            point.visits.push(visit);
        }
    }
    let mut tables = Tables::default();
    schedule.record(&mut tables, &mut Tables::default());
    for (row, at) in tables.copy.iter().zip(1..) {
        let us = f64::from(at) * 100.0;
        let Stats {
            count,
            mean_us,
            median_us,
            p95_us,
            p99_us,
            ..
        } = row.stats;
        assert_eq!((count, median_us, p95_us, p99_us), (3, us, us, 3.0 * us));
        assert!((mean_us / us - 62.0 / 60.0).abs() < 1e-9, "{mean_us}");
    }
    // Who was visited often enough keeps its own.
    for _ in 0..5 {
        let mut visit = Samples::default();
        visit.push(100.0);
        schedule.points[0].visits.push(visit);
    }
    let mut tables = Tables::default();
    schedule.record(&mut tables, &mut Tables::default());
    assert_eq!(
        tables.copy[0].stats,
        Stats {
            count: 8,
            ..Stats::exact(100.0)
        }
    );
}

#[test]
fn a_table_that_the_memory_is_too_small_for_is_left_out_and_the_others_are_measured() {
    let no_room = || {
        ExecutorError::from(tch::TchError::Torch(
            "CUDA out of memory. Tried to allocate 20.00 GiB.".into(),
        ))
    };
    let mut all = points(3, Duration::from_micros);
    for bytes in [1, 2] {
        let measure = move || match bytes {
            1 => Ok(Duration::from_micros(1)),
            _ => Err(no_room()),
        };
        let never = |_: &mut Tables, _| panic!("an incomplete table is not saved");
        all.push(Point::new("large".to_string(), measure, never));
    }
    // What is held out misses nothing but itself.
    all.push(Point::new("copy".to_string(), move || Err(no_room()), |_, _| panic!("nor this")).held_out(true));
    let (outcome, tables) = run(all, IN_TIME, &AtomicBool::new(false));
    let said = "libtorch: CUDA out of memory. Tried to allocate 20.00 GiB.".to_string();
    assert_eq!((tables.copy.len(), &outcome.left_out), (3, &vec![]));
    assert_eq!(
        outcome.failed,
        BTreeMap::from([("large".to_string(), Failure::NoMemory(said))])
    );
    let notes = outcome.notes();
    assert!(
        notes.iter().any(|note| note.contains("left out for lack of memory: large (libtorch: CUDA")),
        "{notes:?}"
    );
    // What the device does not compute is left out likewise.
    let no_kernel = || {
        Err(ExecutorError::from(tch::TchError::Torch(
            "no kernel image is available".into(),
        )))
    };
    let mut all = points(2, Duration::from_micros);
    all.push(Point::new("odd".to_string(), no_kernel, |_, _| panic!("nor that")));
    let (outcome, tables) = run(all, IN_TIME, &AtomicBool::new(false));
    assert_eq!((tables.copy.len(), outcome.left_out.len()), (2, 0));
    let notes = outcome.notes();
    let told = "left out, since this device does not compute them: odd (libtorch: no kernel image is available)";
    assert!(notes.iter().any(|note| note == told), "{notes:?}");
    // Other errors end it.
    let other = || Err(ExecutorError::input("length", "at least 0", -1));
    let mut schedule = warm(vec![Point::new("other".to_string(), other, |_, _| {})], 1);
    let never = AtomicBool::new(false);
    let mut watch = Watch {
        until: Instant::now() + IN_TIME,
        progress: &mut |_| {},
        keep: &mut |_| Ok(()),
        interrupted: &never,
    };
    assert!(schedule.measure(&mut watch).is_err());
}

#[test]
fn without_time_every_point_is_still_usable() {
    let slow = |_| {
        std::thread::sleep(Duration::from_millis(11));
        Ok(Duration::from_millis(11))
    };
    let point = |bytes: u64| Point::new(bytes.to_string(), move || slow(bytes), |_, _| {});
    let (outcome, _) = run((0..2).map(point).collect(), Duration::ZERO, &AtomicBool::new(false));
    assert_eq!((outcome.known, outcome.left_out), (0, vec![]));
}

#[test]
fn the_time_left_is_what_too_few_measurements_still_take() {
    let slow = |_| {
        std::thread::sleep(Duration::from_millis(11));
        Ok(Duration::from_millis(11))
    };
    let point = |bytes: u64| Point::new(bytes.to_string(), move || slow(bytes), |_, _| {});
    let mut schedule = warm((0..3).map(point).collect(), 1);
    let (never, mut left) = (AtomicBool::new(false), Vec::new());
    schedule
        .measure(&mut Watch {
            until: Instant::now(),
            progress: &mut |progress| left.push(progress.time_left),
            keep: &mut |_| Ok(()),
            interrupted: &never,
        })
        .unwrap();
    // Three points of three visits each, of which the first, of two calls, is over: eight are left, and no time.
    assert_eq!(left.len(), 9);
    assert!(left[0] >= 8 * Duration::from_millis(22), "{left:?}");
    assert_eq!(left[8], Duration::ZERO);
}

#[test]
fn an_interrupt_leaves_out_what_is_incomplete() {
    let interrupted = AtomicBool::new(false);
    let log = RefCell::new(Vec::new());
    let mut all = points(2, Duration::from_micros);
    all.push(Point::new(
        "last".to_string(),
        || {
            log.borrow_mut().push(());
            interrupted.store(true, Ordering::Relaxed);
            std::thread::sleep(VISIT);
            Ok(VISIT)
        },
        |tables, stats| {
            tables.copy_resume.push(CopyResumeRow {
                idle_us: 1,
                work_us: 1,
                stats,
            })
        },
    ));
    let (outcome, tables) = run(all, IN_TIME, &interrupted);
    assert!(outcome.left_out.contains(&"last".to_string()), "{outcome:?}");
    assert!(tables.copy_resume.is_empty(), "an incomplete table is not saved");
    assert!(
        tables.copy.is_empty() || tables.copy.len() == 2,
        "a table is saved whole or not at all"
    );
}

/// Points that note when they are visited and, after `stop` visits in all, ask to stop. Slow ones: a measurement a
/// visit.
fn noting<'a>(log: &'a RefCell<Vec<u64>>, stop: Option<usize>, interrupted: &'a AtomicBool) -> Vec<Point<'a>> {
    let point = |bytes: u64| {
        let measure = move || {
            let took = Duration::from_micros(100 * bytes);
            log.borrow_mut().push(bytes);
            if stop.is_some_and(|stop| log.borrow().len() >= stop) {
                interrupted.store(true, Ordering::Relaxed);
            }
            std::thread::sleep(VISIT);
            Ok(took)
        };
        let row = move |stats| CopyRow {
            direction: Direction::HostToDevice,
            pinned: false,
            bytes,
            stats,
        };
        Point::new("copy".to_string(), measure, move |tables: &mut Tables, stats| {
            tables.copy.push(row(stats))
        })
    };
    (1..=4).map(point).collect()
}

#[test]
fn what_is_interrupted_goes_on_with_the_same_points_in_the_same_order() {
    let (whole, never) = (RefCell::new(Vec::new()), AtomicBool::new(false));
    let mut schedule = warm(noting(&whole, None, &never), 5);
    measure(&mut schedule, IN_TIME, &never);
    let mut expected = Tables::default();
    let outcome = schedule.record(&mut expected, &mut Tables::default());

    let (parts, stop) = (RefCell::new(Vec::new()), AtomicBool::new(false));
    let mut schedule = warm(noting(&parts, Some(14), &stop), 5);
    let state = measure(&mut schedule, IN_TIME, &stop).unwrap();
    let text = serde_json::to_string(&state).unwrap();
    let mut resumed = warm(noting(&parts, None, &never), 5);
    assert!(resumed.resume(serde_json::from_str(&text).unwrap()));
    assert_eq!(resumed.state(), state);
    measure(&mut resumed, IN_TIME, &never);
    let mut tables = Tables::default();
    assert_eq!(
        (resumed.record(&mut tables, &mut Tables::default()), tables),
        (outcome, expected)
    );
    // A visit warms up, and so calls more than once.
    parts.borrow_mut().dedup();
    whole.borrow_mut().dedup();
    assert_eq!(*parts.borrow(), *whole.borrow());
}

#[test]
fn a_table_that_falls_is_measured_anew_until_it_rises() {
    let never = AtomicBool::new(false);
    // While the machine is disturbed, the smallest copy is the slowest.
    let disturbed = Cell::new(true);
    let took = |bytes| Duration::from_micros(if disturbed.get() && bytes == 1 { 50 } else { bytes });
    let mut schedule = warm(points(3, took), 1);
    let mut ignored = |_| ();
    let mut measured_anew = || {
        let mut watch = Watch {
            until: Instant::now() + IN_TIME,
            progress: &mut ignored,
            keep: &mut |_| Ok(()),
            interrupted: &never,
        };
        schedule.measure(&mut watch).unwrap();
        disturbed.set(false);
        let settled = schedule.settle(IN_TIME, &mut watch).unwrap();
        let mut tables = Tables::default();
        schedule.record(&mut tables, &mut Tables::default());
        (settled, tables.copy.iter().map(|row| row.stats.median_us).sum::<f64>())
    };
    assert_eq!(measured_anew(), (vec!["copy".to_string()], 6.0));
    assert_eq!(measured_anew(), (vec![], 6.0));
}

#[test]
fn an_interrupted_table_that_falls_is_kept_for_the_next_run() {
    let stopped = AtomicBool::new(false);
    let took = |bytes| Duration::from_micros(10 - bytes);
    let mut schedule = warm(points(3, took), 1);
    measure(&mut schedule, IN_TIME, &stopped);
    let before = schedule.state();
    stopped.store(true, Ordering::Relaxed);
    let mut watch = Watch {
        until: Instant::now() + IN_TIME,
        progress: &mut |_| {},
        keep: &mut |_| Ok(()),
        interrupted: &stopped,
    };
    assert_eq!(schedule.settle(IN_TIME, &mut watch).unwrap(), Vec::<String>::new());
    assert_eq!(schedule.state(), before);

    // In the middle of it, too.
    stopped.store(false, Ordering::Relaxed);
    let mut stop = |_| stopped.store(true, Ordering::Relaxed);
    watch.progress = &mut stop;
    assert_eq!(schedule.settle(IN_TIME, &mut watch).unwrap(), ["copy"]);
    let outcome = schedule.record(&mut Tables::default(), &mut Tables::default());
    assert_eq!(outcome.left_out, Vec::<String>::new());
}

/// It would fail again.
#[test]
fn what_was_given_up_is_not_tried_again() {
    let tried = Cell::new(0);
    let with_one_that_fails = || {
        let mut all = points(2, Duration::from_micros);
        let no_kernel = || {
            tried.set(tried.get() + 1);
            Err(ExecutorError::from(tch::TchError::Torch("no kernel".into())))
        };
        all.push(Point::new("odd".to_string(), no_kernel, |_, _| {
            panic!("it is not saved")
        }));
        all.push(Point::new(
            "odd".to_string(),
            || Ok(Duration::from_micros(1)),
            |_, _| panic!("nor this"),
        ));
        all
    };
    let never = AtomicBool::new(false);
    let mut first = warm(with_one_that_fails(), 1);
    measure(&mut first, IN_TIME, &never);
    let text = serde_json::to_string(&first.state()).unwrap();
    let mut second = warm(with_one_that_fails(), 1);
    assert!(second.resume(serde_json::from_str(&text).unwrap()));
    measure(&mut second, IN_TIME, &never);
    assert_eq!(tried.get(), 1);
    let outcome = second.record(&mut Tables::default(), &mut Tables::default());
    assert_eq!((outcome.failed.len(), outcome.left_out), (1, Vec::new()));
}

#[test]
fn other_points_are_not_gone_on_with() {
    let state = Schedule::new(points(2, Duration::from_micros), Device::Cpu, 1).state();
    assert!(!Schedule::new(points(3, Duration::from_micros), Device::Cpu, 1).resume(state));
    // As many of the same table, of other sizes.
    let mut schedule = warm(points(3, Duration::from_micros), 1);
    measure(&mut schedule, IN_TIME, &AtomicBool::new(false));
    let others = || points(4, Duration::from_micros).split_off(1);
    assert!(!Schedule::new(others(), Device::Cpu, 1).resume(schedule.state()));
    assert!(Schedule::new(points(3, Duration::from_micros), Device::Cpu, 1).resume(schedule.state()));
}

/// A file's measurements may have been changed by hand, or cut.
#[test]
fn what_are_no_measurements_is_not_gone_on_with() {
    let mut schedule = warm(points(1, Duration::from_micros), 1);
    measure(&mut schedule, IN_TIME, &AtomicBool::new(false));
    let state = serde_json::to_value(schedule.state()).unwrap();
    let goes_on = |visit: Option<serde_json::Value>| {
        let mut state = state.clone();
        if let Some(visit) = visit {
            state["points"][0]["visits"][0] = visit;
        }
        let mut resumed = Schedule::new(points(1, Duration::from_micros), Device::Cpu, 1);
        resumed.resume(serde_json::from_value(state).unwrap())
    };
    assert!(goes_on(None) && goes_on(Some(serde_json::json!([2.0]))));
    assert!(!goes_on(Some(serde_json::json!([]))));
    assert!(!goes_on(Some(serde_json::json!([1.0, -1.0]))));
}

#[test]
fn orders_differ_by_round_and_not_by_run() {
    let order = |round| {
        let mut order: Vec<usize> = (0..50).collect();
        shuffle(&mut order, 9, round);
        order
    };
    assert_eq!(order(4), order(4));
    assert_ne!(order(4), order(5));
    let mut sorted = order(4);
    sorted.sort_unstable();
    assert_eq!(sorted, (0..50).collect::<Vec<_>>());
}
