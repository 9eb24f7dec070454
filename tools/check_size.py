#!/usr/bin/env python3
"""Fails when a source file or a function in it is too long to be read in one go."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE_LINES = 700
FUNCTION_LINES = 100
PARAMETERS = 8
# In the project's format a function's body begins with a brace alone in column one and ends the same way.


def functions(lines):
    """Yields (first line, name, parameter count, length) of each function."""
    start = None
    for number, line in enumerate(lines, 1):
        if line == "{":
            start = number
        elif line == "}" and start is not None:
            head = start - 1
            while head > 0 and lines[head - 1] and not lines[head - 1].startswith(("}", "#", "*/", " */")):
                head -= 1
            text = " ".join(part.strip() for part in lines[head:start - 1])
            match = re.search(r"(\w+)\((.*)\)[^()]*$", text)
            name = match.group(1) if match else "?"
            count = match.group(2).count(",") + 1 if match and "(" not in match.group(2) else 0
            yield start, name, count, number - start + 1
            start = None


def main():
    bad = 0
    for path in sorted((ROOT / "src").rglob("*.[ch]")):
        name = path.relative_to(ROOT)
        lines = path.read_text().splitlines()
        if len(lines) > FILE_LINES:
            print(f"{name}: {len(lines)} lines, at most {FILE_LINES}")
            bad += 1
        for number, function, parameters, length in functions(lines):
            if length > FUNCTION_LINES:
                print(f"{name}:{number}: {function}() has {length} lines, at most {FUNCTION_LINES}")
                bad += 1
            if parameters > PARAMETERS:
                print(f"{name}:{number}: {function}() has {parameters} parameters, at most {PARAMETERS}")
                bad += 1
    return bad > 0


sys.exit(main())
