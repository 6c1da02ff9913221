//! How often the early stops of Tabi's candidate search (section 5) miss the best cascade, and by how much:
//!
//!     cargo run --release -p tenantry-cascade --example early_stops -- [FOLDER of `tenantry cascade profile`]…
//!
//! Each question is a repository of models and a target accuracy, somewhere between the least accurate model and the
//! most accurate candidate. It is answered by the search that misses nothing, and by what all early stops leave, and
//! each of them alone; answers are averaged, as the paper has it. Repositories are drawn, or are models of public
//! tables (`TENANTRY_DATA`) with drawn latencies, or are the folders given, at every tenth of a point. How many
//! candidates the search had to measure is told too.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use tenantry_cascade::candidates::{Candidate, Joins, ModelProfile, PassProfile, PrunedProfile, Repository, Rules};
use tenantry_cascade::search::{EarlyStops, Targets, select};
use tenantry_cascade::{Temperature, softmax};
use tenantry_traces::draw::{Draws, Purpose, Stream};
use tenantry_traces::outcome::{ProfiledModels, SavedOutputs};

const SEED: u64 = 7;
/// Drawn repositories, and their items.
const DRAWN: u64 = 200;
const ITEMS: usize = 300;
/// Targets asked of each.
const TARGETS: usize = 8;
/// Latencies drawn for each table.
const LATENCIES: u64 = 20;
/// Every so many items of a table count.
const STRIDE: usize = 10;
const TABLES: [(&str, &str); 3] = [
    ("MMLU", "cascade/uncertainty_bench_mmlu_10k_base_icl1.csv.gz"),
    ("HellaSwag", "cascade/uncertainty_bench_hellaswag_10k_base_icl1.csv.gz"),
    (
        "HaluSum",
        "cascade/uncertainty_bench_halu_summarization_base_icl1.csv.gz",
    ),
];
/// A table's models by rising size. What the last answers counts as right, since there are no gold labels; it is no
/// candidate.
const MODELS: [&str; 6] = [
    "qwen_1_8b",
    "qwen_7b",
    "llama_2_7b",
    "qwen_14b",
    "llama_2_70b",
    "qwen_72b",
];
/// Of the tables' questions.
const CHOICES: usize = 6;

/// What came of some questions.
#[derive(Default)]
struct Tally {
    questions: usize,
    /// The early search found none where there was one.
    none: usize,
    /// Where it found a slower one: the share by which it is slower in the mean.
    slower: Vec<f64>,
}

impl Tally {
    fn add(&mut self, found: Option<&Candidate>, best: Option<&Candidate>) {
        self.questions += 1;
        match (found, best) {
            (None, Some(_)) => self.none += 1,
            (Some(found), Some(best)) if found.mean_ms > best.mean_ms * (1.0 + 1e-9) => {
                self.slower.push(found.mean_ms / best.mean_ms - 1.0);
            }
            _ => {}
        }
    }

    fn print(&mut self, what: &str) {
        self.slower.sort_by(f64::total_cmp);
        let missed = self.none + self.slower.len();
        let share = |count: usize| 100.0 * count as f64 / self.questions.max(1) as f64;
        let by = |part: f64| {
            let place = (part * self.slower.len() as f64) as usize;
            self.slower
                .get(place.min(self.slower.len().saturating_sub(1)))
                .map_or("-".into(), |by| format!("{:.1} %", 100.0 * by))
        };
        println!(
            "{what}: {} questions, missed {:.1} %, of these nothing found in {}; slower by {} (median), {} (p95), {} \
             (most)",
            self.questions,
            share(missed),
            self.none,
            by(0.5),
            by(0.95),
            by(1.0)
        );
    }
}

const NEVER: EarlyStops = EarlyStops {
    below_models_mean: false,
    p75_factor_max: f64::INFINITY,
    pruning_loss_max: f64::INFINITY,
};
/// All of them, and each alone.
const STOPS: [(&str, EarlyStops); 4] = [
    ("all stops", EarlyStops::PAPER),
    (
        "the models' mean accuracy",
        EarlyStops {
            below_models_mean: true,
            ..NEVER
        },
    ),
    (
        "the rule on p75",
        EarlyStops {
            p75_factor_max: EarlyStops::PAPER.p75_factor_max,
            ..NEVER
        },
    ),
    (
        "the loss by pruning",
        EarlyStops {
            pruning_loss_max: EarlyStops::PAPER.pruning_loss_max,
            ..NEVER
        },
    ),
];

/// What stops miss of what the search finds, and what the search takes.
#[derive(Default)]
struct Tallies {
    stops: [Tally; STOPS.len()],
    candidates: usize,
    measured: usize,
}

