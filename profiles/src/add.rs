//! What was measured later on the same device, added to a card.

use crate::card::{Card, Contention, Device, Provenance, Source};
use crate::certainty::Certainty;
use crate::error::Invalid;
use crate::family::Family;
use crate::limits::Limits;
use crate::model::ModelShape;
use crate::origin::{Origin, Origins};
use crate::slice::Slice;
use crate::summary::{LeftOut, TableError, leave_out_errors};
use crate::tables::Tables;

impl Card {
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
                    "the model of that name that is there, {}, to be added to; another needs a name, or a card, of its \
                     own",
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

    /// Where each table comes from, and when where that is the card's own command: that of all that was added to a card
    /// says nothing of one table.
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

    /// The measured tables whose prices at points that were held out are off by more than [the
    /// limits](TableError::is_beyond_limits).
    pub fn tables_beyond_limits(&self) -> Vec<(Family, String)> {
        let errors = leave_out_errors(self).into_iter();
        let beyond = errors.filter(|error| error.of == LeftOut::HeldOut && error.is_beyond_limits());
        let measured = |error: &TableError| self.origin(error.family, &error.table).kind == Source::Measured;
        let named = beyond.filter(measured).map(|error| (error.family, error.table));
        named.collect()
    }

    /// Adds what another card of the same device has beside: its tables, those that this one has too left out, but for
    /// those of `again`, which take the place of this one's. Each table has an origin then that says by which command
    /// it was measured and when.
    ///
    /// # Errors
    /// It is another device's, or was measured with another libtorch.
    pub fn add_measured(&mut self, mut other: Card, again: &[(Family, String)]) -> Result<(), Invalid> {
        self.check_same_device(&other.device)?;
        self.check_same_models(&other.models)?;
        // What of them was not measured, or less far, is kept.
        let (own, new) = (self.tables.slices(), other.tables.slices());
        let held_out = other.held_out.names();
        let is_better = |table: &&(Family, String)| {
            let pair = find(&own, table).zip(find(&new, table));
            pair.is_some_and(|(own, new)| new.reaches(own)) && held_out.contains(table)
        };
        let replaced: Vec<(Family, String)> = again.iter().filter(is_better).cloned().collect();
        self.take_out(&replaced);
        other.take_out(&self.tables.names());
        let is_new = |limits: &Limits| self.limits_of(limits.dtype).is_none();
        if other.tables.names().is_empty() && !other.limits.iter().any(is_new) {
            // The command has no part in the card.
            return Ok(());
        }
        self.certainty.append(&mut other.certainty);
        self.origins = Origins::new([self.table_origins(), other.table_origins()].concat());
        // How much look-ups and compute disturb each other was measured with the first of their tables.
        if self.tables.plot_lookup.is_empty() && !other.tables.plot_lookup.is_empty() {
            self.contention = Contention {
                compute_beside_lookup: other.contention.compute_beside_lookup,
                lookup_beside_compute: other.contention.lookup_beside_compute,
                ..self.contention
            };
        }
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

    /// Takes these tables out, with the points held out of them and what is known of their medians.
    fn take_out(&mut self, tables: &[(Family, String)]) {
        self.tables = self.tables.without(tables);
        self.held_out = self.held_out.without(tables);
        let stays =
            |known: &Certainty| tables.iter().all(|(family, table)| (*family, table) != (known.family, &known.table));
        self.certainty.retain(stays);
    }
}

impl Tables {
    /// Which of these tables go less far along an axis than others of the same names: `encoder_layer of model=tiny …`.
    pub fn short_of(&self, others: &Tables) -> Vec<String> {
        let own = self.slices();
        let is_short =
            |other: &&Slice| find(&own, &(other.family, other.label.clone())).is_some_and(|own| !own.reaches(other));
        let name = |slice: &Slice| match slice.label.as_str() {
            "" => slice.family.name().to_owned(),
            label => format!("{} of {label}", slice.family.name()),
        };
        others.slices().iter().filter(is_short).map(name).collect()
    }
}

fn find<'a>(slices: &'a [Slice], (family, table): &(Family, String)) -> Option<&'a Slice> {
    slices.iter().find(|slice| (slice.family, &slice.label) == (*family, table))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::DType;
    use crate::rows::EncoderLayerRow;
    use crate::slice::table_of;
    use crate::testing::synthetic_card;

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
        card.add_measured(other.clone(), &[]).unwrap();
        card.validate().unwrap();
        assert_eq!(card.device, whole.device);
        let model = ModelShape::builtin("tiny").unwrap();
        let layer = |card: &Card| card.encoder_layer(&model, DType::F32).unwrap().cost(4, 64).median_ns;
        assert_eq!(layer(&card), layer(&whole));
        assert_eq!(card.tables.pet, other.tables.pet);
        let source = |family, table: &str| card.origin(family, table).source;
        let pet = other.tables.slices().into_iter().find(|slice| slice.family == Family::Pet).unwrap();
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
        assert!(card.provenance.command.ends_with(" && tenantry profile --device cpu --models tiny --add"));
        assert!(card.provenance.notes.last().unwrap().ends_with(": few points"));
        assert_eq!(card.provenance.boot, None, "of two starts");

        other.device.host.cpu = "another".into();
        let refused = card.add_measured(other, &[]).unwrap_err();
        assert_eq!(refused.field, "device.host.cpu");
    }

    /// A command that measured nothing that the card lacked has no part in it.
    #[test]
    fn what_adds_nothing_changes_nothing() {
        let mut card = synthetic_card();
        let before = card.clone();
        let mut other = synthetic_card();
        other.provenance.command = "tenantry profile --device cpu --add".into();
        card.add_measured(other, &[]).unwrap();
        assert_eq!(card, before);
    }

    /// What a card without look-ups has of them beside compute is no measurement; what one with them has stays.
    #[test]
    fn with_the_first_look_ups_comes_what_they_disturb() {
        let beside = |compute_beside_lookup, lookup_beside_compute, compute_beside_copy| Contention {
            compute_beside_lookup,
            lookup_beside_compute,
            compute_beside_copy,
            ..synthetic_card().contention
        };
        let mut card = synthetic_card();
        card.tables.plot_lookup.clear();
        card.contention = beside(1.0, 1.0, 1.3);
        let mut other = synthetic_card();
        other.contention = beside(1.08, 1.01, 1.5);
        card.add_measured(other.clone(), &[]).unwrap();
        assert_eq!(card.contention, beside(1.08, 1.01, 1.3));
        other.contention = beside(1.2, 1.2, 1.5);
        card.add_measured(other, &[]).unwrap();
        assert_eq!(card.contention, beside(1.08, 1.01, 1.3));
    }

    #[test]
    fn a_table_that_ends_before_another_is_named() {
        let whole = synthetic_card().tables;
        let mut short = whole.clone();
        let longest = whole.encoder_layer.iter().map(|row| row.tokens).max();
        short.encoder_layer.retain(|row| row.model != "tiny" || Some(row.tokens) < longest);
        assert_eq!(short.short_of(&whole), ["encoder_layer of model=tiny dtype=f32"]);
        assert_eq!(whole.short_of(&short), [""; 0]);
        short.encoder_layer.clear();
        assert_eq!(short.short_of(&whole), [""; 0], "what is not there is measured");
    }

    /// A table that is off at its held-out points is told of, and gives way to what was measured again; whatever else
    /// was measured does not.
    #[test]
    fn what_is_measured_again_takes_the_place_of_what_was_off() {
        let mut card = synthetic_card();
        card.provenance.source = Source::Measured;
        card.held_out.encoder_layer = card.tables.encoder_layer.clone();
        let label = card.held_out.slices()[0].label.clone();
        assert!(card.tables_beyond_limits().is_empty(), "held out at its own points");
        card.held_out = card.held_out.at_pace(1.2);
        let beyond = vec![(Family::EncoderLayer, label.clone())];
        let mut told = card.tables_beyond_limits();
        told.retain(|table| *table == beyond[0]);
        assert_eq!(told, beyond);
        card.certainty.push(Certainty::of(Family::EncoderLayer, label.clone(), &[0.5]));

        let mut other = synthetic_card().at_pace(2.0);
        other.provenance.command = "tenantry profile --device cpu --again".into();
        other.held_out.encoder_layer = other.tables.encoder_layer.clone();
        other.certainty.push(Certainty::of(Family::EncoderLayer, label.clone(), &[0.01]));
        let before = card.clone();
        card.add_measured(other.clone(), &beyond).unwrap();
        let rows = |tables: &Tables| -> Vec<EncoderLayerRow> {
            let rows = tables.encoder_layer.iter().filter(|row| table_of(*row) == label);
            rows.cloned().collect()
        };
        assert!(!rows(&card.tables).is_empty());
        assert_eq!(rows(&card.tables), rows(&other.tables));
        assert_eq!(rows(&card.held_out), rows(&other.held_out));
        assert_eq!(card.tables.adapter, before.tables.adapter);
        let certainty = card.certainty_of(Family::EncoderLayer, &label).unwrap();
        assert_eq!((card.certainty.len(), certainty.widest), (1, Some(0.01)));
        let source = card.origin(Family::EncoderLayer, &label).source;
        assert!(
            source.starts_with("tenantry profile --device cpu --again, on "),
            "{source}"
        );

        // Of another model's tables nothing was measured, so that what is there stays, off as it is.
        let mut kept = before.clone();
        other.tables = other.tables.without(&beyond);
        kept.add_measured(other, &beyond).unwrap();
        assert_eq!(rows(&kept.tables), rows(&before.tables));
        assert_eq!(rows(&kept.held_out), rows(&before.held_out));
    }
}
