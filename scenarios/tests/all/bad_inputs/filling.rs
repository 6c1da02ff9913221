//! Batches of a fixed size that too few requests can wait for.

use super::*;

const SIZE_8: &str = "batch: { fixed-size: { size: 8 } }";
const GIVE_UP: &str = "  cancellations: { share: 10%, mean_after: 1s }\n";
const POISSON: &str = "poisson: { rate: 50/s }";

/// A system on two cards.
fn of(system: &str, arrivals: &str, more: &str) -> String {
    let text = GOOD.replace("gpus: 1", "gpus: 2").replace(POISSON, arrivals);
    let text = text.replace("  stop:", &format!("{more}  stop:"));
    let (before, _) = text.split_once("systems:").expect("it has some");
    errors(&format!("{before}systems: [{{ {system} }}]\n"), &[])
}

fn clients(count: u32) -> String {
    format!("closed-loop: {{ clients: {count}, think_time: 0s }}")
}

/// Two instances have seven each of 14 clients, and neither a batch. One client more fills one, and so may fewer where
/// each instance gets the next request in turn, though who waited at the other has given up.
#[test]
fn clients_who_wait_are_enough_for_a_batch() {
    let shared = format!("preset: bert-shared, {SIZE_8}");
    let in_turn = format!("{shared}, place: round-robin");
    let two_each = format!("{shared}, instances_per_gpu: 2");
    let refused = |largest: u32, clients: u32, instances: u32, line: u32| {
        format!(
            "s.yaml:{line}: systems[0].batch.fixed-size.size: must be at most {largest}, the largest batch that {clients} clients who wait for their \
             answers fill on {instances} instances, or batch must be size-or-timeout, got 8"
        )
    };
    for (system, more, few, instances, line) in [
        (&shared, "", 14, 2, 12),
        (&shared, GIVE_UP, 14, 2, 13),
        (&in_turn, "", 14, 2, 12),
        (&in_turn, GIVE_UP, 7, 1, 13),
        (&two_each, "", 28, 4, 12),
    ] {
        let said = of(system, &clients(few), more);
        assert_eq!(said, refused(7, few, instances, line), "{system}{more}");
        assert_eq!(of(system, &clients(few + 1), more), "nothing wrong", "{system}{more}");
    }
    assert_eq!(of(&shared, &clients(1), ""), refused(1, 1, 2, 12));
    assert_eq!(of(&shared, &clients(5), ""), refused(3, 5, 2, 12));
}

/// Each model that is asked at once, on its own cards; of others only the first, and with no more cards than it always
/// has.
#[test]
fn models_that_are_asked_first_fill_their_batches() {
    let of = |order: &str, first: &str, second: &str, waiting: u32| {
        let stages = format!("[{{ model: tiny{first} }}, {{ model: tiny, name: other{second} }}]");
        let cascade = format!("cascade: {{ order: {order}, join: last, stages: {stages} }}");
        let admit = format!("admit: {{ bounded-queue: {{ max_waiting: {waiting} }} }}");
        let system = format!(
            "preset: tabi, {admit}, {cascade} }}]\noutcomes: {{ from: {{ generated: {{ small: tiny, large: other, task: sst-2 }} }} }}\n# "
        );
        of(&system, POISSON, "")
    };
    let refused = |unfilled: u32, instances: u32, waiting: u32| {
        format!(
            "s.yaml:12: systems[0].admit.bounded-queue.max_waiting: must be more than {unfilled}, as many as can wait for batches of 8 on {instances} \
             instances without filling one, or batch must be size-or-timeout, got {waiting}"
        )
    };
    let goes_on = ", reroute: { cut_off: 0.9, slope: 10 }";
    let batched = format!(", {SIZE_8}");
    let first = format!("{goes_on}{batched}");
    assert_eq!(of("one-by-one", &first, "", 14), refused(14, 2, 14));
    assert_eq!(of("one-by-one", &first, "", 15), "nothing wrong");
    assert_eq!(
        of("one-by-one", &format!("{first}, gpus: [1]"), "", 7),
        refused(7, 1, 7)
    );
    assert_eq!(of("one-by-one", &format!("{first}, gpus: [1]"), "", 8), "nothing wrong");
    assert_eq!(of("one-by-one", goes_on, &batched, 3), "nothing wrong");
    assert_eq!(
        of("at-once", "", &format!("{batched}, instances_per_gpu: 3"), 42),
        refused(42, 6, 42)
    );
    let rule = "rule: { headroom: { spare: 5%, interval: 1s, patience: 9 } }";
    let scale = format!("{first}, scale: {{ start: 2, start_up: 1s, {rule} }}");
    assert_eq!(of("one-by-one", &scale, "", 7), refused(7, 1, 7));
    assert_eq!(of("one-by-one", &scale, "", 8), "nothing wrong");
}
