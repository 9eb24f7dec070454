#!/bin/bash
# Inside the virtual machine, started by systemd: guest.sh SET... (see run.sh). Each set ends with a line
# "@@ set NAME PASSED FAILED SKIPPED SECONDS", the whole with "@@ end".
set -uo pipefail

logs=$PWD/build/test
mkdir -p "$logs"
export PATH=/payload:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
export QUICKSAND_BASE_LAYER=/base NODE=/payload/node

prepare()
{
    local kind
    mkdir -p /base /data
    mount -o ro /dev/vdb /base
    "mkfs.$VM_DATA" -q /dev/vdd 2>/dev/null || mkfs."$VM_DATA" /dev/vdd
    mount /dev/vdd /data
    mkdir -p /data/tmp /data/var
    chmod 1777 /data/tmp /data/var
    mount --bind /data/tmp /tmp
    mount --bind /data/var /var/tmp
    kind=$(stat -fc %T /sys/fs/cgroup)
    echo "@@ up $(uname -r), $kind, $(cut -d' ' -f2- /proc/self/cgroup | head -n 1), controllers for children: $(cat /sys/fs/cgroup/cgroup.subtree_control)"
}

report()
{
    echo "@@ set $*"
}

# run_node NAME FILE: in the lab, but for those that want this machine as it is.
run_node()
{
    local name=$1 begin=$SECONDS counts lab=(tests/harness/lab.sh)
    case $1 in systemd | package) lab=() ;; esac
    timeout --kill-after=60 3600 "${lab[@]}" "$NODE" --test --test-concurrency=1 --test-reporter=spec --test-reporter-destination=stdout \
        --test-reporter=tap --test-reporter-destination="$logs/${name//\//-}.tap" "$2" 2>&1
    counts=$(awk '/^# pass / { good = $3 } /^# fail / { bad += $3 } /^# cancelled / { bad += $3 } /^# skipped / { skip = $3 }
        END { print good + 0, good + bad ? bad + 0 : 1, skip + 0 }' "$logs/${name//\//-}.tap")
    report "$name" $counts $((SECONDS - begin))
    save_logs
}

# run_suite SUITE [WORD]: its files one by one, so that one which never ends costs only itself. There is no browser
# here; what is tried in one asks nothing of the kernel.
run_suite()
{
    local file name
    for file in tests/"$1"/*"${2:-}"*.test.mjs; do
        name=$1/$(basename "$file" .test.mjs)
        if grep -q playwright "$file"; then
            report "$name" 0 0 1 0
        else
            run_node "$name" "$file"
        fi
    done
}

run_doctor()
{
    local begin=$SECONDS failed=0
    build/quicksand doctor --data /data/quicksand || failed=1
    report doctor $((!failed)) $failed 0 $((SECONDS - begin))
}

# run_unit FOLDER...
run_unit()
{
    local name begin counts status
    for name; do
        begin=$SECONDS
        timeout 3600 build/host/src/*/"$name/${name}_test" >"$logs/unit-$name.log" 2>&1
        status=$?
        counts=$(awk '/^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { print $1, $3, $5 }' "$logs/unit-$name.log" | tail -n 1)
        grep -E '^(FAIL|skip) |failed' "$logs/unit-$name.log"
        [ -n "$counts" ] || { tail -n 20 "$logs/unit-$name.log"; echo "ended with $status"; }
        report "unit/$name" ${counts:-0 1 0} $((SECONDS - begin))
        save_logs
    done
}

# For whoever reads the disk from outside, also when this machine does not get to its end.
save_logs()
{
    tar -C "$logs" -cf /dev/vde . && sync
}

prepare
for set; do
    echo "== $set"
    case $set in
    smoke)
        run_doctor
        run_node smoke tests/vm/smoke.test.mjs
        ;;
    refusal | systemd | package) run_node "$set" "tests/vm/$set.test.mjs" ;;
    unit) run_unit $VM_UNITS ;;
    unit/*) run_unit "${set#*/}" ;;
    script/*)
        begin=$SECONDS
        "./${set#*/}" && report "$set" 1 0 0 $((SECONDS - begin)) || report "$set" 0 1 0 $((SECONDS - begin))
        save_logs
        ;;
    */*) run_suite "${set%%/*}" "${set#*/}" ;;
    *) run_suite "$set" ;;
    esac
done
echo "@@ end"
# At once: nothing here is needed again.
exec systemctl poweroff --force --force
