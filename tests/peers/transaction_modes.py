#!/usr/bin/env python3
"""Compares transaction modes and parameters in transactions between Braid and PostgreSQL.

    transaction_modes.py --braid 'host=127.0.0.1 port=5501' --postgres 'host=127.0.0.1 port=5432' \
        [--rounds N] [--seed S]

Each round draws a short sequence of BEGIN, SAVEPOINT, SET, RELEASE, COMMIT AND CHAIN and the like,
runs it on a new session of both servers, and compares rows, tags, errors, notices, the transaction
status and the parameters that the servers report. The first difference of a round is shown with the
sequence up to it and the seed that draws it again. Ends with 1 if anything differed.
"""

import argparse
import random
import sys

import psycopg
from psycopg import pq

TABLE = "transaction_modes_peer"
MODES = [
    "isolation level read committed",
    "isolation level repeatable read",
    "isolation level read uncommitted",
    "read only",
    "read write",
    "deferrable",
    "not deferrable",
]
NAMES = ["a", "b", "c"]
PARAMETERS = {
    "lock_timeout": ["1s", "2s", "3s"],
    "TimeZone": ["'Europe/Berlin'", "'Asia/Tokyo'"],
    "app.level": ["'low'", "'high'"],
}
SHOWN = [
    "transaction_isolation",
    "transaction_read_only",
    "transaction_deferrable",
    "default_transaction_read_only",
    "default_transaction_isolation",
    "lock_timeout",
    "TimeZone",
    "app.level",
]
REPORTED = ["TimeZone", "default_transaction_read_only", "application_name"]


def modes(draw):
    chosen = [draw.choice(MODES) for _ in range(draw.choice([1, 1, 2]))]
    return draw.choice([", ", " "]).join(chosen)


def change(draw):
    name = draw.choice(list(PARAMETERS))
    value = draw.choice(PARAMETERS[name])
    text = value if value.startswith("'") else f"'{value}'"
    return draw.choice(
        [
            f"set {name} = {text}",
            f"set {name} = {text}",
            f"set local {name} = {text}",
            f"set local {name} = {text}",
            f"reset {name}",
            f"set local {name} to default",
            f"select set_config('{name}', {text}, true)",
            f"select set_config('{name}', {text}, false)",
        ]
    )


def mode_change(draw):
    on = draw.choice(["on", "off"])
    return draw.choice(
        [
            f"set transaction {modes(draw)}",
            f"set transaction {modes(draw)}",
            f"set local transaction {modes(draw)}",
            f"set session characteristics as transaction {modes(draw)}",
            f"set transaction_read_only = {on}",
            f"set local transaction_read_only = {on}",
            f"select set_config('transaction_read_only', '{on}', true)",
            f"set default_transaction_read_only = {on}",
            "set transaction_isolation = 'repeatable read'",
            "reset transaction_deferrable",
        ]
    )


def statement(draw):
    """One statement. The weights let most sequences get somewhere."""
    kind = draw.random()
    if kind < 0.16:
        return draw.choice(["begin", "start transaction"]) + draw.choice(["", " " + modes(draw)])
    if kind < 0.30:
        return f"savepoint {draw.choice(NAMES)}"
    if kind < 0.38:
        return f"release {draw.choice(NAMES)}"
    if kind < 0.48:
        return f"rollback to {draw.choice(NAMES)}"
    if kind < 0.56:
        return draw.choice(
            ["commit", "rollback", "commit and chain", "rollback and chain", "end and no chain"]
        )
    if kind < 0.76:
        return change(draw)
    if kind < 0.88:
        return mode_change(draw)
    if kind < 0.92:
        return draw.choice(["select 1", "select 1/0", "reset all"])
    if kind < 0.97:
        return draw.choice(
            [
                f"insert into {TABLE} values (1)",
                f"select count(*) from {TABLE}",
                f"declare k cursor for select * from {TABLE} for update",
                f"explain (costs off) select * from {TABLE}",
                f"lock table {TABLE} in share mode",
            ]
        )
    return f"show {draw.choice(SHOWN)}"


def sequence(draw):
    statements = ["begin"] if draw.random() < 0.6 else []
    while len(statements) < draw.randrange(4, 22):
        piece = statement(draw)
        # Several statements in one message are an implicit block.
        while draw.random() < 0.06:
            piece += "; " + statement(draw)
        statements.append(piece)
    return statements


class Session:
    def __init__(self, conninfo):
        self.connection = psycopg.connect(conninfo, autocommit=True, options="-c TimeZone=UTC")
        self.notices = []
        self.connection.add_notice_handler(
            lambda d: self.notices.append((d.severity, d.sqlstate, d.message_primary))
        )

    def run(self, text):
        """What the client gets to know of one message."""
        pg = self.connection.pgconn
        result = pg.exec_(text.encode())
        if result.status == pq.ExecStatus.FATAL_ERROR:
            field = lambda code: (result.error_field(code) or b"").decode()
            answer = (field(pq.DiagnosticField.SQLSTATE), field(pq.DiagnosticField.MESSAGE_PRIMARY))
        elif result.status == pq.ExecStatus.TUPLES_OK and "explain" not in text:
            answer = [
                [result.get_value(row, column) for column in range(result.nfields)]
                for row in range(result.ntuples)
            ]
        else:
            answer = (result.command_status or b"").decode().split(" ")[0]
        notices = list(self.notices)
        self.notices.clear()
        status = pq.TransactionStatus(pg.transaction_status).name
        reported = [pg.parameter_status(name.encode()) for name in REPORTED]
        return answer, notices, status, reported

    def close(self):
        self.connection.close()


def compare(braid, postgres, statements):
    """The first statement that is answered differently, with both answers; None if there is none."""
    ours, theirs = Session(braid), Session(postgres)
    try:
        ends = ["rollback"] + [f"show {name}" for name in SHOWN]
        for at, text in enumerate(statements + ends):
            left, right = ours.run(text), theirs.run(text)
            if left != right:
                return at, (statements + ends)[: at + 1], left, right
        return None
    finally:
        ours.close()
        theirs.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--braid", required=True)
    parser.add_argument("--postgres", required=True)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}, {options.rounds} rounds")
    for server in (options.braid, options.postgres):
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"drop table if exists {TABLE}")
            connection.execute(f"create table {TABLE} (i int)")
    different = 0
    for at in range(options.rounds):
        draw = random.Random(f"{options.seed} {at}")
        found = compare(options.braid, options.postgres, sequence(draw))
        if found:
            different += 1
            _, statements, ours, theirs = found
            print(f"\nround {at}:")
            print("    " + "\n    ".join(f"{s};" for s in statements))
            print(f"  Braid       {ours}\n  PostgreSQL  {theirs}")
    print(f"{different} of {options.rounds} rounds differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
