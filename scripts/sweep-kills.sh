#!/usr/bin/env bash
# Kills a sweep at random moments and goes on with it, fifty times by default: no run that was saved may be lost or changed, and the
# result must be that of an undisturbed sweep. Usage: scripts/sweep-kills.sh [KILLS [TENANTRY]]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
kills=${1:-50}
tenantry=$(realpath "${2:-target/release/tenantry}")
out=$(mktemp -d)
sweep=(--quiet sweep scenarios/ten-thousand-tenants.yaml --set workload.stop.after=60s
    --set 'sweep={tenants.popularity.zipf: {from: 0.1, to: 1.5}, workload.arrivals.poisson.rate: {from: 20/s, to: 400/s, scale: log}}'
    --set 'samples={latin-hypercube: 100}' --set repeats=5)

finished() {
    { find "$out/killed/runs" -name '[0-9]*.json' 2>/dev/null || true; } | wc -l
}

"$tenantry" "${sweep[@]}" --out "$out/whole"
mkdir "$out/seen"
for ((kill = 1; kill <= kills; kill++)); do
    "$tenantry" "${sweep[@]}" --out "$out/killed" &
    # After up to three halves of a kill's share of the runs that are left, and at a random moment then.
    share=$(((1000 - $(finished)) / (kills - kill + 2)))
    target=$(($(finished) + RANDOM % (3 * share / 2 + 1)))
    while (($(finished) < target)) && kill -0 $! 2>/dev/null; do sleep 0.01; done
    sleep "0.0$((RANDOM % 100 + 100))"
    kill -KILL $! || { echo "kill $kill came when all was over" >&2; exit 1; }
    wait $! 2>/dev/null || true
    # What an earlier kill had left is there as it was.
    for seen in "$out"/seen/*.json; do
        [[ -e $seen ]] && cmp "$seen" "$out/killed/runs/$(basename "$seen")"
    done
    cp -n "$out"/killed/runs/[0-9]*.json "$out/seen/" 2>/dev/null || true
    printf '%d ' "$(finished)"
done
echo
echo "$kills kills; $(finished) of 1000 runs saved by then"
"$tenantry" "${sweep[@]}" --out "$out/killed"
for file in summary.json summary.csv curves.json; do
    cmp "$out/whole/$file" "$out/killed/$file"
done
left=$(find "$out/killed/runs" -name '.*' -type f | wc -l)
echo "resumed and undisturbed: identical, sha256 $(sha256sum <"$out/killed/summary.json" | cut -c1-16); $left unfinished files left"
rm -r "$out"
