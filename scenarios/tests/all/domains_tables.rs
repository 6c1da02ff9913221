//! How large domains' tables are taken to be, and where that is written out.

use tenantry_scenarios::Scenario;

use crate::scenarios::assert_round_trip;

/// Of the paper's BERT-base 463, 1.42 and 0.31 GB (HMI, Table 5), with no step between them or below; a row of a
/// narrower model is narrower, a decoder's has one vector.
#[test]
fn domains_tables_have_the_size_of_their_model() {
    let gigabytes = |model: &str, preset: &str, plot: &str| {
        let text = format!(
            "name: sizes\nseed: 1\ncard: cpu\nmodels: {{ backbone: {model} }}\ntenants: {{ count: 8 }}\n\
             workload:\n  arrivals: {{ poisson: {{ rate: 30/s }} }}\n  lengths: {{ input: {{ fixed: 32 }}, output: {{ fixed: 4 }} }}\n  \
             stop: {{ requests: 100 }}\nsystems: [{{ preset: {preset}, plot: {plot} }}]\n"
        );
        let scenario = Scenario::from_yaml("test.yaml", &text, &[]).unwrap_or_else(|errors| panic!("{errors}"));
        assert_round_trip(&scenario);
        let plot = scenario.runs()[0].system.pool.plot.unwrap();
        plot.domain_bytes.map(|bytes| (bytes as f64 / 1e7).round() / 100.0)
    };
    assert_eq!(gigabytes("bert-base", "hmi", "{ lower_layers: 6 }"), Some(1.42));
    assert_eq!(
        gigabytes("bert-base", "hmi", "{ lower_layers: 6, domain_hits: 30% }"),
        Some(0.31)
    );
    let of_share = |percent: &str| {
        let plot = format!("{{ lower_layers: 6, domain_hits: {percent} }}");
        gigabytes("bert-base", "hmi", &plot).unwrap()
    };
    assert_eq!(["100%", "75%", "40%"].map(of_share), [463.0, 25.64, 0.66]);
    assert_eq!(["50.0001%", "30.0001%", "29.9999%"].map(of_share), [1.42, 0.31, 0.31]);
    assert_eq!(["15%", "0%"].map(of_share), [0.04, 0.0]);
    // A fragment as long as the longest input has a row of as many vectors.
    let long = "{ lower_layers: 6, domain_hits: 100%, fragment_tokens: 512 }";
    assert_eq!(gigabytes("bert-large", "hmi", long), Some(105_358.22));
    assert_eq!(gigabytes("bert-mini", "hmi", "{ lower_layers: 2 }"), Some(0.47));
    assert_eq!(
        gigabytes("bert-mini", "hmi", "{ lower_layers: 2, domain_table: 2 GB }"),
        Some(2.0)
    );
    assert_eq!(gigabytes("bert-mini", "hmi", "{ lower_layers: 2, met: counted }"), None);
    assert_eq!(gigabytes("tiny-opt", "hgpt", "{ lower_layers: 1 }"), Some(0.08));
}

/// A resolved scenario says how large domains' tables were taken to be, but where runs of it differ in that.
#[test]
fn domains_tables_are_written_out() {
    let written = |plot: &str, sweep: &str| {
        let text = format!(
            "name: sizes\nseed: 1\ncard: cpu\nmodels: {{ backbone: bert-base }}\ntenants: {{ count: 8 }}\n\
             workload:\n  arrivals: {{ poisson: {{ rate: 30/s }} }}\n  lengths: {{ input: {{ fixed: 32 }} }}\n  \
             stop: {{ requests: 100 }}\nsystems: [{{ preset: hmi, plot: {{ lower_layers: 6{plot} }} }}]\n{sweep}"
        );
        let scenario = Scenario::from_yaml("test.yaml", &text, &[]).unwrap_or_else(|errors| panic!("{errors}"));
        assert_round_trip(&scenario);
        let yaml = scenario.resolved_yaml();
        let line = yaml.lines().find_map(|line| line.trim().strip_prefix("domain_table: "));
        line.map(str::to_owned)
    };
    assert_eq!(written("", ""), Some("1420 MB".into()));
    assert_eq!(written(", domain_table: 2 GB", ""), Some("1953125 KiB".into()));
    assert_eq!(written(", met: counted", ""), None, "it is counted before a run");
    assert_eq!(written(", domain_hits: 0%", ""), None, "there is none");
    let sweep = "sweep: { 'systems[0].plot.domain_hits': [30%, 50%] }\n";
    assert_eq!(written("", sweep), None, "each run has its own");
}
