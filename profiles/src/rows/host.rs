//! What is beside a model's own work: copies, look-ups, the host's plans, hand-overs, and starting again after a pause.

use std::cmp::Ordering;

use super::{Row, family};
use crate::cells::{Cells, Field, RefusedIn};
use crate::family::Family;
use crate::keys::{
    Changing, Direction, DispatchOperation, LoadSource, LookupOutcome, OtherCores, PoolBatching, Tier, TokensOf,
};
use crate::schema::Column;
use crate::stats::Stats;

family! {
    /// One copy over the host's link.
    CopyRow: Copy,
    names {
        /// Which way.
        direction: Direction,
        /// Whether the host's memory is page-locked.
        pinned: bool,
    },
    axes {
        /// Size.
        bytes: u64,
    }
}

family! {
    /// Parameters loaded: a tenant's block or a whole model.
    ModelLoadRow: ModelLoad,
    names {
        /// From where.
        source: LoadSource,
    },
    axes {
        /// Their size.
        bytes: u64,
    }
}

family! {
    /// Work beside the model's own.
    DispatchRow: Dispatch,
    names {
        /// Which.
        operation: DispatchOperation,
    },
    axes {}
}

family! {
    /// Handing work over between the loop and a lane, which sleep in turns. Whoever is woken is woken on the core that
    /// is awake or on another, as the system sees fit, which depends on the rhythm of work and pauses.
    HandOverRow: HandOver,
    names {
        /// Which.
        operation: DispatchOperation,
        /// What the other cores do.
        other_cores: OtherCores,
    },
    axes {
        /// From hearing of the end of the lane's last op until the next is handed over, in microseconds; 1 stands for
        /// at once.
        pause_us: u32,
        /// What the lane's ops take, in microseconds; 1 where it does not matter.
        work_us: u32,
    }
}

family! {
    /// What a model's pass takes longer after its lane was idle or had another tenant's model: caches are cold, memory
    /// may have to be mapped anew, clocks are low.
    ResumeRow: Resume,
    names {
        /// The model's name.
        model: String,
        /// Whose parameters are others than those of the pass before.
        changing: Changing,
        /// The layer from which on it is computed, 1 being all. Where tenants have whole models, these are theirs from
        /// there on.
        from_layer: u32,
    },
    axes {
        /// How long the lane was idle, in microseconds. Where the model changes, 1 stands for not at all.
        idle_us: u32,
        /// What the compute takes on a lane that was busy before, with the same model, in microseconds.
        work_us: u32,
    }
}

family! {
    /// What a copy to the device takes longer after its lane was idle, for the same reasons.
    CopyResumeRow: CopyResume,
    names {},
    axes {
        /// How long the lane was idle, in microseconds.
        idle_us: u32,
        /// What the copy takes on a lane that was busy before, in microseconds.
        work_us: u32,
    }
}

family! {
    /// What a look-up takes longer after its lane, and the threads that share its work, were idle.
    LookupResumeRow: LookupResume,
    names {
        /// Threads that share the work.
        threads: u32,
    },
    axes {
        /// How long they were idle, in microseconds.
        idle_us: u32,
        /// What the look-up takes by threads that were busy before, in microseconds.
        work_us: u32,
    }
}

family! {
    /// Fragments of a batch looked up in a PLOT table and aggregated to hidden states (HMI, Eq. 2 and 3).
    PlotLookupRow: PlotLookup,
    names {
        /// The backbone's name.
        model: String,
        /// Where the root's rows lie; a domain's own lie in memory.
        tier: Tier,
        /// What all of the look-ups met.
        outcome: LookupOutcome,
        /// Whose tokens they are.
        tokens_of: TokensOf,
    },
    axes {
        /// Threads that share the work.
        threads: u32,
        /// Tokens of the whole batch.
        tokens: u32,
        /// Tokens of a fragment: the n of n-grams.
        fragment_tokens: u32,
    }
}

family! {
    /// An allocation program solved on the host (Arlo, section 3.3).
    SolveRow: Solve,
    names {},
    axes {
        /// Cards to be allocated.
        gpus: u32,
        /// Runtimes that they are allocated to.
        runtimes: u32,
    }
}

family! {
    /// A pool of waiting queries split into batches on the host (PetS, Algorithm 1), in batches of at most 128.
    PlanRow: Plan,
    names {
        /// By which rule.
        batching: PoolBatching,
    },
    axes {
        /// Different tasks among the queries, at most `queries`.
        tasks: u32,
        /// Queries of the pool.
        queries: u32,
    }
}
