//! What lies where: Table 2 on the card, Table 5 in host memory and on disk.

use tenantry_core::Server;
use tenantry_plot::storage::{Zipf, fragments_in, table_bytes};
use tenantry_plot::{PlotError, Shape};
use tenantry_profiles::paper::Paper;
use tenantry_scenarios::RunSpec;

use crate::cards::cluster;
use crate::commands::reproduce::lab::Lab;
use crate::commands::reproduce::row::Row;
use crate::failure::Failure;

const MIB: f64 = (1u32 << 20) as f64;
const GB: f64 = 1e9;

/// A server's memory plan: bytes shared by all tenants, bytes of each, and how many tenants' parameters fit, without
/// end where there are none.
struct Plan {
    shared: f64,
    per_tenant: f64,
    slots: f64,
}

/// The plans of `hmi/table-2`'s systems among so many tenants, on the paper's card or on one with another reserve.
struct Plans(Vec<(String, Plan)>);

impl Plans {
    /// Likewise with another reserve; nothing on another card than the paper's.
    fn with_reserve(lab: &Lab, tenants: u32, gib: f64) -> Result<Option<Plans>, Failure> {
        match lab.other_card() {
            None => Plans::make(lab, tenants, Some(gib)).map(Some),
            Some(_) => Ok(None),
        }
    }

    fn make(lab: &Lab, tenants: u32, reserve_gib: Option<f64>) -> Result<Plans, Failure> {
        let loaded = lab.load("hmi/table-2", &[&format!("tenants.count={tenants}")])?;
        let plan = |run: &RunSpec| {
            let card = match reserve_gib {
                None => loaded.card(run).clone(),
                Some(gib) => Paper::load(&run.card)?.with("reserve_gib", gib).card(),
            };
            let server = Server::new(&cluster(run, &card), &run.system, run.tenants).map_err(Failure::bad_input)?;
            let memory = server.memory();
            let plan = Plan {
                shared: memory.shared_bytes as f64,
                per_tenant: memory.per_tenant_bytes as f64,
                slots: server.slots_per_instance().map_or(f64::INFINITY, f64::from),
            };
            Ok((run.system.name.clone(), plan))
        };
        loaded.runs.iter().map(plan).collect::<Result<_, _>>().map(Plans)
    }

    fn of(&self, system: &str) -> &Plan {
        let found = self.0.iter().find(|(name, _)| name == system);
        &found.expect("the scenario has the system").1
    }
}

/// Whole models: system, the paper's name, its megabytes an instance and its instances in 16 GB.
const WHOLE: [(&str, &str, f64, f64); 5] = [
    ("bert-dedicated", "BERT-dedicated", 418.0, 35.0),
    ("bert-compress-distil", "BERT-compress distil", 253.0, 60.0),
    ("bert-compress-tiny6", "BERT-compress tiny6", 253.0, 60.0),
    ("bert-compress-tiny4", "BERT-compress tiny4", 55.0, 280.0),
    ("hbert-plot", "hBERT-PLOT", 162.0, 90.0),
];
/// Shared backbones: system, the paper's name, its base in megabytes.
const SHARED: [(&str, &str, f64); 3] = [
    ("bert-shared", "BERT-shared", 418.0),
    ("hbert-adapter", "hBERT-adapter", 418.0),
    ("hbert", "hBERT", 162.0),
];
/// What makes a model's size.
const BY_SHAPE: &str =
    "four bytes for each parameter of the public model's shape: arithmetic, and nothing that is simulated";

