"""All checks: ``python -m tests [--fast] [--campaigns] [--browser] [--all-pythons] [--lowest] [pytest
arguments]``.

Style, types, import contracts, the front end (built once, for every Python), parts of the suite on the other Pythons of
this machine if asked for, the suite on this Python, and, if asked for, the tests that drive a browser or build
environments of their own: in two processes, since more would slow each other down. Campaigns that attack divebook for
minutes, and tests that wait for kernels, containers and other processes, run if asked for. With
``DIVEBOOK_REQUIRE=all``, as in continuous integration, everything runs. Stops at the first failure.

``--fast`` is for development: style, types and contracts, and the tests of the packages that differ from the branch
``main`` (on ``main`` itself: from the commit before), uncommitted changes included, without those that take long.

``--lowest`` only runs a short part of the suite with the lowest versions of the libraries that `pyproject.toml` allows,
in an environment of its own below ``.venvs``.
"""

import argparse
import os
import re
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parent.parent
OTHER_VERSIONS = ("3.11", "3.12", "3.13")
BROWSER = ("tests/browser", "tests/test_binder.py", "tests/test_wheels.py")
"""Tests that drive a browser or make environments of their own. They run on one Python only, after all other tests."""
IN_PAIRS = ("-n", "2", "--dist", "loadfile")
"""Each process has a browser and servers of its own, which the tests of a file share."""
PARALLEL = ("-n", "3", "--dist", "worksteal", *(f"--ignore={place}" for place in BROWSER))
"""On two cores: a quarter of their time tests wait, for processes, servers and disks. At the end idle workers take over
tests of others."""
ATTACKS = (
    "tests/kill",
    "tests/chaos",
    "tests/postgres",
    "tests/simulation",
    "tests/trust",
    "tests/cli/test_hostile.py",
    "tests/config/test_schedules.py",
    "tests/runtime/test_any_values.py",
    "tests/runtime/test_cancelled_trees.py",
    "tests/runtime/test_ended.py",
    "tests/runtime/test_family_bounds.py",
    "tests/replay/test_failing.py",
    "tests/store/test_broken_stores.py",
    "tests/store/test_copied_forks.py",
    "tests/store/test_copies.py",
    "tests/store/test_damage.py",
    "tests/store/test_keys_of_writers.py",
    "tests/test_entry_points.py",
    "tests/text/test_patterns.py",
    "tests/tools/test_hostile_servers.py",
    "tests/tools/test_mcp_processes.py",
    "tests/definitions/test_json_schemas.py",
    "tests/workspace/test_applying.py",
)
PROCESSES = (
    "tests/devenv",
    "tests/cli/test_expiring.py",
    "tests/cli/test_nonsense.py",
    "tests/runtime/test_closing.py",
    "tests/runtime/test_handed_on.py",
    "tests/export/test_page.py",
    "tests/notebook/test_agents_notebook.py",
    "tests/notebook/test_breaking_off_notebook.py",
    "tests/notebook/test_fault_and_what_if_notebooks.py",
    "tests/notebook/test_machines_notebook.py",
    "tests/notebook/test_secrets_of_kernels.py",
    "tests/notebook/test_stopping.py",
    "tests/notebook/test_workspaces_notebook.py",
    "tests/queues/test_deaths.py",
    "tests/queues/test_kills.py",
    "tests/rows/test_kills.py",
    "tests/rows/test_unknown_rows.py",
    "tests/tools/test_strange_files.py",
    "tests/workspace/test_backends.py",
    "tests/workspace/test_kills.py",
)
TEXTS = ("tests/frozen", "tests/test_architecture.py", "tests/test_site.py")
CAMPAIGNS = (*ATTACKS, *PROCESSES)
"""Attacks on the store, its processes and its borders that take minutes, and tests that wait for kernels, containers
and other processes."""
ON_ONE_PYTHON = tuple(f"--ignore={place}" for place in (*CAMPAIGNS, *TEXTS))
"""What is the same on every Python: campaigns, and tests that read the project's own text."""
ON_EVERY_PYTHON = (
    "tests/engine",
    "tests/events",
    "tests/scripting",
    "tests/text",
    "tests/definitions",
)
"""Tests of code that depends on the version: syntax trees, annotations, encoders and names of errors."""
ON_ONE_FURTHER_PYTHON = ("tests/runtime",)
"""Tests of code that depends on the version of asyncio. They take long, so that the further Pythons share them: each
file runs on one of them."""
TESTS_OF = {
    "environments": ("tests/test_environment.py", "tests/test_taking_in.py"),
    "interrupts.py": ("tests/test_interrupts.py",),
    "mapping.py": ("tests/rows",),
    "pipeline": ("tests/pipeline", "tests/envelope"),
    "telemetry.py": ("tests/telemetry",),
    "queues.py": ("tests/queues",),
    "stores": ("tests/store",),
    "testing.py": ("tests/testing",),
    "workspaces": ("tests/workspace",),
}
"""Tests of packages whose folder of tests has another name."""
WITH_LOWEST = (
    "tests/agents/test_output.py",
    "tests/agents/test_prices.py",
    "tests/analysis/test_frames.py",
    "tests/cli/test_run.py",
    "tests/config/test_merge.py",
    "tests/definitions/test_json_schemas.py",
    "tests/engine/test_checkpoint.py",
    "tests/events/test_arrow.py",
    "tests/export/test_notebook.py",
    "tests/runtime/test_addresses.py",
    "tests/runtime/test_dask.py",
    "tests/runtime/test_functions.py",
    "tests/runtime/test_groups.py",
    "tests/runtime/test_processes.py",
    "tests/scripting/test_script.py",
    "tests/serve/test_server.py",
    "tests/store/test_encryption.py",
    "tests/telemetry/test_telemetry.py",
    "tests/tools/test_mcp_servers.py",
    "tests/widgets/test_feed.py",
)
"""Tests in which each library of divebook takes part."""
TOOLS_OF_TESTS = ("hypothesis", "ipykernel", "pytest", "pytest-timeout", "pytest-xdist")
"""Requirements of the extra ``test`` without which these tests do not run. They have the lowest versions as well."""
LONG = ("notebook", "kernel", "process", "kills", "crash")
"""Words in the names of test files that start kernels or other processes; ``--fast`` leaves them out."""
SHOWN = 200
"""Characters of a command that are printed."""
BIN = Path(sys.executable).parent


