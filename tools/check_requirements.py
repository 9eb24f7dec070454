#!/usr/bin/env python3
"""Checks that docs/requirements.md has every requirement once, that each row names a test, and that files and tests exist."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
counts = {"S0": 30, "S1": 32, "S2": 28, "S3": 23, "S4": 36}
without_test = {"S2-24"}  # a schedule of work
text = (root / "docs/requirements.md").read_text()
files = {}
for path in [*root.glob("src/**/*_test.c"), *root.glob("tests/*/*.test.mjs")]:
    files[path.name] = files.get(path.name, "") + path.read_text()

faults = []
rows = re.findall(r"^\| (S\d-\d+) \|(.*)\|$", text, re.M)
wanted = [f"{seed}-{n}" for seed, count in counts.items() for n in range(1, count + 1)]
if [row[0] for row in rows] != wanted:
    faults.append("not every requirement has one row, in order")
for name, row in rows:
    cited = re.findall(r"`([\w.-]+(?:_test\.c|\.test\.mjs))(?:: ([^`]+|.*?\$\{.*?))?`", row)
    if name not in without_test and not any(test for _, test in cited):
        faults.append(f"{name}: names no test that shows it; cite one as `FILE: beginning of its name`")
    for file, test in cited:
        source = files.get(file)
        if source is None:
            faults.append(f"{name}: there is no {file}")
        elif not test:
            faults.append(f"{name}: cites {file} without the name of a test")
        elif file.endswith(".c"):
            if not re.search(rf"^TEST(?:_\w+)?\({re.escape(test)}\b", source, re.M):
                faults.append(f"{name}: {file} has no test {test}")
        elif not re.search(rf"""\btest\(['"`]{re.escape(test)}""", source):
            faults.append(f"{name}: {file} has no test '{test}'")
    for place in re.findall(r"`([\w/.-]+\.[ch])`", row):
        if place.endswith("_test.c"):
            continue
        if not any(root.glob(f"src/**/{place}")) and not (root / place).exists():
            faults.append(f"{name}: there is no {place}")
for fault in faults:
    print(f"docs/requirements.md: {fault}")
sys.exit(1 if faults else 0)
