#!/bin/bash
# Runs a command where nothing it does reaches the real network or outlives it: lab.sh COMMAND...
#
# The command gets mount, network and process namespaces of its own. Its only uplink is a veth pair to a
# second network namespace, "the world", in which world.mjs answers HTTP and DNS on every address that the
# tests ask for, public ones and those that sandboxes must never reach. So a broken firewall rule shows as
# a failed test and sends nothing out. When the command ends, every process and mount goes with it.
#
#   lab: up0 198.51.100.2/24 ---- w0 198.51.100.1/24 :world: 203.0.113.1 and .2 (web), 203.0.113.53 (DNS), private ranges
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
if [ "${1:-}" != --inside ]; then
    [ "$(id -u)" -eq 0 ] || { echo "lab.sh: needs root" >&2; exit 1; }
    TMPDIR=$(mktemp -d "${TMPDIR:-/tmp}/quicksand-lab-XXXXXX")
    export TMPDIR
    chmod 0755 "$TMPDIR"
    unshare --mount --net --pid --fork --kill-child --mount-proc --propagation private "$0" --inside "$@" &
    inside=$!
    # It blocks the gentle signals; its namespaces end with it.
    trap 'kill -KILL $inside' TERM INT HUP
    status=0
    wait "$inside" || status=$?
    # Only a test that failed leaves something here: directories, and cgroups, which belong to no namespace.
    for file in "$TMPDIR"/*/data/instance; do
        [ -s "$file" ] && find /sys/fs/cgroup -depth -type d -path "*/quicksand-$(cat "$file")*" -exec rmdir {} + || true
    done
    rm -rf --one-file-system "$TMPDIR"
    exit "$status"
fi
shift

node=${NODE:-node}
scratch=/mnt
mount -t tmpfs tmpfs "$scratch"

unshare --net sleep infinity &
world=$!
mine=$(readlink /proc/self/ns/net)
for _ in $(seq 100); do
    theirs=$(readlink "/proc/$world/ns/net")
    [ "$theirs" != "$mine" ] && break
    sleep 0.02
done
[ "$theirs" != "$mine" ] || { echo "lab.sh: no second network namespace" >&2; exit 1; }

in_world()
{
    nsenter --net="/proc/$world/ns/net" "$@"
}

ip link set lo up
ip link add up0 type veth peer name w0 netns "$world"
ip address add 198.51.100.2/24 dev up0
ip link set up0 up
in_world ip link set lo up
in_world ip address add 198.51.100.1/24 dev w0
in_world ip link set w0 up
for address in 203.0.113.1 203.0.113.2 203.0.113.53 10.9.9.9 172.16.5.5 192.168.77.1 100.64.3.3 169.254.169.254 198.18.0.9; do
    in_world ip address add "$address/32" dev lo
done
ip route add default via 198.51.100.1

echo 'nameserver 203.0.113.53' >"$scratch/resolv.conf"
mount --bind "$scratch/resolv.conf" /etc/resolv.conf

in_world "$node" "$here/world.mjs" >"$scratch/world.log" 2>&1 &
for _ in $(seq 200); do
    grep -q '^ready' "$scratch/world.log" && break
    sleep 0.05
done
grep -q '^ready' "$scratch/world.log" || { cat "$scratch/world.log" >&2; exit 1; }

export QUICKSAND_LAB=1 QUICKSAND_LAB_WORLD=$world
status=0
"$@" || status=$?
exit "$status"
