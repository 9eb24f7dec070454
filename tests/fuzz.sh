#!/bin/bash
# Runs every fuzz target of build/fuzz, as many at once as there are processors:
#
#   fuzz.sh SECONDS [NAME...]   for so long each
#   fuzz.sh --keep [NAME...]    adds what earlier runs found to tests/fuzz, as little as covers the same code
#
# A target begins with tests/fuzz/NAME (inputs) and tests/fuzz/NAME.dict (words) and with what earlier runs
# found, build/fuzz/corpus/NAME; crashes are in build/fuzz/crashes. A crash that was fixed belongs into
# tests/fuzz. "edges" is how much of the code the inputs reach.
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

run()
{
    local target=$1 name
    name=$(basename "$target")
    local corpus=build/fuzz/corpus/$name seeds=tests/fuzz/$name words=tests/fuzz/$name.dict log=build/fuzz/$name.log
    mkdir -p "$corpus"
    [ -d "$seeds" ] || seeds=
    [ -f "$words" ] && words=-dict=$words || words=
    if timeout $((seconds + 60)) "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 \
        -artifact_prefix=build/fuzz/crashes/"$name"- $words "$corpus" $seeds >"$log" 2>&1; then
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
    local kept=tests/fuzz/$name log=build/fuzz/$name.keep.log
    mkdir -p "$kept" "build/fuzz/corpus/$name"
    before=$(ls "$kept" | wc -l)
    # By code that is reached and not by how often: a few inputs instead of thousands.
    if timeout 600 "$target" -merge=1 -use_counters=0 -max_len=$longest -timeout=10 \
        -artifact_prefix=build/fuzz/crashes/"$name"- "$kept" "build/fuzz/corpus/$name" >"$log" 2>&1; then
        echo "[fuzz] $name: $(($(ls "$kept" | wc -l) - before)) inputs more, $(du -sb --apparent-size "$kept" | cut -f1) bytes"
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
done < <(find build/fuzz/src -type f -executable -name '*_fuzz' | sort)
wait
[ ! -e build/fuzz/failed ]
