#!/usr/bin/env python3
"""Runs a client's own tests against Braid, or against PostgreSQL to compare.

    tests/clients/suites.py sqlalchemy SOURCE --braid target/debug/braid
    tests/clients/suites.py django SOURCE --postgres /usr/lib/postgresql/15/bin -- schema queries

SOURCE is the unpacked source of the client, in the version that is installed for this Python,
beside pytest (Django needs none) and psycopg 3. What stands behind `--` goes to the suite's runner
in place of what it runs by itself. The servers are started, and ended, by this program.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "peers"))

import psycopg  # noqa: E402
from peer_servers import SUPERUSER, Braid, Postgres  # noqa: E402

# SQLAlchemy's tests make extensions before they begin, which Braid has none of.
PLUGIN = """
def pytest_configure(config):
    from sqlalchemy.dialects.postgresql import provision
    provision._extensions.clear()
"""

# Every name of a database leads to Braid's one, and it makes no other: the tests' is the one that
# is asked whether there is one of that name.
SETTINGS = """
import os

_database = {{
    "ENGINE": "django.db.backends.postgresql",
    "HOST": "127.0.0.1",
    "PORT": "{port}",
    "USER": "{user}",
    "NAME": "postgres",
}}
DATABASES = {{
    "default": _database | {{"TEST": {{"NAME": "postgres"}}}},
    "other": _database | {{"TEST": {{"MIRROR": "default"}}}},
}}
SECRET_KEY = "tests"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False
"""
DJANGO = """backends introspection inspectdb schema migrations indexes constraints transactions
model_fields lookup queries aggregation expressions expressions_case expressions_window bulk_create
get_or_create update delete select_for_update"""


def pytest(scratch):
    cache = f"cache_dir={scratch / 'cache'}"
    return [sys.executable, "-m", "pytest", "-q", "-W", "ignore", "--tb=short", "-o", cache]


def sqlalchemy(source, port, scratch, chosen):
    (scratch / "braid_sqlalchemy.py").write_text(PLUGIN)
    address = f"host=127.0.0.1 port={port} user={SUPERUSER} dbname=braid"
    with psycopg.connect(address, autocommit=True) as connection:
        for schema in ["test_schema", "test_schema_2"]:
            connection.execute(f"create schema {schema}")
    uri = f"postgresql+psycopg://{SUPERUSER}@127.0.0.1:{port}/braid"
    options = ["-p", "braid_sqlalchemy", "--maxfail=100000", "--dburi", uri]
    command = pytest(scratch) + ["-p", "no:logging"] + options
    return command + (chosen or ["test/dialect/test_suite.py"]), source, {}


def psycopg3(source, port, scratch, chosen):
    address = f"host=127.0.0.1 port={port} user={SUPERUSER} dbname=braid"
    options = ["-p", "no:asyncio", "--test-dsn", address]
    options += ["-m", "not slow and not timing and not pool"]
    options += ["--ignore", "tests/pool", "--ignore", "tests/crdb"]
    asked = {"PYTHONPATH": source / "psycopg"}
    return pytest(scratch) + options + (chosen or ["tests"]), source, asked


def asyncpg(source, port, scratch, chosen):
    # Away from the source, whose module has not been compiled.
    (scratch / "tests").symlink_to(source / "tests")
    asked = {"PGHOST": "127.0.0.1", "PGPORT": port, "PGUSER": SUPERUSER, "PGDATABASE": "braid"}
    options = ["-p", "no:asyncio", "--ignore", "tests/test__sourcecode.py"]
    return pytest(scratch) + options + (chosen or ["tests"]), scratch, asked


def django(source, port, scratch, chosen):
    (scratch / "braid_settings.py").write_text(SETTINGS.format(port=port, user=SUPERUSER))
    options = ["--settings", "braid_settings", "--keepdb", "--noinput", "--parallel", "1"]
    command = [sys.executable, "-W", "ignore", "runtests.py"]
    return command + options + (chosen or DJANGO.split()), source / "tests", {}


SUITES = {"sqlalchemy": sqlalchemy, "psycopg": psycopg3, "asyncpg": asyncpg, "django": django}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("source", type=lambda path: Path(path).resolve())
    server = parser.add_mutually_exclusive_group(required=True)
    server.add_argument("--braid", help="the program")
    server.add_argument("--postgres", help="the directory of initdb and postgres")
    own, chosen = sys.argv[1:], []
    if "--" in own:
        own, chosen = own[: own.index("--")], own[own.index("--") + 1 :]
    args = parser.parse_args(own)
    server = Braid(args.braid) if args.braid else Postgres(args.postgres)
    try:
        address = server.conninfos[0] if args.braid else server.conninfo
        port = psycopg.conninfo.conninfo_to_dict(address)["port"]
        with tempfile.TemporaryDirectory() as scratch:
            scratch = Path(scratch)
            command, folder, asked = SUITES[args.suite](args.source, port, scratch, chosen)
            asked = {name: str(value) for name, value in asked.items()}
            paths = [str(scratch), asked.pop("PYTHONPATH", "")]
            asked["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
            asked = os.environ | asked
            return subprocess.run(command, cwd=folder, env=asked, check=False).returncode
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main())
