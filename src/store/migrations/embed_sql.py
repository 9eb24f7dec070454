#!/usr/bin/env python3
"""Write a C file with the text of the migrations, and with what they all together make of an empty database of SQLite:
embed_sql.py OUT.c 0001_init.sql ..."""
import pathlib
import re
import sqlite3
import sys


def c_string(line):
    return '    "' + line.replace("\\", "\\\\").replace('"', '\\"') + '\\n"'


def whole_schema(migrations):
    """Tables, indices and triggers as they are after the migrations, then the rows that those inserted."""
    with sqlite3.connect(":memory:") as db:
        for sql in migrations:
            db.executescript(sql)
        yield from (f"{sql};" for (sql,) in db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"))
        yield from (line for line in db.iterdump() if line.startswith("INSERT INTO"))


out = ['#include "store/migrations/migrations.h"', "", "const struct migration migrations[] = {"]
last = 0
texts = []
for name in sys.argv[2:]:
    path = pathlib.Path(name)
    match = re.fullmatch(r"(\d{4})_([a-z0-9_]+)\.sql", path.name)
    if not match or int(match[1]) != last + 1:
        sys.exit(f"{path}: migrations are named NNNN_name.sql and numbered without gaps")
    last += 1
    out.append(f'    {{{last}, "{match[2]}",')
    texts.append(path.read_text())
    out += [c_string(line) for line in texts[-1].splitlines()]
    out.append("    },")
out += ["};", f"const size_t migration_count = {last};", "", "const char whole_schema[] ="]
out += [c_string(line) for statement in whole_schema(texts) for line in statement.splitlines()]
out += ["    ;", ""]
pathlib.Path(sys.argv[1]).write_text("\n".join(out))
