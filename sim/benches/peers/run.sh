#!/usr/bin/env bash
# Runs Tenantry and its peers on the same work, in turns, and prints a line for each: see README.md. What is set up lies in target/peers.
# `--prepare` only sets up, so that the measurement itself can be started when the machine is quiet.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
place=${CARGO_TARGET_DIR:-$root/target}/peers

if [ ! -e "$place/venv/ready" ]; then
    python3 -m venv "$place/venv"
    "$place/venv/bin/pip" install --quiet simpy==4.1.2 typing_extensions
    # Its dependencies are for serving; the replay needs none of them.
    "$place/venv/bin/pip" install --quiet --no-deps ai-dynamo-runtime==1.6.1
    touch "$place/venv/ready"
fi
cargo build --quiet --release --locked --manifest-path "$here/inference_lab/Cargo.toml" --target-dir "$place/inference_lab"
table() {
    cargo bench --quiet --manifest-path "$root/Cargo.toml" --profile release -p tenantry-sim --bench table "$@"
}
table --no-run
[ "${1:-}" = --prepare ] && exit

python=$place/venv/bin/python
inference_lab=$place/inference_lab/release/peer-inference-lab
lengths='workload.lengths={input: {fixed: 1147}, output: {fixed: 211}}'
sixteen=(cluster.gpus=16 workload.arrivals.poisson.rate=16/s)
date --utc +%F
sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1
for turn in 1 2; do
    echo "turn $turn"
    table -- punica "$lengths"
    table -- punica "$lengths" "${sixteen[@]}"
    # With all that a measured card has; the peers have nothing of the kind.
    table -- punica disturbed "$lengths"
    table -- punica disturbed "$lengths" "${sixteen[@]}"
    "$inference_lab" 10000
    "$inference_lab" 10000 16
    "$python" "$here/dynamo_replay.py" 10000
    "$python" "$here/dynamo_replay.py" 10000 16
    # With full batches a step serves more of them.
    table -- punica "$lengths" workload.arrivals.poisson.rate=2.7/s
    for rate in 4 8 16; do
        "$inference_lab" 10000 1 "$rate"
        "$python" "$here/dynamo_replay.py" 10000 1 "$rate"
    done
    table -- hmi workload.stop.requests=50000
    "$python" "$here/hmi_simpy.py" 50000
done
