#!/usr/bin/env bash
# Mixed-adapter batches through Tenantry, and through Hugging Face Transformers with PEFT, in turns in one run (docs/beside-peft.md).
# Needs python3 with torch, transformers and peft.
#
#   scripts/beside-peft.sh [OPTION VALUE]...
#
#   --device NAME    cuda:0; with `cpu` the same is rehearsed with tiny models
#   --tenantry PATH  the program; what `on-gpu.sh pack` left in .gpu, or else target/release/tenantry
#   --out DIR        out/beside-peft: where beside-peft.json goes
#   --part NAME      both; `adapters` or `lora` is one of them alone
#   --seconds N      240, in all; what finds no time is left out, and said to be
#   --turns N        2
#   --measure N      5 seconds of each side in each turn
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,/^set/{/^# \{0,1\}/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 2; }

device=cuda:0 tenantry='' out=out/beside-peft part=both seconds=240 turns=2 measure=5
while (($#)); do
    (($# > 1)) || usage
    case $1 in
    --device) device=$2 ;;
    --tenantry) tenantry=$2 ;;
    --out) out=$2 ;;
    --part) part=$2 ;;
    --seconds) seconds=$2 ;;
    --turns) turns=$2 ;;
    --measure) measure=$2 ;;
    *) usage ;;
    esac
    shift 2
done

if [[ -z $tenantry && -e .gpu/tenantry.gz ]]; then
    unpacked=$(mktemp -d)
    trap 'rm -rf "$unpacked"' EXIT
    tenantry=$unpacked/tenantry
    gzip --decompress --stdout .gpu/tenantry.gz >"$tenantry"
    chmod +x "$tenantry"
fi

tenantry=${tenantry:-target/release/tenantry}
[[ -x $tenantry ]] || { echo "$tenantry: no program there; \`make build\` makes it, --tenantry names another" >&2; exit 2; }

# libtorch as in on-gpu.sh: PyTorch's, which is the one that has a part for CUDA. Without it the other side fails, and ours can still run on a CPU.
torch=$(python3 -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0] + "/lib")' 2>/dev/null || true)
torch=${torch:-${LIBTORCH:-$PWD/third_party/libtorch/torch}/lib}
export LD_LIBRARY_PATH=$torch:$PWD/.gpu/lib:$PWD/third_party/highs/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

compare=(python3 scripts/beside-peft.py turns --device "$device" --tenantry "$tenantry" --out "$out" --part "$part"
    --seconds "$seconds" --turns "$turns" --measure "$measure")
# An interrupt is to find Python itself, unless there is something to be removed when it is over.
[[ -n ${unpacked:-} ]] || exec "${compare[@]}"
"${compare[@]}"
