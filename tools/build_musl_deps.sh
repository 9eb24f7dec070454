#!/bin/sh
# Builds libuv, jansson and zlib for envd, libarchive, zstd, xz and bzip2 (what unpack needs of them) besides, for
# musl: OUTDIR/lib/*.a and OUTDIR/include.
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
version=4
libraries="libuv.a libjansson.a libz.a libarchive.a libzstd.a liblzma.a libbz2.a"

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
for tool in musl-gcc apt-get tar ar patch; do
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
    (cd "$tmp" && apt --download-only source libuv1 jansson zlib libarchive libzstd xz-utils bzip2) >>"$tmp/apt.log" 2>&1 ||
        { cat "$tmp/apt.log" >&2; return 1; }
}

# unpack NAME: the upstream tarball of the source package into $tmp/NAME.
unpack() {
    mkdir "$tmp/$1"
    tar -xf "$(ls "$tmp/$1"_*.orig.tar.* | grep -v '\.asc$' | head -n 1)" -C "$tmp/$1" \
        --strip-components=1
}

# The distribution's fixes, which came after the release.
mend() {
    tar -xf "$(ls "$tmp/$1"_*.debian.tar.*)" -C "$tmp/$1"
    (cd "$tmp/$1" && while read -r fix; do
        patch -s -p1 <"debian/patches/$fix"
    done <debian/patches/series)
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

# Reading and writing tar, and nothing else: no other format, no filter (unpack decompresses by itself), no extraction.
build_libarchive() {
    unpack libarchive
    mend libarchive
    src="$tmp/libarchive/libarchive"
    # What its configure script would find out.
    awk '{ print "#define HAVE_" $0 " 1" }' RS='[ \n]+' >"$src/config.h" <<'END'
CTYPE_H DECL_INT32_MAX DECL_INT32_MIN DECL_INT64_MAX DECL_INT64_MIN DECL_INTMAX_MAX DECL_INTMAX_MIN
DECL_SIZE_MAX DECL_SSIZE_MAX DECL_UINT32_MAX DECL_UINT64_MAX DECL_UINTMAX_MAX DIRENT_H EILSEQ ERRNO_H
FCNTL FCNTL_H FSTAT GETPID GRP_H INTMAX_T INTTYPES_H LANGINFO_H LIMITS_H LOCALE_H LOCALTIME_R LSTAT MBRTOWC
MEMMOVE MEMSET MKSTEMP NL_LANGINFO POLL POLL_H PWD_H SETLOCALE STDARG_H STDINT_H STDLIB_H STRCHR
STRDUP STRERROR STRING_H STRNLEN STRRCHR STRUCT_STAT_ST_BLKSIZE STRUCT_STAT_ST_MTIM_TV_NSEC
SYS_STAT_H SYS_TIME_H SYS_TYPES_H TIMEGM TIME_H UINTMAX_T UNISTD_H UNSIGNED_LONG_LONG VPRINTF WCHAR_H
WCHAR_T WCRTOMB WCSCMP WCSCPY WCSLEN WCTOMB WCTYPE_H WMEMCMP WMEMCPY WMEMMOVE
END
    printf '#define %s\n' 'MAJOR_IN_SYSMACROS 1' 'SIZEOF_INT 4' 'SIZEOF_LONG 8' 'SIZEOF_WCHAR_T 4' \
        '__LIBARCHIVE_CONFIG_H_INCLUDED 1' >>"$src/config.h"
    set --
    for name in acl check_magic entry entry_copy_stat entry_link_resolver entry_sparse entry_stat \
        entry_strmode entry_xattr options pack_dev random rb read read_set_options \
        read_support_format_empty read_support_format_tar string string_sprintf util \
        virtual write write_set_format_pax \
        write_set_format write_set_format_ustar write_set_options; do
        set -- "$@" "$src/archive_$name.c"
    done
    compile libarchive libarchive.a "-O2 -I$src -DHAVE_CONFIG_H" -- "$@"
    cp "$src/archive.h" "$src/archive_entry.h" "$out/include/"
}

# The decoder.
build_libzstd() {
    unpack libzstd
    src="$tmp/libzstd/lib"
    compile libzstd libzstd.a "-O3 -DZSTD_DISABLE_ASM" -- "$src"/common/*.c "$src"/decompress/*.c
    cp "$src/zstd.h" "$src/zstd_errors.h" "$out/include/"
}

# The decoder of .xz, with the one filter for programs that people use.
build_liblzma() {
    unpack xz-utils
    mend xz-utils
    src="$tmp/xz-utils/src/liblzma"
    flags="-O2 -I$tmp/xz-utils/src/common -DHAVE_STDBOOL_H -DHAVE_INTTYPES_H -DHAVE_STDINT_H -DHAVE_LIMITS_H
        -DHAVE_STRING_H -DHAVE_CHECK_CRC32 -DHAVE_CHECK_CRC64 -DHAVE_CHECK_SHA256 -DHAVE_DECODERS
        -DHAVE_DECODER_LZMA1 -DHAVE_DECODER_LZMA2 -DHAVE_DECODER_DELTA -DHAVE_DECODER_X86 -DTUKLIB_SYMBOL_PREFIX=lzma_"
    for folder in api common check lz rangecoder lzma delta simple; do
        flags="$flags -I$src/$folder"
    done
    set --
    for name in common/common common/block_decoder common/block_header_decoder common/block_util \
        common/filter_common common/filter_decoder common/filter_flags_decoder common/index_hash \
        common/stream_decoder common/stream_flags_common common/stream_flags_decoder common/vli_decoder \
        common/vli_size check/check check/crc32_fast check/crc32_table check/crc64_fast check/crc64_table \
        check/sha256 lz/lz_decoder lzma/lzma_decoder lzma/lzma2_decoder delta/delta_common \
        delta/delta_decoder simple/simple_coder simple/simple_decoder simple/x86; do
        set -- "$@" "$src/$name.c"
    done
    compile xz-utils liblzma.a "$flags" -- "$@"
    cp -r "$src/api/lzma.h" "$src/api/lzma" "$out/include/"
}

# It does not come without its compressor.
build_libbz2() {
    unpack bzip2
    src="$tmp/bzip2"
    compile bzip2 libbz2.a "-O2" -- "$src/blocksort.c" "$src/bzlib.c" "$src/compress.c" \
        "$src/crctable.c" "$src/decompress.c" "$src/huffman.c" "$src/randtable.c"
    cp "$src/bzlib.h" "$out/include/"
}

mkdir -p "$out/lib" "$out/include"
download
build_libuv
build_jansson
build_zlib
build_libarchive
build_libzstd
build_liblzma
build_libbz2
echo "$version" >"$stamp"
