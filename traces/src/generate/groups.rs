//! The groups that tenants fall into.

use super::popularity::Shares;
use crate::error::TraceError;
use crate::spec::WorkloadSpec;

/// Each tenant's kind, domain and service class, as functions of the seed and the tenant.
pub struct TenantGroups {
    classes: Option<Shares>,
    kinds: Option<Shares>,
    domains: Option<Shares>,
}

impl TenantGroups {
    /// Those of `spec`.
    ///
    /// # Errors
    /// [`TraceError::Spec`] where shares are negative, not finite or all 0, or there are too many of them.
    pub fn new(spec: &WorkloadSpec) -> Result<TenantGroups, TraceError> {
        let shares = |name: &str, grouping: u32, shares: &[f64]| {
            let field = format!("tenants.{name}");
            if shares.len() > usize::from(u16::MAX) {
                return Err(TraceError::spec(&field, "fewer than 65536", shares.len()));
            }
            (!shares.is_empty())
                .then(|| Shares::new(&field, spec.seed, grouping, shares))
                .transpose()
        };
        Ok(TenantGroups {
            classes: shares("classes", 0, &spec.class_shares)?,
            kinds: shares("kinds", 1, &spec.groups.kinds)?,
            domains: shares("domains", 2, &spec.groups.domains)?,
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

    /// Its domain: 0 where there is one.
    pub fn domain_of(&self, tenant: u32) -> u32 {
        self.domains.as_ref().map_or(0, |shares| shares.of(tenant))
    }
}
