#!/usr/bin/env python3
"""Fails when a file under src/ includes what LAYERS does not allow, or another room's private header."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'\s*#\s*include\s+"(?:([^"]+)/)?([^/"]+)"')
TESTS = ("_test.c", "_fuzz.c")


class Layers:
    """The file LAYERS: which rooms a room may use."""

    def __init__(self, text=None):
        self.rooms = {}
        for line in (text or (ROOT / "LAYERS").read_text()).splitlines():
            line = line.split("#", 1)[0].strip()
            if line:
                room, _, allowed = line.partition(":")
                self.rooms[room.strip()] = set(allowed.split())

    def rule(self, room):
        """The name under which the room is listed: its own or its floor's; None if there is none."""
        return next((name for name in (room, floor_of(room)) if name in self.rooms), None)

    def allows(self, room, target):
        rule = self.rule(room)
        may = self.rooms.get(rule, set()) | {rule, room, "base"}
        return not may.isdisjoint({"*", target, floor_of(target)})


def room_of(folder):
    """The room of a folder: its first two levels. Fakes and rigs in test/ belong to the room around them."""
    return "/".join([part for part in folder.split("/") if part != "test"][:2])


def floor_of(room):
    return room.split("/")[0]


def is_test(path):
    return path.name.endswith(TESTS) or "test" in path.parent.parts


def problems(path, layers):
    room = room_of(path.parent.relative_to(ROOT / "src").as_posix())
    if layers.rule(room) is None:
        yield 0, f"{room}/ is not in LAYERS"
        return
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
        elif header.endswith("_internal.h") and target != room and not (is_test(path) and floor_of(target) == floor_of(room)):
            yield number, f"{folder}/{header} is private to {target}/"
        elif not layers.allows(room, target) and not (is_test(path) and floor_of(target) == floor_of(room)):
            yield number, f"{room} may not include {target}/"


def main():
    layers = Layers()
    bad = 0
    for path in sorted((ROOT / "src").rglob("*.[ch]")):
        for number, text in problems(path, layers):
            print(f"{path.relative_to(ROOT)}:{number}: {text}")
            bad += 1
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
