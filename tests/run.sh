#!/bin/bash
# Runs test suites and sums them up: run.sh [--seconds N] [SUITE...]
#
#   check       format, layers, sizes          functional  a real server, feature by feature
#   unit        unit tests, gcc                security    attempts from inside a sandbox
#   asan        unit tests, ASan and UBSan     compat      the published SDK packages
#   tsan        unit tests, ThreadSanitizer    soak        random load for --seconds (only on request)
#   fuzz        each fuzz target, shortly      tidy        clang-tidy        cppcheck    cppcheck
#   functional-2, -3, security-2  files of functional and security that nobody has come to yet: each lane takes some, once
#               its other suites are done
#   asan-e2e    envd's part of functional and compat, with warden, server and envd under ASan and UBSan
#   tsan-e2e    the part of functional where much happens at once, with warden and server under ThreadSanitizer
#   tsan-functional  the same with every file of functional that drives no browser (only on request: it takes about an hour)
#   batteries   what needs the largest templates: R and Java in the code interpreter (only on request)
#
# Without names: all but soak, tsan, tsan-functional and batteries. The last line is "N passed, N failed, N skipped". TEST=FILE narrows functional,
# security, compat, batteries and those under sanitizers to one file.
#
# Several suites run side by side, in lanes. Security begins when all other tests have ended; those of its files that fill
# the machine and look at how it stays usable wait for the analysers, too, and have it for themselves. Builds and analysers have a low priority, so that tests hardly notice them. A suite that
# fails prints all it wrote, which is in build/test/SUITE.out; one suite alone prints as it goes.
#
# What failed beside others is run once more at the end, alone: a file, or a program of unit tests. What passes then is counted as
# passed and named as unsteady below the table, so that a busy machine does not fail the whole and nothing goes unnoticed.
# Not so what a sanitizer has reported, nor anything of security, which runs apart anyway: a defence that fails once has failed.
# UNSTEADY=fail lets the rest fail, too.
set -uo pipefail
cd "$(dirname "$0")/.."

