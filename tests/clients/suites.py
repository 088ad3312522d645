#!/usr/bin/env python3
"""Runs a client's own tests against Braid, or against PostgreSQL to compare.

    tests/clients/suites.py sqlalchemy SOURCE --braid target/debug/braid
    tests/clients/suites.py django SOURCE --postgres /usr/lib/postgresql/15/bin -- schema queries
    tests/clients/suites.py pgx SOURCE --braid target/debug/braid -- ./pgtype/...
    tests/clients/suites.py pgjdbc SOURCE --braid target/debug/braid -- -c NAME.OF.CLASS

SOURCE is the unpacked source of the client, in the version that is installed for this Python,
beside pytest and pytest-timeout (Django needs none) and psycopg 3. pgx wants go; pgjdbc wants
Maven, which fetches the driver of the version that DRIVER names, and JUnit. What stands behind `--`
goes to the suite's runner in place of what it runs by itself. The servers are started, and ended,
by this program.
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
    options = ["-q", "-W", "ignore", "--tb=short", "--timeout=60"]
    options += ["-o", f"cache_dir={scratch / 'cache'}"]
    return [sys.executable, "-m", "pytest", *options]


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


def psycopg2(source, port, scratch, chosen):
    # Away from the source, whose module has not been compiled.
    (scratch / "tests").symlink_to(source / "tests")
    asked = {"PSYCOPG2_TESTDB": "braid", "PSYCOPG2_TESTDB_HOST": "127.0.0.1"}
    asked |= {"PSYCOPG2_TESTDB_PORT": port, "PSYCOPG2_TESTDB_USER": SUPERUSER}
    return pytest(scratch) + ["-p", "no:asyncio"] + (chosen or ["tests"]), scratch, asked


def django(source, port, scratch, chosen):
    (scratch / "braid_settings.py").write_text(SETTINGS.format(port=port, user=SUPERUSER))
    options = ["--settings", "braid_settings", "--keepdb", "--noinput", "--parallel", "1"]
    command = [sys.executable, "-W", "ignore", "runtests.py"]
    return command + options + (chosen or DJANGO.split()), source / "tests", {}


def pgx(source, port, scratch, chosen):
    address = f"host=127.0.0.1 port={port} user={SUPERUSER} dbname=braid"
    with psycopg.connect(address, autocommit=True) as connection:
        for statement in PGX:
            connection.execute(statement)
    asked = {"PGX_TEST_DATABASE": address.replace("dbname", "database")}
    asked["PGX_TEST_TCP_CONN_STRING"] = asked["PGX_TEST_DATABASE"]
    # One package after another: they make the same tables.
    command = ["go", "test", "-p", "1", "-timeout", "1200s"]
    return command + (chosen or ["./..."]), source, asked


def pgjdbc(source, port, scratch, chosen):
    """Compiles the tests of the driver's source against the driver as it is published."""
    needed = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, name, version in (line.split(":") for line in DRIVER.split())
    )
    (scratch / "pom.xml").write_text(POM.format(needed=needed))
    where = scratch / "classpath"
    maven = ["mvn", "-q", "-B", "dependency:build-classpath", f"-Dmdep.outputFile={where}"]
    subprocess.run(maven, cwd=scratch, check=True)
    made = scratch / "classes"
    tests = source / "pgjdbc/src"
    left = {"osgi", "sspi", "replication"}
    files = [
        str(file)
        for kind in ["test", "testFixtures"]
        for file in (tests / kind / "java").rglob("*.java")
        if not left & set(file.parts) and not file.name.startswith("CopyBothResponseTest")
    ]
    (scratch / "files").write_text("\n".join(files))
    javac = ["javac", "-nowarn", "-proc:none", "-d", str(made), "-cp", where.read_text()]
    subprocess.run([*javac, f"@{scratch / 'files'}"], check=True)
    properties = {
        "test.url.PGHOST": "127.0.0.1",
        "test.url.PGPORT": port,
        "secondaryPort1": port,
        "test.url.PGDBNAME": "braid",
        "user": SUPERUSER,
        "password": "test",
        "privilegedUser": SUPERUSER,
        "privilegedPassword": "test",
        "certdir": source / "certdir",
    }
    (scratch / "build.local.properties").write_text(
        "".join(f"{name}={value}\n" for name, value in properties.items())
    )
    (scratch / "build.properties").write_text((source / "build.properties").read_text())
    classes = os.pathsep.join([str(made), str(tests / "test/resources"), where.read_text()])
    java = ["java", f"-Dbuild.properties.relative.path={scratch}", "-Duser.language=en"]
    java += ["-Duser.timezone=UTC", "-cp", classes, "org.junit.platform.console.ConsoleLauncher"]
    how = ["execute", "--details=tree", "--disable-banner", "--disable-ansi-colors"]
    return java + how + (chosen or ["-p", "org.postgresql"]), scratch, {}


DRIVER = """org.postgresql:postgresql:42.7.7 com.ongres.scram:scram-client:3.1
org.checkerframework:checker-qual:3.49.3 junit:junit:4.13.2 org.junit.jupiter:junit-jupiter:5.12.2
org.junit.vintage:junit-vintage-engine:5.12.2 org.hamcrest:hamcrest:3.0
org.junit.platform:junit-platform-console-standalone:1.12.2
se.jiderhamn:classloader-leak-test-framework:1.1.2
uk.org.webcompere:system-stubs-jupiter:2.1.8"""
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>suite</groupId><artifactId>suite</artifactId><version>1</version>
<dependencies>{needed}</dependencies></project>"""
# What pgx's tests want to be there, but for extensions.
PGX = [
    "create domain uint64 as numeric(20, 0)",
    """create user " tricky, ' } "" \\ test user " superuser password 'secret'""",
]
SUITES = {
    "sqlalchemy": sqlalchemy,
    "psycopg": psycopg3,
    "psycopg2": psycopg2,
    "asyncpg": asyncpg,
    "django": django,
    "pgx": pgx,
    "pgjdbc": pgjdbc,
}


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
