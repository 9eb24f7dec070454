#!/bin/bash
# A container image of the Debian package: image.sh [OUTPUT]
#
# Makes an OCI archive, build/quicksand-VERSION-image.tar, for `podman run --privileged` and `docker run --privileged`: a minimal
# Debian 12 from this machine's own apt sources, the package of `make deb` with what it depends on, and an entry point. Wants
# build/packages-deb. No registry is asked for anything; what is unpacked on the way is removed again.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n "s/.*version: '\([0-9.]*\)'.*/\1/p" meson.build | head -1)
output=$(realpath -m "${1:-build/quicksand-$version-image.tar}")
package=$(find build/packages-deb -name 'quicksand_*.deb' 2>/dev/null | head -1)
[ -n "$package" ] || { echo "there is no package in build/packages-deb: make deb" >&2; exit 1; }
[ "$(id -u)" -eq 0 ] || { echo "make image needs root: the files of a Debian belong to several users" >&2; exit 1; }
scratch=$(mktemp -d "$PWD/build/image-XXXXXX")
buildah=(buildah --root "$scratch/storage" --runroot "$scratch/run" --storage-driver vfs)
container=

finish()
{
    [ -z "$container" ] || "${buildah[@]}" rm "$container" >/dev/null 2>&1 || true
    rm -rf --one-file-system "$scratch"
}
trap finish EXIT

# The archives of Debian 12 that this machine uses, without passwords.
sources()
{
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
        awk '$1 ~ /^https?:/ && $2 ~ /^bookworm(-updates|-security)?$/ && $3 == "main" {
            sub(/\/\/[^\/@]*@/, "//", $1)
            if (!seen[$1 $2]++)
                print "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] " $1 " " $2 " main"
        }'
}

sources >"$scratch/sources.list"
echo "[image] Debian with $(basename "$package")"
DEBIAN_FRONTEND=noninteractive mmdebstrap --quiet --mode=root --variant=minbase \
    --include=ca-certificates --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' \
    --aptopt='Acquire::Retries "5"' --dpkgopt=force-unsafe-io \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --customize-hook="upload '$package' /tmp/quicksand.deb" \
    --customize-hook='chroot "$1" apt-get install --yes --quiet /tmp/quicksand.deb' \
    --customize-hook='rm "$1/tmp/quicksand.deb"' \
    --customize-hook='upload deploy/image-entry /usr/lib/quicksand/image-entry' \
    --customize-hook='chmod 0755 "$1/usr/lib/quicksand/image-entry"' \
    bookworm "$scratch/root.tar" "$scratch/sources.list" >"$scratch/log" 2>&1 || { tail -n 25 "$scratch/log" >&2; exit 1; }

echo "[image] $output"
container=$("${buildah[@]}" from scratch)
"${buildah[@]}" add --quiet "$container" "$scratch/root.tar" / >/dev/null
"${buildah[@]}" config --entrypoint '["/usr/lib/quicksand/image-entry"]' --cmd serve --port 3000 --volume /var/lib/quicksand \
    --env HOME=/var/lib/quicksand/home --stop-signal SIGTERM --label org.opencontainers.image.title=quicksand \
    --label "org.opencontainers.image.version=$version" --label org.opencontainers.image.licenses=Apache-2.0 "$container"
rm -f "$output"
"${buildah[@]}" commit --quiet "$container" "oci-archive:$output:quicksand:$version" >/dev/null
ls -sh "$output"
