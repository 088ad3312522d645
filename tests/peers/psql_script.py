"""Reads a script as psql does: statements, meta-commands, variables, data of COPY FROM STDIN.

The reader is asked for one item at a time, because what comes next may depend on what the last one
brought: `\\if` on a variable that `\\gset` has set, data on whether the server wants any.
"""

import re
from dataclasses import dataclass

import sql_text

# Ends of statements that are meta-commands, and what they do with the result.
SENDING = ("g", "gx", "gset", "gexec", "gdesc", "crosstabview")
VARIABLE = re.compile(r":(?:\{\?(\w+)\}|'(\w+)'|\"(\w+)\"|(\w+))")


@dataclass
class Statement:
    """SQL to be sent: `by` is how it ended (";" or a meta-command), `arguments` are those of it."""

    text: str
    line: int
    by: str
    arguments: str = ""


@dataclass
class Meta:
    """A meta-command that sends nothing by itself."""

    command: str
    arguments: str
    line: int


def interpolate(text, variables):
    """`:name`, `:'name'`, `:"name"` and `:{?name}` outside of quotes and comments."""
    out, at = [], 0
    while at < len(text):
        kind, token, _ = next(sql_text.tokens(text, at))
        if kind == "other" and token == ":":
            found = VARIABLE.match(text, at)
            name = found and next(g for g in found.groups() if g)
            if found and found.group(1):
                out.append("TRUE" if name in variables else "FALSE")
                at = found.end()
                continue
            if found and name in variables:
                value = variables[name]
                if found.group(2):
                    value = "'" + value.replace("'", "''") + "'"
                elif found.group(3):
                    value = '"' + value.replace('"', '""') + '"'
                out.append(value)
                at = found.end()
                continue
        out.append(token)
        at += len(token)
    return "".join(out)


def arguments(text, variables):
    """The arguments of a meta-command."""
    found = re.findall(r":'\w+'|:\"\w+\"|'(?:[^'\\]|\\.|'')*'|\"[^\"]*\"|\S+", text)
    result = []
    for word in found:
        if word.startswith("'"):
            result.append(word[1:-1].replace("''", "'").replace("\\n", "\n"))
        else:
            result.append(interpolate(word, variables))
    return result


class Reader:
    """The script, as far as it has been read. `standard_strings` is what the server says of it."""

    def __init__(self, text):
        self.text = text
        self.at = 0
        self.standard_strings = True
        self.begin()

    def begin(self):
        """A statement begins."""
        self.buffer = []
        self.start = None
        self.depth = 0
        self.bodies = 0
        self.first_words = []

    def line(self, at):
        return self.text.count("\n", 0, at) + 1

    def next(self):
        """The next Statement or Meta; None at the end."""
        while self.at < len(self.text):
            kind, token, at = next(sql_text.tokens(self.text, self.at, self.standard_strings))
            if kind == "other" and token == "\\":
                if self.text.startswith("\\;", at):
                    self.buffer.append(";")
                    self.at = at + 2
                    continue
                command, rest = self.meta_command(at)
                if self.start is None or command not in SENDING:
                    return Meta(command, rest, self.line(at))
                return self.statement(command, rest)
            self.at = at + len(token)
            if self.start is None:
                if kind in ("space", "comment"):
                    continue
                self.start = at
            self.count(kind, token)
            if token == ";" and self.depth == 0 and self.bodies == 0:
                return self.statement(";")
            self.buffer.append(token)
        return None

    def statement(self, by, rest=""):
        statement = Statement("".join(self.buffer), self.line(self.start), by, rest)
        self.begin()
        return statement

    def count(self, kind, token):
        """Parentheses and bodies of routines, in which a semicolon ends nothing."""
        if kind == "name":
            word = token.lower()
            self.first_words = (self.first_words + [word])[:4]
            if self.depth == 0 and is_routine(self.first_words):
                if word in ("begin", "case") and (self.bodies or self.atomic(word)):
                    self.bodies += 1
                elif word == "end" and self.bodies:
                    self.bodies -= 1
        elif kind == "other" and token in "([":
            self.depth += 1
        elif kind == "other" and token in ")]":
            self.depth = max(self.depth - 1, 0)

    def meta_command(self, at):
        """Name and arguments of the meta-command at the backslash at `at`."""
        end = self.text.find("\n", at)
        end = len(self.text) if end < 0 else end
        found = re.compile(r"\\([a-zA-Z_]+\+?|[?!])").match(self.text, at)
        if not found:
            self.at = at + 2
            return self.text[at + 1 : at + 2], ""
        another = re.compile(r"\\").search(self.text, found.end(), end)
        stop = another.start() if another and found.group(1) not in ("copy", "!", "echo") else end
        self.at = stop
        return found.group(1), self.text[found.end() : stop].strip()

    def atomic(self, word):
        following = re.compile(r"\s+atomic\b", re.IGNORECASE).match(self.text, self.at)
        return word == "begin" and following is not None

    def copy_data(self):
        """A function that gives the data which follow, for each COPY of a message in turn."""
        end = self.text.find("\n", self.at)
        return CopyData(self.text, len(self.text) if end < 0 else end + 1)


class CopyData:
    """Data in the script, up to a line with `\\.` alone. `at` is behind what has been taken."""

    def __init__(self, text, at):
        self.text = text
        self.start = at
        self.at = at

    def __call__(self):
        found = re.compile(r"^\\\.\s*$\n?", re.MULTILINE).search(self.text, self.at)
        data = self.text[self.at : found.start() if found else len(self.text)]
        self.at = found.end() if found else len(self.text)
        return data.encode()

    def taken(self):
        return self.at > self.start


def is_routine(first_words):
    return first_words[:1] == ["create"] and bool({"function", "procedure"} & set(first_words))
