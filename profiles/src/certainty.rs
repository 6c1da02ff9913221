//! How well the medians of a card's tables are known.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::card::{Card, Device, Provenance};
use crate::error::Invalid;
use crate::family::Family;
use crate::model::ModelShape;
use crate::origin::{Origin, Origins};
use crate::slice::Slice;
use crate::stats::nearest_rank;

/// How well one table's medians are known: half the width of their 95 % confidence intervals, as a share of the median.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Certainty {
    /// The op family.
    pub family: Family,
    /// Which of the family's tables, as `tenantry profile show` calls it.
    pub table: String,
    /// Measured points.
    pub points: usize,
    /// Points that were visited too rarely to tell.
    #[serde(default, skip_serializing_if = "is_none")]
    pub untold: usize,
    /// Of the other points, that of the one in the middle; absent where none tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_width: Option<f64>,
    /// The widest of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub widest: Option<f64>,
}

fn is_none(count: &usize) -> bool {
    *count == 0
}

impl Certainty {
    /// Of a table whose points have these half widths, infinite where one cannot be told.
    pub fn of(family: Family, table: String, half_widths: &[f64]) -> Certainty {
        let mut told: Vec<f64> = half_widths.iter().copied().filter(|width| width.is_finite()).collect();
        told.sort_by(f64::total_cmp);
        // As many digits as are worth it.
        let rounded = |width: f64| (1e4 * width).round() / 1e4;
        Certainty {
            family,
            table,
            points: half_widths.len(),
            untold: half_widths.len() - told.len(),
            half_width: (!told.is_empty()).then(|| rounded(nearest_rank(&told, 50))),
            widest: told.last().copied().map(rounded),
        }
    }
}

impl Card {
    /// How well a table's medians are known, where that was kept.
    pub fn certainty_of(&self, family: Family, table: &str) -> Option<&Certainty> {
        self.certainty
            .iter()
            .find(|certainty| certainty.family == family && certainty.table == table)
    }

    /// Refuses what is no half width, and what is said of no table; `file` is what errors call `card.yaml`.
    pub(crate) fn check_certainty(&self, file: &str) -> Result<(), Invalid> {
        let slices = self.tables.slices();
        for (index, certainty) in self.certainty.iter().enumerate() {
            let field = |name: &str| format!("certainty[{index}].{name}");
            let known = |slice: &&Slice| (slice.family, &slice.label) == (certainty.family, &certainty.table);
            if slices.iter().find(known).is_none() {
                let must = format!("a table of {} that the card has", certainty.family);
                return Err(Invalid::new(
                    file,
                    &field("table"),
                    must,
                    format!("{:?}", certainty.table),
                ));
            }
            let again = |other: &&Certainty| (other.family, &other.table) == (certainty.family, &certainty.table);
            if self.certainty[..index].iter().find(again).is_some() {
                let must = "a table that is said nothing of before";
                let got = format!("{:?} again", certainty.table);
                return Err(Invalid::new(file, &field("table"), must, got));
            }
            if certainty.points == 0 {
                return Err(Invalid::new(file, &field("points"), "at least 1", "0"));
            }
            if certainty.untold > certainty.points {
                let must = format!("at most the {} points", certainty.points);
                return Err(Invalid::new(file, &field("untold"), must, certainty.untold.to_string()));
            }
            for (name, width) in [("half_width", certainty.half_width), ("widest", certainty.widest)] {
                if let Some(width) = width
                    && !(width.is_finite() && width >= 0.0)
                {
                    return Err(Invalid::new(file, &field(name), "a share from 0", width.to_string()));
                }
            }
            if let (Some(half_width), Some(widest)) = (certainty.half_width, certainty.widest)
                && half_width > widest
            {
                let must = format!("at most the widest, {widest}");
                return Err(Invalid::new(file, &field("half_width"), must, half_width.to_string()));
            }
        }
        Ok(())
    }

