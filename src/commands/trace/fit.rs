//! `tenantry trace fit`: a generator fitted to one part of a recording and checked against the other.
//!
//! What is checked is what is printed: the fitted numbers are written as a scenario's keys, those keys make the generated requests,
//! and these are set beside the part that the fit did not see.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tenantry_reports::page::{Fit, TracePage};
use tenantry_reports::trace::{Collector, Comparison, Trace, table};
use tenantry_reports::whole::write_whole;
use tenantry_scenarios::scalar::Period;
use tenantry_traces::fit::quantiles::{self, LENGTH_PROBABILITIES, LengthKnot, fit_lengths};
use tenantry_traces::fit::{azure_functions, sharegpt, twitter};
use tenantry_traces::read::{Counts, Format, activity};
use tenantry_traces::{Entry, Lengths, build};

use super::source::{self, Watchdog};
use super::workload;
use crate::cli::{FitKind, OutputArgs, TraceFitArgs};
use crate::failure::Failure;
use crate::output::{Started, print, say, style, to_stdout, write_in_folder};

/// Keys of a scenario: a dotted path and a value.
type Keys = Vec<(&'static str, Value)>;

/// A generator and what it was checked against.
struct Fitted {
    keys: Keys,
    /// What it is checked against: the part that the fit did not see.
    real: Trace,
    generated: Trace,
    /// The part that was fitted, where its own distance from the other is to be allowed for.
    seen: Option<Trace>,
    /// What was fitted to what.
    notes: Vec<String>,
}

pub fn run(args: &TraceFitArgs, output: &OutputArgs) -> Result<(), Failure> {
    let started = Started::now();
    let mut watchdog = Watchdog::new();
    let format = source::format(&args.file, &args.read)?;
    for (flag, out) in [("--out", &args.out), ("--report", &args.report)] {
        if { out.as_ref() }.is_some_and(|out| source::is_one_file(&args.file, out)) {
            let message = format!(
                "{flag}: must be another file than the one that is fitted, got {}",
                args.file.display()
            );
            return Err(Failure::BadInput(message));
        }
    }
    let is_rates = args.kind == FitKind::Twitter && format == Format::Counts;
    if let (Some(tenants), true) = (args.tenants, args.kind != FitKind::AzureFunctions) {
        let message = format!("--tenants: must be left out but for azure-functions, got {tenants}");
        return Err(Failure::BadInput(message));
    }
    if let (Some(hole), false) = (&args.drop_zeros_from, is_rates) {
        let must_be = "must be left out but for twitter of per-second counts";
        return Err(Failure::BadInput(format!("--drop-zeros-from: {must_be}, got {hole}")));
    }
    let fitted = match args.kind {
        FitKind::Twitter if is_rates => rates(args, &mut watchdog)?,
        FitKind::Twitter | FitKind::Sharegpt => lengths(args, &mut watchdog)?,
        FitKind::AzureFunctions => popularity(args, format, &mut watchdog)?,
    };
    let yaml = yaml(&args.file.display().to_string(), &fitted)?;
    let generated = fitted.generated.restricted_to(&fitted.real);
    let traces = [fitted.real, generated];
    let comparison = Comparison::new(&traces[0], &traces[1], fitted.seen.as_ref());
    if let Some(path) = &args.report {
        let page = TracePage {
            title: &format!("{} fitted to {}", args.kind.name(), args.file.display()),
            traces: &traces,
            fit: Some(Fit {
                comparison: &comparison,
                yaml: &yaml,
            }),
            manifest: &started.manifest(&[], None, 0, fitted.notes.clone()),
        };
        let html = page.render().map_err(Failure::running)?;
        write_whole(path, html.as_bytes()).map_err(Failure::running)?;
    }
    if let Some(path) = &args.out {
        write_in_folder(path, &yaml)?;
    }
    let value = json!({
        "kind": args.kind.name(),
        "file": args.file,
        "notes": fitted.notes,
        "real": traces[0].figures,
        "generated": traces[1].figures,
        "comparison": comparison.rows,
        "within_aims": comparison.within(),
        "yaml": yaml,
    });
    match (output.quiet && !output.json, &args.out) {
        // As a script wants it, which has no other way to it.
        (true, None) => to_stdout(yaml.as_bytes())?,
        (true, Some(_)) => {}
        (false, _) => print(output, &value, || {
            let shown = args.out.as_ref().map_or(format!("\n\n{yaml}"), |_| String::new());
            format!("{}\n\n{}{shown}", table(&traces, style()), comparison.table(style()))
        })?,
    }
    for note in &fitted.notes {
        say(output, &format!("note: {note}"));
    }
    if let Some(path) = &args.out {
        say(output, &format!("written: {}", path.display()));
    }
    if let Some(path) = &args.report {
        say(output, &format!("report: {}", path.display()));
    }
    Ok(())
}

fn too_few(args: &TraceFitArgs, what: &str, least: usize, got: usize) -> Failure {
    Failure::BadInput(format!(
        "{}: must have at least {least} {what} to be fitted and checked, got {got}",
        args.file.display()
    ))
}

/// Every second one from the first on to fit, and from the second on to check.
fn every_second<T: Copy>(all: &[T]) -> [Vec<T>; 2] {
    [0, 1].map(|from| all.iter().skip(from).step_by(2).copied().collect())
}

/// What is said where a recording's instants are left aside: `fit` knows rates from per-second counts alone.
fn arrivals_are_not_fitted(format: Format) -> Option<String> {
    format.has_arrivals().then(|| {
        "arrivals are not fitted to a trace of requests: replay them (`workload.arrivals: { trace: { path: … } }`), or fit `twitter` to a CSV of \
         requests in each second (`second,requests`)"
            .to_owned()
    })
}

/// Requests that are generated for a check: enough that chance plays no part beside the recording's own.
const GENERATED: u64 = 1_000_000;

/// Generates what `keys` say until `stop`.
fn generate(args: &TraceFitArgs, keys: &Keys, stop: Value, watchdog: &mut Watchdog) -> Result<Trace, Failure> {
    let mut overrides: Vec<String> = keys.iter().map(|(path, value)| format!("{path}={value}")).collect();
    overrides.push(format!("workload.stop={stop}"));
    overrides.push(format!("seed={}", args.seed));
    let mut workload = build(&workload::of_overrides(&overrides)?).map_err(Failure::running)?;
    let mut collector = Collector::new(1);
    while let Some(entry) = workload.next().map_err(Failure::running)? {
        watchdog.check()?;
        if let Entry::Request(request) = entry {
            collector.request(&request).map_err(Failure::running)?;
        }
    }
    Ok(collector.finish("generated", "fitted", 0))
}

/// Lengths as points of their distribution functions, outputs by how long the input is.
fn lengths(args: &TraceFitArgs, watchdog: &mut Watchdog) -> Result<Fitted, Failure> {
    const LEAST: usize = 100;
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
    let keys: Keys = if seen.iter().any(|pair| pair.output > 0) {
        let joint = sharegpt::fit(&seen);
        let bins = joint
            .output_by_input
            .iter()
            .map(|bin| json!({ "longest_input": bin.longest_input, "output": points(&bin.output) }));
        let bins: Vec<Value> = bins.collect();
        notes.push(format!(
            "outputs depend on inputs, in {} bins of equally many requests",
            bins.len()
        ));
        let joint = json!({ "bins": { "input": points(&joint.input), "output_by_input": bins } });
        vec![("workload.lengths", json!({ "joint": joint }))]
    } else {
        let inputs: Vec<u32> = seen.iter().map(|pair| pair.input).collect();
        let inputs = points(&fit_lengths(&inputs, &LENGTH_PROBABILITIES));
        vec![("workload.lengths.input", json!({ "quantiles": inputs }))]
    };
    notes.extend(source::approximation(records.format(), &args.read).map(str::to_owned));
    notes.extend(arrivals_are_not_fitted(records.format()));
    let mut real = Collector::new(1);
    for Lengths { input, output } in unseen {
        let record = tenantry_traces::read::Record {
            input_tokens: Some(input),
            output_tokens: Some(output),
            ..Default::default()
        };
        real.record(&record).map_err(Failure::running)?;
    }
    Ok(Fitted {
        generated: generate(args, &keys, json!({ "requests": GENERATED }), watchdog)?,
        real: real.finish("real, unseen", records.format().name(), records.skipped()),
        seen: None,
        keys,
        notes,
    })
}

/// Knots as the scenario has them: a length stands for what rounds to it.
fn points(knots: &[LengthKnot]) -> Vec<Value> {
    quantiles::points(knots)
        .iter()
        .map(|point| json!({ "share": point.probability, "tokens": point.tokens }))
        .collect()
}

/// Requests that a check of rates generates at most, so that it takes seconds.
const RATES_GENERATED: f64 = 1e8;
/// How much longer than the recording it is otherwise: what is generated is then off by chance by a quarter of what the recording is.
const TIMES_AS_LONG: f64 = 20.0;

/// Rates: of the generators that a scenario has, the one that is nearest to the part that is fitted.
fn rates(args: &TraceFitArgs, watchdog: &mut Watchdog) -> Result<Fitted, Failure> {
    const LEAST: usize = 1200;
    let SecondCounts { counts, holes, skipped } = counts(args)?;
    if counts.len() < LEAST {
        return Err(too_few(args, "seconds with counts", LEAST, counts.len()));
    }
    let (seen, unseen) = counts.split_at(counts.len() / 2);
    let mean = |counts: &[u32]| counts.iter().map(|&n| f64::from(n)).sum::<f64>() / counts.len() as f64;
    let (seen_mean, unseen_mean) = (mean(seen), mean(unseen));
    if seen_mean == 0.0 || unseen_mean == 0.0 {
        return Err(too_few(args, "requests in each half", 1, 0));
    }
    let trace = |counts: &[u32], name: &str| -> Result<Trace, Failure> {
        let mut collector = Collector::new(1);
        for (second, &count) in counts.iter().enumerate() {
            collector.window(second as u64, count).map_err(Failure::bad_input)?;
        }
        Ok(collector.finish(name, "counts", 0))
    };
    let rate = |rate: f64| format!("{rate:.6}/s");
    let regimes = twitter::fit_rates(seen);
    let candidate = |mean: f64, name: &str| match name {
        "poisson" => Some(json!({ "poisson": { "rate": rate(mean) } })),
        "twitter" => Some(json!({ "twitter": { "rate": rate(mean) } })),
        "regimes" => regimes.as_ref().map(|regimes| own_regimes(regimes, rate(mean))),
        _ => {
            let regimes = regimes.as_ref()?;
            let scale = mean / regimes.mean_rate_per_s();
            let state = |rates: &[quantiles::Knot], dwell_s: &[quantiles::Knot]| {
                let dwell = format!("{:.3}s", quantiles::mean(dwell_s));
                json!({ "rate": rate(scale * quantiles::mean(rates)), "mean_dwell": dwell })
            };
            let states = [
                state(&regimes.calm_rate, &regimes.calm_s),
                state(&regimes.plateau_rate, &regimes.plateau_s),
            ];
            Some(json!({ "mmpp": { "states": states } }))
        }
    };
    // Chosen by the part that is fitted; the other part only judges.
    let seen_trace = trace(seen, "real, seen")?;
    let mut best: Option<(f64, &str)> = None;
    for name in ["poisson", "mmpp", "regimes", "twitter"] {
        let Some(arrivals) = candidate(seen_mean, name) else {
            continue;
        };
        let seconds = (TIMES_AS_LONG * seen.len() as f64)
            .min(RATES_GENERATED / 5.0 / seen_mean)
            .ceil();
        let generated = generate(args, &vec![("workload.arrivals", arrivals)], after(seconds), watchdog)?;
        let distance = distance(&seen_trace, &generated);
        if best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, name));
        }
    }
    let (_, name) = best.expect("a Poisson process can always be had");
    // Rates of two halves differ, and a generator is scaled to the rate that is wanted: the shape is what is checked.
    let checked = vec![(
        "workload.arrivals",
        candidate(unseen_mean, name).expect("it could be had before"),
    )];
    let seconds = (TIMES_AS_LONG * unseen.len() as f64)
        .min(RATES_GENERATED / unseen_mean)
        .ceil();
    // The sample stream's own numbers are not of this file: whether they have seen it, only the user can know.
    let shipped = name == "twitter";
    let mut real = trace(unseen, if shipped { "real, second half" } else { "real, unseen" })?;
    real.figures.skipped_lines = (skipped > 0).then_some(skipped);
    Ok(Fitted {
        generated: generate(args, &checked, after(seconds), watchdog)?,
        real,
        seen: None,
        keys: vec![(
            "workload.arrivals",
            candidate(mean(&counts), name).expect("it could be had before"),
        )],
        notes: vec![
            holes,
            format!(
                "`{name}` is the nearest to the first half ({} s) of poisson, mmpp, regimes and twitter",
                seen.len()
            ),
            format!(
                "checked against the second half ({} s) at its mean rate, which is all that was taken from that half",
                unseen.len()
            ),
            "the aims allow for what the second half is off by chance, by how many of its windows are independent; where these are fewer than 30, there is no telling"
                .to_owned(),
            match shipped {
                true => "`twitter` was not fitted to this file but to the first eleven days of the sample stream's 2021-08; of a \
                         recording that these days are in, or a part of, it has seen the second half too"
                    .to_owned(),
                false => format!("`{name}` is fitted to the first half alone"),
            },
        ],
    })
}

