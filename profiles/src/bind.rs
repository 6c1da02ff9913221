//! Binds a card's tables to surfaces, once per run.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use crate::beyond::{ChunkAttention, EncoderLayers, Operations, WholePromptAttention, carried_on};
use crate::card::{Card, DeviceKind};
use crate::cost::{AdapterSurface, ByRhythm, Cost, Curve, HandOver, LookupSurface, Resume, Surface, TaggingSurface};
use crate::decoder::{Decoder, MixedAttention, PromptsTogether, WholeSteps};
use crate::error::MissingTable;
use crate::family::Family;
use crate::grid::Grid;
use crate::keys::{
    AdapterImplementation, Added, Changing, CollectiveOperation, Direction, DispatchOperation, LoadSource,
    LookupOutcome, OtherCores, PetKind, PoolBatching, Tier, TokensOf,
};
use crate::model::{DType, ModelShape};
use crate::rows::{LookupResumeRow, ResumeRow, Row};
use crate::slice::{Missing, Slice, slices, table_of};
use crate::static_model::StaticModel;
use crate::tables::{Role, Tables};

impl Card {
    /// One encoder layer's forward pass by batch and padded tokens.
    ///
    /// # Errors
    /// The card has no such table, or one of another model of that name.
    pub fn encoder_layer(&self, model: &ModelShape, dtype: DType) -> Result<Surface, MissingTable> {
        let asked = format!("model={} dtype={dtype}", model.name);
        self.check_shape(Family::EncoderLayer, model, &asked)?;
        self.grid_by(&self.tables.encoder_layer, &asked, &EncoderLayers::<0>(model))
            .map(Surface)
    }

    /// The same for a layer that also sums up the attention which each token receives; nothing where that was not measured.
    ///
    /// # Errors
    /// A table with holes, or one of another model of that name.
    pub fn attended_layer(&self, model: &ModelShape, dtype: DType) -> Result<Option<Surface>, MissingTable> {
        let asked = format!("model={} dtype={dtype}", model.name);
        if slices(&self.tables.attended_layer)
            .iter()
            .all(|slice| slice.label != asked)
        {
            return Ok(None);
        }
        self.check_shape(Family::AttendedLayer, model, &asked)?;
        self.grid_by(&self.tables.attended_layer, &asked, &EncoderLayers::<0>(model))
            .map(|grid| Some(Surface(grid)))
    }

    /// A trained classifier's whole pass over texts, by batch and padded tokens; `attended` where it also sums up the attention that tokens
    /// receive. Nothing where that was not measured.
    ///
    /// # Errors
    /// A table with holes, or one of another model of that name.
    pub fn text_pass(&self, model: &ModelShape, dtype: DType, attended: bool) -> Result<Option<Surface>, MissingTable> {
        let asked = format!("model={} dtype={dtype} attended={attended}", model.name);
        if slices(&self.tables.text_pass).iter().all(|slice| slice.label != asked) {
            return Ok(None);
        }
        self.check_shape(Family::TextPass, model, &asked)?;
        self.grid_by(&self.tables.text_pass, &asked, &EncoderLayers::<0>(model))
            .map(|grid| Some(Surface(grid)))
    }

    /// What a lane makes of such a pass, by batch; `pruned` where each of the texts goes on without some of its words. Nothing where that was
    /// not measured.
    ///
    /// # Errors
    /// A table with holes, or one of another model of that name.
    pub fn text_look(&self, model: &ModelShape, pruned: bool) -> Result<Option<Curve>, MissingTable> {
        let asked = format!("model={} pruned={pruned}", model.name);
        if slices(&self.tables.text_look).iter().all(|slice| slice.label != asked) {
            return Ok(None);
        }
        self.check_shape(Family::TextLook, model, &asked)?;
        self.grid(&self.tables.text_look, &asked).map(Curve).map(Some)
    }

    /// From token ids to the first hidden state, by batch and padded tokens.
    ///
    /// # Errors
    /// The card has no such table, or one of another model of that name.
    pub fn embedding(&self, model: &ModelShape, dtype: DType) -> Result<Surface, MissingTable> {
        let asked = format!("model={} dtype={dtype}", model.name);
        self.check_shape(Family::Embedding, model, &asked)?;
        self.grid(&self.tables.embedding, &asked).map(Surface)
    }

