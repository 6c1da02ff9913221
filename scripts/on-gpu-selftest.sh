#!/usr/bin/env bash
# Tests scripts/on-gpu.sh by programs that stand for the real ones: what is done, failed or left, in which order, how long a step may take, and what
# comes back. Takes half a minute.
set -euo pipefail

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A checkout of its own with a little of each kind of source.
mkdir -p "$work/checkout/scripts" "$work/bin"
cd "$work/checkout"
cp "$checkout"/scripts/{on-gpu.sh,beside-peft.{sh,py},rpath.rs} scripts/
mkdir -p {src,executor/tests,sim,profiles/{cards,papers},traces,scenarios/presets,reports/templates,docs} .gpu/{lib,results}
sources=(Cargo.toml Cargo.lock build.rs scripts/rpath.rs src/main.rs executor/shim.cpp sim/build.rs profiles/datasheets.yaml
    profiles/cards/card.yaml profiles/papers/arlo.yaml traces/Cargo.toml scenarios/presets/hmi.yaml reports/templates/report.html)
others=(docs/gpu.md src/tests.rs executor/tests/machine.rs)
for file in "${sources[@]}" "${others[@]}"; do
    echo "$file" >"$file"
done

# Stands for a program on the PATH, which does as `$work/does` says.
stub() { # name
    printf '#!/usr/bin/env bash\nwork=%q\n%s\n' "$work" "$(cat)" >"$work/bin/$1"
    chmod +x "$work/bin/$1"
}
# Profiles are there at once; a validation finds the time, and ends with the exit code that stands beside its scenario; the math is checked.
stub tenantry <<'END'
if [[ $* == doctor*--json ]]; then
    echo math >>"$work/asked"
    echo "checked at $(date +%s%N)"
    exit "$(grep -c '^math fails' "$work/does")"
fi
while (($#)); do
    case $1 in
    validate) scenario=$2 ;;
    --out) out=$2 ;;
    esac
    shift
done
[[ -z ${out:-} ]] || mkdir -p "$out"
[[ -n ${scenario:-} ]] || exit 0
echo "$scenario" >>"$work/asked"
date +%s%N >"$out/found"
exit "$(sed -n "s|^$scenario ||p" "$work/does")"
END
# Says how long a step may take, and that it took longer where `$work/does` says so.
stub timeout <<'END'
while [[ $1 == --* ]]; do shift; done
echo "$1 ${*:2}" >>"$work/limits"
[[ $* != *validate* ]] || ! grep -q "^$4 124" "$work/does" || exit 124
exec "${@:2}"
END
# Both sides of a comparison, in as many turns as `$work/does` says.
stub python3 <<'END'
case "$*" in
*'import peft'*) exit 0 ;;
*find_spec*) exit 1 ;;
scripts/beside-peft.py*)
    while (($#)); do
        case $1 in
        --part) part=$2 ;;
        --out) out=$2 ;;
        esac
        shift
    done
    echo "beside-$part" >>"$work/asked"
    read -r _ ratios code < <(grep "^$part " "$work/does")
    mkdir -p "$out"
    turns=$(yes '{"ours": 1, "theirs": 1},' | head -n "$ratios")
    echo "{\"attempt\": $(date +%s%N), \"parts\": {\"$part\": {\"turns\": [$turns {}]}}}" >"$out/beside-peft.json"
    exit "$code"
    ;;
*) exec /usr/bin/env -S PATH="${PATH#*:}" python3 "$@" ;;
esac
END
export PATH=$work/bin:$PATH TENANTRY=$work/bin/tenantry OUT=$work/out

# Runs on-gpu.sh with what came back before, keeps what it prints in `output`, and wants this exit status.
expect() { # status, argument...
    local wanted=$1 status=0
    shift
    rm -f "$work/asked" "$work/limits"
    output=$(scripts/on-gpu.sh "$@" --device cpu 2>&1 </dev/null) || status=$?
    [ "$status" = "$wanted" ] || broken "exit status $status instead of $wanted"
}
# What came back goes along with the next command.
carry() {
    rm -rf .gpu/results/*
    cp -r "$OUT"/results-* .gpu/results/
}
# Nothing came back before.
fresh() { rm -rf .gpu/results/* "$OUT"; }
# It is of another program from here on.
change() { echo changed >>src/main.rs; }
asked() { # scenario...: these, in this order
    [ "$(cat "$work/asked" 2>/dev/null)" = "$(printf '%s\n' "$@")" ] || broken "asked for $(paste -sd ' ' "$work/asked"), not $*"
}
says() { [[ "$output" == *"$1"* ]] || broken "does not say '$1'"; }
broken() {
    printf 'self-test of on-gpu.sh: %s: %s; it printed:\n%s\n' "$case" "$1" "$output" >&2
    exit 1
}
# What a file of the results says, of which there is one set.
result() { cat "$OUT"/results-*/results.tar.gz.part-* | tar -xzO "results/cpu/$1"; }

