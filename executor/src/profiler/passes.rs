//! Whole passes for `resume.rs`: with requests of their own at each call, and with other tenants' parameters as systems
//! have them.

use std::cell::Cell;
use std::sync::atomic::AtomicBool;

use tch::Tensor;
use tenantry_core::pet::work::{PetSizes, resident_bytes};
use tenantry_profiles::{Changing, ModelShape, ResumeRow};

use super::axes::on;
use super::compute::{Subject, answers, spread_out};
use super::decoder::DecoderSubject;
use super::resume::{self, Pass};
use super::texts::TextSubject;
use super::timing::timed;
use super::{Plan, Suite};
use crate::adapters::{AdapterCache, AdapterShape, AdapterStore, Adapters};
use crate::device::{Stream, element_bytes, prepare_lane_thread};
use crate::error::ExecutorError;
use crate::host::available_host_bytes;
use crate::model::{CompiledModel, Encoder, Heads, Input};
use crate::pet::{LoadedOperators, Member, PetBatch, Reader, Streams, kind_named};
use crate::whole_models::WholeModel;

/// Sequences in a pass, whether they are as short as the table has them or of middle length, and passes in one piece of
/// work: little and much to compute, at once and one after the other.
const ENCODED: &[(u32, bool, u32)] = &[(1, true, 1), (1, false, 1), (1, false, 3), (8, false, 1)];
/// Likewise of a decoder's steps, of which a run has many.
const STEPS: &[(u32, u32)] = &[(1, 1), (1, 8), (1, 40)];
/// On a GPU, which is rented by the minute, the first and the last of each: what a wait costs there is mostly the
/// host's, and hangs little on the work.
const ENCODED_ON_GPU: &[(u32, bool, u32)] = &[(1, true, 1), (16, false, 1)];
const STEPS_ON_GPU: &[(u32, u32)] = &[(1, 1), (1, 40)];
/// Tenants among whose heads a batch's are found.
const TENANTS: u32 = 1024;
/// Tenants among whom a batch's adapters are found, in every layer.
const ADAPTER_SLOTS: u32 = 32;
/// Bytes that models are spread over where tenants have whole ones: more than the caches hold that all cores share.
const MODELS_BYTES: u64 = 1 << 30;
/// Most models that these are, however small each is.
const MODELS_MAX: u64 = 512;
/// Part of the free memory that these models take at most: one over so much.
const MEMORY_SHARE: u64 = 4;
/// Models that are on the card at once where they are copied there: as many as take turns in a small share of the
/// memory.
const MODEL_SLOTS: u64 = 4;
/// Bytes that tasks are spread over where they share models: far more than a core's caches hold.
const TASKS_BYTES: u64 = 256 << 20;
/// Most tasks of each kind, however small each is: the order in which they come jumps over a power of two of them.
const TASKS_MAX: u32 = 13;

/// What changes from one pass of a model to the next in the systems that are planned for, and the first layer of the
/// passes. On a GPU the heads alone, of models that are compiled and of others: what else is new does not lie in caches
/// that a lane's idleness empties. With several bottlenecks or implementations the first is measured: what idleness
/// adds depends little on them. Where time is short, adapters stand for tasks.
pub(crate) fn changings(plan: &Plan, model: &ModelShape) -> Vec<(Changing, u32)> {
    let ops = plan.ops.of(&model.name);
    // What a card has that is added to is not measured again.
    let is_lacking = |(changing, first_layer): &(Changing, u32)| {
        let is_it = |row: &&ResumeRow| {
            row.model == model.name && row.changing == *changing && row.from_layer == first_layer + 1
        };
        !plan.there.resume.iter().any(|row| is_it(&row))
    };
    if plan.device.is_cuda() {
        let compiled = ops.compiled.then_some((Changing::Compiled, 0));
        let all = [(Changing::Heads, 0)].into_iter().chain(compiled);
        return all.filter(is_lacking).collect();
    }
    let has_adapters = !ops.bottlenecks.is_empty() && !ops.adapters.is_empty();
    let adapters = has_adapters.then_some(Changing::Adapters);
    let has_tasks = !ops.pets.is_empty() && (plan.suite == Suite::Full || !has_adapters);
    let tasks = has_tasks.then_some(Changing::Tasks);
    let whole = [Some(Changing::Heads), adapters, tasks].into_iter().flatten();
    let first_layers = ops.whole_models.iter();
    let models = first_layers.flat_map(|&first| [(Changing::Model, first), (Changing::CopiedModel, first)]);
    let all = whole.map(|changing| (changing, 0)).chain(models);
    all.filter(is_lacking).collect()
}