impl Tallies {
    /// Asks for accuracies, of which each is given a part from 0 to 1 of the way from the worst model to the best
    /// candidate.
    fn ask(&mut self, repository: &Repository, parts: &[f64]) {
        let rules = Rules {
            join: Joins::Average,
            slopes: vec![1e6],
            ..Rules::default()
        };
        let left = |stops: Option<&EarlyStops>| repository.candidates(&rules, stops).expect("a sound repository");
        let all = left(None);
        let stopped = STOPS.each_ref().map(|(_, stops)| left(Some(stops)));
        let alone = all.iter().filter(|candidate| candidate.models.len() == 1);
        let least = alone.map(|single| single.accuracy).fold(1.0, f64::min);
        let most = all.iter().map(|candidate| candidate.accuracy).fold(0.0, f64::max);
        for part in parts {
            let targets = Targets {
                accuracy: least + part * (most - least),
                mean_ms: None,
                p99_ms: None,
            };
            let search = repository.best(&rules, &targets).expect("a sound repository");
            self.candidates += search.candidates;
            self.measured += search.measured;
            let best = search.chosen.ok();
            assert_eq!(best.as_ref(), select(&all, &targets).ok(), "the search misses nothing");
            for (tally, left) in self.stops.iter_mut().zip(&stopped) {
                tally.add(select(left, &targets).ok(), best.as_ref());
            }
        }
    }

    fn print(mut self, what: &str) {
        for (tally, (stop, _)) in self.stops.iter_mut().zip(STOPS) {
            tally.print(&format!("{what}, {stop}"));
        }
        let share = 100.0 * self.measured as f64 / self.candidates.max(1) as f64;
        println!("{what}: the search measured {share:.1} % of the candidates");
    }
}

/// A number from `low` to `high`.
fn between(draws: &mut Stream, low: f64, high: f64) -> f64 {
    low + draws.unit() * (high - low)
}

/// Roughly normal, with a deviation of 1: twelve uniform ones.
fn noise(draws: &mut Stream) -> f64 {
    (0..12).map(|_| draws.unit()).sum::<f64>() - 6.0
}

/// Attention costs nothing to read here: the control time stands for it.
fn pass(latency_ms: f64, outputs: Vec<Vec<f64>>) -> PassProfile {
    PassProfile {
        latency_ms: vec![latency_ms; outputs.len()],
        attended_ms: vec![latency_ms; outputs.len()],
        outputs,
    }
}

/// Calibrated outputs, as the offline pass has them.
fn calibrated(logits: &[Vec<f32>], labels: &[usize]) -> Vec<Vec<f64>> {
    let pairs = logits.iter().map(Vec::as_slice).zip(labels.iter().copied());
    let temperature = Temperature::fit(pairs).expect("the items are sound");
    logits.iter().map(|logits| softmax(logits, temperature)).collect()
}

/// Two to four models of two to five classes. Items differ in difficulty, models in strength and in what they make of
/// the same items; larger ones are slower and mostly stronger; pruning saves time and adds noise.
fn drawn(number: u64) -> Repository {
    let mut draws = Draws::new(SEED, Purpose::Outcome).about(number);
    let classes = 2 + draws.below(4) as usize;
    let labels: Vec<usize> = (0..ITEMS).map(|_| draws.below(classes as u64) as usize).collect();
    let difficulty: Vec<f64> = (0..ITEMS).map(|_| 4.0 * noise(&mut draws)).collect();
    let models = 2 + draws.below(3);
    let mut latency_ms = between(&mut draws, 1.0, 8.0);
    let mut strength = between(&mut draws, -1.0, 4.0);
    let model = |index: u64| {
        latency_ms *= between(&mut draws, 1.1, 4.0);
        strength += between(&mut draws, -0.5, 3.0);
        let own: f64 = between(&mut draws, 0.5, 4.0);
        let logits: Vec<Vec<f32>> = difficulty
            .iter()
            .zip(&labels)
            .map(|(difficulty, &label)| {
                let lead = strength - difficulty;
                let own_lead = |class| if class == label { lead.max(-2.0) } else { 0.0 };
                let logit = |class| (own_lead(class) + own * noise(&mut draws)) as f32;
                (0..classes).map(logit).collect()
            })
            .collect();
        let (saved, harm) = (between(&mut draws, 0.02, 0.1), between(&mut draws, 0.1, 1.5));
        let pruned = (1..=3_u32).map(|degree| {
            let noisy: Vec<Vec<f32>> = logits
                .iter()
                .map(|row| {
                    let more = |&logit: &f32| logit + (harm * f64::from(degree) * noise(&mut draws)) as f32;
                    row.iter().map(more).collect()
                })
                .collect();
            PrunedProfile {
                by: vec![("m0".into(), 0.4 + f64::from(degree) / 10.0)],
                pass: pass(
                    latency_ms * (1.0 - saved * f64::from(degree)),
                    calibrated(&noisy, &labels),
                ),
            }
        });
        let pruned = if index == 0 { Vec::new() } else { pruned.collect() };
        ModelProfile {
            name: format!("m{index}"),
            whole: pass(latency_ms, calibrated(&logits, &labels)),
            pruned,
        }
    };
    Repository {
        models: (0..models).map(model).collect(),
        labels,
        control_ms: 0.5,
    }
}

