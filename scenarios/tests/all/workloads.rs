//! Every kind of arrivals, lengths, popularity and presence that the generators know can be said in YAML.

use std::path::Path;

use tenantry_scenarios::{RunSpec, Scenario};
use tenantry_traces::management::{ManagementSpec, ManagementTrace};
use tenantry_traces::spec::{ArrivalsSpec, LengthSpec, LengthsSpec, PopularitySpec};
use tenantry_traces::{Duration, Entry, build};

/// A scenario with these three; `FOLDER` in them is a folder with the files below.
fn text(tenants: &str, arrivals: &str, lengths: &str) -> String {
    format!(
        "name: test\nseed: 5\nmodels: {{ backbone: tiny }}\ntenants: {tenants}\n\
         workload:\n  arrivals: {arrivals}\n  lengths: {lengths}\n  stop: {{ requests: 50, after: 1000h }}\n\
         systems: [{{preset: bert-shared}}]\n"
    )
}

fn files() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("counts.csv", "second,requests\n0,5\n1,0\n2,7\n"),
        (
            "trace.csv",
            "ticket,tenant,arrival_ns,input_tokens,output_tokens,class\n0,3,1000,9,2,1\n1,4,2000000000,7,1,0\n",
        ),
        (
            "epoch.csv",
            "arrived_at,num_prefill_tokens,num_decode_tokens\n1700000000.5,10,3\n1700000001.5,10,3\n",
        ),
        ("epoch-counts.csv", "second,requests\n1700000000,5\n1700000001,7\n"),
        ("activity.csv", "tenant,minute,invocations\n0,0,3\n1,2,5\n"),
        ("shape.csv", "hour,requests_per_hour\n0,10\n1,20\n"),
        (
            "talk.json",
            "[{\"conversations\": [{\"from\": \"human\", \"value\": \"four score\"}, {\"from\": \"gpt\", \"value\": \
             \"and seven\"}]}]",
        ),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let tokenizer = include_bytes!("../../../traces/fuzz/seeds/tokenizer/0");
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer).unwrap();
    folder
}

fn load(folder: &Path, tenants: &str, arrivals: &str, lengths: &str) -> Result<Scenario, String> {
    let text = text(tenants, arrivals, lengths).replace("FOLDER", folder.to_str().unwrap());
    Scenario::from_yaml("test.yaml", &text, &[]).map_err(|errors| errors.to_string())
}

/// Loads, generates, writes out and loads again.
fn run(folder: &Path, tenants: &str, arrivals: &str, lengths: &str) -> RunSpec {
    let scenario = load(folder, tenants, arrivals, lengths).unwrap_or_else(|errors| panic!("{errors}"));
    let yaml = scenario.resolved_yaml();
    let again = Scenario::from_yaml(&scenario.file, &yaml, &[]).unwrap_or_else(|errors| panic!("{errors}\n{yaml}"));
    assert_eq!(again.runs(), scenario.runs(), "{yaml}");
    let run = scenario.runs().remove(0);
    let mut workload = build(&run.workload).unwrap();
    assert!(
        matches!(workload.next().unwrap(), Some(Entry::Request(_))),
        "{arrivals}"
    );
    run
}

const FIXED: &str = "{input: {fixed: 9}}";
const POISSON: &str = "{poisson: {rate: 5/s}}";

