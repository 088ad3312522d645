"""Runs the permutations of an isolation spec as PostgreSQL's isolationtester does.

Steps are launched in order. A step that is seen waiting for a lock is reported as such and polled
again after each later step. What is written is what isolationtester would write, so it can be
compared with PostgreSQL's expected output.
"""

import re
import select
import time
from dataclasses import dataclass

import psycopg
from psycopg import pq

# How often a busy session is asked whether it waits for a lock.
POLL_S = 0.01
# Limit of setup, teardown and clearing up.
CONTROL_S = 60
# Of PQprint: text that is aligned to the right.
NUMERIC = set("0123456789.Ee -")


class Hung(Exception):
    """A step did not end, not even when it was cancelled."""


@dataclass
class Failure:
    """An error that the server answered."""

    sqlstate: str
    message: str

    def __str__(self):
        return f"{self.sqlstate} {self.message}".splitlines()[0]


def field_of(result, code):
    return (result.error_field(code) or b"").decode(errors="replace")


def printed(result):
    """A result as libpq's PQprint writes it with a header and aligned columns."""
    names = [(result.fname(c) or b"").decode() for c in range(result.nfields)]
    widths = [len(name) for name in names]
    texts, numeric = [], [True] * len(names)
    for row in range(result.ntuples):
        texts.append([])
        for c in range(result.nfields):
            text = (result.get_value(row, c) or b"").decode(errors="replace")
            texts[-1].append(text)
            widths[c] = max(widths[c], len(text))
            if text and not (set(text) <= NUMERIC and text[-1].isdigit() and text[0] not in "Ee"):
                numeric[c] = False
    aligned = lambda row: "|".join(
        text.rjust(w) if n else text.ljust(w) for text, w, n in zip(row, widths, numeric)
    )
    lines = [aligned(names), "+".join("-" * w for w in widths)]
    lines += [aligned(row) for row in texts]
    lines.append(f"({result.ntuples} row{'' if result.ntuples == 1 else 's'})\n")
    return "\n".join(lines) + "\n"


class Server:
    """One instance: a connection that sets up and looks who waits."""

    def __init__(self, conninfo):
        self.conninfo = conninfo
        with psycopg.connect(conninfo, autocommit=True) as connection:
            version = connection.execute("select version()").fetchone()[0]
        self.is_braid = "Braid" in version
        self.control = self.connect()
        self.control.execute(f"set statement_timeout = '{CONTROL_S}s'")
        try:
            self.control.execute("select pg_blocking_pids(pg_backend_pid())")
            self.has_blocking_pids = True
        except psycopg.errors.UndefinedFunction:
            self.has_blocking_pids = False

    def connect(self):
        connection = psycopg.connect(self.conninfo, autocommit=True)
        if not self.is_braid:
            # As pg_regress has it. Braid writes dates in the ISO style only.
            connection.execute("set datestyle = 'Postgres, MDY'")
        return connection

    def is_blocked(self, pid, spec_pids):
        """What pg_isolation_test_session_is_blocked says: it waits for a lock that a session of the
        spec has, or is to get first."""
        if not self.is_braid:
            query = "select pg_isolation_test_session_is_blocked(%s, %s)"
            return self.control.execute(query, (pid, spec_pids)).fetchone()[0]
        if self.has_blocking_pids:
            row = self.control.execute(f"select pg_blocking_pids({pid})::text").fetchone()
            return any(int(other) in spec_pids for other in re.findall("[0-9]+", row[0]))
        waits = self.control.execute(
            "select count(*) from v$session_wait where sid = %s and state = 'WAITING' and event in "
            "('enq: TX - row lock contention', 'enq: TX - index contention', "
            "'enq: TM - contention', 'enq: UL - contention')",
            (pid,),
        ).fetchone()[0]
        return waits > 0


