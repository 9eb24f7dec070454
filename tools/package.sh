#!/bin/bash
# Packages of what `make install` installs: package.sh deb|tarball [OUTPUT]
#
#   deb       quicksand, libquicksand0 and libquicksand-dev for Debian 12, in build/packages-deb
#   tarball   the same files for other distributions, with their names of what is needed, in build
#
# Wants a finished build; writes nothing outside of build.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n "s/.*version: '\([0-9.]*\)'.*/\1/p" meson.build | head -1)
architecture=$(dpkg --print-architecture 2>/dev/null || uname -m)
stage=$PWD/build/package
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y meson.build)}

# All files beneath $stage/all, as they lie on a host.
install_all()
{
    rm -rf "$stage"
    mkdir -p "$stage/all"
    local prefix path
    # As it is configured, whatever its prefix: nothing that is installed knows where it lies, but the pkg-config file.
    prefix=$(meson introspect build/host --buildoptions | python3 -c 'import json, sys; print(*[o["value"] for o in json.load(sys.stdin) if o["name"] == "prefix"])')
    DESTDIR=$stage/raw meson install -C build/host --no-rebuild --quiet >"$stage/install.log" 2>&1 || { tail -n 20 "$stage/install.log"; exit 1; }
    mv "$stage/raw$prefix" "$stage/all/usr"
    rm -rf "$stage/raw"
    find "$stage/all" -name '*.pc' -exec sed -i 's|^prefix=.*|prefix=/usr|' {} +
    for path in envd unpack interpreter mcp-gateway; do
        install -D -m 0755 "build/$path" "$stage/all/usr/lib/quicksand/$path"
    done
    install -D -m 0644 deploy/quicksand.service "$stage/all/usr/lib/systemd/system/quicksand.service"
    mkdir -p "$stage/all/etc/quicksand"
    build/quicksand serve --print-config >"$stage/all/etc/quicksand/quicksand.conf"
    local documents=$stage/all/usr/share/doc/quicksand
    mkdir -p "$documents/examples"
    cp README.md SECURITY.md "$documents/"
    cp docs/operate.md docs/cli.md docs/api.md "$documents/"
    cp deploy/alerts.yml deploy/grafana.json deploy/prometheus.yml "$documents/examples/"
    find "$stage/all" -type d -exec chmod 0755 {} +
    find "$stage/all/usr/bin" "$stage/all/usr/lib/quicksand" -type f -exec strip --strip-unneeded {} +
    find "$stage/all" -name '*.so.*' -type f -exec strip --strip-unneeded {} + -exec chmod 0644 {} +
}

# begin PACKAGE: its root and what every package has.
begin()
{
    local root=$stage/$1
    mkdir -p "$root/DEBIAN" "$root/usr/share/doc/$1"
    cat >"$root/usr/share/doc/$1/copyright" <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: quicksand

Files: *
Copyright: $(date -u -d "@$SOURCE_DATE_EPOCH" +%Y) The Quicksand authors
License: Apache-2.0
 On Debian systems the full text of the Apache License, Version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
END
    printf 'quicksand (%s) unstable; urgency=medium\n\n  * Release %s.\n\n -- The Quicksand authors <quicksand@quicksand.invalid>  %s\n' \
        "$version" "$version" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$root/usr/share/doc/$1/changelog.gz"
}

# move PACKAGE PATH...: from all files to the package.
move()
{
    local path
    for path in "${@:2}"; do
        mkdir -p "$stage/$1/$(dirname "$path")"
        mv "$stage/all/$path" "$stage/$1/$path"
    done
}

# What the programs are linked with, as packages. `quicksand` loads two libraries itself (src/late), which libquicksand is linked with.
libraries()
{
    mkdir -p "$stage/shlibs/debian"
    printf 'Source: quicksand\nPackage: quicksand\nArchitecture: any\n' >"$stage/shlibs/debian/control"
    (cd "$stage/shlibs" && dpkg-shlibdeps --ignore-missing-info -O "$@" 2>/dev/null) | sed -n 's/^shlibs:Depends=//p'
}

