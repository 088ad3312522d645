"""Servers that the programs of this directory start for themselves, and end: Braid and PostgreSQL.

Each owns a temporary directory, which is removed when it stops. PostgreSQL does not run as root, so
root starts it as the system's user `postgres`. Both have the superuser `tester` and the database
`braid`, so statements that name either get the same answer.
"""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

SUPERUSER = "tester"
DATABASE = "braid"
START_S = 60
STOP_S = 30


def free_ports(count):
    """The first of so many free ports in a row."""
    while True:
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
            sockets[0].bind(("127.0.0.1", 0))
            first = sockets[0].getsockname()[1]
            try:
                for at, other in enumerate(sockets[1:], 1):
                    other.bind(("127.0.0.1", first + at))
            except (OSError, OverflowError):
                continue
            return first


def await_open(name, conninfo, process, logs):
    """Returns when the server lets a client in. There is nothing to be woken by."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            psycopg.connect(conninfo, connect_timeout=5).close()
            return
        except psycopg.OperationalError as e:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{name} did not open ({e}); see {logs}") from e
            time.sleep(0.05)


def end(process, how=signal.SIGTERM):
    """Ends a process of ours, by force if it does not end by itself."""
    if process.poll() is not None:
        return
    process.send_signal(how)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Braid:
    """Instances of one database, of the runner's own."""

    def __init__(self, program, count=1, options=(), data=None):
        """`data` is a database to begin with, which is copied."""
        self.program = program
        self.options = list(options)
        self.folder = Path(tempfile.mkdtemp(prefix="braid-peers-"))
        self.instances = {}
        first = free_ports(count)
        self.ports = {number: first + number - 1 for number in range(1, count + 1)}
        self.conninfos = [
            f"host=127.0.0.1 port={port} user={SUPERUSER} dbname={DATABASE}"
            for port in self.ports.values()
        ]
        if data:
            shutil.copytree(data, self.data())
        for number in self.ports:
            self.start(number)

    def data(self):
        return self.folder / "data"

    def start(self, number):
        command = [self.program, "instance", "--data", str(self.data())]
        command += ["--port", str(self.ports[1]), "--instance", str(number)]
        command += ["--buffer-cache", "64MB", "--set", f"superuser={SUPERUSER}"] + self.options
        with open(self.folder / f"terminal-{number}.log", "ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        self.instances[number] = process
        await_open("braid", self.conninfos[number - 1], process, self.folder)

    def restart(self):
        """Starts anew what has died or hangs. Returns the last lines that an instance wrote."""
        for process in self.instances.values():
            end(process, signal.SIGKILL)
        last = [self.last_words(number) for number in self.ports]
        for number in self.ports:
            self.start(number)
        return "\n".join(last)

    def last_words(self, number, lines=15):
        texts = []
        logs = [self.folder / f"terminal-{number}.log"] + sorted(self.data().glob("**/*.log"))
        for path in logs:
            text = path.read_text(encoding="utf-8", errors="replace").splitlines()
            texts += [f"{path.name}: {line}" for line in text[-lines:]]
        return "\n".join(texts)

    def stop_instances(self):
        for process in self.instances.values():
            process.terminate()
        for process in self.instances.values():
            end(process)

    def stop(self):
        self.stop_instances()
        shutil.rmtree(self.folder)


class Postgres:
    """A cluster of the runner's own, without fsync."""

    def __init__(self, programs, options=()):
        """`programs` is the directory of initdb and postgres."""
        self.folder = Path(tempfile.mkdtemp(prefix="postgres-peers-"))
        self.user = None
        if os.getuid() == 0:
            self.user = "postgres"
            os.chown(self.folder, pwd.getpwnam(self.user).pw_uid, -1)
        port = free_ports(1)
        initdb = [f"{programs}/initdb", "-D", str(self.folder / "data"), "-U", SUPERUSER]
        # The locale that Braid says it has.
        initdb += ["--locale=C", "--lc-ctype=C.UTF-8"]
        initdb += ["-A", "trust", "-E", "UTF8", "--no-sync"]
        self.process = self.launch(initdb)
        if self.process.wait() != 0:
            raise SystemExit(f"initdb failed; see {self.folder}")
        command = [f"{programs}/postgres", "-D", str(self.folder / "data"), "-p", str(port)]
        command += ["-k", str(self.folder), "-h", "127.0.0.1"]
        for option in ["fsync=off", "jit=off", "max_prepared_transactions=2", *options]:
            command += ["-c", option]
        self.process = self.launch(command)
        self.address = f"host=127.0.0.1 port={port} user={SUPERUSER}"
        await_open("postgres", f"{self.address} dbname=postgres", self.process, self.folder)
        self.conninfo = f"{self.address} dbname={DATABASE}"
        self.administer(f"create database {DATABASE} template template0")

    def launch(self, command):
        with open(self.folder / "terminal.log", "ab") as log:
            return subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.folder, user=self.user, group=self.user
            )

    def administer(self, *statements):
        """Runs statements in the database `postgres`, and returns the last one's rows."""
        with psycopg.connect(f"{self.address} dbname=postgres", autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else None

    def stop(self):
        end(self.process, signal.SIGINT)
        shutil.rmtree(self.folder)
