//! Popularity: how unevenly tenants ask.

use std::collections::BTreeMap;

use serde_json::json;
use tenantry_reports::trace::Collector;
use tenantry_traces::fit::azure_functions;
use tenantry_traces::read::{Format, activity};

use super::{Fitted, GENERATED, Keys, arrivals_are_not_fitted, generate, too_few};
use crate::cli::TraceFitArgs;
use crate::commands::trace::source::{self, Watchdog};
use crate::failure::Failure;

/// Of fewer tenants their shares say little.
pub const LEAST: usize = 20;

/// Weights that are printed at most: they take ten megabytes.
pub const WEIGHTS_MAX: u32 = 1_000_000;

pub fn popularity(args: &TraceFitArgs, format: Format, watchdog: &mut Watchdog) -> Result<Fitted, Failure> {
    check_tenants(args)?;
    let (totals, skipped) = totals(args, format, watchdog)?;
    if totals.len() < LEAST {
        return Err(too_few(args, "tenants", LEAST, totals.len()));
    }
    let [seen, unseen] = azure_functions::halves(&totals);
    let trace = |half: &[f64], name: &str| {
        let mut collector = Collector::new(1);
        for (tenant, &total) in (0..).zip(half) {
            collector.tenant(tenant, total as u32);
        }
        let mut trace = collector.finish(name, format.name(), skipped);
        trace.figures.requests = half.iter().sum::<f64>() as u64;
        trace
    };
    let requests = unseen.iter().sum::<f64>().min(20.0 * GENERATED as f64) as u64;
    let stop = json!({ "requests": requests.max(GENERATED) });
    let generated = generate(args, &keys_of(&seen, unseen.len() as u32), stop, watchdog)?;
    let tenants = args.tenants.map_or(totals.len() as u32, std::num::NonZeroU32::get);
    Ok(Fitted {
        keys: keys_of(&seen, tenants),
        real: trace(&unseen, "real, unseen"),
        generated,
        seen: Some(trace(&seen, "real, seen")),
        notes: [
            format!(
                "fitted to a half of the tenants ({}), dealt out by how often they ask, and checked against the others \
                 ({}); weights for {tenants} tenants, --tenants makes them for another number",
                seen.len(),
                unseen.len()
            ),
            "the aims allow for how far these halves are apart by themselves, since a few tenants may be a good part \
             of all requests"
                .to_owned(),
        ]
        .into_iter()
        .chain(arrivals_are_not_fitted(format))
        .collect(),
    })
}

/// Refuses more tenants than weights can be printed for.
pub fn check_tenants(args: &TraceFitArgs) -> Result<(), Failure> {
    match args.tenants.filter(|tenants| tenants.get() > WEIGHTS_MAX) {
        Some(tenants) => Err(Failure::BadInput(format!(
            "--tenants: must be 1 to {WEIGHTS_MAX}, since each has a weight in the text that is printed, got {tenants}"
        ))),
        None => Ok(()),
    }
}

/// The keys for so many tenants who ask as unevenly as those with these totals.
pub fn keys_of(totals: &[f64], tenants: u32) -> Keys {
    let weights = azure_functions::weights_of(&azure_functions::fit(totals), tenants);
    let total: f64 = weights.iter().sum();
    let share = |weight: &f64| -> f64 { format!("{:.5e}", weight / total).parse().expect("a float") };
    vec![
        ("tenants.count", json!(tenants)),
        (
            "tenants.popularity",
            json!({ "weights": weights.iter().map(share).collect::<Vec<_>>() }),
        ),
    ]
}

/// Requests of each tenant that asked, and how many broken lines were left out.
fn totals(args: &TraceFitArgs, format: Format, watchdog: &mut Watchdog) -> Result<(Vec<f64>, u64), Failure> {
    let mut totals: BTreeMap<u32, f64> = BTreeMap::new();
    let skipped = match format {
        Format::ActivitySparse | Format::ActivityWide => {
            activity::for_each(&args.file, args.read.skip_bad_lines, |cell| {
                *totals.entry(cell.tenant).or_default() += f64::from(cell.requests);
            })
            .map_err(Failure::bad_input)?
            .skipped
        }
        _ => {
            let mut records = source::records(&args.file, &args.read)?;
            for record in records.by_ref() {
                watchdog.check()?;
                let record = record.map_err(Failure::bad_input)?;
                let Some(tenant) = record.tenant else {
                    return Err(Failure::BadInput(format!(
                        "{}: must say whose a request is, got {}, which does not",
                        args.file.display(),
                        format.name()
                    )));
                };
                *totals.entry(tenant).or_default() += 1.0;
            }
            records.skipped()
        }
    };
    Ok((totals.into_values().collect(), skipped))
}
