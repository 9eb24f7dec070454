#!/usr/bin/env python3
"""The programs of unit tests that Meson ran, one a line: name, passed, failed, skipped: meson_parts.py LOG.json

Each program ends with "N passed, N failed, N skipped". One that did not, or that Meson calls failed although it counted no failure,
has one. Without a log nothing was even built, which is a failure, too."""
import json
import pathlib
import re
import sys

SUMMARY = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", re.M)


def part(test):
    found = SUMMARY.findall(test.get("stdout") or "")
    good, bad, skipped = map(int, found[-1]) if found else (0, 0, 0)
    if not found or (test["result"] not in ("OK", "SKIP") and not bad):
        bad = max(bad, 1)
    return test["name"].split(" / ")[-1], good, bad, skipped


log = pathlib.Path(sys.argv[1])
tests = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
for row in map(part, tests):
    print(*row)
if not tests:
    print("build 0 1 0")
