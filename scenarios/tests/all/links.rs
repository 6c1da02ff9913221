//! Links between cards: whether anything goes over them.

use tenantry_scenarios::Scenario;

/// Whether nothing goes over what `punica/tiny-apart` has with these keys set: one system takes prompts in apart from
/// tokens, one together.
fn has_idle_link(set: &[&str]) -> bool {
    let set: Vec<String> = set.iter().map(|set| set.to_string()).collect();
    let scenario = Scenario::load("punica/tiny-apart", &set).unwrap_or_else(|errors| panic!("{errors}"));
    scenario.has_idle_link()
}

#[test]
fn a_link_is_idle_where_no_prompt_goes_over_it() {
    let (link, together) = (
        "cluster.link={bandwidth: 25 GB/s}",
        "systems[1].generation.prefill_gpus=null",
    );
    assert!(has_idle_link(&[link, together]));
    assert!(has_idle_link(&[
        together,
        "sweep={cluster.link.bandwidth: [1 GB/s, 25 GB/s]}"
    ]));
    assert!(!has_idle_link(&[link]), "the other system uses it");
    assert!(!has_idle_link(&[together]), "there is none");
    // At a point of a sweep, or as a plan's choice.
    let swept = "sweep={'systems[0].generation.prefill_gpus': [1]}";
    assert!(!has_idle_link(&[link, together, swept]));
    let plan = "plan={find: fewest-cards, gpus: [2], choices: {apart: {generation.prefill_gpus: [1]}}}";
    let planned = [link, together, "sweep={}", "slo={latency: 1s, at: p98}", plan];
    assert!(!has_idle_link(&planned));
}
