#!/usr/bin/env python3
"""Runs PostgreSQL's regression files on Braid and on PostgreSQL, statement by statement.

    regress.py SOURCE --braid target/debug/braid [FILE ..] [--show KIND[,KIND]] [--json FILE]
    regress.py SOURCE --check-runner [FILE ..]

SOURCE is a source tree of PostgreSQL 15; FILE is the name of a file in src/test/regress/sql,
without its ending. Each file runs in a database of its own on both sides, after test_setup. The
second form has another PostgreSQL in Braid's place, so that everything should be the same. Ends
with 1 if a statement is different, hangs, crashes or has another code, and regress_differences.toml
has no reason for it.
"""

import argparse
import collections
import json
import re
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from pathlib import Path

import psycopg

import peer_compare
import peer_servers
import peer_session
import regress_file
import regress_step

REASONS = Path(__file__).with_name("regress_differences.toml")
SETUP = "test_setup"
# Files that stand on others, by the notes in PostgreSQL's parallel_schedule and by their contents.
STANDS_ON = {
    "aggregates": ["create_aggregate"],
    "alter_table": ["create_index"],
    "arrays": ["create_index"],
    "amutils": ["geometry", "create_index_spgist", "hash_index", "brin"],
    "create_index_spgist": ["create_index"],
    "geometry": ["point", "lseg", "line", "box", "path", "polygon", "circle"],
    "horology": ["date", "time", "timetz", "timestamp", "timestamptz", "interval"],
    "inherit": ["create_misc"],
    "join": ["create_misc"],
    "jsonb": ["create_index"],
    "multirangetypes": ["rangetypes"],
    "portals": ["create_index"],
    "psql": ["create_am"],
    "rowtypes": ["create_misc"],
    "select": ["create_misc", "create_index"],
    "select_parallel": ["create_misc"],
    "select_views": ["create_misc", "create_view"],
    "tsearch": ["create_index"],
    "with": ["create_misc"],
}
# As pg_regress sets them, where Braid takes them in a startup packet.
PARAMETERS = {
    "timezone": "America/Los_Angeles",
    "datestyle": "Postgres, MDY",
    "intervalstyle": "postgres_verbose",
}
BAD = (peer_compare.OTHER_CODE, peer_compare.DIFFERENT, peer_compare.HANG, peer_compare.CRASH)


class BraidSide:
    """Braid with a fresh database for each file: a copy of what test_setup has left."""

    def __init__(self, program, options):
        self.program = program
        self.options = options
        self.template = Path(tempfile.mkdtemp(prefix="braid-peers-template-"))
        self.server = peer_servers.Braid(program, 1, options)

    def conninfo(self):
        return self.server.conninfos[0]

    def keep(self):
        self.server.stop_instances()
        shutil.copytree(self.server.data(), self.template / "data")

    def begin(self):
        self.server.stop()
        self.server = peer_servers.Braid(self.program, 1, self.options, self.template / "data")

    def end(self, _name):
        """The next file begins with another database anyway."""

    def restart(self):
        return self.server.restart()

    def stop(self):
        self.server.stop()
        shutil.rmtree(self.template)


class PostgresSide:
    """PostgreSQL with a fresh database for each file, made from what test_setup has left."""

    def __init__(self, programs):
        self.server = peer_servers.Postgres(programs)
        # Braid's roles may do this anyway.
        with psycopg.connect(self.server.conninfo, autocommit=True) as connection:
            connection.execute("grant all on schema public to public")

    def conninfo(self):
        return self.server.conninfo

    def keep(self):
        self.server.administer(f"alter database {peer_servers.DATABASE} rename to {SETUP}")

    def begin(self):
        self.server.administer(f"create database {peer_servers.DATABASE} template {SETUP}")

    def end(self, name):
        """What keeps a database from being dropped stays behind under another name."""
        database = peer_servers.DATABASE
        try:
            self.server.administer(f"drop database {database} with (force)")
        except psycopg.Error:
            self.server.administer(f"alter database {database} rename to left_by_{name}")
        roles = "select quote_ident(rolname) from pg_roles where rolname like 'regress%'"
        for (role,) in self.server.administer(roles):
            try:
                self.server.administer(f"drop role {role}")
            except psycopg.errors.DependentObjectsStillExist:
                continue

    def restart(self):
        raise SystemExit("PostgreSQL is gone")

    def stop(self):
        self.server.stop()


