"""Reads files of sqllogictest, and puts results into the form that they are compared in.

The format is SQLite's: https://www.sqlite.org/sqllogictest. Conditions are those of `postgresql`.
"""

import hashlib
import re
from dataclasses import dataclass, field

DATABASE = "postgresql"
HASHED = re.compile(r"(\d+) values hashing to ([0-9a-f]{32})$")


@dataclass
class Record:
    """A statement or a query. `types` has a letter for each column: I, R or T."""

    line: int
    sql: str
    is_query: bool
    fails: bool = False
    types: str = ""
    sort: str = "nosort"
    expected: list = field(default_factory=list)


def records(text):
    """The records that PostgreSQL runs, in order; ends at `halt`."""
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        if not lines[at].strip() or lines[at].startswith("#"):
            at += 1
            continue
        start, skipped = at, False
        while lines[at].startswith(("skipif ", "onlyif ")):
            condition, name = lines[at].split()[:2]
            skipped = skipped or (name == DATABASE) == (condition == "skipif")
            at += 1
        block = at
        while at < len(lines) and lines[at].strip():
            at += 1
        if skipped:
            continue
        words = lines[block].split()
        if words[0] == "halt":
            return
        if words[0] in ("statement", "query"):
            yield record(start + 1, words, lines[block + 1 : at])
        elif words[0] != "hash-threshold":
            raise SystemExit(f"line {block + 1}: what is {lines[block]!r}?")


def record(line, words, body):
    body = [text.rstrip("\r") for text in body]
    if words[0] == "statement":
        return Record(line, "\n".join(body), False, words[1] == "error")
    split = body.index("----") if "----" in body else len(body)
    sort = words[2] if len(words) > 2 else "nosort"
    return Record(
        line, "\n".join(body[:split]), True, types=words[1], sort=sort, expected=body[split + 1 :]
    )


def integer(text):
    """As a driver gives a column to a program that wants an integer."""
    if text in ("t", "f"):
        return "1" if text == "t" else "0"
    found = re.match(r"\s*[+-]?\d+", text)
    if found and "e" not in text:
        return str(int(found.group()))
    try:
        return str(int(float(text)))
    except (ValueError, OverflowError):
        return "0"


def real(text):
    try:
        return f"{float(text):.3f}"
    except ValueError:
        return "0.000"


def printable(text):
    return "".join(c if " " <= c <= "~" else "@" for c in text) or "(empty)"


FORMS = {"I": integer, "R": real, "T": printable}


def values(record, rows):
    """The values of a result in the order in which they are compared."""
    forms = [FORMS[letter] for letter in record.types]
    table = [["NULL" if v is None else form(v) for v, form in zip(row, forms)] for row in rows]
    if record.sort == "rowsort":
        table.sort()
    flat = [value for row in table for value in row]
    if record.sort == "valuesort":
        flat.sort()
    return flat


def matches(record, rows):
    """Whether the rows are those that the record expects."""
    found = values(record, rows)
    hashed = HASHED.match(record.expected[0]) if len(record.expected) == 1 else None
    if not hashed:
        return found == record.expected
    digest = hashlib.md5("".join(f"{v}\n" for v in found).encode()).hexdigest()
    return len(found) == int(hashed.group(1)) and digest == hashed.group(2)
