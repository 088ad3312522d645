"""Runs one statement on Braid and on PostgreSQL, and keeps the two in step.

If a statement works on one side alone, what it did there is taken back, so that later statements
meet the same state on both:

- In a transaction block each statement runs behind a savepoint, to which both sides go back.
- Outside of one, Braid is asked first. If it fails, PostgreSQL runs the statement in a transaction
  that is rolled back, with its sequences.

Names that are missing on both sides because of this are remembered. An error on both sides at such
a name says nothing: it is counted as *follows*. What can't be taken back (Braid accepts what
PostgreSQL refuses, VACUUM) leaves tables that have *diverged*; a difference at these follows, too.
"""

import re

from psycopg import pq

import peer_compare
import sql_text

FOLLOWS = "follows"
PLAN = "plan"
IDLE = pq.TransactionStatus.IDLE
IN_BLOCK = pq.TransactionStatus.INTRANS
FAILED = pq.TransactionStatus.INERROR
SAVEPOINT = "peers_step"
CONTROL = re.compile(
    r"\s*(begin|start\s+transaction|commit|end|rollback|abort|savepoint|release"
    r"|prepare\s+transaction"
    r"|set\s+(local\s+|session\s+)?(transaction|session\s+characteristics))\b",
    re.IGNORECASE,
)
# Errors of PostgreSQL at what cannot run in a transaction block.
NOT_IN_BLOCK = ("25001", "2D000", "0A000")
# Errors of Braid that mean something also if a name is missing.
TELLING = peer_compare.INTERNAL_ERRORS + ("42601",)


def several(text):
    """Whether a message has several statements."""
    return any(token == ";" and depth == 0 for depth, token in sql_text.top_level(text))


class Pair:
    """The two sessions of a script."""

    def __init__(self, braid, postgres):
        self.braid = braid
        self.postgres = postgres
        self.missing = set()
        self.diverged = set()

    def statuses(self):
        return self.braid.status(), self.postgres.status()

    def step(self, ours, theirs, copy_data):
        """Runs `ours` on Braid and `theirs` on PostgreSQL: one statement, each with its variables.

        `copy_data` makes a source of data for COPY. Returns the verdict, what differs, and both
        answers; and PostgreSQL's source of data.
        """
        source = copy_data()
        if CONTROL.match(theirs) or several(theirs) or FAILED in self.statuses():
            left = self.braid.one(ours, copy_data())
            right = self.postgres.one(theirs, source)
        elif self.statuses() == (IN_BLOCK, IN_BLOCK):
            left, right = self.in_block(ours, theirs, copy_data(), source)
        else:
            left, right = self.alone(ours, theirs, copy_data(), source)
        kind, what = self.judge(left, right, theirs)
        self.remember(kind, left, right, theirs)
        self.same_status()
        return kind, what, left, right, source

    def in_block(self, ours, theirs, our_data, their_data):
        both = (self.braid, self.postgres)
        for session in both:
            session.one(f"savepoint {SAVEPOINT}")
        left = self.braid.one(ours, our_data)
        right = self.postgres.one(theirs, their_data)
        if left.succeeded() != right.succeeded() or (left.succeeded() and left.tag != right.tag):
            self.each_in_block(f"rollback to {SAVEPOINT}")
        if left.succeeded() or right.succeeded():
            self.each_in_block(f"release {SAVEPOINT}")
        return left, right

    def each_in_block(self, text):
        for session in (self.braid, self.postgres):
            if not session.broken() and session.status() in (IN_BLOCK, FAILED):
                session.one(text)

    def alone(self, ours, theirs, our_data, their_data):
        left = self.braid.one(ours, our_data)
        if left.succeeded():
            return left, self.postgres.one(theirs, their_data)
        start = getattr(their_data, "at", None)
        sequences = self.sequences()
        self.postgres.one("begin")
        right = self.postgres.one(theirs, their_data)
        if right.succeeded() and left.sqlstate.startswith("23"):
            # A deferred constraint speaks at the end only.
            late = self.postgres.one("set constraints all immediate")
            right = right if late.succeeded() else late
        self.postgres.one("rollback")
        for name, value, called in sequences:
            self.postgres.one(f"select setval('{name}', {value}, '{called}')")
        if right.kind == "error" and right.sqlstate in NOT_IN_BLOCK:
            if start is not None:
                their_data.at = start
            right = self.postgres.one(theirs, their_data)
            if right.succeeded():
                self.diverged |= sql_text.defined(theirs) | sql_text.written(theirs)
        return left, right

    def sequences(self):
        """(name, last value, called) of PostgreSQL's sequences."""
        found = self.postgres.one(
            "select oid::regclass::text from pg_class where relkind = 'S'"
            " and pg_catalog.has_sequence_privilege(oid, 'usage')"
        )
        if not found.succeeded():
            return []
        values = []
        for (name,) in found.rows:
            state = self.postgres.one(f"select last_value, is_called from {name}")
            if state.succeeded():
                values.append((name.replace("'", "''"), *state.rows[0]))
        return values

    def judge(self, left, right, text):
        kind, what = peer_compare.verdict(left, right, text)
        names = sql_text.mentioned(text)
        if left.succeeded() and right.succeeded() and sql_text.words(text)[:1] == ["explain"]:
            return PLAN, ""
        if kind in (peer_compare.HANG, peer_compare.CRASH, peer_compare.SAME):
            return kind, what
        if names & self.diverged:
            return FOLLOWS, what
        if names & self.missing and left.kind == right.kind == "error":
            if kind != peer_compare.OTHER_CODE or left.sqlstate not in TELLING:
                return FOLLOWS, what
        if left.sqlstate == right.sqlstate == "25P02":
            return FOLLOWS, what
        return kind, what

    def remember(self, kind, left, right, text):
        """What the statement's outcome means for later ones."""
        names = sql_text.defined(text)
        words = sql_text.words(text)
        if words[:1] in (["fetch"], ["move"]) and left.succeeded() != right.succeeded():
            # A cursor's place is not taken back.
            self.diverged.add(words[-1])
        if left.succeeded() and right.succeeded():
            self.missing -= names
            if kind == peer_compare.DIFFERENT and left.kind == "done":
                self.diverged |= sql_text.written(text)
        elif right.succeeded() or kind == FOLLOWS:
            self.missing |= names
        elif left.succeeded() and self.braid.status() == IDLE:
            self.diverged |= names | sql_text.written(text)

    def same_status(self):
        """Ends the transactions of both if one alone is in one, or one alone has failed."""
        if self.braid.broken() or self.postgres.broken():
            return
        left, right = self.statuses()
        if left != right:
            for session in (self.braid, self.postgres):
                session.one("rollback")
