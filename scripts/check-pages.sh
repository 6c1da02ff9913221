#!/usr/bin/env bash
# Makes one page of each kind and opens it in a real browser: no errors, no requests, nothing that a screen reader trips over, fast and
# light. Usage: scripts/check-pages.sh [DIR], where pages and screenshots are left (by default out/pages).
#
# It needs a binary (TENANTRY, or target/release/tenantry), Chromium, Node 18 or newer and npm; without them it says what is missing
# and passes. npm's two packages go to a cache folder of the user.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=$(realpath -m "${1:-out/pages}")
tenantry=${TENANTRY:-target/release/tenantry}

skip() {
    echo "SKIPPED: pages were not opened in a browser: $1" >&2
    exit 0
}
browser=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)}
[[ -n $browser ]] || skip 'there is no Chromium (apt-get install chromium)'
command -v node >/dev/null || skip 'there is no Node (apt-get install nodejs npm)'
command -v npm >/dev/null || skip 'there is no npm (apt-get install npm)'
[[ -x $tenantry ]] || skip "there is no $tenantry (cargo build --release)"

modules=${XDG_CACHE_HOME:-$HOME/.cache}/tenantry/check-pages
mkdir -p "$modules"
if [[ ! -d $modules/node_modules/axe-core || ! -d $modules/node_modules/puppeteer-core ]]; then
    echo "installing puppeteer-core and axe-core into $modules"
    npm install --prefix "$modules" --no-audit --no-fund --loglevel=error puppeteer-core@24 axe-core@4.14 || skip 'npm could not install them'
fi

rm -rf "$out"
mkdir -p "$out"
make() { # name, then a command that leaves a folder
    local name=$1
    shift
    "$tenantry" "$@" --quiet --out "$out/$name" && echo "$out/$name/report.html" >>"$out/pages"
}
make run simulate scenarios/quickstart.yaml
make sweep simulate scenarios/quickstart.yaml --set 'sweep={tenants.count: [10, 100, 1000, 10000], cluster.gpus: [1, 2]}'
make other simulate scenarios/quickstart.yaml --set 'workload.arrivals={poisson: {rate: 900/s}}'
make cards simulate gallery/which-card-for-the-adapters --set 'workload.stop={requests: 2000}' --set workload.warm_up=0s
make cascade simulate gallery/when-does-a-cascade-stop-paying --set 'workload.stop={requests: 2000}' --set prices.paper-v100-tabi=2.5
make fleet simulate gallery/static-or-dynamic-runtimes-for-tweets --set 'workload.stop={requests: 20000}' --set workload.warm_up=1s
"$tenantry" plan plan/least-cost --out "$out/plan" --quiet
"$tenantry" plan plan/cascade-or-large-model --out "$out/plan-cascade" --quiet
"$tenantry" plan plan/runtimes-for-tweets --set 'plan.cards={paper-rtx3090: 0.3, l4: 0.8}' --set plan.find=least-cost \
    --set workload.stop.requests=4000 --out "$out/plan-refused" --quiet
printf '%s\n' "$out"/plan/plan.html "$out"/plan-cascade/plan.html "$out"/plan-refused/plan.html >>"$out/pages"
"$tenantry" report "$out/run" "$out/other" --out "$out/comparison.html" --quiet
"$tenantry" profile show cpu --report "$out/profile.html" --quiet
"$tenantry" profile show a100-sxm --report "$out/profile-gpu.html" --quiet
"$tenantry" profile compare cpu cpu-epyc --report "$out/ratios.html" --quiet
"$tenantry" trace generate scenarios/quickstart.yaml "$out/requests.csv" --quiet
"$tenantry" trace info "$out/requests.csv" --report "$out/trace.html" --quiet
printf '%s\n' "$out/comparison.html" "$out/profile.html" "$out/profile-gpu.html" "$out/ratios.html" "$out/trace.html" >>"$out/pages"
# What the docs hold.
printf '%s\n' "$PWD"/docs/gallery/*.html >>"$out/pages"
# Real execution is not in every binary.
if "$tenantry" validate scenarios/quickstart.yaml --device cpu --set 'workload.stop={requests: 300}' --out "$out/validation" --quiet 2>"$out/validate.log" ||
    [[ $? == 3 ]]; then
    echo "$out/validation/report.html" >>"$out/pages"
else
    echo "SKIPPED: the page of a validation: $(tail -n 1 "$out/validate.log")" >&2
fi

# Twenty systems at fifty sweep points: the page that must still be fast and light.
large='sweep={tenants.count: ['
for i in $(seq 1 50); do large+="$((i * 40)),"; done
systems='systems=['
for i in $(seq 1 10); do
    systems+="{preset: hbert-adapter, name: adapters-$i, batch: {size-or-timeout: {max_size: $i}}},"
    systems+="{preset: bert-shared, name: shared-$i, batch: {size-or-timeout: {max_size: $i}}},"
done
make large simulate scenarios/quickstart.yaml --set "$large]}" --set "$systems]" --set 'workload.stop={requests: 400}' --set 'workload.warm_up=0s'

NODE_PATH=$modules/node_modules node scripts/check-pages.cjs "$browser" "$out" $(cat "$out/pages")
