"""asyncpg: connects, asks and copies, also in binary."""

import asyncio
import io

import asyncpg


async def main():
    # It sends client_encoding with the quotes: 'utf-8'.
    connection = await asyncpg.connect(timeout=10)
    assert connection.get_settings().client_encoding.lower() == "utf8"
    assert await connection.fetchval("select $1::int + 1", 41) == 42
    assert await connection.fetchval("select $1::text", "é€") == "é€"
    arrays = [[1, None, 3], [[1, 2], [3, 4]], []]
    assert [await connection.fetchval("select $1::int[]", a) for a in arrays] == arrays
    assert await connection.fetchval("select $1::text[] || $2::text", ["a", 'q"x'], "é,") == ["a", 'q"x', "é,"]
    rows = await connection.fetch("select g from generate_series(1, 5) g where g = any($1::int[])", [2, 4, 9])
    assert [r["g"] for r in rows] == [2, 4]
    await connection.execute("drop table if exists from_asyncpg")
    await connection.execute("create table from_asyncpg (i int primary key, t text)")
    data = io.BytesIO("1,é\n2,b\n".encode())
    # The format goes out as a quoted string.
    await connection.copy_to_table("from_asyncpg", source=data, format="csv")
    out = io.BytesIO()
    await connection.copy_from_query("select * from from_asyncpg order by i", output=out, format="csv")
    assert out.getvalue().decode() == "1,é\n2,b\n", out.getvalue()
    records = [(3, "é"), (4, None), (5, "")]
    await connection.copy_records_to_table("from_asyncpg", records=records)
    rows = await connection.fetch("select * from from_asyncpg where i > 2 order by i")
    assert [tuple(row) for row in rows] == records, rows
    await connection.execute("drop table from_asyncpg")
    await connection.close()
    latin = await asyncpg.connect(timeout=10, server_settings={"application_name": "asyncpg", "geqo": "off"})
    assert await latin.fetchval("show geqo") == "off"
    await latin.close()


asyncio.run(main())
