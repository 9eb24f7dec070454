#!/usr/bin/env python3
"""Inputs of fuzz targets as text, one a line: what a reviewer can read, and git can compare.

    fuzz_corpus.py unpack FILE DIR          a file for each line, named by its hash as libFuzzer does
    fuzz_corpus.py pack DIR FILE [WITHOUT]  all files of DIR that are not in the folder WITHOUT as well

Printable ASCII stands for itself, a backslash is doubled, everything else (and a blank at the end) is \\n, \\r,
\\t or \\xNN. Lines are sorted, the
shorter input first, so that the same inputs make the same file.
"""
import hashlib
import pathlib
import re
import sys

NAMED = {10: "\\n", 13: "\\r", 9: "\\t", 92: "\\\\"}
BYTES = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\"}


def write(data):
    text = "".join(NAMED.get(b) or (chr(b) if 32 <= b < 127 else f"\\x{b:02x}") for b in data)
    return text[:-1] + "\\x20" if text.endswith(" ") else text


def read(line):
    parts = re.split(r"\\(x[0-9a-f]{2}|[nrt\\])", line)
    if any("\\" in part for part in parts[::2]):
        raise ValueError(f"not understood: {line[:60]}")
    odd = (BYTES.get(part) or bytes([int(part[1:], 16)]) for part in parts[1::2])
    plain = (part.encode("ascii") for part in parts[::2])
    return b"".join(piece for pair in zip(plain, [*odd, b""]) for piece in pair)


def inputs(folder):
    return {path.read_bytes() for path in pathlib.Path(folder).iterdir()}


def unpack(source, folder):
    target = pathlib.Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for line in pathlib.Path(source).read_text(encoding="ascii").split("\n")[:-1]:
        data = read(line)
        (target / hashlib.sha1(data).hexdigest()).write_bytes(data)


def pack(folder, target, without=None):
    kept = inputs(folder) - (inputs(without) if without else set())
    lines = [write(data) + "\n" for data in sorted(kept, key=lambda data: (len(data), data))]
    pathlib.Path(target).write_text("".join(lines), encoding="ascii")


if len(sys.argv) < 4 or sys.argv[1] not in ("pack", "unpack"):
    sys.exit(__doc__)
{"pack": pack, "unpack": unpack}[sys.argv[1]](*sys.argv[2:])
