//! The systems that benchmarks run: scenarios as users write them, with ledger and laws on, and contention and jitter
//! as far as their cards have any: those made from papers have none unless they are [`Case::disturbed`].

#![allow(dead_code, reason = "each benchmark uses a part")]

use std::sync::Arc;

use tenantry_core::run::Observer;
use tenantry_core::spec::{AllocateSpec, ClusterSpec};
use tenantry_core::{Ledger, RunRecord, Server, run};
use tenantry_profiles::testing::{disturbed, synthetic_card};
use tenantry_profiles::{Card, DeviceKind};
use tenantry_scenarios::{RunSpec, Scenario};
use tenantry_sim::{Jitter, Prices, Run, Simulated, VirtualMachine, allocate, simulate, whole_workload};
use tenantry_traces::Time;

/// One system under one load, ready to be simulated.
pub struct Case {
    pub name: &'static str,
    pub run: RunSpec,
    card: Card,
}

impl Case {
    /// The first run of a scenario. `overrides` are `path=value`, as `--set` has them.
    pub fn new(name: &'static str, yaml: &str, overrides: &[String]) -> Case {
        let scenario = Scenario::from_yaml(name, yaml, overrides).expect("the benchmark's scenario is sound");
        let mut run = scenario.runs().swap_remove(0);
        let mut card = match run.card.as_str() {
            "synthetic" => synthetic_card(),
            name => Card::find(name, &[]).expect("it is embedded"),
        };
        if run.system.pool.generation.is_some() {
            // ShareGPT's longest conversations go beyond Llama 2's positions; the rest of its shape is the table's.
            run.system.pool.model.positions = 16_384;
            card.models.push(run.system.pool.model.clone());
        }
        let instances = run.system.pool.instances_per_gpu;
        if let Some(runtimes) = &mut run.system.pool.runtimes {
            *runtimes = runtimes.on(&card, instances).expect("the card has its runtimes");
            if let AllocateSpec::Global(solver) = runtimes.allocate {
                let mut workload = tenantry_traces::build(&run.workload).expect("the workload is sound");
                let question = whole_workload(runtimes, &mut *workload, run.gpus * instances, solver);
                let answer = allocate(&question.expect("the workload is readable")).expect("it is solvable");
                runtimes.allocate = AllocateSpec::Solved(answer);
            }
        }
        Case { name, run, card }
    }

    /// On the same card with a spread and contention, which those that are made from papers have not.
    pub fn disturbed(self) -> Case {
        Case {
            card: disturbed(self.card),
            ..self
        }
    }

    pub fn simulate(&self) -> Simulated {
        self.simulate_watched(None)
    }

    pub fn simulate_watched(&self, watch: Option<&mut dyn Observer>) -> Simulated {
        let spec = Run {
            card: &self.card,
            cluster: self.cluster(),
            system: &self.run.system,
            tenants: self.run.tenants,
            warm_up: Time::ZERO,
            target: None,
            jitter: Jitter::Measured { seed: self.run.seed },
            seed: self.run.seed,
            answers: self.run.answers.as_ref().map(|answers| (answers, self.run.seed)),
        };
        let mut workload = tenantry_traces::build(&self.run.workload).expect("the workload is sound");
        simulate(&spec, &mut *workload, Arc::default(), watch).expect("the run is sound")
    }

    pub fn server(&self) -> Server {
        Server::on_card(&self.card, &self.cluster(), &self.run.system, self.run.tenants).expect("it fits")
    }

    /// Visits each of a decoder's steps. With the ops that were started.
    pub fn simulate_step_by_step(&self) -> (RunRecord, u64) {
        let mut server = self.server();
        let jitter = Jitter::Measured { seed: self.run.seed };
        let prices = Prices::of_system(&self.card, &self.run.system, jitter).expect("the card has its tables");
        let machine = VirtualMachine::new(server.topology(), prices, &self.card.contention, Arc::default());
        let mut machine = machine.step_by_step();
        let mut workload = tenantry_traces::build(&self.run.workload).expect("the workload is sound");
        let mut ledger = Ledger::new(Time::ZERO);
        let end = run(&mut server, &mut *workload, &mut machine, &mut ledger, ()).expect("the run is sound");
        (
            ledger.close(end, &server, &machine).expect("its laws hold"),
            machine.ops(),
        )
    }

    fn cluster(&self) -> ClusterSpec {
        let device = &self.card.device;
        let lanes = match device.kind {
            DeviceKind::Cuda => self.run.gpus,
            DeviceKind::Cpu => 1,
        };
        self.run.cluster(device.memory_bytes - device.reserve_bytes, lanes, lanes)
    }
}

/// Of all that a run's record holds: whether two results are the same.
pub fn digest(record: &RunRecord) -> String {
    digest_of(format!("{record:?}").bytes().map(u64::from))
}

