#!/usr/bin/env python3
"""Write one of the tables of extras: extras.py KIND OUT.c NAME...

  absent     the words (src/extra/NAME/words) of the extras that are not among NAME...: base/extra_absent.h
  parts      the static programs of the core and of the extras NAME...: base/parts.h
  extras     the registrations of the extras NAME...: extra/extra.h
  providers  the types of providers of the core and of the extras NAME...: provider/core/provider_ops.h"""
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "src/extra"
CORE_PARTS = ["envd", "unpack"]
CORE_PROVIDERS = ["e2b", "docker", "process"]


def words(extra):
    """Pairs of a kind and a word."""
    for line in (FOLDER / extra / "words").read_text().splitlines():
        kind, _, word = line.partition(" ")
        yield kind, word


def absent(built):
    rows = [f'    {{"{extra.parent.name}", "{kind}", "{word}"}},\n'
            for extra in sorted(FOLDER.glob("*/words")) if extra.parent.name not in built
            for kind, word in words(extra.parent.name)]
    return ('#include "base/extra_absent.h"\n\nconst struct extra_word extra_absent_words[] = {\n'
            + "".join(rows) + "    {NULL, NULL, NULL},\n};\n")


def parts(built):
    names = CORE_PARTS + [word for extra in built for kind, word in words(extra) if kind == "program"]
    return ('#include "base/parts.h"\n\nconst char *const part_names[] = {'
            + "".join(f'"{name}", ' for name in names) + "NULL};\n")


def table(header, declared, element, symbols):
    kind = element.rsplit(" ", 1)[0]
    return (f'#include "{header}"\n\n' + "".join(f"extern const {kind} {symbol};\n" for symbol in declared)
            + f"const {kind} *const {element.rsplit(' ', 1)[1]}[] = {{" + "".join(f"&{symbol}, " for symbol in symbols) + "NULL};\n")


def extras(built):
    symbols = [f"extra_{name}" for name in built]
    if "mcp" in built:  # tools that others bring, each in its own mcp_*.c
        symbols += [f"extra_{name}_tools" for name in built if name != "mcp" and (FOLDER / name / "tools.json").exists()]
    return table("extra/extras.h", symbols, "struct extra extras", symbols)


def providers(built):
    more = [f"provider_type_{word}" for extra in built for word in
            [word for kind, word in words(extra) if kind == "provider"][:1]]
    core = [f"provider_type_{name}" for name in CORE_PROVIDERS]
    return table("extra/types/extra_providers.h", more, "struct provider_type extra_providers", core + more)


if __name__ == "__main__":
    kind, out, *names = sys.argv[1:]
    pathlib.Path(out).write_text("/* Made by tools/extras.py. */\n" + {"absent": absent, "parts": parts, "extras": extras, "providers": providers}[kind](names))
