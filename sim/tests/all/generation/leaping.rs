//! Leaping over steps is stepping, and runs replay.

use super::*;

fn jitters() -> impl Strategy<Value = Jitter> {
    prop_oneof![
        Just(Jitter::None),
        any::<u64>().prop_map(|seed| Jitter::Measured { seed })
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Leaping over steps and visiting each give the same events at the same instants, and so the same of everything.
    #[test]
    fn leaping_is_stepping(
        (system, gpus, pages) in systems(),
        entries in entries(40),
        jitter in jitters(),
        whole_steps: bool,
    ) {
        let card = if whole_steps { card_of_whole_steps() } else { synthetic_card() };
        let (leapt, leaps) = simulate_on(&card, &system, gpus, pages, jitter, entries.clone(), false);
        let (stepped, steps) = simulate_on(&card, &system, gpus, pages, jitter, entries, true);
        prop_assert_eq!(leaps, steps);
        prop_assert_eq!(format!("{leapt:?}"), format!("{stepped:?}"));
        // Every token but a request's first comes after a gap, and the longest is somebody's.
        if leapt.counts.cancelled + leapt.counts.failed == 0 {
            prop_assert_eq!(leapt.token_gap.count(), leapt.output_tokens - leapt.served);
            prop_assert_eq!(leapt.token_gap.max_ns(), leapt.longest_gap.max_ns());
        }
    }

    /// A server told the same events gives the same commands.
    #[test]
    fn runs_replay((system, gpus, pages) in systems(), entries in entries(40)) {
        let (_, log) = simulate(&system, gpus, pages, Jitter::None, entries, false);
        let fresh = Server::new(&cluster(gpus, memory(&system, pages)), &system, TENANTS);
        let mut fresh = fresh.unwrap().with_management();
        prop_assert_eq!(replay(&mut fresh, &log.events), log.commands);
    }
}
