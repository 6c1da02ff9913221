//! What tasks cannot be.

use super::*;

#[test]
fn tasks_that_are_wrong() {
    assert_eq!(
        errors(TASKS, &[]),
        "nothing wrong",
        "what a developer hands in is refused when it is served"
    );
    for (what, by, said) in [
        (
            "lora: 1",
            "lroa: 1",
            "tenants.kinds.lroa: must be one of adapters, mask-bert, diff-pruning, bit-fit, lora, got lroa; did you mean lora?",
        ),
        (
            "kinds: { lora: 1, bert-small/bit-fit: 1 }",
            "kinds: 4",
            "tenants.kinds: must be a mapping of kinds of tasks to shares, got a number",
        ),
        (
            ", kinds: { lora: 1, bert-small/bit-fit: 1 }",
            "",
            "tenants.kinds: must be given, since a system has tasks, got nothing",
        ),
        ("bert-small/", "bert-smal/", "got bert-smal; did you mean bert-small?"),
        (
            "task: 3",
            "task: 10",
            "systems[0].tasks.registrations[0].task: must be below tenants.count, 10, got 10",
        ),
        (
            "max_batch: 8",
            "max_tokens: 100, max_batch: 42949673",
            "systems[0].tasks.max_batch: must be at most 42949672 where inputs have up to 100 tokens, 4294967295 in a \
             batch, got 42949673",
        ),
        (
            "max_batch: 8",
            "max_tokens: 100, planning: { pool: { size: 42949673 } }",
            "systems[0].tasks.planning.pool.size: must be at most 42949672 where inputs have up to 100 tokens, \
             4294967295 in a batch, got 42949673",
        ),
        (
            "max_batch: 8",
            "max_tokens: 512",
            "systems[0].tasks.max_tokens: must be at most 128, the longest input of model tiny, got 512",
        ),
        (
            "max_batch: 8",
            "planning: { online: { targets: [] } }",
            "systems[0].tasks.planning.online.targets: must be a list of at least one latency, got an empty list",
        ),
        (
            "max_batch: 8",
            "engine: { shared: { streams: { fixed: { count: 70000 } } } }",
            "systems[0].tasks.engine.shared.streams.fixed.count: must be at most 65535, one stream each, got 70000",
        ),
        (
            "max_batch: 8",
            "max_batch: 70000, engine: { shared: { streams: one-each } }",
            "systems[0].tasks.max_batch: must be at most 65535, one stream each, got 70000",
        ),
        (
            "preset: pets",
            "preset: pets\n    dtype: f16",
            "systems[0].dtype: must be f32 where a system has tasks: their operators are single-precision, got f16",
        ),
        (
            "preset: pets",
            "preset: pets\n    pipeline: prefetch",
            "systems[0].pipeline: must be left out where a system has tasks, which say it themselves, got something",
        ),
        (
            "preset: pets",
            "preset: pets\n    swap: lfu",
            "systems[0].swap: must be left out where a system has tasks, which say it themselves, got something",
        ),
        (
            "preset: pets",
            "preset: pets\n    cascade: { stages: [{ model: tiny }] }",
            "systems[0].cascade: must be left out where a system has tasks, which say it themselves, got something",
        ),
        (
            "preset: pets",
            "preset: pets\n    place: largest-working-set",
            "systems[0].place: must be least-loaded or round-robin where a system has tasks: an encoder keeps nothing of a query, got largest-working-set",
        ),
        (
            "task: 3, kind: dora",
            "task: 3",
            "systems[0].tasks.registrations[0].kind: must be given, since there is no file, got nothing",
        ),
        (
            "kind: dora",
            "kind: dora, file: task.safetensors",
            "systems[0].tasks.registrations[0].kind: must be left out where there is a file, which says it, got something",
        ),
        (
            "kind: dora",
            "file: no/such.safetensors",
            "systems[0].tasks.registrations[0].file: must be a file that can be read, got no/such.safetensors: No such file",
        ),
        (
            "preset: pets",
            "preset: pets\n    files: { model: x, models: { bert-smal: y } }",
            "systems[0].files.models.bert-smal: must be bert-small, got bert-smal; did you mean bert-small?",
        ),
        (
            "preset: pets",
            "preset: pets\n    files: { tenants: x }",
            "systems[0].files.tenants: must be left out here: a task's file is one of tasks.registrations, got files",
        ),
        (
            "fixed: 32",
            "fixed: 129",
            "workload.lengths.input.fixed: must be at most 128, the longest input of system pets, got 129",
        ),
        (
            "max_batch: 8",
            "max_batch: 8, engine: { shared: { batching: { fixed: { size: 9 } } } }",
            "systems[0].tasks.engine.shared.batching.fixed.size: must be at most max_batch (8), got 9",
        ),
        (
            "batch: 8",
            "batch: 8, engine: { shared: { batching: alpha } }",
            "engine.shared.batching: must be one of fixed, alpha-only, beta-only, coordinated, by-variance, cheaper, got alpha",
        ),
    ] {
        let errors = errors(&TASKS.replacen(what, by, 1), &[]);
        assert!(errors.contains(said), "{by}: {errors}");
    }
    // Any file that can be read: what it holds is another matter.
    let of_file = "systems[0].tasks.registrations=[{ task: 3, file: Cargo.toml }]";
    let whole = "systems[0].tasks.engine={ sequential: { fine_tuned: as-a-whole } }";
    let said = errors(TASKS, &[of_file, whole]);
    let expected = "systems[0].tasks.engine.sequential.fine_tuned: must be by-kind where a task has a file, which holds its kind's parameters, \
                    got as-a-whole, with the file of task 3";
    assert!(said.ends_with(expected), "{said}");
}

/// A system with tasks, to be broken likewise.
const TASKS: &str = "\
name: tasks
models: { backbone: tiny }
tenants: { count: 10, kinds: { lora: 1, bert-small/bit-fit: 1 } }
workload:
  arrivals: { poisson: { rate: 50/s } }
  lengths: { input: { fixed: 32 } }
  stop: { requests: 100 }
systems:
  - preset: pets
    tasks: { max_batch: 8, registrations: [{ task: 3, kind: dora }] }
";
