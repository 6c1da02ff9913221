//! Where each table of a card comes from, where that is not where the card as a whole does, and which tables a run
//! used.
//!
//! A card that was measured may hold tables that were derived, and one fitted to a paper holds assumptions. Reports
//! list what they used of these, and of measured tables that are known less well than they should be, so a card
//! remembers which of its tables were bound to surfaces.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bind::{PLANNING_HOST, SOLVING_HOST};
use crate::card::{Card, Source};
use crate::error::Invalid;
use crate::family::Family;
use crate::names::near_miss;
use crate::slice::Slice;
use crate::summary::{Moved, TableError, error_of, moved_from_points};

/// Where some tables of one family come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// The op family.
    pub family: Family,
    /// Which of the family's tables, as `tenantry profile show` calls it (`model=tiny dtype=f32`); all where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// How the numbers were come by.
    pub kind: Source,
    /// From what: a table, figure or sentence, a file, a formula.
    pub source: String,
    /// How far they may be off, in words: `±30 %`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How far what was measured was moved before it became the table, so that more work never costs less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<Moved>,
    /// Whether it is of engines built for one shape each: what takes any shape takes longer.
    #[serde(default, skip_serializing_if = "crate::card::is_false")]
    pub one_shape: bool,
    /// The model whose table it is, where a card lent it to one whose layers have the same shape.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lent_by: Option<String>,
}

impl Origin {
    /// Of a table, or of all of a family's, of which no more is known.
    pub fn new(family: Family, table: Option<String>, kind: Source, source: impl Into<String>) -> Origin {
        Origin {
            family,
            table,
            kind,
            source: source.into(),
            error: None,
            moved: None,
            one_shape: false,
            lent_by: None,
        }
    }
}

/// The exceptions to a card's provenance, and what has been used.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Origins {
    list: Vec<Origin>,
    #[serde(skip)]
    used: Mutex<BTreeSet<(Family, String)>>,
    /// How far prices are off, of those that were asked for.
    #[serde(skip)]
    beyond_limits: Mutex<BTreeMap<(Family, String), BeyondLimits>>,
}

/// How far a measured table's prices are off, where that is more than they should be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BeyondLimits {
    /// Between its points.
    pub interpolation: Option<TableError>,
    /// At its points, since more work never costs less.
    pub moved: Option<Moved>,
}

impl BeyondLimits {
    fn of(card: &Card, slice: &Slice, held_out: &[Slice]) -> BeyondLimits {
        BeyondLimits {
            interpolation: error_of(card, slice, held_out).filter(TableError::is_beyond_limits),
            moved: Some(moved_from_points(slice)).filter(Moved::is_beyond_limits),
        }
    }
}

/// A table that was bound, and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct UsedTable {
    /// The op family.
    pub family: Family,
    /// Which of the family's tables; empty where there is but one.
    pub table: String,
    /// Where it comes from.
    pub origin: Origin,
    /// Of a measured one.
    pub beyond_limits: BeyondLimits,
}

impl UsedTable {
    /// Whether who reads a result should know of it.
    fn is_to_be_told(&self) -> bool {
        self.origin.kind != Source::Measured
            || self.origin.error.is_some()
            || self.origin.lent_by.is_some()
            || self.beyond_limits != BeyondLimits::default()
    }
}

impl Origins {
    /// These exceptions, with nothing used.
    pub fn new(list: Vec<Origin>) -> Origins {
        Origins {
            list,
            ..Origins::default()
        }
    }

    /// The exceptions, as `card.yaml` lists them.
    pub fn list(&self) -> &[Origin] {
        &self.list
    }

    /// Adds one.
    pub fn push(&mut self, origin: Origin) {
        self.list.push(origin);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Notes that a table was bound.
    pub(crate) fn note(&self, family: Family, table: &str) {
        // Nothing can be left half done by a panic between lock and insertion.
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.insert((family, table.to_owned()));
    }

    /// The entry of that very table, else that of its family.
    fn find(&self, family: Family, table: &str) -> Option<&Origin> {
        let of_family = || self.list.iter().filter(|origin| origin.family == family);
        of_family()
            .find(|origin| origin.table.as_deref() == Some(table))
            .or_else(|| of_family().find(|origin| origin.table.is_none()))
    }
}

/// What was used is no part of what a card is.
impl Clone for Origins {
    fn clone(&self) -> Origins {
        Origins::new(self.list.clone())
    }
}

impl PartialEq for Origins {
    fn eq(&self, other: &Origins) -> bool {
        self.list == other.list
    }
}

impl Card {
    /// Where a table comes from: what the card lists for it or for its family, else where the card as a whole comes
    /// from.
    pub fn origin(&self, family: Family, table: &str) -> Origin {
        if let Some(listed) = self.origins.find(family, table) {
            return listed.clone();
        }
        let (kind, source) = match family {
            Family::Plan if !self.has_plan(table) => (Source::Assumed, PLANNING_HOST.to_owned()),
            Family::Solve if !self.has_solve() => (Source::Assumed, SOLVING_HOST.to_owned()),
            _ => (self.provenance.source, self.provenance.command.clone()),
        };
        Origin::new(family, None, kind, source)
    }

