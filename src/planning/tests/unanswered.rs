//! Who is not answered is not fast: the tightest latency without a target.

use tenantry_reports::human;

use super::{Question, planned, scenario};

/// One that takes eight into its queue and turns the others away, beside one that answers all of them.
const SYSTEMS: &str = "systems=[{name: choosy, preset: bert-shared, dtype: f16, admit: {bounded-queue: {max_waiting: \
                       8}}}, {preset: bert-shared, dtype: f16}]";

fn tightest(set: &'static [&'static str]) -> tenantry_reports::plan::PlanReport {
    let plan = "{find: tightest-latency, gpus: [1, 2]}";
    planned(&scenario(&Question {
        name: "tightest",
        set,
        plan,
    }))
    .report
}

#[test]
fn nobody_is_the_fastest_by_turning_requests_away() {
    let report = tightest(&["slo=null", SYSTEMS]);
    let chosen = report.options.iter().find(|option| option.chosen).unwrap();
    assert_eq!(chosen.system, "bert-shared", "{}", report.answer);
    let choosy = report.options.iter().find(|option| option.system == "choosy").unwrap();
    assert!(choosy.latency_ms < chosen.latency_ms, "{choosy:?}");
    assert!(
        choosy.verdict.starts_with("given up: ") && choosy.verdict.contains("refused"),
        "{choosy:?}"
    );
}

/// Who gives up by himself does not count, as where there is a target: of a twelfth that does so the others are
/// answered.
#[test]
fn who_gives_up_is_not_turned_away() {
    let report = tightest(&[
        "slo=null",
        "systems=[{preset: bert-shared, dtype: f16}]",
        "workload.cancellations={share: 8%, mean_after: 2ms}",
    ]);
    assert!(report.feasible && report.confidence > 0.99, "{}", report.answer);
}

/// Thirty requests are few, and all of them are answered.
#[test]
fn who_answers_all_is_sure_to() {
    let report = tightest(&[
        "slo=null",
        "systems=[{preset: bert-shared, dtype: f16}]",
        "workload.arrivals={mmpp: {states: [{rate: 3000/s, mean_dwell: 1s}, {rate: 12000/s, mean_dwell: 100ms}]}}",
        "workload.stop.requests=30",
    ]);
    assert!(report.confidence > 0.99, "{}", report.answer);
}

#[test]
fn without_a_request_there_is_no_answer() {
    let report = tightest(&["slo=null", "workload.warm_up=100s"]);
    assert!(!report.feasible, "{}", report.answer);
    assert!(report.answer.starts_with("Nothing can be told: "), "{}", report.answer);
}

/// The same card under two names: what cannot be told apart differs by its card alone.
#[test]
fn ties_are_named_with_their_cards() {
    let l4 = concat!(env!("CARGO_MANIFEST_DIR"), "/profiles/cards/l4");
    let plan = format!("{{find: tightest-latency, gpus: [1], cards: [l4, {l4}]}}");
    let report = planned(&scenario(&Question {
        name: "ties",
        set: &[
            "slo=null",
            "systems=[{preset: bert-shared, dtype: f16}]",
            "workload.arrivals.poisson.rate=300/s",
        ],
        plan: plan.leak(),
    }))
    .report;
    let tie = format!("bert-shared on 1 card of {l4} could not be told from it");
    assert!(report.answer.contains(&tie), "{}", report.answer);
}

/// A sentence on what comes nearest says of its requests what the table of options does: of all of them after the
/// warm-up, in all runs.
#[test]
fn the_nearest_is_told_of_as_its_option_is() {
    let report = planned(&scenario(&Question {
        name: "too long for some",
        set: &[
            "systems=[{preset: bert-shared, dtype: f16}]",
            "slo={latency: 100ms, at: p90}",
            // A quarter of these is longer than BERT takes.
            "workload.lengths={input: {quantiles: [{share: 0, tokens: 32}, {share: 1, tokens: 672}]}}",
            "workload.arrivals.poisson.rate=200/s",
            "workload.stop={requests: 3000}",
            "workload.warm_up=2s",
        ],
        plan: "{find: fewest-cards, gpus: [1, 2]}",
    }))
    .report;
    let answer = &report.answer;
    let (_, nearest) = answer.split_once("Nearest: 2 cards of l4").expect(answer);
    let of = report.options.iter().find(|option| option.gpus == 2).unwrap();
    let (within, latency_ms) = (of.within.unwrap(), of.latency_ms.unwrap());
    assert!(
        of.runs > 1 && nearest.contains(&format!("{} are in time", human::percent(within))),
        "{answer}"
    );
    assert!(
        nearest.contains(&format!("(p90 is {})", human::milliseconds(latency_ms))),
        "{answer}"
    );
    // Nobody was late.
    let unanswered = human::percent(1.0 - within);
    assert!(
        nearest.contains(&format!(" and {unanswered} are not answered: in the first run, ")),
        "{answer}"
    );
}
