#!/usr/bin/env python3
"""Write a header with the web pages and what they need from npm: web_assets.py UI_DIR CACHE_DIR OUT.h

The packages are fetched once with `npm pack`, at the versions and with the checksums below, and kept in
CACHE_DIR. Each file becomes an array of bytes (with a NUL behind it) and NAME_tag, its ETag.
"""
import hashlib
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

sys.dont_write_bytecode = True
import embed  # noqa: E402

PACKAGES = {
    "@xterm/xterm@6.0.0": (
        "xterm-xterm-6.0.0.tgz",
        "908e66e04af6c8dc6b00dd3b54de088e2e81e5ed866284fd6c2fb3c2d1c7a3f6",
    ),
    "@xterm/addon-fit@0.11.0": (
        "xterm-addon-fit-0.11.0.tgz",
        "26003b4517a132b64e4ff228fd88a5fda3fff5e606c76093f6dcff772e9ecec0",
    ),
}
XTERM, FIT = PACKAGES
PAGES = {
    "ui_index": "index.html",
    "ui_index_js": "index.js",
    "ui_terminal": "terminal.html",
    "ui_terminal_js": "terminal.js",
    "ui_key_js": "key.js",
    "ui_style": "style.css",
}


def fail(text):
    sys.exit(f"web_assets.py: {text}")


def package(cache, spec):
    """The package's archive, from the cache or from npm."""
    name, digest = PACKAGES[spec]
    path = cache / name
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            try:
                result = subprocess.run(
                    ["npm", "pack", "--silent", spec], cwd=folder, capture_output=True, text=True, timeout=300
                )
            except FileNotFoundError:
                fail(f"npm is needed once to fetch {spec}; install it, or put {name} into {cache}")
            except subprocess.TimeoutExpired:
                fail(f"npm did not fetch {spec} in 5 minutes; is the registry reachable?")
            if result.returncode != 0:
                fail(f"npm could not fetch {spec}; is the registry reachable?\n{result.stderr}")
            os.rename(pathlib.Path(folder) / name, path)
    if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
        fail(f"{path} is not what it should be (its SHA-256 is not {digest}); remove it and try again")
    return path


def member(archive, name):
    with tarfile.open(archive) as tar:
        return tar.extractfile(f"package/{name}").read()


def rows(name, data):
    """C source of one file."""
    tag = hashlib.sha256(data).hexdigest()[:32]
    return f'static const char {name}_tag[] = "\\"{tag}\\"";\n{embed.array(name, data)}'


def main(pages, cache, out):
    xterm, fit = package(cache, XTERM), package(cache, FIT)
    files = {name: (pages / file).read_bytes() for name, file in PAGES.items()}
    files["ui_xterm"] = member(xterm, "lib/xterm.js")
    files["ui_xterm_css"] = member(xterm, "css/xterm.css")
    files["ui_fit"] = member(fit, "lib/addon-fit.js")
    files["ui_licenses"] = b"\n\n".join(
        spec.encode() + b"\n\n" + member(archive, "LICENSE") for spec, archive in ((XTERM, xterm), (FIT, fit))
    )
    out.write_text("/* Made by tools/web_assets.py. */\n" + "".join(rows(*item) for item in files.items()))


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:]))
