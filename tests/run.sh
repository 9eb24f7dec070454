#!/bin/bash
# Runs test suites and sums them up: run.sh [--seconds N] [SUITE...]
#
#   check       format, layers, sizes          functional  a real server, feature by feature
#   unit        unit tests, gcc                security    attempts from inside a sandbox
#   asan        unit tests, ASan and UBSan     compat      the published SDK packages
#   fuzz        each fuzz target, shortly      soak        random load for --seconds (only on request)
#   asan-e2e    the agent's part of functional and compat, with warden, server and agent under sanitizers
#
# Without names: all but soak. The last line is "N passed, N failed". TEST=FILE narrows functional,
# security, compat and asan-e2e to one file. Logs are in build/test.
set -uo pipefail
cd "$(dirname "$0")/.."

seconds=300
[ "${1:-}" = --seconds ] && { seconds=$2; shift 2; }
suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(check unit asan fuzz functional security compat asan-e2e)
logs=$PWD/build/test
mkdir -p "$logs"
rows=()
passed=0
failed=0
skipped=0

count()
{
    # count NAME PASSED FAILED SKIPPED SECONDS
    passed=$((passed + $2)) failed=$((failed + $3)) skipped=$((skipped + $4))
    rows+=("$(printf '%-12s %6d passed %4d failed %4d skipped %6d s' "$@")")
    echo "== ${rows[-1]}"
}

wants()
{
    local name
    for name in "${suites[@]}"; do
        [ "$name" = "$1" ] && return 0
    done
    return 1
}

