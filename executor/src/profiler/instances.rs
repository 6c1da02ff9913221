//! Points of a model's instances: a whole forward pass at each padded shape, and one layer while other instances
//! compute one.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tch::{Device, Tensor};
use tenantry_profiles::{ConcurrentLayerRow, ConcurrentModelRow, StaticModelRow, Tables};

use super::Suite;
use super::compute::{Subject, answers};
use super::held_out::{HoldOut, Spot};
use super::ops::ModelOps;
use super::schedule::Point;
use super::timing::timed;
use crate::device::{Stream, prepare_lane_thread, synchronize};
use crate::error::ExecutorError;
use crate::model::{CompiledModel, Encoder, Heads, Input};

/// Instances that compute at once, as far as there are cores.
pub(crate) const STREAMS: [u32; 4] = [1, 2, 4, 8];
/// Sequences in a batch of a model at a padded length. Of a token or two each, an odd one costs nearly as much as the
/// next.
const STATIC_BATCH: [u32; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 12];
/// Layers in one measurement: two, so that the caches at the second layer's start are as another layer left them.
pub(crate) const LAYERS: u32 = 2;

/// Handles on a model and a batch that may go to another thread.
pub(crate) struct Instance {
    encoder: Encoder,
    input: Input,
    hidden: Tensor,
    calls: usize,
}

impl Instance {
    /// Of a batch that has been embedded.
    pub fn new(encoder: &Encoder, input: Input) -> Result<Instance, ExecutorError> {
        Ok(Instance {
            hidden: encoder.embed(&input)?,
            encoder: encoder.share(),
            input,
            calls: 0,
        })
    }

    /// Computes two layers, at each call beginning with another, and says what one took.
    pub fn layer(&mut self) -> Result<Duration, ExecutorError> {
        let layers = self.encoder.shape().layers as usize;
        let at_once = (LAYERS as usize).min(layers);
        let first = self.calls * at_once % (layers - at_once + 1);
        self.calls += 1;
        let forward = || {
            let hidden = self.hidden.shallow_clone();
            self.encoder.layers(hidden, first..first + at_once, &self.input, None)
        };
        Ok(timed(self.encoder.device(), forward)? / at_once as u32)
    }
}

/// What `once` takes on the first of these instances while the others do it too, on a thread and a stream each as lanes
/// have. There are as many streams: kept from one call to the next, since libtorch keeps memory for each that it has
/// computed on.
pub(crate) fn in_company<T: Send>(
    instances: &mut [T],
    streams: &[Stream],
    once: impl Fn(&mut T) -> Result<Duration, ExecutorError> + Sync,
) -> Result<Duration, ExecutorError> {
    let (first, others) = instances.split_first_mut().expect("there is one at least");
    let (start, end) = (Barrier::new(others.len() + 1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let company: Vec<_> = others
            .iter_mut()
            .zip(&streams[1..])
            .map(|(other, stream)| {
                scope.spawn(|| {
                    prepare_lane_thread();
                    let warm = stream.make_current().and_then(|()| once(other));
                    start.wait();
                    warm?;
                    while !end.load(Ordering::Relaxed) {
                        once(other)?;
                    }
                    Ok::<(), ExecutorError>(())
                })
            })
            .collect();
        start.wait();
        // The others' beginnings are over when this one's first is.
        let took = streams[0].enter().and_then(|_entered| {
            once(first)?;
            once(first)
        });
        end.store(true, Ordering::Relaxed);
        for other in company {
            other.join().expect("an instance reports its errors")?;
        }
        took
    })
}

/// Streams for as many instances as compute at once: on a CPU no more than it has cores.
pub(crate) fn company(device: Device) -> Result<Vec<Stream>, ExecutorError> {
    let most = STREAMS[STREAMS.len() - 1];
    let most = if device.is_cuda() {
        most
    } else {
        most.min(tenantry_profiles::cores())
    };
    (0..most).map(|_| Stream::new(device)).collect()
}

