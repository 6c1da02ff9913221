//! Cascades: known answers, shares, and the laws under random routes and workloads.

use crate::common;
use crate::common::cascades::*;
use crate::common::tasks::tasks;
use crate::common::{cluster, request, run_checked};
use proptest::prelude::*;
use tenantry_core::log::replay;
use tenantry_core::op::Layers;
use tenantry_core::policy::scale::{HeadroomSpec, TargetTrackingSpec};
use tenantry_core::spec::{AdmitSpec, AnswerJoin, BatchSpec, OrderSpec, ScaleRule, ScaleSpec, StageSpec, SystemSpec};
use tenantry_core::{Command, Server};
use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{AttendedLayerRow, Card, DType, ModelShape, Stats, TextLookRow, TextPassRow};
use tenantry_traces::outcome::{
    AnswersSpec, DrawnSpec, KnownAverage, OtherModel, OutcomesSpec, PrunedPoint, TableSpec,
};
use tenantry_traces::{Duration, Entry, Time};

/// Scenarios refuse such a system; here both the server and what prices its ops take it for the same.
#[test]
fn a_route_decides_what_a_system_is() {
    let mut system = alone(stage("tiny", &[0], None));
    system.pool.tasks = tasks(1).pool.tasks;
    let (record, _) = logged_on(&synthetic_card(), &system, 1, vec![request(0, 0, 0, 40)]);
    assert_eq!(record.counts.served, 1);
    assert!(record.cascade.is_some() && record.tasks.is_none());
}

/// Attention that is summed up is not computed by the fused kernel: its layers have prices of their own.
#[test]
fn a_pass_that_words_are_pruned_by_costs_what_such_a_pass_does() {
    const SLOWER: u64 = 3;
    let plain = synthetic_card();
    let mut card = synthetic_card();
    let rows = plain.tables.encoder_layer.iter();
    let attended = rows.map(|row| AttendedLayerRow {
        model: row.model.clone(),
        dtype: row.dtype,
        batch: row.batch,
        tokens: row.tokens,
        stats: Stats::exact(row.stats.median_us * SLOWER as f64),
    });
    card.tables.attended_layer = attended.collect();
    let compute_ns = |card: &Card, prune| {
        let stages = vec![
            stage("tiny", &[0], Some((0.0, 1e9, prune))),
            stage("bert-base", &[0], None),
        ];
        let system = routed(OrderSpec::OneByOne, stages);
        let (record, _) = logged_on(card, &system, 1, vec![request(0, 0, 0, 40)]);
        record.compute.max_ns()
    };
    assert_eq!(
        compute_ns(&card, None),
        compute_ns(&plain, None),
        "nobody looks at words"
    );
    let tiny = ModelShape::builtin("tiny").expect("it is built in");
    let layer_ns = plain.encoder_layer(&tiny, DType::F32).expect("it has the table").cost(1, 40).median_ns;
    let added = compute_ns(&card, Some(0.5)) - compute_ns(&plain, Some(0.5));
    let expected = u64::from(tiny.layers) * (SLOWER - 1) * layer_ns;
    assert!(added.abs_diff(expected) < 10, "{added} {expected}");
}

