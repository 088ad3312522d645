"""A client of failover.py by libpq (psycopg 3): commits rows until its standard input ends.

FAILOVER_HOSTS and FAILOVER_PORTS are lists in the order in which libpq tries them. Prints one
object of JSON, whose fields failover.py describes.
"""

import json
import os
import sys
import threading
import time

import psycopg

HOSTS, PORTS = os.environ["FAILOVER_HOSTS"], os.environ["FAILOVER_PORTS"]
NAME, WORKERS = os.environ["FAILOVER_NAME"], int(os.environ["FAILOVER_WORKERS"])
ended = threading.Event()


class Worker(threading.Thread):
    """Commits its rows one after another, each by one transaction, over one connection."""

    def __init__(self, number):
        super().__init__()
        self.number, self.committed, self.doubtful = number, 0, 0
        self.longest, self.errors = 0.0, {}

    def run(self):
        connection, last = None, None
        while not ended.is_set():
            try:
                if connection is None:
                    connection = psycopg.connect(host=HOSTS, port=PORTS)
                with connection.transaction():
                    row = (NAME, self.number, self.committed)
                    connection.execute("insert into failover_row values (%s, %s, %s)", row)
                    account = (self.committed * 7 + self.number) % 100
                    change = "update failover_account set n = n + 1 where id = %s"
                    connection.execute(change, (account,))
            except psycopg.errors.UniqueViolation:
                # The commit whose answer did not come.
                self.doubtful += 1
            except psycopg.Error as error:
                kind = error.sqlstate or "connection"
                self.errors[kind] = self.errors.get(kind, 0) + 1
                if connection is None or connection.broken:
                    connection = None
                continue
            now = time.monotonic()
            self.longest = max(self.longest, now - (last or now))
            self.committed, last = self.committed + 1, now
        if connection is not None:
            connection.close()


workers = [Worker(number) for number in range(WORKERS)]
for worker in workers:
    worker.start()
sys.stdin.read()
ended.set()
for worker in workers:
    worker.join()
errors = {}
for worker in workers:
    for kind, count in worker.errors.items():
        errors[kind] = errors.get(kind, 0) + count
told = {
    "committed": sum(worker.committed for worker in workers),
    "doubtful": sum(worker.doubtful for worker in workers),
    "longest_ms": [round(worker.longest * 1000) for worker in workers],
    "errors": errors,
}
print(json.dumps(told))