#[test]
fn all_arrivals() {
    let folder = files();
    // With the tenants and lengths that they need.
    for (arrivals, popularity, lengths) in [
        (POISSON, "uniform", FIXED),
        ("{constant: {rate: 5/s}}", "uniform", FIXED),
        (
            "{mmpp: {states: [{rate: 5/s, mean_dwell: 1s}, {rate: 50/s, mean_dwell: 1s}]}}",
            "uniform",
            FIXED,
        ),
        ("{gamma: {rate: 5/s, cv: 3}}", "uniform", FIXED),
        ("{periodic-per-tenant: {period: 20s}}", "of-arrivals", FIXED),
        (
            "{burst: {threads: 250, stagger: 50ms, period: 1.2s, repeats: 50}}",
            "uniform",
            FIXED,
        ),
        (
            "{ramp: {points: [{at: 0, rate: 0/s}, {at: 30min, rate: 10/s}, {at: 1h, rate: 0/s}]}}",
            "uniform",
            FIXED,
        ),
        ("{closed-loop: {clients: 4, think_time: 1s}}", "uniform", FIXED),
        ("{counts: {path: FOLDER/counts.csv}}", "uniform", FIXED),
        (
            "{counts: {path: FOLDER/counts.csv, placement: {bursty: {peak: 3, share: 0.2, mean_burst: 1s}}, scale: 2, \
             from: 1s, length: 2s, repeat: true, drop_zeros_from: 5s}}",
            "uniform",
            FIXED,
        ),
        ("{counts: {path: FOLDER/counts.csv, placement: even}}", "uniform", FIXED),
        (
            "{trace: {path: FOLDER/trace.csv, speed: 2, repeat: true, length: 3s}}",
            "of-arrivals",
            "{joint: of-arrivals}",
        ),
        ("{trace: {path: FOLDER/trace.csv}}", "uniform", "{input: of-arrivals}"),
        (
            "{trace: {path: FOLDER/epoch.csv, from: 1700000000s}}",
            "uniform",
            "{joint: of-arrivals}",
        ),
        (
            "{counts: {path: FOLDER/epoch-counts.csv, from: 1700000001s, length: 1s}}",
            "uniform",
            FIXED,
        ),
        (
            "{cut: {from: 1700000000s, arrivals: {trace: {path: FOLDER/epoch.csv}}}}",
            "uniform",
            FIXED,
        ),
        (
            "{activity: {path: FOLDER/activity.csv, scale: 2, repeat: true}}",
            "of-arrivals",
            FIXED,
        ),
        (
            "{shape: {path: FOLDER/shape.csv, rate: 5/s, step: 1min, repeat: true}}",
            "uniform",
            FIXED,
        ),
        ("{twitter: {rate: 5/s}}", "uniform", FIXED),
        (
            "{regimes: {rate: 5/s, calm: {lasts: [{share: 0, time: 1s}, {share: 1, time: 9s}], rates: [{share: 0, \
             rate: 0/s}, {share: 1, rate: 2/s}], memory: 3s}, plateau: {lasts: [{share: 0, time: 1s}, {share: 1, time: \
             2s}], rates: [{share: 0, rate: 4/s}, {share: 1, rate: 9.5/s}], memory: 1s}}}",
            "uniform",
            FIXED,
        ),
        (
            "{superpose: [{poisson: {rate: 5/s}}, {scaled: {factor: 2, arrivals: {constant: {rate: 1/s}}}}]}",
            "uniform",
            FIXED,
        ),
        (
            "{cut: {from: 1s, length: 5s, repeat: true, delay: 2s, arrivals: {poisson: {rate: 5/s}}}}",
            "uniform",
            FIXED,
        ),
        (
            "{cut: {length: 30s, arrivals: {periodic-per-tenant: {period: 20s}}}}",
            "of-arrivals",
            FIXED,
        ),
    ] {
        run(
            folder.path(),
            &format!("{{count: 10, popularity: {popularity}}}"),
            arrivals,
            lengths,
        );
    }
    let shape = run(
        folder.path(),
        "{count: 1}",
        "{shape: {path: FOLDER/shape.csv, rate: 120/min}}",
        FIXED,
    );
    let ArrivalsSpec::Shape(shape) = shape.workload.arrivals else {
        panic!("a shape")
    };
    assert_eq!((shape.rate_per_s, shape.step, shape.repeat), (2.0, None, false));
}

