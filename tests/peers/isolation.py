#!/usr/bin/env python3
"""Runs PostgreSQL's isolation specs against Braid and compares with PostgreSQL's expected output.

    isolation.py SOURCE --braid target/debug/braid [--instances 2] [--only NAME ..] [--out DIR]
    isolation.py SOURCE --server 'host=127.0.0.1 port=5432 dbname=postgres' [--server ..]

SOURCE is a source tree of PostgreSQL 15. Sessions of a spec are put on the servers in turn. Ends
with 1 if a spec differs that isolation_differences.toml has no reason for.
"""

import argparse
import os
import re
import signal
import sys
import tomllib
from pathlib import Path

import isolation_run
import isolation_spec
import peer_servers

# Errors by which Braid refuses what it does not have: a feature, a syntax, a function, a type.
REFUSALS = {"0A000", "42601", "42883", "42704"}
DIFFERENCES = Path(__file__).with_name("isolation_differences.toml")
# If so many permutations are refused from the first on, the others are not run.
ENOUGH_REFUSED = 20


def normal(text):
    """As pg_regress compares: without regard to blanks."""
    return [line for line in (re.sub(r"\s+", "", l) for l in text.splitlines()) if line]


def expected_permutations(source, name):
    """The variants of the expected output, each by permutation, in order."""
    folder = source / "src/test/isolation/expected"
    variants = []
    for path in sorted(folder.glob(f"{name}.out")) + sorted(folder.glob(f"{name}_[0-9].out")):
        parts = re.split(r"(?m)^(?=starting permutation:)", path.read_text(encoding="utf-8"))
        variants.append([normal(part) for part in parts[1:]])
    if not variants:
        raise SystemExit(f"no expected output for {name}")
    return variants


class Outcome:
    """What came of a spec."""

    def __init__(self, name, reason):
        self.name = name
        # Why it is known to differ.
        self.reason = reason
        self.same = 0
        self.different = []
        self.refused = 0
        self.refusal = None

    def kind(self):
        if self.different:
            return "different"
        return "refused" if self.refused else "same"

    def line(self):
        total = self.same + len(self.different) + self.refused
        text = f"{self.kind():9} {self.name:34} {self.same:4} same"
        text += f" {len(self.different):4} different {self.refused:4} refused of {total}"
        notes = [self.refusal] if self.refusal else []
        if self.different:
            notes.append(self.reason or "UNKNOWN")
        return "  ".join([text] + notes)


def refusal_of(failures, expected):
    """The first error that names what Braid lacks, and that PostgreSQL does not give here."""
    for failure in failures:
        if failure.sqlstate in REFUSALS and normal(f"ERROR: {failure.message}")[0] not in expected:
            return str(failure)
    return None


def run_permutation(spec, steps, servers, options):
    permutation = isolation_run.Permutation(spec, steps, servers, options)
    try:
        permutation.run()
    finally:
        permutation.close()
    return permutation


def run_spec(source, path, servers, options):
    spec = isolation_spec.read(path)
    outcome = Outcome(path.stem, options.reasons.get(path.stem))
    variants = expected_permutations(source, path.stem)
    written = []
    for at, steps in enumerate(spec.permutations):
        wanted = [v[at] for v in variants if at < len(v)]
        permutation = run_permutation(spec, steps, servers, options)
        text = "".join(permutation.log.text)
        written.append(text)
        if normal(text) in wanted:
            outcome.same += 1
            continue
        isolation_run.drop_everything(servers[0])
        failure = permutation.setup_failure
        refusal = str(failure) if failure else refusal_of(permutation.log.failures, wanted[0])
        if not refusal:
            outcome.different.append((at, text, wanted[0]))
            continue
        outcome.refused += 1
        outcome.refusal = outcome.refusal or refusal
        if permutation.setup_failure or outcome.refused == at + 1 == ENOUGH_REFUSED:
            outcome.refused += len(spec.permutations) - at - 1
            break
    if options.out:
        Path(options.out, f"{path.stem}.out").write_text("\n".join(written), encoding="utf-8")
    isolation_run.drop_everything(servers[0])
    return outcome


def first_difference(text, wanted):
    ours = normal(text)
    lines = [l for l in text.splitlines() if l.strip()]
    for at, line in enumerate(ours):
        if at >= len(wanted) or line != wanted[at]:
            theirs = wanted[at] if at < len(wanted) else "(nothing)"
            return f"{lines[at]!r}, not {theirs!r}"
    return f"ends before {wanted[len(ours)]!r}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("--server", action="append", default=[])
    parser.add_argument("--braid")
    parser.add_argument("--instances", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--out", help="directory for what each spec has written")
    parser.add_argument("--step-seconds", type=float, default=10)
    parser.add_argument("--blocked-polls", type=int, default=3)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    os.environ.setdefault("PGTZ", "PST8PDT")
    known = tomllib.loads(DIFFERENCES.read_text(encoding="utf-8"))
    options.reasons = {name: reason for reason, of in known.items() for name in of["specs"]}
    if options.out:
        Path(options.out).mkdir(parents=True, exist_ok=True)
    specs = sorted((options.source / "src/test/isolation/specs").glob("*.spec"))
    if options.only:
        specs = [path for path in specs if path.stem in options.only]
    braid = peer_servers.Braid(options.braid, options.instances) if options.braid else None
    try:
        conninfos = braid.conninfos if braid else options.server
        servers = [isolation_run.Server(conninfo) for conninfo in conninfos]
        outcomes = []
        for path in specs:
            outcome = run_spec(options.source, path, servers, options)
            outcomes.append(outcome)
            print(outcome.line(), flush=True)
            for at, text, wanted in outcome.different[:3]:
                print(f"    permutation {at + 1}: {first_difference(text, wanted)}", flush=True)
    finally:
        if braid:
            braid.stop()
    kinds = [outcome.kind() for outcome in outcomes]
    for kind in ("same", "different", "refused"):
        print(f"{kinds.count(kind):4} specs {kind}")
    counts = [
        sum(o.same for o in outcomes),
        sum(len(o.different) for o in outcomes),
        sum(o.refused for o in outcomes),
    ]
    print("permutations: {} same, {} different, {} refused".format(*counts))
    unknown = [o.name for o in outcomes if o.different and not o.reason]
    if unknown:
        print("without a reason: " + ", ".join(unknown))
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
