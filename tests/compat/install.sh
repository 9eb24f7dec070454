#!/bin/bash
# Installs the published SDK versions that the compatibility tests drive into build/npm/<version>, and a
# Node.js that they run on: install.sh. Prints nothing when everything is there.
#
# `latest` is asked for again when its copy is older than a day. What was fetched stays in build/npm/cache, so that a test
# can install it as a reader of README.md does.
set -euo pipefail
cd "$(dirname "$0")/../.."

versions=(2.14.0 2.19.0 2.27.1 2.45.0 latest)

npm_install()
{
    local folder=$1
    shift
    echo "[npm] $*"
    rm -rf "$folder.partial"
    mkdir -p "$folder.partial"
    echo '{"private":true,"type":"module"}' >"$folder.partial/package.json"
    npm install --prefix "$folder.partial" --cache "$PWD/build/npm/cache" --no-audit --no-fund --no-progress --loglevel=error "$@" >"$folder.log" 2>&1 ||
        { cat "$folder.log" >&2; return 1; }
    rm -rf "$folder"
    mv "$folder.partial" "$folder"
}

mkdir -p build/npm
for version in "${versions[@]}"; do
    folder=build/npm/$version
    if [ -d "$folder/node_modules/e2b" ] && { [ "$version" != latest ] || { [ -d build/npm/cache ] && [ -n "$(find "$folder" -maxdepth 0 -mtime -1)" ]; }; }; then
        continue
    fi
    npm_install "$folder" "e2b@$version"
    touch "$folder"
done

# The command line E2B publishes.
[ -d build/npm/cli ] || npm_install build/npm/cli @e2b/cli

# What generated clients of other languages are made of, for the agent's binary codec.
[ -d build/npm/connect ] || npm_install build/npm/connect @bufbuild/buf @bufbuild/protobuf @connectrpc/connect @connectrpc/connect-node

# What drives the terminal's page and its WebSocket. The browser itself is Debian's.
[ -d build/npm/web ] || npm_install build/npm/web ws@8.22.2 playwright-core@1.65.0

# The SDK wants Node.js 20.18 or later; Debian 12 has 18. npm knows how to bring a newer one.
if ! node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 18) ? 0 : 1)'; then
    [ -x build/npm/node/node_modules/node/bin/node ] || npm_install build/npm/node node@22
fi

# The server that runs agents in sandboxes, for sessions.
[ -d build/npm/sandbox-agent ] || npm_install build/npm/sandbox-agent @sandbox-agent/cli-linux-x64@0.4.2
chmod 0755 build/npm/sandbox-agent/node_modules/@sandbox-agent/cli-linux-x64/bin/sandbox-agent
