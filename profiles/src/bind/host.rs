//! What is beside a model's own work: copies, look-ups, the host's plans, hand-overs, and starting again after a pause.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use super::is_there;
use crate::card::{Card, DeviceKind};
use crate::cost::Cost;
use crate::error::MissingTable;
use crate::family::Family;
use crate::grid::Grid;
use crate::hand_over::{ByRhythm, HandOver, Resume};
use crate::keys::{
    Changing, Direction, DispatchOperation, LoadSource, LookupOutcome, OtherCores, PoolBatching, Tier, TokensOf,
};
use crate::model::ModelShape;
use crate::rows::{LookupResumeRow, ResumeRow, Row};
use crate::slice::table_of;
use crate::surfaces::{Curve, LookupSurface, Surface};
use crate::tables::{Role, Tables};

impl Card {
    /// Copies by bytes; `pinned` is whether the host's memory is page-locked.
    ///
    /// # Errors
    /// The card has no such table.
    pub fn copy(&self, direction: Direction, pinned: bool) -> Result<Curve, MissingTable> {
        self.grid(&self.tables.copy, &format!("direction={direction} pinned={pinned}")).map(Curve)
    }

    /// Loads of whole models by bytes.
    ///
    /// # Errors
    /// The card has no such table.
    pub fn model_load(&self, source: LoadSource) -> Result<Curve, MissingTable> {
        self.grid(&self.tables.model_load, &format!("source={source}")).map(Curve)
    }

    /// PLOT look-ups that all met the same, with their aggregation, by threads, tokens of the batch and tokens of a
    /// fragment. What a card does not tell apart costs what it has of [texts](TokensOf::Texts), and of
    /// [any](LookupOutcome::Any) outcome.
    ///
    /// # Errors
    /// The card has no such table, or one of another model of that name.
    pub fn plot_lookup(
        &self,
        model: &ModelShape,
        tier: Tier,
        outcome: LookupOutcome,
        tokens_of: TokensOf,
    ) -> Result<LookupSurface, MissingTable> {
        let rows = &self.tables.plot_lookup;
        let has = |(outcome, tokens_of)| {
            let asked = (&model.name, tier, outcome, tokens_of);
            rows.iter().any(|row| (&row.model, row.tier, row.outcome, row.tokens_of) == asked)
        };
        let any = LookupOutcome::Any;
        let instead = [
            (outcome, tokens_of),
            (outcome, TokensOf::Texts),
            (any, tokens_of),
            (any, TokensOf::Texts),
        ];
        let (outcome, tokens_of) = instead.into_iter().find(|of| has(*of)).unwrap_or((outcome, TokensOf::Texts));
        let mut asked = format!("model={} tier={tier}", model.name);
        if outcome != any {
            asked += &format!(" outcome={outcome}");
        }
        if tokens_of != TokensOf::Texts {
            asked += &format!(" tokens_of={tokens_of}");
        }
        self.check_shape(Family::PlotLookup, model, &asked)?;
        self.grid(rows, &asked).map(LookupSurface)
    }

    /// Allocation programs, by cards and runtimes. Whatever the card, this is the host's work: one that does not say
    /// takes what a host took that did.
    ///
    /// # Errors
    /// A table with holes.
    pub fn solve(&self) -> Result<Surface, MissingTable> {
        let rows = match self.has_solve() {
            true => &self.tables.solve,
            false => &some_host().solve,
        };
        self.grid(rows, "").map(Surface)
    }

    /// Whether the card itself says what solving takes.
    pub(crate) fn has_solve(&self) -> bool {
        !self.tables.solve.is_empty()
    }

    /// A pool's queries split into batches on one thread of the host, by tasks and queries. Whatever the card, this is
    /// the host's work: one that does not say takes what a host took that did.
    ///
    /// # Errors
    /// A table with holes.
    pub fn plan(&self, batching: PoolBatching) -> Result<Surface, MissingTable> {
        let asked = format!("batching={batching}");
        let rows = match self.has_plan(&asked) {
            true => &self.tables.plan,
            false => &some_host().plan,
        };
        self.grid(rows, &asked).map(Surface)
    }

    /// Whether the card itself says what planning takes.
    pub(crate) fn has_plan(&self, asked: &str) -> bool {
        is_there(&self.tables.plan, asked)
    }

    /// Work beside the model's own, for each op or batch.
    ///
    /// # Errors
    /// The card has no such row.
    pub fn dispatch(&self, operation: DispatchOperation) -> Result<Cost, MissingTable> {
        let grid: Grid<0> = self.grid(&self.tables.dispatch, &format!("operation={operation}"))?;
        Ok(grid.cost([]))
    }

    /// Handing work over between threads that sleep in turns. Where that was not measured by their rhythm, as if it
    /// were always the same.
    ///
    /// # Errors
    /// The card has no such row.
    pub fn hand_over(&self, operation: DispatchOperation) -> Result<HandOver, MissingTable> {
        let Some(idle) = self.by_rhythm(operation, OtherCores::Idle)? else {
            return Ok(HandOver::always(self.dispatch(operation)?));
        };
        let busy = self.by_rhythm(operation, OtherCores::Busy)?;
        Ok(HandOver::new(idle, busy))
    }

