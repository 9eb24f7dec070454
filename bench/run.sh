#!/bin/bash
# Measures Quicksand against its peers in one run: run.sh [PART...]; the parts are named in bench.mjs.
#
# Prints the ratios, writes build/bench.json and the table between the markers in docs/performance.md.
set -euo pipefail
cd "$(dirname "$0")/.."

[ "$(id -u)" -eq 0 ] || { echo "bench needs root" >&2; exit 1; }
mkdir -p build/bench
gcc -O2 -D_GNU_SOURCE bench/probe.c -o build/bench/probe
tests/compat/install.sh
base_layer=${QUICKSAND_BASE_LAYER:-$PWD/build/base/rootfs}
[ -d "$base_layer" ] || tools/make_base_template.sh "$PWD/build/base"
[[ $# -gt 0 && " $* " != *" interpreter "* ]] || [ -n "${QUICKSAND_INTERPRETER_LAYER:-}" ] || tests/harness/recipe-base.sh code-interpreter-v1 build/recipe-base/code-interpreter-v1 "$base_layer" >build/bench/interpreter-base.log
[[ $# -gt 0 && " $* " != *" browser "* ]] || [ -n "${QUICKSAND_BROWSER_LAYER:-}" ] || tests/harness/recipe-base.sh browser build/recipe-base/browser "$base_layer" >build/bench/browser-base.log
[[ $# -gt 0 && " $* " != *" desktop "* ]] || [ -n "${QUICKSAND_DESKTOP_LAYER:-}" ] || tests/harness/recipe-base.sh desktop build/recipe-base/desktop "$base_layer" >build/bench/desktop-base.log
node=$(command -v node)
[ -x build/npm/node/node_modules/node/bin/node ] && node=$PWD/build/npm/node/node_modules/node/bin/node
# As many descriptors as the machine lets us have: 1000 live sandboxes and 100 clients at once.
ulimit -n "$(ulimit -Hn)"
QUICKSAND_BASE_LAYER=$base_layer NODE=$node exec tests/harness/lab.sh "$node" bench/bench.mjs "$@"
