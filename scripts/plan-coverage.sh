#!/usr/bin/env bash
# How often plans are right that say they are sure: twenty of each load, with seeds of their own, against 400 runs of each number of cards in question.
# Usage: scripts/plan-coverage.sh [TENANTRY [LOAD …]]; needs jq.
set -euo pipefail
tenantry=$(realpath "${1:-target/release/tenantry}")
shift || true
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd "$out"

cat >scenario.yaml <<'YAML'
name: coverage
card: l4
models: { backbone: bert-base }
tenants: { count: 3000, popularity: { zipf: 0.9 } }
workload:
  arrivals: { poisson: { rate: 8000/s } }
  lengths: { input: { fixed: 128 } }
  stop: { requests: 6000 }
systems:
  - { preset: hbert-adapter, dtype: f16, batch: { size-or-timeout: { max_size: 16, max_wait: 10ms } } }
slo: { latency: 100ms, at: p98 }
plan: { find: fewest-cards, gpus: { from: 1, to: 24 } }
YAML

# Poisson at a rate that one card all but serves, requests in batches of up to 32 as soon as a card is free.
near_capacity() {
    printf '%s\n' --set "workload.arrivals={poisson: {rate: $1/s}}" --set 'workload.stop={requests: 12000}' --set 'slo={latency: 60ms, at: p98}' \
        --set 'systems=[{preset: hbert-adapter, dtype: f16}]' --set tenants.count=300 --set 'plan.gpus={from: 1, to: 4}'
}

# What differs of a load.
of_load() {
    local two='{rate: 3000/s, mean_dwell: 4s}, {rate: 12000/s, mean_dwell: 600ms}'
    local three='{rate: 3000/s, mean_dwell: 4s}, {rate: 8000/s, mean_dwell: 1s}, {rate: 14000/s, mean_dwell: 400ms}'
    local small='{rate: 300/s, mean_dwell: 4s}, {rate: 800/s, mean_dwell: 1s}, {rate: 1500/s, mean_dwell: 400ms}'
    local short='{rate: 4000/s, mean_dwell: 200ms}, {rate: 16000/s, mean_dwell: 50ms}'
    case $1 in
        long) set -- "$two" 20s 100ms p98 128 16 ;;
        long-p96) set -- "$two" 20s 100ms p96 128 16 ;;
        short) set -- "$short" 4s 60ms p98 128 24 ;;
        three) set -- "$three" 20s 100ms p98 128 16 ;;
        small-p995) set -- "$small" 20s 200ms p99.5 512 8 ;;
        poisson) echo --set && echo workload.arrivals.poisson.rate=7000/s && return ;;
        near-capacity) near_capacity 1650 && return ;;
        nearer) near_capacity 1645 && return ;;
        *) echo "no load $1" >&2 && exit 2 ;;
    esac
    printf '%s\n' --set "workload.arrivals={mmpp: {states: [$1]}}" --set "workload.stop={after: $2}" \
        --set "slo={latency: $3, at: $4}" --set "workload.lengths.input.fixed=$5" --set "plan.gpus={from: 1, to: $6}"
}

for load in "${@:-long long-p96 short three small-p995 poisson near-capacity nearer}"; do
    for name in $load; do
        of_load "$name" >set
        mapfile -t set <set
        : >plans
        for seed in $(seq 1000 1000 20000); do
            "$tenantry" plan scenario.yaml "${set[@]}" --seed "$seed" --quiet --json --out plan |
                jq -c '{gpus: (.options[] | select(.chosen) | .gpus), sure: .confidence, runs: .runs.answer}' >>plans
        done
        share() {
            "$tenantry" simulate scenario.yaml "${set[@]}" --seed 500000 --set "cluster.gpus=$1" --set repeats=400 --quiet --json --out runs |
                jq '[.runs[] | .requests.offered * .slo_attainment] as $kept | ($kept | add) / ([.runs[] | .requests.offered] | add)'
        }
        at=$(grep -o 'at: p[0-9.]*' set | grep -o '[0-9.]*' || echo 98)
        least=$(jq -s 'map(.gpus) | min' plans) most=$(jq -s 'map(.gpus) | max' plans)
        right=$((most + 1)) shares=
        for ((gpus = most; gpus >= (least > 1 ? least - 1 : 1); gpus--)); do
            share=$(share "$gpus")
            shares="$gpus: $share $shares"
            if jq -en "$share >= $at / 100" >/dev/null; then right=$gpus; else break; fi
        done
        jq -sr --arg load "$name" --arg shares "$shares" --argjson right "$right" \
            '(map(select(.sure >= 0.95))) as $sure |
            "\($load): right is \($right) (in time by cards: \($shares)); right \(map(select(.gpus == $right)) | length) of \(length); " +
            "sure \($sure | length), of which right \($sure | map(select(.gpus == $right)) | length); " +
            "how sure on average \(map(.sure) | add / length * 1000 | round / 1000); runs a plan \(map(.runs) | add / length)"' plans
    done
done
