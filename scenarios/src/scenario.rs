//! A resolved scenario, and the runs that it asks for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path as FilePath, PathBuf};

use tenantry_core::in_time::{Slo, Target};
use tenantry_core::spec::{ClusterSpec, SystemSpec};
use tenantry_traces::Duration;
use tenantry_traces::outcome::AnswersSpec;
use tenantry_traces::spec::WorkloadSpec;

use crate::error::{Problem, ScenarioError, ScenarioErrors};
use crate::files::files;
use crate::load::{self, Override};
use crate::origin::Origin;
use crate::path::Path;
use crate::plan::Plan;
use crate::raw::{Files, Jitter, RawAxis, RawCards, RawLimits, RawScenario};
use crate::resolve::Resolved;
use crate::{runtimes, tasks};

/// A question that has been read, checked and understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// As reports call it.
    pub name: String,
    /// Where it comes from: a path, or the name of one that comes with the program.
    pub file: String,
    /// Of the first repeat.
    pub seed: u64,
    /// The card's profile: a name or a path. A sweep may give single runs another one.
    pub card: String,
    /// The service-level objective, if there is one. A sweep may give single runs another one.
    pub slo: Option<Slo>,
    /// What cards cost an hour, by profile.
    pub prices: BTreeMap<String, f64>,
    /// How often each run is repeated with another seed.
    pub repeats: u32,
    /// How far simulated and executed figures may differ.
    pub validate: Option<Limits>,
    /// What `tenantry plan` searches for.
    pub plan: Option<Plan>,
    pub(crate) raw: RawScenario,
    pub(crate) points: Vec<Point>,
    pub(crate) origin: Origin,
}

/// One combination of the sweep's values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Point {
    pub parameters: Vec<(String, serde_json::Value)>,
    pub resolved: Resolved,
    /// What a simulation of it reads beside the scenario and its card.
    pub inputs: Vec<PathBuf>,
}

/// How far simulated and executed figures may differ: fractions of the executed ones. `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Of the mean latency.
    pub mean: Option<f64>,
    /// Of the latency at p98.
    pub p98: Option<f64>,
    /// Of the throughput.
    pub throughput: Option<f64>,
}

impl From<RawLimits> for Limits {
    fn from(raw: RawLimits) -> Limits {
        Limits {
            mean: raw.mean.map(|percent| percent.fraction()),
            p98: raw.p98.map(|percent| percent.fraction()),
            throughput: raw.throughput.map(|percent| percent.fraction()),
        }
    }
}

/// One system under one load on one cluster: all that a machine needs to be told.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSpec {
    /// The scenario's file, for messages.
    pub file: String,
    /// What serves.
    pub system: SystemSpec,
    /// What it is executed with in place of random weights and texts.
    pub files: Files,
    /// The sweep point: each swept path with its value, in the file's order.
    pub parameters: Vec<(String, serde_json::Value)>,
    /// From 0.
    pub repeat: u32,
    /// The scenario's seed and `repeat` together. Systems share it, and so see the same requests.
    pub seed: u64,
    /// What is asked, by whom and when, under this seed.
    pub workload: WorkloadSpec,
    /// How many tenants there are.
    pub tenants: u32,
    /// What the tenants' groups are called: those of [`tenantry_traces::generate::TenantGroups`] by number.
    pub tenant_groups: GroupNames,
    /// How many cards.
    pub gpus: u32,
    /// What the server may fill of each card's memory, where the scenario says so.
    pub gpu_memory_bytes: Option<u64>,
    /// The card's profile: a name or a path.
    pub card: String,
    /// What a card costs an hour, where the scenario says so.
    pub price_per_hour: Option<f64>,
    /// Requests that arrive in this time are left out of the figures.
    pub warm_up: Duration,
    /// The service-level objective.
    pub slo: Option<Slo>,
    /// What each service class is to be answered within: as the system plans by, or as its stream promises; where there
    /// is nothing of the kind, as in the scenario's first system that has it; else by the objective. Empty where
    /// tenants are in one class.
    pub class_targets: Vec<Option<Target>>,
    /// Whether simulated durations vary.
    pub jitter: Jitter,
    /// What models make of the requests, where that is known.
    pub answers: Option<AnswersSpec>,
}

/// Names of the groups that tenants fall into, in the scenario's order; empty where all are in one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupNames {
    /// Domains.
    pub domains: Vec<String>,
    /// Kinds.
    pub kinds: Vec<String>,
    /// Service classes: a request's class is an index into them.
    pub classes: Vec<String>,
}

impl RunSpec {
    /// The hardware, given how many bytes of the card's memory a server may fill where the scenario doesn't say, and
    /// how many copies and look-ups the machine makes at a time.
    pub fn cluster(&self, card_usable_bytes: u64, copy_lanes: u32, lookup_lanes: u32) -> ClusterSpec {
        ClusterSpec {
            gpus: self.gpus,
            gpu_memory_bytes: self.gpu_memory_bytes.unwrap_or(card_usable_bytes),
            shares_host_memory: false,
            copy_lanes,
            lookup_lanes,
        }
    }
}

