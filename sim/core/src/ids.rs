//! Dense identifiers. Everything that is looked up per event is an index into an array.

use std::fmt;

macro_rules! dense_id {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// As an index.
            #[inline]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", stringify!($name).trim_end_matches("Id").to_lowercase(), self.0)
            }
        }
    };
}

dense_id!(
    /// A card, or the CPU in its place.
    GpuId
);
dense_id!(
    /// The instances that serve one model (or, in a cascade, one stage).
    PoolId
);
dense_id!(
    /// One running copy of a pool's model: it forms batches and has a compute lane of its own.
    InstanceId
);
dense_id!(
    /// Where ops run in order: a compute stream, a copy engine, a host thread.
    LaneId
);

macro_rules! slab_id {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            /// Index into the slab; reused once the occupant has gone.
            pub slot: u32,
            /// Counts the occupants of the slot, so that a stale handle is told from a fresh one.
            pub generation: u32,
        }

        impl crate::slab::Handle for $name {
            #[inline]
            fn new(slot: u32, generation: u32) -> Self {
                $name { slot, generation }
            }
            #[inline]
            fn slot(self) -> usize {
                self.slot as usize
            }
            #[inline]
            fn generation(self) -> u32 {
                self.generation
            }
        }
    };
}

slab_id!(
    /// A request inside the server.
    RequestId
);
slab_id!(
    /// A request on its way through several models.
    JobId
);
slab_id!(
    /// A batch from its submission until its last op has ended.
    BatchId
);
