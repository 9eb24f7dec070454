#!/bin/bash
# Makes what a virtual machine boots from, out of the distribution's own packages: image.sh KERNEL
#
#   build/vm/userland          Debian 12 with systemd and the libraries that Quicksand needs, made once
#                              and again when the packages below are others
#   build/vm/KERNEL/           vmlinuz, initrd and root.img (ext4): userland and that kernel's modules
#
# KERNEL is bookworm (6.1), backports, trixie, bullseye (5.10), noble (Ubuntu 24.04, 6.8) or jammy (Ubuntu 22.04,
# 5.15). What runs on the machine outside of the virtual one, its /boot and its apt, is left alone.
# Prints nothing but progress; when everything is there, nothing at all.
set -euo pipefail
cd "$(dirname "$0")/../.."

kernel=${1:?usage: image.sh KERNEL}
vm=$PWD/build/vm
mirror=${QUICKSAND_VM_MIRROR:-http://deb.debian.org}
ubuntu=${QUICKSAND_VM_UBUNTU:-http://archive.ubuntu.com/ubuntu}
keys=/usr/share/keyrings
ubuntu_keys=${QUICKSAND_VM_UBUNTU_KEYS:-$keys/ubuntu-archive-keyring.gpg}

packages=(systemd-sysv udev dbus kmod initramfs-tools iproute2 procps util-linux e2fsprogs btrfs-progs xfsprogs nftables
    ca-certificates curl git openssl busybox-static python3 strace mmdebstrap
    libuv1 libmnl0 libseccomp2 libjansson4 libssl3 libsqlite3-0 libcurl4 libarchive13 libatomic1
    libnghttp2-14 zlib1g debian-archive-keyring jq)

say()
{
    echo "[vm] $*"
}

debian()
{
    echo "deb [signed-by=$keys/debian-archive-keyring.gpg] $mirror/debian $1 main"
}

security()
{
    echo "deb [signed-by=$keys/debian-archive-keyring.gpg] $mirror/debian-security $1-security main"
}

# The package that stands for "the kernel" of a release, and where it is from.
meta=linux-image-amd64
case $kernel in
bookworm | trixie | bullseye) sources() { debian "$kernel"; security "$kernel"; } ;;
backports) sources() { debian bookworm-backports; } ;;
jammy | noble)
    meta=linux-image-generic
    sources()
    {
        local part
        [ -e "$ubuntu_keys" ] ||
            { echo "image.sh: no keys of Ubuntu's archive at '$ubuntu_keys' (its package ubuntu-keyring): QUICKSAND_VM_UBUNTU_KEYS" >&2; return 1; }
        for part in "" -updates -security; do
            echo "deb [signed-by=$ubuntu_keys] $ubuntu $kernel$part main"
        done
    }
    ;;
*)
    echo "image.sh: no kernel '$kernel': bookworm, backports, trixie, bullseye, noble or jammy" >&2
    exit 2
    ;;
esac

make_userland()
{
    [ "$(cat "$vm/userland/.complete" 2>/dev/null)" = "${packages[*]}" ] && return
    say "Debian 12 for the virtual machine (once, some minutes)"
    rm -rf "$vm/userland"
    mkdir -p "$vm"
    { debian bookworm; debian bookworm-updates; security bookworm; } >"$vm/sources.list"
    timeout 1800 unshare --mount mmdebstrap --mode=root --variant=minbase --include="$(IFS=,; echo "${packages[*]}")" \
        --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Retries "5"' --dpkgopt=force-unsafe-io \
        bookworm "$vm/userland" "$vm/sources.list" >"$vm/userland.log" 2>&1 || { tail -n 25 "$vm/userland.log" >&2; return 1; }
    configure "$vm/userland"
    echo "${packages[*]}" >"$vm/userland/.complete"
}

