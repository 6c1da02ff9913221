//! How fast the machine is, measured again and again while requests are executed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenantry_executor::profiler::{Pace, gauge};
use tenantry_profiles::{DType, ModelShape};

use crate::device::Device;
use crate::profile::models_of;
use tenantry::failure::Failure;
use tenantry::runs::Loaded;

/// What was measured of it so far.
pub struct Gauging {
    models: Vec<ModelShape>,
    dtype: DType,
    /// By card, as the runs call it.
    paces: BTreeMap<String, Vec<Pace>>,
    interrupted: bool,
}

impl Gauging {
    /// Nothing yet, of these runs' models.
    pub fn of(loaded: &Loaded) -> Result<Gauging, Failure> {
        let (models, dtype) = models_of(&loaded.runs)?;
        Ok(Gauging {
            models,
            dtype,
            paces: BTreeMap::new(),
            interrupted: false,
        })
    }

    /// Measures it once more.
    pub fn measure(&mut self, loaded: &Loaded, device: &Device, interrupt: &Arc<AtomicBool>) -> Result<(), Failure> {
        for (name, card) in loaded.cards_by_name() {
            let seed = loaded.scenario.seed;
            let pace =
                gauge(card, &self.models, self.dtype, device.torch(), seed, interrupt).map_err(Failure::running)?;
            self.paces.entry(name.clone()).or_default().extend(pace);
        }
        self.interrupted |= interrupt.load(Ordering::Relaxed);
        Ok(())
    }

    /// Prices ops by what they took meanwhile, in the mean, and says so.
    pub fn price(&self, loaded: &mut Loaded) -> Vec<String> {
        let mut sentences = Vec::new();
        for (name, paces) in &self.paces {
            let Some(first) = paces.first() else {
                // What was not come to says nothing of the card.
                if self.interrupted {
                    continue;
                }
                sentences.push(format!(
                    "Card {name} has no points of these models' layers to gauge the machine by."
                ));
                continue;
            };
            let mean = paces.iter().map(|pace| pace.ratio).sum::<f64>() / paces.len() as f64;
            let each: Vec<String> = paces.iter().map(|pace| format!("{:.3}", pace.ratio)).collect();
            let card = loaded.at_pace(name, mean);
            sentences.push(format!(
                "Ops are priced at {mean:.3} times what card {card} says: that is what {} of its points took each time \
                 that they were measured, before, between and after the executions ({}).",
                first.points,
                each.join(", ")
            ));
        }
        sentences
    }
}
