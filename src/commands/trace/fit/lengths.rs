//! Lengths: points of their distribution functions, outputs by how long the input is.

use serde_json::{Value, json};
use tenantry_reports::trace::Collector;
use tenantry_traces::Lengths;
use tenantry_traces::fit::quantiles::{self, LENGTH_PROBABILITIES, LengthKnot, fit_lengths};
use tenantry_traces::fit::sharegpt;
use tenantry_traces::read::Record;
use tenantry_traces::spec::MAX_TOKENS;

use super::{Fitted, GENERATED, Keys, arrivals_are_not_fitted, generate, too_few};
use crate::cli::TraceFitArgs;
use crate::commands::trace::source::{self, Watchdog};
use crate::failure::Failure;

/// Of fewer requests the lengths say little.
pub const LEAST: usize = 100;

pub fn lengths(args: &TraceFitArgs, watchdog: &mut Watchdog) -> Result<Fitted, Failure> {
    let mut pairs: Vec<Lengths> = Vec::new();
    let mut records = source::records(&args.file, &args.read)?;
    let mut all = 0;
    for record in records.by_ref() {
        watchdog.check()?;
        let record = record.map_err(Failure::bad_input)?;
        all += usize::from(record.input_tokens.is_some());
        if let (Some(input), Some(output)) = (record.input_tokens, record.output_tokens) {
            pairs.push(Lengths { input, output });
        }
    }
    // Where some are answered, who got nothing failed or gave up, and says nothing of how long answers are.
    if pairs.iter().any(|pair| pair.output > 0) {
        pairs.retain(|pair| pair.output > 0);
    }
    if pairs.len() < LEAST {
        return Err(too_few(args, "requests with lengths", LEAST, pairs.len()));
    }
    check_longest(args, &pairs)?;
    let [seen, unseen] = every_second(&pairs);
    let mut notes = vec![format!(
        "fitted to every second request ({}), checked against the others ({})",
        seen.len(),
        unseen.len()
    )];
    if all > pairs.len() {
        notes.push(format!(
            "{} requests of {all} have no output, as those that fail: they are left out",
            all - pairs.len()
        ));
    }
    let (key, bins) = key_of(&seen);
    notes.extend(bins);
    notes.extend(source::approximation(records.format(), &args.read).map(str::to_owned));
    notes.extend(arrivals_are_not_fitted(records.format()));
    let mut real = Collector::new(1);
    for pair in unseen {
        real.record(&alone(pair)).map_err(Failure::running)?;
    }
    let keys: Keys = vec![key];
    Ok(Fitted {
        generated: generate(args, &keys, json!({ "requests": GENERATED }), watchdog)?,
        real: real.finish("real, unseen", records.format().name(), records.skipped()),
        seen: None,
        keys,
        notes,
    })
}

/// Refuses lengths for which no distribution has room, before a key that is made of them is.
pub fn check_longest(args: &TraceFitArgs, pairs: &[Lengths]) -> Result<(), Failure> {
    let longest = pairs.iter().map(|pair| pair.input.max(pair.output)).max();
    match longest.filter(|&tokens| tokens > MAX_TOKENS) {
        None => Ok(()),
        Some(tokens) => Err(Failure::BadInput(format!(
            "{}: must have lengths of at most {MAX_TOKENS} tokens to be fitted, got {tokens}",
            args.file.display()
        ))),
    }
}

/// A request of which only the lengths are told.
pub fn alone(Lengths { input, output }: Lengths) -> Record {
    Record {
        input_tokens: Some(input),
        output_tokens: Some(output),
        ..Record::default()
    }
}

/// The key for lengths like these, and what is to be said of it.
pub fn key_of(seen: &[Lengths]) -> ((&'static str, Value), Option<String>) {
    if seen.iter().all(|pair| pair.output == 0) {
        let inputs: Vec<u32> = seen.iter().map(|pair| pair.input).collect();
        let inputs = points(&fit_lengths(&inputs, &LENGTH_PROBABILITIES));
        return (("workload.lengths.input", json!({ "quantiles": inputs })), None);
    }
    let joint = sharegpt::fit(seen);
    let bins = joint
        .output_by_input
        .iter()
        .map(|bin| json!({ "longest_input": bin.longest_input, "output": points(&bin.output) }));
    let bins: Vec<Value> = bins.collect();
    let note = format!(
        "outputs depend on inputs, in {} bins of equally many requests",
        bins.len()
    );
    let joint = json!({ "bins": { "input": points(&joint.input), "output_by_input": bins } });
    (("workload.lengths", json!({ "joint": joint })), Some(note))
}

/// Every second one from the first on to fit, and from the second on to check.
fn every_second<T: Copy>(all: &[T]) -> [Vec<T>; 2] {
    [0, 1].map(|from| all.iter().skip(from).step_by(2).copied().collect())
}

/// Knots as the scenario has them: a length stands for what rounds to it.
fn points(knots: &[LengthKnot]) -> Vec<Value> {
    quantiles::points(knots)
        .iter()
        .map(|point| json!({ "share": point.probability, "tokens": point.tokens }))
        .collect()
}
