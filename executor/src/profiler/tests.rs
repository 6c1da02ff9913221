//! Cards of small models, briefly measured, and what a suite leaves out.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenantry_profiles::{Changing, CopyResumeRow, DType, DispatchOperation, Family, ModelShape, Stats};

use super::compute::Subject;
use super::partial::Partial;
use super::sizes::Sizes;
use super::timing::issued;
use super::*;
use crate::device::synchronize;

pub(super) fn plan() -> Plan {
    let small = ModelShape {
        name: "smallest".into(),
        hidden: 16,
        heads: 2,
        kv_heads: 2,
        intermediate: 32,
        vocabulary: 50,
        positions: 8,
        ..ModelShape::builtin("tiny").unwrap()
    };
    Plan {
        name: "here".into(),
        device: tch::Device::Cpu,
        description: crate::describe_cpu().unwrap(),
        ops: Ops::all(std::slice::from_ref(&small), &[4], &[16]),
        models: vec![small],
        dtype: DType::F32,
        classes: vec![2],
        served: Served::default(),
        texts: Vec::new(),
        suite: Suite::Quick,
        time: None,
        seed: 1,
        scratch: std::env::temp_dir(),
        there: Default::default(),
        has_limits: false,
        partial: None,
        command: "tenantry profile --device cpu".into(),
        date: "2025-01-31".into(),
    }
}

/// Stops when every point has been visited a few times.
fn profile_briefly(plan: &Plan, calls_per_point: usize) -> Profiled {
    let interrupted = AtomicBool::new(false);
    let mut calls = 0;
    let mut progress = |progress: Progress| {
        assert!(
            !plan.there.names().is_empty() || progress.time_left >= AFTER_POINTS + RESUME,
            "what comes after the points takes time too"
        );
        calls += 1;
        if calls >= calls_per_point * progress.points {
            interrupted.store(true, Ordering::Relaxed);
        }
    };
    profile(plan, &mut progress, &interrupted).unwrap()
}

/// The card of [`plan`], which takes most of a minute to measure.
fn brief_card() -> &'static Card {
    static CARD: LazyLock<Card> = LazyLock::new(|| profile_briefly(&plan(), 3).card);
    &CARD
}

#[test]
fn a_card_of_a_small_model_prices_all_its_ops() {
    let (plan, card) = (plan(), brief_card());
    // Three visits a point, beside other tests, are too few for `card.validate()`, which asks for costs that rise.
    let (model, dtype) = (&plan.models[0], plan.dtype);
    assert!(card.encoder_layer(model, dtype).unwrap().covers(32, 8));
    assert!(card.embedding(model, dtype).unwrap().covers(1, 8));
    assert!(card.head(model, dtype, 2).unwrap().covers(32));
    for &implementation in tenantry_profiles::AdapterImplementation::ALL {
        let adapter = card.adapter(model, dtype, implementation, 4);
        let runs = card.provenance.notes.iter().all(|note| !note.starts_with("grouped"));
        if runs || implementation != tenantry_profiles::AdapterImplementation::Grouped {
            assert!(adapter.unwrap().covers(32, 32, 8));
        }
    }
    assert!(card.static_model(model, dtype).is_ok());
    assert!(card.concurrent_layer(model, dtype).unwrap().covers(1, 4, 8));
    for &kind in tenantry_profiles::PetKind::ALL {
        assert!(card.pet(model, dtype, kind).unwrap().covers(32, 8), "{kind}");
    }
    assert!(card.copy(tenantry_profiles::Direction::HostToDevice, false).unwrap().covers(1 << 20));
    for &source in tenantry_profiles::LoadSource::ALL {
        card.model_load(source).unwrap();
    }
    for operation in [
        DispatchOperation::Wake,
        DispatchOperation::Tell,
        DispatchOperation::Alarm,
    ] {
        assert!(card.dispatch(operation).unwrap().median_ns > 0, "{operation}");
    }
    assert_eq!(card.models, plan.models);
}

#[test]
fn a_card_of_a_small_decoder_prices_its_steps_and_lora() {
    let small = |name: &str| ModelShape {
        name: format!("small-{name}"),
        hidden: 16,
        heads: 4,
        kv_heads: if name == "tiny-llama" { 2 } else { 4 },
        intermediate: 32,
        vocabulary: 50,
        positions: 64,
        ..ModelShape::builtin(name).unwrap()
    };
    let models = vec![small("tiny-llama"), small("tiny-opt")];
    let plan = Plan {
        ops: Ops::all(&models, &[4], &[16]),
        models,
        ..plan()
    };
    let card = profile_briefly(&plan, 3).card;
    for model in &plan.models {
        let decoder = card.decoder(model, plan.dtype, 1).unwrap();
        assert!(decoder.dense.covers(64) && decoder.ends.covers(32, 64));
        assert!(decoder.prefill.covers(16, 64) && decoder.decode.covers(32, 16));
        assert!(decoder.whole_prompt.unwrap().covers(64));
        for &implementation in tenantry_profiles::AdapterImplementation::ALL {
            let lora = card.lora(model, plan.dtype, implementation, 16, 1);
            let runs = card.provenance.notes.iter().all(|note| !note.starts_with("grouped LoRA"));
            if runs || implementation != tenantry_profiles::AdapterImplementation::Grouped {
                assert!(lora.unwrap().covers(16, 32), "{implementation}");
            }
        }
    }
    assert!(card.tables.encoder_layer.is_empty());
}

