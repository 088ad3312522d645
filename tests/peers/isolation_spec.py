"""Reads PostgreSQL's isolation specs (the grammar is in src/test/isolation/README of its source)."""

import re
from dataclasses import dataclass, field

TOKEN = re.compile(
    r"""
    (?P<blank>[ \t\r\f\n]+|\#[^\n\r]*)
    | (?P<word>[A-Za-z_\x80-\U0010ffff][A-Za-z_0-9$\x80-\U0010ffff]*)
    | "(?P<quoted>(?:[^"\n]|"")*)"
    | \{[ \t\r\f]*(?P<sql>.*?)[ \t\r\f]*\}
    | (?P<number>[0-9]+)
    | (?P<mark>[,()*])
    """,
    re.VERBOSE | re.DOTALL,
)
KEYWORDS = {"notices", "permutation", "session", "setup", "step", "teardown"}


class SpecError(Exception):
    pass


@dataclass
class Step:
    name: str
    sql: str
    # Place of its session in the spec.
    session: int


@dataclass
class Blocker:
    """Delays the report of a step's completion: `once`, `step` (until it is done) or `notices`."""

    kind: str
    step: str = ""
    notices: int = 0


@dataclass
class Placed:
    """A step within a permutation."""

    step: Step
    blockers: list = field(default_factory=list)


@dataclass
class Session:
    name: str
    setup: str | None
    steps: list
    teardown: str | None


@dataclass
class Spec:
    setups: list
    teardown: str | None
    sessions: list
    permutations: list


class Reader:
    def __init__(self, text):
        self.tokens = []
        at = 0
        while at < len(text):
            found = TOKEN.match(text, at)
            if not found:
                line = text.count("\n", 0, at) + 1
                raise SpecError(f"line {line}: unexpected {text[at]!r}")
            at = found.end()
            kind, value = found.lastgroup, found.group(found.lastgroup)
            if kind == "blank":
                continue
            if kind == "word" and value in KEYWORDS:
                kind = "keyword"
            elif kind in ("word", "quoted"):
                kind, value = "name", value.replace('""', '"')
            self.tokens.append((kind, value))
        self.at = 0

    def peek(self):
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")

    def accept(self, kind, value=None):
        """The next token's text if it is of that kind and reads so, which is then taken."""
        found = self.peek()
        if found[0] != kind or (value is not None and found[1] != value):
            return None
        self.at += 1
        return found[1]

    def expect(self, kind, value=None):
        found = self.accept(kind, value)
        if found is None:
            raise SpecError(f"{value or kind} expected, not {self.peek()[1]!r}")
        return found

    def block(self, keyword):
        """An optional SQL block with its keyword."""
        return self.expect("sql") if self.accept("keyword", keyword) else None

    def spec(self):
        setups = []
        while (sql := self.block("setup")) is not None:
            setups.append(sql)
        teardown = self.block("teardown")
        sessions = []
        while self.accept("keyword", "session"):
            sessions.append(self.session(len(sessions)))
        if not sessions:
            raise SpecError("a spec without sessions")
        steps = {}
        for session in sessions:
            for step in session.steps:
                if step.name in steps:
                    raise SpecError(f"two steps {step.name}")
                steps[step.name] = step
        permutations = []
        while self.accept("keyword", "permutation"):
            permutations.append(self.permutation(steps))
        self.expect("end")
        return Spec(setups, teardown, sessions, permutations or list(interleavings(sessions)))

    def session(self, number):
        name = self.expect("name")
        setup = self.block("setup")
        steps = []
        while self.accept("keyword", "step"):
            steps.append(Step(self.expect("name"), self.expect("sql"), number))
        return Session(name, setup, steps, self.block("teardown"))

    def permutation(self, steps):
        placed = []
        while (name := self.accept("name")) is not None:
            if name not in steps:
                raise SpecError(f"no step {name}")
            placed.append(Placed(steps[name]))
            if self.accept("mark", "("):
                placed[-1].blockers.append(self.blocker(steps))
                while self.accept("mark", ","):
                    placed[-1].blockers.append(self.blocker(steps))
                self.expect("mark", ")")
        return placed

    def blocker(self, steps):
        if self.accept("mark", "*"):
            return Blocker("once")
        name = self.expect("name")
        if name not in steps:
            raise SpecError(f"no step {name}")
        if self.accept("keyword", "notices"):
            return Blocker("notices", name, int(self.expect("number")))
        return Blocker("step", name)


def interleavings(sessions):
    """All orders of the steps in which those of one session keep theirs, as isolationtester has them."""

    def following(taken, placed):
        done = True
        for i, session in enumerate(sessions):
            if taken[i] < len(session.steps):
                done = False
                taken[i] += 1
                yield from following(taken, placed + [Placed(session.steps[taken[i] - 1])])
                taken[i] -= 1
        if done:
            yield placed

    return following([0] * len(sessions), [])


def read(path):
    with open(path, encoding="utf-8") as file:
        return Reader(file.read()).spec()
