//! What of a decoder's run is counted that goes on when the warm-up ends.

use crate::common::cluster;
use crate::common::decoders::{TENANTS, generation, memory, request, system};
use tenantry_core::RunRecord;
use tenantry_core::spec::{GenerationSpec, JoinSpec};
use tenantry_profiles::testing::synthetic_card;
use tenantry_sim::{Run, simulate};
use tenantry_traces::{Listed, Time};

fn counted_from(warm_up: Time, generation: GenerationSpec) -> RunRecord {
    let system = system(generation);
    let card = synthetic_card();
    let run = Run {
        warm_up,
        ..Run::new(&card, cluster(1, memory(&system, 400)), &system, TENANTS)
    };
    // One of 400 tokens alone, which three more join when it has made most of them.
    let later = (1..4).map(|n| request(n, 60_000, n as u32, 16, 60));
    let entries = [request(0, 0, 0, 16, 400)].into_iter().chain(later).collect();
    simulate(&run, &mut Listed::new(entries), Default::default(), None).unwrap().record
}

/// However many runs a stretch of steps is made in, as many are counted as are over after the warm-up.
#[test]
fn steps_before_the_end_of_the_warm_up_are_not_counted() {
    for join in [JoinSpec::AnyTenant, JoinSpec::HeadRunStatic] {
        let generation = || GenerationSpec {
            lora: None,
            join,
            ..generation()
        };
        let whole = counted_from(Time::ZERO, generation());
        let step_ns = whole.token_gap.quantile_ns(0.5);
        assert_eq!(whole.output_tokens, 400 + 3 * 60);
        let (steps, gaps) = (whole.batches, whole.token_gap.count());
        for passed in [10, 50, 200, 350] {
            let counted = counted_from(Time(step_ns * passed), generation());
            // The first run's steps are of one request each, which is answered much later.
            let tokens = whole.output_tokens - counted.output_tokens;
            // The middle step is longer than most of those before it.
            for missing in [steps - counted.batches, gaps - counted.token_gap.count(), tokens] {
                let is_near = missing.abs_diff(passed) <= 3 + passed / 25;
                assert!(is_near, "{join:?}: {missing} of {passed}");
            }
        }
    }
}