fn all_set(overrides: &[String]) -> Vec<Override> {
    overrides.iter().map(|text| Override::set(text)).collect()
}

impl Scenario {
    /// The scenario in a file, or the shipped one of that name where there is no such file. `overrides` are
    /// `path=value`, with values in YAML, and apply in order before anything is checked.
    ///
    /// # Errors
    /// All that is wrong with the file and the overrides.
    pub fn load(path_or_name: &str, overrides: &[String]) -> Result<Scenario, ScenarioErrors> {
        load::load(path_or_name, &all_set(overrides))
    }

    /// As [`load`](Self::load), with overrides by any option.
    ///
    /// # Errors
    /// As [`load`](Self::load); they name the option.
    pub fn load_with(path_or_name: &str, overrides: &[Override]) -> Result<Scenario, ScenarioErrors> {
        let scenario = load::load(path_or_name, overrides)?;
        Ok(Scenario {
            file: path_or_name.to_owned(),
            ..scenario
        })
    }

    /// The scenario that `text` writes; `file` is what errors call it.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn from_yaml(file: &str, text: &str, overrides: &[String]) -> Result<Scenario, ScenarioErrors> {
        load::from_yaml(file, text, &all_set(overrides))
    }

    /// As [`from_yaml`](Self::from_yaml), with overrides by any option.
    ///
    /// # Errors
    /// As [`load`](Self::load); they name the option.
    pub fn from_yaml_with(file: &str, text: &str, overrides: &[Override]) -> Result<Scenario, ScenarioErrors> {
        load::from_yaml(file, text, overrides)
    }

    /// All runs: for each sweep point, for each repeat, each system.
    pub fn runs(&self) -> Vec<RunSpec> {
        let mut runs = Vec::new();
        for point in &self.points {
            for repeat in 0..self.repeats {
                let systems = point.resolved.systems.iter().zip(&point.resolved.files);
                runs.extend(systems.map(|(system, files)| point.run(&self.file, system, files, repeat)));
            }
        }
        runs
    }

    /// Whether keys are swept.
    pub fn has_sweep(&self) -> bool {
        !self.raw.sweep.is_empty()
    }

    /// Whether a key is swept.
    pub fn sweeps(&self, key: &str) -> bool {
        self.raw.sweep.0.iter().any(|(swept, _)| swept == key)
    }

    /// Whether a link between cards is given over which nothing goes: no system takes prompts in apart from tokens, at
    /// no point of the sweep, and no choice of the plan has one do it.
    pub fn has_idle_link(&self) -> bool {
        let is_apart = |system: &SystemSpec| {
            let generation = system.pool.generation.as_ref();
            generation.is_some_and(|generation| generation.disaggregated.is_some())
        };
        let may_be_chosen = self
            .plan
            .iter()
            .flat_map(|plan| &plan.ways)
            .flat_map(|way| &way.settings)
            .any(|(path, _)| ["generation", "generation.prefill_gpus"].contains(&path.as_str()));
        let points = || self.points.iter().map(|point| &point.resolved);
        points().any(|point| point.has_link)
            && !points().flat_map(|point| &point.systems).any(is_apart)
            && !may_be_chosen
    }

    /// How many tenants there are, where no sweep says otherwise.
    pub fn tenants(&self) -> u32 {
        self.raw.tenants.count.0
    }

    /// The scenario with every preset and every default written out. It loads again to the same runs.
    pub fn resolved_yaml(&self) -> String {
        written(&self.raw)
    }

    /// As [`resolved_yaml`](Self::resolved_yaml), with another `card` for the scenario's. Not of a sweep over cards.
    pub fn yaml_on(&self, card: &str) -> String {
        let mut raw = self.raw.clone();
        raw.card.0 = card.to_string();
        written(&raw)
    }

    /// As [`resolved_yaml`](Self::resolved_yaml), to be run in any folder: files by their absolute paths, those that
    /// were relative from `folder` on, and `card` for the scenario's card. Not of a sweep, whose values stay as they
    /// are.
    pub fn placed_yaml(&self, folder: &FilePath, card: &str) -> String {
        let mut raw = self.raw.clone();
        for file in files(&mut raw) {
            // Joined paths cannot be empty, which is all that can go wrong beside a lost working directory.
            *file = std::path::absolute(folder.join(&*file)).unwrap_or_else(|_| folder.join(&*file));
        }
        let before = std::mem::replace(&mut raw.card.0, card.to_string());
        // Other cards cost it nothing, and may be folders that are elsewhere.
        let price = raw.prices.remove(&before);
        raw.prices = price.into_iter().map(|price| (card.to_string(), price)).collect();
        written(&raw)
    }

    /// The files that simulations of it read: recordings, tables, tokenizers, texts; a folder where outcomes are those
    /// of profiled models. As the scenario names them, at all points of the sweep.
    pub fn inputs(&self) -> BTreeSet<PathBuf> {
        self.points.iter().flat_map(|point| &point.inputs).cloned().collect()
    }

    /// Those of [`inputs`](Self::inputs) that each run's simulation reads, in the order of [`runs`](Self::runs).
    pub fn inputs_by_run(&self) -> Vec<&[PathBuf]> {
        let runs = |point: &Point| self.repeats as usize * point.resolved.systems.len();
        let points = self.points.iter();
        points.flat_map(|point| std::iter::repeat_n(&point.inputs[..], runs(point))).collect()
    }

    /// An error in this crate's own words about the value at `path`, such as `workload.stop`, which only who runs the
    /// scenario could find.
    pub fn wrong(&self, path: &str, must: impl Into<String>, got: impl fmt::Display) -> ScenarioError {
        let path = Path::parse(path).unwrap_or_default();
        self.origin.error(Problem::new(path, must, got))
    }

    /// Likewise about `card`, where the scenario names it: as its own, in the sweep, the plan or the prices.
    pub fn wrong_card(&self, card: &str, must: impl Into<String>, suggestion: Option<String>) -> ScenarioError {
        let error = self.origin.error(Problem::new(self.place_of_card(card), must, card));
        ScenarioError { suggestion, ..error }
    }

    fn place_of_card(&self, card: &str) -> Path {
        let root = Path::default();
        if self.raw.card.0 == card {
            return root.key("card");
        }
        let swept = self.raw.sweep.0.iter().find(|(path, _)| path == "card");
        if let Some((path, RawAxis::Values(values))) = swept
            && let Some(index) = values.iter().position(|value| value.as_str() == Some(card))
        {
            return root.key("sweep").key(path).index(index);
        }
        let cards = root.key("plan").key("cards");
        match self.raw.plan.as_ref().and_then(|plan| plan.cards.as_ref()) {
            Some(RawCards::List(list)) if list.iter().any(|name| name == card) => {
                cards.index(list.iter().position(|name| name == card).unwrap_or(0))
            }
            Some(RawCards::Priced(priced)) if priced.contains_key(card) => cards.key(card),
            _ => root.key("prices").key(card),
        }
    }
}