#[test]
fn all_lengths() {
    let folder = files();
    for input in [
        "{fixed: 9}",
        "{normal: {mean: 30.5, sd: 10, min: 1, max: 99}}",
        "{lognormal: {median: 20, sigma: 0.5, min: 2, max: 128}}",
        "{empirical: [3, 4, 4, 5]}",
        "{quantiles: [{share: 0, tokens: 3.5}, {share: 0.5, tokens: 10.5}, {share: 1, tokens: 20.5}]}",
        "twitter",
        "{twitter: {tweets: arlo, span: 512}}",
        "sharegpt",
        "{drifting: {from: {fixed: 9}, to: {twitter: {span: 512}}, requests: 30}}",
        "{trace: {path: FOLDER/trace.csv, skip_bad_lines: true}}",
        "{trace: {path: FOLDER/talk.json, tokenizer: FOLDER/tokenizer.json}}",
    ] {
        for output in [
            "",
            ", output: {fixed: 8}",
            ", output: sharegpt",
            ", output: {trace: {path: FOLDER/trace.csv}}",
        ] {
            run(
                folder.path(),
                "{count: 10}",
                POISSON,
                &format!("{{input: {input}{output}}}"),
            );
        }
    }
    for joint in [
        "sharegpt",
        "{bins: {input: [{share: 0, tokens: 0.5}, {share: 1, tokens: 30.5}], output_by_input: [\
         {longest_input: 9, output: [{share: 0, tokens: 0.5}, {share: 1, tokens: 5.5}]}, \
         {longest_input: 20, output: [{share: 0, tokens: 7.5}, {share: 1, tokens: 8.5}]}]}}",
        "{trace: {path: FOLDER/talk.json, tokenizer: FOLDER/tokenizer.json}}",
    ] {
        run(folder.path(), "{count: 10}", POISSON, &format!("{{joint: {joint}}}"));
    }
    let lengths = |text: &str| run(folder.path(), "{count: 10}", POISSON, text).workload.lengths;
    assert_eq!(lengths("{joint: sharegpt}"), LengthsSpec::ShareGpt);
    assert!(matches!(
        lengths("{input: {trace: {path: FOLDER/trace.csv}}}"),
        LengthsSpec::Resampled { .. }
    ));
    let LengthsSpec::Independent { output, .. } = lengths("{input: sharegpt, output: {fixed: 8}}") else {
        panic!("on their own")
    };
    assert_eq!(output, LengthSpec::Fixed(8));
}

#[test]
fn all_tenants() {
    let folder = files();
    for popularity in [
        "distinct",
        "uniform",
        "uniform-sqrt",
        "identical",
        "{zipf: 1.1}",
        "{skewed: 1.5}",
        "{weights: [1, 2, 0]}",
        "azure-functions",
        "{file: FOLDER/activity.csv}",
    ] {
        run(
            folder.path(),
            &format!("{{count: 3, popularity: {popularity}}}"),
            POISSON,
            FIXED,
        );
    }
    let tenants = "{count: 1000, domains: 10, kinds: {houlsby: 3, lora: 1}, classes: {gold: 0.1, bronze: 0.9}, \
                   popularity: {zipf: 0.9}, presence: {on_off: {mean_on: 1min, mean_off: 9min}, diurnal: {trough: 0.2, \
                   phases: spread}, lifetimes: {present_at_start: 0.5, appear_within: 1h, mean_stay: 2h}}}";
    let run = run(folder.path(), tenants, POISSON, FIXED);
    assert_eq!(run.tenant_groups.kinds, ["houlsby", "lora"]);
    assert_eq!(run.tenant_groups.classes, ["gold", "bronze"], "in the file's order");
    assert_eq!(run.tenant_groups.domains.len(), 10);
    assert_eq!(run.workload.popularity, PopularitySpec::Zipf { exponent: 0.9 });
    assert_eq!(
        (run.workload.class_shares.as_slice(), run.workload.groups.domains.len()),
        (&[0.1, 0.9][..], 10)
    );
    let presence = run.workload.presence;
    assert_eq!(presence.diurnal.unwrap().period, Duration::from_secs(86_400));
    assert_eq!(presence.on_off.unwrap().mean_off, Duration::from_secs(540));
    assert_eq!(presence.lifetimes.unwrap().mean_stay, Some(Duration::from_secs(7200)));
}