/// The pattern of the recording itself.
fn own_regimes(regimes: &twitter::Regimes, rate: String) -> Value {
    let seconds = |seconds: f64| format!("{seconds:.3}s");
    let regime = |lasts: &[quantiles::Knot], rates: &[quantiles::Knot], memory_s: f64| {
        let lasts = lasts
            .iter()
            .map(|knot| json!({ "share": knot.0, "time": seconds(knot.1) }));
        let rates = rates
            .iter()
            .map(|knot| json!({ "share": knot.0, "rate": format!("{}/s", knot.1) }));
        json!({
            "lasts": lasts.collect::<Vec<_>>(),
            "rates": rates.collect::<Vec<_>>(),
            "memory": seconds(memory_s.max(0.001)),
        })
    };
    json!({ "regimes": {
        "rate": rate,
        "calm": regime(&regimes.calm_s, &regimes.calm_rate, regimes.calm_memory_s),
        "plateau": regime(&regimes.plateau_s, &regimes.plateau_rate, regimes.plateau_memory_s),
    } })
}

fn after(seconds: f64) -> Value {
    json!({ "after": format!("{seconds}s") })
}

/// How far a generator is off: the distance of the rates' distributions, and by what factor dispersion is missed.
fn distance(real: &Trace, generated: &Trace) -> f64 {
    let histogram = |trace: &Trace| trace.curves.counts.iter().copied().collect();
    let real_rates: tenantry_traces::describe::Histogram = histogram(real);
    let rates = real_rates.distance(&histogram(generated)).unwrap_or(1.0);
    let dispersions = real.figures.dispersion.iter().map(|(window, real)| {
        let generated = generated.figures.dispersion.get(window).copied().unwrap_or(0.0);
        (generated / real).ln().abs().min(3.0)
    });
    rates + dispersions.sum::<f64>() / 3.0
}

