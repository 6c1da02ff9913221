#!/usr/bin/env bash
# What load does to a cascade and to its models alone, each at shares of its own capacity: what it answers a second when it is never idle, executed
# here. Simulated and executed, under the scenario's arrivals scaled to the share in the mean over the measured seconds.
# Usage: scripts/cascade-load.sh CARD [SCENARIO [TENANTRY [OUT]]]; needs jq. CARD is a profile of this machine for the scenario:
#     tenantry profile --device cpu --for scenarios/tabi/cpu-load.yaml --out out/card
# DEVICE=cpu, SHARES="50 80 95", REPEATS=1 and SATURATED=6s (of serving without a pause) are taken from the environment.
set -euo pipefail
card=$1
scenario=${2:-scenarios/tabi/cpu-load.yaml}
tenantry=${3:-target/release/tenantry}
out=${4:-out/cascade-load}
device=${DEVICE:-cpu}
mkdir -p "$out"

# The scenario without its sweep, every default written out, and its arrivals as one line.
"$tenantry" simulate "$scenario" --profile "$card" --set 'sweep={}' --quiet --out "$out/as-it-is"
resolved=$out/as-it-is/scenario.resolved.yaml
rate=$(awk '/^  arrivals:/ { inside = 1; next } inside && /rate:/ { sub("/s", "", $2); print $2; exit }' "$resolved")
[[ $rate =~ ^[0-9.]+$ ]] || { echo "$scenario: workload.arrivals: must have one rate to be scaled, as twitter and poisson have" >&2; exit 2; }
kind=$(awk '/^  arrivals:/ { getline; sub(":", "", $1); print $1; exit }' "$resolved")
measured() { jq -r '.runs[0] | .requests.offered / .duration_s' "$1/summary.json"; }
# Of a pattern over days these seconds are calmer or busier.
factor=$(jq -n "$(measured "$out/as-it-is") / $rate")

# One system of the scenario by itself.
only() { # its number
    awk -v wanted="$1" '
        /^[a-z]/ { inside = /^systems:/; item = -1; print; next }
        inside && /^- / { item++ }
        !inside || item == wanted' "$resolved"
}

systems=$(jq -r '.runs[].system' "$out/as-it-is/summary.json")
number=0
echo "system,share,requests_per_s,machine,mean_ms,p50_ms,p98_ms,accuracy" >"$out/load.csv"
for system in $systems; do
    one=$out/$system.yaml
    only "$number" >"$one"
    number=$((number + 1))
    "$tenantry" execute "$one" --device "$device" --quiet --out "$out/$system-saturated" \
        --set 'workload.arrivals={closed-loop: {clients: 64, think_time: 0s}}' \
        --set "workload.stop={after: ${SATURATED:-6s}}" --set workload.warm_up=1s
    capacity=$(jq '.runs[0].throughput_rps' "$out/$system-saturated/summary.json")
    echo "$system: $capacity a second at most" >&2
    for share in ${SHARES:-50 80 95}; do
        run=$out/$system-$share
        # 3 says that limits were not met, which is what is to be seen.
        "$tenantry" validate "$one" --profile "$card" --device "$device" --repeats "${REPEATS:-1}" --quiet --out "$run" \
            --set "workload.arrivals.$kind.rate=$(jq -n "$capacity * $share / 100 / $factor")/s" || (($? == 3))
        jq -r --arg share "$share" --arg offered "$(measured "$run")" '.runs[] | [.system, $share, $offered, .machine, .latency_ms.mean, .latency_ms.p50,
            .latency_ms.p98, .cascade.accuracy] | @csv' "$run/summary.json" >>"$out/load.csv"
    done
done
cat "$out/load.csv"
