//! Each kind against its dense merge, in mixed batches; and what is refused.

mod extending;
mod registering;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tch::{Device, Kind as Number, Tensor};
use tenantry_core::pet::work::{PetSizes, merges, resident_bytes};
use tenantry_core::spec::FineTuned;
use tenantry_profiles::{DType, ModelShape, PetKind};

use super::*;
use crate::device::prepare_lane_thread;
use crate::error::ExecutorError;
use crate::model::Encoder;
use crate::whole_models::WholeModel;

/// Widths that are no multiples of 8, so that rows of bits end within a byte.
fn shape(name: &str) -> ModelShape {
    ModelShape {
        name: name.into(),
        hidden: 20,
        heads: 2,
        kv_heads: 2,
        intermediate: 36,
        vocabulary: 50,
        positions: 16,
        ..ModelShape::builtin("tiny").unwrap()
    }
}

fn encoder(name: &str) -> Encoder {
    Encoder::random(&shape(name), 7, DType::F32, Device::Cpu).unwrap()
}

/// More than the paper's shares, so that what goes wrong is seen in small matrices.
const SIZES: PetSizes = PetSizes {
    bottleneck: 6,
    rank: 3,
    masked_share: 0.2,
    difference_share: 0.1,
};

fn random(kind: &str, task: u32) -> Parameters {
    kind_named(kind).unwrap().random(&shape("small"), &SIZES, 3, task)
}

/// Task `t` is of kind `t % 5`; all are loaded.
fn registry(tasks: u32) -> Registry {
    let mut registry = Registry::new(&KINDS, u64::MAX);
    registry.add_model("small", encoder("small")).unwrap();
    for task in 0..tasks {
        let kind = KINDS[task as usize % 5].name();
        registry.register(task, "small", kind, random(kind, task)).unwrap();
        registry.load(task).unwrap();
    }
    registry
}

fn floats(parameters: &Parameters, name: &str) -> Tensor {
    Reader::new(parameters).host_tensor(name).unwrap()
}

/// The shared model with a task's parameters merged into its weights, as a framework without shared operators would
/// serve it.
fn merged(encoder: &Encoder, kind: &str, parameters: &Parameters) -> Encoder {
    let merged = Encoder::from_parameters(encoder.shape(), encoder.parameters().copy()).unwrap();
    let own = |of: &str, part: &str, layer: usize| floats(parameters, &format!("layer.{layer}.{of}.{part}"));
    for layer in 0..2 {
        let parts = merged.layer_parts(layer);
        for linear in Linear::ALL {
            let (outputs, inputs) = linear.size(encoder.shape());
            let (mut weight, mut bias) = (
                linear.of(parts).weight.shallow_clone(),
                linear.of(parts).bias.shallow_clone(),
            );
            let own = |part: &str| own(linear.name(), part, layer);
            match kind {
                "mask-bert" => {
                    let bytes = own("mask");
                    let bits: Vec<Tensor> =
                        (0..8i64).map(|bit| bytes.bitwise_right_shift_tensor_scalar(bit).bitwise_and(1)).collect();
                    let mask = Tensor::stack(&bits, 2).view([outputs as i64, -1]).narrow(1, 0, inputs as i64);
                    assert!(mask.sum(Number::Int64).int64_value(&[]) < (outputs * inputs) as i64);
                    weight.copy_(&(&weight * mask));
                }
                "diff-pruning" => {
                    let starts = Vec::<i32>::try_from(&own("delta.starts")).unwrap();
                    for row in 0..outputs {
                        for element in starts[row]..starts[row + 1] {
                            let column = own("delta.columns").int64_value(&[element.into()]);
                            let mut cell = weight.get(row as i64).get(column);
                            cell += own("delta.values").double_value(&[element.into()]);
                        }
                    }
                    bias += own("bias_delta");
                }
                "bit-fit" => bias.copy_(&own("bias")),
                "lora" => weight += own("lora_b").matmul(&own("lora_a")),
                other => panic!("{other} does not merge"),
            }
        }
        if kind == "bit-fit" {
            for norm in Norm::ALL {
                norm.of(parts).bias.shallow_clone().copy_(&own(norm.name(), "bias", layer));
            }
        }
    }
    merged
}

