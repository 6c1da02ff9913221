#!/usr/bin/env bash
# The demonstration: measures this machine's CPU, then runs one small scenario on the virtual machine and on the real one,
# and compares the two. `make demo` builds the program and calls this.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scenario=scenarios/quickstart.yaml
profile=out/cpu

tenantry() {
    printf '\n$ tenantry %s\n' "$*"
    target/release/tenantry "$@"
}

tenantry profile --device cpu --for "$scenario" --minutes 0.5 --out "$profile"
tenantry simulate "$scenario" --profile "$profile" --out out/demo/simulate
# Executes the same requests for real and sets them beside the simulated ones. Exit code 3 is a verdict and no failure: on a
# machine that is busy with other things, the two differ by more than the scenario allows.
verdict=0
tenantry validate "$scenario" --device cpu --profile "$profile" --out out/demo/validate || verdict=$?
[ "$verdict" = 0 ] || [ "$verdict" = 3 ] || exit "$verdict"

printf '\nReports, to open in a browser:\n'
find "$PWD/out/demo" -name '*.html' | sort | sed 's/^/  /'
