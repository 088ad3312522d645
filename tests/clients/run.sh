#!/usr/bin/env bash
# Connects real clients to a braid that this script starts, each with its first queries.
#
#     tests/clients/run.sh [psql|python|orms|node|go|java ...]      (default: all)
#
# BRAID is the program (default: the newest of target/release/braid and target/debug/braid).
# What is installed goes to CLIENTS_CACHE (default: ~/.cache/braid-clients), not into the tree.
# A kind of client whose tools are missing on the machine is skipped, and said so.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${CLIENTS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/braid-clients}
target=${CARGO_TARGET_DIR:-$here/../../target}
braid=${BRAID:-$(ls -t "$target"/release/braid "$target"/debug/braid 2>/dev/null | head -1)}
[ -x "$braid" ] || { echo "no braid: build it, or name it in BRAID" >&2; exit 2; }
mkdir -p "$cache"
work=$(mktemp -d)
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$braid" instance --data "$work/data" --port "$port" --buffer-cache 64MB \
    --set superuser=tester >"$work/log" 2>&1 &
instance=$!
trap 'kill "$instance" 2>/dev/null; wait "$instance" 2>/dev/null; rm -rf "$work"' EXIT

export PGHOST=127.0.0.1 PGPORT=$port PGUSER=tester PGDATABASE=braid
export BRAID_AUTHORITY=$work/data/tls/authority.pem
# psql ends with 2 until the database is open.
opened() { psql -XAtqc 'select 1' >/dev/null 2>&1; }
for attempt in $(seq 300); do
    opened && break
    kill -0 "$instance" || { cat "$work/log" >&2; exit 1; }
    # Waiting for another program's port: there is nothing to be woken by.
    sleep 0.1
done
opened || { echo "braid did not open after $attempt attempts" >&2; cat "$work/log" >&2; exit 1; }

failed=()
run() {
    local name=$1
    shift
    if timeout 60 "$@" >"$work/out" 2>&1; then
        echo "ok      $name"
    else
        echo "FAILED  $name"
        sed 's/^/        /' "$work/out" | head -40
        failed+=("$name")
    fi
}
has() {
    local tool
    for tool; do
        command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed"; return 1; }
    done
}

run_psql() { run psql bash "$here/psql/psql.sh"; }
run_python() {
    has python3 || return 0
    [ -x "$cache/python/bin/pip" ] || python3 -m venv "$cache/python"
    "$cache/python/bin/pip" install -q -r "$here/python/requirements.txt"
    for client in asyncpg psycopg2 psycopg3; do
        run "$client" "$cache/python/bin/python" "$here/python/${client}_client.py"
    done
}
run_orms() {
    has python3 || return 0
    [ -x "$cache/orms/bin/pip" ] || python3 -m venv "$cache/orms"
    "$cache/orms/bin/pip" install -q -r "$here/orms/requirements.txt"
    for program in django_app sqlalchemy_app; do
        run "$program" "$cache/orms/bin/python" "$here/orms/$program.py"
    done
}
run_node() {
    has node npm || return 0
    mkdir -p "$cache/node"
    cp "$here"/node/*.js* "$cache/node/"
    (cd "$cache/node" && npm ci --silent --no-audit --no-fund)
    for client in pg postgres sequelize typeorm drizzle; do
        run "$client" node "$cache/node/$client.js"
    done
}
run_go() {
    has go || return 0
    (cd "$here/go" && GOMODCACHE="$cache/go" go build -modcacherw -o "$cache/go-clients" .)
    run "pgx and lib/pq" "$cache/go-clients"
}
run_java() {
    has java mvn || return 0
    mkdir -p "$cache/java"
    cp -r "$here/java/." "$cache/java/"
    (cd "$cache/java" && mvn -q -B -Dmaven.repo.local="$cache/m2" compile dependency:build-classpath -Dmdep.outputFile=classpath)
    run "pgjdbc and Hibernate" java -cp "$cache/java/target/classes:$(cat "$cache/java/classpath")" clients.Main
}

[ $# -gt 0 ] || set -- psql python orms node go java
for kind; do "run_$kind"; done
if [ ${#failed[@]} -gt 0 ]; then
    echo "failed: ${failed[*]}"
    exit 1
fi
