#!/usr/bin/env bash
# Builds with what the compiler learns from a run (profile-guided optimisation), into target/tuned:
#
#     scripts/tuned.sh build    # target/tuned/release/tenantry, with real execution
#     scripts/tuned.sh bench    # the table of `make bench`, by a program built so
#
# The run is that of the benchmarks' six systems, shorter and by another seed than what is measured. Results are the same: each row's digest says so.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1-} in
build) use=(cargo build --release --features libtorch) ;;
bench) use=(cargo bench --profile release -p tenantry-sim --bench table) ;;
*) echo "usage: scripts/tuned.sh build|bench" >&2; exit 2 ;;
esac

merge=$(rustc --print target-libdir)/../bin/llvm-profdata
[[ -x $merge ]] || { echo "llvm-profdata is missing: rustup component add llvm-tools" >&2; exit 1; }

export CARGO_TARGET_DIR=$PWD/target/tuned
counts=$CARGO_TARGET_DIR/counts
learnt=$CARGO_TARGET_DIR/learnt.profdata
rm -rf "$counts" "$learnt"

# Elsewhere than what is used, so that neither makes the other be compiled anew.
train=(cargo bench --profile release -p tenantry-sim --bench table --target-dir "$CARGO_TARGET_DIR/train")
for system in hmi swapping arlo pets tabi punica; do
    RUSTFLAGS="-Cprofile-generate=$counts" "${train[@]}" -- "$system" workload.stop.requests=30000 seed=99 >/dev/null
done
"$merge" merge --output "$learnt" "$counts"
RUSTFLAGS="-Cprofile-use=$learnt" "${use[@]}"
