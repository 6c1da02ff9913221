#!/usr/bin/env bash
# What is to be run on a GPU that is rented by the minute, on a machine with a CUDA PyTorch 2.11 but neither Rust nor a network (docs/gpu.md).
#
#   scripts/on-gpu.sh pack                             where it is built: the program and its solver into .gpu/, which travel with the checkout
#   scripts/on-gpu.sh check|scenarios|beside|card|all  there: one part, or one after the other
#
#   --device NAME    cuda:0; with `cpu` the same is rehearsed without a GPU
#   --seconds N      540; what is not done then is left, and the same command goes on with it. Of a lease's last command what is left of it less 40
#   --suite NAME     full; of the part `card`
#   --only NAME      of the part `scenarios`: those whose names begin so
#   --repeats N      1; executions of each scenario
#
# Results go to $OUT, or out/on-gpu: log.txt, and results-NNNN, results.tar.gz in parts of 15 MiB, of which the highest number counts. The next command
# goes on with what lies there or, on another machine, in .gpu/results, into which results-NNNN is put in place of what is there. In them each kind of
# card has a folder of its own. The exit code is 1 if a step failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,/^set/{/^# \{0,1\}/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 2; }

part=${1:-}
[[ $part =~ ^(pack|check|scenarios|beside|card|all)$ ]] || usage
shift
device=cuda:0 seconds=540 suite=full only='' repeats=1
while (($#)); do
    (($# > 1)) || usage
    case $1 in
    --device) device=$2 ;;
    --seconds) seconds=$2 ;;
    --suite) suite=$2 ;;
    --only) only=$2 ;;
    --repeats) repeats=$2 ;;
    *) usage ;;
    esac
    shift 2
done

whole() { # option, value, the least that it may be
    if ! [[ $2 =~ ^(0|[1-9][0-9]{0,8})$ ]] || (($2 < $3)); then
        echo "$1: must be a whole number of at least $3, got $2" >&2
        exit 2
    fi
}
whole --seconds "$seconds" 0
whole --repeats "$repeats" 1

# Models and number format of the card: what the published tables have (docs/profiles.md).
models=bert-base,llama-7b
dtype=bf16
[[ $device == cpu ]] && models=tiny dtype=f32

# Profiles that the scenarios need: the name, the minutes it takes by plan, and for which scenarios. On a card one of each number format. Of what is not
# done when they are over, what comes after the points is measured as a whole.
cards() {
    if [[ $device == cpu ]]; then
        cat <<'END'
quickstart 1 quickstart
pets       1 pets/mixed-64 pets/mixed-64-online
punica     1 punica/tiny-two-workers
tabi       1 tabi/cpu tabi/cpu-load
gpt        1 hmi/gpt
hmi        1 hmi/ten-thousand hmi/management
arlo       1 arlo/tweets-on-two-cores
END
    else
        cat <<'END'
bf16 2.2 h200/arlo-tweets h200/hmi-tenants h200/tabi-tweets h200/punica-popularity
f32  1   h200/pets-mixed hmi/management hmi/gpt
END
    fi
}

# What is validated: the name, the profile, the seconds it takes by estimate, the scenario, and more options of `validate`. On a card the shipped
# scenarios of h200/, those of one profile after the other, since a profile takes as long as several of them; in a rehearsal those that a CPU can run.
runs() {
    if [[ $device == cpu ]]; then
        cat <<'END'
dedicated-shared-adapters quickstart 60 quickstart
saturated                 quickstart 60 quickstart --set workload.arrivals={closed-loop:{clients:64,think_time:0s}}
tasks                     pets       60 pets/mixed-64
tasks-online              pets       60 pets/mixed-64-online
lora-two-workers          punica     60 punica/tiny-two-workers
cascade                   tabi       60 tabi/cpu
cascade-under-load        tabi       60 tabi/cpu-load
hierarchical-decoders     gpt        60 hmi/gpt
ten-thousand-tenants      hmi        60 hmi/ten-thousand
management                hmi        60 hmi/management
static-runtimes           arlo       60 arlo/tweets-on-two-cores
dynamic-runtimes          arlo       60 arlo/tweets-on-two-cores --set systems=[{"preset":"arlo-dt","runtimes":{"max_length":134}}]
END
    else
        cat <<'END'
hmi-ten-thousand          bf16       55 h200/hmi-ten-thousand
punica-popularity         bf16       65 h200/punica-popularity
arlo-tweets               bf16       40 h200/arlo-tweets
tabi-tweets               bf16       30 h200/tabi-tweets
punica-open               bf16       25 h200/punica-open
hmi-open                  bf16       40 h200/hmi-open
arlo-saturated            bf16       15 h200/arlo-saturated
tabi-saturated            bf16       15 h200/tabi-saturated
punica-few                bf16       15 h200/punica-few
punica-queues             bf16       15 h200/punica-queues
hmi-alone                 bf16       40 h200/hmi-alone
hmi-tenants               bf16       150 h200/hmi-tenants
pets-mixed                f32        25 h200/pets-mixed
pets-streams              f32        15 h200/pets-streams
pets-online               f32        25 h200/pets-online
management                f32        85 hmi/management
hierarchical-decoders     f32        45 hmi/gpt
END
    fi
}

