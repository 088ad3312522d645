#!/usr/bin/env python3
"""Dumps one schema of Braid and of PostgreSQL with pg_dump, compares what it wrote, and restores
each dump into both servers.

Each form of a dump (plain, with INSERT, custom and so on) is restored into an empty database of the
other kind and of its own, and dumped there again: the plain text must be that of the first dump.
Ends with 1 if a step fails or a text differs.
"""

import argparse
import difflib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import peer_servers
import psycopg

SCHEMA = Path(__file__).with_name("dump_schema.sql")
FORMS = {
    "plain": [],
    "inserts": ["--inserts"],
    "column inserts": ["--column-inserts"],
    "clean": ["--clean", "--if-exists"],
    "no owner": ["--no-owner"],
    "custom": ["-Fc"],
    "directory": ["-Fd"],
    "tar": ["-Ft"],
}
PARTS = {
    "schema only": ["--schema-only"],
    "data only": ["--data-only"],
    "one schema": ["-n", "sales"],
    "one table": ["-t", "parent"],
    "without a table": ["-T", "child"],
}


class Failed(Exception):
    pass


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or "ERROR" in done.stderr or "error:" in done.stderr:
        raise Failed(f"{' '.join(command[:2])}: {done.stderr.strip()[:1500]}")
    return done.stdout


def plain(text):
    """A dump without what differs from run to run and from server to server."""
    kept = [
        line
        for line in text.splitlines()
        if not re.match(r"\\(un)?restrict |-- Dumped ", line)
    ]
    return "\n".join(kept)


def dump(conninfo, options=()):
    return plain(run("pg_dump", *options, "-d", conninfo))


def compare(what, wanted, got, show):
    if wanted == got:
        print(f"same      {what}")
        return True
    lines = difflib.unified_diff(wanted.splitlines(), got.splitlines(), lineterm="", n=1)
    lines = list(lines)
    print(f"different {what}: {len(lines)} lines")
    if show:
        print("\n".join(lines[:80]))
    return False


class Databases:
    """Empty databases, one after the other: Braid has one for each server, PostgreSQL many."""

    def __init__(self, options):
        self.options = options
        self.postgres = peer_servers.Postgres(options.postgres)
        self.made = 0

    def braid(self):
        return peer_servers.Braid(self.options.braid)

    def of_postgres(self):
        self.made += 1
        name = f"copy_{self.made}"
        self.postgres.administer(f"create database {name} template template0")
        return f"{self.postgres.address} dbname={name}"


def restore(form, path, conninfo):
    if form in ("custom", "directory", "tar"):
        run("pg_restore", "--exit-on-error", "-d", conninfo, str(path))
    else:
        run("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", str(path), conninfo)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--braid", required=True)
    parser.add_argument("--postgres", default="/usr/lib/postgresql/15/bin")
    parser.add_argument("--show", action="store_true", help="what differs")
    options = parser.parse_args()
    databases = Databases(options)
    first = databases.braid()
    good = True
    try:
        sources = {"Braid": first.conninfos[0], "PostgreSQL": databases.postgres.conninfo}
        for conninfo in sources.values():
            with psycopg.connect(conninfo, autocommit=True) as connection:
                connection.execute(SCHEMA.read_text(encoding="utf-8"))
        whole = {name: dump(conninfo) for name, conninfo in sources.items()}
        good &= compare("whole", whole["PostgreSQL"], whole["Braid"], options.show)
        for part, given in PARTS.items():
            try:
                texts = {name: dump(conninfo, given) for name, conninfo in sources.items()}
            except Failed as e:
                print(f"failed    {part}: {e}")
                good = False
                continue
            good &= compare(part, texts["PostgreSQL"], texts["Braid"], options.show)
        globals_only = ["--globals-only", "--no-role-passwords"]
        texts = {n: plain(run("pg_dumpall", *globals_only, "-d", c)) for n, c in sources.items()}
        good &= compare("globals", texts["PostgreSQL"], texts["Braid"], options.show)
        for form, given in FORMS.items():
            for source, conninfo in sources.items():
                good &= round_trip(databases, (form, given), (source, conninfo), whole, options)
    finally:
        first.stop()
        databases.postgres.stop()
    sys.exit(0 if good else 1)


def round_trip(databases, form, source, whole, options):
    """One form of one server's dump into an empty database of both."""
    (form, given), (source, conninfo) = form, source
    good = True
    with tempfile.TemporaryDirectory(prefix="braid-dumps-") as folder:
        path = Path(folder) / "dump"
        try:
            run("pg_dump", *given, "-f", str(path), "-d", conninfo)
        except Failed as e:
            print(f"failed    {form} of {source}: {e}")
            return False
        copy = databases.braid()
        try:
            for target, to in (
                ("Braid", copy.conninfos[0]),
                ("PostgreSQL", databases.of_postgres()),
            ):
                what = f"{form}: {source} to {target}"
                try:
                    restore(form, path, to)
                    good &= compare(what, whole[source], dump(to), options.show)
                except Failed as e:
                    print(f"failed    {what}: {e}")
                    good = False
        finally:
            copy.stop()
    return good


if __name__ == "__main__":
    main()