#[test]
fn a_recording_has_no_more_tenants_than_its_own() {
    let folder = files();
    let most_tenants = |popularity: &str, arrivals: &str| {
        let tenants = format!("{{count: 10, popularity: {popularity}}}");
        let plan = "slo: {latency: 1s, at: p98}\nplan: {find: most-tenants, tenants: {from: 10, to: 100}}\n";
        let text = text(&tenants, arrivals, FIXED).replace("FOLDER", folder.path().to_str().unwrap()) + plan;
        Scenario::from_yaml("test.yaml", &text, &[]).map_err(|errors| errors.to_string())
    };
    let trace = "{trace: {path: FOLDER/trace.csv}}";
    let refused = most_tenants("of-arrivals", trace).unwrap_err();
    assert!(
        refused.contains("tenants.popularity: must be one that more tenants can follow, such as {zipf: 0.9}"),
        "{refused}"
    );
    most_tenants("{zipf: 0.9}", POISSON).unwrap();
    let ten = format!("{{weights: {:?}}}", [1; 10]);
    let weighted = most_tenants(&ten, POISSON).unwrap_err();
    assert!(
        weighted.ends_with("weights are of as many as there are, got weights of 10 tenants"),
        "{weighted}"
    );
}

#[test]
fn a_part_of_recorded_management_is_replayed() {
    let folder = files();
    let path = folder.path().join("trace.csv");
    let trace = format!(
        "workload.management={{trace: {{path: {}, from: 5s, length: 3s}}}}",
        path.display()
    );
    let scenario = Scenario::load("quickstart", &[trace]).unwrap_or_else(|errors| panic!("{errors}"));
    let again = Scenario::from_yaml(&scenario.file, &scenario.resolved_yaml(), &[]).unwrap();
    for scenario in [scenario, again] {
        let expected = ManagementTrace {
            path: path.clone(),
            speed: 1.0,
            from: Duration::from_secs(5),
            length: Some(Duration::from_secs(3)),
        };
        let management = &scenario.runs()[0].workload.management;
        assert_eq!(*management, ManagementSpec::Trace(expected));
    }
}

#[test]
fn what_does_not_go_together_is_said() {
    let folder = files();
    let said =
        |tenants: &str, arrivals: &str, lengths: &str| load(folder.path(), tenants, arrivals, lengths).unwrap_err();
    assert_eq!(
        said("{count: 9}", POISSON, "{joint: sharegpt, output: {fixed: 3}}"),
        "test.yaml:7: workload.lengths.output: must be left out where joint says how long requests are, got a length"
    );
    assert_eq!(
        said("{count: 9}", POISSON, "{output: {fixed: 3}}"),
        "test.yaml:7: workload.lengths.input: must be given, got nothing"
    );
    assert_eq!(
        said(
            "{count: 9}",
            "{trace: {path: FOLDER/trace.csv}}",
            "{input: of-arrivals, output: {fixed: 3}}"
        ),
        "test.yaml:7: workload.lengths.input: must be a distribution where inputs and outputs are given one by one, \
         got of-arrivals"
    );
    assert_eq!(
        said("{count: 9, domains: 0}", POISSON, FIXED),
        "test.yaml:4: tenants.domains: must be a number of groups from 1 to 65535, or a mapping of their names to \
         shares, got 0"
    );
    assert_eq!(
        said("{count: 9, presence: {diurnal: {trough: 3}}}", POISSON, FIXED),
        "test.yaml:4: tenants.presence.diurnal.trough: must be a number from 0 to 1, got 3"
    );
    assert_eq!(
        said("{count: 9, presence: {on_of: {}}}", POISSON, FIXED),
        "test.yaml:4: tenants.presence.on_of: must be one of on_off, diurnal, lifetimes, got an unknown key; did you \
         mean on_off?"
    );
    assert_eq!(
        said("{count: 9}", "{activity: {path: FOLDER/activity.csv}}", FIXED),
        "test.yaml:4: tenants.popularity: must be of-arrivals, since activity arrivals say which tenant asks, got a \
         distribution"
    );
}