    /// Classification heads gathered per request, by sequences in the batch.
    ///
    /// # Errors
    /// The card has no such table, or one of another model of that name.
    pub fn head(&self, model: &ModelShape, dtype: DType, classes: u32) -> Result<Curve, MissingTable> {
        let asked = format!("model={} dtype={dtype}", model.name);
        self.check_shape(Family::Head, model, &asked)?;
        let by_batch_and_classes: Grid<2> = self.grid(&self.tables.head, &asked)?;
        Ok(Curve(by_batch_and_classes.along_first(classes.into())))
    }

    /// Tagging heads gathered per request, by batch, padded tokens and labels of each head.
    ///
    /// # Errors
    /// The card has no such table, or one of another model of that name.
    pub fn tagging_head(&self, model: &ModelShape, dtype: DType) -> Result<TaggingSurface, MissingTable> {
        let asked = format!("model={} dtype={dtype}", model.name);
        self.check_shape(Family::TaggingHead, model, &asked)?;
        self.grid(&self.tables.tagging_head, &asked).map(TaggingSurface)
    }

    /// One layer's adapters by tenants, batch and padded tokens.
    ///
    /// # Errors
    /// The card has no such table, or one of another model of that name.
    pub fn adapter(
        &self,
        model: &ModelShape,
        dtype: DType,
        implementation: AdapterImplementation,
        bottleneck: u32,
    ) -> Result<AdapterSurface, MissingTable> {
        let asked = format!(
            "model={} dtype={dtype} implementation={implementation} bottleneck={bottleneck}",
            model.name
        );
        self.check_shape(Family::Adapter, model, &asked)?;
        self.grid(&self.tables.adapter, &asked).map(AdapterSurface)
    }

    /// Copies by bytes; `pinned` is whether the host's memory is page-locked.
    ///
    /// # Errors
    /// The card has no such table.
    pub fn copy(&self, direction: Direction, pinned: bool) -> Result<Curve, MissingTable> {
        self.grid(&self.tables.copy, &format!("direction={direction} pinned={pinned}"))
            .map(Curve)
    }

    /// Loads of whole models by bytes.
    ///
    /// # Errors
    /// The card has no such table.
    pub fn model_load(&self, source: LoadSource) -> Result<Curve, MissingTable> {
        self.grid(&self.tables.model_load, &format!("source={source}"))
            .map(Curve)
    }

