"""Runs one of PostgreSQL's regression files on both sides, and counts what came of its statements.

psql's `\\set`, `\\getenv`, `\\gset`, `\\gexec`, `\\if` and the like, `\\c` without arguments and
`\\copy` are carried out; `\\d` and the rest, which show something in psql's way, are counted as
skipped.
"""

import collections
import os
import re
from dataclasses import dataclass

import peer_compare
import peer_session
import psql_script
import regress_step

SKIPPED = "skipped"
KINDS = [
    peer_compare.SAME,
    peer_compare.SAME_ERROR,
    peer_compare.REFUSED,
    peer_compare.OTHER_CODE,
    peer_compare.DIFFERENT,
    peer_compare.HANG,
    peer_compare.CRASH,
    regress_step.FOLLOWS,
    regress_step.PLAN,
    SKIPPED,
]
# Meta-commands that change only what psql prints.
SILENT = {
    "echo",
    "qecho",
    "warn",
    "pset",
    "a",
    "t",
    "x",
    "o",
    "timing",
    "f",
    "C",
    "r",
    "p",
    "reset",
}
TO_CLIENT = re.compile(r"(?i)\sto\s+stdout\b")
PSQL_COPY = re.compile(r"(?is)\s*(?!\()(.+?)\s+from\s+(stdin|'[^']+'|\S+)(.*)$")


@dataclass
class Verdict:
    file: str
    line: int
    text: str
    kind: str
    what: str
    braid: object
    postgres: object


class Script:
    """One file. `connect()` gives a Pair; `recover()` brings a dead Braid back."""

    def __init__(self, path, connect, recover, environment):
        self.path = path
        self.connect = connect
        self.recover = recover
        self.reader = psql_script.Reader(path.read_text(encoding="utf-8", errors="replace"))
        # On each side, as the variables.
        self.environment = environment
        # Variables of psql, on each side; Braid's first.
        self.variables = ({}, {})
        self.branches = []
        self.verdicts = []
        self.pair = connect()

    def run(self):
        while True:
            strings = self.pair.postgres.pg.parameter_status(b"standard_conforming_strings")
            self.reader.standard_strings = strings != b"off"
            item = self.reader.next()
            if item is None:
                break
            if isinstance(item, psql_script.Meta):
                if self.meta(item) == "quit":
                    break
            elif all(self.branches):
                self.statement(item)
        self.close()
        return self.verdicts

    def close(self):
        for session in (self.pair.braid, self.pair.postgres):
            session.close()

    def add(self, line, text, kind, what="", braid=None, postgres=None):
        verdict = Verdict(self.path.stem, line, text, kind, what, braid, postgres)
        self.verdicts.append(verdict)

    # Statements

    def statement(self, item):
        ours, theirs = self.texts(item.text)
        left, right = self.send(item.line, ours, theirs)
        if item.by == "gset" and right.succeeded():
            self.take_variables(item.arguments, left, right)
        elif item.by == "gexec" and right.succeeded():
            for text in [value for row in right.rows for value in row if value]:
                self.send(item.line, text, text)

    def texts(self, text):
        theirs = psql_script.interpolate(text, self.variables[1])
        ours = psql_script.interpolate(text, collections.ChainMap(*self.variables))
        return ours, theirs

    def send(self, line, ours, theirs):
        if not theirs.strip():
            return peer_session.Answer("done"), peer_session.Answer("done")
        make = self.reader.copy_data
        kind, what, left, right, source = self.pair.step(ours, theirs, make)
        if source.taken():
            self.reader.at = source.at
        self.add(line, theirs, kind, what, left, right)
        if peer_compare.CRASH in (left.kind, right.kind) or self.pair.braid.broken():
            self.begin_anew(left)
        return left, right

    def begin_anew(self, left):
        """After a crash or a hang that nothing ends: new sessions, with a Braid that lives."""
        words = self.recover()
        if self.verdicts and words:
            left.message += "\n" + words
        self.close()
        missing, diverged = self.pair.missing, self.pair.diverged
        self.pair = self.connect()
        self.pair.missing, self.pair.diverged = missing, diverged

    def take_variables(self, prefix, left, right):
        for answer, variables in ((left, self.variables[0]), (right, self.variables[1])):
            values = answer.rows[0] if len(answer.rows) == 1 else [None] * len(right.names)
            for name, value in zip(right.names, values):
                variables.pop(prefix.strip() + name, None)
                if value is not None:
                    variables[prefix.strip() + name] = value

    # Meta-commands

    def meta(self, item):
        words = psql_script.arguments(item.arguments, self.variables[1])
        if item.command in ("if", "elif", "else", "endif"):
            self.branch(item.command, words)
            return None
        if not all(self.branches) or item.command in SILENT:
            return None
        if item.command in ("q", "quit"):
            return "quit"
        if item.command == "set" and words:
            ours = psql_script.arguments(item.arguments, collections.ChainMap(*self.variables))
            for variables, given in zip(self.variables, (ours, words)):
                variables[words[0]] = "".join(given[1:])
        elif item.command == "unset":
            for variables in self.variables:
                variables.pop(words[0], None)
        elif item.command == "getenv":
            for variables, environment in zip(self.variables, self.environment):
                value = environment.get(words[1], os.environ.get(words[1]))
                if value is not None:
                    variables[words[0]] = value
        elif item.command in ("c", "connect") and set(words) <= {"-"}:
            self.begin_anew(peer_session.Answer("done"))
        elif item.command == "copy" and PSQL_COPY.match(item.arguments):
            self.copy(item)
        elif item.command == "copy" and TO_CLIENT.search(item.arguments):
            ours, theirs = self.texts(f"copy {item.arguments}")
            self.send(item.line, ours, theirs)
        else:
            self.add(item.line, f"\\{item.command} {item.arguments}", SKIPPED)
        return None

    def branch(self, command, words):
        on = bool(words) and words[0].lower() in ("1", "t", "true", "on", "yes", "y")
        if command == "if":
            self.branches.append(on)
        elif not self.branches:
            return
        elif command == "endif":
            self.branches.pop()
        elif self.branches[-1] is True:
            # One branch has run: no other one does.
            self.branches[-1] = None
        elif self.branches[-1] is False:
            self.branches[-1] = command == "else" or on

    def copy(self, item):
        """`\\copy .. from`: the client's file or data as COPY FROM STDIN."""
        text = psql_script.interpolate(item.arguments, self.variables[1])
        head, name, tail = PSQL_COPY.match(text).groups()
        if name.lower() == "stdin":
            self.send(item.line, f"copy {head} from stdin {tail}", f"copy {head} from stdin {tail}")
            return
        path = name.strip("'")
        path = path if path.startswith("/") else os.path.join(self.path.parent, path)
        text = f"copy {head} from '{path}' {tail}"
        self.send(item.line, text, text)
