//! `plan:` resolved: the candidates and their levels, and each of them as a scenario of its own.

use std::collections::BTreeSet;

use serde_json::Value as Json;
use serde_yaml::{Mapping, Value};
use tenantry_traces::Duration;
use tenantry_traces::generate::is_compressed;
use tenantry_traces::spec::ArrivalsSpec;

use crate::choices::ways;
use crate::error::{Problem, ScenarioErrors};
use crate::path::Path;
use crate::raw::{
    RawAllocate, RawArrivals, RawBetween, RawCards, RawNumbers, RawObjective, RawPlan, RawPopularity, RawScenario,
    RawSystem,
};
use crate::scalar::GPUS_MAX;
use crate::scenario::Scenario;
use crate::workload::arrivals;

/// More levels of one key than any search needs.
const LEVELS_MAX: usize = 10_000;

/// What is searched for, among what.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What is best.
    pub find: RawObjective,
    /// Numbers of cards, rising.
    pub gpus: Vec<u32>,
    /// Numbers of tenants, rising.
    pub tenants: Vec<u32>,
    /// How many times the scenario's load, rising.
    pub loads: Vec<f64>,
    /// Cards with their price an hour.
    pub cards: Vec<(String, Option<f64>)>,
    /// Each system with each combination of its choices, as dotted paths below the system with their values.
    pub ways: Vec<Way>,
    /// All cards together cost at most this an hour.
    pub max_cost_per_hour: Option<f64>,
    /// The share of the answers that must be right.
    pub min_accuracy: Option<f64>,
    /// Of each decision.
    pub confidence: f64,
    /// Of a run, at most.
    pub repeats: u32,
}

/// A system with a value for each of its choices.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    /// The system's name.
    pub system: String,
    /// Paths below the system, with their values.
    pub settings: Vec<(String, Json)>,
}

/// One point of the search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variant<'a> {
    /// What serves.
    pub way: &'a Way,
    /// On which cards.
    pub card: &'a str,
    /// What one of them costs an hour.
    pub price: Option<f64>,
    /// On how many.
    pub gpus: u32,
    /// Whom.
    pub tenants: u32,
    /// How many times the scenario's load, all tenants together.
    pub load: f64,
    /// With other seeds.
    pub repeats: u32,
}

