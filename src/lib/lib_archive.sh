#!/bin/sh
# lib_archive.sh OUT OBJCOPY ARCHIVE...: all archives as one, in which only what is exported has a name. A
# program that links it cannot collide with our own names.
set -eu
out=$1 objcopy=$2
shift 2
rm -f "$out" "$out.o"
ld -r --whole-archive "$@" -o "$out.o"
"$objcopy" --localize-hidden "$out.o"
ar rcs "$out" "$out.o"
rm -f "$out.o"