/// Adapters add layers, so that there is nothing to merge them into: the whole forward pass of one sequence, written
/// with other operations.
fn with_adapters(encoder: &Encoder, parameters: &Parameters, ids: &[i64]) -> Tensor {
    let input = encoder.input(&[ids], ids.len()).unwrap();
    let (heads, width) = (
        encoder.shape().heads,
        i64::from(encoder.shape().hidden / encoder.shape().heads),
    );
    let mut hidden = encoder.embed(&input).unwrap().get(0);
    for layer in 0..2 {
        let parts = encoder.layer_parts(layer);
        let linear = |linear: Linear, x: &Tensor| x.matmul(&linear.of(parts).weight.tr()) + &linear.of(parts).bias;
        let adapt = |of: Linear, y: Tensor| {
            let own = |part| floats(parameters, &format!("layer.{layer}.{}.adapter.{part}", of.name()));
            let inner = (y.matmul(&own("down")) + own("down_bias")).clamp_min(0.0);
            &y + inner.matmul(&own("up")) + own("up_bias")
        };
        let norm = |norm: Norm, x: Tensor| norm.of(parts).forward(&x).unwrap();
        let by_part = linear(Linear::QueryKeyValue, &hidden).chunk(3, -1);
        let heads: Vec<Tensor> = (0..heads)
            .map(|head| {
                let [q, k, v] = [0, 1, 2].map(|part: usize| by_part[part].narrow(-1, i64::from(head) * width, width));
                (q.matmul(&k.tr()) / (width as f64).sqrt()).softmax(-1, Number::Float).matmul(&v)
            })
            .collect();
        let attention = linear(Linear::AttentionOutput, &Tensor::cat(&heads, -1));
        let middle = norm(Norm::Attention, adapt(Linear::AttentionOutput, attention) + &hidden);
        let output = linear(Linear::Output, &linear(Linear::Intermediate, &middle).gelu("none"));
        hidden = norm(Norm::Output, adapt(Linear::Output, output) + &middle);
    }
    hidden
}

/// What serves a task alone: its merged model, or its adapters beside the shared one.
pub(crate) enum Alone {
    Merged(Encoder),
    Adapters(Encoder, Parameters),
}

impl Alone {
    fn new(encoder: &Encoder, task: u32) -> Alone {
        let kind = KINDS[task as usize % 5].name();
        Alone::of(encoder, kind, random(kind, task))
    }

    pub(crate) fn of(encoder: &Encoder, kind: &str, parameters: Parameters) -> Alone {
        match kind {
            "adapters" => Alone::Adapters(encoder.share(), parameters),
            _ => Alone::Merged(merged(encoder, kind, &parameters)),
        }
    }

    /// The last hidden states of one sequence, `[l, hidden]`.
    pub(crate) fn run(&self, ids: &[i64]) -> Tensor {
        match self {
            Alone::Adapters(encoder, parameters) => with_adapters(encoder, parameters, ids),
            Alone::Merged(own) => {
                let input = own.input(&[ids], ids.len()).unwrap();
                own.layers(own.embed(&input).unwrap(), 0..2, &input, None).unwrap().get(0)
            }
        }
    }
}

/// The last hidden states of a batch, `[n, l, hidden]`.
fn together(
    registry: &Registry,
    model: &str,
    tasks: &[(u32, Vec<Vec<i64>>)],
    stream_of: &[u32],
    streams: &Streams,
) -> Tensor {
    let encoder = registry.model(model).unwrap();
    let sequences: Vec<&Vec<i64>> = tasks.iter().flat_map(|(_, sequences)| sequences).collect();
    let longest = sequences.iter().map(|ids| ids.len()).max().unwrap();
    let input = encoder.input(&sequences, longest).unwrap();
    let group = |(task, sequences): &(u32, Vec<Vec<i64>>)| Group {
        task: *task,
        count: sequences.len(),
        tokens: sequences.iter().map(Vec::len).max().unwrap(),
    };
    let groups: Vec<Group> = tasks.iter().map(group).collect();
    let mut batch = registry.batch(model, &groups).unwrap();
    batch.assign(stream_of);
    let hidden = encoder.embed(&input).unwrap();
    batch.layers(encoder, hidden, 0..2, &input, streams).unwrap()
}

fn difference(a: &Tensor, b: &Tensor) -> f64 {
    (a - b).abs().max().double_value(&[])
}

/// A mini-batch of each given task: `(task, lengths)`.
fn with_ids(groups: &[(u32, Vec<usize>)]) -> Vec<(u32, Vec<Vec<i64>>)> {
    let ids = |task: u32, row: usize, length: usize| {
        let id = |position: usize| ((task as usize * 31 + row * 7 + position * 13) % 50) as i64;
        (0..length).map(id).collect()
    };
    let group = |(task, lengths): &(u32, Vec<usize>)| {
        let sequences = lengths.iter().enumerate().map(|(row, &length)| ids(*task, row, length));
        (*task, sequences.collect())
    };
    groups.iter().map(group).collect()
}

