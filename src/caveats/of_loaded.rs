//! What a reader must know of a scenario's cards and runs before trusting their figures.

use std::collections::{BTreeMap, BTreeSet};

use tenantry_core::server::tasks::refusals;
use tenantry_profiles::{Card, Device, DeviceKind, Source};
use tenantry_reports::human;
use tenantry_scenarios::RunSpec;
use tenantry_traces::spec::{LengthSpec, LengthsSpec};

use super::{
    Measured, TableUsed, as_compiled, drawn_answer_caveats, in_order, lengths_without_steps, lookups_in_page_cache,
    more_memory_than_there_is, of_another_device, planned_for_another_target, pruned_in_vain, side_by_side_as_if_alone,
    sizes_as_measured, slower_than_slo, table_caveats, undisturbed, unpriced_looks, unpriced_models,
};
use crate::cards::cluster;
use crate::runs::Loaded;

impl Loaded {
    /// What a reader must know of the cards before trusting figures that they priced.
    pub fn card_caveats(&self) -> Vec<String> {
        // Cards that were come by alike are named in one sentence.
        let mut derived: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
        for (name, card) in &self.cards {
            let of = &card.provenance;
            if of.source != Source::Measured {
                let how = crate::output::come_by(of.source);
                derived.entry((how, &of.date)).or_default().push(name);
            }
        }
        let unmeasured = |((how, date), names): (&(&str, &str), &Vec<&str>)| match names[..] {
            [name] => {
                format!("Card {name} was not measured: {how} on {date}; `tenantry profile show {name}` says from what.")
            }
            _ => format!(
                "Cards {} were not measured: {how} on {date}; `tenantry profile show {}` and so on say from what.",
                names.join(", "),
                names[0]
            ),
        };
        let mut caveats: Vec<String> = derived.iter().map(unmeasured).collect();
        caveats.extend(undisturbed(self.cards.values()));
        caveats.extend(self.run_caveats());
        caveats.extend(self.price_caveat());
        caveats.extend(self.idle_link_caveat());
        caveats.extend(self.idle_outputs_caveat());
        caveats.sort();
        caveats.dedup();
        caveats
    }

    /// What a reader must know of how the runs' systems are priced.
    pub fn run_caveats(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for (index, run) in self.runs.iter().enumerate() {
            let mut caveats = Vec::new();
            let (card, name) = (self.card(run), &run.system.name);
            caveats.extend(side_by_side_as_if_alone(card, run));
            caveats.extend(slower_than_slo(card, &run.system));
            caveats.extend(planned_for_another_target(&run.system, run.slo));
            caveats.extend(as_compiled(card, &run.system));
            caveats.extend(more_memory_than_there_is(card, run));
            caveats.extend(unpriced_looks(card, &run.system));
            if run.repeat == 0 {
                caveats.extend(drawn_answer_caveats(run.answers.as_ref(), &run.system));
            }
            caveats.extend(pruned_in_vain(&run.system));
            caveats.extend(unpriced_models(card, &run.system));
            caveats.extend(lookups_in_page_cache(card, &run.system));
            caveats.extend(sizes_as_measured(&run.system));
            caveats.extend(lengths_without_steps(card, &run.system));
            let model = &run.system.pool.model.name;
            let mut beside = card.tables.concurrent_step.iter();
            let is_measured = run.system.pool.generation.is_some() && beside.any(|row| row.model == *model);
            if card.device.kind == DeviceKind::Cpu && run.gpus > 1 && !is_measured {
                caveats.push(format!(
                    "{name}: {} cards of {} are simulated as so many machines; on one machine they would share its {} \
                     cores.",
                    run.gpus, card.name, card.device.host.cores
                ));
            }
            // What is left out of a sweep, since its card cannot run it, promises nothing.
            caveats.retain(|caveat| !all.contains(caveat));
            if !caveats.is_empty() && self.refusal(index).is_none() {
                all.extend(caveats);
            }
        }
        all
    }

    /// What a reader must know of answers that no model gave, whatever machine ran.
    pub fn answer_caveats(&self) -> Vec<String> {
        let of_run = |run: &RunSpec| drawn_answer_caveats(run.answers.as_ref(), &run.system);
        let firsts = self.runs.iter().filter(|run| run.repeat == 0);
        firsts.flat_map(of_run).collect()
    }

