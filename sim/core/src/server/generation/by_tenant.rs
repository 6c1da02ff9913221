//! Instances by whose requests they have, where only those of one tenant join each other: else whoever comes would look
//! at all cards that others hold.

use std::collections::BTreeSet;

use crate::ids::InstanceId;

/// Nobody's first, then each tenant's, in order of their loads and then of their numbers.
#[derive(Debug)]
pub(super) struct ByTenant {
    /// By instance.
    places: Vec<(Option<u32>, u32)>,
    sorted: BTreeSet<(Option<u32>, u32, InstanceId)>,
}

impl ByTenant {
    /// All idle.
    pub fn new(instances: u32) -> ByTenant {
        ByTenant {
            places: vec![(None, 0); instances as usize],
            sorted: (0..instances).map(|id| (None, 0, InstanceId(id))).collect(),
        }
    }

    /// An instance has requests of this tenant from now on, and so many in all; or of nobody.
    pub fn change(&mut self, instance: InstanceId, tenant: Option<u32>, load: u32) {
        let (was, had) = std::mem::replace(&mut self.places[instance.index()], (tenant, load));
        if (was, had) != (tenant, load) {
            self.sorted.remove(&(was, had, instance));
            self.sorted.insert((tenant, load, instance));
        }
    }

    /// Of those that have nobody else's requests and fewer than so many, the one with fewest that fits.
    pub fn least_loaded(&self, tenant: u32, below: u32, fits: impl Fn(InstanceId) -> bool) -> Option<InstanceId> {
        let least = self.open_to(tenant, below).map(|mut of| of.find(|&(_, id)| fits(id)));
        least.into_iter().flatten().min().map(|(_, id)| id)
    }

    /// Likewise, the one with most.
    pub fn most_loaded(&self, tenant: u32, below: u32, fits: impl Fn(InstanceId) -> bool) -> Option<InstanceId> {
        let most = self.open_to(tenant, below).map(|mut of| of.rfind(|&(_, id)| fits(id)));
        most.into_iter().flatten().max().map(|(_, id)| id)
    }

    /// Nobody's, and the tenant's, with their loads.
    fn open_to(&self, tenant: u32, below: u32) -> [impl DoubleEndedIterator<Item = (u32, InstanceId)>; 2] {
        [None, Some(tenant)].map(|whose| {
            let of = self.sorted.range((whose, 0, InstanceId(0))..(whose, below, InstanceId(0)));
            of.map(|&(_, load, id)| (load, id))
        })
    }

    /// Whose requests it takes an instance to have, and how many; for tests.
    pub fn place(&self, instance: InstanceId) -> (Option<u32>, u32) {
        self.places[instance.index()]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Beside a look at each of them.
        #[test]
        fn it_finds_what_a_scan_finds(
            changes in proptest::collection::vec((0u32..9, proptest::option::of(0u32..4), 0u32..5), 0..60),
            tenant in 0u32..4, below in 0u32..6, fitting in any::<u16>()
        ) {
            let mut by_tenant = ByTenant::new(9);
            let mut places = [(None, 0); 9];
            for (instance, tenant, load) in changes {
                by_tenant.change(InstanceId(instance), tenant, load);
                places[instance as usize] = (tenant, load);
            }
            let fits = |id: InstanceId| fitting >> id.0 & 1 == 1;
            let open = || (0u32..).zip(places).filter(|&(id, (of, load))| {
                of.is_none_or(|of| of == tenant) && load < below && fits(InstanceId(id))
            });
            let least = open().min_by_key(|&(id, (_, load))| (load, id)).map(|(id, _)| InstanceId(id));
            let most = open().max_by_key(|&(id, (_, load))| (load, id)).map(|(id, _)| InstanceId(id));
            prop_assert_eq!(by_tenant.least_loaded(tenant, below, fits), least);
            prop_assert_eq!(by_tenant.most_loaded(tenant, below, fits), most);
        }
    }
}