/// All points of a model.
pub(crate) fn points<'a>(
    subject: &'a Subject,
    heads: &'a [(u32, Heads)],
    ops: &ModelOps,
    suite: Suite,
    hold_out: HoldOut,
) -> Result<Vec<Point<'a>>, ExecutorError> {
    let mut points = Vec::new();
    if ops.concurrent {
        points.extend(concurrent(subject, suite, hold_out)?);
    }
    if let Some((_, heads)) = heads.first().filter(|_| ops.compiled) {
        points.extend(whole(subject, heads, suite, hold_out)?);
        // A CPU compiles nothing: there layers side by side say it.
        if ops.concurrent && subject.encoder.device().is_cuda() {
            points.extend(compiled_side_by_side(subject, heads, hold_out)?);
        }
    }
    Ok(points)
}

fn concurrent(subject: &Subject, suite: Suite, hold_out: HoldOut) -> Result<Vec<Point<'_>>, ExecutorError> {
    let (model, dtype) = (subject.encoder.shape().name.clone(), subject.dtype);
    let (batches, lengths) = match suite {
        Suite::Quick => (first_and_middle(&subject.axes.batch), subject.axes.few_tokens()),
        Suite::Full => (subject.axes.batch.clone(), subject.axes.fewer_tokens()),
    };
    let lengths = &lengths;
    let device = subject.encoder.device();
    let all_streams = company(device)?;
    let mut points = Vec::new();
    let served = STREAMS.into_iter().filter(|&streams| streams as usize <= all_streams.len());
    let grid = served.flat_map(|streams| {
        let of_streams = move |&batch| lengths.iter().map(move |&tokens| [streams, batch, tokens]);
        batches.iter().flat_map(of_streams)
    });
    for Spot {
        at: [streams, batch, tokens],
        held_out,
    } in hold_out.spots(grid.collect(), Some)
    {
        let own = all_streams[..streams as usize].to_vec();
        let instance = || Instance::new(&subject.encoder, subject.input(batch, tokens)?);
        let mut instances = (0..streams).map(|_| instance()).collect::<Result<Vec<_>, _>>()?;
        synchronize(device)?;
        let model = model.clone();
        let row = move |tables: &mut Tables, stats| {
            tables.concurrent_layer.push(ConcurrentLayerRow {
                model: model.clone(),
                dtype,
                streams,
                batch,
                tokens,
                stats,
            });
        };
        let table = format!("concurrent_layer of {}", subject.encoder.shape().name);
        let measure = move || in_company(&mut instances, &own, Instance::layer);
        points.push(Point::new(table, measure, row).held_out(held_out));
    }
    Ok(points)
}

/// Whole passes of a model compiled for a request's length, while other instances make theirs.
fn compiled_side_by_side<'a>(
    subject: &'a Subject,
    heads: &'a Heads,
    hold_out: HoldOut,
) -> Result<Vec<Point<'a>>, ExecutorError> {
    let (model, dtype) = (subject.encoder.shape().name.clone(), subject.dtype);
    let device = subject.encoder.device();
    let all_streams: Rc<[Stream]> = company(device)?.into();
    let lengths = subject.axes.longest_tokens();
    // Captured when they are first measured, and by as many instances at once as there are: each takes a tenth of a
    // second.
    let captured: Vec<CompiledInstances> = lengths.iter().map(|_| CompiledInstances::default()).collect();
    let served = STREAMS.into_iter().filter(|&streams| streams as usize <= all_streams.len());
    let grid = served.flat_map(|streams| lengths.iter().map(move |&tokens| [streams, tokens]));
    let mut points = Vec::new();
    // A length between two is padded to the longer: only numbers of instances lie between those that are measured.
    let compiled_for = |[streams, tokens]: [u32; 2]| {
        let longer = lengths.iter().copied().find(|&length| length >= tokens)?;
        Some([streams, longer])
    };
    for Spot {
        at: [streams, tokens],
        held_out,
    } in hold_out.spots(grid.collect(), compiled_for)
    {
        let at = lengths.iter().position(|&length| length == tokens).expect("a length of the grid");
        let (instances, own) = (captured[at].clone(), Rc::clone(&all_streams));
        let measure = move || {
            let mut instances = instances.borrow_mut();
            let one_more = |instances: &mut Vec<CompiledInstance>| {
                let _entered = own[instances.len()].enter()?;
                let compiled = CompiledModel::new(&subject.encoder, heads, false, 1, tokens as usize)?.captured()?;
                let sequences = subject.sequences(1, tokens, instances.len() as u64);
                instances.push(CompiledInstance { compiled, sequences });
                Ok::<_, ExecutorError>(())
            };
            while instances.len() < streams as usize {
                if let Err(error) = one_more(&mut instances) {
                    // A table that is given up keeps nothing on the device.
                    instances.clear();
                    return Err(error);
                }
            }
            let of_these = &mut instances[..streams as usize];
            in_company(of_these, &own[..streams as usize], |one: &mut CompiledInstance| {
                timed(device, || one.compiled.run(&one.sequences, &[0]))
            })
        };
        let name = model.clone();
        let row = move |tables: &mut Tables, stats| {
            tables.concurrent_model.push(ConcurrentModelRow {
                model: name.clone(),
                dtype,
                streams,
                batch: 1,
                tokens,
                stats,
            });
        };
        points.push(Point::new(format!("concurrent_model of {model}"), measure, row).held_out(held_out));
    }
    Ok(points)
}

