//! What runs next on an instance.

use tenantry_traces::{Duration, Time};

use crate::ids::RequestId;
use crate::server::QueueView;
use crate::spec::BatchSpec;

/// A batch policy's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Run the members that were put into the list.
    Start,
    /// Ask again at this instant, or when something has changed.
    AskAt(Time),
    /// Ask again when something has changed.
    Wait,
}

/// Chooses the next batch of an instance that has room for one.
pub trait Batch: Send {
    /// Puts the chosen requests into `members`, which comes empty; what is there counts only with [`Decision::Start`].
    fn decide(&self, now: Time, queue: QueueView<'_>, members: &mut Vec<RequestId>) -> Decision;

    /// Whether it asks for a tenant's requests; the server then keeps them listed.
    fn looks_at_tenants(&self) -> bool {
        false
    }

    /// Whether a batch waits until all that it chose fit on the card, and is not cut to those who do.
    fn waits_for_all(&self) -> bool {
        false
    }
}

/// One tenant's requests at a time: a fine-tuned model serves nobody else (HMI, section 7.2, BERT-dedicated).
struct PerTenant {
    max_size: u32,
}

impl Batch for PerTenant {
    fn decide(&self, _: Time, queue: QueueView<'_>, members: &mut Vec<RequestId>) -> Decision {
        let Some(oldest) = queue.oldest() else {
            return Decision::Wait;
        };
        members.extend(queue.of_tenant(oldest.tenant).take(self.max_size as usize).map(|w| w.id));
        Decision::Start
    }

    fn looks_at_tenants(&self) -> bool {
        true
    }
}

struct FixedSize {
    size: u32,
}

impl Batch for FixedSize {
    fn decide(&self, _: Time, queue: QueueView<'_>, members: &mut Vec<RequestId>) -> Decision {
        if queue.len() < self.size {
            return Decision::Wait;
        }
        members.extend(queue.iter().take(self.size as usize).map(|w| w.id));
        Decision::Start
    }

    fn waits_for_all(&self) -> bool {
        true
    }
}

struct SizeOrTimeout {
    max_size: u32,
    max_wait: Duration,
}

impl Batch for SizeOrTimeout {
    fn decide(&self, now: Time, queue: QueueView<'_>, members: &mut Vec<RequestId>) -> Decision {
        let Some(oldest) = queue.oldest() else {
            return Decision::Wait;
        };
        let latest = oldest.arrival + self.max_wait;
        if queue.len() < self.max_size && now < latest {
            return Decision::AskAt(latest);
        }
        members.extend(queue.iter().take(self.max_size as usize).map(|w| w.id));
        Decision::Start
    }
}

/// The policy that a spec names.
pub fn build(spec: &BatchSpec) -> Box<dyn Batch> {
    match *spec {
        BatchSpec::PerTenant { max_size } => Box::new(PerTenant { max_size }),
        BatchSpec::FixedSize { size } => Box::new(FixedSize { size }),
        BatchSpec::SizeOrTimeout { max_size, max_wait } => Box::new(SizeOrTimeout { max_size, max_wait }),
    }
}