seconds=300
[ "${1:-}" = --seconds ] && { seconds=$2; shift 2; }
# A lane's suites run one after the other.
programs=(check unit asan tsan functional-3)
analysers=(fuzz tidy cppcheck)
servers=(functional soak batteries)
more_servers=(compat asan-e2e tsan-e2e tsan-functional functional-2)
alone='/(connections|ending|ending-late|flood|limits)\.'
known=" ${programs[*]} ${analysers[*]} ${servers[*]} ${more_servers[*]} security security-2 "
suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(check unit asan fuzz functional functional-2 functional-3 compat asan-e2e tsan-e2e tidy cppcheck security security-2)
logs=$PWD/build/test
mkdir -p "$logs"
rm -f "$logs"/*.unsteady

wants()
{
    [[ " ${suites[*]} " == *" $1 "* ]]
}

for suite in "${suites[@]}"; do
    [[ $known == *" $suite "* ]] || { echo "unknown suite $suite" >&2; exit 2; }
done

# count NAME PASSED FAILED SKIPPED, by each suite at its end.
count()
{
    echo "$2 $3 $4" >"$logs/$1.result"
}

# A suite's parts, files or programs, are lines "PART PASSED FAILED SKIPPED" of SUITE.parts; of a part that ran again the last one counts.
count_parts()
{
    local good bad missing
    read -r good bad missing < <(awk '
        { good[$1] = $2; bad[$1] = $3; skip[$1] = $4 }
        END { for (part in good) { g += good[part]; b += bad[part]; s += skip[part] } print g + 0, b + 0, s + 0 }' "$logs/$1.parts")
    count "$1" "$good" "$bad" "$missing"
}

# failed_parts SUITE: those whose last line tells of a failure.
failed_parts()
{
    [ ! -e "$logs/$1.parts" ] || awk '{ bad[$1] = $3 } END { for (part in bad) if (bad[part] > 0) print part }' "$logs/$1.parts"
}

# build DIRECTORY COMMAND...: two suites may want the same one.
build()
{
    flock "$logs/.$(basename "$1")" nice -n 10 "${@:2}"
}

# ThreadSanitizer of gcc 12 wants addresses less random than some kernels make them.
steady=()
[ "$(cat /proc/sys/vm/mmap_rnd_bits)" -le 28 ] || steady=(setarch --addr-no-randomize)
launcher=()
only= # parts to run instead of all
export TSAN_OPTIONS=second_deadlock_stack=1:suppressions=$PWD/tests/tsan.supp

# The root filesystem of the base template, made once by the script as it is now and shared by all test servers.
base_layer=${QUICKSAND_BASE_LAYER:-$PWD/build/base/rootfs}
have_base_layer()
{
    [ -d "$base_layer" ] && { [ -n "${QUICKSAND_BASE_LAYER:-}" ] || [ "$(cat build/base/made-by 2>/dev/null)" = "$(sha256sum <tools/make_base_template.sh)" ]; }
}

# Who comes first makes it, the others wait.
need_base_layer()
(
    flock 9
    have_base_layer && return
    echo "[test] making the base template"
    tools/make_base_template.sh "$PWD/build/base" >"$logs/template.log" 2>&1 &&
        sha256sum <tools/make_base_template.sh >build/base/made-by && return
    tail -n 30 "$logs/template.log"
    return 1
) 9>"$logs/.base"

# The published packages, and the Node.js that they want.
node=
need_node()
{
    [ -z "$node" ] || return 0
    flock "$logs/.npm" tests/compat/install.sh || return
    node=$(command -v node)
    [ ! -x build/npm/node/node_modules/node/bin/node ] || node=$PWD/build/npm/node/node_modules/node/bin/node
}

# What the tests' package mirror offers, fetched once from where the base template's packages came from.
need_packages()
(
    flock 9
    tests/harness/packages.sh build/packages "$base_layer" >"$logs/packages.log" 2>&1 && return
    tail -n 30 "$logs/packages.log"
    return 1
) 9>"$logs/.packages"

# need_recipe_base RECIPE: what tests of that shipped recipe have as their base.
need_recipe_base()
(
    flock 9
    tests/harness/recipe-base.sh "$1" "build/recipe-base/$1" "$base_layer" >"$logs/$1-base.log" 2>&1 && return
    tail -n 30 "$logs/$1-base.log"
    return 1
) 9>"$logs/.recipe-base"

run_check()
{
    tools/check.sh --quick | tee "$logs/check.log"
    count check "$(grep -c ': ok$' "$logs/check.log")" "$(grep -c ': FAILED$' "$logs/check.log")" 0
}

run_analyser()
{
    local bad=0
    make --no-print-directory build/tidy/build.ninja && nice -n 19 tools/check.sh "$1" || bad=1
    count "$1" $((1 - bad)) $bad 0
}

# run_meson NAME BUILDDIR [PATIENCE [TEST...]]: every unit test binary ends with "N passed, N failed, N skipped".
run_meson()
{
    local name=$1 dir=$2
    # What was configured before tools/setup.sh brought libpq lacks a test.
    [ ! -e "$dir/build.ninja" ] || grep -q store_postgres "$dir/build.ninja" || build "$dir" meson setup --reconfigure "$dir"
    rm -f "$dir/meson-logs/run-$name.json"
    build "$dir" make --no-print-directory "$dir/build.ninja" && build "$dir" ninja -C "$dir" --quiet &&
        "${launcher[@]}" meson test -C "$dir" --no-rebuild --suite unit --logbase "run-$name" --print-errorlogs \
            --timeout-multiplier "${3:-1}" ${only:-${*:4}}
    cat "$dir/meson-logs/run-$name.txt" >"$logs/$name.testlog" 2>/dev/null
    grep -E '^(FAIL|skip) ' "$logs/$name.testlog"
    tests/harness/meson_parts.py "$dir/meson-logs/run-$name.json" >>"$logs/$name.parts"
    count_parts "$name"
}

run_fuzz()
{
    local good bad
    build sanitizers make --no-print-directory fuzzers || return
    tests/fuzz.sh 10 | tee "$logs/fuzz.log"
    good=$(grep -c ': ok' "$logs/fuzz.log")
    bad=$(grep -c ': FAILED' "$logs/fuzz.log")
    [ $((good + bad)) -gt 0 ] || bad=1
    count fuzz "$good" "$bad" 0
}

# run_file SUITE FILE: in the lab.
run_file()
{
    local name=$1 file=$2 good bad missing status
    need_node || return
    need_base_layer || return
    [[ $name != functional* ]] || need_packages || return
    [[ $file != */interpreter* ]] || need_recipe_base code-interpreter-v1 || return
    [ "$name" != batteries ] || need_recipe_base code-interpreter-full || return
    [[ $file != */desktop* ]] || need_recipe_base desktop || return
    [[ $file != *compat/browser* ]] || need_recipe_base browser || return
    rm -f "$logs/$name.tap"
    echo "-- $file"
    QUICKSAND_BASE_LAYER=$base_layer NODE=$node SOAK_SECONDS=$seconds "${launcher[@]}" tests/harness/lab.sh "$node" --test \
        --test-concurrency=1 --test-reporter=spec --test-reporter-destination=stdout \
        --test-reporter=tap --test-reporter-destination="$logs/$name.tap" "$file"
    status=$?
    read -r good bad missing < <(awk '
        /^# pass / { good = $3 } /^# fail / { bad += $3 } /^# cancelled / { bad += $3 } /^# skipped / { skip = $3 }
        END { print good + 0, bad + 0, skip + 0 }' "$logs/$name.tap") || good=0 bad=1 missing=0
    [ "$status" -eq 0 ] || [ "$bad" -gt 0 ] || bad=1
    echo "$file $good $bad $missing" >>"$logs/$name.parts"
}