/// An instance of a compiled runtime with its request.
struct CompiledInstance {
    compiled: CompiledModel,
    sequences: Vec<Vec<i64>>,
}

/// Of one length.
type CompiledInstances = Rc<RefCell<Vec<CompiledInstance>>>;

/// Whole passes, from token ids to the answers in host memory: on a GPU of models that are compiled for the shape. A
/// CPU compiles nothing: what is measured there is the same eager pass as in parts, without the hand-overs between
/// them.
fn whole<'a>(
    subject: &'a Subject,
    heads: &'a Heads,
    suite: Suite,
    hold_out: HoldOut,
) -> Result<Vec<Point<'a>>, ExecutorError> {
    let (model, dtype) = (subject.encoder.shape().name.clone(), subject.dtype);
    let batches = match suite {
        Suite::Quick => vec![subject.axes.batch[0]],
        Suite::Full => {
            let most = subject.axes.batch[subject.axes.batch.len() * 2 / 3];
            STATIC_BATCH.into_iter().filter(|&batch| batch <= most).collect()
        }
    };
    let mut points = Vec::new();
    // Nothing is captured on a GPU's default stream.
    let own = Stream::new(subject.encoder.device())?;
    let lengths = &subject.axes.tokens;
    let grid = batches.iter().flat_map(|&batch| lengths.iter().map(move |&tokens| [batch, tokens]));
    // What runs is padded to a length that is compiled: only batches lie between those that are measured.
    let compiled_for = |[batch, tokens]: [u32; 2]| {
        let longer = lengths.iter().copied().find(|&length| length >= tokens)?;
        Some([batch, longer])
    };
    for Spot {
        at: [batch, tokens],
        held_out,
    } in hold_out.spots(grid.collect(), compiled_for)
    {
        let (encoder, input) = (&subject.encoder, subject.input(batch, tokens)?);
        let tenants: Vec<u32> = (0..batch).collect();
        let sequences = subject.sequences(batch, tokens, 0);
        let mut compiled = None;
        let pass = move || {
            let _entered = own.enter()?;
            if encoder.device().is_cuda() {
                let compiled = match &mut compiled {
                    Some(compiled) => compiled,
                    none => {
                        let (batch, tokens) = (batch as usize, tokens as usize);
                        none.insert(CompiledModel::new(encoder, heads, false, batch, tokens)?.captured()?)
                    }
                };
                return timed(encoder.device(), || compiled.run(&sequences, &tenants));
            }
            timed(encoder.device(), || {
                let hidden = encoder.embed(&input)?;
                let hidden = encoder.layers(hidden, 0..encoder.shape().layers as usize, &input, None)?;
                answers(heads, &hidden, &tenants)
            })
        };
        let name = model.clone();
        let row = move |tables: &mut Tables, stats| {
            tables.static_model.push(StaticModelRow {
                model: name.clone(),
                dtype,
                batch,
                tokens,
                stats,
            });
        };
        points.push(Point::new(format!("static_model of {model}"), pass, row).held_out(held_out));
    }
    Ok(points)
}

fn first_and_middle(all: &[u32]) -> Vec<u32> {
    let mut both = vec![all[0], all[(all.len() - 1) / 2]];
    both.dedup();
    both
}
