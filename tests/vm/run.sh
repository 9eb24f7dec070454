#!/bin/bash
# Runs tests on other kernels than this machine's, in a virtual machine: run.sh [--kernel NAME] [--data ext4|btrfs|xfs] [SET...]
#
#   smoke        doctor, and the published SDK: create, commands, files, pause, resume, snapshot, fork, kill, limits
#   systemd      the server as a service: what systemd may do with it and with its own cgroups
#   package      the Debian package: install, upgrade with a sandbox at work, remove, purge
#   refusal      for a kernel that is too old: the server must refuse to start and say what is missing
#   unit         unit tests of what touches the host: netlink, network, disk, warden, tls; unit/FOLDER for one
#   functional, security, compat      all files but those that drive a browser, or SUITE/WORD for those with that word in
#                their name
#   script/FILE  a program of yours, FILE as seen from the top of the tree: for looking around
#
# Without names: smoke systemd package unit functional/pause functional/network security/escape security/limits. Kernels are those of image.sh, bookworm
# unless told. The machine is Debian 12 with systemd and pure cgroup v2, as a user's host; everything but the
# kernel's emulation is real. Emulation makes it ten to twenty times slower: VM_PATIENCE (15) stretches what tests wait,
# VM_SECONDS (14400) ends it all. Logs are in build/vm/KERNEL/log. The last line is "N passed, N failed".
set -euo pipefail
cd "$(dirname "$0")/../.."

kernel=bookworm data=ext4
while [ $# -gt 0 ]; do
    case $1 in
    --kernel) kernel=$2; shift 2 ;;
    --data) data=$2; shift 2 ;;
    --*) sed -n '2,16s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    *) break ;;
    esac
