//! Look-ups whose outcomes were counted beforehand are simulated to meet what executed ones meet in real tables.

use std::path::Path;

use tenantry_core::machine::LookupCounts;
use tenantry_core::spec::{Met, PipelineSpec, PlotSpec, PoolSpec, SystemSpec, TenantState};
use tenantry_core::testing;
use tenantry_executor::Device;
use tenantry_executor::machine::execute::{self, execute};
use tenantry_plot::{KeySets, Language, Texts};
use tenantry_profiles::AdapterImplementation;
use tenantry_profiles::testing::synthetic_card;
use tenantry_sim::{count_met, simulate};
use tenantry_traces::generate::Domains;
use tenantry_traces::{Entry, Listed, Request, Time};

const TENANTS: u32 = 20;
const SEED: u64 = 5;

fn system(plot: PlotSpec) -> SystemSpec {
    testing::system(PoolSpec {
        plot: Some(plot),
        tenant_state: TenantState::Adapters {
            bottleneck: 16,
            implementation: AdapterImplementation::GatherBmm,
        },
        pipeline: PipelineSpec::PREFETCH,
        ..testing::pool("tiny")
    })
}

/// Some texts are shorter than a fragment.
fn entries() -> Listed {
    let entry = |ticket: u64| {
        Entry::Request(Request {
            ticket,
            tenant: (ticket * 3 % u64::from(TENANTS)) as u32,
            arrival: Time(ticket * 100_000),
            input_tokens: 1 + (ticket * 5 % 60) as u32,
            output_tokens: 0,
            class: 0,
        })
    };
    Listed::new((0..240).map(entry).collect())
}

fn executed(system: &SystemSpec, domains: &Domains, tables: &Path) -> LookupCounts {
    let card = synthetic_card();
    let spec = execute::Run {
        seed: SEED,
        tables: tables.to_path_buf(),
        domains: domains.clone(),
        ..execute::Run::new(Device::Cpu, &card, testing::cluster(1, 1 << 30), system, TENANTS)
    };
    let done = execute(&spec, &mut entries(), Default::default(), ()).unwrap();
    done.record.lookups.unwrap()
}

fn simulated(system: &SystemSpec) -> LookupCounts {
    let card = synthetic_card();
    let spec = tenantry_sim::Run::new(&card, testing::cluster(1, 1 << 30), system, TENANTS);
    let done = simulate(&spec, &mut entries(), Default::default(), None).unwrap();
    done.record.lookups.unwrap()
}

#[test]
fn both_machines_count_the_same_look_ups() {
    let folder = tempfile::tempdir().unwrap();
    // What a workload has that says nothing of domains, and what `tenants: { domains: 10 }` says.
    let domains = [Domains::IN_TURNS, Domains::by_share(SEED, &[1.0; 10]).unwrap()];
    let met = domains.map(|domains| counted_as_executed(&domains, folder.path()));
    assert_ne!(met[0], met[1], "tenants are in other domains");
}

/// What is executed and what is simulated after counting agree. What is met.
fn counted_as_executed(domains: &Domains, folder: &Path) -> LookupCounts {
    let built = PlotSpec {
        met: Met::Counted,
        domains: domains.count(),
        ..testing::PLOT
    };
    let real = executed(&system(built), domains, folder);
    let model = system(built).pool.model;
    let texts = Texts::Made(Language::new(SEED, model.vocabulary).with_domains(domains.clone()));
    let met = count_met(&built, &model, &texts, &mut entries(), &KeySets::default()).unwrap().met;
    let virtual_one = simulated(&system(PlotSpec { met, ..built }));
    assert_eq!(virtual_one.tokens, real.tokens);
    for (what, of) in [
        (
            "domain hits",
            (|counts: LookupCounts| counts.domain_hits) as fn(LookupCounts) -> u64,
        ),
        ("root hits", |counts| counts.root_hits),
        ("fallbacks", |counts| counts.fallbacks),
    ] {
        assert!(of(real) > 100, "{what}: {real:?}");
        // Shares are parts of a million.
        assert!(
            of(real).abs_diff(of(virtual_one)) <= 2,
            "{what}: {real:?}, {virtual_one:?}"
        );
    }
    // Fresh texts are not what α promises of the corpus.
    let as_built = simulated(&system(PlotSpec {
        met: Met::AsBuilt,
        ..built
    }));
    assert!(
        as_built.domain_hits > real.domain_hits && as_built.fallbacks == 0,
        "{as_built:?}"
    );
    real
}
