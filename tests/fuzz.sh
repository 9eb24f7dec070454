#!/bin/bash
# Runs every fuzz target of build/sanitizers, as many at once as there are processors:
#
#   fuzz.sh SECONDS [NAME...]   for so long each
#   fuzz.sh --keep [NAME...]    writes NAME.corpus anew: of what it has and what runs here found, as little as covers
#                               the same code
#
# A target begins with the files of tests/fuzz/NAME, written by hand, with tests/fuzz/NAME.corpus, found by earlier runs
# (one a line, tools/fuzz_corpus.py), with the words of tests/fuzz/NAME.dict and with what runs here have found,
# build/fuzz/corpus/NAME. Crashes are in build/fuzz/crashes; the input of one that was fixed belongs into tests/fuzz/NAME.
# "edges" is how much of the code the inputs reach.
set -uo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
shift || true
longest=4096 # bytes of an input that is kept
mkdir -p build/fuzz/crashes
rm -f build/fuzz/failed

fail()
{
    # One write: others print too.
    printf '[fuzz] %s: FAILED\n%s\n' "$1" "$(tail -n 40 "$2")"
    touch build/fuzz/failed
}

# The inputs of the tree, by hand and kept, in one folder for the target.
unpack()
{
    local name=$1 into=$2
    rm -rf "$into"
    mkdir -p "$into"
    [ ! -d "tests/fuzz/$name" ] || cp "tests/fuzz/$name"/* "$into"
    [ ! -f "tests/fuzz/$name.corpus" ] || tools/fuzz_corpus.py unpack "tests/fuzz/$name.corpus" "$into"
}

run()
{
    local target=$1 name
    name=$(basename "$target")
    local corpus=build/fuzz/corpus/$name seeds=build/fuzz/seeds/$name words=tests/fuzz/$name.dict log=build/fuzz/$name.log
    mkdir -p "$corpus"
    unpack "$name" "$seeds"
    [ -f "$words" ] && words=-dict=$words || words=
    if timeout $((seconds + 60)) "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 \
        -artifact_prefix=build/fuzz/crashes/"$name"- $words "$corpus" "$seeds" >"$log" 2>&1; then
        echo "[fuzz] $name: ok, $(awk '/number_of_executed_units/ { print $2 }' "$log") runs, $(
            grep -o 'cov: [0-9]*' "$log" | tail -n 1 | cut -c6-) edges"
    else
        fail "$name" "$log"
    fi
}

keep()
{
    local target=$1 name before
    name=$(basename "$target")
    local by_hand=tests/fuzz/$name log=build/fuzz/$name.keep.log all=build/fuzz/seeds/$name kept=build/fuzz/kept/$name
    unpack "$name" "$all"
    rm -rf "$kept"
    mkdir -p "$kept" "build/fuzz/corpus/$name"
    [ ! -d "$by_hand" ] || cp "$by_hand"/* "$kept"
    # By code that is reached and not by how often: a few inputs instead of thousands.
    if timeout 600 "$target" -merge=1 -use_counters=0 -max_len=$longest -timeout=10 \
        -artifact_prefix=build/fuzz/crashes/"$name"- "$kept" "$all" "build/fuzz/corpus/$name" >"$log" 2>&1; then
        before=$(cat "tests/fuzz/$name.corpus" 2>/dev/null | wc -l)
        tools/fuzz_corpus.py pack "$kept" "tests/fuzz/$name.corpus" $([ ! -d "$by_hand" ] || echo "$by_hand")
        echo "[fuzz] $name: $before inputs kept before, now $(wc -l <"tests/fuzz/$name.corpus")"
    else
        fail "$name" "$log"
    fi
}

work=run
[ "$seconds" = --keep ] && work=keep
while read -r target; do
    if [ $# -gt 0 ]; then
        case " $* " in *" $(basename "$target") "*) ;; *) continue ;; esac
    fi
    [ "$(jobs -rp | wc -l)" -lt "$(nproc)" ] || wait -n
    $work "$target" &
done < <(find build/sanitizers/src -type f -executable -name '*_fuzz' | sort)
wait
[ ! -e build/fuzz/failed ]
