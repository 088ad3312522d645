"""psycopg 3: connects, in UTF-8 and LATIN1, with text and binary values, sends and reads arrays,
and copies."""

import datetime
from decimal import Decimal

import psycopg

for encoding in ["utf8", "latin1", "iso-8859-15", "sql_ascii"]:
    with psycopg.connect(client_encoding=encoding, options="-c search_path=public") as connection:
        for binary in [False, True]:
            cursor = connection.cursor(binary=binary)
            row = cursor.execute("select %s::int + 1", (41,)).fetchone()
            assert row == (42,), row
            if encoding == "sql_ascii":
                continue
            placeholder = "%b" if binary else "%t"
            row = cursor.execute(f"select {placeholder}::text as \"é\", length({placeholder}::text)", ("éø", "éø")).fetchone()
            assert row == ("éø", 2), (encoding, binary, row)
            assert cursor.description[0].name == "é"
            arrays = ([1, None, 3], ["a", "é,", None], [[1.5, 2.5]])
            row = cursor.execute("select %s::int[], %s::text[], %s::float8[]", arrays).fetchone()
            assert row == arrays, row
        if encoding == "sql_ascii":
            continue
        connection.execute("create table copied_psycopg (t text)")
        with connection.cursor().copy("copy copied_psycopg from stdin") as copy:
            copy.write_row(["é\t1"])
        with connection.cursor().copy("copy copied_psycopg to stdout (encoding 'utf8')") as copy:
            assert b"".join(copy) == "é\\t1\n".encode()
        with connection.cursor().copy("copy copied_psycopg to stdout (format 'csv', encoding 'latin1')") as copy:
            assert b"".join(copy) == "é\t1\n".encode("latin1")
        rows = [(datetime.date(2020, 2, 29), Decimal("1.50"), [1, None]), (None, None, None)]
        connection.execute("create table copied_binary (d date, n numeric, a int[])")
        with connection.cursor().copy("copy copied_binary from stdin (format binary)") as copy:
            copy.set_types(["date", "numeric", "int4[]"])
            for row in rows:
                copy.write_row(row)
        with connection.cursor().copy("copy copied_binary to stdout (format binary)") as copy:
            copy.set_types(["date", "numeric", "int4[]"])
            assert list(copy.rows()) == rows
        connection.rollback()
