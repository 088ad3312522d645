#!/usr/bin/env bash
# Connects real clients to two instances that this script starts, most with their first queries.
#
#     tests/clients/run.sh [psql|python|orms|tools|node|prisma|go|rust|scripts|java|failover ...]
#
# Default: all but failover, which starts instances of its own and kills them.
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
# The first of two free ports in a row: instance 2 listens on the one behind that of instance 1.
port=$(python3 - <<'PORTS'
import socket
while True:
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
        try:
            two.bind(("127.0.0.1", port + 1))
        except (OSError, OverflowError):
            continue
        print(port)
        break
PORTS
)
start() {
    "$braid" instance --data "$work/data" --port "$port" --instance "$1" --buffer-cache 64MB \
        --set superuser=tester >"$work/log$1" 2>&1 &
    started+=($!)
}
started=()
trap 'kill "${started[@]}" 2>/dev/null; wait 2>/dev/null; rm -rf "$work"' EXIT

export PGHOST=127.0.0.1 PGPORT=$port PGPORT2=$((port + 1)) PGUSER=tester PGDATABASE=braid
export BRAID_AUTHORITY=$work/data/tls/authority.pem
# psql ends with 2 until the database is open.
opened() { psql -XAtqc 'select 1' -p "$1" >/dev/null 2>&1; }
for instance in 1 2; do
    start "$instance"
    at=$((port + instance - 1))
    for attempt in $(seq 300); do
        opened "$at" && break
        kill -0 "${started[-1]}" || { cat "$work/log$instance" >&2; exit 1; }
        # Waiting for another program's port: there is nothing to be woken by.
        sleep 0.1
    done
    opened "$at" || { echo "instance $instance did not open after $attempt attempts" >&2; cat "$work/log$instance" >&2; exit 1; }
done

failed=()
run() {
    local name=$1
    shift
    local limited=(timeout "${limit:-120}")
    # timeout knows no functions.
    [ "$(type -t "$1")" = function ] && limited=()
    if "${limited[@]}" "$@" >"$work/out" 2>&1; then
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
run_tools() {
    has python3 || return 0
    [ -x "$cache/tools/bin/pip" ] || python3 -m venv "$cache/tools"
    "$cache/tools/bin/pip" install -q -r "$here/tools/requirements.txt"
    for program in pgcli pg_activity; do
        run "$program" "$cache/tools/bin/python" "$here/tools/${program}_client.py"
    done
    has go || return 0
    local exporter=github.com/prometheus-community/postgres_exporter/cmd/postgres_exporter@v0.18.1
    if ! [ -x "$cache/postgres_exporter" ] &&
        ! GOBIN=$cache GOMODCACHE="$cache/go" GOFLAGS=-modcacherw go install "$exporter"; then
        echo "skipped postgres_exporter: it cannot be had"
        return 0
    fi
    run "postgres_exporter" python3 "$here/tools/exporter_client.py" "$cache/postgres_exporter"
}
run_node() {
    has node npm || return 0
    mkdir -p "$cache/node"
    cp "$here"/node/*.js* "$cache/node/"
    (cd "$cache/node" && npm ci --silent --no-audit --no-fund)
    for client in pg pg_more postgres sequelize typeorm drizzle knex; do
        run "$client" node "$cache/node/$client.js"
    done
}
run_prisma() {
    has node npm || return 0
    mkdir -p "$cache/prisma"
    cp "$here"/prisma/* "$cache/prisma/"
    # Its engines in JavaScript are in its packages; the others would be loaded by their scripts.
    (cd "$cache/prisma" && npm ci --silent --no-audit --no-fund --ignore-scripts)
    # Two of its commands wait a minute each once they are done, with PostgreSQL too.
    limit=600 run "Prisma" node "$cache/prisma/prisma.js"
}
run_rust() {
    has cargo || return 0
    (cd "$here/rust" && cargo build --locked -q --target-dir "$cache/rust")
    run "tokio-postgres and sqlx" "$cache/rust/debug/clients"
}
build_go() {
    (cd "$here/go" && GOMODCACHE="$cache/go" go build -modcacherw -o "$cache/go-clients" .)
}
run_go() {
    has go || return 0
    build_go
    run "pgx, lib/pq, GORM and golang-migrate" "$cache/go-clients"
}
# A program whose lines are those that PostgreSQL gave.
run_lines() {
    local expected=$1
    shift
    timeout 120 "$@" 2>"$work/err" | diff - "$expected" || { cat "$work/err"; return 1; }
}
run_scripts() {
    if has perl && perl -MDBD::Pg -e 1 2>/dev/null; then
        run "DBD::Pg" run_lines "$here/perl/dbi.expected" perl "$here/perl/dbi.pl"
    fi
    if has php && php -m | grep -q pdo_pgsql; then
        run "PDO" run_lines "$here/php/pdo.expected" php "$here/php/pdo.php"
    fi
    if has ruby && ruby -e 'require "active_record"' 2>/dev/null; then
        run "ActiveRecord" run_lines "$here/ruby/active_record.expected" ruby -W0 "$here/ruby/active_record.rb"
    fi
    if has ruby && ruby -e 'require "pg"' 2>/dev/null; then
        run "ruby-pg" run_lines "$here/ruby/pg.expected" ruby "$here/ruby/pg.rb"
    fi
}
build_java() {
    mkdir -p "$cache/java"
    cp -r "$here/java/." "$cache/java/"
    (cd "$cache/java" && mvn -q -B -Dmaven.repo.local="$cache/m2" compile dependency:build-classpath -Dmdep.outputFile=classpath)
    java=(java -cp "$cache/java/target/classes:$(cat "$cache/java/classpath")" clients.Main)
}
run_java() {
    has java mvn || return 0
    build_java
    for client in jdbc hibernate flyway liquibase jooq spring; do
        run "$client" "${java[@]}" "$client"
    done
}
run_failover() {
    has python3 java mvn go || return 0
    build_go
    build_java
    [ -x "$cache/python/bin/pip" ] || python3 -m venv "$cache/python"
    "$cache/python/bin/pip" install -q -r "$here/python/requirements.txt"
    "$cache/python/bin/python" "$here/failover/failover.py" --braid "$braid" --rounds "${ROUNDS:-3}" \
        --client "libpq=$cache/python/bin/python $here/failover/libpq_client.py" \
        --client "pgjdbc=${java[*]} failover" --client "pgx=$cache/go-clients failover" ||
        failed+=(failover)
}

[ $# -gt 0 ] || set -- psql python orms tools node prisma go rust scripts java
for kind; do "run_$kind"; done
if [ ${#failed[@]} -gt 0 ]; then
    echo "failed: ${failed[*]}"
    exit 1
fi
