//! All that a trace of requests says of its workload: when requests come, how long they are, and who asks.
//!
//! Fitted to the first half in time and checked against the second, so that what changes from one half to the other is
//! seen.

use std::collections::BTreeMap;

use tenantry_reports::trace::{Collector, Trace};
use tenantry_traces::describe::MAX_SECONDS;
use tenantry_traces::fit::mmpp::Arrivals;
use tenantry_traces::read::Format;
use tenantry_traces::{Lengths, Time};

use super::generators::nearest;
use super::rates::{AIMS, Seconds, check_s, mean};
use super::{Fitted, Keys, generate, lengths, popularity, too_few};
use crate::cli::TraceFitArgs;
use crate::commands::trace::source::{self, Watchdog};
use crate::failure::Failure;

/// Requests that the check generates at most: each has a tenant and lengths.
const GENERATED: f64 = 2e7;

pub fn requests(args: &TraceFitArgs, format: Format, watchdog: &mut Watchdog) -> Result<Fitted, Failure> {
    popularity::check_tenants(args)?;
    if !format.has_arrivals() {
        return Err(Failure::BadInput(format!(
            "{}: must say when each request comes, got {}, which does not; other kinds fit what it says",
            args.file.display(),
            format.name()
        )));
    }
    let recording = Recording::read(args, watchdog)?;
    let seconds = Seconds::without_holes(args, &recording.counts()?)?;
    let [seen_counts, unseen_counts] = seconds.halves(args)?;
    let [mut seen, mut unseen] = recording.halves(seconds.middle());

    let instants = seconds.instants(recording.instants_before(seconds.middle()));
    let nearest = nearest(args, seen_counts, Arrivals::Instants(&instants), watchdog)?;
    let mut notes = vec![
        seconds.holes.clone(),
        nearest.note(seen_counts),
        format!(
            "checked against the second half in time ({} s, {} requests) at its mean rate and with as many tenants, \
             which is all that was taken from that half",
            unseen_counts.len(),
            unseen.requests
        ),
        AIMS.to_owned(),
        nearest.generator.seen_note(),
    ];
    let mut of_lengths: Keys = Vec::new();
    let told = [seen.lengths.len(), unseen.lengths.len()];
    if told.iter().all(|&told| told >= lengths::LEAST) {
        for half in [&seen, &unseen] {
            lengths::check_longest(args, &half.lengths)?;
        }
        let left_out = seen.unanswered + unseen.unanswered;
        if left_out > 0 {
            notes.push(format!(
                "{left_out} requests of {} have no output, as those that fail: their lengths are left out, and they \
                 count as arrivals",
                left_out + told[0] + told[1]
            ));
        }
        let (key, bins) = lengths::key_of(&seen.lengths);
        of_lengths.push(key);
        notes.extend(bins);
    } else {
        notes.push(format!(
            "lengths are not fitted: {} requests of the first half and {} of the second say theirs, of at least {} \
             each",
            told[0],
            told[1],
            lengths::LEAST
        ));
        (seen.lengths, unseen.lengths) = (Vec::new(), Vec::new());
    }
    let says_who = seen.tenants.len().min(unseen.tenants.len()) >= popularity::LEAST;
    if says_who {
        let drawn = "who asks is drawn for each request by itself: bursts and silences of single tenants are not \
                     fitted (`tenants.presence` makes some)";
        notes.push(drawn.to_owned());
    } else {
        let few = format!(
            "{} tenants ask in the first half and {} in the second, of at least {} each",
            seen.tenants.len(),
            unseen.tenants.len(),
            popularity::LEAST
        );
        if let Some(tenants) = args.tenants {
            let message = format!("--tenants: must be left out where {few}, got {tenants}");
            return Err(Failure::BadInput(message));
        }
        notes.push(format!("tenants are not fitted: {few}"));
        (seen.tenants, unseen.tenants) = (BTreeMap::new(), BTreeMap::new());
    }
    notes.extend(recording.notes(args, format));

    let keys = |counts: &[u32], tenants: u32| -> Keys {
        let arrivals = ("workload.arrivals", nearest.generator.arrivals(mean(counts)));
        let popularity = says_who.then(|| popularity::keys_of(&seen.totals(), tenants));
        [arrivals]
            .into_iter()
            .chain(of_lengths.clone())
            .chain(popularity.into_iter().flatten())
            .collect()
    };
    let checked = keys(unseen_counts, unseen.tenants.len() as u32);
    let all_tenants = recording.tenants();
    let with_weights = all_tenants.min(popularity::WEIGHTS_MAX as usize);
    if says_who && args.tenants.is_none() && with_weights < all_tenants {
        notes.push(format!(
            "{all_tenants} tenants ask, and weights are printed for {with_weights}"
        ));
    }
    let tenants = args.tenants.map_or(with_weights as u32, std::num::NonZeroU32::get);
    Ok(Fitted {
        generated: generate(args, &checked, check_s(unseen_counts, GENERATED), watchdog)?,
        real: unseen.trace(unseen_counts, "real, unseen", (format, recording.skipped))?,
        // What differs from one half to the other is to be seen, and not to be allowed for.
        seen: None,
        keys: keys(&seconds.counts, tenants),
        notes,
    })
}

/// What is kept of each request.
struct Asked {
    arrival: Time,
    tenant: Option<u32>,
    lengths: Option<Lengths>,
}

/// A trace of requests, in order of time.
struct Recording {
    requests: Vec<Asked>,
    unanswered: u64,
    /// Whether any is of another class than the first.
    has_classes: bool,
    skipped: u64,
}

