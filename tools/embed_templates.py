#!/usr/bin/env python3
"""Write a header with the recipes of templates/, or only their names: embed_templates.py [--names] DIRECTORY OUT.h ABSENT...

Those that belong to an absent extra (lines "template NAME" of src/extra/NAME/words) are left out."""
import pathlib
import sys

import extras
from embed import array


def recipes(source, absent):
    left_out = {word for extra in absent for kind, word in extras.words(extra) if kind == "template"}
    return [folder for folder in sorted(pathlib.Path(source).iterdir())
            if (folder / "Dockerfile").is_file() and folder.name not in left_out]


def names(source, out, *absent):
    text = ", ".join(f'"{folder.name}"' for folder in recipes(source, absent))
    pathlib.Path(out).write_text(f"/* Made from templates/. */\n#define SHIPPED_NAMES {text}\n")


def main(source, out, *absent):
    rows, arrays = [], []
    for folder in recipes(source, absent):
        name = "shipped_" + folder.name.replace("-", "_")
        arrays.append(array(f"{name}_dockerfile", (folder / "Dockerfile").read_bytes()))
        settings = folder / "e2b.toml"
        arrays.append(array(f"{name}_settings", settings.read_bytes() if settings.is_file() else b""))
        rows.append(f'    {{"{folder.name}", (const char *){name}_dockerfile, (const char *){name}_settings}},')
    body = "\n".join(rows)
    pathlib.Path(out).write_text(
        f"/* Made from templates/. */\n{''.join(arrays)}\n#define SHIPPED_RECIPES \\\n" + body.replace("\n", " \\\n") + "\n")


if __name__ == "__main__":
    names(*sys.argv[2:]) if sys.argv[1] == "--names" else main(*sys.argv[1:])
