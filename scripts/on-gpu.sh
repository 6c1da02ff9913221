#!/usr/bin/env bash
# What is to be run on a GPU that is rented by the minute, on a machine with a CUDA PyTorch 2.11 but neither Rust nor a network (docs/gpu.md).
#
#   scripts/on-gpu.sh pack                     where it was built: the program and its solver into .gpu/, which travel with the checkout
#   scripts/on-gpu.sh check|card|scenarios|all there: one part, or one after the other
#
#   --device NAME    cuda:0; with `cpu` the same is rehearsed without a GPU
#   --seconds N      540; a part that is not done then leaves what it has, and the same command goes on with it
#   --suite NAME     full; of the part `card`
#   --only NAME      of the part `scenarios`: this one
#
# Results go to $OUT, or out/on-gpu: log.txt, and results.tar.gz in parts of 15 MiB. Put those into .gpu/results, in place of what is there, and
# the next command goes on with them, on another machine too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,/^set/{/^# \{0,1\}/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 2; }

part=${1:-}
[[ $part =~ ^(pack|check|card|scenarios|all)$ ]] || usage
shift
device=cuda:0 seconds=540 suite=full only=
while (($#)); do
    (($# > 1)) || usage
    case $1 in
    --device) device=$2 ;;
    --seconds) seconds=$2 ;;
    --suite) suite=$2 ;;
    --only) only=$2 ;;
    *) usage ;;
    esac
    shift 2
done

# Models and number format of the card: what the published tables have (docs/profiles.md).
models=bert-base,llama-7b
dtype=bf16
[[ $device == cpu ]] && models=tiny dtype=f32

# What is validated: each by a profile measured minutes before, of what it needs. More options of `validate` after the scenario.
runs() {
    cat <<'END'
dedicated-shared-adapters   quickstart
saturated                   quickstart --set workload.arrivals={closed-loop:{clients:64,think_time:0s}}
tasks                       pets/mixed-64
tasks-online                pets/mixed-64-online
lora-two-workers            punica/tiny-two-workers
cascade                     tabi/cpu
cascade-under-load          tabi/cpu-load
hierarchical-decoders       hmi/gpt
ten-thousand-tenants        hmi/ten-thousand
management                  hmi/management
static-runtimes             arlo/tweets-on-two-cores
dynamic-runtimes            arlo/tweets-on-two-cores --set systems=[{"preset":"arlo-dt","runtimes":{"max_length":134}}]
END
}

pack() {
    local program=${TENANTRY:-target/release/tenantry} limit=$((60 << 20)) bytes
    mkdir -p .gpu/lib .gpu/results
    strip --strip-all -o .gpu/tenantry "$program"
    gzip --best --force .gpu/tenantry
    cp third_party/highs/lib/libhighs.so* .gpu/lib/
    bytes=$({ git ls-files -z; find .gpu -type f -print0; } | xargs -0 du -cb | tail -n 1 | cut -f 1)
    du -h .gpu/tenantry.gz .gpu/lib/* .gpu/results
    echo "the checkout with .gpu: $((bytes >> 20)) MiB"
    ((bytes <= limit)) || { echo "must be at most $((limit >> 20)) MiB to travel" >&2; exit 1; }
}

if [[ $part == pack ]]; then
    pack
    exit
fi

out=${OUT:-out/on-gpu}
mkdir -p "$out"
out=$(realpath "$out")
exec > >(tee "$out/log.txt") 2>&1

# Everything that a later command goes on with lies in $results, which is what comes back.
work=$(mktemp -d)
results=$work/results
mkdir -p "$results"/{done,cards,runs,check}
shopt -s nullglob
earlier=(.gpu/results/results.tar.gz.part-*)
if ((${#earlier[@]})); then
    cat "${earlier[@]}" | tar -xz -C "$work"
    echo "going on with $(find "$results/done" -type f | wc -l) steps that are done"
fi

keep() {
    # Of another run there may be more parts.
    rm -f "$out"/results.tar.gz.part-*
    tar -cz -C "$work" results | split --bytes=15M --numeric-suffixes - "$out/results.tar.gz.part-"
    rm -rf "$work"
}
trap keep EXIT

# The program: the one that was packed, or that was built here.
mkdir -p "$work/bin"
if [[ -e .gpu/tenantry.gz ]]; then
    gzip --decompress --stdout .gpu/tenantry.gz >"$work/bin/tenantry"
    chmod +x "$work/bin/tenantry"
else
    ln -s "$(realpath "${TENANTRY:-target/release/tenantry}")" "$work/bin/tenantry"
fi
PATH=$work/bin:$PATH

# libtorch: PyTorch's, which is the one that has a part for CUDA; for a rehearsal the one that was linked.
torch=$(python3 -c 'import os, torch; print(os.path.join(torch.__path__[0], "lib"))' 2>/dev/null || true)
if [[ -z $torch ]]; then
    [[ $device == cpu ]] || { echo "no PyTorch 2.11 for CUDA: python3 must be able to import torch" >&2; exit 1; }
    torch=${LIBTORCH:-$PWD/third_party/libtorch/torch}/lib
fi
export LD_LIBRARY_PATH=$torch:$PWD/.gpu/lib:$PWD/third_party/highs/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
[[ $device == cpu ]] || nvidia-smi || true

# Seconds that are left, less what it takes to write down what there is.
left() { echo $((seconds - SECONDS - 20)); }

# Does a step that is not done yet, as long as there is time. An exit code of 3 says that a limit is not met: a result like others.
step() { # name, seconds that it needs at least, command...
    local name=$1 least=$2 started=$SECONDS code=0
    shift 2
    [[ -e $results/done/$name ]] && return
    if (($(left) < least)); then
        echo "=== $name: no time left, the same command goes on"
        return 1
    fi
    echo "=== $name: $*"
    # An interrupt lets it keep what it has.
    timeout --signal=INT --kill-after=15 "$(left)" "$@" || code=$?
    echo "$name,$code,$((SECONDS - started))" | tee -a "$results/steps.csv"
    ((code == 0 || code == 3)) || return 1
    touch "$results/done/$name"
}

# On the screen and in a file.
shown() { # file, command...
    local file=$1
    shift
    "$@" | tee "$file"
}
export -f shown

check() {
    tenantry doctor | tee "$results/check/machine.txt"
    step math 30 bash -c "set -o pipefail; shown '$results/check/math.json' tenantry doctor --device $device --json"
}

card() {
    step card 60 tenantry profile --device "$device" --suite "$suite" --models "$models" --dtype "$dtype" \
        --out "$results/cards/${device/:/}" --quiet
}

scenarios() {
    # Options have brackets, and are no names of files.
    local -
    set -o noglob
    local name scenario more card
    while read -r name scenario more; do
        [[ -z $only || $only == "$name" ]] || continue
        card=for-${scenario//\//-}
        # One that fails, or is not done, does not stop the others.
        # shellcheck disable=SC2086  # options are several words
        step "profile-$card" 60 tenantry profile --device "$device" --suite quick --for "$scenario" \
            --out "$results/cards/$card" --quiet &&
            step "validate-$name" 60 tenantry validate "$scenario" --device "$device" --profile "$results/cards/$card" \
                --repeats 2 --out "$results/runs/$name" --quiet $more || true
    done < <(runs)
}

case $part in
check | card | scenarios) "$part" || true ;;
all)
    check || true
    card || true
    scenarios
    ;;
esac
echo "=== done so far: $(cd "$results/done" && echo *)"