    /// Tasks that are refused, each alone: by what the scenario or their files' headers say.
    pub fn refused_tasks(&self) -> Vec<String> {
        let of_run = |run: &RunSpec| {
            let refused = refusals(&cluster(run, self.card(run)), &run.system.pool, run.tenants);
            let of_system = refused.into_iter().map(|why| format!("{}: refused: {why}", run.system.name));
            of_system.collect::<Vec<_>>()
        };
        in_order(self.runs.iter().flat_map(of_run).collect())
    }

    /// A sentence on the prices that costs are reckoned by.
    fn price_caveat(&self) -> Option<String> {
        let priced = self.runs.iter().filter_map(|run| Some((&run.card, run.price_per_hour?)));
        let mut prices: Vec<String> = priced.map(|(card, price)| format!("{card} {price}")).collect();
        prices.sort();
        prices.dedup();
        (!prices.is_empty()).then(|| {
            format!(
                "Costs are by the prices that the scenario gives, a card and hour: {}. All cards of the cluster are \
                 paid all the time, but those that come and go only while they are there.",
                prices.join(", ")
            )
        })
    }

    /// A sentence on a link between cards over which nothing goes.
    fn idle_link_caveat(&self) -> Option<String> {
        self.scenario.has_idle_link().then(|| {
            "cluster.link has no effect: what goes over it is what prompts leave on cards that take in prompts alone, and \
             no system has such cards (generation.prefill_gpus)."
                .to_owned()
        })
    }

    /// A sentence on tokens that are asked for and that no system generates.
    fn idle_outputs_caveat(&self) -> Option<String> {
        let asked = |run: &RunSpec| match &run.workload.lengths {
            LengthsSpec::Independent { output, .. } => *output != LengthSpec::Fixed(0),
            _ => false,
        };
        let generates = |run: &RunSpec| run.system.pool.generation.is_some();
        (self.runs.iter().any(asked) && !self.runs.iter().any(generates))
            .then(|| "workload.lengths.output has no effect: no system generates tokens (generation).".to_owned())
    }

    /// The tables that the runs so far used and that were not measured.
    pub fn tables_used(&self) -> BTreeSet<TableUsed> {
        self.cards.values().flat_map(TableUsed::of_card).collect()
    }

    /// A sentence on each origin other than a measurement, with the tables from there that the runs so far used.
    pub fn table_caveats(&self) -> Vec<String> {
        table_caveats(&self.tables_used())
    }

    /// Where and when the processors' cards among them were measured.
    pub fn measured(&self) -> impl Iterator<Item = Measured> {
        self.cards.values().filter_map(Measured::of_card)
    }

    /// A sentence on each measured card whose prices need not be this machine's of today.
    pub fn machine_caveats(&self) -> Vec<String> {
        Measured::otherwise_than_here(self.measured())
    }

    /// A sentence on each card that is of another device than the one that executes: what is compared are two devices.
    pub fn device_caveats(&self, here: &Device) -> Vec<String> {
        let so = "simulated and executed figures are of two devices";
        let cards = self.cards.values();
        cards.filter_map(|card| of_another_device(card, here, so)).collect()
    }

    /// The same where nothing is simulated: of the card's times none are in the figures, and its price is.
    pub fn executed_device_caveats(&self, here: &Device) -> Vec<String> {
        let of = |(name, card): (&String, &Card)| {
            let prices = self.runs.iter().filter(|run| run.card == *name);
            let prices: BTreeSet<String> =
                prices.filter_map(|run| run.price_per_hour).map(|price| price.to_string()).collect();
            let prices: Vec<String> = prices.into_iter().collect();
            let so = match prices.is_empty() {
                true => "figures are of the latter".to_owned(),
                false => format!(
                    "figures are of the latter, and costs are by the price of the former ({} a card and hour)",
                    human::listed(&prices)
                ),
            };
            of_another_device(card, here, &so)
        };
        self.cards.iter().filter_map(of).collect()
    }
}