/// A card that has the lanes' own passes over texts prices these, and of a look what is made of each text that goes on
/// pruned.
#[test]
fn texts_cost_what_their_lanes_took() {
    const PASS_US: [f64; 2] = [500.0, 900.0];
    const LOOK_US: f64 = 3.0;
    const PRUNED_US: f64 = 70.0;
    let mut card = synthetic_card();
    for (model, pass_us) in ["tiny", "bert-base"].into_iter().zip(PASS_US) {
        for (batch, tokens) in [(1, 8), (1, 64), (2, 8), (2, 64)] {
            for attended in [false, true] {
                card.tables.text_pass.push(TextPassRow {
                    model: model.into(),
                    dtype: DType::F32,
                    attended,
                    batch,
                    tokens,
                    stats: Stats::exact(pass_us * if attended { 2.0 } else { 1.0 }),
                });
            }
        }
        for (batch, pruned) in [(1, false), (2, false), (1, true), (2, true)] {
            let each = if pruned { PRUNED_US } else { LOOK_US };
            card.tables.text_look.push(TextLookRow {
                model: model.into(),
                pruned,
                batch,
                stats: Stats::exact(each * f64::from(batch)),
            });
        }
    }
    let compute_us_on = |card: &_, dispatch| {
        let stages = vec![stage("tiny", &[0], dispatch), stage("bert-base", &[0], None)];
        let system = routed(OrderSpec::OneByOne, stages);
        let (record, _) = logged_on(card, &system, 1, vec![request(0, 0, 0, 40)]);
        record.compute.max_ns() as f64 / 1e3
    };
    let compute_us = |dispatch| compute_us_on(&card, dispatch);
    let [small, large] = PASS_US;
    let all = |prune| Some((1.0, 1.0, prune));
    assert_eq!(compute_us(NONE), small + LOOK_US, "it is returned, and looked at");
    assert_eq!(compute_us(all(None)), small + LOOK_US + large + LOOK_US);
    assert_eq!(compute_us(all(Some(0.5))), 2.0 * small + PRUNED_US + large + LOOK_US);
    let returned = Some((0.0, 1e9, Some(0.5)));
    assert_eq!(
        compute_us(returned),
        2.0 * small + LOOK_US,
        "what is returned is not pruned"
    );
    // Nobody measured what attention adds: it is left out, and what looks at the words as well.
    card.tables.text_pass.retain(|row| !row.attended);
    card.tables.text_look.retain(|row| !row.pruned);
    assert_eq!(compute_us_on(&card, all(Some(0.5))), small + LOOK_US + large + LOOK_US);
    // An exit's layers are no trained model's, whatever it is called.
    let exit_ns = |card: &_| {
        let layers = Layers::from(0, 1);
        let exit = StageSpec {
            layers,
            ..stage("tiny", &[0], None)
        };
        let (record, _) = logged_on(card, &alone(exit), 1, vec![request(0, 0, 0, 40)]);
        record.compute.max_ns()
    };
    assert_eq!(exit_ns(&card), exit_ns(&synthetic_card()));
}

/// Words that are gone are gone for all that come after: what pruning costs the last of three models adds up over those
/// that prune before it, each to its degree.
#[test]
fn each_pruning_before_it_costs_the_last_model_accuracy() {
    let AnswersSpec::Drawn(mut drawn) = common::answers() else {
        unreachable!("they are drawn");
    };
    drawn.pruned = [(0.5, 0.1), (0.9, 0.25)]
        .map(|(degree, loss)| PrunedPoint {
            degree,
            words: 0.2,
            loss: Some(loss),
        })
        .to_vec();
    let OutcomesSpec::Generated(generated) = &mut drawn.outcomes else {
        unreachable!("by a generator");
    };
    generated.others.push(OtherModel {
        name: "middle".into(),
        confidence: vec![(0.0, 0.5), (1.0, 0.6)],
        right_if_large_is: vec![(1.0, 0.9)],
        right_if_large_is_not: vec![(1.0, 0.5)],
    });
    let answers = AnswersSpec::Drawn(drawn);
    let right = |prune: [Option<f64>; 2]| {
        let mut middle = stage("tiny", &[0], Some((1.0, 1.0, prune[1])));
        middle.pool.name = "middle".into();
        let stages = vec![
            stage("tiny", &[0], Some((1.0, 1.0, prune[0]))),
            middle,
            stage("bert-base", &[0], None),
        ];
        let mut system = routed(OrderSpec::OneByOne, stages);
        system.route.as_mut().expect("it has one").join = AnswerJoin::Last;
        let done = judged_on(&synthetic_card(), &system, 1, &answers, apart(4_000), ()).expect("the run is sound");
        let cascade = done.record.cascade.expect("there is a route");
        assert_eq!(cascade.returned, [0, 0, 4_000], "all go on to the last");
        cascade.right[2] as f64 / cascade.judged[2] as f64
    };
    let whole = right([None, None]);
    for (prune, loss) in [
        ([Some(0.5), None], 0.1),
        ([Some(0.9), None], 0.25),
        ([None, Some(0.5)], 0.1),
        ([Some(0.5), Some(0.5)], 0.2),
    ] {
        let lost = whole - right(prune);
        assert!((lost - loss).abs() < 0.02, "{prune:?}: {lost}");
    }
}