/// Memory on the card: what is shared, what a tenant adds, how many fit.
pub fn table_2(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Table 2";
    // The paper leaves output layers out, and a server has room for no more tenants than there are.
    let (alone, many) = (Plans::make(lab, 1, None)?, Plans::make(lab, 400, None)?);
    // The reserves between which the paper's 35 and 60 instances ask for one.
    let (least, most) = (
        Plans::with_reserve(lab, 400, 0.95)?,
        Plans::with_reserve(lab, 400, 1.75)?,
    );
    let reserves = least.as_ref().zip(most.as_ref());
    let mut rows = Vec::new();
    for (system, name, paper, _) in WHOLE {
        let per_tenant = alone.of(system).per_tenant;
        let what = format!("{name}, an instance");
        rows.push(Row::input(FIGURE, what, "MiB", paper, per_tenant / MIB).note(BY_SHAPE));
    }
    for (system, name, paper) in SHARED {
        let shared = alone.of(system).shared;
        rows.push(Row::input(FIGURE, format!("{name}, base"), "MiB", paper, shared / MIB).note(BY_SHAPE));
    }
    let adapters = "the bottleneck of 80 is the one that makes 3 MB in six layers; read as MiB, as the column's models \
                    are, it would be one of 85, and an adapter's copy 6 % longer";
    for (system, name, paper) in [("hbert-adapter", "hBERT-adapter", 6.0), ("hbert", "hBERT", 3.0)] {
        let per_tenant = alone.of(system).per_tenant;
        let what = format!("{name}, an instance");
        rows.push(Row::input(FIGURE, what, "MB", paper, per_tenant / 1e6).note(adapters));
    }
    for (system, name, _, paper) in WHOLE {
        let slots = |plans: &Plans| plans.of(system).slots;
        let note = reserves.map(|(least, most)| {
            format!(
                "assumes that 1.15 GiB stay free, chosen with these rows in sight; no one reserve fits them all: 0.95 \
                 GiB give {}, 1.75 GiB {}",
                slots(least),
                slots(most)
            )
        });
        let what = format!("{name}, instances in 16 GB");
        rows.push(
            Row::assumed(FIGURE, what, "", Some(paper), slots(&many))
                .note(note.unwrap_or_else(|| "of another card's memory".into())),
        );
    }
    let served = match lab.runs("hmi/fig-11", &["sweep={tenants.count: [10000]}"]) {
        // What fits on another card is known also where nobody knows how fast it is.
        Err(Failure::BadInput(_)) if lab.other_card().is_some() => return Ok(rows),
        served => served?,
    };
    let resident = Plans::make(lab, 10_000, None)?.of("hbert").slots;
    for (system, name) in [
        ("hbert", "hBERT"),
        ("hbert-adapter", "hBERT-adapter"),
        ("bert-shared", "BERT-shared"),
    ] {
        let requests = &served.among(system, 10_000).requests;
        let answered = requests.finished as f64 / requests.offered as f64;
        let what = format!("{name}, 10,000 instances: all requests are answered, a share of");
        let row = Row::shape(FIGURE, what, "", answered, answered == 1.0);
        rows.push(match system {
            "hbert" => row.note(format!(
                "{resident:.0} adapters lie on the card at once, the others come from host memory"
            )),
            _ => row,
        });
    }
    Ok(rows)
}

/// What a table of trigrams takes, by the share of occurrences that it covers.
pub fn table_5(_: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Table 5";
    let shape = Shape::trigrams(768);
    let fragments = |gigabytes: f64| fragments_in(&shape, (gigabytes * GB) as u64);
    let ours = |fragments: u64| table_bytes(&shape, fragments) as f64 / GB;
    let mut rows = Vec::new();
    let (mut shares, mut halves) = (Vec::new(), Vec::new());
    for (domain, all, half, third) in [("biology", 463.0, 1.42, 0.31), ("economics", 339.0, 1.75, 0.13)] {
        for (alpha, paper) in [(100, all), (50, half)] {
            rows.push(
                Row::input(
                    FIGURE,
                    format!("{domain}, α = {alpha} %"),
                    "GB",
                    paper,
                    ours(fragments(paper)),
                )
                .note(
                    "fragments are counted from the paper's size, three half-precision vectors each; ours is such a \
                     table's file",
                ),
            );
        }
        halves.push(ours(fragments(half)));
        shares.push(fragments(half) as f64 / fragments(all) as f64);
        let zipf =
            Zipf::fit(fragments(all), fragments(half), 0.5).map_err(|error: PlotError| Failure::running(error))?;
        let predicted = ours(zipf.fragments_covering(0.3));
        rows.push(
            Row::assumed(FIGURE, format!("{domain}, α = 30 %"), "GB", Some(third), predicted).note(format!(
                "assumes Zipf's law, whose exponent at α = 50 % is {:.3}: the heads of the paper's domains are \
                 flatter, and α = 30 % takes {:.1} times as much there",
                zipf.exponent,
                third / predicted
            )),
        );
    }
    let mean = 100.0 * shares.iter().sum::<f64>() / shares.len() as f64;
    rows.push(
        Row::input(
            FIGURE,
            "share of the trigrams that cover half of the occurrences",
            "%",
            0.4,
            mean,
        )
        .note(
            "one figure of the paper beside two others, its domains' sizes: α is of occurrences, not of distinct \
             fragments (that would be 231 GB)",
        ),
    );
    let mean = halves.iter().sum::<f64>() / halves.len() as f64;
    const TEN: f64 = 18.9;
    rows.push(
        Row::assumed(
            FIGURE,
            "ten domains' own tables, α = 50 %",
            "GB",
            Some(TEN),
            10.0 * mean,
        )
        .note(format!(
            "assumes that the eight domains whose sizes the text leaves out are in the mean as large as the two that \
             it has; the paper's total makes them {:.2} GB each, more than either of these",
            (TEN - 1.42 - 1.75) / 8.0
        )),
    );
    Ok(rows)
}