# run_node NAME FILE...: one file after the other. One that could not even be started has failed.
run_node()
{
    local name=$1 file
    shift
    for file in ${only:-$*}; do
        run_file "$name" "$file" || echo "$file 0 1 0" >>"$logs/$name.parts"
    done
    count_parts "$name"
}

# take SUITE: the first of its files that nobody has taken.
take()
(
    flock 9
    head -n 1 "$logs/$1.files"
    sed -i 1d "$logs/$1.files"
) 9>"$logs/.files"

# run_shared NAME: files of SUITE as long as there are any; NAME is SUITE or SUITE-2.
run_shared()
{
    local file
    while [ -z "$only" ] && file=$(take "${1%-[0-9]}") && [ -n "$file" ]; do
        run_file "$1" "$file" || echo "$file 0 1 0" >>"$logs/$1.parts"
    done
    run_node "$1"
}

# What needs the machine for itself comes when the other lanes have ended.
run_security()
{
    local group
    run_shared security
    for group in "${groups[@]}"; do
        tail --pid="$group" -f /dev/null
    done
    run_node security $(node_files security | grep -E "$alone")
}

# some NAME...: those of tests/NAME.test.mjs that TEST asks for.
some()
{
    local file
    for file; do
        [[ $file == *"${TEST:-}"* ]] && echo "tests/$file.test.mjs"
    done
}

# One SDK version is enough here: what the others do differently is on the client's side.
run_asan_e2e()
{
    build sanitizers make --no-print-directory sanitized || return
    QUICKSAND_BINARY=$PWD/build/sanitized/quicksand SDK_VERSION=latest UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
        run_node asan-e2e $(some compat/{commands,pty,files,git,sdk} functional/{envd,envd-proto})
}

# The rooms whose tests are known to be without findings. Never envd's, which has one thread, nor the warden's, whose boxes
# begin with a thread that the sanitizer does not know (native/box_files.c); the warden runs in tsan-e2e.
run_tsan()
{
    local launcher=("${steady[@]}")
    QUICKSAND_TEST_PATIENCE=3 run_meson tsan build/tsan 5 base json loop http rpc fetch sender netlink network disk engine route account \
        template proxy provider runtime_core runtime_session runtime_work config
}

# under_tsan SUITE FILE...: several times slower, so what waits for the server has more time. A server that stops leaves threads
# whose requests do not end to the kernel; that is no leak.
under_tsan()
{
    local launcher=("${steady[@]}")
    build tsan make --no-print-directory threads || return
    QUICKSAND_BINARY=$PWD/build/threads/quicksand SDK_VERSION=latest QUICKSAND_TEST_PATIENCE=3 \
        TSAN_OPTIONS=$TSAN_OPTIONS:report_thread_leaks=0 run_node "$@"
}

node_files()
{
    if [ -n "${TEST:-}" ]; then
        ls "tests/$1/"*"$TEST"*.test.mjs 2>/dev/null
    else
        ls "tests/$1/"*.test.mjs
    fi
}