    /// Nothing where that was not measured.
    fn by_rhythm(&self, operation: DispatchOperation, others: OtherCores) -> Result<Option<ByRhythm>, MissingTable> {
        let rows = self
            .tables
            .hand_over
            .iter()
            .filter(|row| (row.operation, row.other_cores) == (operation, others));
        let (pauses_us, works_us): (BTreeSet<u32>, BTreeSet<u32>) = rows.map(|row| (row.pause_us, row.work_us)).unzip();
        if pauses_us.is_empty() {
            return Ok(None);
        }
        let asked = format!("operation={operation} other_cores={others}");
        let grid: Grid<2> = self.grid(&self.tables.hand_over, &asked)?;
        let cost = |pause_us: u32, work_us: u32| grid.cost([pause_us.into(), work_us.into()]).into();
        Ok(Some(ByRhythm::new(&pauses_us, &works_us, cost)))
    }

    /// A look at what an encoder's pass came to; nothing where that was not measured.
    ///
    /// # Errors
    /// A table with holes.
    pub fn inspect(&self) -> Result<Option<Cost>, MissingTable> {
        let operation = DispatchOperation::Inspect;
        let listed = self.tables.dispatch.iter().any(|row| row.operation == operation);
        listed.then(|| self.dispatch(operation)).transpose()
    }

    /// What compute takes longer after its lane was idle, or after another tenant's model; nothing where that was not
    /// measured. Without rows of its own, a model that was just copied has those of one that lay untouched, and a model
    /// on which less than all changes those of its adapters, where tasks do, or of its heads, or of the model that
    /// comes first: what idleness costs depends on the machine more than on the model. So have models computed from a
    /// later layer on those of all layers.
    ///
    /// # Errors
    /// A table with holes.
    pub fn resume(
        &self,
        model: &ModelShape,
        changing: Changing,
        first_layer: u32,
    ) -> Result<Option<Resume>, MissingTable> {
        let all = &self.tables.resume;
        let from = |changing, first_layer| {
            all.iter()
                .find(|row| row.model == model.name && row.changing == changing && row.from_layer == first_layer + 1)
        };
        let measured = |changing| from(changing, first_layer).or_else(|| from(changing, 0));
        let nearest = match changing {
            Changing::Model => measured(Changing::Model),
            Changing::CopiedModel => measured(changing).or_else(|| measured(Changing::Model)),
            // What the host of a GPU takes to issue many kernels says nothing of launching one graph.
            Changing::Compiled if self.device.kind == DeviceKind::Cuda => measured(changing),
            Changing::Adapters | Changing::Heads | Changing::Tasks | Changing::Compiled => measured(changing)
                .or_else(|| measured(Changing::Adapters).filter(|_| changing == Changing::Tasks))
                .or_else(|| measured(Changing::Heads))
                .or_else(|| all.iter().find(|row| row.changing == Changing::Heads)),
        };
        let Some(nearest) = nearest else {
            return Ok(None);
        };
        let is_of = |row: &&ResumeRow| row.names() == nearest.names();
        let rows: Vec<ResumeRow> = all.iter().filter(is_of).cloned().collect();
        self.resume_of(rows, &table_of(nearest)).map(Some)
    }

    /// What a copy takes longer after its lane was idle; nothing where that was not measured.
    ///
    /// # Errors
    /// A table with holes.
    pub fn copy_resume(&self) -> Result<Option<Resume>, MissingTable> {
        let rows = &self.tables.copy_resume;
        (!rows.is_empty()).then(|| self.resume_of(rows.clone(), "")).transpose()
    }

    /// What a look-up takes longer after the threads that share its work were idle: of so many, or of the nearest
    /// number of threads that was measured. Nothing where none was.
    ///
    /// # Errors
    /// A table with holes.
    pub fn lookup_resume(&self, threads: u32) -> Result<Option<Resume>, MissingTable> {
        let all = &self.tables.lookup_resume;
        let Some(nearest) = all.iter().map(|row| row.threads).min_by_key(|of| of.abs_diff(threads)) else {
            return Ok(None);
        };
        let rows: Vec<LookupResumeRow> = all.iter().filter(|row| row.threads == nearest).cloned().collect();
        self.resume_of(rows, &format!("threads={nearest}")).map(Some)
    }

    /// Of the rows of one table, at least one: each at its idleness and its work.
    fn resume_of<R: Row>(&self, mut rows: Vec<R>, asked: &str) -> Result<Resume, MissingTable> {
        for row in &mut rows {
            let work_us = row.at()[1];
            *row.stats_mut() = row.stats().later(work_us as f64);
        }
        let knots = |axis: usize| {
            let values: BTreeSet<u32> = rows.iter().map(|row| row.at()[axis] as u32).collect();
            values.into_iter().collect()
        };
        Ok(Resume {
            idles_us: knots(0),
            works_us: knots(1),
            whole: self.grid(&rows, asked)?,
        })
    }
}

/// What planning and solving took on the hosts that they were measured on: see [`PLANNING_HOST`] and [`SOLVING_HOST`].
fn some_host() -> &'static Tables {
    static TABLES: LazyLock<Tables> = LazyLock::new(|| {
        let mut tables = Tables::default();
        for (family, name, text) in [
            (
                Family::Plan,
                "some_host_plan.csv",
                include_str!("../some_host_plan.csv"),
            ),
            (
                Family::Solve,
                "some_host_solve.csv",
                include_str!("../some_host_solve.csv"),
            ),
        ] {
            let read = tables.read_csv(family, Role::Table, name, text, &[]);
            read.expect("a test reads it");
        }
        tables
    });
    &TABLES
}

/// Where the numbers of solving come from.
pub(crate) const SOLVING_HOST: &str =
    "medians of another host: the dynamic program on an Intel Xeon of 2 cores (the card `cpu`, 2026-11-24)";

/// Where those of planning come from.
pub(crate) const PLANNING_HOST: &str = "medians of another host: an Intel Xeon of 2 cores with other programs running, \
                                        the profiler's own questions (2026-11-22)";