case='a run that is none'
expect 2 scenarios --only tweets
says '--only: must begin the name of a run, got tweets; they are: dedicated-shared-adapters saturated tasks'
[ ! -e "$OUT" ] || broken 'it began'

case='numbers that are none'
for number in '--seconds 9m' '--seconds -1' '--seconds 09' '--repeats 0' '--repeats two'; do
    # shellcheck disable=SC2086  # two words
    expect 2 scenarios $number
    says "${number% *}: must be a whole number of at least"
    says ", got ${number#* }"
    [ ! -e "$OUT" ] || broken 'it began'
done

case='one within its limits, one outside, one whose requests failed'
printf '%s\n' 'pets/mixed-64 1' 'pets/mixed-64-online 3' 'punica/tiny-two-workers 0' >"$work/does"
expect 1 scenarios --only tasks
asked pets/mixed-64 pets/mixed-64-online
says 'failed  validate-tasks'
says 'done    validate-tasks-online'
says 'left    validate-cascade'
says 'failed: validate-tasks'

case='what failed is tried again last'
carry
printf '%s\n' 'pets/mixed-64 0' >>"$work/does"
sed -i '/mixed-64 1/d; s/ 3$/ 0/' "$work/does"
for scenario in quickstart tabi/cpu tabi/cpu-load hmi/gpt hmi/ten-thousand hmi/management arlo/tweets-on-two-cores; do
    echo "$scenario 0" >>"$work/does"
done
expect 0 scenarios --seconds 9000
asked quickstart quickstart punica/tiny-two-workers tabi/cpu tabi/cpu-load hmi/gpt hmi/ten-thousand hmi/management \
    arlo/tweets-on-two-cores arlo/tweets-on-two-cores pets/mixed-64
says 'validate-tasks: failed before, is tried again when the others had their turn'
says 'done    validate-tasks'

case='what failed by another program is tried in its turn'
fresh
echo 'quickstart 1' >"$work/does"
expect 1 scenarios --only saturated
carry
echo 'quickstart 0' >"$work/does"
change
expect 0 scenarios --only saturated
asked quickstart
[[ $output != *'failed before'* ]] || broken 'was put off'

case='what another program has done is done again, after all others'
fresh
for scenario in quickstart punica/tiny-two-workers tabi/cpu tabi/cpu-load hmi/gpt hmi/ten-thousand hmi/management arlo/tweets-on-two-cores \
    pets/mixed-64 pets/mixed-64-online; do
    echo "$scenario 0"
done >"$work/does"
expect 0 scenarios --only tasks
carry
expect 0 scenarios --only tasks
asked
change
expect 0 scenarios
says 'validate-tasks: done by another program or with other options, is done again when the others had their turn'
asked quickstart quickstart punica/tiny-two-workers tabi/cpu tabi/cpu-load hmi/gpt hmi/ten-thousand hmi/management \
    arlo/tweets-on-two-cores arlo/tweets-on-two-cores pets/mixed-64 pets/mixed-64-online
carry
expect 0 scenarios --only tasks
asked

case='what nothing is left for is not profiled'
fresh
echo 'quickstart 0' >"$work/does"
expect 0 scenarios --only saturated
carry
rm -rf "$OUT"
expect 0 scenarios --only saturated
! grep -q 'tenantry profile' "$work/limits" 2>/dev/null || broken 'measured a profile'

case='another command goes on with what the first left'
fresh
expect 0 scenarios --only saturated
expect 0 scenarios --only saturated
asked