    /// The tables bound so far that were not measured, and those that were and are known less well than they should be:
    /// their points were moved so that they rise, or interpolation is off by more than the limits. By family and name:
    /// what a report must tell its reader.
    pub fn used_to_be_told(&self) -> Vec<UsedTable> {
        let used = self.origins.used.lock().unwrap_or_else(PoisonError::into_inner);
        let known = &self.origins.beyond_limits;
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        // Both are large, and a sweep's runs mostly use tables that are known.
        let slices = LazyCell::new(|| (self.tables.slices(), self.held_out.slices()));
        let mut beyond_limits = |family: Family, table: &str| {
            let find = || {
                let (tables, held_out) = &*slices;
                let is_it = |slice: &&Slice| (slice.family, slice.label.as_str()) == (family, table);
                let slice = tables.iter().find(is_it);
                slice.map_or_else(BeyondLimits::default, |slice| BeyondLimits::of(self, slice, held_out))
            };
            known.entry((family, table.to_owned())).or_insert_with(find).clone()
        };
        let tables = used.iter().map(|(family, table)| {
            let origin = self.origin(*family, table);
            UsedTable {
                family: *family,
                table: table.clone(),
                beyond_limits: match origin.kind {
                    Source::Measured => beyond_limits(*family, table),
                    _ => BeyondLimits::default(),
                },
                origin,
            }
        });
        tables.filter(UsedTable::is_to_be_told).collect()
    }

