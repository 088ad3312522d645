"""pgcli: what it completes, each of its backslash commands, statements, a session at a terminal."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pexpect
from pgcli.pgexecute import PGExecute
from pgspecial.main import PGSpecial

HOST, PORT = os.environ["PGHOST"], os.environ["PGPORT"]
USER, DATABASE = os.environ["PGUSER"], os.environ["PGDATABASE"]

MADE = """
drop schema if exists cli cascade;
create schema cli;
comment on schema cli is 'of pgcli';
create type cli.mood as enum ('sad', 'ok');
create domain cli.positive as int check (value > 0);
create table cli.person (id bigserial primary key, name varchar(40) not null unique, mood cli.mood);
create table cli.pet (
    owner bigint references cli.person on delete cascade, name text, n cli.positive);
create index pet_name on cli.pet (lower(name)) where owner is not null;
create view cli.sad as select * from cli.person where mood = 'sad';
create materialized view cli.pets as select count(*) as n from cli.pet;
create function cli.twice(x int, out y int) language sql as 'select 2 * x';
create function cli.touch() returns trigger language plpgsql as 'begin return new; end';
create trigger touch before update on cli.pet for each row execute function cli.touch();
"""
# Each with what has to be in its answer.
COMMANDS = {
    r"\l": DATABASE,
    r"\l+": DATABASE,
    r"\du": USER,
    r"\du+": USER,
    r"\dp cli.*": "person",
    r"\ddp": "",
    r"\db": "pg_default",
    r"\db+": "pg_default",
    r"\dn": "cli",
    r"\dn+": "of pgcli",
    r"\dx": "plpgsql",
    r"\dt cli.*": "pet",
    r"\dt+ cli.*": "person",
    r"\dv cli.*": "sad",
    r"\dv+ cli.*": "sad",
    r"\dm cli.*": "pets",
    r"\ds cli.*": "person_id_seq",
    r"\di cli.*": "pet_name",
    r"\di+ cli.*": "pet_name",
    r"\df cli.*": "twice",
    r"\df+ cli.*": "touch",
    r"\dT cli.*": "mood",
    r"\dT+ cli.*": "sad",
    r"\dD cli.*": "positive",
    r"\d": "",
    r"\d cli.person": "TABLE \"cli.pet\"",
    r"\d+ cli.pet": "touch BEFORE UPDATE",
    r"\d cli.sad": "mood",
    r"\d+ cli.sad": "person",
    r"\d+ cli.pets": "count",
    r"\d cli.person_id_seq": "",
    r"\d cli.pet_name": "lower",
    r"\sf cli.twice": "2 * x",
    r"\sf+ cli.touch": "return new",
    r"\dE": "",
}


def told(execute, text):
    """Everything that pgcli shows of an answer."""
    special = PGSpecial()
    parts = []
    for title, rows, headers, status, *_ in execute.run(text, special):
        parts += [str(title), str(headers), str(status)]
        parts += [str(row) for row in rows or []]
    return "\n".join(parts)


def completions(execute):
    """What is asked for completions."""
    assert execute.search_path()[-1] == "public", execute.search_path()
    assert "cli" in execute.schemata()
    tables = [name for schema, name in execute.tables() if schema == "cli"]
    assert sorted(tables) == ["person", "pet"], tables
    assert ("cli", "pets") in list(execute.views())
    columns = {(c[1], c[2]): c[3:5] for c in execute.table_columns() if c[0] == "cli"}
    assert columns["person", "mood"][0] == "cli.mood" and columns["person", "id"][1], columns
    assert ("cli", "sad", "name") in [tuple(c[:3]) for c in execute.view_columns()]
    assert DATABASE in execute.databases()
    assert execute.full_databases()[0]
    keys = [tuple(key) for key in execute.foreignkeys() if key.childschema == "cli"]
    assert keys == [("cli", "person", "id", "cli", "pet", "owner")], keys
    functions = {f.func_name: f for f in execute.functions() if f.schema_name == "cli"}
    assert functions["twice"].arg_modes == ("i", "o")
    kinds = [name for schema, name in execute.datatypes() if schema == "cli"]
    assert {"mood", "positive"} <= set(kinds), kinds
    list(execute.casing())
    assert "2 * x" in execute.function_definition("cli.twice")
    assert "person" in execute.view_definition("cli.sad")
    assert execute.get_timezone() and not execute.is_virtual_database()


def session(program):
    """The program at a terminal: an error, a completion, a transaction, and its end."""
    with tempfile.TemporaryDirectory() as home:
        env = os.environ | {"HOME": home, "XDG_CONFIG_HOME": home, "TERM": "xterm", "PAGER": "cat"}
        cli = pexpect.spawn(program, ["--less-chatty", "--prompt", "next>"], env=env, timeout=30)
        cli.setwinsize(50, 200)
        for line, wanted in [
            ("select 40 + 2 as answer;", "42"),
            ("select nothing;", "does not exist"),
            ("begin;", "BEGIN"),
            ("rollback;", "ROLLBACK"),
            (r"\d cli.person", "person_pkey"),
        ]:
            cli.expect("next>")
            cli.send(line + "\r")
            cli.expect(wanted)
        cli.expect("next>")
        cli.sendeof()
        cli.expect(pexpect.EOF)
    done = [program, "-t", "-c", "select 6 * 7", "-c", r"\dt cli.*"]
    assert "42" in subprocess.run(done, check=True, capture_output=True, text=True).stdout


execute = PGExecute(database=DATABASE, user=USER, host=HOST, port=PORT)
for statement in MADE.strip().split(";\n"):
    told(execute, statement)
completions(execute)
for command, wanted in COMMANDS.items():
    answer = told(execute, command)
    assert wanted in answer, f"{command}: {answer}"
session(str(Path(sys.executable).parent / "pgcli"))
told(execute, "drop schema cli cascade")
