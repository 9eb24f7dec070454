#!/bin/bash
# Installs the Debian packages that Quicksand needs and that are missing: setup.sh [test] [bench] [vm]
#
# Without arguments: what building and running need. `test`, `bench` and `vm` add what those targets use.
# When nothing is missing it only asks dpkg and is done in milliseconds. `--list` prints what is missing.
set -euo pipefail

build=(gcc libc6-dev make meson ninja-build pkg-config libuv1-dev node-llhttp libjansson-dev libsqlite3-dev
    libseccomp-dev libmnl-dev libssl-dev libcurl4-openssl-dev libarchive-dev zlib1g-dev
    musl-tools linux-libc-dev bzip2 xz-utils python3)
run=(btrfs-progs nftables mmdebstrap ca-certificates debian-archive-keyring curl jq)
test=(clang libclang-rt-14-dev clang-format clang-tidy cppcheck python3 curl openssl chromium podman
    runc iptables iproute2 procps containernetworking-plugins busybox-static postgresql libpq-dev valgrind)
bench=(bubblewrap podman runc nginx-light wrk curl iproute2 procps)
vm=(qemu-system-x86 e2fsprogs)

wanted=("${build[@]}" "${run[@]}")
# The pages of the binary come from npm, once (tools/web_assets.py).
if ! ls "$(dirname "$0")"/../build/web/xterm-xterm-*.tgz >/dev/null 2>&1 && ! command -v npm >/dev/null; then
    wanted+=(npm)
fi
list_only=
for argument; do
    case $argument in
    test) wanted+=("${test[@]}") ;;
    bench) wanted+=("${bench[@]}") ;;
    vm) wanted+=("${vm[@]}") ;;
    --list) list_only=1 ;;
    *)
        echo "usage: setup.sh [test] [bench] [vm] [--list]" >&2
        exit 2
        ;;
    esac
    case $argument in
    test | bench | vm)
        # A Node.js from elsewhere is as good as Debian's.
        command -v node >/dev/null || wanted+=(nodejs)
        command -v npm >/dev/null || wanted+=(npm)
        ;;
    esac
    # So is a dockerd.
    [ "$argument" != test ] || command -v dockerd >/dev/null || wanted+=(docker.io)
done

missing=$( (dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null || true) |
    awk '$1 == "installed" { print $2 }' | sort |
    comm -13 - <(printf '%s\n' "${wanted[@]}" | sort -u))
[ -n "$missing" ] || exit 0
if [ -n "$list_only" ]; then
    echo "$missing"
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "missing Debian packages; as root: apt-get install --no-install-recommends" $missing >&2
    exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# apt with a line of progress every few packages instead of its own flood.
quiet_apt()
{
    DEBIAN_FRONTEND=noninteractive apt-get -y -o Acquire::Retries=5 -o Dpkg::Use-Pty=0 \
        -o DPkg::Lock::Timeout=300 "$@" 2>&1 | tee -a "$log" | awk '
        / newly installed, / { print "[setup] " $0; fflush() }
        /^Setting up / && ++n % 25 == 0 { print "[setup] " n " packages set up"; fflush() }'
}

# Its tests make clusters of their own; none of the host's is wanted.
case " "$(echo $missing)" " in
*" postgresql "*)
    mkdir -p /etc/postgresql-common
    [ -e /etc/postgresql-common/createcluster.conf ] ||
        echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
    ;;
esac

echo "[setup] installing:" $missing
if ! quiet_apt update || ! quiet_apt install --no-install-recommends $missing; then
    tail -n 25 "$log" >&2
    echo "[setup] failed" >&2
    exit 1
fi
echo "[setup] done"