def tool(name, *arguments):
    """Return the command line of a tool that is installed beside this Python."""
    return [str(BIN / name), *arguments]


def checks():
    """Return what runs before the tests, by name."""
    return {
        "front end": [sys.executable, "widgets/frontend.py", "check"],
        "types": tool("mypy"),
        "style": tool("ruff", "check", "."),
        "format": tool("ruff", "format", "--check", "."),
        "imports": tool("lint-imports", "--no-logo"),
    }


def run(name, command, *, quiet=False):
    """Run one command; leave the program with its exit code if it fails."""
    started = time.monotonic()
    print(f"--- {name}: {' '.join(command):.{SHOWN}}", flush=True)
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


def other_files(version, versions):
    """Return the test files that one of several other Pythons leaves out. The Pythons share the files of
    `ON_ONE_FURTHER_PYTHON`. Of the files whose tests hardly depend on the version, each runs a share of its own; all
    shares together are half of these files.
    """
    files = sorted(str(file.relative_to(ROOT)) for file in (ROOT / "tests").rglob("test_*.py"))
    files = [file for file in files if not file.startswith(ON_EVERY_PYTHON)]
    shared = [file for file in files if file.startswith(ON_ONE_FURTHER_PYTHON)]
    independent = [file for file in files if not file.startswith(ON_ONE_FURTHER_PYTHON)]
    share = versions.index(version)
    left_out = [file for number, file in enumerate(shared) if number % len(versions) != share]
    return left_out + [file for number, file in enumerate(independent) if number % (2 * len(versions)) != share]


def install(name, python):
    """Install the project with what its tests need for another interpreter: with uv, or with pip if uv cannot."""
    requirements = ["install", "-q", "-e", ".[test]"]
    uv = BIN / "uv"
    command = [str(uv), "pip", *requirements, "--python", str(python)]
    if not uv.exists() or subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode:
        # uv does not read the configuration of pip, which may name the package index.
        run(name, [str(python), "-m", "pip", *requirements], quiet=True)


def run_on(version, python, versions, arguments):
    """Run a part of the suite on another interpreter, one of several versions, in an environment of its own."""
    place = ROOT / ".venvs" / version
    inside = place / "bin" / "python"
    if not inside.exists():
        run(f"environment for Python {version}", [python, "-m", "venv", str(place)])
    install(f"install on Python {version}", inside)
    ignored = [f"--ignore={file}" for file in other_files(version, versions)]
    command = [str(inside), "-m", "pytest", "-q", "-x", *PARALLEL, *ON_ONE_PYTHON, *ignored, *arguments]
    run(f"tests on Python {version}", command, quiet=True)


