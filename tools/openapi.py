#!/usr/bin/env python3
"""Write one description of all APIs: openapi.py OUT.json WORDS.json V1.json... TABLE.c... --absent EXTRA...
or of /api/v1 alone: openapi.py --v1 OUT.json V1.json...

The first V1.json describes /api/v1 in full; the others are what extras add to its paths, and their tables of endpoints are
called extra.c. The other APIs are read from the very tables of endpoints that the server uses
(TABLE.c), with what WORDS.json says about each. An endpoint without words is an error: the description is complete, or there is
none. Words about an endpoint that is in no table are left out, but for those of the group "other", which have no table.
"""
import json
import pathlib
import re
import sys

# TEAM("GET", "/path", handler…), and {{"GET", "/path"}, handler…
ROW = re.compile(r'(?:\b[A-Z]+\(|\{\{)"(GET|POST|PUT|PATCH|DELETE)", "(/[^"]*)"[^,}]*\}?,\s*(?:\.[^,]*,\s*)?(\w+)')
V1_ROW = re.compile(r'\{\{"(GET|POST|PUT|PATCH|DELETE)", "(/[^"]*)"')


def fail(text):
    sys.exit(f"openapi.py: {text}")


def rows(table):
    """(method, path) of each endpoint that does something."""
    for method, path, handler in ROW.findall(pathlib.Path(table).read_text()):
        if not handler.endswith("_unsupported"):
            yield method, path


def operation(path, words):
    """What is told about one endpoint: [summary, body?]."""
    names = re.findall(r"\{(\w+)\}", path)
    out = {
        "tags": [words["tag"]],
        "summary": words["summary"],
        "responses": {"2XX": {"description": "Done."}, "4XX": {"description": "Refused; the message says why."}},
    }
    if names:
        out["parameters"] = [{"name": one, "in": "path", "required": True, "schema": {"type": "string"}} for one in names]
    if "body" in words:
        out["requestBody"] = {"content": {"application/json": {"schema": {"type": "object"}, "example": words["body"]}}}
    return out


def flatten(words):
    """{"tag": {"GET /path": "summary" or ["summary", body]}} by endpoint."""
    out = {}
    for tag, group in words.items():
        for name, said in group.items():
            said = said if isinstance(said, list) else [said]
            out[name] = {"tag": tag, "summary": said[0], **({"body": said[1]} if len(said) > 1 else {})}
    return out


def add_tables(paths, words, tables):
    unused = set(words)
    for method, path in (row for table in tables for row in rows(table)):
        name = f"{method} {path}"
        if name not in words:
            fail(f"nothing is said about {name}: add it to web/endpoints.json")
        unused.discard(name)
        paths.setdefault(path, {})[method.lower()] = operation(path, words[name])
    for name in sorted(unused):
        method, path = name.split(" ", 1)
        if words[name]["tag"] == "other":
            paths.setdefault(path, {})[method.lower()] = operation(path, words[name])


def check_v1(document, tables):
    told = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    there = {row for table in tables for row in V1_ROW.findall(pathlib.Path(table).read_text())}
    for method, path in sorted(told ^ there):
        fail(f"{method} /api/v1{path} is {'described but not there' if (method, path) in told else 'not described in openapi.json'}")


def read_v1(first, *more):
    document = json.loads(pathlib.Path(first).read_text())
    for one in more:
        document["paths"].update(json.loads(pathlib.Path(one).read_text()))
    return document


def is_absent(path, extras):
    """Whether a path is of an extra that is not built: src/extra/NAME/words."""
    folder = pathlib.Path(__file__).resolve().parent.parent / "src/extra"
    lines = [line for extra in extras for line in (folder / extra / "words").read_text().splitlines()]
    return any(re.match(line[5:].replace("*", "[^/]+") + "(/|$)", path) for line in lines if line.startswith("path "))


def main(out, words, *rest):
    rest, extras = list(rest), []
    if "--absent" in rest:
        extras = rest[rest.index("--absent") + 1:]
        rest = rest[:rest.index("--absent")]
    tables = [one for one in rest if one.endswith(".c")]
    v1_tables = [one for one in tables if pathlib.Path(one).name in ("v1_endpoints.c", "extra.c")]
    document = read_v1(*[one for one in rest if one.endswith(".json")])
    check_v1(document, v1_tables)
    document["info"]["title"] = "Quicksand"
    document["info"]["description"] = "All APIs of a server: the agent runtime, E2B's and Browserbase's."
    document["servers"] = [{"url": "/"}]
    document["paths"] = {f"/api/v1{path}": methods for path, methods in document["paths"].items()}
    add_tables(document["paths"], flatten(json.loads(pathlib.Path(words).read_text())), [one for one in tables if one not in v1_tables])
    document["paths"] = {path: methods for path, methods in document["paths"].items() if not is_absent(path, extras)}
    pathlib.Path(out).write_text(json.dumps(document, separators=(",", ":")))


if __name__ == "__main__":
    if sys.argv[1] == "--v1":
        pathlib.Path(sys.argv[2]).write_text(json.dumps(read_v1(*sys.argv[3:]), indent=2) + "\n")
    else:
        main(*sys.argv[1:])
