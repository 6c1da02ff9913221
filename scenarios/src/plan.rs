//! `plan:` resolved: the candidates and their levels, and each of them as a scenario of its own.

use std::collections::BTreeSet;

use serde_json::Value as Json;
use serde_yaml::{Mapping, Value};
use tenantry_traces::Duration;

use crate::error::{Problem, ScenarioErrors};
use crate::path::Path;
use crate::raw::{
    RawAllocate, RawArrivals, RawCards, RawNumbers, RawObjective, RawPlan, RawPopularity, RawScenario, RawSystem,
};
use crate::scenario::Scenario;

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
    let mut problems = Vec::new();
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
    let gpus = match &plan.gpus {
        None => vec![raw.cluster.gpus.0],
        Some(RawNumbers::List(list)) => list.iter().map(|count| count.0).collect(),
        Some(RawNumbers::Between(between)) => (between.from.0..=between.to.0).take(LEVELS_MAX).collect(),
    };
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
    let lists = [("gpus", gpus.len()), ("tenants", tenants.len()), ("load", loads.len())];
    for (key, _) in lists
        .into_iter()
        .filter(|(_, length)| !(1..LEVELS_MAX).contains(length))
    {
        let must = format!("at least one and fewer than {LEVELS_MAX} values, with to above from");
        problems.push(Problem::new(path.key(key), must, "another range"));
    }
    let keeps_its_tenants =
        raw.tenants.popularity == RawPopularity::OfArrivals && !follows_tenants(&raw.workload.arrivals);
    if plan.find == RawObjective::MostTenants && keeps_its_tenants {
        let must =
            "one that more tenants can follow, such as {zipf: 0.9}, to find the most: recorded arrivals keep their own";
        problems.push(Problem::new(
            Path::default().key("tenants").key("popularity"),
            must,
            "of-arrivals",
        ));
    }
    if plan.confidence.fraction() >= 1.0 {
        let got = format!("{} %", 100.0 * plan.confidence.fraction());
        problems.push(Problem::new(path.key("confidence"), "below 100 %", got));
    }
    if cards.is_empty() {
        problems.push(Problem::new(path.key("cards"), "at least one card", "none"));
    }
    let ways = ways(raw, plan, &path.key("choices"), &mut problems);
    for (index, system) in raw.systems.iter().enumerate() {
        let path = Path::default().key("systems").index(index);
        check_cascade(system, plan, gpus.len(), &path, &mut problems);
        check_runtimes(system, plan, &gpus, &path, &mut problems);
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

/// The kinds of cards with what is known of their prices.
fn cards(raw: &RawScenario, plan: &RawPlan) -> Vec<(String, Option<f64>)> {
    let at_its_price = |card: &String| (card.clone(), raw.prices.get(card).map(|price| price.0));
    let mut cards: Vec<(String, Option<f64>)> = match &plan.cards {
        Some(RawCards::Priced(priced)) => priced
            .iter()
            .map(|(card, price)| (card.clone(), Some(price.0)))
            .collect(),
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
        "given with what each card costs an hour, as in cards: {{{first}: 0.8}}, or by prices: {{{first}: 0.8}} beside plan; the price is yours \
         to say, in your currency, since no card comes with one"
    );
    Some(Problem::new(
        path.key("cards"),
        must,
        format!("no price of {}", without.join(", ")),
    ))
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
fn check_runtimes(system: &RawSystem, plan: &RawPlan, gpus: &[u32], path: &Path, problems: &mut Vec<Problem>) {
    let Some(runtimes) = &system.runtimes else { return };
    let path = path.key("runtimes");
    if let RawAllocate::Fixed(fixed) = &runtimes.allocate
        && gpus.len() > 1
    {
        let must = "even, global or periodic where plan.gpus tries several numbers of cards, since fixed numbers add up to one of them";
        problems.push(Problem::new(path.key("allocate"), must, format!("fixed: {fixed:?}")));
    }
    let Some(scale) = &runtimes.scale else { return };
    let path = path.key("scale");
    if plan.find == RawObjective::LeastCost || plan.max_cost_per_hour.is_some() {
        let must = "left out where a plan goes by the cards' cost: it counts cards that are kept all the time \
                    (tenantry simulate says what cards that come and go cost, as cost_per_million_requests)";
        problems.push(Problem::new(path.clone(), must, "given"));
    }
    let fewest = gpus.iter().copied().min().unwrap_or(0);
    for (key, count) in [("start", scale.start.0), ("min", scale.min.0)] {
        if count > fewest {
            let must = format!("at most {fewest}, the fewest cards that plan.gpus tries");
            problems.push(Problem::new(path.key(key), must, count));
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
    (0..if ratio < 1.0 { 0 } else { count + 1 }).take(LEVELS_MAX).map(at)
}

fn ways(raw: &RawScenario, plan: &RawPlan, path: &Path, problems: &mut Vec<Problem>) -> Vec<Way> {
    let names = || raw.systems.iter().map(|system| system.name.0.as_str());
    for system in plan.choices.keys().filter(|name| !names().any(|known| known == *name)) {
        problems.push(Problem::unknown_name(path.key(system), system, names()));
    }
    let mut ways = Vec::new();
    for name in names() {
        let mut settings: Vec<Vec<(String, Json)>> = vec![Vec::new()];
        for (key, values) in plan.choices.get(name).into_iter().flatten() {
            let path = path.key(name).key(key);
            let json: Option<Vec<Json>> = values.iter().map(|value| serde_json::to_value(value).ok()).collect();
            let json = json.filter(|values| !values.is_empty() && Path::parse(key).is_some());
            let Some(json) = json else {
                problems.push(Problem::new(
                    path,
                    "the path of one of the system's keys, with a list of values",
                    key,
                ));
                continue;
            };
            let longer = |so_far: Vec<(String, Json)>| {
                json.iter().map(move |value| {
                    let mut longer = so_far.clone();
                    longer.push((key.clone(), value.clone()));
                    longer
                })
            };
            settings = settings.into_iter().flat_map(longer).collect();
        }
        let way = |settings| Way {
            system: name.to_string(),
            settings,
        };
        ways.extend(settings.into_iter().map(way));
    }
    ways
}

fn follows_tenants(arrivals: &RawArrivals) -> bool {
    match arrivals {
        RawArrivals::PeriodicPerTenant { .. } | RawArrivals::Activity(_) => true,
        RawArrivals::Scaled { arrivals, .. } => follows_tenants(arrivals),
        RawArrivals::Cut(part) => follows_tenants(&part.arrivals),
        _ => false,
    }
}

impl Scenario {
    /// Whether more tenants ask more by themselves: each has its own arrivals.
    pub fn load_follows_tenants(&self) -> bool {
        follows_tenants(&self.raw.workload.arrivals)
    }

    /// One point of the search as a scenario of its own, without a plan.
    ///
    /// # Errors
    /// When the scenario is not valid with these values; the errors call it `plan`.
    pub fn variant(&self, variant: &Variant<'_>) -> Result<Scenario, ScenarioErrors> {
        let mut tree: Value = serde_yaml::from_str(&self.resolved_yaml()).expect("what was written can be read");
        let of_plan = |problem: Problem| {
            let path = problem.path();
            ScenarioErrors::from(problem.locate(path, "plan", None))
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
        if variant.load != 1.0 {
            let arrivals = tree["workload"]["arrivals"].clone();
            let scaled: Mapping = [
                (Value::from("factor"), Value::from(variant.load)),
                (Value::from("arrivals"), arrivals),
            ]
            .into_iter()
            .collect();
            let scaled: Mapping = [(Value::from("scaled"), Value::Mapping(scaled))].into_iter().collect();
            settings.push(("workload.arrivals", Value::Mapping(scaled)));
            // As many requests come in another time: the same ones are to be left out.
            if self.raw.workload.stop.after.is_none() {
                let warm_up = self.raw.workload.warm_up.0;
                let scaled = Duration((warm_up.0 as f64 / variant.load).round() as u64);
                settings.push(("workload.warm_up", format!("{}ns", scaled.0).into()));
            }
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
        Scenario::from_yaml("plan", &text, &[])
    }
}
