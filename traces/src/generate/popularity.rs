//! Which tenant asks, as a function of the ticket; and properties of tenants, as functions of the tenant.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::alias::Alias;
use crate::draw::{Draws, Purpose};
use crate::error::{TraceError, not_negative};
use crate::fit::azure_functions;
use crate::read::activity;
use crate::request::Ticket;
use crate::spec::PopularitySpec;

/// Tenants by ticket.
pub enum TenantsByTicket {
    /// In turns.
    RoundRobin { tenants: u32 },
    /// The first `tenants` alike.
    Uniform { draws: Draws, tenants: u32 },
    /// In proportion to a table.
    Table { draws: Draws, alias: Alias },
    /// What the arrivals bring.
    OfArrivals,
}

impl TenantsByTicket {
    pub fn new(seed: u64, tenants: u32, spec: &PopularitySpec) -> Result<TenantsByTicket, TraceError> {
        let draws = Draws::new(seed, Purpose::Tenant);
        let field = "tenants.popularity";
        let weights: Vec<f64> = match spec {
            PopularitySpec::Distinct => return Ok(TenantsByTicket::RoundRobin { tenants }),
            PopularitySpec::Uniform => return Ok(TenantsByTicket::Uniform { draws, tenants }),
            PopularitySpec::Identical => return Ok(TenantsByTicket::Uniform { draws, tenants: 1 }),
            PopularitySpec::OfArrivals => return Ok(TenantsByTicket::OfArrivals),
            PopularitySpec::UniformSqrt => {
                let floor = tenants.isqrt();
                let tenants = if floor * floor == tenants { floor } else { floor + 1 };
                return Ok(TenantsByTicket::Uniform { draws, tenants });
            }
            PopularitySpec::Skewed { alpha } => {
                if !(alpha.is_finite() && *alpha > 1.0) {
                    return Err(TraceError::spec(
                        &format!("{field}.skewed"),
                        "a finite number above 1",
                        alpha,
                    ));
                }
                std::iter::successors(Some(1.0), |weight| Some(weight / alpha)).take(tenants as usize).collect()
            }
            PopularitySpec::Zipf { exponent } => {
                not_negative(&format!("{field}.zipf"), *exponent)?;
                let alias = zipf(tenants, *exponent);
                return Ok(TenantsByTicket::Table { draws, alias });
            }
            PopularitySpec::Weights(weights) => {
                let field = format!("{field}.weights");
                if weights.len() != tenants as usize {
                    return Err(TraceError::spec(
                        &field,
                        &format!("one for each of {tenants} tenants"),
                        weights.len(),
                    ));
                }
                for (i, &weight) in weights.iter().enumerate() {
                    not_negative(&format!("{field}[{i}]"), weight)?;
                }
                let sum = weights.iter().sum::<f64>();
                if sum <= 0.0 {
                    return Err(TraceError::spec(
                        &field,
                        "weights of which one is above 0",
                        "only zeros",
                    ));
                }
                if !sum.is_finite() {
                    return Err(TraceError::spec(&field, "weights whose sum is a number", sum));
                }
                weights.clone()
            }
            PopularitySpec::AzureFunctions => azure_functions::weights(tenants),
            PopularitySpec::File(path) => {
                let (totals, _) = activity::totals(path, false)?;
                let rows = Rows::new(seed, totals.len(), tenants);
                let weights: Vec<f64> = (0..tenants).map(|tenant| totals[rows.of(tenant)]).collect();
                if weights.iter().all(|&weight| weight == 0.0) {
                    return Err(none_of_those_drawn(path));
                }
                weights
            }
        };
        Ok(TenantsByTicket::Table {
            draws,
            alias: Alias::new(&weights),
        })
    }

    /// The tenant of `ticket`; `None` where only its arrival can tell.
    #[inline(always)]
    pub fn of(&self, ticket: Ticket) -> Option<u32> {
        match self {
            TenantsByTicket::RoundRobin { tenants } => Some((ticket % u64::from(*tenants)) as u32),
            TenantsByTicket::Uniform { tenants: 1, .. } => Some(0),
            TenantsByTicket::Uniform { draws, tenants } => Some(draws.about(ticket).below(u64::from(*tenants)) as u32),
            TenantsByTicket::Table { draws, alias } => Some(alias.pick(draws.about(ticket).bits())),
            TenantsByTicket::OfArrivals => None,
        }
    }
}

/// How many of Zipf's tables are kept.
const ZIPF_TABLES: usize = 4;

