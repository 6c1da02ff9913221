//! Queues and caches whose theory is known.

use super::*;

/// Poisson arrivals of one length served one by one are an M/D/1 queue: the mean wait is ρ / (2 (1 − ρ)) services.
#[test]
fn single_service_is_an_m_d_1_queue() {
    let mut card = synthetic_card();
    // Theory knows no hand-overs.
    for row in &mut card.tables.dispatch {
        let ns = 1e-3;
        row.stats = Stats {
            count: 1,
            mean_us: ns,
            median_us: ns,
            p05_us: ns,
            p95_us: ns,
            p99_us: ns,
        };
    }
    let mut system = system();
    system.pool.tenant_state = TenantState::Head;
    system.pool.pipeline = PipelineSpec::SYNCHRONOUS;
    system.pool.batch = BatchSpec::SizeOrTimeout {
        max_size: 1,
        max_wait: Duration::ZERO,
    };
    let memory = memory_for(&system, 1, 0);
    let alone = run_listed(
        &card,
        cluster(1, memory),
        &system,
        1,
        Jitter::None,
        vec![request(0, 0, 0, 32)],
    )
    .record;
    let service_ns = alone.latency.mean_ns();
    for load in [0.3, 0.6, 0.85] {
        let mut arrivals = Draws::new(11, Purpose::Arrival).about(0);
        let mut at_ns = 0.0;
        let entries: Vec<Entry> = (0..200_000)
            .map(|ticket| {
                at_ns += arrivals.exponential() * service_ns / load;
                request(ticket, (at_ns / 1e3) as u64, 0, 32)
            })
            .collect();
        let record = run_listed(&card, cluster(1, memory), &system, 1, Jitter::None, entries).record;
        let expected = load / (2.0 * (1.0 - load));
        let wait = record.queue.mean_ns() / service_ns;
        assert!(
            (wait / expected - 1.0).abs() < 0.03,
            "at load {load}: {wait} services, theory says {expected}"
        );
    }
}

/// Uniform draws over N tenants with C slots hit C/N of the time under LRU (HMI, Fig. 3: 35 of 1,000).
#[test]
fn uniform_tenants_hit_in_proportion_to_the_slots() {
    let card = synthetic_card();
    let mut system = system();
    system.pool.tenant_state = TenantState::Model;
    system.pool.batch = BatchSpec::PerTenant { max_size: 1 };
    system.pool.pipeline = PipelineSpec::SYNCHRONOUS;
    let memory = memory_for(&system, 1000, 35);
    let tenants = Draws::new(5, Purpose::Tenant);
    let entries: Vec<Entry> =
        (0..50_000).map(|t| request(t, t * 10_000, tenants.about(t).below(1000) as u32, 32)).collect();
    let record = run_listed(&card, cluster(1, memory), &system, 1000, Jitter::None, entries).record;
    let swaps = record.swaps.unwrap();
    let hit_rate = swaps.hits as f64 / (swaps.hits + swaps.misses) as f64;
    assert!((hit_rate - 0.035).abs() < 0.004, "{hit_rate}");
    assert_eq!(record.memory.tenant_bytes, 35 * record.memory.per_tenant_bytes);
}
