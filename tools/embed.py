#!/usr/bin/env python3
"""Write a header with a file's bytes as a char array: embed.py IN NAME OUT.h"""
import pathlib
import sys

source, name, out = sys.argv[1:]
data = pathlib.Path(source).read_bytes() + b"\0"
rows = [", ".join(str(b) for b in data[i : i + 20]) for i in range(0, len(data), 20)]
body = ",\n    ".join(rows)
pathlib.Path(out).write_text(
    f"/* Made from {pathlib.Path(source).name}; ends in NUL. */\n"
    f"static const unsigned char {name}[] = {{\n    {body}}};\n"
)
