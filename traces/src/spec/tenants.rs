//! Tenants: which of them asks, when each is awake, and how they fall into groups.

use std::path::PathBuf;

use crate::time::Duration;

/// Which tenant asks, out of n.
#[derive(Clone, Debug, PartialEq)]
pub enum PopularitySpec {
    /// Each request another tenant, in turns (Punica, section 7: "Distinct"; with more requests than tenants, each turn
    /// comes again).
    Distinct,
    /// All tenants alike.
    Uniform,
    /// ⌈√n⌉ tenants alike and the rest silent (Punica, section 7: "Uniform", where n are the requests and not the
    /// tenants).
    UniformSqrt,
    /// Each tenant asked `alpha` times as often as the next (Punica, section 7: "Skewed", with 1.5).
    Skewed {
        /// Above 1.
        alpha: f64,
    },
    /// All requests are for tenant 0 (Punica, section 7: "Identical").
    Identical,
    /// Tenant i in proportion to (i + 1)^-`exponent`.
    Zipf {
        /// At least 0.
        exponent: f64,
    },
    /// In proportion to these weights, one for each tenant.
    Weights(Vec<f64>),
    /// Azure Functions' day, as a fitted generator ([`crate::fit::azure_functions`]).
    AzureFunctions,
    /// In proportion to the totals of a recording of tenants' activity ([`crate::read::activity`]). Where its number of
    /// tenants is not n, n of its rows are drawn with replacement.
    File(PathBuf),
    /// As the arrivals say: periodic tenants, recorded ones.
    OfArrivals,
}

/// When each tenant is awake. A request of a tenant that sleeps is not sent; awake is who is so by all that is given
/// here.
///
/// Arrivals that are given as rates keep their mean over time under `on_off` and `diurnal`: whoever is awake asks the
/// more for it. Under `lifetimes` they do not, and the rate is that of all tenants together. Arrivals that are instants
/// (recorded, periodic, thread bursts) are thinned.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PresenceSpec {
    /// Each tenant is awake and asleep in turns.
    pub on_off: Option<OnOffSpec>,
    /// Each tenant has a day.
    pub diurnal: Option<DiurnalSpec>,
    /// Tenants appear and go.
    pub lifetimes: Option<LifetimesSpec>,
}

/// Turns of exponential length, drawn for each tenant on its own, from a stationary start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnOffSpec {
    /// Mean time awake, above 0.
    pub mean_on: Duration,
    /// Mean time asleep, above 0.
    pub mean_off: Duration,
}

/// How much a tenant asks follows a cosine, from 1 at its peak to `trough` half a period later.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiurnalSpec {
    /// From peak to peak, above 0.
    pub period: Duration,
    /// From 0 to 1.
    pub trough: f64,
    /// When the peaks are.
    pub phases: Phases,
}

/// When tenants' peaks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phases {
    /// All at once, half a period after the start.
    Together,
    /// At any time of the period, drawn for each tenant.
    Spread,
}

/// Tenants appear and go for good. The workload is over when all have gone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LifetimesSpec {
    /// Share of the tenants that are there from the start, from 0 to 1.
    pub present_at_start: f64,
    /// The others appear at any time before this one.
    pub appear_within: Duration,
    /// Mean of the exponential time that a tenant stays, above 0; for ever where it is absent.
    pub mean_stay: Option<Duration>,
}

/// Shares of the tenants in each group, in any unit; empty where all are in one. A tenant's group is a function of the
/// seed and the tenant ([`crate::generate::TenantGroups`]).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupsSpec {
    /// Of kinds of tenants, such as kinds of adapters.
    pub kinds: Vec<f64>,
    /// Of the domains that their texts come from; where there are none, as [`crate::generate::Domains`] says.
    pub domains: Vec<f64>,
}
