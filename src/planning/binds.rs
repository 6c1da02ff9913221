//! What keeps an answer from being better.

use std::collections::BTreeMap;

use tenantry_reports::plan::Binds;
use tenantry_reports::summary::LaneSummary;
use tenantry_reports::tasks::TASK_OUT_OF_MEMORY;
use tenantry_reports::{RunSummary, human};

/// What the reasons begin with for which options are given up, and how the one ends that is the cards' memory.
pub const GIVEN_UP: &str = "given up: ";
pub const FIND_NO_MEMORY: &str = "tasks find no memory";

/// From this share on a kind of lane is at its limit: queues in front of it grow faster than it falls.
const BUSY: f64 = 0.7;
/// From these shares on of memory in use, and of the latency that is waiting, memory is what is waited for.
const CACHE_FULL: f64 = 0.95;
const WAITING: f64 = 0.2;

/// What a run was short of; `at` says which run it was, `of_the_time` in which part of it its lanes are so busy, and
/// `missed` whether its requests missed the target: a decoder's compute is at its limit where it is, or others wait to
/// be let in. `turns`: an instance copies or computes.
pub fn binds(summary: &RunSummary, at: &str, of_the_time: &str, missed: bool, turns: bool) -> Binds {
    let mut shares: BTreeMap<String, f64> = BTreeMap::new();
    for (lane, of) in &summary.lanes {
        let share = shares.entry(kind(lane).to_owned()).or_default();
        *share = of.busy_share.max(*share);
    }
    // For what is created and updated on the disk no request waits; for adapters of decoders' tenants on it some do.
    let is_waited_for = |kind: &str| kind != "host-disk" || summary.generation.is_some();
    let busiest_of = |counts: &dyn Fn(&str) -> bool| {
        let lanes = shares.iter().filter(|(kind, _)| counts(kind) && is_waited_for(kind));
        let busiest = lanes.max_by(|a, b| a.1.total_cmp(b.1));
        busiest.map(|(kind, share)| (kind.clone(), *share))
    };
    let at_limit = |busiest: Option<(String, f64)>| busiest.filter(|(_, share)| *share >= BUSY);
    // A decoder's compute is busy whenever anybody is inside: another lane that is busy tells more.
    let tells = |kind: &str| summary.generation.is_none() || kind != "compute";
    let excused = !missed && is_let_in_at_once(summary);
    let busiest = busiest_of(&|_| true);
    let at_its_limit = at_limit(busiest_of(&tells)).or_else(|| at_limit(busiest.clone()).filter(|_| !excused));
    let in_turns = turns.then(|| in_turns(summary)).flatten();
    let in_turns = in_turns.filter(|(_, share)| *share >= BUSY && at_its_limit.is_none());
    if let Some(memory) = summary.gpu_memory_bytes {
        shares.insert("memory".to_owned(), memory.peak as f64 / memory.capacity as f64);
    }
    let for_parameters = || waits_for_parameters(summary).filter(|_| at_its_limit.is_none() && in_turns.is_none());
    let (what, sentence) = if let Some(why) = short_of_memory(summary).or_else(for_parameters) {
        ("memory".to_owned(), format!("the cards' memory: {at}, {why}."))
    } else if let Some((kind, share)) = in_turns {
        let sentence = format!(
            "the link to the card and compute, which take turns: {at}, one of them is busy {} {of_the_time}{}.",
            human::percent(share),
            brought_in_again(summary).unwrap_or_default()
        );
        (kind.to_owned(), sentence)
    } else {
        match at_its_limit {
            Some((kind, share)) => {
                let again = match kind.as_str() {
                    "link" => brought_in_again(summary).unwrap_or_default(),
                    _ => String::new(),
                };
                let sentence = format!(
                    "{}: {at}, it is busy {} {of_the_time}{again}.",
                    in_words(&kind),
                    human::percent(share)
                );
                (kind, sentence)
            }
            None => {
                let busiest = busiest.map_or(String::new(), |(kind, share)| {
                    let inside = summary.generation.filter(|_| kind == "compute" && share >= BUSY);
                    let inside = inside.map_or(String::new(), |_| {
                        let several = human::number(summary.in_flight_mean);
                        format!(", as it is while anybody is inside: {several} requests in the mean")
                    });
                    format!(
                        " ({} is busy {} {of_the_time}{inside})",
                        in_words(&kind),
                        human::percent(share)
                    )
                });
                let stages = summary.stages_ms().into_iter().filter_map(|(stage, ms)| Some((stage, ms?)));
                let longest = stages.max_by(|a, b| a.1.total_cmp(&b.1));
                let longest = longest.map_or(String::new(), |(stage, ms)| {
                    format!(
                        "; most of the latency is {} ({} in the mean)",
                        stage_in_words(stage),
                        human::milliseconds(ms)
                    )
                });
                (
                    "none".to_owned(),
                    format!("nothing is at its limit {at}{busiest}{longest}."),
                )
            }
        }
    };
    Binds { what, sentence, shares }
}