/// Measures a trained classifier's passes over texts after idleness, as its lane makes them.
pub(crate) fn measure_texts(text: &TextSubject, interrupted: &AtomicBool) -> Result<Vec<ResumeRow>, ExecutorError> {
    let lengths = text.tokens();
    let pass = |&(batch, is_short, calls): &(u32, bool, u32)| -> Pass<'_> {
        let tokens = lengths[if is_short { 0 } else { lengths.len() / 2 }];
        let mut probe = text.probe.share();
        Pass {
            requests: batch,
            calls,
            measure: Box::new(move || probe.pass(batch, tokens)),
            change_model: None,
        }
    };
    let passes = ENCODED.iter().map(pass).collect();
    resume::measure(&text.probe.shape().name, Changing::Heads, 0, passes, interrupted)
}

/// Measures an encoder's passes, from drawing token ids to the answers, after idleness and after another tenant's
/// model.
pub(crate) fn measure_encoder(
    subject: &Subject,
    heads: &Heads,
    (changing, first_layer): (Changing, u32),
    plan: &Plan,
    interrupted: &AtomicBool,
) -> Result<Vec<ResumeRow>, ExecutorError> {
    let encoder = &subject.encoder;
    let (shape, device) = (encoder.shape(), encoder.device());
    // Another model's, which has more of them.
    if first_layer >= shape.layers {
        return Ok(Vec::new());
    }
    let models = Turns::new(encoder, changing, first_layer, plan)?;
    let adapters = match changing {
        Changing::Adapters => Some((random_adapters(encoder, plan)?, plan.ops.of(&shape.name).adapters[0])),
        _ => None,
    };
    let tasks = match changing {
        Changing::Tasks => Some((random_tasks(encoder, plan)?, Streams::new(1)?)),
        _ => None,
    };
    // None of them runs here.
    if tasks.as_ref().is_some_and(|(tasks, _)| tasks.is_empty()) {
        return Ok(Vec::new());
    }
    let lengths = &subject.axes.tokens;
    let pass = |&(batch, is_short, calls): &(u32, bool, u32)| -> Pass<'_> {
        let tokens = lengths[if is_short { 0 } else { lengths.len() / 2 }];
        let (models, adapters, tasks, mut first) = (&models, &adapters, &tasks, 0);
        let measure = move || {
            first += batch;
            let among = |count| (0..batch).map(|row| spread_out(first + row, count)).collect::<Vec<_>>();
            let encoder = models.current();
            // What was looked up for the layers below, which a lane of its own brings.
            let looked_up = match first_layer {
                0 => None,
                _ => {
                    let size = [batch, tokens, shape.hidden].map(i64::from);
                    Some(Tensor::f_randn(size, (encoder.kind(), device))?)
                }
            };
            timed(device, || {
                let input = match looked_up {
                    None => encoder.input(&subject.sequences(batch, tokens, first.into()), tokens as usize)?,
                    Some(_) => {
                        let lengths = vec![tokens as usize; batch as usize];
                        Input::of_lengths(&lengths, tokens as usize, encoder.kind(), device)?
                    }
                };
                let planned = match adapters {
                    None => None,
                    Some((cache, implementation)) => Some((
                        cache,
                        cache.plan(&among(ADAPTER_SLOTS), tokens as usize, *implementation)?,
                    )),
                };
                let adapters = planned.as_ref().map(|(cache, plan)| Adapters::new(cache, plan));
                let layers = first_layer as usize..shape.layers as usize;
                let hidden = match looked_up {
                    None => encoder.embed(&input)?,
                    Some(hidden) => hidden,
                };
                let hidden = match tasks {
                    Some((tasks, streams)) => {
                        of_tasks(tasks, first, batch, tokens).layers(encoder, hidden, layers, &input, streams)?
                    }
                    None => encoder.layers(hidden, layers, &input, adapters.as_ref())?,
                };
                answers(heads, &hidden, &among(TENANTS))
            })
        };
        Pass {
            requests: batch,
            calls,
            measure: Box::new(measure),
            change_model: models.change(),
        }
    };
    let measured = on(plan.device, &ENCODED, &ENCODED_ON_GPU)
        .iter()
        .filter(|(batch, ..)| subject.axes.batch.contains(batch));
    resume::measure(
        &shape.name,
        changing,
        first_layer,
        measured.map(pass).collect(),
        interrupted,
    )
}

