//! Tables of lower layers that are simulated otherwise than they are executed.

use tenantry_core::spec::Met;
use tenantry_reports::human;
use tenantry_scenarios::{RunSpec, paper_domain_bytes};
use tenantry_traces::management::{ManagementSpec, Subject};

use super::once;

/// Sentences on systems whose look-ups, or whose reading of domains' tables, is simulated as of other tables than those
/// that are executed, and on how both come to the same. The runs are as they are simulated, on their cards.
pub fn two_tables_caveats(runs: &[RunSpec]) -> Vec<String> {
    once(&runs.iter().flat_map(of_run).collect::<Vec<_>>())
}

fn of_run(run: &RunSpec) -> Vec<String> {
    let pool = &run.system.pool;
    let Some(plot) = &pool.plot else {
        return Vec::new();
    };
    let name = &run.system.name;
    let mut said = Vec::new();
    if plot.met == Met::AsBuilt {
        let share = |ppm: u32| human::percent(f64::from(ppm) / 1e6);
        // What a decoder will make cannot be counted.
        let same = match pool.generation {
            None => "`plot.met: counted`",
            Some(_) => "`plot.met: {shares: …}` with the shares that `lookup` in summary.json has of what was executed",
        };
        said.push(format!(
            "{name}: look-ups are simulated as its tables are built ({} in a domain's, {} fall back), and executed find \
             what requests' texts have in the tables that are built here: {same} has both meet the same.",
            share(plot.domain_hits_ppm),
            share(plot.fallbacks_ppm)
        ));
    }
    let of_paper = paper_domain_bytes(plot.domain_hits_ppm, plot.fragment_tokens, &pool.model);
    if plot.domain_bytes == Some(of_paper) && of_paper > 0 && reads_domains(run) {
        let same = match pool.generation {
            None => "`plot.met: counted`, or that table's size as `plot.domain_table`,",
            Some(_) => "that table's size as `plot.domain_table`",
        };
        said.push(format!(
            "{name}: a domain that is created or updated is simulated as reading {}, a table of the paper's texts, and \
             executed reads the table that is built here: {same} has both read as much.",
            human::bytes(of_paper as f64)
        ));
    }
    said
}

/// Whether tables of domains are read while a run's requests are served.
fn reads_domains(run: &RunSpec) -> bool {
    match &run.workload.management {
        ManagementSpec::None => false,
        ManagementSpec::Rates(rates) => rates.update_domain_per_s > 0.0,
        ManagementSpec::Listed(list) => list.iter().any(|of| matches!(of.change.subject, Subject::Domain(_))),
        // What is in it nobody has read yet.
        ManagementSpec::Trace(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use tenantry_scenarios::Scenario;

    use super::*;

    fn told(model: &str, preset: &str, plot: &str, management: &str) -> Vec<String> {
        let text = format!(
            "name: tables\nseed: 1\ncard: cpu\nmodels: {{ backbone: {model} }}\ntenants: {{ count: 8 }}\nworkload:\n  \
             arrivals: {{ poisson: {{ rate: 30/s }} }}\n  lengths: {{ input: {{ fixed: 32 }}, output: {{ fixed: 4 }} }}\n  \
             stop: {{ requests: 100 }}\n{management}systems: [{{ preset: {preset}, name: mine, plot: {{ lower_layers: 1{plot} }} }}]\n"
        );
        let scenario = Scenario::from_yaml("test.yaml", &text, &[]).unwrap_or_else(|errors| panic!("{errors}"));
        two_tables_caveats(&scenario.runs())
    }

    const UPDATES: &str = "  management: { rates: { update_domain: 1/s } }\n";

    #[test]
    fn tables_that_are_not_those_executed_are_told_with_the_keys_that_make_them_so() {
        let said = told("bert-mini", "hmi", "", UPDATES);
        assert_eq!(
            said,
            [
                "mine: a domain that is created or updated is simulated as reading 451\u{a0}MiB, a table of the paper's \
                 texts, and executed reads the table that is built here: `plot.met: counted`, or that table's size as \
                 `plot.domain_table`, has both read as much.",
                "mine: look-ups are simulated as its tables are built (50.0\u{a0}% in a domain's, 0.0\u{a0}% fall back), and \
                 executed find what requests' texts have in the tables that are built here: `plot.met: counted` has both \
                 meet the same."
            ]
        );
        // Nothing is read where no domain changes, or of the size that the user says.
        assert_eq!(told("bert-mini", "hmi", "", "").len(), 1);
        assert_eq!(told("bert-mini", "hmi", ", domain_table: 2 MB", UPDATES).len(), 1);
        let shares = ", met: { shares: { domain_hits: 35%, fallbacks: 16% } }";
        assert_eq!(told("bert-mini", "hmi", shares, UPDATES).len(), 1);
        assert!(told("bert-mini", "hmi", shares, "").is_empty());
        assert!(told("bert-mini", "hmi", ", met: counted", UPDATES).is_empty());
        // Nobody can count what a decoder will make.
        let decoder = told("tiny-opt", "hgpt", "", UPDATES);
        assert!(
            !decoder.is_empty() && decoder.iter().all(|said| !said.contains("counted")),
            "{decoder:?}"
        );
    }
}
