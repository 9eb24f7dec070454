#!/bin/bash
# Runs test suites and adds up their results: run.sh [--seconds N] [GROUP|SUITE...]
#
#   test        check unit functional compat security: what `make test` runs, with the ordinary build
#   deep        core core-e2e asan asan-e2e tsan-e2e fuzz tidy cppcheck: what `make deep` runs
#
#   check       format, layers, symbols, sizes functional  a real server, feature by feature
#   unit        unit tests, gcc                security    attacks on a real server, most from inside a sandbox
#   asan        unit tests, ASan and UBSan     compat      the published SDK packages
#   fuzz        each fuzz target, 10 s         tidy        clang-tidy        cppcheck    cppcheck
#   core        unit tests of a build without extras; those of folders that know of extras. The name also stands for core-e2e
#   core-e2e    part of functional against that build, and what it says of the extras that it lacks
#   asan-e2e    part of functional and compat; warden, server and envd have ASan and UBSan
#   tsan-e2e    the concurrent part of functional; warden and server have ThreadSanitizer
# On request only:
#   tsan        unit tests, ThreadSanitizer    soak        random load for --seconds
#   tsan-functional  all of functional without browsers under ThreadSanitizer: about an hour
#   batteries   what needs the largest templates: R and Java in the code interpreter
#
# Without names: test and deep. TEST=NAME selects the files whose name contains NAME. The last line is
# "N passed, N failed, N skipped".
#
# A suite is a list of jobs: one per test file, or one for the whole suite. LANES jobs (default: processors + 1) run side
# by side, slow ones first. Files that load the whole machine (`alone`) run last, one at a time. A job prints one line;
# a failed job prints all of its output, which is also in build/test/SUITE-FILE.out. A single job prints as it goes.
#
# A job that failed beside others runs once more at the end, alone. If it passes, it counts as passed and is listed as
# unsteady below the table (and in build/test/unsteady), with the tests that failed at first. There is no second run for
# security tests and sanitizer reports, and with UNSTEADY=fail for no test. The list also has
# each limit of time that a test kept only in a later try (timely() in harness/server.mjs).
set -uo pipefail
cd "$(dirname "$0")/.."