/// A generator's average has the gain that is said of its weights, and of no others is anything known.
#[test]
fn an_average_brings_what_is_said_of_its_weights() {
    // Where the small model is right, the large one is wrong in 0.52 %: no gain is more than that there.
    const GAIN: f64 = 0.005;
    let AnswersSpec::Drawn(mut drawn) = common::answers() else {
        unreachable!("they are drawn");
    };
    drawn.averages = vec![KnownAverage {
        weights: vec![0.4, 0.6],
        gain: GAIN,
    }];
    let answers = AnswersSpec::Drawn(drawn);
    let right = |join: AnswerJoin| {
        let stages = vec![stage("tiny", &[0], ALL), stage("bert-base", &[0], None)];
        let mut system = routed(OrderSpec::OneByOne, stages);
        system.route.as_mut().expect("it has one").join = join;
        let done = judged_on(&synthetic_card(), &system, 1, &answers, apart(4_000), ()).map_err(|e| e.to_string())?;
        let cascade = done.record.cascade.expect("there is a route");
        Ok::<_, String>(cascade.right[1] as f64 / cascade.judged[1] as f64)
    };
    let last = right(AnswerJoin::Last).expect("it needs no average");
    let average = right(AnswerJoin::Average(vec![2.0, 3.0])).expect("these are the weights in other words");
    assert!((average - last - GAIN).abs() < 0.003, "{average} {last}");
    let unknown = right(AnswerJoin::Average(vec![1.0, 0.0])).expect_err("nobody knows");
    assert!(unknown.contains("outcomes.averages"), "{unknown}");
}

/// Answers from a table with these lines, whose columns call the models so; the file is there as long as what is
/// returned first.
fn from_table(table: &str, models: &[[&str; 2]], reference: Option<&str>) -> (tempfile::NamedTempFile, AnswersSpec) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), table).unwrap();
    let models = models.iter().map(|&[model, column]| (model.into(), column.into()));
    let answers = AnswersSpec::Drawn(DrawnSpec {
        outcomes: OutcomesSpec::Table(TableSpec {
            path: file.path().into(),
            models: models.collect(),
            reference: reference.map(str::to_owned),
        }),
        pruned: Vec::new(),
        averages: Vec::new(),
    });
    (file, answers)
}

/// Two items of which each of two models of `classes` has one right, as sure of it as the other.
fn share_right_of_a_tie_of(classes: u32, dispatch: Option<(f64, f64, Option<f64>)>, join: AnswerJoin) -> Vec<f64> {
    let table = "tiny_conf,tiny_correct,large_conf,large_correct\n0.6,1,0.6,0\n0.6,0,0.6,1\n";
    let (_file, answers) = from_table(table, &[["tiny", "tiny"], ["bert-base", "large"]], None);
    let mut stages = vec![stage("tiny", &[0], dispatch), stage("bert-base", &[0], None)];
    stages.iter_mut().for_each(|stage| stage.pool.classes = classes);
    let mut system = routed(OrderSpec::OneByOne, stages);
    system.route.as_mut().expect("it has one").join = join;
    let done = judged_on(&synthetic_card(), &system, 1, &answers, apart(4_000), ()).expect("the run is sound");
    let cascade = done.record.cascade.expect("there is a route");
    let of_stages = cascade.right.iter().zip(&cascade.judged);
    let shares = of_stages.map(|(&right, &judged)| right as f64 / judged.max(1) as f64);
    shares.collect()
}

fn share_right_of_a_tie(dispatch: Option<(f64, f64, Option<f64>)>, join: AnswerJoin) -> Vec<f64> {
    share_right_of_a_tie_of(2, dispatch, join)
}

