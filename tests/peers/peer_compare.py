"""Whether two answers are the same.

Rows are compared as text. Without an ORDER BY they are compared as sets with counts. With one, rows
that it does not tell apart may come in any order, as far as its items are columns of the result.
"""

import sql_text

SAME = "same"
SAME_ERROR = "same error"
REFUSED = "refused"
OTHER_CODE = "other code"
DIFFERENT = "different"
HANG = "hang"
CRASH = "crash"
# Types of PostgreSQL's own, whose numbers both sides must have in common.
FIRST_OTHER_TYPE = 10000
INTERNAL_ERRORS = ("XX000", "XX001", "XX002")


def sorted_rows(rows):
    return sorted(rows, key=lambda row: [(v is None, v or "") for v in row])


def sort_columns(names, items):
    """Which columns of the result an ORDER BY sorts by; None if it sorts by something else."""
    columns = []
    for item in items:
        word = item[0] if item else ""
        simple = len(item) == 1 or item[1] in ("asc", "desc", "nulls", "using")
        if simple and word.isdigit() and 0 < int(word) <= len(names):
            columns.append(int(word) - 1)
        elif simple and word in names:
            columns.append(names.index(word))
        elif len(item) >= 3 and item[1] == "." and item[2] in names and item[3:] in ([], ["desc"]):
            columns.append(names.index(item[2]))
        else:
            return None
    return columns


def rows_differ(ours, theirs, items):
    """What differs in rows, if anything does; `items` are of the ORDER BY."""
    if ours.rows == theirs.rows:
        return None
    if sorted_rows(ours.rows) != sorted_rows(theirs.rows):
        return "rows"
    if items is None:
        return None
    columns = sort_columns(theirs.names, items)
    if columns is None:
        return "order"
    key = lambda answer: [[row[column] for column in columns] for row in answer.rows]
    return "order" if key(ours) != key(theirs) else None


def success_differs(ours, theirs, statement):
    """What differs in two answers that are no errors; None if nothing does."""
    if ours.kind != theirs.kind:
        return "kind"
    if ours.kind == "done":
        return None if ours.tag == theirs.tag else "tag"
    if ours.names != theirs.names:
        return "column names"
    for left, right in zip(ours.types, theirs.types):
        if left != right and right < FIRST_OTHER_TYPE:
            return "column types"
    return rows_differ(ours, theirs, sql_text.order_by(statement))


def error_differs(ours, theirs):
    """What differs in two errors of one SQLSTATE; nothing if they are the same."""
    for part in ("message", "position", "hint"):
        if getattr(ours, part) != getattr(theirs, part):
            return part
    return ""


def verdict(ours, theirs, statement):
    """(kind, what differs) of Braid's answer and PostgreSQL's."""
    if ours.kind in (HANG, CRASH):
        return ours.kind, ours.message
    if ours.kind == "error":
        if theirs.kind == "error" and ours.sqlstate == theirs.sqlstate:
            return SAME_ERROR, error_differs(ours, theirs)
        if ours.sqlstate == "0A000":
            return REFUSED, ""
        if ours.sqlstate == "57014" and theirs.kind != HANG:
            return HANG, "ended by statement_timeout"
        return OTHER_CODE, "" if theirs.kind == "error" else "works in PostgreSQL"
    if theirs.kind == "error":
        return DIFFERENT, f"{theirs.sqlstate} in PostgreSQL"
    what = success_differs(ours, theirs, statement)
    return (DIFFERENT, what) if what else (SAME, "")