    /// Refuses to be added to by what is measured on another device, or with another libtorch.
    ///
    /// # Errors
    /// It is another.
    pub fn check_same_device(&self, other: &Device) -> Result<(), Invalid> {
        let libtorch = |device: &Device| device.libtorch.clone().unwrap_or_default();
        let ours = &self.device;
        for (field, ours, theirs) in [
            ("device.name", ours.name.clone(), other.name.clone()),
            ("device.host.cpu", ours.host.cpu.clone(), other.host.cpu.clone()),
            (
                "device.host.cores",
                ours.host.cores.to_string(),
                other.host.cores.to_string(),
            ),
            ("device.libtorch", libtorch(ours), libtorch(other)),
        ] {
            if ours != theirs {
                let must = format!("{theirs:?}, to be added to");
                return Err(Invalid::new(&self.name, field, must, format!("{ours:?}")));
            }
        }
        Ok(())
    }

    /// Refuses models that are called as known ones and are others: tables are told apart by their models' names.
    ///
    /// # Errors
    /// One is another.
    pub fn check_same_models(&self, models: &[ModelShape]) -> Result<(), Invalid> {
        for model in models {
            let known = self.models.iter().find(|known| known.name == model.name).cloned();
            if let Some(known) = known.or_else(|| ModelShape::builtin(&model.name))
                && known != *model
            {
                let must = format!(
                    "the model of that name that is there, {}, to be added to; another needs a name, or a card, of its own",
                    known.in_words()
                );
                return Err(Invalid::new(
                    &self.name,
                    &format!("models.{}", model.name),
                    must,
                    model.in_words(),
                ));
            }
        }
        Ok(())
    }

    /// Where each table comes from, and when where that is the card's own command: that of all that was added to a card says nothing of one table.
    fn table_origins(&self) -> Vec<Origin> {
        let Provenance { command, date, .. } = &self.provenance;
        let of_table = |slice: &Slice| {
            let origin = self.origin(slice.family, &slice.label);
            Origin {
                table: Some(slice.label.clone()),
                source: match origin.source == *command {
                    true => format!("{command}, on {date}"),
                    false => origin.source.clone(),
                },
                ..origin
            }
        };
        self.tables.slices().iter().map(of_table).collect()
    }