/// Measures passes of a request through a model that was compiled for its shortest and for its longest shape, likewise.
pub(crate) fn measure_compiled(
    subject: &Subject,
    heads: &Heads,
    interrupted: &AtomicBool,
) -> Result<Vec<ResumeRow>, ExecutorError> {
    let (encoder, lengths) = (&subject.encoder, &subject.axes.tokens);
    let device = encoder.device();
    // Graphs are captured on a stream of their own.
    let own = Stream::new(device)?;
    let pass = |tokens: u32| -> Result<Pass<'_>, ExecutorError> {
        let _entered = own.enter()?;
        let mut compiled = CompiledModel::new(encoder, heads, false, 1, tokens as usize)?.captured()?;
        let mut first = 0;
        let measure = move || {
            let _entered = own.enter()?;
            first += 1;
            let sequences = subject.sequences(1, tokens, first.into());
            timed(device, || compiled.run(&sequences, &[spread_out(first, TENANTS)]))
        };
        Ok(Pass {
            requests: 1,
            calls: 1,
            measure: Box::new(measure),
            change_model: None,
        })
    };
    let ends = [lengths.first(), lengths.last()].into_iter().flatten();
    let passes = ends.map(|&tokens| pass(tokens)).collect::<Result<_, _>>()?;
    resume::measure(&encoder.shape().name, Changing::Compiled, 0, passes, interrupted)
}

/// Measures steps of a decoder's sequences that get their next token, likewise: all layers that it is measured with.
pub(crate) fn measure_decoder(
    subject: &DecoderSubject,
    changing: Changing,
    plan: &Plan,
    interrupted: &AtomicBool,
) -> Result<Vec<ResumeRow>, ExecutorError> {
    let decoder = &subject.decoder;
    let (shape, device) = (decoder.shape(), decoder.device());
    // What tenants add to steps is measured with them (`steps.rs`).
    let models = Turns::new(decoder, changing, 0, plan)?;
    let pass = |&(sequences, calls): &(u32, u32)| -> Pass<'_> {
        let (models, mut first) = (&models, 0);
        let measure = move || {
            first += sequences;
            timed(device, || subject.step_through(models.current(), first, sequences))
        };
        Pass {
            requests: sequences,
            calls,
            measure: Box::new(measure),
            change_model: models.change(),
        }
    };
    resume::measure(
        &shape.name,
        changing,
        0,
        on(plan.device, &STEPS, &STEPS_ON_GPU).iter().map(pass).collect(),
        interrupted,
    )
}

/// Whole models that take turns.
struct Turns<M> {
    /// One, or as many as fill the memory that models are spread over.
    models: Vec<M>,
    /// Where they are copied to before they compute; nothing where they compute where they lie.
    slots: Vec<M>,
    /// How many turns there were.
    turn: Cell<usize>,
}

impl<M: WholeModel + Send + 'static> Turns<M> {
    /// Of a model's layers from `first_layer` on, where whole models are what changes.
    fn new(model: &M, changing: Changing, first_layer: u32, plan: &Plan) -> Result<Turns<M>, ExecutorError> {
        let unloaded = |_| M::unloaded(model.shape(), first_layer, plan.dtype, plan.device);
        let numbers = M::numbers(model.shape(), first_layer)? as i64;
        let all = model.parameters();
        let own = all.f_narrow(0, all.size()[0] - numbers, numbers)?;
        let slots = match changing {
            Changing::CopiedModel => (0..MODEL_SLOTS).map(unloaded).collect::<Result<_, _>>()?,
            _ => Vec::new(),
        };
        let copy = |number| {
            let copy = unloaded(number)?;
            copy.load(&own)?;
            Ok(copy)
        };
        let bytes = MODELS_BYTES.min(available_host_bytes() / MEMORY_SHARE);
        let count = (bytes / (numbers as u64 * element_bytes(own.kind()))).clamp(2, MODELS_MAX);
        let models = match changing {
            Changing::Model | Changing::CopiedModel => (0..count).map(copy).collect::<Result<_, ExecutorError>>()?,
            Changing::Heads | Changing::Compiled | Changing::Adapters | Changing::Tasks => vec![model.share()],
        };
        let turns = Turns {
            models,
            slots,
            turn: Cell::new(0),
        };
        turns.copy_in()?;
        Ok(turns)
    }

    /// Whose turn it is.
    fn current(&self) -> &M {
        let all = if self.slots.is_empty() {
            &self.models
        } else {
            &self.slots
        };
        &all[self.turn.get() % all.len()]
    }

    /// What makes it the next one's turn, where there are several.
    fn change(&self) -> Option<Box<dyn FnMut() -> Result<(), ExecutorError> + '_>> {
        (self.models.len() > 1).then(|| {
            let next = || {
                self.turn.set(self.turn.get() + 1);
                self.copy_in()
            };
            Box::new(next) as Box<dyn FnMut() -> _>
        })
    }

    /// Copies the model whose turn it is to its slot, by a thread of its own as a copy lane is, so that it may be on
    /// another core.
    fn copy_in(&self) -> Result<(), ExecutorError> {
        if self.slots.is_empty() {
            return Ok(());
        }
        let (from, to) = (
            self.models[self.turn.get() % self.models.len()].share(),
            self.current().share(),
        );
        let copy = move || {
            prepare_lane_thread();
            to.load(from.parameters())
        };
        let copied = std::thread::spawn(copy).join();
        copied.expect("a copy does not panic")
    }
}

