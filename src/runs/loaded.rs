//! A scenario with the cards that its runs name, and what of it cannot be run.

use std::collections::BTreeMap;

use tenantry_core::spec::Met;
use tenantry_profiles::Card;
use tenantry_profiles::roofline::complete;
use tenantry_scenarios::plan::Plan;
use tenantry_scenarios::{Distinct, RunSpec, Scenario, ScenarioError};

use super::scenario;
use crate::cards::{card_of, card_of_option, needs, on_card, refusal};
use crate::cli::ScenarioArgs;
use crate::failure::Failure;
use crate::lookups::Lookups;

/// A scenario with the cards that its runs name.
pub struct Loaded {
    pub scenario: Scenario,
    pub runs: Vec<RunSpec>,
    pub(crate) cards: BTreeMap<String, Card>,
    /// Why a run cannot be had on its card, by its number.
    unfit: BTreeMap<usize, String>,
}

impl Loaded {
    /// Reads the scenario, whose runs must all be possible on their cards. `profile` replaces the card of every run.
    pub fn load(args: &ScenarioArgs, profile: Option<&str>) -> Result<Loaded, Failure> {
        Loaded::of(scenario(args, profile)?, profile)
    }

    /// Likewise where `made` stands for the card of its name.
    pub fn load_with(args: &ScenarioArgs, made: &Card) -> Result<Loaded, Failure> {
        let find = |scenario: &Scenario, name: &str| match name == made.name {
            true => Ok(made.clone()),
            false => card_of(scenario, name),
        };
        Loaded::found(scenario(args, None)?, None, find)?.if_all_fit()
    }

    /// Finds the cards of a scenario, on which all of its runs must be possible.
    pub fn of(scenario: Scenario, profile: Option<&str>) -> Result<Loaded, Failure> {
        Loaded::of_what_fits(scenario, profile)?.if_all_fit()
    }

    fn if_all_fit(self) -> Result<Loaded, Failure> {
        match self.unfit.first_key_value() {
            None => Ok(self),
            Some((run, why)) => Err(self.refused(*run, why)),
        }
    }

    /// A [refusal](Self::refusal) of a run as an error: by where the scenario, or an option over it, has the key that
    /// it names, else the system.
    fn refused(&self, run: usize, why: &str) -> Failure {
        let of_key = why.strip_prefix(&self.scenario.file).and_then(|rest| rest.strip_prefix(": ")?.split_once(": "));
        let of_system = || (format!("systems[{}]", system_number(&self.runs, run)), why);
        let (path, why) = of_key.map_or_else(of_system, |(path, why)| (path.to_owned(), why));
        let ScenarioError { file, line, path, .. } = self.scenario.wrong(&path, "", "");
        let line = line.map_or(String::new(), |line| format!(":{line}"));
        Failure::BadInput(format!("{file}{line}: {path}: {why}"))
    }

    /// Finds the cards of a scenario. Runs that are not possible on theirs are [refused](Self::refusal).
    pub fn of_what_fits(scenario: Scenario, profile: Option<&str>) -> Result<Loaded, Failure> {
        Loaded::found(scenario, profile, |scenario, name| match profile {
            Some(profile) => card_of_option("--profile", profile),
            None => card_of(scenario, name),
        })
    }

    fn found(
        scenario: Scenario,
        profile: Option<&str>,
        find: impl Fn(&Scenario, &str) -> Result<Card, Failure>,
    ) -> Result<Loaded, Failure> {
        if let Some(profile) = profile
            && scenario.sweeps("card")
        {
            let must = "must be left out where sweep.card says which cards there are";
            return Err(Failure::BadInput(format!("--profile: {must}, got {profile}")));
        }
        let mut runs = scenario.runs();
        let lookups = Lookups::default();
        let is_counted = |run: &RunSpec| run.system.pool.plot.is_some_and(|plot| plot.met == Met::Counted);
        for (index, run) in runs.iter().enumerate().filter(|(_, run)| is_counted(run)) {
            lookups.check_texts(&scenario, system_number(&runs, index), run)?;
        }
        let mut cards = BTreeMap::new();
        let mut needed = Distinct::default();
        let mut unfit = BTreeMap::new();
        for (index, run) in runs.iter_mut().enumerate() {
            if let Some(profile) = profile {
                run.card = profile.to_owned();
            }
            if !cards.contains_key(&run.card) {
                cards.insert(run.card.clone(), find(&scenario, &run.card)?);
            }
            let card = cards.get_mut(&run.card).expect("it was found above");
            if let Some(profile) = profile {
                // By what it was given as, or by the name that it has.
                let prices = &scenario.prices;
                run.price_per_hour = prices.get(profile).or_else(|| prices.get(&card.name)).copied();
            }
            complete(
                card,
                needs(run).filter(|need| needed.insert((run.card.clone(), need.clone()))),
            );
            match on_card(run, card, &lookups)? {
                Ok(system) => run.system = system,
                Err(why) => drop(unfit.insert(index, why)),
            }
        }
        // A price under a wrong name would be missing, and nobody would say so.
        let is_known = |name: &&String| cards.contains_key(*name) || cards.values().any(|card| card.name == **name);
        for card in scenario.prices.keys().filter(|name| !is_known(name)) {
            card_of(&scenario, card)?;
        }
        Ok(Loaded {
            scenario,
            runs,
            cards,
            unfit,
        })
    }