run()
{
    case $1 in
    check) run_check ;;
    unit) run_meson unit build/host ;;
    asan) UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 run_meson asan build/sanitizers 3 ;;
    tsan) run_tsan ;;
    fuzz) run_fuzz ;;
    tidy | cppcheck) run_analyser "$1" ;;
    asan-e2e) run_asan_e2e ;;
    tsan-e2e) under_tsan tsan-e2e $(some functional/{control,proxy,one-sandbox,runtime-jobs,pause}) ;;
    tsan-functional) under_tsan tsan-functional $(node_files functional | xargs grep -L -e playwright -e dashboard.mjs) ;;
    functional | functional-[23]) run_shared "$1" ;;
    security) run_security ;;
    security-2) run_shared security-2 ;;
    *) run_node "$1" $(node_files "$1") ;;
    esac
}

# result NAME: what it counted, as good, bad and missing. Whoever counted nothing has failed.
result()
{
    read -r good bad missing 2>/dev/null <"$logs/$1.result" || { good=0 bad=1 missing=0; }
}

# row NAME: its line of the summary.
row()
{
    local good bad missing
    result "$1"
    printf '%-14s %6d passed %4d failed %4d skipped %6d s\n' "$1" "$good" "$bad" "$missing" "$(cat "$logs/$1.seconds" 2>/dev/null || echo 0)"
}

# One suite from begin to end, with its line for the summary.
suite()
{
    local name=$1 begin=$SECONDS good bad missing
    rm -f "$logs/$name".{result,seconds,unsteady}
    : >"$logs/$name.parts"
    echo "== $name"
    if [ ${#suites[@]} -eq 1 ]; then
        run "$name" 2>&1 | tee "$logs/$name.out"
    else
        run "$name" >"$logs/$name.out" 2>&1
    fi
    echo $((SECONDS - begin)) >"$logs/$name.seconds"
    result "$name"
    (
        flock 9
        if [ "$bad" -gt 0 ] && [ ${#suites[@]} -gt 1 ]; then
            echo "==== $name failed; all of its output:"
            cat "$logs/$name.out"
        fi
        echo "== $(row "$name")"
    ) 9>"$logs/.printing"
}

# again SUITE: what failed of it, alone.
again()
{
    local name=$1 part parts only
    parts=$(failed_parts "$name")
    [ -n "$parts" ] && [[ $name != security* ]] && ! grep -qE 'Sanitizer: |runtime error: ' "$logs/$name.out" || return
    echo "== $name again:" $parts
    only=$parts
    run "$name" 2>&1 | tee "$logs/$name.again"
    for part in $parts; do
        failed_parts "$name" | grep -qxF "$part" || echo "$name $part" >>"$logs/$name.unsteady"
    done
}

# lane SUITE...: those that are wanted, one after the other.
lane()
{
    local name
    for name; do
        if wants "$name"; then suite "$name"; fi
    done
}

# Each lane is a process group, so that what it started ends with it; lab.sh takes its namespaces down.
groups=()
begin()
{
    set -m
    "$@" &
    groups+=($!)
    set +m
}

# stop STATUS: ends all that runs.
stop()
{
    local group until=$((SECONDS + 30))
    trap '' INT TERM HUP
    for group in "${groups[@]}"; do
        kill -TERM -- "-$group" 2>/dev/null
    done
    for group in "${groups[@]}"; do
        while kill -0 -- "-$group" 2>/dev/null; do
            [ $SECONDS -lt $until ] || kill -KILL -- "-$group" 2>/dev/null
            sleep 0.1
        done
    done
    exit "$1"
}
trap 'stop 130' INT TERM HUP

for name in functional security compat soak batteries asan-e2e tsan-e2e tsan-functional; do
    wants $name || continue
    [ "$(id -u)" -eq 0 ] || { echo "$name needs root" >&2; exit 1; }
    begin need_base_layer # while npm fetches
    break
done
node_files functional >"$logs/functional.files"
begin lane "${servers[@]}"
begin lane "${more_servers[@]}"
begin lane "${programs[@]}"
tests=("${groups[@]}")
begin lane "${analysers[@]}"
wait "${tests[@]}"
node_files security | grep -vE "$alone" >"$logs/security.files"
begin lane security-2
begin lane security
wait
if [ "${UNSTEADY:-}" != fail ] && [ ${#suites[@]} -gt 1 ]; then
    for name in "${suites[@]}"; do
        again "$name"
    done
fi

echo
passed=0 failed=0 skipped=0
for name in "${suites[@]}"; do
    result "$name"
    passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + missing))
    row "$name"
done
cat "$logs"/*.unsteady 2>/dev/null | sed 's/^/unsteady, failed beside others and passed alone: /'
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