/// As many tasks, of each kind that runs here in turn, as fill the memory that they are spread over.
fn random_tasks(encoder: &Encoder, plan: &Plan) -> Result<Vec<LoadedOperators>, ExecutorError> {
    let shape = encoder.shape();
    let mut tasks = Vec::new();
    let mut bytes = 0;
    for number in 0..TASKS_MAX {
        for &name in &plan.ops.of(&encoder.shape().name).pets {
            let kind = kind_named(name.name()).expect("every kind of a profile is implemented");
            let parameters = kind.random(shape, &PetSizes::PAPER, plan.seed, number);
            // What does not run on this device has a note where its operators are measured.
            if let Ok(operators) = tch::no_grad(|| kind.load(&Reader::new(&parameters), encoder)) {
                bytes += resident_bytes(name, shape, &PetSizes::PAPER);
                tasks.push(LoadedOperators::new(operators));
            }
        }
        if bytes >= TASKS_BYTES {
            break;
        }
    }
    // The order in which tasks come jumps over powers of two.
    tasks.truncate(1 << tasks.len().checked_ilog2().unwrap_or(0));
    Ok(tasks)
}

/// A batch of so many tasks, with a query of each.
fn of_tasks(tasks: &[LoadedOperators], first: u32, batch: u32, tokens: u32) -> PetBatch {
    let member = |row: u32| Member {
        operators: tasks[spread_out(first + row, tasks.len() as u32) as usize].clone(),
        first: row.into(),
        count: 1,
        tokens: tokens.into(),
        stream: 0,
    };
    PetBatch::new((0..batch).map(member).collect())
}

fn random_adapters(encoder: &Encoder, plan: &Plan) -> Result<AdapterCache, ExecutorError> {
    let (dtype, device) = (plan.dtype, encoder.device());
    let shape = AdapterShape::new(encoder.shape(), plan.ops.of(&encoder.shape().name).bottlenecks[0])?;
    let cache = AdapterCache::new(shape, ADAPTER_SLOTS, dtype, device)?;
    let store = AdapterStore::random(shape, ADAPTER_SLOTS, plan.seed, dtype, device, u64::MAX)?;
    for slot in 0..ADAPTER_SLOTS {
        cache.load(&store, slot, slot, 0..shape.layers as usize)?;
    }
    Ok(cache)
}

#[cfg(test)]
mod tests {
    use tenantry_profiles::DType;

    use super::*;

    #[test]
    fn what_tenants_have_from_a_later_layer_on_is_all_that_is_copied() {
        let plan = super::super::tests::plan();
        let shape = ModelShape::builtin("tiny").unwrap();
        let encoder = Encoder::random(&shape, 3, DType::F32, plan.device).unwrap();
        let upper = Encoder::numbers(&shape, 1).unwrap() as i64;
        let all = encoder.parameters().size()[0];
        assert!(upper < all);
        let of = encoder.parameters().narrow(0, all - upper, upper);
        let turns = Turns::new(&encoder, Changing::CopiedModel, 1, &plan).unwrap();
        assert_eq!(turns.slots.len(), MODEL_SLOTS as usize);
        assert!(turns.current().first_layer() == 1 && turns.current().parameters() == &of);
        // The next turn's slot has nothing yet.
        let next = &turns.slots[1];
        assert!(next.parameters() != &of);
        turns.change().expect("there are several")().unwrap();
        assert!(turns.current().parameters() == &of && next.parameters() == &of);
        // Nothing is copied where models lie on the card, nor changes where they are shared.
        let resident = Turns::new(&encoder, Changing::Model, 0, &plan).unwrap();
        assert!(resident.slots.is_empty() && resident.current().parameters() == encoder.parameters());
        assert!(Turns::new(&encoder, Changing::Heads, 0, &plan).unwrap().change().is_none());
    }
}