/// Two models that disagree and are as sure of it are right as often as one that guesses. A single number is right or
/// wrong, as of two classes.
#[test]
fn a_tie_of_an_average_is_right_by_chance() {
    for classes in [1, 2] {
        let right = share_right_of_a_tie_of(classes, ALL, AnswerJoin::Average(vec![1.0; 2]))[1];
        assert!((right - 0.5).abs() < 0.03, "{right}");
    }
}

/// Two models that are wrong about a number have not said the same one.
#[test]
fn numbers_are_not_voted_on() {
    let answers = common::answers();
    let refused = |classes: u32| {
        let mut stages = vec![stage("tiny", &[0], None), stage("bert-base", &[0], None)];
        stages.iter_mut().for_each(|stage| stage.pool.classes = classes);
        let system = routed(OrderSpec::AtOnce, stages);
        let judged = judged_on(&synthetic_card(), &system, 1, &answers, apart(10), ());
        judged.err().map(|error| error.to_string())
    };
    assert_eq!(refused(2), None);
    let why = "join: must be last or average, since these models answer numbers, got vote";
    assert_eq!(refused(1).as_deref(), Some(why));
}

/// How often three models are right about one item of three classes, whose table has these answers of them; the first
/// of them is right.
fn share_right_of_three(answers: [&str; 3], join: AnswerJoin) -> f64 {
    let [a, b, c] = answers;
    let table = format!("a_conf,a_pred,b_conf,b_pred,c_conf,c_pred,r_pred\n0.6,{a},0.5,{b},0.5,{c},{a}\n");
    let (_file, answers) = from_table(&table, &["a", "b", "c"].map(|name| [name; 2]), Some("r"));
    let named = |name: &str| {
        let mut stage = stage("tiny", &[0], None);
        stage.pool.name = name.into();
        stage.pool.classes = 3;
        stage
    };
    let mut system = routed(OrderSpec::AtOnce, ["a", "b", "c"].map(named).to_vec());
    system.route.as_mut().expect("it has one").join = join;
    let done = judged_on(&synthetic_card(), &system, 1, &answers, apart(200), ()).expect("the run is sound");
    let cascade = done.record.cascade.expect("there is a route");
    cascade.right[2] as f64 / cascade.judged[2] as f64
}

/// Two that give the same wrong answer outvote the third, and two that are wrong each in its own way do not: the table
/// says which.
#[test]
fn votes_and_averages_count_what_a_table_s_models_answered() {
    for join in [AnswerJoin::Vote(vec![1.0; 3]), AnswerJoin::Average(vec![1.0; 3])] {
        assert_eq!(share_right_of_three(["x", "y", "y"], join.clone()), 0.0, "{join:?}");
        assert_eq!(share_right_of_three(["x", "y", "z"], join.clone()), 1.0, "{join:?}");
    }
}

/// What a model answers alone whose answers weigh nothing beside the other's is its answer still, and no guess.
#[test]
fn a_model_without_weight_answers_for_itself_where_it_is_alone() {
    let weightless = AnswerJoin::Average(vec![0.0, 1.0]);
    assert_eq!(
        share_right_of_a_tie(NONE, weightless.clone()),
        share_right_of_a_tie(NONE, AnswerJoin::Last)
    );
    assert_eq!(
        share_right_of_a_tie(ALL, weightless),
        share_right_of_a_tie(ALL, AnswerJoin::Last)
    );
}

#[test]
fn a_re_routed_query_takes_both_models_times_and_a_look() {
    let [small, large] =
        [stage("tiny", &[0], None), stage("bert-base", &[1], None)].map(|stage| latency(&alone(stage), 2));
    let pair = |dispatch| {
        let stages = vec![stage("tiny", &[0], dispatch), stage("bert-base", &[1], None)];
        latency(&routed(OrderSpec::OneByOne, stages), 2)
    };
    assert_eq!(pair(ALL), small + INSPECT + large);
    // A step at 0.5 below every confidence: nobody goes on.
    assert_eq!(pair(NONE), small + INSPECT);
}

