"""Makes a statement on which two servers differ smaller, and the tables under it.

`fails(statement, tables)` says whether they still differ in the same way. Every step that keeps the
difference is kept; the reducer ends when no step does, or when its time is over.
"""

import time

import fuzz_schema
import fuzz_tree


def reduce_statement(statement, tables, fails, deadline):
    """The smallest statement found."""
    tried = set()
    progress = True
    while progress and time.monotonic() < deadline:
        progress = False
        for candidate in fuzz_tree.reductions(statement):
            text = str(candidate)
            if text in tried or len(text) >= len(str(statement)):
                continue
            tried.add(text)
            if time.monotonic() > deadline:
                break
            if fails(candidate, tables):
                statement, progress = candidate, True
                break
    return statement


def without_rows(table):
    """Copies of the table with fewer rows: without each half, each quarter and so on."""
    step = (len(table.rows) + 1) // 2
    while step >= 1 and table.rows:
        for at in range(0, len(table.rows), step):
            rows = table.rows[:at] + table.rows[at + step :]
            yield fuzz_schema.Table(table.name, table.columns, table.key, table.indexes, rows)
        step //= 2


def simpler(table):
    """Copies of the table that are simpler in one way; large steps come first."""
    yield from without_rows(table)
    for at in range(len(table.indexes)):
        indexes = table.indexes[:at] + table.indexes[at + 1 :]
        yield fuzz_schema.Table(table.name, table.columns, table.key, indexes, table.rows)
    if table.key:
        yield fuzz_schema.Table(table.name, table.columns, [], table.indexes, table.rows)
    for column in table.columns:
        smaller = table.without_column(column.name)
        if smaller:
            yield smaller


def reduce_tables(statement, tables, fails, deadline):
    text = str(statement)
    tables = [table for table in tables if table.name in text]
    progress = True
    while progress and time.monotonic() < deadline:
        progress = False
        for at, table in enumerate(tables):
            for smaller in simpler(table):
                if time.monotonic() > deadline:
                    break
                candidate = tables[:at] + [smaller] + tables[at + 1 :]
                if fails(statement, candidate):
                    tables, progress = candidate, True
                    break
    return tables


def reduce(statement, tables, fails, seconds):
    """The statement and the tables, both made smaller."""
    deadline = time.monotonic() + seconds
    statement = reduce_statement(statement, tables, fails, deadline - seconds / 3)
    tables = reduce_tables(statement, tables, fails, deadline)
    return reduce_statement(statement, tables, fails, deadline), tables
