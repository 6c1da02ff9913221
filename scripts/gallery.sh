#!/usr/bin/env bash
# Makes the pages of docs/gallery anew from scenarios/gallery: one report a question, the same on every machine.
# Usage: scripts/gallery.sh [TENANTRY], by default target/release/tenantry.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tenantry=$(realpath "${1:-target/release/tenantry}")
for scenario in scenarios/gallery/*.yaml; do
    name=$(basename "$scenario" .yaml)
    "$tenantry" simulate "$scenario" --quiet --out "out/gallery/$name"
    "$tenantry" report "out/gallery/$name" --anonymous --quiet --out "docs/gallery/$name.html"
done
# What no question has any more.
for page in docs/gallery/*.html; do
    [[ -e scenarios/gallery/$(basename "$page" .html).yaml ]] || rm "$page"
done
du -ch docs/gallery/*.html | tail -n 1