#[test]
fn models_asked_at_once_take_as_long_as_the_slowest() {
    let stages = vec![stage("tiny", &[0], None), stage("bert-base", &[1], None)];
    let both = routed(OrderSpec::AtOnce, stages);
    assert_eq!(latency(&both, 2), latency(&alone(stage("bert-base", &[1], None)), 2));
    let (record, log) = logged(&both, 2, apart(50));
    let cascade = record.cascade.expect("there is a route");
    assert_eq!(cascade.returned, [0, 50]);
    assert!(cascade.stages.iter().all(|stage| stage.answered == 50));
    assert!(finishes(&log).iter().all(|finish| finish.returned.expect("it was answered").asked == 0b11));
}

/// The last model's answer is the answer, whichever is done last.
#[test]
fn of_models_asked_at_once_the_last_answers_however_slow_the_first_is() {
    let stages = |first, last| vec![stage(first, &[0], None), stage(last, &[1], None)];
    let right = |stages| {
        let mut both = routed(OrderSpec::AtOnce, stages);
        both.route.as_mut().unwrap().join = AnswerJoin::Last;
        let cascade = logged(&both, 2, apart(2000)).0.cascade.expect("there is a route");
        assert_eq!(cascade.returned, [0, 2000]);
        cascade.right.iter().sum::<u64>()
    };
    let alone = |name| {
        let record = logged(&alone(stage(name, &[0], None)), 2, apart(2000)).0;
        record.cascade.expect("there is a route").right[0]
    };
    assert_ne!(alone("tiny"), alone("bert-base"));
    assert_eq!(right(stages("tiny", "bert-base")), alone("bert-base"));
    assert_eq!(right(stages("bert-base", "tiny")), alone("tiny"));
}

/// Upper layers go on where the lower ones have ended, on the same lane, and cost no second embedding.
#[test]
fn an_early_exit_spares_the_upper_layers() {
    let half = |layers, dispatch| StageSpec {
        layers,
        ..stage("bert-base", &[0], dispatch)
    };
    let exits = |dispatch| {
        routed(
            OrderSpec::OneByOne,
            vec![half(Layers::from(0, 6), dispatch), half(Layers::from(6, 12), None)],
        )
    };
    let whole = latency(&alone(stage("bert-base", &[0], None)), 1);
    let (early, late) = (latency(&exits(NONE), 1), latency(&exits(ALL), 1));
    assert!(early < whole && whole < late, "{early} {whole} {late}");
    let server = Server::new(&cluster(1, MEMORY), &exits(ALL), TENANTS).expect("it fits once");
    let topology = server.topology();
    assert_eq!(topology.instances[0].compute, topology.instances[1].compute);
    assert_eq!(
        server.memory(),
        Server::new(&cluster(1, MEMORY), &alone(stage("bert-base", &[0], None)), TENANTS)
            .unwrap()
            .memory()
    );
}

/// SST-2 as the paper's text describes it: 69.8 % are returned, 97.7 % of those right, and 91.4 % of the others.
#[test]
fn shares_and_accuracies_are_the_outcomes() {
    const QUERIES: u64 = 20_000;
    let stages = |prune| {
        vec![
            stage("tiny", &[0], Some((0.95, 1e6, prune))),
            stage("bert-base", &[1], None),
        ]
    };
    let (record, log) = logged(&routed(OrderSpec::OneByOne, stages(Some(0.7))), 2, apart(QUERIES));
    let cascade = record.cascade.expect("there is a route");
    let share = cascade.returned[0] as f64 / QUERIES as f64;
    assert!((share - 0.698).abs() < 0.01, "{share}");
    let accuracy = cascade.right.iter().sum::<u64>() as f64 / QUERIES as f64;
    let expected = 0.698 * 0.977 + 0.302 * 0.914;
    assert!((accuracy - expected).abs() < 0.005, "{accuracy} instead of {expected}");
    // Of 40 words 14.2 % go, in the mean exactly.
    let large = log.commands.iter().filter_map(|logged| match &logged.command {
        Command::Submit(submission) if submission.instance.0 == 1 => Some(f64::from(submission.shape.input_tokens)),
        _ => None,
    });
    let read: Vec<f64> = large.collect();
    let mean = read.iter().sum::<f64>() / read.len() as f64;
    assert!((mean - 40.0 * 0.858).abs() < 0.05, "{mean}");
    assert!(read.iter().all(|words| *words == 34.0 || *words == 35.0));
}