case='other options do a step again'
expect 0 scenarios --only saturated --repeats 2
says 'validate-saturated: done by another program or with other options'
asked quickstart
expect 0 scenarios --only saturated --repeats 2
asked
expect 0 card --seconds 9000 --suite quick
expect 0 card --seconds 9000
grep -q -- '--suite full' "$work/limits" || broken 'did not measure the whole suite'
expect 0 card --seconds 9000
! grep -q 'tenantry profile' "$work/limits" 2>/dev/null || broken 'measured it again'

case='a profile after which nothing could be validated'
fresh
# It takes 90 seconds by plan, and the validation 60; 25 are for the end.
expect 0 scenarios --only saturated --seconds 170
! grep -q 'tenantry profile' "$work/limits" 2>/dev/null || broken 'measured a profile'
says 'left    profile-quickstart'
expect 0 scenarios --only saturated --seconds 200
asked quickstart

case='the comparison comes after the first validations'
fresh
for scenario in quickstart pets/mixed-64 pets/mixed-64-online punica/tiny-two-workers tabi/cpu tabi/cpu-load hmi/gpt hmi/ten-thousand \
    hmi/management arlo/tweets-on-two-cores; do
    echo "$scenario 0"
done >"$work/does"
printf '%s\n' 'adapters 2 0' 'lora 2 0' >>"$work/does"
rest=(tabi/cpu tabi/cpu-load hmi/gpt hmi/ten-thousand hmi/management arlo/tweets-on-two-cores arlo/tweets-on-two-cores)
everything=(math quickstart quickstart pets/mixed-64 pets/mixed-64-online punica/tiny-two-workers beside-adapters beside-lora "${rest[@]}")
expect 0 all --seconds 9000
asked "${everything[@]}"
says 'checked at'

case='the math is checked before all that is done again'
carry
change
expect 0 check --seconds 0
asked
[[ $output != *'checked at'* ]] || broken "tells another program's"
says 'older   math'
checked=$(result check/math.json)
echo 'math fails' >>"$work/does"
expect 1 check
says 'checked at'
says 'older   math'
[ "$checked" = "$(result check/math.json)" ] || broken 'what was there is gone'
sed -i '/^math/d' "$work/does"
expect 0 all --seconds 9000
asked "${everything[@]}"
[ "$(grep -c 'saturated: done by another program' <<<"$output")" = 1 ] || broken 'says more than once what is put off'

case='a redo that is interrupted leaves what was there'
fresh
echo 'quickstart 130' >"$work/does"
expect 0 scenarios --only saturated
says 'left    validate-saturated'
first=$(result runs/saturated/found)
echo 'quickstart 0' >"$work/does"
expect 0 scenarios --only saturated
whole=$(result runs/saturated/found)
[ "$first" != "$whole" ] || broken 'is not done'
for code in 130 1; do
    change
    echo "quickstart $code" >"$work/does"
    expect "$((code == 1))" scenarios --only saturated
    says 'older   validate-saturated'
    [ "$whole" = "$(result runs/saturated/found)" ] || broken 'what was there is gone'
done
echo 'quickstart 0' >"$work/does"
expect 0 scenarios --only saturated
says 'done    validate-saturated'
[ "$whole" != "$(result runs/saturated/found)" ] || broken 'is not done again'
! result runs/saturated.new/found >/dev/null 2>&1 || broken 'left a copy'

case='an archive that is not whole'
mkdir "$OUT/new"
echo half >"$OUT/new/results.tar.gz.part-00"
expect 0 scenarios --only saturated
asked
archive=("$OUT"/results-*)
[ "${#archive[@]}" = 1 ] || broken "has ${archive[*]}"
truncate --size=100 "${archive[0]}"/results.tar.gz.part-00
expect 0 scenarios --only saturated
says 'is damaged, and lies in'
asked quickstart
[ "$(stat --format=%s "$OUT/damaged/results.tar.gz.part-00")" = 100 ] || broken 'is not kept'
expect 0 scenarios --only saturated
asked

case='a step that hangs'
fresh
echo 'quickstart 124' >"$work/does"
expect 1 scenarios --only saturated --seconds 9000
grep -q '^210 tenantry validate' "$work/limits" || broken "may take $(cut -c 1-40 "$work/limits")"
says 'failed  validate-saturated'
fresh
expect 0 scenarios --only saturated --seconds 230
says 'left    validate-saturated'