/// The plan of a scenario, or all that is wrong with it.
pub(crate) fn resolve(raw: &RawScenario) -> Result<Option<Plan>, Vec<Problem>> {
    let Some(plan) = &raw.plan else { return Ok(None) };
    let path = Path::default().key("plan");
    let mut problems = out_of_place(plan, &path);
    let mut needs = |given: bool, key: &str, why: &str| {
        if !given {
            problems.push(Problem::new(path.key(key), format!("given {why}"), "nothing"));
        }
    };
    match plan.find {
        RawObjective::FewestCards => needs(
            plan.gpus.is_some(),
            "gpus",
            "to find the fewest cards, as in gpus: {from: 1, to: 32}",
        ),
        RawObjective::LeastCost => needs(
            plan.gpus.is_some(),
            "gpus",
            "to find the least cost, as in gpus: {from: 1, to: 32}",
        ),
        RawObjective::MostTenants => needs(
            plan.tenants.is_some(),
            "tenants",
            "to find the most tenants, as in tenants: {from: 10, to: 100000}",
        ),
        RawObjective::HighestRate => needs(
            plan.load.is_some(),
            "load",
            "to find the highest rate, in times the scenario's, as in load: {from: 0.1, to: 20}",
        ),
        RawObjective::TightestLatency => {}
    }
    let cards = cards(raw, plan);
    if plan.find == RawObjective::LeastCost || plan.max_cost_per_hour.is_some() {
        problems.extend(unpriced(&cards, &path));
    }
    if raw.slo.is_none() && plan.find != RawObjective::TightestLatency {
        let must = "given: a plan looks for what keeps it";
        problems.push(Problem::new(Path::default().key("slo"), must, "nothing"));
    }
    if !raw.sweep.is_empty() {
        let must = "left out beside plan, which says itself what is tried";
        problems.push(Problem::new(Path::default().key("sweep"), must, "a sweep"));
    }
    let gpus = numbers_of_cards(raw, plan);
    let precision = plan.precision.fraction();
    let tenants = plan.tenants.map_or(vec![raw.tenants.count.0], |between| {
        let (from, to) = (f64::from(between.from.0), f64::from(between.to.0));
        let mut counts: Vec<u32> = steps(from, to, precision).map(|count| count.round() as u32).collect();
        counts.dedup();
        counts
    });
    let loads = plan.load.map_or(vec![1.0], |factors| {
        let short = |factor: f64| format!("{factor:.5e}").parse().expect("a formatted number is a number");
        steps(factors.from.0, factors.to.0, precision).map(short).collect()
    });
    problems.extend(ranges(plan, &path));
    let lists = [("gpus", gpus.len()), ("tenants", tenants.len()), ("load", loads.len())];
    for (key, length) in lists.into_iter().filter(|(_, length)| *length >= LEVELS_MAX) {
        let must = match key {
            "gpus" => format!("fewer than {LEVELS_MAX} numbers"),
            _ => format!("a range of fewer than {LEVELS_MAX} values at plan.precision"),
        };
        problems.push(Problem::new(path.key(key), must, format!("at least {length}")));
    }
    let of_so_many = match &raw.tenants.popularity {
        RawPopularity::OfArrivals if !follows_tenants(&raw.workload.arrivals) => {
            Some(("recorded arrivals keep their own", "of-arrivals".to_owned()))
        }
        RawPopularity::Weights(weights) => {
            let got = format!("weights of {} tenants", weights.len());
            Some(("weights are of as many as there are", got))
        }
        _ => None,
    };
    if let Some((why, got)) = of_so_many.filter(|_| plan.find == RawObjective::MostTenants) {
        let must = format!("one that more tenants can follow, such as {{zipf: 0.9}}, to find the most: {why}");
        problems.push(Problem::new(
            Path::default().key("tenants").key("popularity"),
            must,
            got,
        ));
    }
    problems.extend(percentages(plan, &path));
    problems.extend(closed_loop(raw, plan, &path));
    if cards.is_empty() {
        problems.push(Problem::new(path.key("cards"), "at least one card", "none"));
    }
    let ways = ways(raw, plan, &mut problems);
    for (index, system) in raw.systems.iter().enumerate() {
        let path = Path::default().key("systems").index(index);
        check_system(system, plan, &gpus, &path, &mut problems);
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut gpus = gpus;
    gpus.sort_unstable();
    gpus.dedup();
    Ok(Some(Plan {
        find: plan.find,
        gpus,
        tenants,
        loads,
        cards,
        ways,
        max_cost_per_hour: plan.max_cost_per_hour.map(|cost| cost.0),
        min_accuracy: plan.min_accuracy.map(|share| share.fraction()),
        confidence: plan.confidence.fraction(),
        repeats: plan.repeats.0,
    }))
}

/// The numbers of cards that are tried, as they are given.
pub(crate) fn numbers_of_cards(raw: &RawScenario, plan: &RawPlan) -> Vec<u32> {
    match &plan.gpus {
        None => vec![raw.cluster.gpus.0],
        Some(RawNumbers::List(list)) => list.iter().map(|count| count.0).collect(),
        Some(RawNumbers::Between(between)) => (between.from.0..=between.to.0).take(LEVELS_MAX).collect(),
    }
}

/// What this question does not ask, and would leave aside.
fn out_of_place(plan: &RawPlan, path: &Path) -> Vec<Problem> {
    let find = plan.find.name();
    let given = [
        ("tenants", plan.tenants.is_some(), RawObjective::MostTenants),
        ("load", plan.load.is_some(), RawObjective::HighestRate),
    ];
    let out_of_place = given.into_iter().filter(|(_, given, of)| *given && plan.find != *of);
    let problem = |(key, _, of): (&str, bool, RawObjective)| {
        let must = format!("left out where plan.find is {find}: only {} tries several", of.name());
        Problem::new(path.key(key), must, "a range")
    };
    out_of_place.map(problem).collect()
}

/// Ranges that hold nothing.
fn ranges(plan: &RawPlan, path: &Path) -> Vec<Problem> {
    let between = |key: &str, from: f64, to: f64| {
        let must = format!("at least from, {from}");
        (to < from).then(|| Problem::new(path.key(key).key("to"), must, to))
    };
    let whole = |key: &str, range: RawBetween| between(key, range.from.0.into(), range.to.0.into());
    let gpus = match &plan.gpus {
        Some(RawNumbers::Between(gpus)) => whole("gpus", *gpus),
        Some(RawNumbers::List(list)) if list.is_empty() => {
            Some(Problem::new(path.key("gpus"), "at least one number", "an empty list"))
        }
        _ => None,
    };
    let most = match &plan.gpus {
        Some(RawNumbers::Between(gpus)) => gpus.to.0,
        Some(RawNumbers::List(list)) => list.iter().map(|count| count.0).max().unwrap_or(0),
        None => 0,
    };
    let gpus = gpus.or_else(|| {
        let must = format!("at most {GPUS_MAX} cards");
        (most > GPUS_MAX).then(|| Problem::new(path.key("gpus"), must, most))
    });
    let tenants = plan.tenants.and_then(|tenants| whole("tenants", tenants));
    let load = plan.load.and_then(|load| between("load", load.from.0, load.to.0));
    [gpus, tenants, load].into_iter().flatten().collect()
}

/// Percentages that no decision can be made by.
fn percentages(plan: &RawPlan, path: &Path) -> Vec<Problem> {
    let mut problems = Vec::new();
    let got = |fraction: f64| format!("{} %", 100.0 * fraction);
    let confidence = plan.confidence.fraction();
    if !(0.5..1.0).contains(&confidence) {
        let must = "from 50 % to below 100 %";
        problems.push(Problem::new(path.key("confidence"), must, got(confidence)));
    }
    let precision = plan.precision.fraction();
    if precision >= 1.0 {
        problems.push(Problem::new(path.key("precision"), "below 100 %", got(precision)));
    }
    problems
}

/// What a plan needs of clients that wait for their answers, and may not ask of them.
fn closed_loop(raw: &RawScenario, plan: &RawPlan, path: &Path) -> Vec<Problem> {
    let RawArrivals::ClosedLoop { .. } = raw.workload.arrivals else {
        return Vec::new();
    };
    let mut problems = Vec::new();
    if raw.workload.stop.requests.is_none() {
        let must = "given where a plan has a closed loop, which asks more of who answers faster";
        let stop = Path::default().key("workload").key("stop").key("requests");
        problems.push(Problem::new(stop, must, "nothing"));
    }
    if plan.find == RawObjective::HighestRate {
        let must = "another where arrivals are a closed loop, which has no rate of its own";
        problems.push(Problem::new(path.key("find"), must, plan.find.name()));
    }
    problems
}

/// The kinds of cards with what is known of their prices.
fn cards(raw: &RawScenario, plan: &RawPlan) -> Vec<(String, Option<f64>)> {
    let at_its_price = |card: &String| (card.clone(), raw.prices.get(card).map(|price| price.0));
    let mut cards: Vec<(String, Option<f64>)> = match &plan.cards {
        Some(RawCards::Priced(priced)) => priced.iter().map(|(card, price)| (card.clone(), Some(price.0))).collect(),
        Some(RawCards::List(list)) => list.iter().map(at_its_price).collect(),
        None if plan.find == RawObjective::LeastCost && !raw.prices.is_empty() => {
            raw.prices.keys().map(at_its_price).collect()
        }
        None => vec![at_its_price(&raw.card.0)],
    };
    let mut known = BTreeSet::new();
    cards.retain(|(card, _)| known.insert(card.clone()));
    cards
}

/// What is wrong where costs are asked for and not all cards have a price.
fn unpriced(cards: &[(String, Option<f64>)], path: &Path) -> Option<Problem> {
    let without = cards.iter().filter(|(_, price)| price.is_none());
    let without: Vec<&str> = without.map(|(card, _)| card.as_str()).collect();
    let first = without.first()?;
    let must = format!(
        "given with what each card costs an hour, as in cards: {{{first}: 0.8}}, or by prices: {{{first}: 0.8}} beside \
         plan; the price is yours to say, in your currency, since no card comes with one"
    );
    Some(Problem::new(
        path.key("cards"),
        must,
        format!("no price of {}", without.join(", ")),
    ))
}

/// What a plan that tries these numbers of cards may ask of a system.
pub(crate) fn check_system(system: &RawSystem, plan: &RawPlan, gpus: &[u32], path: &Path, problems: &mut Vec<Problem>) {
    check_cascade(system, plan, gpus.len(), path, problems);
    check_runtimes(system, gpus, path, problems);
    check_scale(system, plan, gpus, path, problems);
}

/// What a plan may ask of a system with a cascade, and of one without.
fn check_cascade(
    system: &RawSystem,
    plan: &RawPlan,
    numbers_of_cards: usize,
    path: &Path,
    problems: &mut Vec<Problem>,
) {
    let Some(cascade) = &system.cascade else {
        if plan.min_accuracy.is_some() {
            let must = "given where plan.min_accuracy is: of other systems nobody knows which answers are right \
                        (the preset infaas-best is a cascade of one model)";
            problems.push(Problem::new(path.key("cascade"), must, "nothing"));
        }
        return;
    };
    for (index, stage) in cascade.stages.iter().enumerate() {
        if let Some(gpus) = &stage.gpus
            && numbers_of_cards > 1
        {
            let path = path.key("cascade").key("stages").index(index).key("gpus");
            let must = "left out where plan.gpus tries several numbers of cards: every model then runs on all of them";
            problems.push(Problem::new(path, must, format!("{gpus:?}")));
        }
    }
}

/// What a plan may ask of runtimes.
fn check_runtimes(system: &RawSystem, gpus: &[u32], path: &Path, problems: &mut Vec<Problem>) {
    let Some(runtimes) = &system.runtimes else { return };
    let path = path.key("runtimes");
    if let RawAllocate::Fixed(fixed) = &runtimes.allocate
        && gpus.len() > 1
    {
        let must = "even, global or periodic where plan.gpus tries several numbers of cards, since fixed numbers add \
                    up to one of them";
        problems.push(Problem::new(path.key("allocate"), must, format!("fixed: {fixed:?}")));
    }
}

/// What a plan may ask of cards that come and go: of runtimes, of decoders and of a cascade's stages.
fn check_scale(system: &RawSystem, plan: &RawPlan, gpus: &[u32], path: &Path, problems: &mut Vec<Problem>) {
    let mut scaled: Vec<(Path, u32, u32)> = Vec::new();
    if let Some(scale) = system.runtimes.as_ref().and_then(|runtimes| runtimes.scale) {
        scaled.push((path.key("runtimes"), scale.start.0, scale.min.0));
    }
    if let Some(scale) = system.generation.as_ref().and_then(|generation| generation.scale) {
        scaled.push((path.key("generation"), scale.start.0, scale.min.0));
    }
    let stages = path.key("cascade").key("stages");
    for (index, stage) in system.cascade.iter().flat_map(|cascade| &cascade.stages).enumerate() {
        if let Some(scale) = &stage.scale {
            scaled.push((stages.index(index), scale.start.0, scale.min.0));
        }
    }
    let fewest = gpus.iter().copied().min().unwrap_or(0);
    for (of, start, min) in scaled {
        let path = of.key("scale");
        if plan.find == RawObjective::LeastCost || plan.max_cost_per_hour.is_some() {
            let must = "left out where a plan goes by the cards' cost: it counts cards that are kept all the time \
                        (tenantry simulate says what cards that come and go cost, as cost_per_million_requests)";
            problems.push(Problem::new(path.clone(), must, "given"));
        }
        for (key, count) in [("start", start), ("min", min)] {
            if count > fewest {
                let must = format!("at most {fewest}, the fewest cards that plan.gpus tries");
                problems.push(Problem::new(path.key(key), must, count));
            }
        }
    }
}

/// From one to the other at equal ratios, at most `precision` apart.
fn steps(from: f64, to: f64, precision: f64) -> impl Iterator<Item = f64> {
    let ratio = to / from;
    let count = if ratio < 1.0 {
        0
    } else {
        (libm::log(ratio) / libm::log1p(precision)).ceil() as usize
    };
    let at = move |step: usize| from * libm::exp(libm::log(ratio) * step as f64 / count.max(1) as f64);
    let levels = if ratio < 1.0 { 0 } else { count.saturating_add(1) };
    (0..levels).take(LEVELS_MAX).map(at)
}

fn follows_tenants(raw: &RawArrivals) -> bool {
    let is_own =
        |leaf: &&ArrivalsSpec| matches!(leaf, ArrivalsSpec::PeriodicPerTenant { .. } | ArrivalsSpec::Activity(_));
    arrivals(raw).leaves().iter().all(is_own)
}

impl Scenario {
    /// Whether more tenants ask more by themselves: each has its own arrivals.
    pub fn load_follows_tenants(&self) -> bool {
        follows_tenants(&self.raw.workload.arrivals)
    }

    /// The clients of a closed loop with so many times the scenario's load, whole ones and at least one; nothing where
    /// requests come by themselves.
    pub fn clients_at(&self, load: f64) -> Option<u64> {
        match &self.raw.workload.arrivals {
            RawArrivals::ClosedLoop { clients, .. } => Some((f64::from(clients.0) * load).round().max(1.0) as u64),
            _ => None,
        }
    }

    /// How many times as early as in the scenario a variant's requests come: as many at a higher rate, or the same
    /// instants closer together. The same ones are to be left out as the warm-up.
    fn sooner(&self, variant: &Variant<'_>) -> f64 {
        let workload = &self.raw.workload;
        let more_ask = match self.load_follows_tenants() {
            true => f64::from(variant.tenants) / f64::from(self.tenants()),
            false => 1.0,
        };
        match (workload.stop.after, &workload.arrivals) {
            (_, RawArrivals::ClosedLoop { .. }) => 1.0,
            (None, _) => variant.load * more_ask,
            // The run ends when it did, and the warm-up before it.
            (Some(_), raw) if is_compressed(&arrivals(raw)) == Some(true) => variant.load.max(1.0),
            (Some(_), _) => 1.0,
        }
    }

    /// One point of the search as a scenario of its own, without a plan.
    ///
    /// # Errors
    /// When the scenario is not valid with these values. Nobody wrote it, so that the errors name the scenario's file
    /// and no line.
    pub fn variant(&self, variant: &Variant<'_>) -> Result<Scenario, ScenarioErrors> {
        let mut tree: Value = serde_yaml::from_str(&self.resolved_yaml()).expect("what was written can be read");
        let file = &self.origin.file;
        let of_plan = |problem: Problem| {
            let path = problem.path();
            ScenarioErrors::from(problem.locate(path, file, None))
        };
        let root = tree.as_mapping_mut().expect("a scenario is a mapping");
        root.remove("plan");
        if let Some(Value::Sequence(systems)) = root.get_mut("systems") {
            systems.retain(|system| system.get("name").and_then(Value::as_str) == Some(&variant.way.system));
        }
        for (path, value) in &variant.way.settings {
            let path = Path::parse(&format!("systems[0].{path}")).expect("the plan's paths were checked");
            let value = serde_yaml::to_value(value).expect("JSON is YAML");
            path.set(&mut tree, value).map_err(of_plan)?;
        }
        let mut settings: Vec<(&str, Value)> = vec![
            ("repeats", variant.repeats.into()),
            ("card", variant.card.into()),
            ("cluster.gpus", variant.gpus.into()),
            ("tenants.count", variant.tenants.into()),
        ];
        match &self.raw.workload.arrivals {
            _ if variant.load == 1.0 => {}
            // Who waits for answers asks no faster: more load is more of them.
            RawArrivals::ClosedLoop { .. } => {
                let clients = self.clients_at(variant.load).expect("the loop is closed");
                settings.push(("workload.arrivals.closed-loop.clients", clients.into()));
            }
            _ => {
                let arrivals = tree["workload"]["arrivals"].clone();
                let scaled: Mapping = [
                    (Value::from("factor"), Value::from(variant.load)),
                    (Value::from("arrivals"), arrivals),
                ]
                .into_iter()
                .collect();
                let scaled: Mapping = [(Value::from("scaled"), Value::Mapping(scaled))].into_iter().collect();
                settings.push(("workload.arrivals", Value::Mapping(scaled)));
            }
        }
        let sooner = self.sooner(variant);
        if sooner != 1.0 {
            let warm_up = self.raw.workload.warm_up.0;
            let scaled = Duration((warm_up.0 as f64 / sooner).round() as u64);
            settings.push(("workload.warm_up", format!("{}ns", scaled.0).into()));
        }
        for (path, value) in settings {
            let path = Path::parse(path).expect("a path");
            path.set(&mut tree, value).map_err(of_plan)?;
        }
        if let Some(price) = variant.price {
            let path = Path::default().key("prices").key(variant.card);
            path.set(&mut tree, price.into()).map_err(of_plan)?;
        }
        let text = serde_yaml::to_string(&tree).expect("a tree is YAML");
        let mut made = Scenario::from_yaml(file, &text, &[]).map_err(|mut errors| {
            errors.told.iter_mut().for_each(|error| error.line = None);
            errors
        })?;
        made.file.clone_from(&self.file);
        made.origin = self.origin.clone();
        Ok(made)
    }
}
