"""A session of a peer: sends a message, and says what came of each statement in it.

Answers are text, as the server writes them. A statement that does not end in time is cancelled and
answered as `hang`; a connection that breaks is answered as `crash`, and the session is over.
"""

import select
import time
from dataclasses import dataclass, field

import psycopg
from psycopg import pq

# How long a server may go on after its own statement_timeout, and after a cancel.
GRACE_S = 10


@dataclass
class Answer:
    """What came of one statement: rows, done (no rows), error, hang or crash."""

    kind: str
    tag: str = ""
    names: list = field(default_factory=list)
    types: list = field(default_factory=list)
    rows: list = field(default_factory=list)
    sqlstate: str = ""
    message: str = ""
    position: str = ""
    hint: str = ""

    def succeeded(self):
        return self.kind in ("rows", "done")

    def __str__(self):
        if self.kind == "error":
            return f"{self.sqlstate} {self.message}"
        if self.kind != "rows":
            return f"{self.kind} {self.tag or self.message}".strip()
        lines = [" | ".join("NULL" if v is None else v for v in row) for row in self.rows[:12]]
        if len(self.rows) > 12:
            lines.append(f"... {len(self.rows)} rows")
        return "\n".join([" | ".join(self.names)] + lines)


def text_of(value):
    return None if value is None else value.decode("utf-8", "replace")


def error_of(result):
    get = lambda code: (result.error_field(code) or b"").decode("utf-8", "replace")
    codes = pq.DiagnosticField
    return Answer(
        "error",
        sqlstate=get(codes.SQLSTATE),
        message=get(codes.MESSAGE_PRIMARY),
        position=get(codes.STATEMENT_POSITION),
        hint=get(codes.MESSAGE_HINT),
    )


def answer_of(result):
    status = result.status
    if status in (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE):
        return error_of(result)
    tag = (result.command_status or b"").decode()
    if status != pq.ExecStatus.TUPLES_OK:
        return Answer("done", tag=tag)
    columns = range(result.nfields)
    rows = [
        tuple(text_of(result.get_value(row, column)) for column in columns)
        for row in range(result.ntuples)
    ]
    names = [text_of(result.fname(column)) for column in columns]
    return Answer("rows", tag, names, [result.ftype(column) for column in columns], rows)


class Session:
    """One connection."""

    def __init__(self, conninfo, timeout_s, parameters=None):
        """`parameters` are sent in the startup packet."""
        self.timeout_s = timeout_s
        options = {"statement_timeout": f"{timeout_s}s", **(parameters or {})}
        escaped = lambda text: text.replace("\\", "\\\\").replace(" ", "\\ ")
        switches = " ".join(f"-c {name}={escaped(value)}" for name, value in options.items())
        self.connection = psycopg.connect(
            conninfo, autocommit=True, options=switches, connect_timeout=GRACE_S
        )
        self.pg = self.connection.pgconn
        self.pg.notice_handler = None

    def status(self):
        return pq.TransactionStatus(self.pg.transaction_status)

    def broken(self):
        return self.pg.status != pq.ConnStatus.OK

    def close(self):
        self.connection.close()

    def run(self, text, copy_data=None, parameters=None):
        """The answers to a message, at least one. `copy_data()` gives what COPY FROM STDIN wants.

        With `parameters`, a list of texts, it goes by the extended protocol, and the text has one
        statement.
        """
        deadline = time.monotonic() + self.timeout_s + GRACE_S
        answers = []
        try:
            if parameters is None:
                self.pg.send_query(text.encode())
            else:
                self.pg.send_query_params(text.encode(), [p.encode() for p in parameters])
            while True:
                if not self.await_result(deadline):
                    return answers + [self.give_up()]
                result = self.pg.get_result()
                if result is None:
                    break
                answer = self.take(result, copy_data, deadline)
                if answer:
                    answers.append(answer)
        except psycopg.OperationalError as e:
            return answers + [Answer("crash", message=str(e).strip().splitlines()[0])]
        if self.broken():
            answers.append(Answer("crash", message="the connection was closed"))
        return answers or [Answer("done")]

    def one(self, text, copy_data=None, parameters=None):
        """The answer to a message of one statement: the last, or the error."""
        return self.run(text, copy_data, parameters)[-1]

    def take(self, result, copy_data, deadline):
        """The answer in a result; None if more of it is to come."""
        if result.status == pq.ExecStatus.COPY_IN:
            if copy_data is None:
                self.pg.put_copy_end(b"no data")
            else:
                self.pg.put_copy_data(copy_data())
                self.pg.put_copy_end()
            return None
        if result.status == pq.ExecStatus.COPY_OUT:
            return Answer("rows", "COPY", ["copy"], [0], self.copied_out(deadline))
        return answer_of(result)

    def copied_out(self, deadline):
        rows = []
        while True:
            size, data = self.pg.get_copy_data(1)
            if size < 0:
                return rows
            if size > 0:
                rows.append((bytes(data).decode("utf-8", "replace").rstrip("\n"),))
                continue
            left = max(deadline - time.monotonic(), 0)
            if not select.select([self.pg.socket], [], [], left)[0]:
                return rows
            self.pg.consume_input()

    def await_result(self, deadline):
        """False if the answer does not come in time."""
        while self.pg.flush():
            select.select([self.pg.socket], [self.pg.socket], [], 1)
            self.pg.consume_input()
        while self.pg.is_busy():
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.pg.socket], [], [], left)[0]:
                return False
            self.pg.consume_input()
        return True

    def give_up(self):
        """Cancels what hangs. The session is closed if not even that helps."""
        self.pg.get_cancel().cancel()
        deadline = time.monotonic() + GRACE_S
        while self.await_result(deadline):
            if self.pg.get_result() is None:
                return Answer("hang", message="ended when it was cancelled, not by its time limit")
        self.close()
        return Answer("hang", message="did not end, not even when it was cancelled")
