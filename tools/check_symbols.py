#!/usr/bin/env python3
"""Fails when the linker sees what LAYERS does not allow: check_symbols.py [BUILD...]

Reads the object files of the programs in each build directory (default: build/host and build/musl). Three findings:

  ROOM -> ROOM: SYMBOL in OBJECT   an object uses a function or variable that only rooms define which its room may not use
  HEADER declares SYMBOL of ROOM   a header declares what its own room does not define
  LIBRARY has ROOM, ROOM           a static library is made of the sources of several rooms

A symbol of a library that `late` defines under its own name belongs to no room. Objects of tests are not read, nor those that
are older than their sources: `make all` brings those of the programs up to date."""
import json
import pathlib
import re
import subprocess
import sys

from check_layers import ROOT, Layers, is_test, room_of

BUILDS = ("build/host", "build/musl")
COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'', re.S)
PREPROCESSOR = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.)*(?:\\\n[^\n]*)*", re.M)
ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)")
DECLARED = re.compile(r"\b([A-Za-z_]\w*)\s*\(")


class Objects:
    """Which symbols the objects of each room define and use."""

    def __init__(self):
        self.defined = {}  # symbol: rooms
        self.used = []  # (room, object, symbol)
        self.rooms = set()

    def add(self, room, name, symbols):
        """Symbols are pairs of a letter of nm and a name."""
        self.rooms.add(room)
        for kind, symbol in symbols:
            if kind == "U":
                self.used.append((room, name, symbol))
            else:
                self.defined.setdefault(symbol, set()).add(room)


def nm(paths):
    """The external symbols of each object."""
    out = subprocess.run(["nm", "-A", "-P", "-g", *map(str, paths)], check=True, capture_output=True, text=True).stdout
    for line in out.splitlines():
        path, rest = line.split(": ", 1)
        symbol, kind, *_ = rest.split()
        yield path, kind.upper(), symbol


def read_build(build, objects):
    """Adds what a build directory has of the sources under src/, tests left out. Of several objects of a source the first
    that was made is read: others may be in the making."""
    made_of = {}
    rooms = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = (build / entry["file"]).resolve()
        made = build / entry["output"]
        try:
            made_at = made.stat().st_mtime
        except FileNotFoundError:
            continue
        if source.is_relative_to(ROOT / "src"):
            if is_test(source):
                continue
            if made_at < source.stat().st_mtime:
                continue
            rooms[source] = room_of(source.parent.relative_to(ROOT / "src").as_posix())
        elif source.is_relative_to(build / "src"):  # made by the build
            rooms[source] = room_of(made.relative_to(build / "src").parent.parent.as_posix())
        else:
            continue
        made_of.setdefault(source, []).append((made_at, str(made)))
    sources = {min(made)[1]: rooms[source] for source, made in made_of.items()}
    found = {}
    for path, kind, symbol in nm(sources):
        found.setdefault(path, []).append((kind, symbol))
    for path, symbols in found.items():
        objects.add(sources[path], pathlib.Path(path).relative_to(build).as_posix(), symbols)


def edges(objects, layers):
    """Uses of symbols that are defined in rooms only which the user's room may not use."""
    for room, name, symbol in objects.used:
        rooms = objects.defined.get(symbol, {room}) - {"late"}
        if rooms and not any(layers.allows(room, target) for target in rooms):
            yield room, sorted(rooms)[0], symbol, name


def declared(text):
    """The functions that a header declares without a body."""
    text = ATTRIBUTE.sub(" ", PREPROCESSOR.sub("", COMMENT.sub(" ", text)))
    depth, statement = 0, []
    for char in text:
        if char == "{":
            depth += 1
            statement = []
        elif char == "}":
            depth -= 1
            statement = []
        elif depth == 0 and char == ";":
            whole = "".join(statement).strip()
            statement = []
            match = DECLARED.search(whole)
            if match and not re.match(r"typedef\b|_Static_assert\b|static\b", whole) and not whole[match.end():].lstrip().startswith("*"):
                yield match.group(1)
        elif depth == 0:
            statement.append(char)


def declarations(objects, folder):
    """Headers that declare what another room defines."""
    for path in sorted(folder.rglob("*.h")):
        room = room_of(path.parent.relative_to(folder).as_posix())
        if is_test(path) or room not in objects.rooms:
            continue
        for symbol in declared(path.read_text()):
            rooms = objects.defined.get(symbol)
            if rooms is not None and room not in rooms:
                yield path.relative_to(folder.parent), symbol, sorted(rooms)[0]


def libraries(build, layers):
    """Static libraries with sources of several rooms."""
    rooms = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = (build / entry["file"]).resolve()
        folder = pathlib.Path(entry["output"]).parent
        if folder.name.endswith(".a.p") and source.is_relative_to(ROOT / "src") and not is_test(source):
            room = room_of(source.parent.relative_to(ROOT / "src").as_posix())
            rooms.setdefault(folder.with_suffix("").as_posix(), set()).add(layers.rule(room))
    return {(name, ", ".join(sorted(found))) for name, found in rooms.items() if len(found) > 1}


def main():
    layers = Layers()
    objects = Objects()
    mixed = set()
    for build in sys.argv[1:] or BUILDS:
        build = (ROOT / build).resolve()
        read_build(build, objects)
        mixed |= libraries(build, layers)
    upward = sorted(set(edges(objects, layers)))
    foreign = list(declarations(objects, ROOT / "src"))
    for room, target, symbol, name in upward:
        print(f"{room} -> {target}: {symbol} in {name}")
    for path, symbol, room in foreign:
        print(f"{path} declares {symbol} of {room}")
    for name, rooms in sorted(mixed):
        print(f"{name} has {rooms}")
    if upward or foreign:
        print(f"{len({edge[:3] for edge in upward})} upward edges, {len(foreign)} declarations in the wrong room")
    return bool(upward or foreign or mixed)


if __name__ == "__main__":
    sys.exit(main())