    /// Adds what another card of the same device has beside: its tables, those that this one has too left out. Each table has an origin then that
    /// says by which command it was measured and when.
    ///
    /// # Errors
    /// It is another device's, or was measured with another libtorch.
    pub fn add_measured(&mut self, mut other: Card) -> Result<(), Invalid> {
        self.check_same_device(&other.device)?;
        self.check_same_models(&other.models)?;
        let slices = self.tables.slices();
        other.certainty.retain(|certainty| {
            slices
                .iter()
                .all(|slice| (slice.family, &slice.label) != (certainty.family, &certainty.table))
        });
        self.certainty.append(&mut other.certainty);
        other.held_out.leave_out(&self.tables);
        other.tables.leave_out(&self.tables);
        self.origins = Origins::new([self.table_origins(), other.table_origins()].concat());
        self.held_out.replace_with(&other.held_out);
        self.tables.replace_with(&other.tables);
        for limits in other.limits {
            if self.limits_of(limits.dtype).is_none() {
                self.limits.push(limits);
            }
        }
        for model in other.models {
            if self.models.iter().all(|known| known.name != model.name) {
                self.models.push(model);
            }
        }
        if self.provenance.boot != other.provenance.boot {
            self.provenance.boot = None;
        }
        let command = &other.provenance.command;
        if self.provenance.command.split(" && ").all(|known| known != command) {
            self.provenance.command = format!("{} && {command}", self.provenance.command);
        }
        for note in other.provenance.notes {
            let note = format!("added {}: {note}", other.provenance.date);
            if !self.provenance.notes.contains(&note) {
                self.provenance.notes.push(note);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::DType;
    use crate::testing::synthetic_card;

    #[test]
    fn points_that_tell_nothing_are_counted_apart() {
        let of = |widths: &[f64]| Certainty::of(Family::Copy, "here".into(), widths);
        let some = of(&[0.5, f64::INFINITY, 0.010_04, 0.2]);
        assert_eq!((some.points, some.untold), (4, 1));
        assert_eq!((some.half_width, some.widest), (Some(0.2), Some(0.5)));
        let none = of(&[f64::INFINITY; 2]);
        assert_eq!((none.untold, none.half_width, none.widest), (2, None, None));
    }

    #[test]
    fn what_is_added_leaves_what_is_there() {
        let whole = synthetic_card();
        let label = whole.tables.slices()[0].label.clone();
        let certainty = |widest| Certainty::of(Family::EncoderLayer, label.clone(), &[widest]);
        let mut card = whole.clone();
        card.tables.pet.clear();
        card.certainty.push(certainty(0.01));
        let mut other = whole.clone().at_pace(2.0);
        other.certainty.push(certainty(0.5));
        other.provenance.command = "tenantry profile --device cpu --models tiny --add".into();
        other.provenance.notes = vec!["few points".into()];
        card.provenance.boot = Some("yesterday's".into());
        other.provenance.boot = Some("today's".into());
        card.add_measured(other.clone()).unwrap();
        card.validate().unwrap();
        assert_eq!(card.device, whole.device);
        let model = ModelShape::builtin("tiny").unwrap();
        let layer = |card: &Card| card.encoder_layer(&model, DType::F32).unwrap().cost(4, 64).median_ns;
        assert_eq!(layer(&card), layer(&whole));
        assert_eq!(card.tables.pet, other.tables.pet);
        let source = |family, table: &str| card.origin(family, table).source;
        let pet = other
            .tables
            .slices()
            .into_iter()
            .find(|slice| slice.family == Family::Pet)
            .unwrap();
        assert_eq!(
            source(Family::Pet, &pet.label),
            "tenantry profile --device cpu --models tiny --add, on 1970-01-01"
        );
        assert_eq!(
            source(Family::EncoderLayer, &label),
            "none: tenantry_profiles::testing::synthetic_card, on 1970-01-01"
        );
        assert_eq!(
            card.certainty_of(Family::EncoderLayer, &label).unwrap().widest,
            Some(0.01)
        );
        assert!(
            card.provenance
                .command
                .ends_with(" && tenantry profile --device cpu --models tiny --add")
        );
        assert!(card.provenance.notes.last().unwrap().ends_with(": few points"));
        assert_eq!(card.provenance.boot, None, "of two starts");

        other.device.host.cpu = "another".into();
        let refused = card.add_measured(other).unwrap_err();
        assert_eq!(refused.field, "device.host.cpu");
    }

    #[test]
    fn a_certainty_of_no_table_and_one_below_none_are_refused() {
        let mut card = synthetic_card();
        let label = card.tables.slices()[0].label.clone();
        card.certainty.push(Certainty::of(Family::EncoderLayer, label, &[0.1]));
        card.validate().unwrap();
        let refused = |change: fn(&mut Certainty)| {
            let mut broken = card.clone();
            change(&mut broken.certainty[0]);
            broken.validate().unwrap_err().to_string()
        };
        let table = refused(|certainty| certainty.table = "model=huge".into());
        assert!(
            table.contains("certainty[0].table: must be a table of encoder_layer"),
            "{table}"
        );
        let width = refused(|certainty| certainty.widest = Some(-0.1));
        assert!(
            width.contains("certainty[0].widest: must be a share from 0, got -0.1"),
            "{width}"
        );
        let turned = refused(|certainty| certainty.half_width = Some(0.2));
        assert!(
            turned.contains("certainty[0].half_width: must be at most the widest, 0.1, got 0.2"),
            "{turned}"
        );
        let untold = refused(|certainty| certainty.untold = 2);
        assert!(
            untold.contains("certainty[0].untold: must be at most the 1 points, got 2"),
            "{untold}"
        );
        let mut twice = card.clone();
        twice.certainty.push(card.certainty[0].clone());
        let twice = twice.validate().unwrap_err().to_string();
        assert!(
            twice.contains("certainty[1].table: must be a table that is said nothing of before"),
            "{twice}"
        );
    }
}