impl Recording {
    fn read(args: &TraceFitArgs, watchdog: &mut Watchdog) -> Result<Recording, Failure> {
        let mut records = source::records(&args.file, &args.read)?;
        let (mut requests, mut unanswered, mut has_classes) = (Vec::new(), 0, false);
        for record in records.by_ref() {
            watchdog.check()?;
            let record = record.map_err(Failure::bad_input)?;
            if record.is_unanswered() {
                unanswered += 1;
                continue;
            }
            has_classes |= record.class.is_some_and(|class| class > 0);
            let lengths = record.input_tokens.zip(record.output_tokens);
            requests.push(Asked {
                arrival: record.arrival.expect("a format with arrivals has one in each row"),
                tenant: record.tenant,
                lengths: lengths.map(|(input, output)| Lengths { input, output }),
            });
        }
        requests.sort_by_key(|asked| asked.arrival);
        if requests.is_empty() {
            return Err(too_few(args, "request", 1, 0));
        }
        Ok(Recording {
            requests,
            unanswered,
            has_classes,
            skipped: records.skipped(),
        })
    }

    /// The second of the recording's clock that it begins in.
    fn begins_s(&self) -> u64 {
        self.requests[0].arrival.0 / 1_000_000_000
    }

    fn second(&self, asked: &Asked) -> usize {
        (asked.arrival.0 / 1_000_000_000 - self.begins_s()) as usize
    }

    /// When requests before second `middle` came, from the second on that it begins in.
    fn instants_before(&self, middle: usize) -> impl Iterator<Item = Time> {
        let begins_ns = self.begins_s() * 1_000_000_000;
        self.requests
            .iter()
            .take_while(move |asked| self.second(asked) < middle)
            .map(move |asked| Time(asked.arrival.0 - begins_ns))
    }

    /// Requests in each second, without the last, which the last request cuts off; the first counts as a whole one.
    fn counts(&self) -> Result<Vec<u32>, Failure> {
        let last = self.requests.last().map_or(0, |last| self.second(last));
        if last as u64 > MAX_SECONDS {
            return Err(Failure::BadInput(format!(
                "arrival: must be within two years of the others, got {last} s after the first"
            )));
        }
        let mut counts = vec![0; last];
        for asked in &self.requests {
            if let Some(count) = counts.get_mut(self.second(asked)) {
                *count += 1;
            }
        }
        Ok(counts)
    }

    /// Before second `middle`, and from it on, without the last second.
    fn halves(&self, middle: usize) -> [Half; 2] {
        let of = |requests: &[Asked]| {
            let mut tenants: BTreeMap<u32, u32> = BTreeMap::new();
            for tenant in requests.iter().filter_map(|asked| asked.tenant) {
                *tenants.entry(tenant).or_default() += 1;
            }
            let mut lengths: Vec<Lengths> = requests.iter().filter_map(|asked| asked.lengths).collect();
            let all = lengths.len();
            if lengths.iter().any(|pair| pair.output > 0) {
                lengths.retain(|pair| pair.output > 0);
            }
            Half {
                unanswered: all - lengths.len(),
                requests: requests.len(),
                lengths,
                tenants,
            }
        };
        let last = self.requests.last().map_or(0, |last| self.second(last));
        let before = |second: usize| self.requests.partition_point(|asked| self.second(asked) < second);
        let (middle, end) = (before(middle), before(last));
        [of(&self.requests[..middle]), of(&self.requests[middle..end])]
    }

    fn tenants(&self) -> usize {
        let who: std::collections::BTreeSet<u32> = self.requests.iter().filter_map(|asked| asked.tenant).collect();
        who.len()
    }

    /// What is left out.
    fn notes(&self, args: &TraceFitArgs, format: Format) -> Vec<String> {
        let unanswered = (self.unanswered > 0).then(|| {
            let all = self.unanswered + self.requests.len() as u64;
            format!("{} requests of {all} got no answer: they are left out", self.unanswered)
        });
        let classes = self
            .has_classes
            .then(|| "service classes are not fitted: `tenants.classes` gives tenants some by share".to_owned());
        let approximation = source::approximation(format, &args.read).map(str::to_owned);
        [unanswered, classes, approximation].into_iter().flatten().collect()
    }
}

/// One half of it.
struct Half {
    requests: usize,
    /// Of those that say theirs, and, where any is, are answered.
    lengths: Vec<Lengths>,
    /// Those that say theirs and are not.
    unanswered: usize,
    /// Who asks how often.
    tenants: BTreeMap<u32, u32>,
}

impl Half {
    fn totals(&self) -> Vec<f64> {
        self.tenants.values().map(|&requests| f64::from(requests)).collect()
    }

    /// As a trace, whose seconds have these counts.
    fn trace(&self, counts: &[u32], name: &str, (format, skipped): (Format, u64)) -> Result<Trace, Failure> {
        let mut collector = Collector::new(1);
        for (second, &count) in (0..).zip(counts) {
            collector.window(second, count).map_err(Failure::bad_input)?;
        }
        for &pair in &self.lengths {
            collector.record(&lengths::alone(pair)).map_err(Failure::running)?;
        }
        for (tenant, &requests) in (0..).zip(self.tenants.values()) {
            collector.tenant(tenant, requests);
        }
        let mut trace = collector.finish(name, format.name(), skipped);
        trace.figures.requests = self.requests as u64;
        Ok(trace)
    }
}