fn groups(tasks: u32) -> impl Strategy<Value = Vec<(u32, Vec<usize>)>> {
    prop::collection::vec((0..tasks, prop::collection::vec(1usize..=16, 1..4)), 1..8)
}

#[test]
fn a_mixed_batch_equals_each_request_on_its_dense_merge() {
    const TASKS: u32 = 10;
    // As who serves does it: of several threads that share one product, some processors' results are others than one's.
    prepare_lane_thread();
    let registry = registry(TASKS);
    let encoder = registry.model("small").unwrap();
    let alone: Vec<Alone> = (0..TASKS).map(|task| Alone::new(encoder, task)).collect();
    let check = |(groups, count): (Vec<(u32, Vec<usize>)>, u32)| {
        let tasks = with_ids(&groups);
        let streams = Streams::new(count).unwrap();
        let stream_of: Vec<u32> = (0..tasks.len() as u32).map(|index| index * 7 % count).collect();
        let found = together(&registry, "small", &tasks, &stream_of, &streams);
        let mut row = 0;
        for (task, sequences) in &tasks {
            for ids in sequences {
                let found = found.get(row).narrow(0, 0, ids.len() as i64);
                let off = difference(&found, &alone[*task as usize].run(ids));
                prop_assert!(off < 2e-5, "task {task}, sequence {row}: off by {off}");
                row += 1;
            }
        }
        // Neither the number of streams nor who runs on which changes a bit.
        let one = together(
            &registry,
            "small",
            &tasks,
            &vec![0; tasks.len()],
            &Streams::new(1).unwrap(),
        );
        prop_assert!(one.equal(&found));
        Ok(())
    };
    let mut runner = TestRunner::new(ProptestConfig::with_cases(48));
    runner.run(&(groups(TASKS), 1u32..4), check).unwrap();
}

#[test]
fn a_full_model_is_the_shared_one_with_the_task_merged_into_it() {
    let registry = registry(5);
    let shared = registry.model("small").unwrap();
    let ids: Vec<i64> = (0..9).collect();
    for task in 0..5 {
        let own = registry.own_model(task, FineTuned::ByKind, Device::Cpu).unwrap();
        let alone = Alone::new(shared, task);
        if let Alone::Merged(by_hand) = &alone {
            let off = difference(own.encoder().parameters(), by_hand.parameters());
            assert!(off < 1e-6, "task {task}: {off}");
        }
        let input = own.encoder().input(&[&ids], 9).unwrap();
        let hidden = own.encoder().embed(&input).unwrap();
        let found = own.layers(hidden, &input, &Streams::new(1).unwrap()).unwrap();
        let off = difference(&found.get(0), &alone.run(&ids));
        assert!(off < 2e-5, "task {task}: {off}");
    }
    assert!(
        shared.parameters().equal(encoder("small").parameters()),
        "the shared model stays as it is"
    );
}

#[test]
fn full_models_can_have_one_embedding() {
    let registry = registry(5);
    let model = registry.model("small").unwrap();
    let ids: Vec<i64> = (0..9).collect();
    let first = registry.own_model(0, FineTuned::ByKind, Device::Cpu).unwrap();
    let second = registry.own_layers(1, FineTuned::ByKind, &first).unwrap();
    // Beside one that has only layers of its own just as well.
    let third = registry.own_layers(2, FineTuned::ByKind, &second.share()).unwrap();
    for (task, own) in [(1, second), (2, third.share())] {
        let shape = shape("small");
        let layers = u64::from(shape.layers) * shape.layer_parameters();
        assert_eq!(own.encoder().device_bytes(), 4 * layers);
        let input = own.encoder().input(&[&ids], 9).unwrap();
        let hidden = own.encoder().embed(&input).unwrap();
        let found = own.layers(hidden, &input, &Streams::new(1).unwrap()).unwrap();
        let off = difference(&found.get(0), &Alone::new(model, task).run(&ids));
        assert!(off < 2e-5, "task {task}: {off}");
    }
    // It is the first's and no copy.
    let _ = first.encoder().pieces()[0].shallow_clone().zero_();
    let input = third.encoder().input(&[&ids], 9).unwrap();
    let embedded = |own: &OwnModel| own.encoder().embed(&input).unwrap();
    assert!(embedded(&first).equal(&embedded(&third)));
}