/// A public table's models, without latencies. Of the classes that were not answered only the sum of probabilities is
/// known.
fn table(file: &str) -> Option<Repository> {
    let folder = std::env::var_os("TENANTRY_DATA").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data")),
        PathBuf::from,
    );
    let reader = BufReader::new(MultiGzDecoder::new(std::fs::File::open(folder.join(file)).ok()?));
    let lines: Vec<Vec<String>> = reader
        .lines()
        .map(|line| line.expect("it is readable").split(',').map(str::to_owned).collect())
        .collect();
    let column = |name: String| lines[0].iter().position(|other| *other == name).expect("it is there");
    let rows = || lines[1..].iter().step_by(STRIDE);
    let class = |field: &String| usize::from(field.as_bytes()[0] - b'A');
    let [candidates @ .., reference] = &MODELS;
    let right = column(format!("{reference}_pred"));
    let model = |name: &&str| {
        let (pred, conf) = (column(format!("{name}_pred")), column(format!("{name}_conf")));
        let outputs = rows().map(|row| {
            let confidence: f64 = row[conf].parse().expect("a confidence");
            let mut output = vec![(1.0 - confidence) / (CHOICES - 1) as f64; CHOICES];
            output[class(&row[pred])] = confidence;
            output
        });
        ModelProfile {
            name: (*name).into(),
            whole: pass(0.0, outputs.collect()),
            pruned: Vec::new(),
        }
    };
    Some(Repository {
        labels: rows().map(|row| class(&row[right])).collect(),
        models: candidates.iter().map(model).collect(),
        control_ms: 0.0,
    })
}

/// Models of a folder, as `tenantry cascade select` takes them.
fn saved(folder: &Path) -> Repository {
    let profiled = ProfiledModels::read(folder).unwrap_or_else(|error| panic!("{error}"));
    let ms = |us: &[f32]| -> Vec<f64> { us.iter().map(|&us| f64::from(us) / 1e3).collect() };
    let pass = |saved: &SavedOutputs| {
        let wide = |row: &Vec<f32>| row.iter().map(|&share| f64::from(share).clamp(0.0, 1.0)).collect();
        PassProfile {
            latency_ms: ms(&saved.service_us),
            attended_ms: ms(&saved.attended_us),
            outputs: saved.softmax.iter().map(wide).collect(),
        }
    };
    let pruned = |saved: &SavedOutputs| PrunedProfile {
        by: saved.steps().iter().map(|step| (step.by.clone(), step.alpha)).collect(),
        pass: pass(saved),
    };
    let models = profiled.models.iter().map(|model| ModelProfile {
        name: model.whole.model.clone(),
        whole: pass(&model.whole),
        pruned: model.pruned.iter().map(pruned).collect(),
    });
    Repository {
        labels: profiled.labels().iter().map(|&class| class as usize).collect(),
        models: models.collect(),
        control_ms: 0.0,
    }
}

fn main() {
    let parts = |draws: &mut Stream| -> Vec<f64> { (0..TARGETS).map(|_| draws.unit()).collect() };
    let target_draws = Draws::new(SEED, Purpose::Sweep);
    let mut of_drawn = Tallies::default();
    for number in 0..DRAWN {
        of_drawn.ask(&drawn(number), &parts(&mut target_draws.about(number)));
    }
    of_drawn.print("drawn");
    for (name, file) in TABLES {
        let Some(mut repository) = table(file) else {
            eprintln!("skipped: {file} is not there; set TENANTRY_DATA to the folder of public recordings");
            continue;
        };
        let mut of_table = Tallies::default();
        for number in 0..LATENCIES {
            let mut draws = target_draws.part(1).about(number);
            let mut latency_ms = between(&mut draws, 1.0, 8.0);
            for model in &mut repository.models {
                latency_ms *= between(&mut draws, 1.1, 3.0);
                model.whole.latency_ms.fill(latency_ms);
                model.whole.attended_ms.fill(latency_ms);
            }
            of_table.ask(&repository, &parts(&mut draws));
        }
        of_table.print(name);
    }
    for folder in std::env::args().skip(1) {
        let mut of_folder = Tallies::default();
        let tenths: Vec<f64> = (0..=1000).map(|tenth| f64::from(tenth) / 1000.0).collect();
        of_folder.ask(&saved(Path::new(&folder)), &tenths);
        of_folder.print(&folder);
    }
}