/// Per-second counts.
struct SecondCounts {
    /// Without the recording's holes.
    counts: Vec<u32>,
    /// What became of stretches without a request.
    holes: String,
    /// Broken lines that were left out.
    skipped: u64,
}

/// What is a hole of a recording where nothing else is said.
const HOLE: &str = "1min";

fn counts(args: &TraceFitArgs) -> Result<SecondCounts, Failure> {
    let hole = args.drop_zeros_from.as_deref().unwrap_or(HOLE);
    let period: Period = serde_yaml::from_str(hole)
        .map_err(|_| Failure::BadInput(format!("--drop-zeros-from: must be {}, got {hole}", Period::MUST)))?;
    let hole_s = period.0.as_secs_f64().ceil() as usize;
    let mut recorded = Counts::open(&args.file, args.read.skip_bad_lines).map_err(Failure::bad_input)?;
    let all: Vec<u32> = recorded
        .by_ref()
        .collect::<Result<_, _>>()
        .map_err(Failure::bad_input)?;
    let skipped = recorded.skipped();
    let runs = || all.chunk_by(|a, b| (*a == 0) == (*b == 0));
    let is_hole = |run: &&[u32]| run[0] == 0 && run.len() >= hole_s;
    let holes_s: usize = runs().filter(is_hole).map(<[u32]>::len).sum();
    // How many such stretches follow on seconds with requests where these come at random, at the rate that is left.
    let requests: f64 = all.iter().map(|&count| f64::from(count)).sum();
    let rate = requests / (all.len() - holes_s).max(1) as f64;
    let asked = all.iter().filter(|&&count| count > 0).count() as f64;
    let expected = asked * (-rate * hole_s as f64).exp();
    if holes_s > 0 && expected >= 0.5 && args.drop_zeros_from.is_none() {
        return Ok(SecondCounts {
            counts: all,
            holes: format!(
                "stretches of {hole} and more without a request count as silence, since so low a rate has some; --drop-zeros-from takes them for holes"
            ),
            skipped,
        });
    }
    Ok(SecondCounts {
        holes: match holes_s {
            0 => "no stretch without requests was taken for a hole of the recording".to_owned(),
            seconds => format!(
                "{seconds} s in stretches of {hole} and more without a request are taken for holes of the recording and left out; with a longer --drop-zeros-from \
                 they count as silence"
            ),
        },
        counts: runs().filter(|run| !is_hole(run)).flatten().copied().collect(),
        skipped,
    })
}

