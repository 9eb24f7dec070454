#!/bin/bash
# Runs every fuzz target of build/fuzz for some seconds, as many at once as there are processors: fuzz.sh SECONDS [NAME...]
#
# Seeds are in tests/fuzz/<target>; what a run finds goes to build/fuzz/corpus/<target> and crashes to
# build/fuzz/crashes. A crash that was fixed belongs into tests/fuzz as a seed.
set -uo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
shift || true
mkdir -p build/fuzz/crashes
rm -f build/fuzz/failed

run()
{
    local target=$1 name
    name=$(basename "$target")
    local corpus=build/fuzz/corpus/$name seeds=tests/fuzz/$name log=build/fuzz/$name.log
    mkdir -p "$corpus"
    [ -d "$seeds" ] || seeds=
    if timeout $((seconds + 60)) "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 \
        -artifact_prefix=build/fuzz/crashes/"$name"- "$corpus" $seeds >"$log" 2>&1; then
        echo "[fuzz] $name: ok, $(awk '/number_of_executed_units/ { print $2 }' "$log") runs"
    else
        # One write: others print too.
        printf '[fuzz] %s: FAILED\n%s\n' "$name" "$(tail -n 40 "$log")"
        touch build/fuzz/failed
    fi
}

for target in $(find build/fuzz/src -name "*_fuzz" -type f); do
    [ -x "$target" ] || continue
    if [ $# -gt 0 ]; then
        case " $* " in *" $(basename "$target") "*) ;; *) continue ;; esac
    fi
    [ "$(jobs -rp | wc -l)" -lt "$(nproc)" ] || wait -n
    run "$target" &
done
wait
[ ! -e build/fuzz/failed ]