class Session:
    def __init__(self, name, server, log):
        self.name = name
        self.server = server
        self.connection = server.connect()
        self.pg = self.connection.pgconn
        self.pid = self.connection.info.backend_pid
        self.log = log
        self.notices = 0
        self.active = None
        self.pg.notice_handler = self.heard
        self.pg.exec_params(
            b"select set_config('application_name', "
            b"current_setting('application_name') || '/' || $1, false)",
            [name.encode()],
        )

    def take_input(self):
        """Reads what the server has sent. False if the connection is gone; the result says so."""
        try:
            self.pg.consume_input()
            return True
        except psycopg.OperationalError:
            return False

    def heard(self, result):
        lines = [
            f"{field_of(result, pq.DiagnosticField.SEVERITY)}:  "
            f"{field_of(result, pq.DiagnosticField.MESSAGE_PRIMARY)}"
        ]
        for title, code in [
            ("DETAIL", pq.DiagnosticField.MESSAGE_DETAIL),
            ("HINT", pq.DiagnosticField.MESSAGE_HINT),
        ]:
            if text := field_of(result, code):
                lines.append(f"{title}:  {text}")
        self.log.write(f"{self.name}: " + "\n".join(lines) + "\n")
        self.notices += 1


class Log:
    """What isolationtester would have written, and the errors in it."""

    def __init__(self):
        self.text = []
        self.failures = []

    def write(self, text):
        self.text.append(text)

    def result(self, result, what="step"):
        """Writes an answer. False if it was an error."""
        if result.status == pq.ExecStatus.TUPLES_OK:
            self.write(printed(result))
        elif result.status == pq.ExecStatus.FATAL_ERROR:
            severity = field_of(result, pq.DiagnosticField.SEVERITY)
            message = field_of(result, pq.DiagnosticField.MESSAGE_PRIMARY)
            sqlstate = field_of(result, pq.DiagnosticField.SQLSTATE)
            self.failures.append(Failure(sqlstate, message))
            text = f"{severity}:  {message}\n"
            if not severity:
                # libpq's own: the connection is gone.
                text = result.error_message.decode(errors="replace") + "\n"
            self.write(text if what == "step" else f"{what} failed: {text}")
            return False
        return True


