#!/usr/bin/env bash
# Makes the pages and figures of docs/gallery anew from scenarios/gallery: one report a question, the same on every machine, and the chart
# that docs/gallery.md shows of it.
# Usage: scripts/gallery.sh [TENANTRY], by default target/release/tenantry.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tenantry=$(realpath "${1:-target/release/tenantry}")
for scenario in scenarios/gallery/*.yaml; do
    name=$(basename "$scenario" .yaml)
    "$tenantry" simulate "$scenario" --quiet --out "out/gallery/$name"
    rm -rf "out/gallery/$name/figures"
    "$tenantry" report "out/gallery/$name" --anonymous --quiet --out "docs/gallery/$name.html" --figures "out/gallery/$name/figures"
    # Where several keys are swept, there is a figure for each way through the sweep.
    case $name in
    how-long-may-a-batch-wait) figure=sweep-p98-ms-systems-0-batch-size-or-timeout-max-wait-at-workload-arrivals-poisson-rate-300-s ;;
    most-tenants-sleep) figure=sweep-swap-hits-cluster-gpu-memory-at-tenants-popularity-zipf-0-9 ;;
    shops-one-a100-or-two-l4) figure=sweep-p98-ms-cluster-gpus-at-card-l4 ;;
    *) figure=sweep-p98-ms ;;
    esac
    cp "out/gallery/$name/figures/$figure.svg" "docs/gallery/$name.svg"
done
# What no question has any more.
for file in docs/gallery/*; do
    name=$(basename "$file")
    [[ -e scenarios/gallery/${name%.*}.yaml ]] || rm "$file"
done
du -ch docs/gallery/*.html | tail -n 1