case='an archive that cannot be written'
before=$(sha256sum "$OUT"/results-*/*)
stub tar <<'END'
[[ $1 == -cz ]] || exec /usr/bin/env -S PATH="${PATH#*:}" tar "$@"
printf half
exit 2
END
echo 'quickstart 0' >"$work/does"
expect 1 scenarios --only saturated
says 'cannot be written; what was there before is'
[ "$before" = "$(sha256sum "$OUT"/*/*part-*)" ] || broken 'what was there before is not'
rm "$work/bin/tar"

case='one part of the comparison found no time'
printf '%s\n' 'adapters 2 0' 'lora 1 4' >"$work/does"
expect 0 beside --seconds 600
says 'done    beside-adapters'
says 'left    beside-lora'
adapters=$(result beside/adapters/beside-peft.json) lora=$(result beside/lora/beside-peft.json)

case='a poorer attempt'
carry
echo 'lora 0 1' >"$work/does"
expect 1 beside --seconds 600
says 'failed  beside-lora'
[ "$lora" = "$(result beside/lora/beside-peft.json)" ] || broken 'took the place of a better one'

case='a better attempt'
carry
echo 'lora 2 0' >"$work/does"
expect 0 beside --seconds 600
says 'done    beside-lora'
[ "$lora" != "$(result beside/lora/beside-peft.json)" ] || broken 'is not kept'
[ "$adapters" = "$(result beside/adapters/beside-peft.json)" ] || broken 'the other part was measured again'

# The comparison itself, with a PyTorch that cannot be imported, and then one that takes too long.
both() { # status, option...
    local wanted=$1 status=0
    shift
    output=$(PYTHONPATH=$work/torch PATH=${PATH#*:} scripts/beside-peft.sh --tenantry "$work/bin/tenantry" --out "$work/beside" "$@" 2>&1) || status=$?
    [ "$status" = "$wanted" ] || broken "exit status $status instead of $wanted"
}
mkdir "$work/torch"
case='a side that fails'
echo 'raise ImportError("none here")' >"$work/torch/torch.py"
stub tenantry <<<'exit 1'
both 1 --seconds 20 --turns 1
says 'FAILED: adapters, theirs, set-up: ImportError: none here'
says 'FAILED: lora, theirs, set-up: ImportError: none here'

case='a side that finds no time'
printf 'import time\ntime.sleep(60)\n' >"$work/torch/torch.py"
# shellcheck disable=SC2016  # it is the stub's
stub tenantry <<<'[[ $1 == --version ]] || exec sleep 60'
both 4 --part lora --seconds 1
says 'FAILED: lora, theirs, set-up: no time left'
says 'LoRA: tokens/s, decoding'
[[ $output != *adapters:* ]] || broken 'did more than it was asked'

case='an interrupt ends the other side too'
printf 'import os, time\nopen("%s", "w").write(str(os.getpid()))\ntime.sleep(600)\n' "$work/theirs" >"$work/torch/torch.py"
PYTHONPATH=$work/torch PATH=${PATH#*:} env --default-signal=INT scripts/beside-peft.sh --tenantry "$work/bin/tenantry" --out "$work/beside" \
    --part lora --seconds 600 >"$work/interrupted" 2>&1 &
until [ -s "$work/theirs" ] || ! kill -0 $!; do sleep 0.1; done
kill -INT $!
wait $! || true
output=$(cat "$work/interrupted")
says 'interrupted: what was found until then is here'
! kill -0 "$(cat "$work/theirs")" 2>/dev/null || broken "PEFT's process goes on"

case='a program of another source'
stub make </dev/null
stub strip <<'END'
printf '#!/bin/sh\n' >"$3"
END
mkdir -p third_party/highs/lib
touch third_party/highs/lib/libhighs.so
git init -q .
expect 0 pack
expect 0 card --seconds 0
for file in "${others[@]}"; do
    echo changed >>"$file"
done
expect 0 card --seconds 0
for file in "${sources[@]}"; do
    cp "$file" "$work/packed"
    echo changed >>"$file"
    expect 1 card --seconds 0
    says 'must be packed of what is here'
    cp "$work/packed" "$file"
done
expect 0 card --seconds 0

printf 'self-test of on-gpu.sh: passed\n'