# The root filesystem of the base template, made once by the script as it is now and shared by all test servers.
base_layer=${QUICKSAND_BASE_LAYER:-$PWD/build/base/rootfs}
base_pid=
begin_base_layer()
{
    local script stamp=build/base/made-by
    script=$(sha256sum <tools/make_base_template.sh)
    [ -n "${QUICKSAND_BASE_LAYER:-}" ] && return
    [ -d "$base_layer" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$script" ] && return
    { tools/make_base_template.sh "$PWD/build/base" && echo "$script" >"$stamp"; } >"$logs/template.log" 2>&1 &
    base_pid=$!
}

need_base_layer()
{
    if [ -n "$base_pid" ]; then
        echo "[test] waiting for the base template"
        wait "$base_pid" || { tail -n 30 "$logs/template.log"; return 1; }
        base_pid=
    fi
    [ -d "$base_layer" ]
}

run_check()
{
    local begin=$SECONDS good bad
    tools/check.sh --quick | tee "$logs/check.log"
    good=$(grep -c ': ok$' "$logs/check.log")
    bad=$(grep -c ': FAILED$' "$logs/check.log")
    count check "$good" "$bad" 0 $((SECONDS - begin))
}

# run_meson NAME BUILDDIR: every unit test binary ends with "N passed, N failed, N skipped".
run_meson()
{
    local name=$1 dir=$2 begin=$SECONDS status good bad missing
    # What was configured before tools/setup.sh brought libpq lacks a test.
    [ ! -e "$dir/build.ninja" ] || grep -q store_postgres "$dir/build.ninja" ||
        meson setup --reconfigure "$dir" >"$logs/$name.log" 2>&1
    make --no-print-directory "$dir/build.ninja" &&
        meson test -C "$dir" --suite unit --logbase "run-$name" --print-errorlogs --timeout-multiplier "${3:-1}" >"$logs/$name.log" 2>&1
    status=$?
    cat "$dir/meson-logs/run-$name.txt" >"$logs/$name.testlog" 2>/dev/null
    read -r good bad missing < <(awk '
        /^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { good += $1; bad += $3; skip += $5 }
        END { print good + 0, bad + 0, skip + 0 }' "$logs/$name.testlog" 2>/dev/null)
    if [ "$status" -ne 0 ]; then
        tail -n 60 "$logs/$name.log"
        grep -E '^FAIL ' "$logs/$name.testlog"
        # A binary that crashed or did not build has counted nothing.
        [ "${bad:-0}" -gt 0 ] || bad=1
    fi
    count "$name" "${good:-0}" "${bad:-0}" "${missing:-0}" $((SECONDS - begin))
}

run_fuzz()
{
    local begin=$SECONDS good bad
    if ! make --no-print-directory fuzzers >"$logs/fuzz-build.log" 2>&1; then
        tail -n 40 "$logs/fuzz-build.log"
        count fuzz 0 1 0 $((SECONDS - begin))
        return
    fi
    tests/fuzz.sh 4 | tee "$logs/fuzz.log"
    good=$(grep -c ': ok' "$logs/fuzz.log")
    bad=$(grep -c ': FAILED' "$logs/fuzz.log")
    [ $((good + bad)) -gt 0 ] || bad=1
    count fuzz "$good" "$bad" 0 $((SECONDS - begin))
}

# run_node NAME FILE...: in the lab, one file after the other.
run_node()
{
    local name=$1 begin=$SECONDS good bad missing status
    shift
    if ! need_base_layer; then
        count "$name" 0 1 0 $((SECONDS - begin))
        return
    fi
    QUICKSAND_BASE_LAYER=$base_layer NODE=$node SOAK_SECONDS=$seconds tests/harness/lab.sh "$node" --test \
        --test-concurrency=1 --test-reporter=spec --test-reporter-destination=stdout \
        --test-reporter=tap --test-reporter-destination="$logs/$name.tap" "$@" 2>&1 | tee "$logs/$name.log"
    status=$?
    read -r good bad missing < <(awk '
        /^# pass / { good = $3 } /^# fail / { bad += $3 } /^# cancelled / { bad += $3 } /^# skipped / { skip = $3 }
        END { print good + 0, bad + 0, skip + 0 }' "$logs/$name.tap")
    [ "$status" -eq 0 ] || [ "${bad:-0}" -gt 0 ] || bad=1
    count "$name" "${good:-0}" "${bad:-0}" "${missing:-0}" $((SECONDS - begin))
}

# One SDK version is enough here: what the others do differently is on the client's side.
run_sanitized()
{
    local begin=$SECONDS file files=()
    if ! make --no-print-directory sanitized >"$logs/asan-e2e-build.log" 2>&1; then
        tail -n 40 "$logs/asan-e2e-build.log"
        count asan-e2e 0 1 0 $((SECONDS - begin))
        return
    fi
    for file in compat/{commands,pty,files,git,sdk} functional/{agent,envd-proto}; do
        [[ $file == *"${TEST:-}"* ]] && files+=("tests/$file.test.mjs")
    done
    QUICKSAND_BINARY=$PWD/build/sanitized/quicksand SDK_VERSION=latest UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
        run_node asan-e2e "${files[@]}"
}

node_files()
{
    if [ -n "${TEST:-}" ]; then
        ls "tests/$1/"*"$TEST"*.test.mjs 2>/dev/null
    else
        ls "tests/$1/"*.test.mjs
    fi
}

if wants functional || wants security || wants compat || wants soak || wants asan-e2e; then
    [ "$(id -u)" -eq 0 ] || { echo "these suites need root" >&2; exit 1; }
    begin_base_layer
    tests/compat/install.sh || exit 1
fi
node=$(command -v node)
[ -x build/npm/node/node_modules/node/bin/node ] && node=$PWD/build/npm/node/node_modules/node/bin/node

for suite in "${suites[@]}"; do
    echo "== $suite"
    case $suite in
    check) run_check ;;
    unit) run_meson unit build/host ;;
    asan) run_meson asan build/asan 3 ;;
    fuzz) run_fuzz ;;
    asan-e2e) run_sanitized ;;
    functional | security | compat | soak) run_node "$suite" $(node_files "$suite") ;;
    *) echo "unknown suite $suite" >&2; exit 2 ;;
    esac
done

echo
printf '%s\n' "${rows[@]}"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