# How many of them come before the comparison, among `all`: one of each family, and before those that take long or a further profile.
before_beside=5

# The part of `beside`, the seconds that it takes at least, on a machine whose disk has not given out PyTorch yet, and those that it may take among `all`.
comparisons() {
    cat <<'END'
adapters 75  120
lora     120 240
END
}

[[ -z $only ]] || runs | awk -v only="$only" 'index($1, only) == 1 { found = 1 } END { exit !found }' ||
    { echo "--only: must begin the name of a run, got $only; they are: $(runs | awk '{ print $1 }' | paste -sd ' ')" >&2; exit 2; }

# Of all that the program is built of: a packed one that is older would be measured as if it were what stands beside it. That is more than Rust:
# cards, presets, scenarios, datasheets and the page's templates are in the program. Where it is to run there is no Git to ask.
source_digest() {
    find Cargo.{toml,lock} build.rs scripts/rpath.rs {src,executor,sim,profiles,traces,scenarios,reports} \
        \( -name tests -o -name benches -o -name fuzz -o -name __pycache__ -o -path reports/h200 \) -prune -o -type f -not -name tests.rs -print0 |
        LC_ALL=C sort --zero-terminated | xargs -0 sha256sum | sha256sum | cut -c 1-16
}

# The program that is linked with libtorch does all that `tenantry` does, so that one is enough.
pack() {
    local program=target/release/tenantry-torch limit=$((60 << 20)) bytes
    make --quiet build
    mkdir -p .gpu/lib .gpu/results
    source_digest >.gpu/source
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
exec > >(tee --append "$out/log.txt") 2>&1

# Everything that a later command goes on with lies in $work/results, which is what comes back; in $results what is of this kind of card.
work=$(mktemp -d)
shopt -s nullglob
earlier=("$out"/results-????)
((${#earlier[@]})) || earlier=(.gpu/results/results-????)
# The number of what there is.
generation=0
if ((${#earlier[@]})); then
    earlier=${earlier[-1]}
    generation=$((10#${earlier##*-}))
    echo "=== goes on with $earlier"
    if ! cat "$earlier"/results.tar.gz.part-* </dev/null | tar -xz -C "$work"; then
        rm -rf "$work/results" "$out/damaged"
        mv "$earlier" "$out/damaged"
        echo "=== $earlier: is damaged, and lies in $out/damaged from now on; all begins anew"
    fi
fi
kind=cpu
if [[ $device != cpu ]]; then
    kind=$(timeout --signal=KILL 20 nvidia-smi --query-gpu=name --format=csv,noheader --id="${device#cuda:}" | tr ' [:upper:]' '-[:lower:]') || true
    [[ -n $kind ]] || { echo "$device: nvidia-smi must name it" >&2; exit 1; }
fi
results=$work/results/$kind
# Machines with the same card differ by a quarter in how fast they issue kernels: each is simulated by a profile of its own.
boot=$(cut -c 1-8 /proc/sys/kernel/random/boot_id 2>/dev/null || awk '$1 == "btime" { print $2 }' /proc/stat || true)
boot=${boot:-unknown}
mkdir -p "$results"/{done,failed,"cards/$boot",runs,check,beside}

# Whole or not at all, and after each step: a machine that is taken back leaves what was done. All parts get their name at once.
keep() {
    local - one next
    set +o noglob
    rm -rf "$out/new"
    mkdir "$out/new"
    # 1 says that a file changed meanwhile: there is an archive.
    if ! { tar -cz -C "$work" results || (($? == 1)); } |
        split --bytes=15M --numeric-suffixes - "$out/new/results.tar.gz.part-"; then
        rm -rf "$out/new"
        echo "results.tar.gz: cannot be written; what was there before is" >&2
        return 1
    fi
    generation=$((generation + 1))
    next=$out/results-$(printf %04d "$generation")
    mv -T "$out/new" "$next"
    for one in "$out"/results-????; do
        [[ $one == "$next" ]] || rm -rf "$one"
    done
}
trap 'code=$?; keep || code=1; rm -rf "$work"; exit $code' EXIT

# The program: the one that was packed, or that was built here.
mkdir -p "$work/bin"
source=$(source_digest)
if [[ -e .gpu/tenantry.gz ]]; then
    [[ $(cat .gpu/source 2>/dev/null) == "$source" ]] ||
        { echo ".gpu: must be packed of what is here, got another source: scripts/on-gpu.sh pack" >&2; exit 1; }
    gzip --decompress --stdout .gpu/tenantry.gz >"$work/bin/tenantry"
    chmod +x "$work/bin/tenantry"
else
    ln -s "$(realpath "${TENANTRY:-target/release/tenantry}")" "$work/bin/tenantry"
fi
PATH=$work/bin:$PATH

# libtorch: PyTorch's, which is the one that has a part for CUDA; for a rehearsal the one that was linked.
# It is looked for and not imported, which takes seconds.
torch=$(python3 -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0] + "/lib")' 2>/dev/null || true)
if [[ -z $torch ]]; then
    [[ $device == cpu ]] || { echo "no PyTorch 2.11 for CUDA: python3 must be able to import torch" >&2; exit 1; }
    torch=${LIBTORCH:-$PWD/third_party/libtorch/torch}/lib
fi
version=$(sed -n "s/^__version__ = ['\"]\([^'\"]*\).*/\1/p" "$torch/../version.py" 2>/dev/null || true)
[[ $device == cpu || $version == 2.11.* ]] ||
    { echo "PyTorch: must be 2.11, whose libtorch the program is built for, got ${version:-none that says which}" >&2; exit 1; }
export LD_LIBRARY_PATH=$torch:$PWD/.gpu/lib:$PWD/third_party/highs/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
[[ $device == cpu ]] || timeout --signal=KILL 20 nvidia-smi || true

# Seconds that are left, less what a step may go on for after an interrupt, and what it takes to write down what there is.
stopping=15
left() { echo $((seconds - SECONDS - stopping - 10)); }

# A step that takes so much longer than its estimate hangs: it is not to take what is left to the others.
most() { echo $((3 * $1 + 30)); }

# What failed in an earlier command would most likely do so again, by the same program: its turn is after all others. So is the turn of what another
# program has done, whose figures stay until then.
turn=first
declare -A tried=() deferred=()
failures=()

# Who does a step: this program, with the options that what comes of it depends on.
by() { # name
    case $1 in
    validate-*) echo "$source --repeats $repeats" ;;
    card) echo "$source --suite $suite" ;;
    *) echo "$source" ;;
    esac
}

# Whether a step is done by this program with these options, or the profile of this machine measured by any.
is_done() { # name
    [[ -e $results/done/$1 && ($1 == profile-* || $(<"$results/done/$1") == "$(by "$1")") ]]
}

# Whether a step's turn is after all others', which is said once. Nothing is measured before what it computes is known to be right.
put_off() { # name
    local why
    [[ $turn == first && $1 != math ]] || return 1
    [[ -z ${deferred[$1]:-} ]] || return 0
    if [[ -e $results/done/$1 ]]; then
        why='done by another program or with other options, is done again'
    elif [[ $(cat "$results/failed/$1" 2>/dev/null) == "$(by "$1")" ]]; then
        why='failed before, is tried again'
    else
        return 1
    fi
    echo "=== $1: $why when the others had their turn"
    deferred[$1]=1
}

# Does a step that is not done yet, as long as there is time, and leaves its exit code in `code`. One of 3 says that a limit is not met: a result like
# others. One of 4 says that it had too little time, as one does that the end of the time interrupts: these are left, and did not fail. What the command
# makes in its place with `.new` behind it comes to its place when the step is done; or where nothing whole is there, however far it came.
step() { # name, seconds that it needs at least, seconds that it may take, place or nothing, command...
    local name=$1 least=$2 limit=$3 place=$4 started=$SECONDS left result=failed
    shift 4
    code=0
    is_done "$name" && return
    code=1
    [[ ${tried[$name]:-} ]] && return 1
    ! put_off "$name" || return 1
    tried[$name]=1
    left=$(left)
    if ((left < least)); then
        echo "=== $name: no time left, the same command goes on"
        return 1
    fi
    ((limit < left)) || limit=$left
    echo "=== $name: $*"
    code=0
    # Of a redo that failed.
    [[ -z $place ]] || rm -rf "$place.new" "$place.new.partial"
    # An interrupt lets it keep what it has; with --foreground it comes once, and not to the whole group again, which would be a second one.
    timeout --foreground --signal=INT --kill-after="$stopping" "$limit" "$@" </dev/null || code=$?
    echo "$name,$code,$((SECONDS - started))" | tee -a "$results/steps.csv"
    case $code in
    0 | 3) result='done' ;;
    4 | 130) result=left ;;
    124 | 137) ((limit < left)) || result=left ;;
    esac
    [[ $result == 'done' ]] && rm -f "$results/failed/$name"
    [[ $result == failed ]] && failures+=("$name")
    if [[ -n $place && -e $place.new && ($result == 'done' || ! -e $results/done/$name) ]]; then
        rm -rf "$place"
        mv "$place.new" "$place"
    fi
    [[ $result == left ]] || by "$name" >"$results/$result/$name"
    keep
    [[ $result == 'done' ]]
}

# A profile, which goes on with what an earlier command left of it; where that was measured on another host or driver, it begins anew.
profile() { # name, seconds that it needs at least, seconds that it may take, folder, options...
    local name=$1 least=$2 limit=$3 folder=$4
    shift 4
    set -- "$name" "$least" "$limit" '' tenantry profile --device "$device" --out "$folder" --quiet "$@"
    step "$@" && return
    ((code == 2)) && [[ -e $folder.partial ]] || return 1
    rm "$folder.partial" "$results/failed/$name"
    unset "tried[$name]" "failures[-1]"
    step "$@"
}

check() {
    # It is not put off.
    [[ $turn == first ]] || return 0
    timeout --signal=KILL 30 tenantry doctor | tee "$results/check/machine.txt" || true
    local found=$results/check/math.json
    # `exec`, so that an interrupt finds it.
    step math 30 "$(most 30)" "$found" bash -c "exec tenantry doctor --device $device --json >'$found.new'" || true
    # What another program found says nothing of this one.
    if is_done math; then
        cat "$found"
    elif [[ ${failures[0]:-} == math ]]; then
        cat "$found.new" 2>/dev/null || cat "$found"
    fi
}

# What is measured of it is kept, so that it may take all that is left.
card() {
    profile card 60 "$(left)" "$results/cards/${device/:/}" --suite "$suite" --models "$models" --dtype "$dtype"
}

scenarios() { # how many, if not all
    # Options have brackets, and are no names of files.
    local -
    set -o noglob
    local name card least scenario more minutes scenarios profiled
    # Profiles that failed in this command would fail again.
    local -A failed=()
    while read -r name card least scenario more; do
        [[ $name == "$only"* && ! ${failed[$card]:-} ]] || continue
        # A profile takes as long as several of them: it is measured for what is done in this turn.
        if is_done "validate-$name" || put_off "validate-$name"; then
            continue
        fi
        read -r _ minutes scenarios < <(cards | grep "^$card ")
        profiled=$(awk "BEGIN { print int(60 * $minutes + 30) }")
        # One that fails, or is not done, does not stop the others.
        # A profile that is cut off is lost, on another machine it would begin anew, and so is one after which there is no time to use it.
        # shellcheck disable=SC2046,SC2086  # there are several
        profile "profile-$card-$boot" $((profiled + least * repeats)) "$(most "$profiled")" "$results/cards/$boot/$card" \
            --suite quick --minutes "$minutes" $(printf -- '--for %s ' $scenarios) || { failed[$card]=1 && continue; }
        # No `--requests`: the loop that serves would write their rows, which at 10,000 a second is not nothing.
        # shellcheck disable=SC2086  # options are several words
        step "validate-$name" $((least * repeats)) "$(most $((least * repeats)))" "$results/runs/$name" \
            tenantry validate "$scenario" --device "$device" --profile "$results/cards/$boot/$card" --repeats "$repeats" \
            --out "$results/runs/$name.new" --quiet $more || true
    done < <(runs | head --lines="${1:--0}")
}

first_scenarios() { scenarios "$before_beside"; }

# In how many turns of a comparison both sides were measured.
ratios() { # file
    python3 -c 'import json, sys
parts = json.load(open(sys.argv[1]))["parts"].values()
print(sum(len(turn) == 2 for part in parts for turn in part["turns"]))' "$1" 2>/dev/null || echo 0
}

# Each part is a step of its own, so that one which found no time does not take the other's again.
beside() {
    if [[ $device == cpu ]] && ! python3 -c 'import peft' 2>/dev/null; then
        echo '=== beside: left out, since python3 cannot import peft'
        return
    fi
    local name least among limit measure found
    while read -r name least among; do
        is_done "beside-$name" || [[ ${tried[beside-$name]:-} ]] && continue
        # It takes a third of the time, and may find too little of it once more.
        if [[ $part == all && $turn == first ]] && grep -q "^beside-$name,4," "$results/steps.csv" 2>/dev/null; then
            echo "=== beside-$name: had too little time before, is tried again when the others had their turn"
            deferred[beside-$name]=1
            continue
        fi
        limit=$(most "$least")
        # Before what takes the rest of the time whatever that is.
        [[ $part != all ]] || limit=$among
        ((limit < $(left))) || limit=$(left)
        # Where there is not enough for it twice with care, it is twice with less: a second turn that finds no time is left out.
        measure=5
        ((limit >= 2 * least)) || measure=3
        # Where it is found even if the machine goes back in the middle of it.
        found=$out/beside/$name
        rm -rf "$found"
        # It is to end by itself before it is interrupted.
        step "beside-$name" "$least" "$limit" '' scripts/beside-peft.sh --part "$name" --device "$device" --tenantry "$work/bin/tenantry" \
            --seconds $((limit - 25)) --turns 2 --measure "$measure" --out "$found" || true
        # One that came less far than an earlier one does not take its place.
        if [[ -e $found/beside-peft.json ]] && (($(ratios "$found/beside-peft.json") >= $(ratios "$results/beside/$name/beside-peft.json"))); then
            rm -rf "$results/beside/$name"
            cp -r "$found" "$results/beside/"
            keep
        fi
    done < <(comparisons)
}

# Of all steps, which have been done on this kind of card, in all commands so far; older ones by another program or with other options.
told() {
    local name steps=(math) _
    while read -r name _; do
        steps+=("beside-$name")
    done < <(comparisons)
    while read -r name _; do
        steps+=("profile-$name-$boot")
    done < <(cards)
    while read -r name _; do
        steps+=("validate-$name")
    done < <(runs)
    steps+=(card)
    for name in "${steps[@]}"; do
        if is_done "$name"; then
            echo "done    $name"
        elif [[ -e $results/done/$name ]]; then
            echo "older   $name"
        elif [[ -e $results/failed/$name ]]; then
            echo "failed  $name"
        else
            echo "left    $name"
        fi
    done
}

# Validations need this machine's profile, and comparisons do not: these are as good on the next one, but would never come to their turn after all of
# them. What is measured of a whole card is kept however far it came, so that it has what is left when all others had both their turns.
parts=("$part")
[[ $part != all ]] || parts=(check first_scenarios beside scenarios)
for one in "${parts[@]}"; do
    "$one" || true
done
if ((${#deferred[@]})); then
    turn=again
    for one in "${parts[@]}"; do
        "$one" || true
    done
fi
turn=again
[[ $part != all ]] || card || true
echo "=== on $kind so far:"
told
((${#failures[@]} == 0)) || { echo "failed: ${failures[*]}"; exit 1; }
