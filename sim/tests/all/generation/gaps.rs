//! What time lies between a request's tokens.

use super::*;

#[test]
fn gaps_between_tokens_are_what_lies_between_them() {
    let run = |prefill, entries| {
        let system = system(GenerationSpec {
            lora: None,
            prefill,
            ..generation()
        });
        let (record, _) = simulate(&system, 1, 200, Jitter::None, entries, false);
        assert_eq!(record.token_gap.count(), record.output_tokens - record.served);
        assert_eq!(record.token_gap.max_ns(), record.longest_gap.max_ns());
        record
    };
    let longest_us = |record: RunRecord| record.longest_gap.max_ns() as f64 / 1e3;
    // As in `one_request_takes_what_its_steps_take`: two tokens after the first, each counted as the mean of both.
    let token_us = |context: f64| 2.0 * (30.5 + 2.0 + 0.01 * context) + (10.0 + 1.0 + 0.01);
    let mean_us = (token_us(257.0) + token_us(258.0)) / 2.0;
    let record = run(PrefillSpec::OnePerStep, vec![request(0, 0, 0, 256, 3)]);
    let gap_us = record.token_gap.mean_ns() / 1e3;
    assert!((gap_us - mean_us).abs() < 0.1, "{gap_us} instead of {mean_us}");

    // While the first generates, another's prompt comes in: as a whole, or in pieces beside its tokens.
    let (first, prompt) = (request(0, 0, 0, 16, 60), request(1, 2_000, 1, 1_024, 2));
    let alone = run(PrefillSpec::OnePerStep, vec![prompt]);
    let prompt_us = alone.first_token.mean_ns() / 1e3;
    let whole_us = longest_us(run(PrefillSpec::OnePerStep, vec![first, prompt]));
    // What the first one's token takes beside it, and to hear of one run and begin the next, is little.
    assert!(
        (prompt_us..1.1 * prompt_us).contains(&whole_us),
        "{whole_us}, a prompt takes {prompt_us}"
    );
    let pieces_us = longest_us(run(PrefillSpec::Chunked { max_tokens: 65 }, vec![first, prompt]));
    assert!(pieces_us < whole_us / 3.0, "{pieces_us} of {whole_us}");
}

/// Steps take longer as contexts grow; of each thirty-two the mean is counted, however long nobody disturbs them.
#[test]
fn a_long_run_s_last_gaps_are_longer_than_its_first() {
    let system = system(GenerationSpec {
        lora: None,
        ..generation()
    });
    let (record, _) = simulate(&system, 1, 200, Jitter::None, vec![request(0, 0, 0, 256, 1_000)], false);
    let token_us = |context: f64| 2.0 * (30.5 + 2.0 + 0.01 * context) + (10.0 + 1.0 + 0.01);
    // The second token reads 257 tokens, and the thousandth 1,255; the first part has 31 steps, and the last the eight
    // after the 992nd.
    let (least_us, most_us) = (token_us(257.0 + 15.0), token_us(1_255.0 - 3.5));
    let of = |ns: u64| ns as f64 / 1e3;
    let (first_us, last_us) = (of(record.token_gap.quantile_ns(0.001)), of(record.token_gap.max_ns()));
    assert!((first_us / least_us - 1.0).abs() < 0.01, "{first_us}, not {least_us}");
    assert!((last_us / most_us - 1.0).abs() < 0.001, "{last_us}, not {most_us}");
}

/// Who waits for others to end waits for no token.
#[test]
fn steps_after_a_request_s_last_are_no_gaps_of_its() {
    let system = system(GenerationSpec {
        lora: None,
        join: JoinSpec::HeadRunStatic,
        ..generation()
    });
    let longest = |others: u32| {
        let entries = vec![request(0, 0, 0, 16, 10), request(1, 0, 0, 16, others)];
        let (record, _) = simulate(&system, 1, 200, Jitter::None, entries, false);
        assert_eq!(record.token_gap.count(), record.output_tokens - record.served);
        [record.longest_gap.quantile_ns(0.0), record.longest_gap.max_ns()]
    };
    let (alike, beside) = (longest(10), longest(900));
    assert!(beside[1] as f64 > 1.1 * alike[1] as f64, "{beside:?} {alike:?}");
    // It makes its tokens in the first ten of thirty-two steps that are taken to be alike.
    assert!(
        (beside[0] as f64 / alike[0] as f64 - 1.0).abs() < 0.01,
        "{beside:?} {alike:?}"
    );
}

#[test]
fn the_time_away_from_a_card_is_a_gap() {
    let system = system(GenerationSpec {
        lora: None,
        ..generation()
    });
    // As in `who_runs_out_of_pages_is_computed_again`: the second leaves, and comes back when the first has ended.
    let entries = vec![request(0, 0, 0, 30, 60), request(1, 10, 1, 30, 60)];
    let (record, _) = simulate(&system, 1, 9, Jitter::None, entries, false);
    assert_eq!(record.generation.expect("it generates").evictions, 1);
    assert_eq!(record.token_gap.count(), 2 * 59);
    let (longest, others) = (record.longest_gap.max_ns(), record.token_gap.quantile_ns(0.98));
    assert!(longest > 5 * others, "{longest} ns away, {others} ns between others");
}