    /// Adds to the cards what they lack of the runs' models, as they are by now.
    pub fn complete(&mut self) {
        for run in &self.runs {
            complete(
                self.cards.get_mut(&run.card).expect("each run's card was found"),
                needs(run),
            );
        }
    }

    /// Why run number `run` is not possible on its card, whatever is asked of it; nothing where it is.
    pub fn refusal(&self, run: usize) -> Option<String> {
        let spec = &self.runs[run];
        self.unfit.get(&run).cloned().or_else(|| refusal(spec, self.card(spec)))
    }

    /// Whether each run's texts can be read: to be asked before any run is executed, which may be long after others.
    /// Other seeds change nothing of that.
    pub fn check_texts(&self) -> Result<(), Failure> {
        let lookups = Lookups::default();
        let mut runs = self.runs.iter().enumerate().filter(|(_, run)| run.repeat == 0);
        runs.try_for_each(|(index, run)| lookups.check_texts(&self.scenario, system_number(&self.runs, index), run))
    }

    /// Whether each run's system can be made on its card, and each of its ops has a price there: to be asked before any
    /// run is.
    pub fn check_priced(&self) -> Result<(), Failure> {
        // Repeats are the same system on the same card.
        let mut runs = (0..self.runs.len()).filter(|run| self.runs[*run].repeat == 0);
        match runs.find_map(|run| Some((run, self.refusal(run)?))) {
            None => Ok(()),
            Some((run, why)) => Err(self.refused(run, &why)),
        }
    }

    /// All cards, with what the runs call them.
    pub fn cards_by_name(&self) -> impl Iterator<Item = (&String, &Card)> {
        self.cards.iter()
    }

    /// Has every op of a card of this name take so many times as long; the card's own name.
    pub fn at_pace(&mut self, name: &str, ratio: f64) -> &str {
        let card = self.cards.get_mut(name).expect("it was named by these runs");
        *card = card.at_pace(ratio);
        &card.name
    }

    /// A scenario without runs, with the cards that its plan chooses among.
    pub fn of_plan(scenario: Scenario, plan: &Plan) -> Result<Loaded, Failure> {
        let found = plan.cards.iter().map(|(card, _)| Ok((card.clone(), card_of(&scenario, card)?)));
        Ok(Loaded {
            cards: found.collect::<Result<_, Failure>>()?,
            scenario,
            runs: Vec::new(),
            unfit: BTreeMap::new(),
        })
    }

    /// The card of one of the runs.
    pub fn card(&self, run: &RunSpec) -> &Card {
        &self.cards[&run.card]
    }

    /// All cards, that of the first run first, for the manifest.
    pub fn all_cards(&self) -> Vec<&Card> {
        let of_first_run = self.runs.first().map(|run| &run.card);
        let mut cards: Vec<(&String, &Card)> = self.cards.iter().collect();
        cards.sort_by_key(|(name, _)| Some(*name) != of_first_run);
        cards.into_iter().map(|(_, card)| card).collect()
    }

    /// All cards, by name.
    pub fn cards(&self) -> impl Iterator<Item = &Card> {
        self.cards.values()
    }

    /// Digests of the cards, by what runs call them.
    pub fn card_digests(&self) -> BTreeMap<&str, String> {
        let cards = self.cards.iter();
        cards.map(|(name, card)| (name.as_str(), card.digest())).collect()
    }

    /// The scenario as it is run: with all that it leaves out, and on the card that was asked for.
    pub fn resolved_yaml(&self) -> String {
        match self.runs.first() {
            Some(run) if !self.scenario.sweeps("card") => self.scenario.yaml_on(&run.card),
            _ => self.scenario.resolved_yaml(),
        }
    }

    /// The scenario's limits on the difference between the machines.
    pub fn limits(&self) -> tenantry_reports::Limits {
        match &self.scenario.validate {
            None => tenantry_reports::Limits::default(),
            Some(limits) => tenantry_reports::Limits {
                mean: limits.mean,
                p98: limits.p98,
                throughput: limits.throughput,
            },
        }
    }
}

/// Which of the scenario's systems a run is of: each serves in turn at a point of the sweep.
fn system_number(runs: &[RunSpec], run: usize) -> usize {
    let of = |run: &RunSpec| (run.repeat, run.parameters.clone());
    let before = runs[..run].iter().rev();
    before.take_while(|other| of(other) == of(&runs[run])).count()
}