/// How busy the busiest instance is of those that copy or compute, but not both at once: with its own computing and its
/// part of its card's copies; and with which of them most.
fn in_turns(summary: &RunSummary) -> Option<(&'static str, f64)> {
    let computing = || {
        let computing = summary.lanes.iter().filter(|(lane, _)| kind(lane) == "compute");
        computing.filter_map(|(lane, compute)| Some((lane.rsplit_once('/')?.0, compute)))
    };
    let mut instances: BTreeMap<&str, u32> = BTreeMap::new();
    for (card, _) in computing() {
        *instances.entry(card).or_default() += 1;
    }
    let of_instance = |(card, compute): (&str, &LaneSummary)| {
        let copy = summary.lanes.get(&format!("{card}/copy"))?.busy_share / f64::from(instances[card]);
        let most = if copy > compute.busy_share { "link" } else { "compute" };
        Some((most, copy + compute.busy_share))
    };
    computing().filter_map(of_instance).max_by(|a, b| a.1.total_cmp(&b.1))
}

/// Whether a decoder's requests hardly wait to be let in.
fn is_let_in_at_once(summary: &RunSummary) -> bool {
    let waits = match (summary.queue_ms, summary.latency_ms) {
        (Some(queue), Some(latency)) => queue.mean > WAITING * latency.mean,
        _ => false,
    };
    summary.generation.is_some() && !waits
}

/// The same where one step beyond the answer is none whatever its lanes do.
pub fn refused(why: &str, at_the_answer: Binds) -> Binds {
    let why = why.strip_prefix(GIVEN_UP).unwrap_or(why);
    let (what, named) = match why.ends_with(FIND_NO_MEMORY) {
        true => ("memory", "the cards' memory: "),
        false => ("none", ""),
    };
    Binds {
        what: what.to_owned(),
        sentence: format!("{named}one step beyond the answer, {why}."),
        ..at_the_answer
    }
}

fn kind(lane: &str) -> &'static str {
    match lane.rsplit('/').next().unwrap_or(lane) {
        name if name.starts_with("compute") => "compute",
        name if name.starts_with("copy") => "link",
        "link" => "card-link",
        name if name.starts_with("lookup") => "host-lookup",
        "disk" => "host-disk",
        name if name.starts_with("solver") => "solver",
        name if name.starts_with("planner") => "planner",
        _ => "other",
    }
}

fn in_words(kind: &str) -> &'static str {
    match kind {
        "compute" => "compute",
        "link" => "the link to the card",
        "card-link" => "a link between cards",
        "host-lookup" => "the host's look-ups",
        "host-disk" => "the host's disk",
        "solver" => "the solver of the allocation",
        "planner" => "the planner of pools",
        _ => "another lane",
    }
}

fn stage_in_words(stage: &str) -> &'static str {
    match stage {
        "queue" => "waiting for a batch or for a free instance",
        "lane" => "waiting for the batches before",
        "stall" => "waiting for parameters",
        "compute" => "computing",
        _ => "telling the server",
    }
}

/// What a busy link carries that more memory would keep.
fn brought_in_again(summary: &RunSummary) -> Option<String> {
    let swap = summary.swap.filter(|swap| swap.evictions * 20 > swap.hits + swap.misses)?;
    let missed = human::percent(1.0 - swap.hit_share()?);
    Some(format!(
        " with parameters that had left the cards' memory or were never there ({missed} of the uses), so that more \
         memory would relieve it too"
    ))
}

/// Memory binds where it is too small for all tasks, and where a decoder's requests wait for room in it.
fn short_of_memory(summary: &RunSummary) -> Option<String> {
    let tasks = summary.tasks.as_ref();
    if let Some(refused) = tasks.and_then(|tasks| tasks.refused.get(TASK_OUT_OF_MEMORY)) {
        return Some(format!("{} tasks find no room in it", human::count((*refused).into())));
    }
    if let Some(generation) = summary.generation
        && generation.evictions * 100 > summary.requests.offered
    {
        return Some(format!(
            "{} times a request had to leave its card",
            human::count(generation.evictions)
        ));
    }
    // A decoder that has anybody inside computes all the time, whether or not it could do more: what keeps others out
    // is its cache.
    if let (Some(memory), Some(queue), Some(latency)) = (summary.gpu_memory_bytes, summary.queue_ms, summary.latency_ms)
        // What nobody reads of shared prefixes fills it too, and goes when it is wanted.
        && summary.generation.is_some_and(|generation| generation.shared_tokens.is_none())
        && memory.peak as f64 > CACHE_FULL * memory.capacity as f64
        && queue.mean > WAITING * latency.mean
    {
        return Some(format!(
            "weights, adapters and caches fill {} of it, and waiting for room is {} of the latency",
            human::percent(memory.peak as f64 / memory.capacity as f64),
            human::percent(queue.mean / latency.mean)
        ));
    }
    None
}

/// Nor is there room for all parameters where what had to leave is waited for, and no lane is at its limit for it.
fn waits_for_parameters(summary: &RunSummary) -> Option<String> {
    let swap = summary.swap.filter(|swap| swap.evictions * 20 > swap.hits + swap.misses)?;
    // Where more comes than is served, requests wait for those before them, whatever these wait for.
    let waits = [summary.queue_ms, summary.lane_ms].into_iter().flatten();
    let served_ms = summary.latency_ms?.mean - waits.map(|wait| wait.mean).sum::<f64>();
    let stall = summary.stall_ms?.mean;
    (stall > WAITING * served_ms).then(|| {
        format!(
            "{} of the uses found a tenant's parameters gone, and waiting for them is {} of the time from when a batch \
             begins to its answers",
            human::percent(1.0 - swap.hit_share().unwrap_or(1.0)),
            human::percent(stall / served_ms)
        )
    })
}