/// A route with a single model is that model.
#[test]
fn one_stage_is_a_plain_system() {
    let entries: Vec<Entry> = (0..200).map(|i| request(i, i * 700, (i % 3) as u32, 10 + (i * 7 % 50) as u32)).collect();
    let routed = alone(stage("tiny", &[0, 1], None));
    let plain = SystemSpec {
        route: None,
        ..routed.clone()
    };
    let of = |system: &SystemSpec| {
        let finishes = finishes(&logged(system, 2, entries.clone()).1);
        finishes.iter().map(|f| (f.ticket, f.verdict, f.waits, f.batch_requests)).collect::<Vec<_>>()
    };
    assert_eq!(of(&routed), of(&plain));
}

#[test]
fn models_that_do_not_fit_together_are_refused() {
    let stages = vec![stage("bert-base", &[0], ALL), stage("bert-base", &[0, 1], None)];
    let system = routed(OrderSpec::OneByOne, stages);
    let bytes = Server::new(&cluster(2, MEMORY), &system, TENANTS).unwrap().memory().shared_bytes / 3;
    assert!(Server::new(&cluster(2, 2 * bytes), &system, TENANTS).is_ok());
    let error = Server::new(&cluster(2, 2 * bytes - 1), &system, TENANTS).err().expect("card 0 is too small");
    assert!(
        error.to_string().contains("bert-base beside the other models of card 0"),
        "{error}"
    );
}

/// A request that waits for two models is one that waits.
#[test]
fn of_models_asked_at_once_each_request_waits_once() {
    let stages = ["tiny", "bert-base"].map(|model| one_by_one(stage(model, &[0], None)));
    let mut system = routed(OrderSpec::AtOnce, stages.to_vec());
    system.admit = AdmitSpec::BoundedQueue { max_waiting: 3 };
    // The first runs, three wait, and one is too many.
    let entries = (0..5).map(|ticket| request(ticket, ticket, 0, 40)).collect();
    let (record, _) = logged(&system, 1, entries);
    assert_eq!((record.counts.served, record.counts.rejected), (4, 1));
}

fn scales(cards_max: u32) -> impl Strategy<Value = Option<ScaleSpec>> {
    let rule = prop_oneof![
        (1u64..300, 1u32..3).prop_map(move |(interval_ms, patience)| {
            ScaleRule::Headroom(HeadroomSpec {
                instances_per_card: 1,
                headroom_ppm: 50_000,
                interval: Duration::from_millis(interval_ms),
                patience,
                cards_min: 1,
                cards_max,
            })
        }),
        (1u64..60).prop_map(move |slo_ms| {
            ScaleRule::TargetTracking(TargetTrackingSpec {
                slo: Duration::from_millis(slo_ms),
                percentile: 98,
                add_ppm: 950_000,
                release_ppm: 800_000,
                recent: Duration::from_secs(2),
                period: Duration::from_secs(1),
                settle: Duration::ZERO,
                cards_min: 1,
                cards_max,
            })
        }),
    ];
    let scale = (rule, 1..=cards_max, 0u64..1_500).prop_map(|(rule, cards_at_start, start_up_ms)| ScaleSpec {
        cards_at_start,
        start_up: Duration::from_millis(start_up_ms),
        rule,
    });
    proptest::option::of(scale)
}

