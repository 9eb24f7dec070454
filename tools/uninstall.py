#!/usr/bin/env python3
"""Removes what `meson install` of a build directory installs: uninstall.py BUILD DESTDIR PREFIX

Directories go when they are empty and below the prefix's own."""
import json
import pathlib
import subprocess
import sys

build, destination, prefix = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
installed = json.loads(subprocess.check_output(["meson", "introspect", build, "--installed"]))
root = pathlib.Path(destination or "/")
keep = {prefix / name for name in ("bin", "lib", "share", "include")} | {prefix}


def drop(path):
    """A file, a link, or a directory of pages that the build made."""
    if path.is_dir() and not path.is_symlink():
        for source in sorted(pathlib.Path(of).iterdir()) if (of := sources.get(path)) else []:
            drop(path / source.name)
    else:
        path.unlink(missing_ok=True)


sources = {}
for source, target in installed.items():
    path = root / pathlib.Path(target).relative_to("/")
    sources[path] = source
    drop(path)
    if ".so." in path.name:  # and its shorter names
        stem = path.name.split(".so")[0] + ".so"
        for other in path.parent.glob(stem + "*"):
            if other.is_symlink():
                other.unlink()
    parent = path if path.is_dir() else path.parent
    while pathlib.Path("/") / parent.relative_to(root) not in keep and parent != root:
        try:
            parent.rmdir()
        except OSError:
            break
        parent = parent.parent