/// Zipf's law over so many tenants. The last few tables are kept: runs of a sweep or a plan mostly differ in neither
/// number, and a power for each of thousands of tenants takes longer than a short run.
fn zipf(tenants: u32, exponent: f64) -> Alias {
    static LATEST: Mutex<VecDeque<((u32, u64), Alias)>> = Mutex::new(VecDeque::new());
    let latest = || LATEST.lock().unwrap_or_else(PoisonError::into_inner);
    let asked = (tenants, exponent.to_bits());
    let kept = latest().iter().find(|(of, _)| *of == asked).map(|(_, alias)| alias.clone());
    kept.unwrap_or_else(|| {
        let weights: Vec<f64> = (1..=tenants).map(|rank| libm::pow(f64::from(rank), -exponent)).collect();
        let alias = Alias::new(&weights);
        let mut latest = latest();
        latest.truncate(ZIPF_TABLES - 1);
        latest.push_front((asked, alias.clone()));
        alias
    })
}

// The parts of `Purpose::TenantProperty`: two properties never share draws.
pub(super) const PART_PHASE: u64 = 1;
const PART_ROW: u64 = 2;
const PART_SHIFT: u64 = 3;
pub(super) const PART_ON_OFF: u64 = 4;
pub(super) const PART_DIURNAL_PHASE: u64 = 5;
pub(super) const PART_LIFE: u64 = 6;
const PART_SHARES: u64 = 1 << 32;

/// A recording whose rows were drawn so that no tenant asks.
pub(super) fn none_of_those_drawn(path: &Path) -> TraceError {
    TraceError::file(path, "must have requests of the tenants drawn from it, got none")
}

/// Which row of a recording each tenant is: its own where there are as many, else one drawn with replacement.
pub struct Rows {
    draws: Draws,
    rows: usize,
    drawn: bool,
}

impl Rows {
    pub fn new(seed: u64, rows: usize, tenants: u32) -> Rows {
        Rows {
            draws: Draws::new(seed, Purpose::TenantProperty).part(PART_ROW),
            rows,
            drawn: rows != tenants as usize,
        }
    }

    pub fn of(&self, tenant: u32) -> usize {
        if self.drawn {
            self.draws.about(u64::from(tenant)).below(self.rows as u64) as usize
        } else {
            tenant as usize
        }
    }

    /// By how many of `periods` the tenant's copy of its row is shifted; 0 where it is the row's only one.
    pub fn shift(&self, tenant: u32, periods: u32) -> u32 {
        if self.drawn {
            self.draws.part(PART_SHIFT).about(u64::from(tenant)).below(u64::from(periods)) as u32
        } else {
            0
        }
    }
}

/// Tenants put into groups by share: kinds, domains, service classes. A tenant's group is a function of the seed, of
/// which grouping it is and of the tenant.
#[derive(Debug)]
pub struct Shares {
    draws: Draws,
    alias: Alias,
}

impl Shares {
    /// Grouping number `grouping` by `shares` in any unit; `field` names them in errors.
    ///
    /// # Errors
    /// [`TraceError::Spec`] where there is no share, one is negative or not finite, or all are 0.
    pub fn new(field: &str, seed: u64, grouping: u32, shares: &[f64]) -> Result<Shares, TraceError> {
        for (i, &share) in shares.iter().enumerate() {
            not_negative(&format!("{field}[{i}]"), share)?;
        }
        let sum = shares.iter().sum::<f64>();
        if sum <= 0.0 || !sum.is_finite() {
            return Err(TraceError::spec(
                field,
                "shares of which one is above 0, and whose sum is a number",
                format!("{shares:?}"),
            ));
        }
        Ok(Shares {
            draws: Draws::new(seed, Purpose::TenantProperty).part(PART_SHARES + u64::from(grouping)),
            alias: Alias::new(shares),
        })
    }

    /// The group of `tenant`, from 0.
    #[inline]
    pub fn of(&self, tenant: u32) -> u32 {
        self.alias.pick(self.draws.about(u64::from(tenant)).bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each law twice in a row, which finds what is kept, and again when others have taken its place.
    #[test]
    fn a_table_that_is_kept_is_the_one_that_is_asked_for() {
        let laws = [(3, 0.9), (3, 1.1), (4, 0.9), (5, 0.0), (40, 2.0), (40, 1.9)];
        for (tenants, exponent) in [laws, laws].concat() {
            let weights: Vec<f64> = (1..=tenants).map(|rank| libm::pow(f64::from(rank), -exponent)).collect();
            let tables = [zipf(tenants, exponent), zipf(tenants, exponent), Alias::new(&weights)];
            let bits = (0..1000_u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            for bits in bits {
                let picked = tables.each_ref().map(|table| table.pick(bits));
                assert!(
                    picked.iter().all(|tenant| *tenant == picked[0]),
                    "{tenants} tenants, {exponent}"
                );
            }
        }
    }
}
