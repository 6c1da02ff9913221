#!/usr/bin/env bash
# Builds with what the compiler learns from a run (profile-guided optimisation), into target/tuned:
#
#     scripts/tuned.sh build    # target/tuned/release/tenantry, with real execution
#     scripts/tuned.sh bench    # the table of `make bench`, by a program built so
#
# Each learns from itself, since what was counted is found again by functions' names, and those differ from one package's build to another's:
# the program from shipped scenarios of five papers, the table from its six systems, three of them also on disturbed cards, shorter and by another seed than what is measured.
# Results are the same: each row's digest says so.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1-} in
build) make=(cargo build --release --features libtorch) ;;
bench) make=(cargo bench --profile release -p tenantry-sim --bench table) ;;
*) echo "usage: scripts/tuned.sh build|bench" >&2; exit 2 ;;
esac

tools=$(rustc --print target-libdir)/../bin
[[ -x $tools/llvm-profdata ]] || { echo "llvm-profdata is missing: rustup component add llvm-tools" >&2; exit 1; }

export CARGO_TARGET_DIR=$PWD/target/tuned
counts=$CARGO_TARGET_DIR/counts
learnt=$CARGO_TARGET_DIR/learnt.profdata
# Elsewhere than what is used, so that neither makes the other be compiled anew.
train=$CARGO_TARGET_DIR/train
rm -rf "$counts" "$learnt"

counting() { RUSTFLAGS="-Cprofile-generate=$counts" "${make[@]}" --target-dir "$train" "$@"; }
simulate() { "$train/release/tenantry" simulate "scenarios/$1.yaml" --quiet --seed 99 --out "$train/out" "${@:2}"; }

if [[ $1 = build ]]; then
    counting
    # Build scripts and macros were counted too, while they ran.
    rm -rf "$counts"
    simulate hmi/fig-11
    simulate arlo/thousand-cards --set 'workload.stop={requests: 200000}' --set workload.warm_up=0s
    simulate pets/online --set workload.stop.requests=5000
    simulate punica/fig-11
    simulate punica/fig-13-conversations
    simulate tabi/load --set workload.stop.after=600s --set jitter=measured
else
    for system in hmi swapping arlo pets tabi punica; do
        counting -- "$system" workload.stop.requests=30000 seed=99 >/dev/null
    done
    for system in arlo punica tabi; do
        counting -- "$system" disturbed workload.stop.requests=30000 seed=98 >/dev/null
    done
fi
"$tools/llvm-profdata" merge --output "$learnt" "$counts"
RUSTFLAGS="-Cprofile-use=$learnt" "${make[@]}"

if [[ $1 = build ]]; then
    # Names that the counts have and the program (355 on 2026-11-24): few, if the two were not built alike, of which the compiler says nothing.
    names() { grep -aoE '_ZN[0-9]+tenantry_(core|sim)[A-Za-z0-9_.$]+E' | sort -u; }
    found=$(comm -12 <("$tools/llvm-profdata" show --all-functions "$learnt" | names) \
        <("$tools/llvm-nm" "$CARGO_TARGET_DIR/release/tenantry" | names) | wc -l)
    ((found > 100)) || { echo "what was learnt is of only $found of the program's functions" >&2; exit 1; }
    echo "$found functions of the simulator as learnt"
fi
