"""SQL as text: its tokens, and what a statement names.

This is no parser. It knows enough of PostgreSQL's lexical rules to take a script apart, and to tell
which objects a statement makes, changes or mentions.
"""

import re

# In this order: what may hold a semicolon or a quote comes first.
TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<comment>--[^\n]*)
  | (?P<block>/\*)
  | (?P<dollar>\$(?P<tag>[A-Za-z_\x80-\uffff][\w\x80-\uffff]*)?\$)
  | (?P<escape>[eE]'(?:[^'\\]|\\.|'')*')
  | (?P<string>(?:[bBxXnN]|[uU]&)?'(?:[^']|'')*')
  | (?P<quoted>(?:[uU]&)?"(?:[^"]|"")*")
  | (?P<name>[A-Za-z_\x80-\uffff][\w$\x80-\uffff]*)
  | (?P<number>\d[\d.]*(?:[eE][+-]?\d+)?|\.\d+)
  | (?P<parameter>\$\d+)
  | (?P<cast>::)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)


def end_of_block_comment(text, at):
    """Where a comment ends that begins before `at`. Such comments nest."""
    depth = 1
    while depth:
        found = re.compile(r"/\*|\*/").search(text, at)
        if not found:
            return len(text)
        depth += 1 if found.group() == "/*" else -1
        at = found.end()
    return at


def end_of_escape_string(text, quote):
    found = re.compile(r"'(?:[^'\\]|\\.|'')*'", re.DOTALL).match(text, quote)
    return found.end() if found else len(text)


def tokens(text, at=0, standard_strings=True):
    """(kind, text, start) of each token. What is left open at the end is one token."""
    while at < len(text):
        found = TOKEN.match(text, at)
        kind, end = found.lastgroup, found.end()
        if kind == "string" and not standard_strings:
            kind, end = "escape", end_of_escape_string(text, found.group().index("'") + at)
        if kind == "tag" or kind == "dollar":
            kind = "dollar"
            close = text.find(found.group("dollar"), end)
            end = len(text) if close < 0 else close + len(found.group("dollar"))
        elif kind == "block":
            kind, end = "comment", end_of_block_comment(text, end)
        elif kind == "other" and found.group() in "'\"":
            end = len(text)
        yield kind, text[at:end], at
        at = end


def significant(text):
    """The tokens without blanks and comments; names in lower case, quoted names without quotes."""
    result = []
    for kind, token, _ in tokens(text):
        if kind in ("space", "comment"):
            continue
        if kind == "name":
            token = token.lower()
        elif kind == "quoted":
            kind, token = "name", token[token.index('"') + 1 : -1].replace('""', '"')
        result.append((kind, token))
    return result


def words(text):
    return [token for _, token in significant(text)]


def mentioned(text):
    """All names in a statement; of strings and bodies of functions, the words in them."""
    names = set()
    for kind, token in significant(text):
        if kind == "name":
            names.add(token)
        elif kind in ("string", "escape", "dollar"):
            names.update(re.findall(r"\w+", token.lower()))
    return names


# What may stand between CREATE and the kind of an object.
MODIFIERS = {
    "or",
    "replace",
    "temp",
    "temporary",
    "unlogged",
    "unique",
    "materialized",
    "recursive",
    "global",
    "local",
    "foreign",
    "event",
    "trusted",
    "procedural",
    "constraint",
    "default",
    "text",
    "search",
}
KINDS = {
    "table",
    "view",
    "index",
    "sequence",
    "function",
    "procedure",
    "routine",
    "type",
    "domain",
    "schema",
    "aggregate",
    "trigger",
    "rule",
    "policy",
    "role",
    "user",
    "group",
    "operator",
    "cast",
    "collation",
    "conversion",
    "extension",
    "language",
    "server",
    "wrapper",
    "statistics",
    "database",
    "publication",
    "subscription",
    "tablespace",
    "dictionary",
    "parser",
    "template",
    "configuration",
    "method",
    "class",
    "family",
    "access",
    "data",
}
FILLERS = {"concurrently", "if", "not", "exists", "only"}


def name_after(parts, at):
    """All parts of a name at `parts[at]`, after words that may precede it."""
    while at < len(parts) and parts[at] in FILLERS | KINDS:
        at += 1
    names = []
    while at < len(parts) and re.match(r"\w", parts[at]):
        names.append(parts[at])
        if at + 1 >= len(parts) or parts[at + 1] != ".":
            break
        at += 2
    return names[-1:]


def defined(text):
    """Names that the statement creates, alters, drops, declares or prepares."""
    parts = words(text)
    names = set()
    for at, word in enumerate(parts):
        if word in ("create", "alter", "drop"):
            kind = at + 1
            while kind < len(parts) and parts[kind] in MODIFIERS:
                kind += 1
            # An index may have no name: CREATE INDEX ON ..
            unnamed = parts[kind : kind + 2] == ["index", "on"]
            if kind < len(parts) and parts[kind] in KINDS and not unnamed:
                names.update(name_after(parts, kind + 1))
                if word == "drop" and at == 0:
                    names.update(p for p in parts[kind + 1 :] if re.match(r"[a-z_]", p))
        elif word == "into" and parts[0] in ("select", "with"):
            names.update(name_after(parts, at + 1))
    if parts and parts[0] in ("declare", "prepare"):
        names.update(parts[1:2])
    return names


def written(text):
    """Tables that the statement writes, as far as their names stand there."""
    parts = words(text)
    names = set()
    for at, word in enumerate(parts):
        if word in ("into", "update", "truncate", "copy") or parts[at - 1 : at + 1] == [
            "delete",
            "from",
        ]:
            names.update(name_after(parts, at + 1))
    return names


def top_level(text):
    """(depth, word) of each significant token."""
    depth, result = 0, []
    for _, token in significant(text):
        if token in (")", "]"):
            depth -= 1
        result.append((depth, token))
        if token in ("(", "["):
            depth += 1
    return result


def order_by(text):
    """The items of the top level's ORDER BY, each a list of words; None if there is none."""
    parts = top_level(text)
    starts = [
        at + 2
        for at in range(len(parts) - 1)
        if parts[at] == (0, "order") and parts[at + 1] == (0, "by")
    ]
    if not starts:
        return None
    items = [[]]
    for depth, word in parts[starts[-1] :]:
        if depth == 0 and word in ("limit", "offset", "fetch", "for", ";"):
            break
        if depth == 0 and word == ",":
            items.append([])
        else:
            items[-1].append(word)
    return items
