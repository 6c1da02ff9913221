#!/usr/bin/env bash
# A sweep of a thousand runs as a Slurm job array on this machine, one node of two drained in the middle, merged, and compared with the
# same sweep in one piece. Usage: scripts/sweep-on-slurm.sh [TENANTRY], by default target/release/tenantry. See scripts/slurm.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tenantry=$(realpath "${1:-target/release/tenantry}")
out=$(mktemp -d)
shards=100
sweep=(sweep scenarios/ten-thousand-tenants.yaml
    --set 'sweep={tenants.popularity.zipf: {from: 0.1, to: 1.5}, workload.arrivals.poisson.rate: {from: 20/s, to: 400/s, scale: log}}'
    --set 'samples={latin-hypercube: 250}' --set repeats=2)

scripts/slurm.sh start 2
trap 'scripts/slurm.sh stop' EXIT
SLURM_CONF=$(scripts/slurm.sh conf)
export SLURM_CONF

finished() {
    find "$out/slurm/runs" -name '*.json' 2>/dev/null | wc -l
}

"$tenantry" "${sweep[@]}" --job-file slurm --shards $shards --out "$out/slurm"
started=$SECONDS
job=$(sbatch --parsable "$out/slurm/sweep.sbatch")
echo "job $job: $shards tasks"
while (($(finished) < 400)); do sleep 0.2; done
scontrol update nodename=node2 state=drain reason=test
echo "node2 drained after $((SECONDS - started)) s with $(finished) runs saved"
sinfo --noheader
while (($(finished) < 700)); do sleep 0.2; done
running=$(squeue --noheader --states=running --nodelist=node2 | wc -l)
echo "$(finished) runs saved, $running tasks on node2"
scontrol update nodename=node2 state=resume
while [[ -n $(squeue --noheader --jobs "$job" 2>/dev/null) ]]; do sleep 0.5; done
echo "all tasks over after $((SECONDS - started)) s with $(finished) runs saved"

"$tenantry" --quiet merge "$out/slurm" --out "$out/merged"
"$tenantry" --quiet "${sweep[@]}" --out "$out/whole"
for file in summary.json summary.csv curves.json scenario.resolved.yaml; do
    cmp "$out/merged/$file" "$out/whole/$file"
done
echo "merged and in one piece: identical, $(grep -c '"system":' "$out/merged/summary.json") runs, sha256 $(sha256sum <"$out/merged/summary.json" | cut -c1-16)"
rm -r "$out"
