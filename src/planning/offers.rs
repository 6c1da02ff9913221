//! What a plan chooses among: systems on kinds of cards, and of each how many cards, tenants or how much load.

use tenantry_scenarios::plan::{Plan, Variant, Way};
use tenantry_scenarios::{Objective, Scenario};

/// A system with its settings, on a kind of card.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    pub way: &'a Way,
    /// Among the plan's ways.
    pub index: usize,
    pub card: &'a str,
    pub price: Option<f64>,
}

impl<'a> Offer<'a> {
    /// What it is at a level.
    pub fn at(&self, point: Point, repeats: u32) -> Variant<'a> {
        Variant {
            way: self.way,
            card: self.card,
            price: self.price,
            gpus: point.gpus,
            tenants: point.tenants,
            load: point.load,
            repeats,
        }
    }
}

/// A level of an offer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub gpus: u32,
    pub tenants: u32,
    /// How many times the scenario's load.
    pub load: f64,
    /// Of all cards, an hour.
    pub cost: Option<f64>,
}

/// What so many cards cost an hour, to the millionth: prices are decimal, and 3 × 1.1 is to be 3.3.
pub fn cost_per_hour(price: f64, gpus: u32) -> f64 {
    (price * f64::from(gpus) * 1e6).round() / 1e6
}

/// The numbers of cards at a price each that the plan may pay for.
pub fn affordable(plan: &Plan, price: Option<f64>) -> Vec<u32> {
    let may = |gpus: &u32| match (plan.max_cost_per_hour, price) {
        (Some(most), Some(price)) => cost_per_hour(price, *gpus) <= cost_per_hour(most, 1),
        _ => true,
    };
    plan.gpus.iter().copied().filter(may).collect()
}

/// The levels of an offer, from the best to the most generous. Numbers of cards that are not valid for it are left out:
/// some systems take cards by twos, say. Where none is, all are there, and a scenario of one of them says what is
/// wrong.
pub fn levels(scenario: &Scenario, plan: &Plan, offer: &Offer<'_>) -> Vec<Point> {
    let gpus = affordable(plan, offer.price);
    let point = |gpus: u32, tenants: u32, load: f64| Point {
        gpus,
        tenants,
        load,
        cost: offer.price.map(|price| cost_per_hour(price, gpus)),
    };
    let tenants = plan.tenants[0];
    let is_valid = |gpus: &u32| scenario.variant(&offer.at(point(*gpus, tenants, 1.0), 1)).is_ok();
    // What is asked with the most cards that may be had: fewer do not carry more.
    let most = || gpus.iter().copied().rev().find(is_valid).or(gpus.last().copied());
    match plan.find {
        Objective::FewestCards | Objective::LeastCost | Objective::TightestLatency => {
            let valid: Vec<u32> = gpus.iter().copied().filter(is_valid).collect();
            let gpus = if valid.is_empty() { gpus } else { valid };
            gpus.into_iter().map(|gpus| point(gpus, tenants, 1.0)).collect()
        }
        Objective::HighestRate => {
            let loads = plan.loads.iter().rev();
            most()
                .into_iter()
                .flat_map(|gpus| loads.clone().map(move |load| (gpus, *load)))
                .map(|(gpus, load)| point(gpus, tenants, load))
                .collect()
        }
        Objective::MostTenants => {
            let base = f64::from(scenario.tenants());
            let load = |tenants: u32| {
                if scenario.load_follows_tenants() {
                    1.0
                } else {
                    f64::from(tenants) / base
                }
            };
            let counts = plan.tenants.iter().rev();
            most()
                .into_iter()
                .flat_map(|gpus| counts.clone().map(move |tenants| (gpus, *tenants)))
                .map(|(gpus, tenants)| point(gpus, tenants, load(tenants)))
                .collect()
        }
    }
}
