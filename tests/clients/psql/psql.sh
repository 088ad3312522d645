#!/usr/bin/env bash
# psql as it starts in a container or over ssh, and pg_dump.
# What \d shows is tested in crates/braid/tests/clients.rs, restored dumps in its dumps.rs.
set -euo pipefail
export PSQLRC=/dev/null

fail() { echo "$*" >&2; exit 1; }
is() { [ "$2" = "$3" ] || fail "$1: got '$2', wanted '$3'"; }
ask() { psql -XAtq -v ON_ERROR_STOP=1 -c "$1"; }

# What psql does on a terminal: libpq asks for the encoding of the locale.
is "LANG=C" "$(LC_ALL=C psql -XAtqd 'client_encoding=auto' -c 'show client_encoding')" SQL_ASCII
for encoding in LATIN1 latin-9 'iso_8859-15' WIN1252 'windows-1250' SQL_ASCII; do
    PGCLIENTENCODING=$encoding ask 'select 1' >/dev/null || fail "$encoding"
done
is "bytes" "$(PGCLIENTENCODING=LATIN1 ask 'select chr(233)' | od -An -tx1 | tr -d ' \n')" e90a
is "length" "$(printf "select length('\xe9\xe8')" | PGCLIENTENCODING=LATIN1 psql -XAtq)" 2
is "copy" "$(printf "create table psql_copy (t text);\ncopy psql_copy from stdin;\n\xe9\n\\\\.\nselect length(t), ascii(t) from psql_copy;\ndrop table psql_copy;\n" |
    PGCLIENTENCODING=WIN1252 psql -XAtq)" '1|233'
refused=$(PGCLIENTENCODING=LATIN1 psql -XAtq -v VERBOSITY=sqlstate -c 'select chr(8364)' 2>&1 || true)
is "no euro sign" "$refused" 'ERROR:  22P05'
is "options" "$(PGOPTIONS='-c geqo=off --work-mem=8MB' ask "select current_setting('geqo'), current_setting('work_mem')")" 'off|8MB'
refused=$(PGOPTIONS='-c nope=1' psql -c 'select 1' 2>&1 || true)
case $refused in *'unrecognized configuration parameter "nope"'*) ;; *) fail "$refused" ;; esac

ask 'create table psql_dumped (id serial primary key, t text); insert into psql_dumped (t) values (chr(233))'
dump=$(pg_dump --no-owner -t psql_dumped)
ask 'drop table psql_dumped'
printf '%s\n' "$dump" | psql -XAtq -v ON_ERROR_STOP=1 >/dev/null
is "pg_dump" "$(ask "select id, ascii(t), nextval('psql_dumped_id_seq') from psql_dumped")" '1|233|2'
ask 'drop table psql_dumped'
