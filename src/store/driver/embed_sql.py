#!/usr/bin/env python3
"""Write a C file with the text of the migrations: embed_sql.py OUT.c 0001_init.sql ..."""
import pathlib
import re
import sys


def c_string(line):
    return '    "' + line.replace("\\", "\\\\").replace('"', '\\"') + '\\n"'


out = ['#include "store/driver/migrate.h"', "", "const struct migration migrations[] = {"]
last = 0
for name in sys.argv[2:]:
    path = pathlib.Path(name)
    match = re.fullmatch(r"(\d{4})_([a-z0-9_]+)\.sql", path.name)
    if not match or int(match[1]) != last + 1:
        sys.exit(f"{path}: migrations are named NNNN_name.sql and numbered without gaps")
    last += 1
    out.append(f'    {{{last}, "{match[2]}",')
    out += [c_string(line) for line in path.read_text().splitlines()]
    out.append("    },")
out += ["};", f"const size_t migration_count = {last};", ""]
pathlib.Path(sys.argv[1]).write_text("\n".join(out))
