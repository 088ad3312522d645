"""psycopg 2: connects in several encodings."""

import psycopg2

connection = psycopg2.connect(options="-c geqo=off -c application_name=with\\ blank --work-mem=8MB")
with connection, connection.cursor() as cursor:
    cursor.execute("select current_setting('geqo'), current_setting('application_name'), current_setting('work_mem')")
    assert cursor.fetchone() == ("off", "with blank", "8MB")
connection.close()

for encoding in ["SQL_ASCII", "LATIN1", "latin-9", "WIN1252", "utf-8"]:
    connection = psycopg2.connect(client_encoding=encoding)
    with connection, connection.cursor() as cursor:
        cursor.execute("show client_encoding")
        (reported,) = cursor.fetchone()
        assert reported == connection.info.parameter_status("client_encoding"), encoding
        if encoding == "SQL_ASCII":
            continue
        cursor.execute("select %s, length(%s)", ("é", "é"))
        assert cursor.fetchone() == ("é", 1), encoding
        connection.set_client_encoding("LATIN1")
        try:
            cursor.execute("select 'x' as a, chr(8364)")
        except psycopg2.Error as e:
            assert e.pgcode == "22P05", e
        else:
            raise AssertionError("LATIN1 has no euro sign")
    connection.close()
