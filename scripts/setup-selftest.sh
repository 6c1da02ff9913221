#!/usr/bin/env bash
# Tests scripts/setup.sh where it must not install anything: all there, programs missing, no network, a damaged cache, a
# wrong LIBTORCH. Needs a set-up checkout; takes a second or two.
set -euo pipefail

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A checkout of its own, with nothing linked into it, and a cache of its own.
mkdir -p "$work/checkout/scripts"
cp "$checkout/Cargo.toml" "$work/checkout/"
cp "$checkout/scripts/setup.sh" "$work/checkout/scripts/"
cache=$work/cache

# Runs a command, keeps what it prints in `output`, and wants this exit status.
expect() { # status, command...
    local wanted=$1 status=0
    shift
    output=$("$@" 2>&1 </dev/null) || status=$?
    [ "$status" = "$wanted" ] || broken "exit status $status instead of $wanted"
}
says() { [[ "$output" == *"$1"* ]] || broken "does not say '$1'"; }
says_not() { [[ "$output" != *"$1"* ]] || broken "says '$1'"; }
broken() {
    printf 'set-up self-test: %s: %s; it printed:\n%s\n' "$case" "$1" "$output" >&2
    exit 1
}

case='all there'
started=${EPOCHREALTIME/./}
expect 0 "$checkout/scripts/setup.sh"
says 'all there'
(((${EPOCHREALTIME/./} - started) < 1000000)) || broken 'takes more than a second'

case='programs missing, no administrator'
mkdir "$work/bin"
for program in bash env cargo rustup rustc uname sed head sort cut dirname readlink find cmp mkdir cat df awk; do
    path=$(command -v "$program") && ln -s "$path" "$work/bin/$program"
done
printf '#!/bin/sh\necho 1000\n' >"$work/bin/id"
printf '#!/bin/sh\nexit 1\n' >"$work/bin/apt-get"
chmod +x "$work/bin/id" "$work/bin/apt-get"
expect 1 env PATH="$work/bin" TENANTRY_CACHE="$cache" "$work/checkout/scripts/setup.sh"
says 'will install'
says 'system packages: g++ make pkg-config'
says 'sudo apt-get install --no-install-recommends g++ make pkg-config'
says 'python3 python3-pip'
[ ! -e "$cache" ] || broken 'it touched the cache'

case='no network'
expect 1 env PIP_NO_INDEX=1 PIP_FIND_LINKS= TENANTRY_CACHE="$cache" "$work/checkout/scripts/setup.sh"
says 'torch==2.11.0'
says "put them into $cache/wheels"
says_not Traceback
[ -z "$(find "$cache" -mindepth 1 ! -name .lock)" ] || broken 'it left something in the cache'

case='a damaged cache'
folder=$(sed -n 's/^highs_version=//p' "$checkout/scripts/setup.sh")
folder=$cache/highs-$folder-1
mkdir -p "$folder" "$work/checkout/third_party"
printf '5 lib/libhighs.so\n' >"$folder/.files"
ln -s "$folder" "$work/checkout/third_party/highs"
expect 1 env TENANTRY_CACHE="$cache" "$work/checkout/scripts/setup.sh" --check
says 'HiGHS'

case='a wrong LIBTORCH'
expect 1 env LIBTORCH="$work" TENANTRY_CACHE="$cache" "$work/checkout/scripts/setup.sh"
says 'which has no lib/libtorch_cpu.so'

printf 'set-up self-test: passed\n'