def run_lowest(arguments):
    """Run a part of the suite with the lowest versions that `pyproject.toml` allows; leave with the exit code."""
    place = ROOT / ".venvs" / "lowest"
    inside = place / "bin" / "python"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    tools = [each for each in extras["test"] if re.split(r"[<>=\[]", each)[0] in TOOLS_OF_TESTS]
    # Every time from nothing: a version that is there already would count as chosen.
    uv = str(BIN / "uv")
    run("environment for lowest versions", [uv, "venv", "-q", "--clear", "-p", sys.executable, str(place)], quiet=True)
    package_with_extras = f".[{','.join(sorted(set(extras) - {'docs', 'test'}))}]"
    requirements = ["-e", package_with_extras, *tools]
    resolution = ["--resolution", "lowest-direct", "--python", str(inside)]
    run("install lowest versions", [uv, "pip", "install", "-q", *resolution, *requirements], quiet=True)
    # Old versions warn about newer Pythons and libraries.
    command = [str(inside), "-m", "pytest", "-q", "-o", "filterwarnings=", *IN_PAIRS, *(arguments or WITH_LOWEST)]
    raise SystemExit(subprocess.run(command, cwd=ROOT, check=False).returncode)


def changed_files():
    """Return the paths that differ from the branch ``main``, or on ``main`` from the commit before."""

    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()

    (head,) = git("rev-parse", "HEAD")
    base = git("merge-base", "main", "HEAD") or [head]
    since = "HEAD~1" if base == [head] else base[0]
    return {*git("diff", "--name-only", since), *git("ls-files", "--others", "--exclude-standard")}


def tests_of(paths):
    """Return the folders and files with the tests of changed files, without campaigns and slow tests."""
    chosen = {"tests/test_architecture.py", "tests/test_prose.py"}
    for path in paths:
        parts = Path(path).parts
        if parts[0] == "divebook" and len(parts) > 1:
            chosen.update(TESTS_OF.get(parts[1], (f"tests/{parts[1]}",)))
        elif parts[0] == "tests" and len(parts) > 1:
            chosen.add(f"tests/{parts[1]}")
    files = set()
    for name in chosen:
        place = ROOT / name
        found = place.rglob("test_*.py") if place.is_dir() else [place]
        files.update(str(file.relative_to(ROOT)) for file in found if file.name.startswith("test_") and file.exists())
    left_out = (*CAMPAIGNS, *BROWSER, "tests/frozen")
    return sorted(
        file for file in files if not file.startswith(left_out) and not any(word in Path(file).stem for word in LONG)
    )


def run_fast(arguments):
    """Run style, types, contracts and the tests of changed packages; leave the program with the exit code."""
    fast = {name: command for name, command in checks().items() if name != "front end"}
    with ThreadPoolExecutor(2) as threads:
        for check in [threads.submit(run, name, command, quiet=True) for name, command in fast.items()]:
            check.result()
    raise SystemExit(suite("-q", "-x", "-n", "3", "--dist", "worksteal", *tests_of(changed_files()), *arguments))


def suite(*arguments):
    """Run pytest on this Python; return its exit code."""
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=ROOT, check=False).returncode


def main():
    parser = argparse.ArgumentParser(prog="python -m tests", description=__doc__.splitlines()[0])
    parser.add_argument("--fast", action="store_true", help="test what has changed, in about a minute")
    parser.add_argument(
        "--all-pythons",
        action="store_true",
        default=os.environ.get("DIVEBOOK_REQUIRE") == "all",
        help="run a part of the suite on each other supported Python of this machine (always so with "
        "DIVEBOOK_REQUIRE=all)",
    )
    parser.add_argument(
        "--browser",
        action="store_true",
        default=os.environ.get("DIVEBOOK_REQUIRE") == "all",
        help="drive a browser and build environments as well (always so with DIVEBOOK_REQUIRE=all)",
    )
    parser.add_argument(
        "--campaigns",
        action="store_true",
        default=os.environ.get("DIVEBOOK_REQUIRE") == "all",
        help="run the campaigns as well (always so with DIVEBOOK_REQUIRE=all)",
    )
    parser.add_argument("--lowest", action="store_true", help="test with the lowest allowed versions, and nothing else")
    options, arguments = parser.parse_known_args()
    if options.lowest:
        run_lowest(arguments)
    if options.fast:
        run_fast(arguments)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of processes of the tests would compile all anew
    named = [argument for argument in arguments if (ROOT / argument.partition("::")[0]).exists()]
    with ThreadPoolExecutor(2) as threads:  # those of types and of the front end take a minute each
        for check in [threads.submit(run, name, command, quiet=True) for name, command in checks().items()]:
            check.result()
    if options.all_pythons:
        pythons = other_pythons()
        for version, python in pythons.items():
            run_on(version, python, list(pythons), arguments)
    if named:  # tests that somebody chose run as they are named
        raise SystemExit(suite(*arguments))
    left_out = () if options.campaigns else tuple(f"--ignore={place}" for place in CAMPAIGNS)
    code = suite(*PARALLEL, *left_out, *arguments)
    if not code and options.browser:
        code = suite(*IN_PAIRS, *BROWSER, *arguments)
    raise SystemExit(code)


if __name__ == "__main__":
    main()
