#!/bin/sh
# Builds libuv, jansson and zlib for musl: OUTDIR/lib/{libuv.a,libjansson.a,libz.a} and
# OUTDIR/include.
#
# The sources are the distribution's own source packages. The list of source archives is derived
# from the archives this machine installs packages from, and lives in a private directory together
# with its index files, so that the machine's own apt state is not touched.
set -eu

if [ $# -ne 1 ]; then
    echo "usage: $0 OUTDIR" >&2
    exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
stamp="$out/.complete"
# Raise when this script makes something different.
version=2
libraries="libuv.a libjansson.a libz.a"

complete() {
    [ "$(cat "$stamp" 2>/dev/null)" = "$version" ] || return 1
    for library in $libraries; do
        [ -f "$out/lib/$library" ] || return 1
    done
}

if complete; then
    exit 0
fi
rm -f "$stamp"
for tool in musl-gcc apt-get tar ar; do
    command -v "$tool" >/dev/null || { echo "$0: '$tool' is missing" >&2; exit 1; }
done

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT INT TERM

# deb822 files name the kind in "Types:", one-line files begin with it.
derive_sources() {
    mkdir -p "$tmp/parts" "$tmp/lists/partial"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
        [ -f "$file" ] || continue
        name=$(basename "$file")
        case "$name" in
        *.sources)
            sed 's/^[Tt]ypes:.*/Types: deb-src/' "$file" >"$tmp/parts/$name" ;;
        *.list)
            sed -n 's/^[[:space:]]*deb\(-src\)\{0,1\}\([[:space:]]\)/deb-src\2/p' "$file" |
                awk '!seen[$0]++' >"$tmp/parts/$name" ;; # in their order: apt asks the first one
        esac
    done
}

apt() {
    # The unprivileged download user could not write to our private directory.
    apt-get -q -o Dir::Etc::sourcelist=/nonexistent -o "Dir::Etc::sourceparts=$tmp/parts" \
        -o "Dir::State::lists=$tmp/lists" -o APT::Sandbox::User=root \
        -o Acquire::Languages=none -o Acquire::IndexTargets::deb-src::DEP-11::DefaultEnabled=false \
        "$@"
}

download() {
    derive_sources
    apt update >"$tmp/apt.log" 2>&1 || { cat "$tmp/apt.log" >&2; return 1; }
    (cd "$tmp" && apt --download-only source libuv1 jansson zlib) >>"$tmp/apt.log" 2>&1 ||
        { cat "$tmp/apt.log" >&2; return 1; }
}

# unpack NAME: the upstream tarball of the source package into $tmp/NAME.
unpack() {
    mkdir "$tmp/$1"
    tar -xf "$(ls "$tmp/$1"_*.orig.tar.* | grep -v '\.asc$' | head -n 1)" -C "$tmp/$1" \
        --strip-components=1
}

# Kernel headers come after musl's own: musl-gcc searches no system directory.
multiarch=$(gcc -print-multiarch 2>/dev/null || true)
cflags="-Os -g0 -ffunction-sections -fdata-sections -fno-pie -D_GNU_SOURCE -w
    -idirafter /usr/include -idirafter /usr/include/$multiarch"

# compile NAME LIBRARY FLAGS -- SOURCES...
compile() {
    name=$1 library=$2 flags=$3
    shift 4
    mkdir "$tmp/$name.o"
    for source in "$@"; do
        # shellcheck disable=SC2086
        musl-gcc $cflags $flags -c "$source" -o "$tmp/$name.o/$(basename "$source" .c).o"
    done
    rm -f "$out/lib/$library"
    ar rcs "$out/lib/$library" "$tmp/$name.o"/*.o
}

build_libuv() {
    unpack libuv1
    src="$tmp/libuv1/src"
    compile libuv1 libuv.a "-I$tmp/libuv1/include -I$src -D_FILE_OFFSET_BITS=64 -D_LARGEFILE_SOURCE" \
        -- "$src"/*.c \
        "$src/unix/async.c" "$src/unix/core.c" "$src/unix/dl.c" "$src/unix/fs.c" \
        "$src/unix/getaddrinfo.c" "$src/unix/getnameinfo.c" "$src/unix/loop.c" \
        "$src/unix/loop-watcher.c" "$src/unix/pipe.c" "$src/unix/poll.c" "$src/unix/process.c" \
        "$src/unix/random-devurandom.c" "$src/unix/signal.c" "$src/unix/stream.c" \
        "$src/unix/tcp.c" "$src/unix/thread.c" "$src/unix/tty.c" "$src/unix/udp.c" \
        "$src/unix/linux-core.c" "$src/unix/linux-inotify.c" "$src/unix/linux-syscalls.c" \
        "$src/unix/procfs-exepath.c" "$src/unix/random-getrandom.c" \
        "$src/unix/random-sysctl-linux.c" "$src/unix/epoll.c" "$src/unix/proctitle.c"
    cp -r "$tmp/libuv1/include/." "$out/include/"
}

build_jansson() {
    unpack jansson
    src="$tmp/jansson/src"
    # What its configure script would find out; the tarball has none.
    sed -e 's/@json_inline@/inline/' -e 's/@json_have_[a-z_]*@/1/' \
        "$src/jansson_config.h.in" >"$out/include/jansson_config.h"
    cp "$src/jansson.h" "$out/include/"
    : >"$src/jansson_private_config.h"
    compile jansson libjansson.a "-I$out/include -I$src -DHAVE_STDINT_H -DHAVE_UNISTD_H
        -DHAVE_FCNTL_H -DHAVE_SYS_TYPES_H -DHAVE_SYS_TIME_H -DHAVE_SYS_STAT_H -DHAVE_SCHED_H
        -DHAVE_OPEN -DHAVE_CLOSE -DHAVE_READ -DHAVE_GETPID -DHAVE_GETTIMEOFDAY -DHAVE_SCHED_YIELD
        -DHAVE_STRTOLL -DHAVE_SNPRINTF -DHAVE_ATOMIC_BUILTINS -DUSE_URANDOM
        -DINITIAL_HASHTABLE_ORDER=3" -- "$src"/*.c
}

build_zlib() {
    unpack zlib
    src="$tmp/zlib"
    compile zlib libz.a "-O2 -I$src -DHAVE_UNISTD_H -DHAVE_STDARG_H -DHAVE_HIDDEN" -- "$src/adler32.c" \
        "$src/crc32.c" "$src/deflate.c" "$src/inffast.c" "$src/inflate.c" "$src/inftrees.c" \
        "$src/trees.c" "$src/zutil.c"
    cp "$src/zlib.h" "$src/zconf.h" "$out/include/"
}

mkdir -p "$out/lib" "$out/include"
download
build_libuv
build_jansson
build_zlib
echo "$version" >"$stamp"