class Run:
    """Both sides, and what runs on them."""

    def __init__(self, options):
        self.options = options
        self.folder = options.source / "src/test/regress"
        # Where each side may write files.
        self.written = tempfile.TemporaryDirectory(prefix="peers-written-")
        self.environment = [self.environment_of(side) for side in ("ours", "theirs")]
        self.postgres = PostgresSide(options.postgres)
        if options.check_runner:
            self.braid = PostgresSide(options.postgres)
        else:
            self.braid = BraidSide(options.braid, options.braid_options)
        self.parameters = self.accepted_parameters()

    def environment_of(self, side):
        written = Path(self.written.name) / side
        (written / "results").mkdir(parents=True)
        for folder in (written.parent, written, written / "results"):
            folder.chmod(0o777)
        source = str(self.folder)
        return {
            "PG_ABS_SRCDIR": source,
            "PG_DLSUFFIX": ".so",
            "PG_LIBDIR": source,
            "PG_ABS_BUILDDIR": str(written),
        }

    def set_up(self):
        """Runs test_setup, and keeps what it leaves on both sides."""
        verdicts = self.script(SETUP)
        for side in (self.braid, self.postgres):
            side.keep()
        return verdicts

    def accepted_parameters(self):
        accepted = {}
        for name, value in PARAMETERS.items():
            with psycopg.connect(self.braid.conninfo(), autocommit=True) as connection:
                try:
                    connection.execute(f"set {name} = '{value}'")
                    accepted[name] = value
                except psycopg.Error as e:
                    print(f"not set on either side: {name} ({e.sqlstate})")
        return accepted

    def connect(self):
        sessions = [
            peer_session.Session(conninfo, self.options.statement_seconds, self.parameters)
            for conninfo in (self.braid.conninfo(), self.postgres.conninfo())
        ]
        return regress_step.Pair(*sessions)

    def recover(self):
        """Starts Braid again if it is dead or lets nobody in; returns its last words then."""
        try:
            session = peer_session.Session(self.braid.conninfo(), 5)
            session.close()
            return ""
        except psycopg.OperationalError:
            return self.braid.restart()

    def script(self, name):
        path = self.folder / "sql" / f"{name}.sql"
        return regress_file.Script(path, self.connect, self.recover, self.environment).run()

    def file(self, name):
        for side in (self.braid, self.postgres):
            side.begin()
        try:
            for other in STANDS_ON.get(name, []):
                self.script(other)
            return self.script(name)
        finally:
            for side in (self.braid, self.postgres):
                side.end(name)

    def stop(self):
        for side in (self.braid, self.postgres):
            side.stop()
        self.written.cleanup()


def reason_of(verdict, known):
    """Why a statement is known to differ, None if it is not."""
    for entry in known:
        files = entry.get("files", [verdict.file])
        if verdict.file not in files or verdict.kind not in entry.get("kinds", ["different"]):
            continue
        if re.search(entry["statement"], verdict.text, re.IGNORECASE | re.DOTALL):
            return entry["reason"]
    return None


def detail(what, answer):
    """What an error says beside its message, if it is that which differs."""
    return f" [{getattr(answer, what) or 'none'}]" if what in ("position", "hint") else ""


def show(verdict, reason):
    note = f" ({verdict.what})" if verdict.what else ""
    print(f"  -- {verdict.file}.sql:{verdict.line}: {verdict.kind}{note}")
    print("  " + verdict.text.strip().replace("\n", "\n  ") + ";")
    if reason:
        print(f"  -- known: {reason}")
    if verdict.braid:
        for name, answer in (("Braid:      ", verdict.braid), ("PostgreSQL: ", verdict.postgres)):
            words = str(answer).replace("\n", "\n  --             ")
            print(f"  -- {name}{words}{detail(verdict.what, answer)}")


def line_of(name, verdicts, seconds):
    counts = collections.Counter(v.kind for v in verdicts)
    shown = " ".join(f"{counts[kind]:6}" for kind in regress_file.KINDS)
    return f"{name:24} {len(verdicts):6} {shown} {seconds:6.1f}"


def report(name, verdicts, seconds, options, known):
    """Prints a file's line and what is to be shown of it. Returns the verdicts without a reason."""
    print(line_of(name, verdicts, seconds), flush=True)
    unknown = []
    for verdict in verdicts:
        reason = reason_of(verdict, known) if verdict.kind in BAD else None
        if verdict.kind in BAD and not reason:
            unknown.append(verdict)
        told = verdict.kind == "same error" and verdict.what in options.show
        if told or verdict.kind in options.show or verdict.file in options.show:
            show(verdict, reason)
    return unknown


def as_json(verdict):
    return {
        "file": verdict.file,
        "line": verdict.line,
        "text": verdict.text,
        "kind": verdict.kind,
        "what": verdict.what,
        "braid": str(verdict.braid),
        "postgres": str(verdict.postgres),
    }


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--braid", help="the program")
    parser.add_argument("--check-runner", action="store_true", help="PostgreSQL on both sides")
    parser.add_argument("--braid-options", nargs="*", default=[], help="for `braid instance`")
    parser.add_argument("--postgres", default="/usr/lib/postgresql/15/bin", help="its programs")
    parser.add_argument("--show", default="", help="kinds to print, by commas; of errors that are the same also: message, position, hint")
    parser.add_argument("--json", type=Path, help="where all verdicts are written")
    parser.add_argument("--statement-seconds", type=int, default=20)
    options = parser.parse_args()
    if bool(options.braid) == options.check_runner:
        parser.error("either --braid or --check-runner")
    options.show = [kind.strip().replace("-", " ") for kind in options.show.split(",") if kind]
    options.source = options.source.resolve()
    return options


def main():
    options = read_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    known = tomllib.loads(REASONS.read_text(encoding="utf-8"))["difference"]
    names = options.files or sorted(
        p.stem for p in options.source.glob("src/test/regress/sql/*.sql")
    )
    everything, unknown = [], []
    run = Run(options)
    try:
        print(f"{'file':24} {'all':>6} " + " ".join(f"{k[:6]:>6}" for k in regress_file.KINDS))
        begun = time.monotonic()
        verdicts = run.set_up()
        for name in [SETUP] + [n for n in names if n != SETUP]:
            if name != SETUP:
                begun = time.monotonic()
                verdicts = run.file(name)
            seconds = time.monotonic() - begun
            unknown += report(name, verdicts, seconds, options, known)
            everything += verdicts
    finally:
        run.stop()
    print(line_of("all", everything, 0))
    if options.json:
        options.json.write_text(json.dumps([as_json(v) for v in everything], indent=1))
    print(f"{len(unknown)} statements differ without a reason written down")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
