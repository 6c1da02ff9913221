#!/bin/sh
# Fuzzes the trace readers one after another, each in one process: run.sh [SECONDS [TARGET…]]. See docs/fuzzing.md.
# Coverage comes from LLVM's sancov pass, which the stable compiler has; neither nightly nor cargo-fuzz is needed.
set -eu
cd "$(dirname "$0")"
seconds=${1:-600}
[ $# -gt 0 ] && shift
target_dir=${CARGO_TARGET_DIR:-$PWD/../../target/fuzz}
triple=x86_64-unknown-linux-gnu

RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares" \
    nice -n 19 cargo build --release --target "$triple" --target-dir "$target_dir"

[ $# -gt 0 ] || set -- $(ls fuzz_targets | sed 's/\.rs$//')
[ "$seconds" -gt 0 ] || exit 0
for target in "$@"; do
    corpus="$target_dir/corpus/$target"
    mkdir -p "$corpus" "seeds/$target"
    echo "== $target, $seconds s"
    # The timeout is by the clock: long enough for a machine with other work.
    # A reader may keep what it must (activity, tables), but no input may make it ask for gigabytes.
    nice -n 19 "$target_dir/$triple/release/$target" -max_total_time="$seconds" -timeout=60 -rss_limit_mb=2048 \
        -max_len=65536 -artifact_prefix="$target_dir/$target-" -print_final_stats=1 "$corpus" "seeds/$target" 2>&1 |
        tee "$target_dir/$target.log" | grep -E 'panicked|ERROR|SUMMARY|DONE|stat::number_of_executed_units' || true
    broken=$(find "$target_dir" -maxdepth 1 \( -name "$target-crash-*" -o -name "$target-oom-*" \
        -o -name "$target-timeout-*" \))
    if [ -n "$broken" ]; then
        echo "$target: these inputs break it:" "$broken" >&2
        exit 1
    fi
    # Killed, or never begun, leaves no input behind either.
    if ! grep -q '^#[0-9]*[[:space:]]*DONE' "$target_dir/$target.log"; then
        echo "$target: it ended before its time; see $target_dir/$target.log" >&2
        exit 1
    fi
done
