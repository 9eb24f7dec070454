#!/bin/bash
# Runs test suites and sums them up: run.sh [--seconds N] [SUITE...]
#
#   check       format, layers, sizes          functional  a real server, feature by feature
#   unit        unit tests, gcc                security    attempts from inside a sandbox
#   asan        unit tests, ASan and UBSan     compat      the published SDK packages
#   tsan        unit tests, ThreadSanitizer    soak        random load for --seconds (only on request)
#   fuzz        each fuzz target, shortly      tidy        clang-tidy        cppcheck    cppcheck
#   functional-too  the files of functional that it has not come to yet: two lanes share them
#   asan-e2e    envd's part of functional and compat, with warden, server and envd under ASan and UBSan
#   tsan-e2e    the part of functional where much happens at once, with warden and server under ThreadSanitizer
#
# Without names: all but soak and tsan. The last line is "N passed, N failed, N skipped". TEST=FILE narrows functional,
# security, compat, asan-e2e and tsan-e2e to one file.
#
# Several suites run side by side, in lanes. Security, which fills the machine and looks at how it stays usable, begins when
# all other tests have ended. Builds and analysers have a low priority, so that tests hardly notice them. A suite that
# fails prints all it wrote, which is in build/test/SUITE.out; one suite alone prints as it goes.
set -uo pipefail
cd "$(dirname "$0")/.."

seconds=300
[ "${1:-}" = --seconds ] && { seconds=$2; shift 2; }
# A lane's suites run one after the other.
programs=(check unit asan tsan fuzz)
analysers=(tidy cppcheck)
servers=(functional soak)
more_servers=(compat asan-e2e tsan-e2e functional-too)
last=(security)
known=" ${programs[*]} ${analysers[*]} ${servers[*]} ${more_servers[*]} ${last[*]} "
suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(check unit asan fuzz functional functional-too compat asan-e2e tsan-e2e tidy cppcheck security)
logs=$PWD/build/test
mkdir -p "$logs"

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

# build DIRECTORY COMMAND...: two suites may want the same one.
build()
{
    flock "$logs/.$(basename "$1")" nice -n 10 "${@:2}"
}

# ThreadSanitizer of gcc 12 wants addresses less random than some kernels make them.
steady=()
[ "$(cat /proc/sys/vm/mmap_rnd_bits)" -le 28 ] || steady=(setarch --addr-no-randomize)
launcher=()
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
    local name=$1 dir=$2 status good bad missing
    # What was configured before tools/setup.sh brought libpq lacks a test.
    [ ! -e "$dir/build.ninja" ] || grep -q store_postgres "$dir/build.ninja" || build "$dir" meson setup --reconfigure "$dir"
    build "$dir" make --no-print-directory "$dir/build.ninja" && build "$dir" ninja -C "$dir" --quiet &&
        "${launcher[@]}" meson test -C "$dir" --no-rebuild --suite unit --logbase "run-$name" --print-errorlogs \
            --timeout-multiplier "${3:-1}" "${@:4}"
    status=$?
    cat "$dir/meson-logs/run-$name.txt" >"$logs/$name.testlog" 2>/dev/null
    read -r good bad missing < <(awk '
        /^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { good += $1; bad += $3; skip += $5 }
        END { print good + 0, bad + 0, skip + 0 }' "$logs/$name.testlog" 2>/dev/null)
    if [ "$status" -ne 0 ]; then
        grep -E '^FAIL ' "$logs/$name.testlog"
        # A binary that crashed or did not build has counted nothing.
        [ "${bad:-0}" -gt 0 ] || bad=1
    fi
    grep -E '^skip ' "$logs/$name.testlog"
    count "$name" "${good:-0}" "${bad:-0}" "${missing:-0}"
}

run_fuzz()
{
    local good bad
    build fuzz make --no-print-directory fuzzers || return
    tests/fuzz.sh 10 | tee "$logs/fuzz.log"
    good=$(grep -c ': ok' "$logs/fuzz.log")
    bad=$(grep -c ': FAILED' "$logs/fuzz.log")
    [ $((good + bad)) -gt 0 ] || bad=1
    count fuzz "$good" "$bad" 0
}

