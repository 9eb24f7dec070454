#!/usr/bin/env python3
"""Write a header with the dashboard, bundled, and the APIs' description: web_assets.py WEB_DIR CACHE_DIR OPENAPI.json OUT.h ABSENT_EXTRA...

The packages are fetched once with `npm pack`, at the versions and with the checksums below, and kept in
CACHE_DIR; with them there, nothing is asked of the network. esbuild makes few small files of them and of WEB_DIR. Each
becomes two arrays of bytes (with a NUL behind them), as it is and compressed, and a row of UI_FILES.
"""
import gzip
import hashlib
import html
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tarfile
import tempfile

sys.dont_write_bytecode = True
import embed  # noqa: E402

# What pages are made of, and what makes them.
PACKAGES = {
    "preact@10.29.8": ("preact-10.29.8.tgz", "b18cb0a457f3d43c7bb30391a74ade7d13e03bc6e77915e061c70c0fe1123299"),
    "uplot@1.6.32": ("uplot-1.6.32.tgz", "4b8a8191e425658e3ea8c8c1314b0fc679c861ee3a1af2b20c7b16ba50b5133d"),
    "@xterm/xterm@6.0.0": (
        "xterm-xterm-6.0.0.tgz",
        "908e66e04af6c8dc6b00dd3b54de088e2e81e5ed866284fd6c2fb3c2d1c7a3f6",
    ),
    "@xterm/addon-fit@0.11.0": (
        "xterm-addon-fit-0.11.0.tgz",
        "26003b4517a132b64e4ff228fd88a5fda3fff5e606c76093f6dcff772e9ecec0",
    ),
}
ESBUILD = {
    "x86_64": (
        "@esbuild/linux-x64@0.25.12",
        "esbuild-linux-x64-0.25.12.tgz",
        "f7efc127658a108dcda9d4210b01804ee8f5d6b3acbd6d63f20aa51d3b50bd5f",
    ),
    "aarch64": (
        "@esbuild/linux-arm64@0.25.12",
        "esbuild-linux-arm64-0.25.12.tgz",
        "d5e01d210e026823d559e2b82554cdcdab6fd87c4a57b519b392ef183c1f87fd",
    ),
}
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json; charset=utf-8",
}
HASHED = re.compile(r"-[0-9A-Z]{8}\.\w+$")  # a name that changes with the content
LIMIT = 250_000  # bytes of all files together, compressed


def fail(text):
    sys.exit(f"web_assets.py: {text}")


def package(cache, spec, name, digest):
    """The package's archive, from the cache or from npm."""
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


def unpack(archive, folder):
    """The files of a package, which npm keeps beneath one folder."""
    folder.mkdir(parents=True)
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            name = pathlib.PurePosixPath(*pathlib.PurePosixPath(member.name).parts[1:])
            if not member.isfile() or name.is_absolute() or ".." in name.parts:
                continue
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(tar.extractfile(member).read())
            path.chmod(0o755 if member.mode & 0o100 else 0o644)


def bundle(web, cache, folder, absent):
    """Runs esbuild; gives the folder with what it made."""
    machine = platform.machine()
    if machine not in ESBUILD:
        fail(f"esbuild for {machine} is not known here")
    modules, out = folder / "node_modules", folder / "out"
    unpack(package(cache, *ESBUILD[machine]), folder / "esbuild")
    for spec, (name, digest) in PACKAGES.items():
        unpack(package(cache, spec, name, digest), modules / spec.rsplit("@", 1)[0])
    result = subprocess.run(
        [
            folder / "esbuild/bin/esbuild", web / "app.jsx", web / "app.css", f"--outdir={out}",
            "--entry-names=[name]-[hash]", f"--metafile={folder / 'meta.json'}",
            "--bundle", "--minify", "--splitting", "--format=esm", "--target=es2022", "--charset=utf8",
            "--jsx=automatic", "--jsx-import-source=preact", "--legal-comments=none", "--log-level=warning",
            f"--define:ABSENT={json.dumps(absent)}",
        ],
        env={**os.environ, "NODE_PATH": str(modules)}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    if result.returncode != 0:
        fail(f"esbuild failed:\n{result.stderr}")
    made = json.loads((folder / "meta.json").read_text())["outputs"]
    page = link((web / "index.html").read_text(), made)
    (out / "index.html").write_text(page)
    (out / "signed.html").write_text(page.replace('<div id="app"></div>', f'<div id="app">{frame(web, absent)}</div>'))
    (out / "icon.svg").write_bytes((web / "icon.svg").read_bytes())
    texts = [f"{spec}\n\n{(modules / spec.rsplit('@', 1)[0] / 'LICENSE').read_text()}" for spec in PACKAGES]
    (out / "licenses.txt").write_text("\n\n".join(texts))
    return out


def link(page, made):
    """The page with the names that its files got, and with what the first script imports, to be asked for together with it."""
    for path, one in made.items():
        if "entryPoint" not in one or not re.search(r"\bapp\.\w+$", one["entryPoint"]):
            continue
        path = pathlib.PurePosixPath(path)
        imports = [pathlib.PurePosixPath(each["path"]).name for each in one["imports"] if each["kind"] == "import-statement"]
        page = page.replace(f"/ui/app{path.suffix}", f"/ui/{path.name}")
        if path.suffix == ".js":
            links = "".join(f'<link rel="modulepreload" href="/ui/{name}">\n' for name in imports)
            page = page.replace('<script type="module"', links + '<script type="module"')
    return page


def frame(web, absent):
    """What all pages have around them, for who is signed in: to be seen before any script has run."""
    icon = '<svg class="icon" width="18" height="18"></svg>'
    pages = json.loads((web / "pages.json").read_text())
    links = "\n".join(f'<a href="#/{html.escape(one["path"])}">{icon} {html.escape(one["title"])}</a>' for one in pages if one.get("extra") not in absent)
    return (web / "frame.html").read_text().replace("<!-- pages -->", links)


def place(path):
    """Where a file is found: the description of the APIs is for everybody."""
    return f"/{path.name}" if path.name == "openapi.json" else f"/ui/{path.name}"


def rows(files):
    """C source of all files."""
    text, table, total = [], [], 0
    for number, path in enumerate(files):
        data = path.read_bytes()
        packed = gzip.compress(data, 9, mtime=0)
        tag = hashlib.sha256(data).hexdigest()[:32]
        total += len(packed)
        text += [embed.array(f"ui_file_{number}", data), embed.array(f"ui_packed_{number}", packed)]
        table.append(
            f'    {{"{place(path)}", "{TYPES[path.suffix]}", ui_file_{number}, sizeof(ui_file_{number}) - 1, '
            f'ui_packed_{number}, sizeof(ui_packed_{number}) - 1, "\\"{tag}\\"", {"true" if HASHED.search(path.name) else "false"}}},'
        )
    if total > LIMIT:
        fail(f"all pages together have {total} bytes compressed; at most {LIMIT} are wanted")
    return "".join(text) + "\n#define UI_FILES \\\n" + " \\\n".join(table) + "\n"


def main(web, cache, openapi, out, absent):
    with tempfile.TemporaryDirectory() as folder:
        made = bundle(web, cache, pathlib.Path(folder), absent)
        (made / "openapi.json").write_bytes(openapi.read_bytes())
        out.write_text("/* Made by tools/web_assets.py. */\n" + rows(sorted(made.iterdir())))


if __name__ == "__main__":
    main(*(pathlib.Path(one).resolve() for one in sys.argv[1:5]), sys.argv[5:])
