#!/usr/bin/env python3
"""Write a header with files as a table of names and bytes: embed_scripts.py OUT.h FILE..."""
import pathlib
import sys

from embed import array


def main(out, *files):
    rows, arrays = [], []
    for path in map(pathlib.Path, files):
        name = "script_" + path.name.replace(".", "_")
        arrays.append(array(name, path.read_bytes()))
        rows.append(f'    {{"{path.name}", {name}, sizeof({name}) - 1}},')
    pathlib.Path(out).write_text(f"/* Made from scripts. */\n{''.join(arrays)}\n#define KERNEL_SCRIPTS \\\n" + " \\\n".join(rows) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
