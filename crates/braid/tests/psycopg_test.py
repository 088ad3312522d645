"""psycopg 3 against a running instance; connection parameters come from the environment. Called by clients.rs."""

import datetime
import decimal
import uuid

import psycopg
from psycopg import errors

UTC = datetime.timezone.utc
ROW = (
    7,
    -(2**63),
    1.5,
    decimal.Decimal("-12345.6700"),
    "grüße \\ '",
    b"\x00\xff\\",
    datetime.date(1, 1, 1),
    datetime.datetime(2024, 2, 29, 23, 59, 59, 999999),
    datetime.datetime(2024, 2, 29, 23, 59, 59, 1, tzinfo=UTC),
    uuid.UUID(int=2**127 + 5),
    True,
)
COLUMNS = "a int, b bigint, c double precision, d numeric(12,4), e text, f bytea, g date, h timestamp, i timestamptz, j uuid, k boolean"


def values_come_back(conn):
    conn.execute(f"create table v ({COLUMNS})")
    marks = ", ".join(["%s"] * len(ROW))
    for _ in range(8):  # prepared on the server from the sixth on
        conn.execute(f"insert into v values ({marks})", ROW)
    conn.execute(f"insert into v values ({marks})", (None,) * len(ROW))
    for binary in (False, True):
        cursor = conn.cursor(binary=binary)
        for _ in range(8):
            rows = cursor.execute("select * from v order by a").fetchall()
            assert rows == [ROW] * 8 + [(None,) * len(ROW)], rows
        assert [c.type_code for c in cursor.description] == [23, 20, 701, 1700, 25, 17, 1082, 1114, 1184, 2950, 16]


def lists(conn):
    """A list is an array for the client. Rows that = ANY compares with it are found by the index."""
    conn.execute("create table l (id int primary key, s text, b bigint)")
    conn.execute("insert into l select g, 'row ' || g, g * 10000000000 from generate_series(1, 1000) g")
    for binary in (False, True):
        one = lambda sql, *args: [r[0] for r in conn.execute(sql, args, binary=binary).fetchall()]
        for n in range(8):  # prepared on the server from the sixth on
            assert one("select id from l where id = any(%s) order by id", [3, n + 10, 5000]) == [3, n + 10]
        assert one("select id from l where s = any(%s) order by id", ["row 7", 'a "b" \\c,{}', None]) == [7]
        assert one("select id from l where b = any(%s)", [20000000000]) == [2]
        assert one("select id from l where id = any(%s)", []) == []
        assert one("select count(*) from l where id <> all(%s)", [1, 2]) == [998]
        assert one("select count(*) from l where id > all(%s)", [990, 995]) == [5]
        assert one("select count(*) from l a join l c using (id) where id = any(%s)", [1, 2]) == [2]
        nested, texts = [[1, 2], [3, None]], ["a", 'b "', "", None]
        assert conn.execute("select %s, %s::text[]", (nested, texts), binary=binary).fetchone() == (nested, texts)
    assert conn.execute("update l set s = 'x' where id = any(%s)", ([1, 2, 2000],)).rowcount == 2
    assert conn.execute("delete from l where id = any(%s::int[])", ("{1,2}",)).rowcount == 2
    plan = conn.execute("explain select * from l where id = any('{3,4}'::int[])").fetchall()
    assert "Index" in plan[0][0], plan
    try:
        conn.execute("select id from l where id = any(%s)", ("{1,x}",))
        raise AssertionError("{1,x} was taken")
    except errors.InvalidTextRepresentation:
        pass


def pipelines(conn):
    conn.execute("create table p (id int primary key)")
    with conn.pipeline():
        for i in range(100):
            conn.execute("insert into p values (%s)", (i,))
    assert conn.execute("select count(*), sum(id) from p").fetchone() == (100, 4950)
    try:
        with conn.pipeline(), conn.transaction():
            conn.execute("insert into p values (100)")
            conn.execute("insert into p values (1)")
        raise AssertionError("a duplicate key was taken")
    except errors.UniqueViolation as e:
        assert e.diag.constraint_name == "p_pkey", e.diag.constraint_name
    assert conn.execute("select count(*) from p").fetchone() == (100,)


def transactions(conn):
    with conn.transaction():
        conn.execute("insert into p values (200)")
        try:
            with conn.transaction():  # a savepoint
                conn.execute("insert into p values (201)")
                conn.execute("insert into p values (200)")
        except errors.UniqueViolation:
            pass
        conn.execute("insert into p values (202)")
    assert [r[0] for r in conn.execute("select id from p where id >= 200 order by id")] == [200, 202]


def cursors(conn):
    with conn.transaction(), conn.cursor(name="c") as cursor:
        cursor.itersize = 7
        cursor.execute("select id from p where id < 100 order by id")
        assert [r[0] for r in cursor] == list(range(100))


def copies(conn):
    conn.execute("create table c (id int, t text)")
    with conn.cursor() as cursor:
        with cursor.copy("copy c from stdin") as copy:
            for i in range(1000):
                copy.write_row((i, f"tab\t{i}\\" if i % 3 else None))
        assert cursor.rowcount == 1000
        with cursor.copy("copy c to stdout") as copy:
            copy.set_types(["int4", "text"])
            rows = list(copy.rows())
    assert rows == [(i, f"tab\t{i}\\" if i % 3 else None) for i in range(1000)]
    with conn.cursor() as cursor:
        try:
            with cursor.copy("copy c from stdin") as copy:
                copy.write("1\ta\nx\tb\n")
            raise AssertionError("a bad number was taken")
        except errors.InvalidTextRepresentation:
            pass
    assert conn.execute("select count(*) from c").fetchone() == (1000,)
    with conn.cursor() as cursor:
        with cursor.copy("copy c from stdin (format csv) where id > 2000 and t is null") as copy:
            copy.write("2000,\n2001,\n2002,x\n")
        assert cursor.rowcount == 1
        try:
            with cursor.copy("copy c from stdin where 1 / (id - 5) = 1") as copy:
                copy.write("4\tx\n5\ty\n")
            raise AssertionError("a row was divided by zero")
        except errors.DivisionByZero as e:
            assert e.diag.context == 'COPY c, line 2: "5\ty"', e.diag.context
    assert conn.execute("delete from c where id > 1000 returning id").fetchall() == [(2001,)]


def cancels(conn):
    import threading

    conn.execute("insert into p values (300)")
    with psycopg.connect() as other:
        other.execute("delete from p where id = 300")
        timer = threading.Timer(0.5, conn.cancel)
        timer.start()
        try:
            conn.execute("delete from p where id = 300")
            raise AssertionError("a cancelled statement ended well")
        except errors.QueryCanceled:
            pass
        timer.join()
        other.rollback()


def notifications(conn):
    conn.execute("listen news")
    with psycopg.connect() as other:
        other.execute("notify news, 'one'")
        other.execute("select pg_notify('news', 'two \u00e4')")
        assert list(conn.notifies(timeout=0.1)) == []
        other.commit()
        pid = other.info.backend_pid
        told = list(conn.notifies(timeout=60, stop_after=2))
        assert [(n.channel, n.payload, n.pid) for n in told] == [("news", "one", pid), ("news", "two \u00e4", pid)]
    # Told with the answer to a statement.
    said = []
    conn.add_notify_handler(lambda n: said.append(n.payload))
    conn.execute("notify news, 'own'")
    assert said == ["own"], said
    conn.execute("unlisten *")


with psycopg.connect(autocommit=True) as connection:
    for test in (values_come_back, lists, pipelines, transactions, cursors, copies, cancels, notifications):
        test(connection)
        print("ok", test.__name__)