done
sets=("$@")
[ ${#sets[@]} -gt 0 ] || sets=(smoke systemd package unit functional/pause functional/network security/escape security/limits)
patience=${VM_PATIENCE:-15} limit=${VM_SECONDS:-14400}
vm=$PWD/build/vm
units=(netlink network disk warden tls)
accel=tcg,thread=multi,tb-size=512

[ "$(id -u)" -eq 0 ] || { echo "run.sh: needs root" >&2; exit 1; }
for tool in qemu-system-x86_64 mke2fs mmdebstrap; do
    command -v "$tool" >/dev/null || { echo "run.sh: '$tool' is missing: tools/setup.sh vm" >&2; exit 1; }
done
tests/vm/image.sh "$kernel"
tests/compat/install.sh
base=${QUICKSAND_BASE_LAYER:-$PWD/build/base/rootfs}
[ -d "$base" ] || tools/make_base_template.sh "$PWD/build/base"

work=$(mktemp -d "$vm/run-XXXXXX")
qemu=
cleanup()
{
    [ -z "$qemu" ] || { kill -KILL "$qemu" 2>/dev/null && wait "$qemu" 2>/dev/null; } || true
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

# image FILE SIZE TREE: an ext4 file system with a copy of the tree.
image()
{
    rm -f "$1"
    truncate -s "$2" "$1"
    mke2fs -q -F -t ext4 -d "$3" "$1"
}

make_base_image()
{
    local stamp=$vm/base.stamp now
    now=$(stat -Lc '%n %i %Y' "$base")
    [ -e "$vm/base.img" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$now" ] && return
    echo "[vm] the base layer's disk"
    image "$vm/base.img" 3G "$base/"
    echo "$now" >"$stamp"
}

# The tree as it is here, with what was built, at the same path inside.
make_payload()
{
    local tree=$work/payload/tree name chosen=() targets=()
    mkdir -p "$tree/build/host"
    git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$tree"
    cp -aH build/quicksand build/envd build/unpack build/npm "$tree/build/"
    rm -rf "$tree/build/npm/cache"
    for name in "${sets[@]}"; do
        case $name in
        package)
            ninja -C build/host --quiet
            tools/package.sh deb >/dev/null
            cp -a build/packages-deb "$tree/build/"
            ;;
        unit) chosen+=("${units[@]}") ;;
        unit/*) chosen+=("${name#*/}") ;;
        esac
    done
    if [ ${#chosen[@]} -gt 0 ]; then
        readarray -t targets < <(printf '%s\n' "${chosen[@]}" | sort -u | sed 's:.*:src/host/&/&_test:; s:host/\(netlink\|tls\)/:protocol/\1/:')
        ninja -C build/host --quiet "${targets[@]}" src/host/warden/test_envd
        (cd build/host && cp --parents "${targets[@]}" src/host/warden/test_envd "$tree/build/host/")
    fi
    cp -L "$(command -v node)" "$work/payload/node"
    cat >"$work/payload/start" <<END
#!/bin/bash
mkdir -p '$PWD' && mount --bind /payload/tree '$PWD' && cd '$PWD'
VM_DATA=$data VM_UNITS='${units[*]}' QUICKSAND_TEST_PATIENCE=$patience exec tests/vm/guest.sh ${sets[*]}
END
    chmod 0755 "$work/payload/start"
    image "$work/payload.img" 8G "$work/payload"
    rm -rf "$work/payload"
}

start_machine()
{
    truncate -s 32G "$work/data.img"
    truncate -s 256M "$work/results.img"
    : >"$work/console"
    qemu-system-x86_64 -accel "$accel" -machine q35 -cpu max -smp 2 -m 4G -nodefaults -no-user-config -display none -no-reboot -nic none \
        -kernel "$vm/$kernel/vmlinuz" -initrd "$vm/$kernel/initrd" \
        -append "root=/dev/vda rw console=ttyS0 quiet loglevel=1 systemd.show_status=0 net.ifnames=0 mitigations=off" \
        -serial "file:$work/console" \
        -drive "file=$vm/$kernel/root.img,format=raw,if=virtio,snapshot=on" \
        -drive "file=$vm/base.img,format=raw,if=virtio,readonly=on" \
        -drive "file=$work/payload.img,format=raw,if=virtio,cache=unsafe" \
        -drive "file=$work/data.img,format=raw,if=virtio,cache=unsafe,discard=unmap" \
        -drive "file=$work/results.img,format=raw,if=virtio,cache=unsafe" \
        -device virtio-rng-pci </dev/null >"$work/qemu.log" 2>&1 &
    qemu=$!
}

# Shows what the machine says until it is off. A machine that does not come up, or does not end, is ended.
watch_machine()
{
    local begin=$SECONDS
    tail -n +1 -f --pid="$qemu" -s 0.5 "$work/console" | sed -u 's/\r//g' &
    while kill -0 "$qemu" 2>/dev/null; do
        if [ $((SECONDS - begin)) -gt "$limit" ]; then
            echo "[vm] not done after $limit s" >&2
            kill -KILL "$qemu"
        elif [ $((SECONDS - begin)) -gt 600 ] && ! grep -q '^@@ up' "$work/console"; then
            echo "[vm] not up after 600 s" >&2
            kill -KILL "$qemu"
        fi
        sleep 1
    done
    wait "$qemu" || cat "$work/qemu.log" >&2
    qemu=
}

make_base_image
make_payload
begin=$SECONDS
start_machine
watch_machine
rm -rf "$vm/$kernel/log"
mkdir -p "$vm/$kernel/log"
tr -d '\r' <"$work/console" >"$vm/$kernel/log/console"
tar -xf "$work/results.img" -C "$vm/$kernel/log" 2>/dev/null || true
read -r passed failed skipped finished < <(awk '
    $1 == "@@" && $2 == "set" { good += $4; bad += $5; skip += $6 } $1 == "@@" && $2 == "end" { end = 1 }
    END { print good + 0, bad + 0, skip + 0, end + 0 }' "$vm/$kernel/log/console")
[ "$finished" = 1 ] || { echo "[vm] the machine ended before its tests did"; failed=$((failed + 1)); }
echo
awk '$1 == "@@" && $2 == "set" { printf "%-24s %5d passed %4d failed %4d skipped %6d s\n", $3, $4, $5, $6, $7 }' "$vm/$kernel/log/console"
echo "$kernel, data on $data, $((SECONDS - begin)) s, $skipped skipped"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