fn systems() -> impl Strategy<Value = SystemSpec> {
    let gpus = prop_oneof![Just(vec![0]), Just(vec![1]), Just(vec![1, 0])];
    let on_cards = gpus.prop_flat_map(|gpus| {
        let scale = scales(gpus.len() as u32);
        (Just(gpus), scale)
    });
    let one = (prop_oneof![Just("tiny"), Just("bert-base")], 1u32..5, 1u32..3, on_cards);
    let order = prop_oneof![Just(OrderSpec::OneByOne), Just(OrderSpec::AtOnce)];
    (
        proptest::collection::vec(one, 1..4),
        order,
        0.5..1.0_f64,
        0.0..500.0_f64,
        0u64..8,
    )
        .prop_map(|(stages, order, cut_off, slope, wait_ms)| {
            let count = stages.len();
            // Nobody knows what the small model makes of fewer words.
            let last_small = stages.iter().rposition(|(model, ..)| *model == "tiny");
            let stages = stages.into_iter().enumerate().map(|(index, (model, max_size, instances, (gpus, scale)))| {
                let goes_on = order == OrderSpec::OneByOne && index + 1 < count;
                let prune = last_small.is_none_or(|last| last <= index).then_some(0.7);
                let mut stage = stage(model, &gpus, goes_on.then_some((cut_off, slope, prune)));
                stage.pool.instances_per_gpu = instances;
                stage.scale = scale;
                stage.pool.batch = BatchSpec::SizeOrTimeout {
                    max_size,
                    max_wait: Duration::from_millis(wait_ms),
                };
                stage
            });
            let mut system = routed(order, stages.collect());
            if last_small.is_some_and(|last| last > 0) {
                system.route.as_mut().expect("it has one").join = AnswerJoin::Last;
            }
            system
        })
}

/// Requests of known and unknown tenants, and cancellations before, during and after service; some within moments, some
/// over seconds.
fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let one = (
        0u64..6_000,
        0..TENANTS + 1,
        1u32..64,
        proptest::option::weighted(0.2, 0u64..60_000),
    );
    (proptest::collection::vec(one, 1..80), prop_oneof![Just(1), Just(20)]).prop_map(|(requests, slower)| {
        let mut at_us = 0;
        let mut entries = Vec::new();
        for (ticket, (gap_us, tenant, tokens, cancel_after_us)) in requests.into_iter().enumerate() {
            at_us += gap_us * slower;
            entries.push(request(ticket as u64, at_us, tenant, tokens));
            entries.extend(cancel_after_us.map(|after_us| Entry::Cancel {
                at: Time((at_us + after_us) * 1_000),
                ticket: ticket as u64,
            }));
        }
        entries
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Nobody is lost, no instance idles while its policy has work.
    #[test]
    fn the_servers_laws_hold_after_every_event(system in systems(), entries in entries()) {
        prop_assert!(run_checked(&cluster(2, MEMORY), &system, TENANTS, entries) > 0);
    }

    /// The ledger's laws are errors of the run; runs repeat; a fresh server told the same events gives the same
    /// commands; every answer is returned by exactly one stage, and stages answer as often as they were asked.
    #[test]
    fn runs_repeat_and_replay(system in systems(), entries in entries()) {
        let (record, log) = logged(&system, 2, entries.clone());
        prop_assert_eq!(&log, &logged(&system, 2, entries).1);
        let mut fresh = Server::new(&cluster(2, MEMORY), &system, TENANTS).unwrap();
        prop_assert_eq!(replay(&mut fresh, &log.events), log.commands);
        prop_assert_eq!(record.counts.unfinished, 0);
        let cascade = record.cascade.unwrap();
        prop_assert_eq!(cascade.returned.iter().sum::<u64>(), record.counts.served);
        prop_assert_eq!(&cascade.judged, &cascade.returned);
        if record.counts.cancelled == 0 && system.route.as_ref().unwrap().order == OrderSpec::OneByOne {
            let reached = |stage: usize| cascade.returned[stage..].iter().sum::<u64>();
            for (index, stage) in cascade.stages.iter().enumerate() {
                prop_assert_eq!(stage.answered, reached(index));
            }
        }
    }
}
