"""pg_activity: its questions, with a session that waits for another, and its screen."""

import os
import sys
import tempfile
import threading
from pathlib import Path

import pexpect
import psycopg
from pgactivity.data import Data
from pgactivity.types import Filters

ADDRESS = {
    "host": os.environ["PGHOST"],
    "port": int(os.environ["PGPORT"]),
    "user": os.environ["PGUSER"],
}
DATABASE = os.environ["PGDATABASE"]


def connect():
    return psycopg.connect(**ADDRESS, dbname=DATABASE, autocommit=True)


def cancelled(connection, statement):
    """Runs a statement that another session cancels."""
    try:
        connection.execute(statement)
    except psycopg.errors.QueryCanceled:
        return
    raise AssertionError(f"{statement}: not cancelled")


def lists(data, waiter, holder):
    """Who runs, who waits and who blocks, for each way of counting a duration."""
    for mode in [1, 2, 3]:
        assert waiter in [one.pid for one in data.pg_get_activities(mode)], mode
        waiting = data.pg_get_waiting(mode)
        assert [one.pid for one in waiting] == [waiter], waiting
        assert "activity_t" in waiting[0].query, waiting
        blocking = data.pg_get_blocking(mode)
        assert [one.pid for one in blocking] == [holder], blocking


def server(data):
    told = data.pg_get_server_information(None)
    assert told.total >= 3 and told.max_connections > 0 and told.total_size > 0, told
    assert told.temporary_file is not None and told.wal_senders == 0, told
    assert told.replication_slots == 0 and told.wal_receivers == 0, told
    again = data.pg_get_server_information(told)
    assert again.epoch >= told.epoch and not data.failed_queries.temp_file_query_failed, again
    data.pg_is_local(), data.pg_is_local_access()


def screen():
    program = str(Path(sys.executable).parent / "pg_activity")
    where = ["-h", ADDRESS["host"], "-p", str(ADDRESS["port"]), "-U", ADDRESS["user"]]
    with tempfile.TemporaryDirectory() as home:
        env = os.environ | {"TERM": "xterm", "HOME": home, "XDG_CONFIG_HOME": home}
        shown = pexpect.spawn(program, [*where, "-d", DATABASE], env=env, timeout=30, dimensions=(50, 200))
        # F1 to F3 and their letters: running, waiting, blocking.
        for key, wanted in [("", "RUNNING"), ("2", "WAITING"), ("3", "BLOCKING")]:
            shown.send(key)
            shown.expect(f"{wanted} QUERIES")
        shown.send("q")
        shown.expect(pexpect.EOF)


holder, waiter = connect(), connect()
holder.execute("drop table if exists activity_t; create table activity_t (id int primary key)")
holder.execute("insert into activity_t values (1)")
holder.execute("begin")
holder.execute("select from activity_t where id = 1 for update")
change = [waiter, "update activity_t set id = 2"]
change = threading.Thread(target=cancelled, args=change, daemon=True)
change.start()
data = Data.pg_connect(**ADDRESS, database=DATABASE)
filtered = Data.pg_connect(0.0001, **ADDRESS, database=DATABASE, filters=Filters(dbname=DATABASE))
pids = waiter.info.backend_pid, holder.info.backend_pid
# A change waits when it is seen to.
while not data.pg_get_waiting():
    pass
lists(data, *pids)
lists(filtered, *pids)
server(data)
server(filtered)
screen()
assert data.pg_cancel_backend(pids[0]) is True
change.join()
assert data.pg_terminate_backend(pids[1]) is True
with connect() as last:
    last.execute("drop table activity_t")