# run_node NAME FILE...: in the lab, one file after the other.
run_node()
{
    local name=$1 good bad missing status
    shift
    [ $# -gt 0 ] || { count "$name" 0 0 0; return; }
    need_base_layer || return
    [[ $name != functional* ]] || need_packages || return
    [[ $* != */interpreter* ]] || need_recipe_base code-interpreter-v1 || return
    [[ $* != */desktop* ]] || need_recipe_base desktop || return
    [[ $* != *compat/browser* ]] || need_recipe_base browser || return
    rm -f "$logs/$name.tap"
    QUICKSAND_BASE_LAYER=$base_layer NODE=$node SOAK_SECONDS=$seconds "${launcher[@]}" tests/harness/lab.sh "$node" --test \
        --test-concurrency=1 --test-reporter=spec --test-reporter-destination=stdout \
        --test-reporter=tap --test-reporter-destination="$logs/$name.tap" "$@"
    status=$?
    read -r good bad missing < <(awk '
        /^# pass / { good = $3 } /^# fail / { bad += $3 } /^# cancelled / { bad += $3 } /^# skipped / { skip = $3 }
        END { print good + 0, bad + 0, skip + 0 }' "$logs/$name.tap")
    [ "$status" -eq 0 ] || [ "${bad:-0}" -gt 0 ] || bad=1
    count "$name" "${good:-0}" "${bad:-0}" "${missing:-0}"
}

# take: the first file of functional that nobody has taken.
take()
(
    flock 9
    head -n 1 "$logs/functional.files"
    sed -i 1d "$logs/functional.files"
) 9>"$logs/.files"

# run_shared NAME: files as long as there are any.
run_shared()
{
    local file good bad missing sums=(0 0 0)
    while file=$(take) && [ -n "$file" ]; do
        echo "-- $file"
        rm -f "$logs/$1.result"
        run_node "$1" "$file"
        read -r good bad missing 2>/dev/null <"$logs/$1.result" || { good=0 bad=1 missing=0; }
        sums=($((sums[0] + good)) $((sums[1] + bad)) $((sums[2] + missing)))
    done
    count "$1" "${sums[@]}"
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
    build asan make --no-print-directory sanitized || return
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

# Several times slower: what waits for the server has more time. A server that stops leaves threads whose requests do not
# end to the kernel; that is no leak.
run_tsan_e2e()
{
    local launcher=("${steady[@]}")
    build tsan make --no-print-directory threads || return
    QUICKSAND_BINARY=$PWD/build/threads/quicksand SDK_VERSION=latest QUICKSAND_TEST_PATIENCE=3 \
        TSAN_OPTIONS=$TSAN_OPTIONS:report_thread_leaks=0 run_node tsan-e2e $(some functional/{control,proxy,one-sandbox,runtime-jobs,pause})
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
    asan) run_meson asan build/asan 3 ;;
    tsan) run_tsan ;;
    fuzz) run_fuzz ;;
    tidy | cppcheck) run_analyser "$1" ;;
    asan-e2e) run_asan_e2e ;;
    tsan-e2e) run_tsan_e2e ;;
    functional | functional-too) run_shared "$1" ;;
    *) run_node "$1" $(node_files "$1") ;;
    esac
}

# One suite from begin to end, with its line for the summary. Whoever counted nothing has failed.
suite()
{
    local name=$1 begin=$SECONDS good bad missing row
    rm -f "$logs/$name.result" "$logs/$name.row"
    echo "== $name"
    if [ ${#suites[@]} -eq 1 ]; then
        run "$name" 2>&1 | tee "$logs/$name.out"
    else
        run "$name" >"$logs/$name.out" 2>&1
    fi
    read -r good bad missing 2>/dev/null <"$logs/$name.result" || { good=0 bad=1 missing=0; }
    row=$(printf '%-14s %6d passed %4d failed %4d skipped %6d s' "$name" "$good" "$bad" "$missing" $((SECONDS - begin)))
    (
        flock 9
        if [ "$bad" -gt 0 ] && [ ${#suites[@]} -gt 1 ]; then
            echo "==== $name failed; all of its output:"
            cat "$logs/$name.out"
        fi
        echo "== $row"
    ) 9>"$logs/.printing"
    echo "$row" >"$logs/$name.row"
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

begin lane "${analysers[@]}"
begin lane "${programs[@]}"
node=$(command -v node)
if wants functional || wants security || wants compat || wants soak || wants asan-e2e || wants tsan-e2e; then
    [ "$(id -u)" -eq 0 ] || { echo "these suites need root" >&2; stop 1; }
    begin need_base_layer
    tests/compat/install.sh || stop 1
    [ ! -x build/npm/node/node_modules/node/bin/node ] || node=$PWD/build/npm/node/node_modules/node/bin/node
fi
node_files functional >"$logs/functional.files"
begin lane "${servers[@]}"
begin lane "${more_servers[@]}"
wait "${groups[@]:1}" # all but the analysers
begin lane "${last[@]}"
wait

echo
passed=0 failed=0 skipped=0
for name in "${suites[@]}"; do
    read -r good bad missing 2>/dev/null <"$logs/$name.result" || { good=0 bad=1 missing=0; }
    passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + missing))
    cat "$logs/$name.row"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