    /// PLOT look-ups that all met the same, with their aggregation, by threads, tokens of the batch and tokens of a fragment. What a card
    /// does not tell apart costs what it has of [texts](TokensOf::Texts), and of [any](LookupOutcome::Any) outcome.
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
            rows.iter()
                .any(|row| (&row.model, row.tier, row.outcome, row.tokens_of) == asked)
        };
        let any = LookupOutcome::Any;
        let instead = [
            (outcome, tokens_of),
            (outcome, TokensOf::Texts),
            (any, tokens_of),
            (any, TokensOf::Texts),
        ];
        let (outcome, tokens_of) = { instead.into_iter() }
            .find(|of| has(*of))
            .unwrap_or((outcome, TokensOf::Texts));
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

    /// One encoder layer on each of several instances at once, by instances, batch and padded tokens.
    ///
    /// # Errors
    /// The card has no such table, or one of another model of that name.
    pub fn concurrent_layer(&self, model: &ModelShape, dtype: DType) -> Result<AdapterSurface, MissingTable> {
        let asked = format!("model={} dtype={dtype}", model.name);
        self.check_shape(Family::ConcurrentLayer, model, &asked)?;
        self.grid_by(&self.tables.concurrent_layer, &asked, &EncoderLayers::<1>(model))
            .map(AdapterSurface)
    }

    /// A whole compiled model on each of several instances at once, by instances, batch and the tokens that it was compiled for; nothing where that
    /// was not measured.
    ///
    /// # Errors
    /// A table with holes, or one of another model of that name.
    pub fn concurrent_model(&self, model: &ModelShape, dtype: DType) -> Result<Option<AdapterSurface>, MissingTable> {
        let asked = format!("model={} dtype={dtype}", model.name);
        let rows = &self.tables.concurrent_model;
        if slices(rows).iter().all(|slice| slice.label != asked) {
            return Ok(None);
        }
        self.check_shape(Family::ConcurrentModel, model, &asked)?;
        self.grid(rows, &asked).map(AdapterSurface).map(Some)
    }

    /// One layer's operators of tasks on several streams at once, by streams, sequences of a mini-batch and padded tokens.
    ///
    /// # Errors
    /// The card has no such table, or one of another model of that name.
    pub fn concurrent_pet(&self, model: &ModelShape, dtype: DType) -> Result<AdapterSurface, MissingTable> {
        let asked = format!("model={} dtype={dtype}", model.name);
        self.check_shape(Family::ConcurrentPet, model, &asked)?;
        self.grid(&self.tables.concurrent_pet, &asked).map(AdapterSurface)
    }

    /// One task's own operators of a layer, by batch and padded tokens.
    ///
    /// # Errors
    /// The card has no such table, or one of another model of that name.
    pub fn pet(&self, model: &ModelShape, dtype: DType, kind: PetKind) -> Result<Surface, MissingTable> {
        let asked = format!("model={} dtype={dtype} kind={kind}", model.name);
        self.check_shape(Family::Pet, model, &asked)?;
        self.grid(&self.tables.pet, &asked).map(Surface)
    }

    /// A whole encoder compiled for a few lengths, by batch and tokens.
    ///
    /// # Errors
    /// The card has no such table, or one of another model of that name.
    pub fn static_model(&self, model: &ModelShape, dtype: DType) -> Result<StaticModel, MissingTable> {
        let asked = format!("model={} dtype={dtype}", model.name);
        self.check_static_shape(model, &asked)?;
        let grid = self.grid(&self.tables.static_model, &asked)?;
        let slices = slices(&self.tables.static_model);
        let slice = slices.iter().find(|slice| slice.label == asked);
        Ok(StaticModel::new(slice.expect("its grid was built"), &grid))
    }

    /// What a decoder's steps cost.
    ///
    /// # Errors
    /// The card lacks one of the tables (those of mixed attention, of whole prompts and of prompts together apart, which not all cards have), or has those of another model of
    /// that name.
    pub fn decoder(&self, model: &ModelShape, dtype: DType, tensor_parallel: u32) -> Result<Decoder, MissingTable> {
        let asked = format!("model={} dtype={dtype} tensor_parallel={tensor_parallel}", model.name);
        self.check_shape(Family::DecoderDense, model, &asked)?;
        Ok(Decoder {
            dense: self.grid(&self.tables.decoder_dense, &asked).map(Curve)?,
            prefill: self
                .grid_by(&self.tables.decoder_prefill, &asked, &ChunkAttention)
                .map(Surface)?,
            whole_prompt: is_there(&self.tables.decoder_whole_prompt, &asked)
                .then(|| self.grid_by(&self.tables.decoder_whole_prompt, &asked, &WholePromptAttention))
                .transpose()?
                .map(Curve),
            decode: self.grid(&self.tables.decoder_decode, &asked).map(Surface)?,
            mixed: self
                .grid_if_there(&self.tables.decoder_mixed, &asked)?
                .map(MixedAttention),
            together: self
                .grid_if_there(&self.tables.decoder_prompts, &asked)?
                .map(|grid| PromptsTogether(Surface(grid))),
            ends: self.grid(&self.tables.decoder_ends, &asked).map(Surface)?,
        })
    }

    /// Whole steps of a decoder, as a lane makes them; nothing where none were measured.
    ///
    /// # Errors
    /// A table with holes, or one of another model of that name.
    pub fn decoder_step(
        &self,
        model: &ModelShape,
        dtype: DType,
        added: Added,
    ) -> Result<Option<WholeSteps>, MissingTable> {
        let mut rows = self.tables.decoder_step.iter();
        let Some(row) = rows.find(|row| row.model == model.name && row.dtype == dtype && row.added == added) else {
            return Ok(None);
        };
        let asked = format!("model={} dtype={dtype} layers={} added={added}", model.name, row.layers);
        self.check_shape(Family::DecoderStep, model, &asked)?;
        Ok(Some(WholeSteps {
            layers: row.layers,
            grid: self.grid(&self.tables.decoder_step, &asked)?,
        }))
    }

    /// Whole steps on each of several instances at once, by instances and sequences; nothing where that was not measured.
    ///
    /// # Errors
    /// A table with holes, or one of another model of that name.
    pub fn concurrent_step(
        &self,
        model: &ModelShape,
        dtype: DType,
        added: Added,
    ) -> Result<Option<Surface>, MissingTable> {
        let asked = format!("model={} dtype={dtype} added={added}", model.name);
        if !is_there(&self.tables.concurrent_step, &asked) {
            return Ok(None);
        }
        self.check_shape(Family::ConcurrentStep, model, &asked)?;
        self.grid(&self.tables.concurrent_step, &asked).map(Surface).map(Some)
    }

    /// One decoder layer's LoRA products on each of the cards that share it, by tenants and tokens of the step.
    ///
    /// # Errors
    /// The card has no such table, or one of another model of that name.
    pub fn lora(
        &self,
        model: &ModelShape,
        dtype: DType,
        implementation: AdapterImplementation,
        rank: u32,
        tensor_parallel: u32,
    ) -> Result<Surface, MissingTable> {
        let mut asked = format!(
            "model={} dtype={dtype} implementation={implementation} rank={rank}",
            model.name
        );
        if tensor_parallel > 1 {
            asked += &format!(" tensor_parallel={tensor_parallel}");
        }
        self.check_shape(Family::Lora, model, &asked)?;
        self.grid(&self.tables.lora, &asked).map(Surface)
    }

    /// What cards do together, by cards and bytes.
    ///
    /// # Errors
    /// The card has no such table.
    pub fn collective(&self, operation: CollectiveOperation) -> Result<Surface, MissingTable> {
        self.grid(&self.tables.collective, &format!("operation={operation}"))
            .map(Surface)
    }

    /// Allocation programs, by cards and runtimes. Whatever the card, this is the host's work: one that does not say takes what a host took that did.
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

    /// A pool's queries split into batches on one thread of the host, by tasks and queries. Whatever the card, this is the host's work:
    /// one that does not say takes what a host took that did.
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
        slices(&self.tables.plan).iter().any(|slice| slice.label == asked)
    }

    /// Work beside the model's own, for each op or batch.
    ///
    /// # Errors
    /// The card has no such row.
    pub fn dispatch(&self, operation: DispatchOperation) -> Result<Cost, MissingTable> {
        let grid: Grid<0> = self.grid(&self.tables.dispatch, &format!("operation={operation}"))?;
        Ok(grid.cost([]))
    }

    /// Handing work over between threads that sleep in turns. Where that was not measured by their rhythm, as if it were always the same.
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
        let rows =
            { self.tables.hand_over.iter() }.filter(|row| (row.operation, row.other_cores) == (operation, others));
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

    /// What compute takes longer after its lane was idle, or after another tenant's model; nothing where that was not measured. Without
    /// rows of its own, a model that was just copied has those of one that lay untouched, and a model on which less than all changes those of its adapters, where tasks do, or of its heads, or of the model
    /// that comes first: what idleness costs depends on the machine more than on the model. So have models computed from a later layer on those of all layers.
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

    /// What a look-up takes longer after the threads that share its work were idle: of so many, or of the nearest number of threads that was measured.
    /// Nothing where none was.
    ///
    /// # Errors
    /// A table with holes.
    pub fn lookup_resume(&self, threads: u32) -> Result<Option<Resume>, MissingTable> {
        let all = &self.tables.lookup_resume;
        let Some(nearest) = all.iter().map(|row| row.threads).min_by_key(|of| of.abs_diff(threads)) else {
            return Ok(None);
        };
        let rows: Vec<LookupResumeRow> = { all.iter() }.filter(|row| row.threads == nearest).cloned().collect();
        self.resume_of(rows, &format!("threads={nearest}")).map(Some)
    }

    /// Of the rows of one table, at least one: each at its idleness and its work.
    fn resume_of<R: Row>(&self, mut rows: Vec<R>, asked: &str) -> Result<Resume, MissingTable> {
        for row in &mut rows {
            let work_us = row.at()[1];
            *row.stats_mut() = row.stats().later(work_us as f64);
        }
        let range = |axis: usize| {
            let values = || rows.iter().map(|row| row.at()[axis] as u32);
            (
                values().min().expect("there is a row"),
                values().max().expect("there is a row"),
            )
        };
        let ((idle_us_min, idle_us_max), (work_us_min, work_us_max)) = (range(0), range(1));
        Ok(Resume {
            whole: self.grid(&rows, asked)?,
            idle_us_min,
            idle_us_max,
            work_us_min,
            work_us_max,
        })
    }

    /// The grid of the table whose label is `asked`.
    fn grid<R: Row, const N: usize>(&self, rows: &[R], asked: &str) -> Result<Grid<N>, MissingTable> {
        self.gridded(rows, asked, Grid::new)
    }

    /// The same of a table that a card need not have.
    fn grid_if_there<R: Row, const N: usize>(&self, rows: &[R], asked: &str) -> Result<Option<Grid<N>>, MissingTable> {
        is_there(rows, asked).then(|| self.grid(rows, asked)).transpose()
    }

    /// The same of an op whose operations do not grow in proportion: beyond what was measured it goes on by them.
    fn grid_by<R: Row, const N: usize>(
        &self,
        rows: &[R],
        asked: &str,
        operations: &impl Operations,
    ) -> Result<Grid<N>, MissingTable> {
        self.gridded(rows, asked, |slice| {
            // Points that follow a hole would be told of in its place.
            if let Some(missing) = slice.missing() {
                return Err(missing);
            }
            let knots = slice.knots();
            let measured = Grid::new(&carried_on(slice, operations))?;
            Ok(measured.measured_up_to(std::array::from_fn(|axis| {
                *knots[axis].last().expect("a table has points")
            })))
        })
    }

    /// The error of `build` is the points that nobody measured.
    fn gridded<R: Row, const N: usize>(
        &self,
        rows: &[R],
        asked: &str,
        build: impl FnOnce(&Slice) -> Result<Grid<N>, Missing>,
    ) -> Result<Grid<N>, MissingTable> {
        let slices = slices(rows);
        let Some(slice) = slices.iter().find(|slice| slice.label == asked) else {
            return Err(self.missing(R::FAMILY, asked, found(&slices)));
        };
        self.origins.note(R::FAMILY, asked);
        build(slice).map_err(|missing| {
            let found = format!(
                "no row for {} ({} missing in all)",
                slice.describe(&missing.first),
                missing.how_many()
            );
            self.missing(R::FAMILY, asked, found)
        })
    }

    /// A model's tables are no use to another of the same name. The number of layers may differ: costs are per layer.
    fn check_shape(&self, family: Family, model: &ModelShape, asked: &str) -> Result<(), MissingTable> {
        match self.model(&model.name) {
            Some(measured)
                if ModelShape {
                    layers: model.layers,
                    ..measured.clone()
                } != *model =>
            {
                let found = format!("those of another model of that name ({})", measured.differences(model));
                Err(self.missing(family, asked, found))
            }
            _ => Ok(()),
        }
    }

    /// The same for a whole model, of which the number of layers counts.
    fn check_static_shape(&self, model: &ModelShape, asked: &str) -> Result<(), MissingTable> {
        match self.model(&model.name) {
            Some(measured) if measured != *model => {
                let found = format!("those of another model of that name ({})", measured.differences(model));
                Err(self.missing(Family::StaticModel, asked, found))
            }
            _ => Ok(()),
        }
    }

    fn missing(&self, family: Family, asked: &str, found: String) -> MissingTable {
        let device = match self.device.kind {
            DeviceKind::Cpu => "cpu",
            DeviceKind::Cuda => "cuda:0",
        };
        let model = asked.strip_prefix("model=").and_then(|rest| rest.split(' ').next());
        let models = model.map(|name| format!(" --models {name}")).unwrap_or_default();
        // Nobody need have a card that was derived, and what its datasheet gives it has got.
        let is_derived = self
            .provenance
            .command
            .starts_with("tenantry profile derive --datasheet ");
        MissingTable {
            card: self.name.clone(),
            family: family.name(),
            asked: match asked {
                "" => "rows".to_owned(),
                asked => asked.to_owned(),
            },
            found,
            command: (!is_derived).then(|| format!("tenantry profile --device {device}{models}")),
        }
    }
}

/// What planning and solving took on the hosts that they were measured on: see [`PLANNING_HOST`] and [`SOLVING_HOST`].
fn some_host() -> &'static Tables {
    static TABLES: LazyLock<Tables> = LazyLock::new(|| {
        let mut tables = Tables::default();
        for (family, name, text) in [
            (Family::Plan, "some_host_plan.csv", include_str!("some_host_plan.csv")),
            (
                Family::Solve,
                "some_host_solve.csv",
                include_str!("some_host_solve.csv"),
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
pub(crate) const PLANNING_HOST: &str = "medians of another host: an Intel Xeon of 2 cores with other programs running, the profiler's own questions (2026-11-22)";

fn found(slices: &[Slice]) -> String {
    match slices {
        [] => "no table".to_string(),
        _ => slices
            .iter()
            .map(|slice| slice.label.as_str())
            .collect::<Vec<_>>()
            .join(", "),
    }
}

/// Whether there is such a table.
fn is_there<R: Row>(rows: &[R], asked: &str) -> bool {
    slices(rows).iter().any(|slice| slice.label == asked)
}
