#!/usr/bin/env python3
"""Fails when a file under src/ includes what LAYERS does not allow, or another floor's private header."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'\s*#\s*include\s+"(?:([^"]+)/)?([^/"]+)"')
TESTS = ("_test.c", "_fuzz.c")


def read_layers():
    layers = {}
    for line in (ROOT / "LAYERS").read_text().splitlines():
        line = line.split("#", 1)[0].strip()
        if line:
            room, _, allowed = line.partition(":")
            layers[room.strip()] = set(allowed.split())
    return layers


def room_of(folder):
    """The room of a folder: its first two levels. Fakes and rigs in test/ belong to the room around them."""
    return "/".join([part for part in folder.split("/") if part != "test"][:2])


def floor_of(room):
    return room.split("/")[0]


def is_test(path):
    return path.name.endswith(TESTS) or "test" in path.parent.parts


def problems(path, layers):
    room = room_of(path.parent.relative_to(ROOT / "src").as_posix())
    rule = room if room in layers else floor_of(room)
    if rule not in layers:
        yield 0, f"{room}/ is not in LAYERS"
        return
    may = layers[rule] | {rule, room, "base"}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        folder, header = match.groups()
        if folder is None:
            if not (header.endswith(".c") and path.name.endswith(TESTS)):
                yield number, f'"{header}" lacks its folder'
            continue
        target = room_of(folder)
        if folder.endswith("test") and not is_test(path):
            yield number, f"{folder}/{header} is for tests"
        elif header.endswith("_internal.h") and floor_of(target) != floor_of(room):
            yield number, f"{folder}/{header} is private to {floor_of(target)}/"
        elif "*" not in may and target not in may and floor_of(target) not in may and not (is_test(path) and floor_of(target) == floor_of(room)):
            yield number, f"{room} may not include {target}/"


def main():
    layers = read_layers()
    bad = 0
    for path in sorted((ROOT / "src").rglob("*.[ch]")):
        for number, text in problems(path, layers):
            print(f"{path.relative_to(ROOT)}:{number}: {text}")
            bad += 1
    return bad > 0


sys.exit(main())