#[test]
fn an_interrupted_profile_is_gone_on_with_and_only_by_its_own_plan() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("card.partial");
    let plan = Plan {
        partial: Some(path.clone()),
        ..plan()
    };
    assert!(profile_briefly(&plan, 1).interrupted);
    let first = Partial::read(&path, &plan).unwrap().unwrap();
    let card = profile_briefly(&plan, 2).card;
    let second = Partial::read(&path, &plan).unwrap().unwrap();
    assert_eq!((first.runs, second.runs), (1, 2));
    assert_eq!(first.per_token_ns, second.per_token_ns);
    assert!(second.spent_ns >= first.spent_ns);
    let went_on = |note: &String| note.starts_with("measured in 2 runs");
    assert!(card.provenance.notes.iter().any(went_on), "{:?}", card.provenance.notes);

    let other = Plan { seed: 2, ..plan };
    let refused = profile(&other, &mut |_| {}, &AtomicBool::new(true)).unwrap_err().to_string();
    assert!(
        refused.contains("card.partial: seed: must be 2, as asked for, got 1"),
        "{refused}"
    );
    assert!(refused.contains("tenantry profile --device cpu"), "{refused}");
    std::fs::write(&path, "{").unwrap();
    let broken = profile(&other, &mut |_| {}, &AtomicBool::new(true)).unwrap_err().to_string();
    assert!(broken.contains("must be an unfinished profile, or removed"), "{broken}");
}

#[test]
fn no_time_goes_into_tables_that_are_there() {
    let all = &brief_card().tables;
    assert!(!all.encoder_layer.is_empty() && !all.copy.is_empty() && !all.head.is_empty());
    // Whoever is told to stop has none of these.
    let mut there = all.clone();
    there.copy_resume.push(CopyResumeRow {
        idle_us: 1,
        work_us: 1,
        stats: Stats::exact(1.0),
    });
    let short = |there: &Tables| {
        short_after_points(&Plan {
            there: there.clone(),
            ..plan()
        })
    };
    assert_eq!(
        (short(&there), short(&Tables::default())),
        (Duration::ZERO, AFTER_POINTS)
    );
    // How much look-ups and compute disturb each other comes with the first of their tables.
    there.plot_lookup.clear();
    assert_eq!(short(&there), AFTER_POINTS);
    let mut there = all.clone();
    there.head.clear();
    let lacking = profile_briefly(&Plan { there, ..plan() }, 3).card.tables;
    assert_eq!(lacking.head.len(), all.head.len());
    let families: Vec<Family> = lacking.names().into_iter().map(|(family, _)| family).collect();
    assert!(families.iter().all(|family| *family == Family::Head), "{families:?}");
}

#[test]
fn an_interrupt_at_once_leaves_a_card_without_tables() {
    let profiled = profile(&plan(), &mut |_| {}, &AtomicBool::new(true)).unwrap();
    assert!(profiled.interrupted && profiled.card.tables.encoder_layer.is_empty());
    profiled.card.validate().unwrap();
    let notes = profiled.card.provenance.notes.join("\n");
    assert!(
        notes.contains("encoder_layer of smallest") && notes.contains("interrupted"),
        "{notes}"
    );
}

#[test]
fn what_makes_no_sense_on_a_gpu_is_left_out_and_said() {
    let large = ModelShape::builtin("llama-7b").unwrap();
    let gpu = Plan {
        device: tch::Device::Cuda(0),
        ops: Ops::all(std::slice::from_ref(&large), &[4], &[16]),
        models: vec![large],
        dtype: DType::F16,
        ..plan()
    };
    let cpu = Plan {
        device: tch::Device::Cpu,
        ..gpu.clone()
    };
    assert_eq!(passes::changings(&gpu, &gpu.models[0]), [(Changing::Heads, 0)]);
    assert_eq!(passes::changings(&cpu, &cpu.models[0]).len(), 4);
    let encoder = Plan {
        device: tch::Device::Cuda(0),
        ..plan()
    };
    let of_encoder = [Changing::Heads, Changing::Compiled].map(|changing| (changing, 0));
    assert_eq!(passes::changings(&encoder, &encoder.models[0]), of_encoder);
    let notes = unmeasured(&gpu).join("\n");
    for left_out in ["concurrent_step", "resume"] {
        assert!(notes.contains(left_out), "{notes}");
    }
    assert_eq!(unmeasured(&cpu), Vec::<String>::new());
    let largest = |plan| {
        let sizes = Sizes::new(plan).unwrap();
        [sizes.copies, sizes.models].map(|all| *all.last().unwrap())
    };
    assert_eq!(largest(&gpu), [1 << 30; 2]);
    assert!(largest(&cpu).into_iter().all(|bytes| bytes > 13_000_000_000));
}

#[test]
fn issuing_is_timed_by_the_hosts_clock_until_the_call_returns() {
    let slow = |device| {
        std::thread::sleep(Duration::from_millis(2));
        synchronize(device)
    };
    let took = issued(tch::Device::Cpu, || slow(tch::Device::Cpu)).unwrap();
    assert!(took >= Duration::from_millis(2));
    let subject = Subject::new(
        &plan().models[0],
        7,
        DType::F32,
        tch::Device::Cpu,
        (Suite::Quick, Served::default()),
        Duration::from_secs(1),
        None,
    );
    let subject = subject.unwrap();
    assert!(subject.issuing().unwrap()().unwrap() > Duration::ZERO);
}

#[test]
fn the_quick_suite_keeps_its_promise_of_time() {
    let on = |suite: Suite, models, device| suite.duration(models, device).as_secs();
    let (cpu, gpu) = (tch::Device::Cpu, tch::Device::Cuda(0));
    assert!(on(Suite::Quick, 1, cpu) <= 60 && on(Suite::Quick, 2, cpu) < 180);
    assert!(on(Suite::Quick, 9, cpu) > 180 && on(Suite::Quick, 9, gpu) < 180);
    assert!(on(Suite::Full, 2, gpu) < 540 && on(Suite::Full, 2, cpu) == 1680);
}