/// FNV-1a, by the number.
pub fn digest_of(numbers: impl IntoIterator<Item = u64>) -> String {
    let digest = numbers.into_iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, number| {
        (hash ^ number).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{digest:016x}")
}

/// HMI's fine pipeline: 10,000 tenants' adapters, a table for the lower layers, batches of 32 on average.
pub const HMI: &str = "
name: hmi
seed: 7
card: synthetic
models: { backbone: bert-base }
tenants: { count: 10000, popularity: uniform }
workload:
  arrivals: { poisson: { rate: 3800/s } }
  lengths: { input: { fixed: 32 } }
  stop: { requests: 1000000 }
systems:
  - preset: hmi
    tenant_state: { adapters: { bottleneck: 16 } }
    batch: { size-or-timeout: { max_size: 64, max_wait: 0s } }
";

/// Whole models of 10,000 tenants, swapped in when they are asked for.
pub const SWAPPING: &str = "
name: swapping
seed: 7
card: synthetic
cluster: { gpus: 1, gpu_memory: 256 MiB }
models: { backbone: tiny }
tenants: { count: 10000, popularity: uniform }
workload:
  arrivals: { poisson: { rate: 1200/s } }
  lengths: { input: { fixed: 128 } }
  stop: { requests: 1000000 }
systems:
  - preset: bert-dedicated
";

/// Arlo's thousand cards under 250,000 requests a second.
pub const ARLO: &str = "
name: arlo
seed: 7
card: paper-rtx3090
cluster: { gpus: 1000 }
models: { backbone: bert-large }
tenants: { count: 1 }
workload:
  arrivals: { poisson: { rate: 250000/s } }
  lengths: { input: { twitter: { tweets: arlo, span: 125 } } }
  stop: { requests: 1000000 }
systems:
  - { preset: arlo, runtimes: { slo: 450ms, allocate: { global: {} } } }
";

/// PetS on a pool of 1,024 queries.
pub const PETS: &str = "
name: pets
seed: 7
card: synthetic
models: { backbone: tiny }
tenants: { count: 128, popularity: uniform, kinds: { adapters: 1, mask-bert: 1, diff-pruning: 1, bit-fit: 1, lora: 1 } }
workload:
  arrivals: { poisson: { rate: 10000/s } }
  lengths: { input: { normal: { mean: 32, sd: 4, min: 4, max: 64 } } }
  stop: { requests: 1000000 }
systems:
  - preset: pets
    tasks:
      engine: { shared: { batching: coordinated, streams: { fixed: { count: 1 } } } }
      max_tokens: 64
      planning: { pool: { size: 1024, max_wait: 1s } }
";

/// Punica: many LoRAs on a Llama of 7 billion parameters, lengths like ShareGPT's, some nine tenths of what a card can
/// do. On one card there is nobody to consolidate with, and on 16 it is left out, as peers have nothing like it.
pub const PUNICA: &str = "
name: punica
seed: 7
card: paper-a100-80g
cluster: { gpus: 1 }
models: { backbone: llama-7b }
tenants: { count: 1000, popularity: uniform }
workload:
  arrivals: { poisson: { rate: 1/s } }
  lengths: { joint: sharegpt }
  stop: { requests: 100000 }
systems:
  - preset: punica
    generation:
      lora: { rank: 16, implementation: grouped, slots: 64 }
      max_batch: 32
      consolidate: null
";

/// Every request of ShareGPT's mean lengths.
pub const ALIKE: &str = "workload.lengths={input: {fixed: 1147}, output: {fixed: 211}}";

/// Tabi's cascade on two cards under tweets' bursts, at nearly nine tenths of what it bears (queues grow without end
/// from 1,000/s on).
pub const TABI: &str = "
name: tabi
seed: 7
card: paper-v100-tabi
cluster: { gpus: 2 }
models:
  distilbert: distilbert
  roberta-large: { layers: 24, hidden: 1024, heads: 16, intermediate: 4096, vocabulary: 50265, positions: 512 }
tenants: { count: 1, popularity: identical }
workload:
  arrivals: { twitter: { rate: 800/s } }
  lengths: { input: { fixed: 26 } }
  stop: { requests: 1000000 }
outcomes:
  from: { generated: { small: distilbert, large: roberta-large, task: sst-2 } }
  pruned: [{ degree: 0.5, words: 3.8% }, { degree: 0.7, words: 14.2%, loss: 0.3% }, { degree: 0.9, words: 62.5% }]
  averages: [{ weights: [0.762, 0.914], gain: 0.4% }]
systems:
  - preset: tabi
    batch: { size-or-timeout: { max_size: 8 } }
    cascade:
      stages:
        - { model: distilbert, packing: 5, reroute: { cut_off: 0.95, slope: 1e6, prune: 0.7 } }
        - { model: roberta-large, packing: 2 }
      join: { average: [0.762, 0.914] }
";

/// All of them.
pub const ALL: [(&str, &str); 6] = [
    ("hmi", HMI),
    ("swapping", SWAPPING),
    ("arlo", ARLO),
    ("pets", PETS),
    ("punica", PUNICA),
    ("tabi", TABI),
];
