//! What a lane was measured to take for a route.

use super::*;

/// What a route's lanes do is measured by those lanes, and prices what is simulated of it.
#[test]
fn a_profile_for_a_route_has_its_lanes_passes_and_looks() {
    let trained = trained(2, &[]);
    let reroute = Reroute::new(0.6, 10.0).unwrap();
    let system = system(&trained, &["small", "large"], reroute, Some(0.5), AnswerJoin::Last);
    let route = system.route.clone().unwrap();
    let AnswersSpec::Profiled(folder) = &trained.answers else {
        unreachable!("they were profiled");
    };
    let models: Vec<ModelShape> = route.stages.iter().map(|stage| stage.pool.model.clone()).collect();
    let plan = Plan {
        name: "here".into(),
        device: Device::Cpu,
        description: describe_cpu().unwrap(),
        models: models.clone(),
        dtype: DType::F32,
        classes: vec![2],
        ops: Ops::default(),
        served: Served::default(),
        texts: vec![ServedRoute {
            folder: folder.clone(),
            route,
        }],
        suite: Suite::Quick,
        time: None,
        seed: 1,
        scratch: std::env::temp_dir(),
        there: Default::default(),
        has_limits: false,
        partial: None,
        command: "tenantry profile --device cpu".into(),
        date: "2025-01-31".into(),
    };
    let (interrupted, mut visits) = (AtomicBool::new(false), 0);
    let mut count = |at: Progress| {
        visits += 1;
        interrupted.store(visits >= 3 * at.points, Ordering::Relaxed);
    };
    let measured = tenantry_executor::profiler::profile(&plan, &mut count, &interrupted).unwrap();
    let tables = &measured.card.tables;
    let passes = |model: &str, attended| {
        let of = tables.text_pass.iter().filter(|row| row.model == model && row.attended == attended);
        of.map(|row| row.batch).max()
    };
    // Batches of up to 4; the first model's attention is read, the last one's is not.
    assert_eq!((passes("small", true), passes("small", false)), (Some(4), None));
    assert_eq!((passes("large", false), passes("large", true)), (Some(4), None));
    let looks = |model: &str, pruned| tables.text_look.iter().any(|row| row.model == model && row.pruned == pruned);
    assert!(looks("small", true) && looks("small", false) && looks("large", false) && !looks("large", true));

    let mut priced = card();
    priced.tables.text_pass.extend(tables.text_pass.iter().cloned().map(|row| TextPassRow {
        stats: Stats::exact(1e6),
        ..row
    }));
    priced.tables.text_look.extend(tables.text_look.iter().cloned());
    priced.models.extend(models);
    let spent = |card: &Card| {
        let record = simulated_on(card, &system, &trained.answers);
        record.cascade.unwrap().stages.iter().map(|stage| stage.computed.0 / stage.answered).min()
    };
    assert!(spent(&priced).unwrap() >= 250_000_000, "a batch takes a second");
    assert!(spent(&card()).unwrap() < 250_000_000);
}
