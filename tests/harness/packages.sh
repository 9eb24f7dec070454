#!/bin/bash
# Fetches the Debian packages that the tests' package mirror (mirror.mjs) offers: packages.sh DIRECTORY BASE_LAYER
#
# They are those of a minimal Debian, a small one to install besides and gh, which the recipe relay-workspace installs, from the
# archives that the base template was made from. apt knows of no installed package here, so that it fetches all that they need. What is there is not fetched again; a
# directory that was not finished is not there.
set -euo pipefail

packages=('?essential' apt ca-certificates usr-is-merged hello gh)

mkdir -p "$1"
folder=$(cd "$1" && pwd)
sources=$2/etc/apt/sources.list
wanted=$(cat "$0" "$sources" | sha256sum)
[ "$(cat "$folder/made-by" 2>/dev/null)" != "$wanted" ] || exit 0

work=$(mktemp -d "$folder/work-XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{etc/apt.conf.d,etc/preferences.d,etc/trusted.gpg.d,lists/partial,archives/partial}
: >"$work/status"
cat >"$work/apt.conf" <<END_OF_CONF
Dir::Etc "$work/etc";
Dir::Etc::sourcelist "$sources";
Dir::Etc::sourceparts "-";
Dir::State "$work";
Dir::State::lists "$work/lists";
Dir::State::status "$work/status";
Dir::Cache "$work";
Dir::Cache::archives "$work/archives";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "5";
END_OF_CONF
export APT_CONFIG=$work/apt.conf
apt-get -q --error-on=any update
apt-get -q --yes --download-only install "${packages[@]}"
rm -rf "$folder/pool" "$work"/archives/{partial,lock}
# As in an archive, names of files are without what stands before the colon of a version.
for deb in "$work"/archives/*%3a*.deb; do
    mv "$deb" "$(sed 's/_[0-9]*%3a/_/' <<<"$deb")"
done
mv "$work/archives" "$folder/pool"
cd "$folder"
for deb in pool/*.deb; do
    dpkg-deb --field "$deb"
    printf 'Filename: %s\nSize: %s\nSHA256: %s\n\n' "$deb" "$(stat -c %s "$deb")" "$(sha256sum <"$deb" | cut -d ' ' -f 1)"
done >"$folder/Packages"
echo "$wanted" >"$folder/made-by"
