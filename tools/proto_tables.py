#!/usr/bin/env python3
"""Write the C tables of Protocol Buffers files: proto_tables.py OUT.c ARRAY A.proto B.proto ...

Each message becomes a struct proto_message (rpc/proto.h) named proto_<package>_<message>, and ARRAY
becomes the list of all procedures with their messages (struct connect_method), ended by a NULL path.
Understands what our interfaces use; anything else is refused.
"""
import pathlib
import re
import sys

SCALARS = {"uint32": "UINT32", "int64": "INT64", "sint32": "SINT32", "bool": "BOOL", "string": "STRING", "bytes": "BYTES"}
TIMESTAMP = "google.protobuf.Timestamp"


class Parser:
    def __init__(self, path):
        text = re.sub(r"//[^\n]*", "", path.read_text())
        self.tokens = re.findall(r'"[^"]*"|[\w.]+|[{}<>()=;,]', text)
        self.path, self.at = path, 0
        self.package = None
        self.messages, self.enums, self.methods = {}, {}, []

    def fail(self, what):
        sys.exit(f"{self.path}: {what} at '{' '.join(self.tokens[self.at:self.at + 5])}'")

    def next(self, want=None):
        token = self.tokens[self.at] if self.at < len(self.tokens) else ""
        if want is not None and token != want:
            self.fail(f"expected '{want}'")
        self.at += 1
        return token

    def peek(self):
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def file(self):
        while self.peek():
            keyword = self.next()
            if keyword in ("syntax", "import"):
                while self.next() != ";":
                    pass
            elif keyword == "package":
                self.package = self.next()
                self.next(";")
            elif keyword == "service":
                self.service(self.next())
            elif keyword == "message":
                self.message(self.next())
            elif keyword == "enum":
                self.enum(self.next())
            else:
                self.fail(f"'{keyword}' is not understood")
        return self

    def service(self, name):
        self.next("{")
        while self.peek() != "}":
            self.next("rpc")
            method, request = self.next(), self.operand()
            self.next("returns")
            self.methods.append((f"/{self.package}.{name}/{method}", request, self.operand()))
            self.next(";")
        self.next("}")

    def operand(self):
        self.next("(")
        if self.peek() == "stream":
            self.next()
        name = self.next()
        self.next(")")
        return name

    def enum(self, name):
        self.enums[name] = values = []
        self.next("{")
        while self.peek() != "}":
            value = self.next()
            self.next("=")
            values.append((value, int(self.next())))
            self.next(";")
        self.next("}")

    def message(self, name):
        fields, oneofs = [], 0
        self.next("{")
        while self.peek() != "}":
            if self.peek() == "message":
                self.next()
                self.message(f"{name}.{self.next()}")
            elif self.peek() == "oneof":
                oneofs += 1
                self.next()
                self.next()
                self.next("{")
                while self.peek() != "}":
                    fields.append(self.field(name, oneofs))
                self.next("}")
            else:
                fields.append(self.field(name, 0))
        self.next("}")
        self.messages[name] = fields  # after the messages inside it, which it may use

    def field(self, scope, oneof):
        label = self.next() if self.peek() in ("optional", "repeated") else ""
        kind = self.next()
        if kind == "map":
            for token in ("<", "string", ",", "string", ">"):
                self.next(token)
        name = self.next()
        self.next("=")
        number = int(self.next())
        self.next(";")
        return dict(scope=scope, oneof=oneof, label=label, kind=kind, name=name, number=number)


def snake(name):
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.replace(".", "_"))
    return name.lower()


def json_name(name):
    return re.sub(r"_(\w)", lambda match: match[1].upper(), name)


def resolve(parser, field, names):
    """The full name that a field's type has, innermost scope first."""
    scope = field["scope"].split(".")
    while scope:
        full = ".".join(scope + [field["kind"]])
        if full in names:
            return full
        scope.pop()
    if field["kind"] in names:
        return field["kind"]
    return None


def field_row(parser, field):
    symbol = lambda name: f"proto_{parser.package}_{snake(name)}"
    kind, rest = SCALARS.get(field["kind"]), ""
    if field["kind"] == "map":
        kind = "MAP"
    elif field["kind"] == TIMESTAMP:
        kind = "TIMESTAMP"
    elif kind is None:
        name = resolve(parser, field, parser.messages)
        if name:
            kind, rest = "MESSAGE", f", .message = &{symbol(name)}"
        elif resolve(parser, field, parser.enums):
            kind, rest = "ENUM", f", .names = {symbol(field['kind'])}"
        else:
            sys.exit(f"{parser.path}: type {field['kind']} of {field['name']} is not known")
    if field["label"] == "repeated":
        rest += ", .repeated = true"
    if field["label"] == "optional" or field["oneof"]:
        rest += ", .presence = true"
    if field["oneof"]:
        rest += f", .oneof = {field['oneof']}"
    return f'    {{{field["number"]}, "{json_name(field["name"])}", PROTO_{kind}{rest}}},'


def tables(parser):
    out = []
    for name, values in parser.enums.items():
        out.append(f"static const struct proto_name proto_{parser.package}_{snake(name)}[] = {{")
        out += [f'    {{{number}, "{value}"}},' for value, number in values]
        out += ["    {0, NULL},", "};", ""]
    for name in parser.messages:
        out.append(f"static const struct proto_message proto_{parser.package}_{snake(name)};")
    out.append("")
    for name, fields in parser.messages.items():
        symbol = f"proto_{parser.package}_{snake(name)}"
        out.append(f"static const struct proto_field {symbol}_fields[] = {{")
        out += [field_row(parser, field) for field in sorted(fields, key=lambda one: one["number"])]
        out += ["    {0},", "};"]
        out.append(f'static const struct proto_message {symbol} = {{"{parser.package}.{name}", {symbol}_fields}};')
        out.append("")
    return out


def main():
    target, array = sys.argv[1:3]
    parsers = [Parser(pathlib.Path(name)).file() for name in sys.argv[3:]]
    out = ['#include "protocol/rpc/connect.h"', '#include "protocol/rpc/proto.h"', ""]
    for parser in parsers:
        out += tables(parser)
    out += [f"extern const struct connect_method {array}[];", f"const struct connect_method {array}[] = {{"]
    for parser in parsers:
        for path, request, response in parser.methods:
            names = [f"&proto_{parser.package}_{snake(name)}" for name in (request, response)]
            out.append(f'    {{"{path}", {names[0]}, {names[1]}}},')
    out += ["    {0},", "};", ""]
    pathlib.Path(target).write_text("\n".join(out))


main()