seconds=300
[ "${1:-}" = --seconds ] && { seconds=$2; shift 2; }
test=(check unit functional compat security)
deep=(core core-e2e asan asan-e2e tsan-e2e fuzz tidy cppcheck)
on_request=(tsan tsan-functional soak batteries)
alone='^security .*/(connections|ending|ending-late|flood|limits)\.'
# Run first, so that no long job is left at the end.
slow=(asan tidy unit compat/browser compat/desktop functional/recipes compat/interpreter functional/dashboard fuzz)
logs=$PWD/build/test
results=$logs/results # lines "SUITE PART PASSED FAILED SKIPPED"; of several lines for one part the last counts
mkdir -p "$logs"
rm -f "$logs"/*.out "$logs"/*.seconds "$results" "$logs/unsteady"
touch "$results" "$logs/unsteady"

suites=()
[ $# -gt 0 ] || set -- test deep
for name; do
    case $name in
    test) suites+=("${test[@]}") ;;
    deep) suites+=("${deep[@]}") ;;
    core) suites+=(core core-e2e) ;;
    *)
        [[ " ${test[*]} ${deep[*]} ${on_request[*]} " == *" $name "* ]] || { echo "unknown suite '$name'; $0's head lists them" >&2; exit 2; }
        suites+=("$name")
        ;;
    esac
done

# record SUITE PART PASSED FAILED SKIPPED
record()
{
    echo "$@" >>"$results"
}

# build DIRECTORY COMMAND...: builds one directory at a time, since several jobs may need the same one.
build()
{
    flock "$logs/.$(basename "$1")" nice -n 10 "${@:2}"
}

# ThreadSanitizer of gcc 12 cannot map its shadow memory where the kernel randomizes more address bits.
steady=()
[ "$(cat /proc/sys/vm/mmap_rnd_bits)" -le 28 ] || steady=(setarch --addr-no-randomize)
export TSAN_OPTIONS=second_deadlock_stack=1:suppressions=$PWD/tests/tsan.supp

# The root file system of the base template, shared by all test servers. Made again when its script changes.
base_layer=${QUICKSAND_BASE_LAYER:-$PWD/build/base/rootfs}
have_base_layer()
{
    [ -d "$base_layer" ] && { [ -n "${QUICKSAND_BASE_LAYER:-}" ] || [ "$(cat build/base/made-by 2>/dev/null)" = "$(sha256sum <tools/make_base_template.sh)" ]; }
}

# The first caller makes it, the others wait. The same holds for the other need_… functions.
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

# The published packages, and a Node.js that is new enough for them.
need_node()
{
    flock "$logs/.npm" tests/compat/install.sh || return
    node=$(command -v node)
    [ ! -x build/npm/node/node_modules/node/bin/node ] || node=$PWD/build/npm/node/node_modules/node/bin/node
}

# The Debian packages that the tests' package mirror serves.
need_packages()
(
    flock 9
    tests/harness/packages.sh build/packages "$base_layer" >"$logs/packages.log" 2>&1 && return
    tail -n 30 "$logs/packages.log"
    return 1
) 9>"$logs/.packages"

# need_recipe_base RECIPE: the base template with the packages of a shipped recipe.
need_recipe_base()
(
    flock 9
    tests/harness/recipe-base.sh "$1" "build/recipe-base/$1" "$base_layer" >"$logs/$1-base.log" 2>&1 && return
    tail -n 30 "$logs/$1-base.log"
    return 1
) 9>"$logs/.recipe-base-$1"

run_check()
{
    local line
    while read -r line; do
        echo "$line"
        case $line in
        '[check] '*': ok') line=${line#\[check\] } && record check "${line%: ok}" 1 0 0 ;;
        '[check] '*': FAILED') line=${line#\[check\] } && record check "${line%: FAILED}" 0 1 0 ;;
        esac
    done < <(tools/check.sh --quick 2>&1)
}

run_analyser()
{
    local bad=0
    make --no-print-directory build/tidy/build.ninja && nice -n 19 tools/check.sh "$1" || bad=1
    record "$1" "$1" $((1 - bad)) $bad 0
}

# run_meson SUITE BUILDDIR TIMEOUT_MULTIPLIER [TEST...]: every unit test program ends with "N passed, N failed, N skipped".
run_meson()
{
    local suite=$1 dir=$2 multiplier=$3 log=$2/meson-logs/run-$1
    shift 3
    # A directory that was configured before libpq was installed lacks the PostgreSQL test.
    [ ! -e "$dir/build.ninja" ] || grep -q store_postgres "$dir/build.ninja" || build "$dir" meson setup --reconfigure "$dir"
    rm -f "$log.json" "$log.txt"
    build "$dir" make --no-print-directory "$dir/build.ninja" && build "$dir" ninja -C "$dir" --quiet &&
        "${launcher[@]}" meson test -C "$dir" --no-rebuild --suite unit --logbase "run-$suite" --print-errorlogs \
            --timeout-multiplier "$multiplier" "$@"
    grep -E '^(FAIL|skip) ' "$log.txt"
    tests/harness/meson_parts.py "$log.json" | sed "s/^/$suite /" >>"$results"
}

# The programs whose tests have no ThreadSanitizer findings. Not envd's, which has one thread, nor the warden's, whose boxes
# start with a process that shares memory with another (native/box_files.c); the warden is covered by tsan-e2e.
run_tsan()
{
    local launcher=("${steady[@]}")
    [ $# -gt 0 ] || set -- base json loop http rpc fetch sender netlink network disk engine route account template proxy provider \
        runtime_core runtime_session runtime_work config
    QUICKSAND_TEST_PATIENCE=3 run_meson tsan build/tsan 5 "$@"
}

# The programs whose objects differ from those of `unit`: they are linked with the tables of extras, or use them.
run_core()
{
    build core make --no-print-directory core || return
    [ $# -gt 0 ] || set -- base provider embedded runtime_core runtime_session runtime_work v1 cli extra lib config
    run_meson core build/core 2 "$@"
}

run_core_e2e()
{
    build core make --no-print-directory core || return
    QUICKSAND_BINARY=$PWD/build/core/bin/quicksand run_file core-e2e "$1"
}

run_fuzz()
{
    local line
    build sanitizers make --no-print-directory fuzzers || return
    while read -r line; do
        echo "$line"
        case $line in
        '[fuzz] '*': ok'*) line=${line#\[fuzz\] } && record fuzz "${line%%:*}" 1 0 0 ;;
        '[fuzz] '*': FAILED') line=${line#\[fuzz\] } && record fuzz "${line%%:*}" 0 1 0 ;;
        esac
    done < <(tests/fuzz.sh 10 "$@" 2>&1)
}

# run_file SUITE FILE: one file of Node.js tests, in the lab. A file that hangs is ended.
run_file()
{
    local suite=$1 file=$2 tap=$logs/$1-$(basename "$2").tap good bad missing status node
    need_base_layer && need_node || return
    case $file in
    */functional/interpreter* | */compat/interpreter*) need_recipe_base code-interpreter-v1 ;;
    */batteries/*) need_recipe_base code-interpreter-full ;;
    */desktop*) need_recipe_base desktop ;;
    */compat/browser*) need_recipe_base browser ;;
    */security/remote-control*) need_recipe_base desktop && need_recipe_base browser ;;
    esac || return
    [[ $file != tests/functional/* ]] || need_packages || return
    rm -f "$tap"
    QUICKSAND_BASE_LAYER=$base_layer NODE=$node SOAK_SECONDS=$seconds timeout $((600 + seconds)) \
        "${launcher[@]}" tests/harness/lab.sh "$node" --test \
        --test-concurrency=1 --test-reporter=spec --test-reporter-destination=stdout \
        --test-reporter=tap --test-reporter-destination="$tap" "$file"
    status=$?
    read -r good bad missing < <(awk '
        /^# pass / { good = $3 } /^# fail / { bad += $3 } /^# cancelled / { bad += $3 } /^# skipped / { skip = $3 }
        END { print good + 0, bad + 0, skip + 0 }' "$tap") || good=0 bad=1 missing=0
    [ "$status" -eq 0 ] || [ "$bad" -gt 0 ] || bad=1
    record "$suite" "$file" "$good" "$bad" "$missing"
}

# One SDK version is enough with sanitizers: versions differ on the client's side.
run_asan_e2e()
{
    build sanitizers make --no-print-directory sanitized || return
    QUICKSAND_BINARY=$PWD/build/sanitized/quicksand SDK_VERSION=latest UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
        run_file asan-e2e "$1"
}

# A stopping server leaves threads whose requests do not end to the kernel; they are not leaks.
run_tsan_file()
{
    local launcher=("${steady[@]}")
    build tsan make --no-print-directory threads || return
    QUICKSAND_BINARY=$PWD/build/threads/quicksand SDK_VERSION=latest QUICKSAND_TEST_PATIENCE=3 \
        TSAN_OPTIONS=$TSAN_OPTIONS:report_thread_leaks=0 run_file "$1" "$2"
}

# run SUITE PART...: a file, or for suites that run as a whole nothing (all parts) or the parts to repeat.
run()
{
    local suite=$1 launcher=()
    shift
    case $suite in
    check) run_check ;;
    unit) run_meson unit build/host 1 "$@" ;;
    asan) UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 run_meson asan build/sanitizers 3 "$@" ;;
    tsan) run_tsan "$@" ;;
    core) run_core "$@" ;;
    core-e2e) run_core_e2e "$1" ;;
    fuzz) run_fuzz "$@" ;;
    tidy | cppcheck) run_analyser "$suite" ;;
    asan-e2e) run_asan_e2e "$1" ;;
    tsan-e2e | tsan-functional) run_tsan_file "$suite" "$1" ;;
    *) run_file "$suite" "$1" ;;
    esac
}

# files SUITE: its test files; nothing for a suite that runs as a whole.
files()
{
    case $1 in
    functional | compat | security | batteries | soak) ls "tests/$1"/*.test.mjs ;;
    core-e2e) ls tests/core/*.test.mjs tests/functional/{control,cli-runtime,pause,one-sandbox,proxy}.test.mjs ;;
    asan-e2e) ls tests/compat/{commands,pty,files,git,sdk}.test.mjs tests/functional/{envd,envd-proto}.test.mjs ;;
    tsan-e2e) ls tests/functional/{control,proxy,one-sandbox,runtime-jobs,pause}.test.mjs ;;
    tsan-functional) grep -L -e playwright -e dashboard.mjs tests/functional/*.test.mjs ;;
    esac | grep -F -- "${TEST:-}"
}

# All jobs as lines "SUITE FILE" or "SUITE", slow ones first.
list_jobs()
{
    local suite file name
    {
        for name in "${slow[@]}"; do
            for suite in "${suites[@]}"; do
                [ "$name" != "$suite" ] || echo "$suite"
                [ "${name%%/*}" != "$suite" ] || files "$suite" | grep -F "tests/$name" | sed "s/^/$suite /"
            done
        done
        for suite in "${suites[@]}"; do
            if [ -n "$(TEST='' files "$suite")" ]; then
                files "$suite" | sed "s/^/$suite /"
            else
                echo "$suite"
            fi
        done
    } | awk '!seen[$0]++'
}

# failures SUITE [PART]: how many tests failed, by the last result of each part.
failures()
{
    awk -v suite="$1" -v part="${2:-}" '$1 == suite && (part == "" || part == $2) { bad[$2] = $4 }
        END { for (p in bad) n += bad[p]; print n + 0 }' "$results"
}

# job SUITE [FILE]: runs it and prints its line.
job()
{
    local suite=$1 file=${2:-} begin=$SECONDS out counts bad
    out=$logs/$suite${file:+-$(basename "$file" .test.mjs)}.out
    if [ "$jobs" -eq 1 ]; then
        run "$suite" $file 2>&1 | tee "$out"
    else
        run "$suite" $file >"$out" 2>&1
    fi
    # A job that could not even start has failed.
    grep -q "^$suite ${file:-.}" "$results" || record "$suite" "${file:-$suite}" 0 1 0
    echo $((SECONDS - begin)) >>"$logs/$suite.seconds"
    counts=$(awk -v suite="$suite" -v file="$file" '$1 == suite && (file == "" || file == $2) { good[$2] = $3; bad[$2] = $4; skip[$2] = $5 }
        END { for (p in good) { g += good[p]; b += bad[p]; s += skip[p] } printf "%4d passed %3d failed %3d skipped", g, b, s }' "$results")
    bad=$(failures "$suite" $file)
    (
        flock 9
        if [ "$bad" -gt 0 ] && [ "$jobs" -gt 1 ]; then
            echo "==== $suite $file failed; all of its output:"
            cat "$out"
        fi
        printf '%s %-46s %s %5d s\n' "$([ "$bad" -eq 0 ] && echo 'ok  ' || echo FAIL)" "${file:-$suite}" "$counts" $((SECONDS - begin))
    ) 9>"$logs/.printing"
}

# lane QUEUE: takes jobs from the queue until it is empty.
lane()
{
    local next
    while next=$(flock "$1.lock" sh -c 'head -n 1 "$1"; sed -i 1d "$1"' sh "$1") && [ -n "$next" ]; do
        job $next
    done
}

# failed_tests SUITE PART: the names of the part's tests that failed when it ran last, without the groups they are in.
failed_tests()
{
    case $2 in
    tests/*)
        awk '/^ *not ok / { sub(/^ *not ok [0-9]+ - /, ""); name = $0 }
            name && /^ *failureType: / { if (!/subtestsFailed/) print name; name = "" }' "$logs/$1-$(basename "$2").tap"
        ;;
    *) awk -v part="$2" '/^test: / { name = $NF } /^FAIL / && name == part { print $2 }' build/*/meson-logs/"run-$1.txt" ;;
    esac 2>/dev/null | awk '{ printf "%s%s", (NR > 1 ? "; " : ""), $0 } END { print NR ? "" : "no test has failed, but the part has" }'
}

# run_again SUITE PART...: the failed parts once more, alone.
run_again()
{
    local suite=$1 part
    local -A first
    shift
    for part; do
        first[$part]=$(failed_tests "$suite" "$part")
    done
    echo "== once more: $suite $*"
    case $1 in
    tests/*) for part; do run "$suite" "$part"; done ;;
    *) run "$suite" "$@" ;;
    esac 2>&1 | tee "$logs/$suite.again"
    for part; do
        [ "$(failures "$suite" "$part")" -gt 0 ] || echo "$suite $part failed beside others and passed alone: ${first[$part]}" >>"$logs/unsteady"
    done
}

second_runs()
{
    local suite parts
    for suite in "${suites[@]}"; do
        parts=$(awk -v suite="$suite" '$1 == suite { bad[$2] = $4 } END { for (p in bad) if (bad[p] > 0) print p }' "$results")
        [ -n "$parts" ] && [[ $suite != @(security|check|tidy|cppcheck|fuzz) ]] || continue
        ! grep -qE 'Sanitizer: |runtime error: ' "$logs/$suite"*.out || continue
        run_again "$suite" $parts
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

# stop STATUS: ends everything that runs.
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

list_jobs >"$logs/all"
jobs=$(wc -l <"$logs/all")
[ "$jobs" -gt 0 ] || { echo "no test file is called '$TEST'" >&2; exit 2; }
if grep -q ' ' "$logs/all"; then
    [ "$(id -u)" -eq 0 ] || { echo "tests with a server need root" >&2; exit 1; }
    begin need_base_layer # while packages are fetched and programs are built
fi
grep -vE "$alone" "$logs/all" >"$logs/queue"
grep -E "$alone" "$logs/all" >"$logs/queue-alone"
for _ in $(seq "${LANES:-$(($(nproc) + 1))}"); do
    begin lane "$logs/queue"
done
wait
begin lane "$logs/queue-alone"
wait
if [ "${UNSTEADY:-}" != fail ] && [ "$jobs" -gt 1 ]; then
    second_runs
fi

echo
awk -v seconds="$SECONDS" -v order="${suites[*]}" '
    { key = $1 " " $2; suite[key] = $1; good[key] = $3; bad[key] = $4; skip[key] = $5 }
    END {
        for (key in good) {
            g[suite[key]] += good[key]; b[suite[key]] += bad[key]; s[suite[key]] += skip[key]
        }
        n = split(order, names, " ")
        for (i = 1; i <= n; i++) {
            if (names[i] in done) continue
            done[names[i]] = 1
            printf "%-16s %6d passed %4d failed %4d skipped\n", names[i], g[names[i]], b[names[i]], s[names[i]]
            G += g[names[i]]; B += b[names[i]]; S += s[names[i]]
        }
        printf "%d min %d s\n", seconds / 60, seconds % 60
        printf "%d passed, %d failed, %d skipped\n", G, B, S
        exit B > 0
    }' "$results" >"$logs/summary"
status=$?
sed '$d' "$logs/summary"
sed 's/^/unsteady: /' "$logs/unsteady"
tail -n 1 "$logs/summary"
exit $status