/// A scenario as YAML, with all that it says.
pub(crate) fn written(raw: &RawScenario) -> String {
    let mut yaml = Vec::new();
    let mut serializer = serde_yaml::Serializer::new(&mut yaml);
    serde_yaml::with::singleton_map_recursive::serialize(raw, &mut serializer).expect("raw types are plain YAML");
    String::from_utf8(yaml).expect("YAML is written in UTF-8")
}

impl Point {
    fn run(&self, file: &str, system: &SystemSpec, files: &Files, repeat: u32) -> RunSpec {
        let Resolved {
            workload,
            tenant_groups,
            task_kinds,
            warm_up,
            gpus,
            gpu_memory_bytes,
            card,
            price_per_hour,
            slo,
            jitter,
            answers,
            systems: _,
            files: _,
            has_link: _,
        } = &self.resolved;
        // Every draw hashes its seed, so that neighbouring seeds have nothing in common; and each repeat can be run
        // alone by giving its seed.
        let seed = workload.seed.wrapping_add(u64::from(repeat));
        let workload = WorkloadSpec {
            seed,
            ..workload.clone()
        };
        let targets = |system: &SystemSpec| tasks::targets(system).or_else(|| runtimes::targets(system));
        let of_system = targets(system).or_else(|| self.resolved.systems.iter().find_map(targets));
        let class_target = |class: usize| match &of_system {
            Some(targets) => targets.get(class).or(targets.last()).copied().map(Target::of_latency),
            None => slo.map(|slo| slo.target),
        };
        let class_targets = (0..tenant_groups.classes.len()).map(class_target).collect();
        let mut system = system.clone();
        tasks::register(file, &mut system.pool, task_kinds, &workload);
        if let Some(route) = &mut system.route {
            route.seed = seed;
        }
        RunSpec {
            file: file.to_owned(),
            files: files.clone(),
            system,
            parameters: self.parameters.clone(),
            repeat,
            seed,
            workload,
            tenants: self.resolved.workload.tenants,
            tenant_groups: tenant_groups.clone(),
            gpus: *gpus,
            gpu_memory_bytes: *gpu_memory_bytes,
            card: card.clone(),
            price_per_hour: *price_per_hour,
            warm_up: *warm_up,
            slo: *slo,
            class_targets,
            jitter: *jitter,
            answers: answers.clone(),
        }
    }
}