#[test]
fn adapters_are_beside_a_full_model_that_is_fine_tuned_by_kind_and_not_beside_one_that_is_as_a_whole() {
    let (registry, streams) = (registry(1), Streams::new(1).unwrap());
    let shared = registry.model("small").unwrap();
    let ids: Vec<i64> = (0..9).collect();
    let input = shared.input(&[&ids], 9).unwrap();
    let plain = shared.layers(shared.embed(&input).unwrap(), 0..2, &input, None).unwrap();
    let [by_kind, as_a_whole] = [FineTuned::ByKind, FineTuned::AsAWhole].map(|fine_tuned| {
        let own = registry.own_model(0, fine_tuned, Device::Cpu).unwrap();
        own.layers(own.encoder().embed(&input).unwrap(), &input, &streams).unwrap()
    });
    assert!(as_a_whole.equal(&plain));
    assert!(difference(&by_kind, &plain) > 1e-3);
}

#[test]
fn policies_know_which_kinds_merge() {
    for kind in KINDS {
        let known = PetKind::ALL.iter().find(|known| known.name() == kind.name()).unwrap();
        assert_eq!(kind.merges(), merges(*known), "{known}");
    }
}

#[test]
fn every_kind_makes_a_difference() {
    let registry = registry(5);
    let encoder = registry.model("small").unwrap();
    let ids: Vec<i64> = (0..9).collect();
    let input = encoder.input(&[&ids], 9).unwrap();
    let plain = encoder.layers(encoder.embed(&input).unwrap(), 0..2, &input, None).unwrap();
    for task in 0..5 {
        let adapted = together(
            &registry,
            "small",
            &[(task, vec![ids.clone()])],
            &[0],
            &Streams::new(1).unwrap(),
        );
        let off = difference(&adapted, &plain);
        assert!(off > 1e-3, "{}: {off}", KINDS[task as usize].name());
    }
}

#[test]
fn kinds_are_those_that_profiles_know() {
    assert_eq!(KINDS.map(|kind| kind.name()).as_slice(), PetKind::NAMES);
}

#[test]
fn a_batch_that_is_not_its_mini_batches_is_refused() {
    let registry = registry(2);
    let encoder = registry.model("small").unwrap();
    let input = encoder.input(&[vec![1, 2, 3], vec![4]], 3).unwrap();
    let refused = |groups: &[Group]| {
        let batch = registry.batch("small", groups).unwrap();
        let hidden = encoder.embed(&input).unwrap();
        let layers = batch.layers(encoder, hidden, 0..2, &input, &Streams::new(1).unwrap());
        layers.unwrap_err().to_string()
    };
    let group = |task, tokens| Group { task, count: 1, tokens };
    assert_eq!(
        refused(&[group(0, 3)]),
        "sequences of the batch: must be 1, the sequences of its mini-batches, got 2"
    );
    assert_eq!(
        refused(&[group(0, 3), group(1, 4)]),
        "padded length of the batch: must be at least 4, its longest mini-batch, got 3"
    );
}

#[test]
fn several_shared_models_serve_side_by_side() {
    let mut registry = registry(5);
    let deep = ModelShape {
        layers: 3,
        hidden: 12,
        ..shape("deep")
    };
    registry
        .add_model(&deep.name, Encoder::random(&deep, 9, DType::F32, Device::Cpu).unwrap())
        .unwrap();
    let refused = registry.add_model("small", encoder("small")).unwrap_err().to_string();
    assert_eq!(
        refused,
        "shared model small: must be added once, got a second of this name"
    );
    let wrong = registry.register(50, "deep", "lora", random("lora", 0)).unwrap_err().to_string();
    assert_eq!(
        wrong,
        "task 50: layer.0.query_key_value.lora_a: must be F32 of shape [1 or more, 12], got F32 of shape [3, 20]"
    );
    for (index, kind) in KINDS.iter().enumerate() {
        let task = 50 + index as u32;
        registry.register(task, "deep", kind.name(), kind.random(&deep, &SIZES, 3, task)).unwrap();
        registry.load(task).unwrap();
    }
    // A shared handle, as another lane has it, computes the same.
    let streams = Streams::new(2).unwrap();
    let run = |registry: &Registry, model: &str, first: u32| {
        let tasks = with_ids(&[(first, vec![4, 9]), (first + 1, vec![3]), (first + 4, vec![9])]);
        together(registry, model, &tasks, &[0, 1, 1], &streams)
    };
    assert_eq!(run(&registry, "deep", 50).size(), [4, 9, 12]);
    assert_eq!(run(&registry, "small", 0).size(), [4, 9, 20]);
    assert!(run(&registry.share(), "deep", 50).equal(&run(&registry, "deep", 50)));
    let mixed = [0, 50].map(|task| Group {
        task,
        count: 1,
        tokens: 1,
    });
    let refused = registry.batch("small", &mixed).unwrap_err().to_string();
    assert_eq!(
        refused,
        "task 50: must be of shared model small in this batch, got one of deep"
    );
}