# finish PACKAGE SECTION DEPENDS SHORT [FIELD...] <LONG
finish()
{
    local root=$stage/$1 size
    size=$(du -sk --exclude=DEBIAN "$root" | cut -f1)
    {
        printf 'Package: %s\nSource: quicksand\nVersion: %s\nArchitecture: %s\nMaintainer: The Quicksand authors <quicksand@quicksand.invalid>\n' "$1" "$version" "$architecture"
        printf 'Installed-Size: %s\nSection: %s\nPriority: optional\nDepends: %s\n' "$size" "$2" "$3"
        [ $# -lt 5 ] || printf '%s\n' "${@:5}"
        printf 'Description: %s\n' "$4"
        sed 's/^/ /; s/^ $/ ./'
    } >"$root/DEBIAN/control"
    (cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums)
    find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zxz --build "$root" "$output" >/dev/null
}

scripts()
{
    cp deploy/debian/{postinst,prerm,postrm} "$stage/quicksand/DEBIAN/"
    chmod 0755 "$stage/quicksand/DEBIAN/"{postinst,prerm,postrm}
    echo /etc/quicksand/quicksand.conf >"$stage/quicksand/DEBIAN/conffiles"
    install -D -m 0644 deploy/debian/lintian-overrides "$stage/quicksand/usr/share/lintian/overrides/quicksand"
}

make_deb()
{
    local libdir
    output=${1:-build/packages-deb}
    install_all
    rm -rf "$output"
    mkdir -p "$output"
    find "$stage/all/usr/share/man" -type f -name '*.1' -exec gzip -9n {} +
    libdir=$(cd "$stage/all" && dirname "$(find usr/lib -name 'libquicksand.so.0' | head -1)")

    begin libquicksand0
    move libquicksand0 "$libdir/libquicksand.so.0" "$libdir/libquicksand.so.$version"
    printf 'libquicksand 0 libquicksand0 (>= %s)\n' "$version" >"$stage/libquicksand0/DEBIAN/shlibs"
    echo 'activate-noawait ldconfig' >"$stage/libquicksand0/DEBIAN/triggers"
    finish libquicksand0 libs "$(libraries "$stage/libquicksand0/$libdir/libquicksand.so.$version")" "sandboxes of several providers for C programs" "Multi-Arch: same" <<END
The agent runtime of Quicksand as a library: sandboxes, commands, files and
sessions of agents, with whatever provider there is.
END
    begin libquicksand-dev
    move libquicksand-dev "$libdir/libquicksand.so" "$libdir/libquicksand.a" "$libdir/pkgconfig" usr/include
    finish libquicksand-dev libdevel "libquicksand0 (= $version)" "sandboxes of several providers for C programs (development)" "Multi-Arch: same" <<END
Header, pkg-config file and static library of libquicksand, the agent runtime
of Quicksand.
END
    begin quicksand
    (cd "$stage/all" && find . -type f -o -type l) | sed 's|^\./||' | while read -r path; do move quicksand "$path"; done
    scripts
    finish quicksand admin "$(libraries "$stage/quicksand/usr/bin/quicksand" "$stage/libquicksand0/$libdir/libquicksand.so.$version"), btrfs-progs, nftables, mmdebstrap, debian-archive-keyring, ca-certificates, curl, jq" \
        "sandboxes for agents, with an API that is compatible with E2B" <<END
Runs code that nobody has read, in sandboxes that start in milliseconds: one
server with the API of E2B, an agent runtime with sessions, jobs and several
providers, and a command line.
.
The service listens on 127.0.0.1:3000 and keeps its data in /var/lib/quicksand.
The base template is made of Debian's packages at its first start.
END
    ls "$output"
}

make_tarball()
{
    local name=quicksand-$version-linux-$(uname -m)
    output=${1:-build/$name.tar.xz}
    install_all
    mkdir -p "$stage/$name"
    mv "$stage/all/usr" "$stage/all/etc" "$stage/$name/"
    cp LICENSE "$stage/$name/"
    tools/setup.sh --names run >"$stage/$name/NEEDED"
    cat >"$stage/$name/INSTALL" <<END
As root: cp -a usr etc /, then systemctl daemon-reload && systemctl enable --now quicksand.
NEEDED lists what must be installed, by its names in several distributions. The programs are linked with glibc.
To remove all: 'quicksand down', then what FILES lists.
END
    (cd "$stage/$name" && find usr etc -type f -o -type l | LC_ALL=C sort >FILES)
    tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -cJf "$output" "$name"
    echo "$output"
}

case ${1:-} in
deb) make_deb "${2:-}" ;;
tarball) make_tarball "${2:-}" ;;
*)
    echo "usage: package.sh deb|tarball [OUTPUT]" >&2
    exit 2
    ;;
esac
