#!/usr/bin/env bash
# The demonstration: measures this machine's CPU, then runs one small scenario on the virtual machine and on the real one,
# and compares the two. `make demo` builds the program and calls this.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scenario=scenarios/quickstart.yaml
profile=out/cpu-profile

tenantry() {
    printf '\n$ tenantry %s\n' "$*"
    target/release/tenantry "$@"
}

tenantry profile --device cpu --suite quick --for "$scenario" --out "$profile"
tenantry simulate "$scenario" --profile "$profile" --out out/demo/simulate
tenantry execute "$scenario" --device cpu --out out/demo/execute
tenantry validate "$scenario" --device cpu --profile "$profile" --out out/demo/validate

printf '\nReports, to open in a browser:\n'
find "$PWD/out/demo" -name '*.html' | sort | sed 's/^/  /'
