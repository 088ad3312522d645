"""postgres_exporter, whose program is the argument: every collector that it has succeeds."""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request

# These ask what a view of an extension has.
ABSENT = ["buffercache_summary", "xlog_location"]
# That of statements calls the extension's function.
extension = "create extension if not exists pg_stat_statements"
subprocess.run(["psql", "-XAtqc", extension], check=True)

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
program = sys.argv[1]
help_text = subprocess.run([program, "--help"], capture_output=True, text=True, check=True)
collectors = re.findall(r"--\[no-\]collector\.(\w+)", help_text.stdout + help_text.stderr)
collectors = [name for name in dict.fromkeys(collectors) if name not in ABSENT]
where = "host={PGHOST} port={PGPORT} user={PGUSER} dbname={PGDATABASE} sslmode=disable"
env = os.environ | {"DATA_SOURCE_NAME": where.format(**os.environ)}
options = [f"--collector.{name}" for name in collectors]
options += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
exporter = subprocess.Popen([program, *options], env=env, stderr=subprocess.PIPE, text=True)


def scrape():
    """What is told once the program listens; there is nothing to be woken by."""
    for _ in range(300):
        if exporter.poll() is not None:
            raise SystemExit(exporter.stderr.read())
        try:
            where = f"http://127.0.0.1:{port}/metrics"
            return urllib.request.urlopen(where, timeout=30).read().decode()
        except OSError:
            time.sleep(0.05)
    raise SystemExit("it does not listen")


try:
    scrape()
    told = scrape()
finally:
    exporter.terminate()
    said = exporter.communicate()[1]
values = dict(re.findall(r"^(\w+(?:\{[^}]*\})?) (\S+)$", told, re.MULTILINE))
states = {name: value for name, value in values.items() if "scrape_collector_success" in name}
failed = [name for name, value in states.items() if float(value) != 1]
assert values["pg_up"] == "1" and values["pg_exporter_last_scrape_error"] == "0", said
assert len(states) >= len(options) - 5 and not failed, f"{failed}\n{said}"
for wanted in ["pg_database_size_bytes", "pg_locks_count", "pg_settings_", "pg_stat_activity_count",
               "pg_stat_database_xact_commit", "pg_stat_bgwriter", "pg_wal_segments"]:
    assert any(name.startswith(wanted) for name in values), wanted