    /// Refuses an origin of a table that the card does not have, and a second one of the same; `file` is what errors
    /// call `card.yaml`.
    pub(crate) fn check_origins(&self, file: &str) -> Result<(), Invalid> {
        let slices = self.tables.slices();
        for (index, origin) in self.origins.list.iter().enumerate() {
            let of_family = || slices.iter().filter(|slice| slice.family == origin.family);
            let field = |name: &str| format!("origins[{index}].{name}");
            if of_family().next().is_none() {
                let must = "a family that the card has";
                return Err(Invalid::new(file, &field("family"), must, origin.family.name()));
            }
            if let Some(table) = &origin.table
                && of_family().all(|slice| slice.label != *table)
            {
                let labels: Vec<&str> = of_family().map(|slice| slice.label.as_str()).collect();
                let must = format!("a table of {}: {}", origin.family, labels.join(", "));
                let suggested = near_miss(table, labels.iter().copied());
                return Err(Invalid::new(file, &field("table"), must, format!("{table:?}")).suggest(suggested));
            }
            if origin.source.trim().is_empty() {
                return Err(Invalid::new(
                    file,
                    &field("source"),
                    "where the numbers come from",
                    "nothing",
                ));
            }
            let earlier = &self.origins.list[..index];
            if earlier.iter().any(|other| (other.family, &other.table) == (origin.family, &origin.table)) {
                let got = format!("{} again", origin.table.as_deref().unwrap_or(origin.family.name()));
                return Err(Invalid::new(file, &field("table"), "listed once", got));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::PoolBatching;
    use crate::model::{DType, ModelShape};
    use crate::rows::PlanRow;
    use crate::stats::Stats;
    use crate::testing::synthetic_card;

    fn origin(table: Option<&str>, kind: Source) -> Origin {
        Origin {
            error: Some("±30 %".into()),
            ..Origin::new(Family::EncoderLayer, table.map(str::to_owned), kind, "Table 6")
        }
    }

    #[test]
    fn the_nearest_origin_counts() {
        let mut card = synthetic_card();
        card.provenance.source = Source::Measured;
        card.origins.push(origin(None, Source::Fitted));
        card.origins.push(origin(Some("model=tiny dtype=f32"), Source::Assumed));
        let kind = |family, table| card.origin(family, table).kind;
        assert_eq!(kind(Family::EncoderLayer, "model=tiny dtype=f32"), Source::Assumed);
        assert_eq!(kind(Family::EncoderLayer, "model=bert-base dtype=f32"), Source::Fitted);
        assert_eq!(kind(Family::Embedding, "model=tiny dtype=f32"), Source::Measured);
    }

    #[test]
    fn what_was_bound_and_not_measured_is_told_once() {
        let mut card = synthetic_card();
        card.provenance.source = Source::Measured;
        card.origins.push(origin(None, Source::Fitted));
        assert_eq!(card.used_to_be_told(), []);
        let tiny = ModelShape::builtin("tiny").unwrap();
        card.embedding(&tiny, DType::F32).unwrap();
        assert_eq!(card.used_to_be_told(), [], "it was measured");
        card.encoder_layer(&tiny, DType::F32).unwrap();
        card.encoder_layer(&tiny, DType::F32).unwrap();
        let used = card.used_to_be_told();
        assert_eq!(used.len(), 1);
        assert_eq!(used[0].table, "model=tiny dtype=f32");
        assert_eq!(used[0].origin.kind, Source::Fitted);
        assert_eq!(card.clone().used_to_be_told(), [], "a copy has used nothing");
        assert_eq!(card.clone(), card);
    }

    #[test]
    fn measured_tables_are_told_of_where_points_were_moved_or_lines_between_them_are_off() {
        let mut card = synthetic_card();
        card.provenance.source = Source::Measured;
        let tiny = ModelShape::builtin("tiny").unwrap();
        let told = |card: &Card| {
            card.embedding(&tiny, DType::F32).unwrap();
            card.used_to_be_told()
        };
        assert_eq!(told(&card.clone()), []);
        let mut moved = card.clone();
        moved.origins.push(Origin {
            family: Family::Embedding,
            table: Some("model=tiny dtype=f32".into()),
            error: Some("8 of 9 points were moved".into()),
            ..origin(None, Source::Measured)
        });
        let [used] = &told(&moved)[..] else {
            panic!("it was moved")
        };
        assert_eq!(used.beyond_limits, BeyondLimits::default());
        let steep = card
            .tables
            .embedding
            .iter_mut()
            .filter(|row| row.model == "tiny" && row.tokens >= 32)
            .map(|row| row.stats = row.stats.at_pace(10.0));
        assert!(steep.count() > 0);
        let [used] = &told(&card)[..] else {
            panic!("a line misses a step")
        };
        let error = used.beyond_limits.interpolation.as_ref().expect("it is far off");
        assert!(
            error.p95 > TableError::P95_LIMIT && used.origin.error.is_none(),
            "{error:?}"
        );
    }

    #[test]
    fn planning_is_the_hosts_work_and_another_hosts_where_the_card_does_not_say() {
        let mut card = synthetic_card();
        card.provenance.source = Source::Measured;
        for &batching in PoolBatching::ALL {
            let plan = card.plan(batching).unwrap();
            assert!(plan.covers(32, 1024), "{batching}");
            assert!(plan.cost(32, 1024).median_ns > plan.cost(1, 8).median_ns, "{batching}");
        }
        let used = card.used_to_be_told();
        assert_eq!(used.len(), PoolBatching::ALL.len());
        assert!(
            used.iter()
                .all(|used| used.origin.kind == Source::Assumed && used.origin.source == PLANNING_HOST)
        );

        card.tables.solve.clear();
        let card_alone = card.clone();
        assert!(
            card_alone.solve().unwrap().cost(1000, 16).median_ns > card_alone.solve().unwrap().cost(16, 1).median_ns
        );
        let used = card_alone.used_to_be_told();
        assert_eq!(used.len(), 1);
        assert_eq!(
            (used[0].origin.kind, &*used[0].origin.source),
            (Source::Assumed, SOLVING_HOST)
        );

        let row = |(tasks, queries)| PlanRow {
            batching: PoolBatching::Fixed,
            tasks,
            queries,
            stats: Stats::exact(f64::from(queries)),
        };
        card.tables.plan = [(1, 1), (1, 8), (8, 8)].map(row).to_vec();
        let card = card.clone();
        assert_eq!(card.plan(PoolBatching::Fixed).unwrap().cost(4, 8).median_ns, 8_000);
        assert_eq!(card.used_to_be_told(), [], "the card's own");
    }

    #[test]
    fn origins_of_tables_that_are_not_there_are_refused() {
        let refused = |origins: &[Origin]| {
            let mut card = synthetic_card();
            card.origins = Origins::new(origins.to_vec());
            card.validate().unwrap_err().to_string()
        };
        let misspelt = origin(Some("model=tiny dtype=f23"), Source::Derived);
        let message = refused(&[misspelt]);
        assert!(
            message.contains("origins[0].table: must be a table of encoder_layer"),
            "{message}"
        );
        assert!(message.ends_with("did you mean model=tiny dtype=f32?"), "{message}");
        let absent = Origin {
            family: Family::Solve,
            ..origin(None, Source::Derived)
        };
        assert!(refused(&[absent]).contains("origins[0].family: must be a family that the card has, got solve"));
        let twice = [origin(None, Source::Derived), origin(None, Source::Fitted)];
        assert!(refused(&twice).contains("origins[1].table: must be listed once, got encoder_layer again"));
    }
}
