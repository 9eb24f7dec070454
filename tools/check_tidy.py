#!/usr/bin/env python3
"""Runs clang-tidy over the sources of build/tidy. What had no findings is not looked at again until it, a header of
the project that it includes, its flags, the chosen checks or clang-tidy change."""
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/tidy"
GOOD = BUILD / "good"  # a file per source: the digest of what had no findings
INCLUDE = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.M)
AT_ONCE = 8  # sources of one process: each has to load the program first
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def sources():
    """Yields (path, command) of each source."""
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        path = os.path.normpath(os.path.join(entry["directory"], entry["file"]))
        if path.startswith(f"{ROOT}/src/"):
            yield path, entry["command"]


@functools.cache
def read(path):
    """The digest of a file and the names that it includes."""
    content = pathlib.Path(path).read_bytes()
    return hashlib.sha256(content).digest(), [name.decode() for name in INCLUDE.findall(content)]


@functools.cache
def resolve(name, folders):
    candidates = (os.path.normpath(os.path.join(BUILD, folder, name)) for folder in folders)
    return next(filter(os.path.isfile, candidates), None)


def with_headers(path, folders, found):
    """Adds path and the project's headers that it includes, directly or not, to found."""
    found[path], names = read(path)
    for name in names:
        header = resolve(name, (os.path.dirname(path), *folders))
        if header and header not in found:
            with_headers(header, folders, found)


def digest(path, command, settings):
    folders = tuple(word[2:] for word in shlex.split(command) if word.startswith("-I"))
    found = {}
    with_headers(path, folders, found)
    return hashlib.sha256(b"".join([settings, command.encode(), *map(found.get, sorted(found))])).hexdigest()


def stamp(path):
    return GOOD / os.path.relpath(path, ROOT).replace("/", "+")


def is_good(path, key):
    return stamp(path).is_file() and stamp(path).read_text() == key


def look(keys):
    """What clang-tidy says about some sources, or nothing: then they are good."""
    run = subprocess.run(["clang-tidy", "-quiet", "-p", BUILD, *keys], capture_output=True, text=True, errors="replace")
    if run.returncode != 0:
        return COLOUR.sub("", run.stdout).replace(f"{ROOT}/", "").strip() or run.stderr
    for path, key in keys.items():
        stamp(path).write_text(key)
    return ""


def main():
    GOOD.mkdir(exist_ok=True)
    version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    settings = version + (ROOT / ".clang-tidy").read_bytes()
    keys = {}
    for path, command in sources():
        keys[path] = digest(path, command, settings + keys.get(path, "").encode())
    new = [(path, key) for path, key in keys.items() if not is_good(path, key)]
    some = [dict(new[i:i + AT_ONCE]) for i in range(0, len(new), AT_ONCE)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [text for text in pool.map(look, some) if text]
    print("\n".join([*found, f"{len(keys)} sources, {len(new)} looked at"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
