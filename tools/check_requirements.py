#!/usr/bin/env python3
"""Looks that docs/requirements.md has every requirement once and cites only files and tests that exist."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
counts = {"S0": 30, "S1": 32, "S2": 28, "S3": 23, "S4": 36}
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
    for file, test in re.findall(r"`([\w.-]+(?:_test\.c|\.test\.mjs))(?:: ([^`]+|.*?\$\{.*?))?`", row):
        source = files.get(file)
        if source is None:
            faults.append(f"{name}: there is no {file}")
        elif test and file.endswith(".c"):
            if not re.search(rf"^TEST(?:_\w+)?\({re.escape(test)}\b", source, re.M):
                faults.append(f"{name}: {file} has no test {test}")
        elif test and not re.search(rf"""\btest\(['"`]{re.escape(test)}""", source):
            faults.append(f"{name}: {file} has no test '{test}'")
    for place in re.findall(r"`([\w/.-]+\.[ch])`", row):
        if place.endswith("_test.c"):
            continue
        if not any(root.glob(f"src/**/{place}")) and not (root / place).exists():
            faults.append(f"{name}: there is no {place}")
for fault in faults:
    print(f"docs/requirements.md: {fault}")
sys.exit(1 if faults else 0)
