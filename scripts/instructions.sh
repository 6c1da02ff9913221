#!/usr/bin/env bash
# Instructions a request of each system of `make bench`, by valgrind's callgrind: the same for the same source, whatever else the machine does.
#
#     scripts/instructions.sh [SYSTEM…] [disturbed] [PATH=VALUE…]    # all six systems by default; overrides as `make bench` has them
#
# Counted between two lengths of a run, so that neither starting up nor tables that fill once are counted. Arlo's workload is also read beforehand,
# for its allocation: some 470 of its instructions, which the table's seconds leave out.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v valgrind >/dev/null || { echo "valgrind is missing: apt-get install valgrind" >&2; exit 1; }

systems=() overrides=()
for argument; do
    case $argument in
    *=* | disturbed) overrides+=("$argument") ;;
    *) systems+=("$argument") ;;
    esac
done
((${#systems[@]})) || systems=(hmi swapping arlo pets tabi punica)

built=$(cargo bench --profile release -p tenantry-sim --bench table --no-run 2>&1) || { echo "$built" >&2; exit 1; }
program=$(sed -n 's/.*(\(.*\/table-[0-9a-f]*\)).*/\1/p' <<<"$built")

# Of a whole run: its system and number of requests.
count() {
    local said
    said=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$1" "${overrides[@]}" "workload.stop.requests=$2" 2>&1) &&
        grep -oP 'Collected : \K[0-9]+' <<<"$said" || { echo "$said" >&2; exit 1; }
}

for system in "${systems[@]}"; do
    case $system in
    punica) short=5000 long=15000 ;;
    *) short=20000 long=60000 ;;
    esac
    few=$(count "$system" $short)
    many=$(count "$system" $long)
    printf '%-10s%8d instructions a request\n' "$system" $(((many - few) / (long - short)))
done
