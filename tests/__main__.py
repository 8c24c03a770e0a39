"""Every check there is: ``python -m tests [--all-pythons] [pytest arguments]``.

Style, types, import contracts, the front end (built once, for every Python), the suite on the other Pythons of this
machine if asked for, and last the suite on this Python, so that pytest's summary is the end of the output. Stops at the
first failure.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
OTHER_VERSIONS = ("3.11", "3.12", "3.13")
ONCE = ("--ignore=tests/browser", "--ignore=tests/test_binder.py")
"""What tests the browser, or makes environments of its own: once is enough."""
BIN = Path(sys.executable).parent


def tool(name, *arguments):
    """Return the command line of a tool that is installed beside this Python."""
    return [str(BIN / name), *arguments]


def checks():
    """Return what runs before the tests, by name."""
    return {
        "style": tool("ruff", "check", "."),
        "format": tool("ruff", "format", "--check", "."),
        "types": tool("mypy"),
        "imports": tool("lint-imports", "--no-logo"),
        "front end": [sys.executable, "widgets/frontend.py", "check"],
    }


def run(name, command, *, quiet=False):
    """Run one command; leave the program with its exit code if it fails."""
    started = time.monotonic()
    print(f"--- {name}: {' '.join(command)}", flush=True)
    done = subprocess.run(command, cwd=ROOT, capture_output=quiet, text=True, check=False)
    if done.returncode:
        print(f"{done.stdout or ''}{done.stderr or ''}--- {name} FAILED", flush=True)
        raise SystemExit(done.returncode)
    print(f"--- {name}: ok, {time.monotonic() - started:.0f} s", flush=True)


def other_pythons():
    """Return the interpreters of the other supported versions that work on this machine, by version."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = {version: find_python(version) for version in OTHER_VERSIONS if version != here}
    return {version: python for version, python in found.items() if python}


def find_python(version):
    """Return a working interpreter of that version, or None."""
    installed = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    question = "import sys, venv; print('{}.{}'.format(*sys.version_info))"
    for candidate in (f"python{version}", *map(str, installed)):
        try:
            answer = subprocess.run(
                [candidate, "-c", question], capture_output=True, text=True, check=False, timeout=30
            )
        except OSError:
            continue
        if answer.stdout.strip() == version:
            return candidate
    return None


def run_on(version, python, arguments):
    """Run the suite on another interpreter, in an environment of its own."""
    place = ROOT / ".venvs" / version
    inside = place / "bin" / "python"
    if not inside.exists():
        run(f"environment for Python {version}", [python, "-m", "venv", str(place)])
    run(f"install on Python {version}", [str(inside), "-m", "pip", "install", "-q", "-e", ".[test]"], quiet=True)
    command = [str(inside), "-m", "pytest", "-q", "-x", "-n", "2", *ONCE, *arguments]
    run(f"tests on Python {version}", command, quiet=True)


def main():
    parser = argparse.ArgumentParser(prog="python -m tests", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--all-pythons",
        action="store_true",
        default=os.environ.get("DIVEBOOK_REQUIRE") == "all",
        help="run the suite on every supported Python of this machine (always so with DIVEBOOK_REQUIRE=all)",
    )
    options, arguments = parser.parse_known_args()
    for name, command in checks().items():
        run(name, command)
    if options.all_pythons:
        for version, python in other_pythons().items():
            run_on(version, python, arguments)
    raise SystemExit(subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=ROOT, check=False).returncode)


if __name__ == "__main__":
    main()
