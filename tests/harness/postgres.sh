#!/bin/bash
# Runs a command beside a PostgreSQL of its own: postgres.sh COMMAND...
#
# The cluster is new, in a temporary folder, reachable only by a socket in it, and gone afterwards.
# QUICKSAND_TEST_POSTGRES says to the command where it is. Without the package (tools/setup.sh test) it fails.
set -euo pipefail

bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
[ -n "$bin" ] || { echo "PostgreSQL is missing: tools/setup.sh test" >&2; exit 1; }
folder=$(mktemp -d /tmp/quicksand-postgres.XXXXXX)
server=

finish()
{
    [ -z "$server" ] || { kill -QUIT "$server" && wait "$server"; } 2>/dev/null || true
    rm -rf "$folder"
}
trap finish EXIT
trap 'exit 1' INT TERM

# It refuses to be root. When this script is killed, it ends too.
as_user=(setpriv --pdeathsig=QUIT)
if [ "$(id -u)" -eq 0 ]; then
    chown postgres "$folder"
    as_user+=(--reuid=postgres --regid=postgres --clear-groups)
fi

start()
{
    cd "$folder"
    "${as_user[@]}" "$bin/initdb" -D data --username=postgres --auth=trust --encoding=UTF8 --locale=C \
        --no-sync --no-instructions >log 2>&1 || return
    "${as_user[@]}" "$bin/postgres" -D data -c listen_addresses= -c unix_socket_directories="$folder" \
        -c fsync=off -c max_connections=60 >>log 2>&1 &
    server=$!
    until "$bin/pg_isready" -q -h "$folder"; do
        kill -0 "$server" || return
        sleep 0.1
    done
    cd - >/dev/null
}

start || { cat "$folder/log" >&2; exit 1; }
export QUICKSAND_TEST_POSTGRES="host=$folder dbname=postgres user=postgres"
"$@" &
wait $!