class Permutation:
    """One run of the steps of a permutation."""

    def __init__(self, spec, steps, servers, options):
        self.spec = spec
        self.steps = steps
        self.servers = servers
        self.options = options
        self.log = Log()
        self.sessions = [
            Session(session.name, servers[i % len(servers)], self.log)
            for i, session in enumerate(spec.sessions)
        ]
        self.pids = [session.pid for session in self.sessions]
        # Why the steps were not run.
        self.setup_failure = None

    def run(self):
        self.log.write("starting permutation: " + " ".join(p.step.name for p in self.steps) + "\n")
        if not self.set_up():
            self.setup_failure = self.log.failures[-1]
            return
        try:
            self.run_steps()
        except Hung as hung:
            self.log.write(f"{hung}\n")
            return
        self.tear_down()

    def close(self):
        # A session that is left while it waits would keep its locks.
        for session in self.sessions:
            if session.active:
                session.connection.cancel()
        for session in self.sessions:
            if session.active:
                self.wait(session, session.active.step, may_block=False)
            session.connection.close()

    def exec_(self, pg, sql, what):
        return self.log.result(pg.exec_(sql.encode()), what)

    def set_up(self):
        """False if it failed; that is the last failure."""
        control = self.servers[0].control.pgconn
        for sql in self.spec.setups:
            if not self.exec_(control, sql, "setup"):
                return False
        for session, described in zip(self.sessions, self.spec.sessions):
            what = f"setup of session {session.name}"
            if described.setup and not self.exec_(session.pg, described.setup, what):
                return False
        return True

    def tear_down(self):
        for session, described in zip(self.sessions, self.spec.sessions):
            if described.teardown:
                self.exec_(session.pg, described.teardown, f"teardown of session {session.name}")
        if self.spec.teardown:
            self.exec_(self.servers[0].control.pgconn, self.spec.teardown, "teardown")

    def run_steps(self):
        waiting = []
        for placed in self.steps:
            session = self.sessions[placed.step.session]
            began = time.monotonic()
            while session.active:
                old = session.active
                if not self.try_complete(old, retry=True, may_block=False):
                    waiting.remove(old)
                self.try_all(waiting, may_block=True)
                if time.monotonic() - began > 2 * self.options.step_seconds:
                    raise Hung(f"step {old.step.name} timed out")
            session.pg.send_query(placed.step.sql.encode())
            session.active = placed
            for blocker in placed.blockers:
                if blocker.kind == "notices":
                    other = self.session_of(blocker.step)
                    blocker.target = blocker.notices + other.notices
            must_wait = self.try_complete(placed, retry=False, may_block=True)
            self.try_all(waiting, may_block=True)
            if must_wait:
                waiting.append(placed)
        self.try_all(waiting, may_block=False)
        if waiting:
            raise Hung("failed to complete permutation due to mutually-blocking steps")

    def session_of(self, step_name):
        for session, described in zip(self.sessions, self.spec.sessions):
            if any(step.name == step_name for step in described.steps):
                return session
        raise KeyError(step_name)

    def try_all(self, waiting, may_block):
        """Takes out of `waiting` what completes."""
        while True:
            before, notices = len(waiting), sum(s.notices for s in self.sessions)
            has_blocker = False
            for placed in list(waiting):
                if self.try_complete(placed, retry=True, may_block=may_block):
                    has_blocker |= bool(placed.blockers)
                else:
                    waiting.remove(placed)
            news = len(waiting) < before or sum(s.notices for s in self.sessions) > notices
            if not (has_blocker and news):
                return

    def try_complete(self, placed, retry, may_block):
        """False if the step is complete, and then reported."""
        session, step = self.sessions[placed.step.session], placed.step
        waits = f"step {step.name}: {step.sql} <waiting ...>\n"
        if not retry and any(blocker.kind == "once" for blocker in placed.blockers):
            self.log.write(waits)
            return True
        if not self.wait(session, step, may_block) or self.has_blocker(placed):
            if not retry:
                self.log.write(waits)
            return True
        what = "<... completed>" if retry else step.sql
        self.log.write(f"step {step.name}: {what}\n")
        while result := session.pg.get_result():
            self.log.result(result)
        session.take_input()
        while notification := session.pg.notifies():
            names = {s.pid: s.name for s in self.sessions}
            sender = names.get(notification.be_pid, f"PID {notification.be_pid}")
            self.log.write(
                f'{session.name}: NOTIFY "{notification.relname.decode()}" with payload '
                f'"{notification.extra.decode()}" from {sender}\n'
            )
        session.active = None
        return False

    def wait(self, session, step, may_block):
        """Until the session has answered (true) or, if that may be, waits for a lock (false)."""
        pg, began, cancelled, seen_blocked = session.pg, time.monotonic(), False, 0
        while pg.is_busy():
            if select.select([pg.socket], [], [], POLL_S)[0]:
                if not session.take_input():
                    break
                continue
            if may_block:
                blocked = session.server.is_blocked(session.pid, self.pids)
                seen_blocked = seen_blocked + 1 if blocked else 0
                # A lock that was just given back may still be on its way from another instance.
                if seen_blocked >= self.options.blocked_polls:
                    if session.take_input() and pg.is_busy():
                        return False
                    break
            took = time.monotonic() - began
            if took > self.options.step_seconds and not cancelled:
                session.connection.cancel()
                cancelled = True
                self.log.write(
                    f"isolationtester: canceling step {step.name} after {int(took)} seconds\n"
                )
            if took > 2 * self.options.step_seconds:
                raise Hung(f"step {step.name} timed out after {int(took)} seconds")
        return True

    def has_blocker(self, placed):
        for blocker in placed.blockers:
            if blocker.kind == "step":
                active = self.session_of(blocker.step).active
                if active and active.step.name == blocker.step:
                    return True
            if blocker.kind == "notices":
                if self.session_of(blocker.step).notices < blocker.target:
                    return True
        return False


def drop_everything(server):
    """What a spec that failed has left behind."""
    control = server.control
    tables = control.execute(
        "select c.relname, c.relkind from pg_class c join pg_namespace n on n.oid = c.relnamespace "
        "where n.nspname = 'public' and c.relkind in ('r', 'S', 'p', 'v', 'm')"
    ).fetchall()
    kinds = {"r": "table", "p": "table", "S": "sequence", "v": "view", "m": "materialized view"}
    for name, kind in tables:
        kind = kind.decode() if isinstance(kind, bytes) else kind
        control.execute(f'drop {kinds[kind]} if exists "{name}" cascade')
