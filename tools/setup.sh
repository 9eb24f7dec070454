#!/bin/bash
# Installs the Debian packages that Quicksand needs and that are missing: setup.sh [test] [bench] [vm]
# `setup.sh --names build|run` prints what is needed by its names in several distributions; so does a host without apt.
#
# Without arguments: what building and running need. `test`, `bench` and `vm` add what those targets use.
# When nothing is missing it only asks dpkg and is done in milliseconds. `--list` prints what is missing.
set -euo pipefail

build=(gcc libc6-dev make meson ninja-build pkg-config libuv1-dev node-llhttp libjansson-dev libsqlite3-dev
    libseccomp-dev libmnl-dev libssl-dev libcurl4-openssl-dev libarchive-dev zlib1g-dev libzstd-dev liblzma-dev libbz2-dev
    libnghttp2-dev musl-tools linux-libc-dev bzip2 xz-utils patch python3)
run=(btrfs-progs nftables mmdebstrap ca-certificates debian-archive-keyring curl jq)
test=(clang libclang-rt-14-dev lld clang-format clang-tidy cppcheck python3 curl openssl chromium podman
    runc iptables iproute2 procps containernetworking-plugins busybox-static postgresql libpq-dev valgrind
    docker-registry skopeo buildah nginx-light caddy libnss3-tools gnupg nghttp2-client python3-httpx python3-h2
    microsocks tinyproxy-bin prometheus lintian dpkg-dev rsync openssh-client sqlite3 git zsh fish man-db)
bench=(bubblewrap buildah chromium podman runc nginx-light libnginx-mod-stream dnsmasq-base wrk nghttp2-client curl iproute2 procps)
vm=(qemu-system-x86 e2fsprogs)

# names build|run: for hosts without apt. What the programs of the tarball are linked with is part of both.
names()
{
    if [ "$1" = build ]; then
        cat <<'END'
To build Quicksand these are needed:
  Debian, Ubuntu  gcc make meson ninja-build pkg-config libuv1-dev node-llhttp libjansson-dev libsqlite3-dev libseccomp-dev libmnl-dev
                  libssl-dev libcurl4-openssl-dev libarchive-dev zlib1g-dev libzstd-dev liblzma-dev libbz2-dev libnghttp2-dev musl-tools
                  linux-libc-dev bzip2 xz-utils patch python3 npm
  Fedora          gcc make meson ninja-build pkgconf libuv-devel llhttp-devel jansson-devel sqlite-devel libseccomp-devel libmnl-devel
                  openssl-devel libcurl-devel libarchive-devel zlib-devel libzstd-devel xz-devel bzip2-devel libnghttp2-devel musl-gcc
                  kernel-headers bzip2 xz patch python3 npm
  Arch            base-devel meson ninja libuv llhttp jansson sqlite libseccomp libmnl openssl curl libarchive zlib zstd xz bzip2 libnghttp2
                  musl linux-api-headers patch python npm
  openSUSE        gcc make meson ninja pkgconf libuv-devel llhttp-devel libjansson-devel sqlite3-devel libseccomp-devel libmnl-devel
                  libopenssl-devel libcurl-devel libarchive-devel zlib-devel libzstd-devel xz-devel libbz2-devel libnghttp2-devel
                  linux-glibc-devel bzip2 xz patch python3 npm
The sources of llhttp are looked for where Debian's node-llhttp has them: /usr/share/llhttp, /usr/share/include/llhttp.
END
    fi
    cat <<'END'
To run Quicksand these are needed:
  Debian, Ubuntu  btrfs-progs nftables mmdebstrap debian-archive-keyring ca-certificates curl jq libuv1 libjansson4 libsqlite3-0 libseccomp2
                  libmnl0 libssl3 libcurl4 libarchive13 zlib1g libnghttp2-14
  Fedora          btrfs-progs nftables mmdebstrap debian-keyring ca-certificates curl jq libuv jansson sqlite-libs libseccomp libmnl
                  openssl-libs libcurl libarchive zlib libnghttp2
  Arch            btrfs-progs nftables mmdebstrap debian-archive-keyring ca-certificates curl jq libuv jansson sqlite libseccomp libmnl
                  openssl libarchive zlib libnghttp2
  openSUSE        btrfsprogs nftables mmdebstrap debian-keyring ca-certificates curl jq libuv1 libjansson4 libsqlite3-0 libseccomp2 libmnl0
                  libopenssl3 libcurl4 libarchive13 libz1 libnghttp2-14
  Alpine          has no glibc: build it there, or use another distribution
END
}
if [ "${1:-}" = --names ]; then
    names "${2:-build}"
    exit 0
fi

wanted=("${build[@]}" "${run[@]}")
# The pages of the binary come from npm, once (tools/web_assets.py).
if [ "$(ls "$(dirname "$0")"/../build/web/*.tgz 2>/dev/null | wc -l)" -lt 5 ] && ! command -v npm >/dev/null; then
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

if ! command -v dpkg-query >/dev/null; then
    # Nobody here can tell what is missing but the tools themselves.
    for tool in gcc meson ninja pkg-config musl-gcc mkfs.btrfs nft mmdebstrap curl jq; do
        command -v "$tool" >/dev/null && continue
        echo "there is no $tool, and no apt to install it with" >&2
        names build >&2
        exit 1
    done
    exit 0
fi
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
