#!/usr/bin/env python3
"""Write a header with a file's bytes as an array: embed.py IN NAME OUT.h"""
import pathlib
import sys


def array(name, data):
    """C source of an array of bytes that ends in NUL: as a string, which compilers read fastest."""
    # Three octal digits, so that what follows cannot be taken for one more.
    codes = [f"\\{b:03o}" if not (32 <= b < 127) or b in b'"\\?' else chr(b) for b in range(256)]
    rows = ["".join(codes[b] for b in data[i : i + 80]) for i in range(0, len(data), 80)]
    body = "\n".join(f'"{row}"' for row in rows) or '""'
    return f"static const unsigned char {name}[] =\n{body};\n"


def main(source, name, out):
    data = pathlib.Path(source).read_bytes()
    pathlib.Path(out).write_text(f"/* Made from {pathlib.Path(source).name}. */\n{array(name, data)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
