//! Several models one after the other: their weights, and what each leaves of a text.

use super::*;

/// An ensemble with the weights that `cascade select` writes changes what is answered: requests have another answer
/// than the last model's, and as many are right as by those averages, on both machines.
#[test]
fn the_weights_that_a_selection_writes_change_answers() {
    let trained = trained(2, &[]);
    let Trained { answers, profiled, .. } = &trained;
    let outputs = ["small", "large"].map(|name| &profiled.find(name).unwrap().whole.softmax);
    let wide = |output: &[f32]| -> Vec<f64> { output.iter().map(|&number| number.into()).collect() };
    let is_right = |answer: &[f64], item: usize| likeliest(answer) as f32 == profiled.labels()[item];
    let right = outputs.map(|of| {
        let of_items = of.iter().enumerate();
        of_items.map(|(item, output)| is_right(&wide(output), item)).collect()
    });
    // All go on, so that both models are asked about every request; scenarios have four decimals.
    let everything = vec![1.0; profiled.labels().len()];
    let weights = weights_of_route(&everything, &right).unwrap();
    let weights: Vec<f64> = weights.iter().map(|weight| (weight * 1e4).round() / 1e4).collect();

    let draws = tenantry_traces::outcome::ItemDraws::new(SEED, profiled.labels().len());
    let (mut changed, mut mended, mut broken, mut expected) = (0, 0, 0, 0);
    for ticket in 0..REQUESTS {
        let item = draws.of(ticket);
        let [small, large] = outputs.map(|of| &of[item][..]);
        let joined = average([(weights[0], small), (weights[1], large)]).unwrap();
        let (with, without) = (is_right(&joined, item), is_right(&wide(large), item));
        changed += u64::from(likeliest(&joined) != likeliest(&wide(large)));
        mended += u64::from(with && !without);
        broken += u64::from(!with && without);
        expected += u64::from(with);
    }
    println!("weights {weights:?}: {changed} answers changed, {mended} mended, {broken} broken, {expected} right");
    assert!(changed > 0 && mended + broken == changed, "of two classes one is right");

    let reroute = Reroute::new(1.0, 10.0).unwrap();
    let served = |join: AnswerJoin| {
        let system = system(&trained, &["small", "large"], reroute, None, join);
        let (_, returned) = served_alike(&system, answers, "all re-routed");
        assert_eq!(returned, [0, REQUESTS]);
        executed(&system, answers).unwrap().record.cascade.unwrap().right.iter().sum::<u64>()
    };
    assert_eq!(served(AnswerJoin::Average(weights)), expected);
    assert_eq!(served(AnswerJoin::Last), expected + broken - mended);
}

/// Three levels, of which the second prunes what the first has left: both machines read the same, and what was not
/// profiled is told.
#[test]
fn levels_that_prune_one_after_the_other_are_served_alike() {
    const ROUTE: [&str; 3] = ["small", "middle", "large"];
    let trained = trained(
        3,
        &[
            &[("small", 0.85), ("large", 0.0)],
            &[("small", 0.85), ("middle", 0.95), ("large", 0.0)],
        ],
    );
    let Trained { answers, profiled, .. } = &trained;
    let ways: Vec<String> = profiled.find("large").unwrap().prunings().map(described).collect();
    assert_eq!(ways.first().unwrap(), "small at 0.5", "where the search begins");
    assert_eq!(ways.last().unwrap(), "small at 0.85, then middle at 0.95");
    let served = |reroute: Reroute, alphas: [Option<f64>; 2]| {
        let average = AnswerJoin::Average(vec![0.2, 0.3, 0.5]);
        let system = pruning(&trained, &ROUTE, reroute, &alphas, average);
        served_alike(&system, answers, &format!("{reroute:?}, {alphas:?}"))
    };
    // All go on, and read less and less.
    let all = |alphas| served(Reroute::new(1.0, 1.0).unwrap(), alphas).0;
    let (whole, once, twice) = (
        all([None, None]),
        all([Some(0.85), None]),
        all([Some(0.85), Some(0.95)]),
    );
    assert!(whole > once && once > twice, "{whole} {once} {twice}");
    // Some are returned by each: what a dispatcher hears is what its model makes of the words that were left.
    let (_, returned) = served(Reroute::new(0.5, 2.0).unwrap(), [Some(0.85), Some(0.95)]);
    assert!(returned.iter().all(|&requests| requests > 0), "{returned:?}");

    let refused = |alphas: [Option<f64>; 2]| {
        let some = Reroute::new(0.5, 2.0).unwrap();
        let system = pruning(&trained, &ROUTE, some, &alphas, AnswerJoin::Last);
        let Err(error) = Answers::of_system(&system, Some((answers, SEED))) else {
            panic!("{alphas:?} was not profiled");
        };
        error.to_string()
    };
    let error = refused([Some(0.85), Some(0.6)]);
    let must =
        "outcomes: must have what large makes of words pruned by small at 0.85, then middle at 0.6, got small at 0.5; ";
    let hint = "; `tenantry cascade profile --route small=0.85,middle=0.6,large` measures it";
    assert!(error.starts_with(must) && error.ends_with(hint), "{error}");
    // Nobody was asked what the second alone leaves.
    assert!(refused([None, Some(0.95)]).contains("pruned by middle at 0.95, got small at 0.5"));
}
