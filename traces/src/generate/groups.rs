//! The groups that tenants fall into.

use std::sync::Arc;

use super::popularity::Shares;
use crate::error::TraceError;
use crate::spec::WorkloadSpec;

/// The domains that tenants' texts come from, and so those that tables have of their own: how many there are, and whose
/// each tenant is.
#[derive(Clone, Debug)]
pub struct Domains {
    count: u32,
    /// None where tenants have them in turns.
    shares: Option<Arc<Shares>>,
}

impl Domains {
    /// Where a workload says nothing of domains: tenant `t` writes in domain `t` modulo so many.
    pub const UNSAID: u32 = 8;

    /// Those of a workload that says nothing of them.
    pub const IN_TURNS: Domains = Domains {
        count: Domains::UNSAID,
        shares: None,
    };

    /// As many as there are shares of the tenants, in any unit.
    ///
    /// # Errors
    /// [`TraceError::Spec`] where shares are negative, not finite or all 0.
    pub fn by_share(seed: u64, shares: &[f64]) -> Result<Domains, TraceError> {
        let of = Shares::new("tenants.domains", seed, 2, shares)?;
        Ok(Domains {
            count: shares.len() as u32,
            shares: Some(Arc::new(of)),
        })
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// A tenant's.
    pub fn of(&self, tenant: u32) -> u32 {
        match &self.shares {
            None => tenant % self.count,
            Some(shares) => shares.of(tenant),
        }
    }
}

/// Each tenant's kind, domain and service class, as functions of the seed and the tenant.
pub struct TenantGroups {
    classes: Option<Shares>,
    kinds: Option<Shares>,
    domains: Domains,
}

impl TenantGroups {
    /// Those of `spec`.
    ///
    /// # Errors
    /// [`TraceError::Spec`] where shares are negative, not finite or all 0, or there are too many of them.
    pub fn new(spec: &WorkloadSpec) -> Result<TenantGroups, TraceError> {
        let few = |name: &str, shares: &[f64]| match shares.len() > usize::from(u16::MAX) {
            true => Err(TraceError::spec(
                &format!("tenants.{name}"),
                "fewer than 65536",
                shares.len(),
            )),
            false => Ok(()),
        };
        let shares = |name: &str, grouping: u32, shares: &[f64]| {
            few(name, shares)?;
            (!shares.is_empty())
                .then(|| Shares::new(&format!("tenants.{name}"), spec.seed, grouping, shares))
                .transpose()
        };
        Ok(TenantGroups {
            classes: shares("classes", 0, &spec.class_shares)?,
            kinds: shares("kinds", 1, &spec.groups.kinds)?,
            domains: match &spec.groups.domains[..] {
                [] => Domains::IN_TURNS,
                shares => {
                    few("domains", shares)?;
                    Domains::by_share(spec.seed, shares)?
                }
            },
        })
    }

    /// Its service class; `None` where the workload has no shares of them.
    #[inline]
    pub fn class_of(&self, tenant: u32) -> Option<u16> {
        self.classes.as_ref().map(|shares| shares.of(tenant) as u16)
    }

    /// Its kind: 0 where there is one.
    pub fn kind_of(&self, tenant: u32) -> u32 {
        self.kinds.as_ref().map_or(0, |shares| shares.of(tenant))
    }

    /// The domains.
    pub fn domains(&self) -> &Domains {
        &self.domains
    }
}
