#!/usr/bin/env python3
"""Fails when a file under src/ includes what LAYERS does not allow, or another folder's private header."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'\s*#\s*include\s+"(?:([^/"]+)/)?([^"]+)"')


def read_layers():
    layers = {}
    for line in (ROOT / "LAYERS").read_text().splitlines():
        line = line.split("#", 1)[0].strip()
        if line:
            folder, _, deps = line.partition(":")
            layers[folder.strip()] = set(deps.split())
    return layers


def problems(path, layers):
    folder = path.parent.name
    if folder not in layers:
        yield 0, f"folder {folder}/ is not in LAYERS"
        return
    may = layers[folder] | {folder, "base"}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        target, header = match.groups()
        if target is None:
            if not (header.endswith(".c") and path.name.endswith(("_test.c", "_fuzz.c"))):
                yield number, f'"{header}" lacks its folder'
        elif "*" not in may and target not in may:
            yield number, f"{folder} may not include {target}/"
        elif header.endswith("_internal.h") and target != folder:
            yield number, f"{target}/{header} is private to {target}/"


def main():
    layers = read_layers()
    bad = 0
    for path in sorted((ROOT / "src").rglob("*.[ch]")):
        for number, text in problems(path, layers):
            print(f"{path.relative_to(ROOT)}:{number}: {text}")
            bad += 1
    return bad > 0


sys.exit(main())