# A host as it comes, but for what only takes time here.
configure()
{
    echo quicksand-vm >"$1/etc/hostname"
    echo '127.0.0.1 localhost quicksand-vm' >"$1/etc/hosts"
    echo /dev/vda / ext4 defaults 0 0 >"$1/etc/fstab"
    printf '%s\n' MODULES=list COMPRESS=gzip >"$1/etc/initramfs-tools/conf.d/vm"
    printf '%s\n' virtio_pci virtio_blk ext4 crc32c_generic >"$1/etc/initramfs-tools/modules"
    cat >"$1/etc/systemd/system/quicksand-test.service" <<'END'
[Unit]
Description=Tests of Quicksand
After=multi-user.target

[Service]
Type=oneshot
ExecStart=/bin/sh -c 'mkdir -p /payload && mount /dev/vdc /payload && exec /payload/start'
StandardOutput=tty
StandardError=inherit
TTYPath=/dev/ttyS0
TimeoutStartSec=infinity
FailureAction=poweroff-force
END
    ln -sf /etc/systemd/system/quicksand-test.service "$1/etc/systemd/system/multi-user.target.wants/"
    chroot "$1" systemctl mask --quiet serial-getty@ttyS0.service getty@tty1.service apt-daily.timer apt-daily-upgrade.timer \
        dpkg-db-backup.timer fstrim.timer e2scrub_all.timer e2scrub_reap.service systemd-timesyncd.service
}

# apt with lists and a cache of its own, which knows only this kernel's archive.
private_apt()
{
    local dir=$vm/$kernel/apt program=$1
    shift
    timeout 900 "$program" -q -o Dir::Etc::sourcelist="$dir/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State="$dir" \
        -o Dir::State::status="$dir/status" -o Dir::Cache="$dir" -o APT::Sandbox::User=root -o Acquire::Retries=5 "$@"
}

# The names of the packages that hold the newest kernel and its modules.
kernel_packages()
{
    local image
    image=$(private_apt apt-cache depends --important "$meta" | awk '$1 == "Depends:" && $2 ~ /^linux-image-(unsigned-)?[0-9]/ { print $2; exit }')
    [ -n "$image" ] || { echo "image.sh: '$meta' of $kernel names no kernel" >&2; return 1; }
    echo "$image"
    [ "$meta" != linux-image-generic ] || echo "linux-modules-${image#linux-image-}"
}

make_kernel()
{
    local dir=$vm/$kernel tree=$vm/$kernel/tree version deb names
    [ -e "$dir/root.img" ] && [ "$dir/root.img" -nt "$vm/userland/.complete" ] && return
    say "the kernel of $kernel"
    rm -rf "$dir"
    mkdir -p "$dir/apt/lists/partial" "$dir/apt/archives/partial" "$dir/debs"
    : >"$dir/apt/status"
    sources >"$dir/apt/sources.list"
    private_apt apt-get update >"$dir/log" 2>&1 || { tail -n 15 "$dir/log" >&2; return 1; }
    names=$(kernel_packages)
    (cd "$dir/debs" && private_apt apt-get download $names) >>"$dir/log" 2>&1 || { tail -n 15 "$dir/log" >&2; return 1; }
    cp -al "$vm/userland" "$tree"
    for deb in "$dir"/debs/*.deb; do
        dpkg-deb --extract "$deb" "$dir/kernel"
    done
    version=$(ls "$dir/kernel/boot" | sed -n 's/^vmlinuz-//p')
    cp "$dir/kernel/boot/vmlinuz-$version" "$dir/vmlinuz"
    cp "$dir/kernel/boot/config-$version" "$tree/boot/"
    mkdir -p "$tree/usr/lib/modules"
    cp -al "$(find "$dir/kernel" -type d -path "*/modules/$version" | head -n 1)" "$tree/usr/lib/modules/"
    chroot "$tree" depmod "$version"
    chroot "$tree" mkinitramfs -o /boot/initrd "$version" >>"$dir/log" 2>&1 || { tail -n 15 "$dir/log" >&2; return 1; }
    mv "$tree/boot/initrd" "$dir/initrd"
    truncate -s 6G "$dir/root.img.partial"
    mke2fs -q -F -t ext4 -d "$tree" "$dir/root.img.partial"
    rm -rf "$tree" "$dir/kernel" "$dir/debs" "$dir/apt"
    mv "$dir/root.img.partial" "$dir/root.img"
    say "Linux $version"
}

[ "$(id -u)" -eq 0 ] || { echo "image.sh: needs root" >&2; exit 1; }
make_userland
make_kernel
