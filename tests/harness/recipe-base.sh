#!/bin/bash
# Makes the tree that tests of a shipped recipe have as their base: recipe-base.sh RECIPE OUTDIR BASE
#
# It is the base template with the packages that the recipe installs (its ARGs PACKAGES and TOOLS), without its extras: the lab has no
# package mirror, so the recipe is built there with those empty. Made once, and again when one of the two has changed.
set -euo pipefail
out=$2 base=$3
recipe=$(dirname "$0")/../../templates/$1/Dockerfile
packages=$(sed -nE 's/^ARG (PACKAGES|TOOLS)="(.*)"$/\2/p' "$recipe")
mark=$(echo "$packages" "$(stat -c %Y "$base")" | sha256sum)
[ "$(cat "$out/made-by" 2>/dev/null)" != "$mark" ] || exit 0

rm -rf --one-file-system "$out"
mkdir -p "$out"
cp -a --reflink=auto -- "$base" "$out/rootfs"
# apt runs in namespaces that end with it.
unshare --mount --pid --fork --kill-child bash -euc '
    root=$1
    shift
    mount --bind /dev "$root/dev"
    mount -t proc proc "$root/proc"
    cp --remove-destination /etc/resolv.conf "$root/etc/resolv.conf"
    mkdir -p "$root/usr/share/man/man1"
    export DEBIAN_FRONTEND=noninteractive
    chroot "$root" apt-get update -q
    chroot "$root" apt-get install -y -q --no-install-recommends "$@"
    chroot "$root" apt-get clean' bash "$out/rootfs" $packages
rm -rf "$out"/rootfs/var/lib/apt/lists/*
: >"$out/rootfs/etc/resolv.conf"
echo "$mark" >"$out/made-by"