/// Weights that are printed at most: they take ten megabytes.
const WEIGHTS_MAX: u32 = 1_000_000;

/// Popularity: how unevenly tenants ask.
fn popularity(args: &TraceFitArgs, format: Format, watchdog: &mut Watchdog) -> Result<Fitted, Failure> {
    const LEAST: usize = 20;
    if let Some(tenants) = args.tenants.filter(|tenants| tenants.get() > WEIGHTS_MAX) {
        return Err(Failure::BadInput(format!(
            "--tenants: must be 1 to {WEIGHTS_MAX}, since each has a weight in the text that is printed, got {tenants}"
        )));
    }
    let (totals, skipped) = totals(args, format, watchdog)?;
    if totals.len() < LEAST {
        return Err(too_few(args, "tenants", LEAST, totals.len()));
    }
    let [seen, unseen] = azure_functions::halves(&totals);
    let knots = azure_functions::fit(&seen);
    let keys = |tenants: u32| -> Keys {
        let weights = azure_functions::weights_of(&knots, tenants);
        let total: f64 = weights.iter().sum();
        let share = |weight: &f64| -> f64 { format!("{:.5e}", weight / total).parse().expect("a float") };
        vec![
            ("tenants.count", json!(tenants)),
            (
                "tenants.popularity",
                json!({ "weights": weights.iter().map(share).collect::<Vec<_>>() }),
            ),
        ]
    };
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
    let generated = generate(args, &keys(unseen.len() as u32), stop, watchdog)?;
    let tenants = args.tenants.map_or(totals.len() as u32, std::num::NonZeroU32::get);
    Ok(Fitted {
        keys: keys(tenants),
        real: trace(&unseen, "real, unseen"),
        generated,
        seen: Some(trace(&seen, "real, seen")),
        notes: [
            format!(
                "fitted to a half of the tenants ({}), dealt out by how often they ask, and checked against the others ({}); weights for \
                 {tenants} tenants, --tenants makes them for another number",
                seen.len(),
                unseen.len()
            ),
            "the aims allow for how far these halves are apart by themselves, since a few tenants may be a good part of all requests"
                .to_owned(),
        ]
        .into_iter()
        .chain(arrivals_are_not_fitted(format))
        .collect(),
    })
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

/// The keys, nested as a scenario has them.
fn yaml(file: &str, fitted: &Fitted) -> Result<String, Failure> {
    let mut nested = json!({});
    for (path, value) in &fitted.keys {
        let at = path.split('.').fold(&mut nested, |at, step| &mut at[step]);
        *at = value.clone();
    }
    let keys = serde_yaml::to_string(&nested).map_err(Failure::running)?;
    // A name may have a line end in it.
    let file = file.replace(char::is_control, " ");
    Ok(format!(
        "# For a scenario; fitted to {file} by `tenantry trace fit`.\n{keys}"
    ))
}

impl FitKind {
    fn name(self) -> &'static str {
        match self {
            FitKind::Twitter => "twitter",
            FitKind::Sharegpt => "sharegpt",
            FitKind::AzureFunctions => "azure-functions",
        }
    }
}
