//! Decoders on the virtual machine: known answers, the server's laws, and leaping against stepping.

mod batches;
mod cards;
mod gaps;
mod leaping;
mod memory;
mod prices;

use crate::common::cluster;
use crate::common::decoders::{
    TENANTS, card_of_whole_steps, entries, generation, hierarchical, memory, request, simulate, simulate_on, system,
    systems,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use tenantry_core::log::replay;
use tenantry_core::op::OpKind;
use tenantry_core::spec::{
    ConsolidateSpec, DisaggregatedSpec, GenerationSpec, JoinSpec, LinkSpec, LoraSpec, PipelineSpec, PlaceSpec,
    PrefillSpec, QueueSpec, StopSpec, SystemSpec, TenantState, Weights,
};
use tenantry_core::{Command, Commands, Event, RunRecord, Server};
use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{AdapterImplementation, Card};
use tenantry_sim::Jitter;
use tenantry_traces::{Action, Change, Duration, Entry, ManageRequest, Time};

/// Tenants have turns.
const FAIR: QueueSpec = QueueSpec::VirtualTokenCounter(Weights { input: 1, output: 2 });
