#!/usr/bin/env python3
"""Runs what clients were seen to ask the catalogs on Braid and PostgreSQL: the same rows are
expected, but for the numbers of objects, which are each server's own.

A file has statements, apart by lines of `;;;`. The numbers in `--named 16400=child` stand for the
table of that name. Ends with 1 if a statement differs.
"""

import argparse
import re
import sys
from pathlib import Path

import peer_servers
import peer_session

SETUP = """
create table parent (id serial primary key, name varchar(20) not null unique,
    paid numeric(12,2) default 0 check (paid >= 0), note text default 'x');
create table child (id int generated always as identity primary key, parent_id int not null,
    at timestamptz default now(), kinds bytea, unique (parent_id, at));
create index child_at on child (at desc);
create sequence loose
"""

# Numbers from here on are objects that a server has numbered itself.
FIRST_OWN = 12_000


def statements(path):
    parts = re.split(r"^;;;$", path.read_text(encoding="utf-8"), flags=re.M)
    return [p.strip() for p in parts if p.strip()]


def number_of(session, name):
    return session.one(f"select '{name}'::regclass::oid").rows[0][0]


def plain(value):
    """A value without what is each server's own."""
    own = lambda m: "#" if int(m.group()) >= FIRST_OWN else m.group()
    return value if value is None else re.sub(r"\b\d{5,10}\b", own, value)


def outcome(answer):
    if answer.kind == "rows":
        rows = sorted(tuple(map(plain, r)) for r in answer.rows)
        return ("rows", answer.names, answer.types, [tuple(v or "" for v in r) for r in rows])
    return (answer.kind, answer.sqlstate)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--braid", required=True)
    parser.add_argument("--postgres", default="/usr/lib/postgresql/15/bin")
    parser.add_argument("--named", action="append", default=[])
    parser.add_argument("--show", action="store_true", help="what differs")
    options = parser.parse_args()
    named = dict(n.split("=") for n in options.named)
    braid = peer_servers.Braid(options.braid)
    postgres = peer_servers.Postgres(options.postgres)
    try:
        sessions = [
            peer_session.Session(braid.conninfos[0], 20),
            peer_session.Session(postgres.conninfo, 20),
        ]
        for session in sessions:
            for answer in session.run(SETUP):
                if not answer.succeeded():
                    raise SystemExit(f"the tables are not made: {answer}")
        numbers = [{n: number_of(s, name) for n, name in named.items()} for s in sessions]
        totals = {"same": 0, "refused": 0, "other code": 0, "different": 0}
        for path in options.files:
            counts = dict.fromkeys(totals, 0)
            for statement in statements(path):
                answers = []
                for session, own in zip(sessions, numbers):
                    text = statement
                    for number, mine in own.items():
                        text = re.sub(rf"\b{number}\b", mine, text)
                    answers.append(session.run(text)[-1])
                kind = judged(*answers)
                counts[kind] += 1
                totals[kind] += 1
                if options.show and kind != "same":
                    print(f"## {path.name}: {kind}\n{statement[:1500]}\n-- Braid:\n{answers[0]}")
                    print(f"-- PostgreSQL:\n{answers[1]}\n")
            print(path.name, counts)
        print("all", totals)
        sys.exit(0 if totals["same"] == sum(totals.values()) else 1)
    finally:
        braid.stop()
        postgres.stop()


def judged(braid, postgres):
    if outcome(braid) == outcome(postgres):
        return "same"
    if braid.kind == "error":
        return "refused" if braid.sqlstate == "0A000" else "other code"
    return "different"


if __name__ == "__main__":
    main()
