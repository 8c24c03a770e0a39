"""Snapshots of what users see: the public names, the shell, cells of a notebook, and recorded logs.

Each function returns one text. Identifiers, times, durations and temporary folders are replaced by placeholders, so
that a text depends on the code alone.
"""

import contextlib
import hashlib
import importlib
import inspect
import io
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from divebook import _SUBPACKAGES as SUBPACKAGES

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "snapshots"

PACKAGES = ("divebook", *sorted(f"divebook.{name}" for name in SUBPACKAGES))
"""Packages whose ``__all__`` users may import from."""

WORKFLOWS = """\
Name: demo
Agents: [{Name: critic}]
Workflows:
  - Name: hello
    Description: Greet somebody.
    Inputs:
      - {Name: who, Type: string}
      - {Name: times, Type: int, Default: 2}
    Outputs: [{Name: greeting}]
    Steps:
      - {Name: greet, Script: ("hello " + inputs.who + " ") * inputs.times, Store: greeting}
  - Name: broken
    Inputs: [{Name: n, Type: int, Default: 0}]
    Steps:
      - {Name: divide, Script: 1 / inputs.n, Store: result}
  - Name: release
    Steps:
      - {Name: build, Script: "'build 7'", Store: build}
      - {Name: review, Ask: {Question: "Release ${state.build}?", Kind: confirmation}, Store: answer}
  - Name: survey
    Inputs: [{Name: words}]
    Steps:
      - {Name: measure, Each: {Items: $(inputs.words), As: word}, Script: len(word), Store: lengths}
      - {Name: comment, Agent: critic, Prompt: "Comment on up to ${max(state.lengths)} letters", Store: comment}
"""
FAULTY = """\
Workflows:
  - Name: hello
    Stepz: []
    Steps:
      - {Name: greet, Script: 1 +, Store: greeting}
"""
LEGACY = """\
Name: legacy
Workflows:
  - Name: hello
    Inputs: [{Name: n, Default: 3}]
    Steps:
      - {Name: count, Script: 'inputs.n > 2 && true ? "many" : "few"', Store: amount}
"""

PLACEHOLDERS = (
    (re.compile(r"\bexec_[0-9a-z]{26}\b"), "exec_<id>"),
    (re.compile(r"\b(event|path|op|art|rule|sig|msg)_[0-9a-z]{26}\b"), r"\1_<id>"),
    (re.compile(r"\b(ask|rule|path)_[0-9a-f]{16}\b"), r"\1_<id>"),
    (re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d+)?( UTC|Z|\+00:00)"), "<time>"),
    # Which of two runs took longer is a matter of chance.
    (re.compile(r"\([+\u2212](?=\d+(\.\d+)? (ms|us|s)\b)"), "(±"),
    (re.compile(r"\b\d+(\.\d+)? (ms|us|s)\b"), "<duration>"),
    (re.compile(r"\b\d+(\.\d+)? (k|M)?B\b"), "<size>"),
    (re.compile(r'(?<="bytes": )\d+'), "<size>"),
    (re.compile(r'(?<=_seconds": )[\d.]+'), "<seconds>"),
    (re.compile(r"\b\d+%"), "<share>"),
    (re.compile(r"\b1[5-9]\d{14}\b"), "<microseconds>"),
    (re.compile(r"(?<=\S) {2,}(?=\S)"), "  "),  # columns are as wide as what differs
)


def plain(text: str, folder: str) -> str:
    """Replace what differs from run to run."""
    text = text.replace(folder, "<folder>").replace(str(ROOT), "<project>")
    for pattern, placeholder in PLACEHOLDERS:
        text = pattern.sub(placeholder, text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


@contextlib.contextmanager
def empty_folder() -> Iterator[str]:
    """Work in an empty folder, with nothing of the user's settings."""
    before, variables = Path.cwd(), dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="frozen") as folder:
        os.chdir(folder)
        for name in [name for name in os.environ if name.startswith("DIVEBOOK")]:
            del os.environ[name]
        os.environ |= {"COLUMNS": "120", "TERM": "dumb", "NO_COLOR": "1", "HOME": folder}
        try:
            yield folder
        finally:
            os.chdir(before)
            os.environ.clear()
            os.environ |= variables


def public_api() -> str:
    """Return the public names, with signatures and the public members of classes."""
    lines = []
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in sorted(module.__all__):
            lines += _described(f"{package}.{name}", getattr(module, name))
    return "\n".join(lines) + "\n"


def _described(name: str, thing: object) -> Iterator[str]:
    if inspect.ismodule(thing):
        yield f"{name}: module"
        return
    yield f"{name}{_signature(thing)}"
    if isinstance(thing, type):
        for member, value in sorted(inspect.getmembers(thing)):
            home = next((base for base in thing.__mro__ if member in vars(base)), object)
            if not member.startswith("_") and home.__module__.startswith("divebook"):
                kind = ": property" if isinstance(value, property) else _signature(value)
                yield f"{name}.{member}{kind}"


def _signature(thing: object) -> str:
    if not callable(thing):
        return f": {type(thing).__name__}"
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return "(...)"
    # Annotations name modules in full; where a class is defined is no part of what users see.
    kept = [
        parameter.replace(annotation=inspect.Parameter.empty, default=_default(parameter.default))
        for parameter in signature.parameters.values()
    ]
    return str(signature.replace(parameters=kept, return_annotation=inspect.Signature.empty))


class _AnyDefault:
    def __repr__(self) -> str:
        return "..."


def _default(value: object) -> object:
    """Return a default that is written in the same way in every process."""
    return value if value is None or isinstance(value, (bool, int, float, str, tuple, type)) else _AnyDefault()


def shell_help() -> str:
    """Return the help of every command."""
    import typer.main
    from typer.testing import CliRunner

    from divebook.cli.main import app

    texts = []
    with empty_folder() as folder:
        commands = sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
        for command in ["", *commands]:
            result = CliRunner().invoke(app, [*filter(None, [command]), "--help"])
            texts.append(f"$ divebook {command} --help\n{result.output}")
        return plain("\n".join(texts), folder)


def shell() -> str:
    """Return what the shell prints for runs that complete, fail, wait and are looked at."""
    from typer.testing import CliRunner

    from divebook.cli.main import app

    texts = []
    identifiers: dict[str, str] = {}

    def run(*arguments: str, note: str | None = None) -> str:
        given = [identifiers.get(argument, argument) for argument in arguments]
        result = CliRunner().invoke(app, given)
        shown = " ".join(f"'{a}'" if " " in a or "=" in a else a for a in arguments)
        stderr = result.stderr.strip()
        errors = f"--- stderr\n{stderr}\n" if stderr else ""
        texts.append(f"$ divebook {shown}\n{result.stdout}{errors}--- exit {result.exit_code}\n")
        match = re.search(r"exec_[0-9a-z]{26}", result.stdout)
        if note and match:
            identifiers[note] = match.group()
        return result.stdout

    with empty_folder() as folder:
        Path("demo.yaml").write_text(WORKFLOWS, encoding="utf-8")
        Path("faulty.yaml").write_text(FAULTY, encoding="utf-8")
        Path("legacy.yaml").write_text(LEGACY, encoding="utf-8")
        run("run", "demo.yaml", "-w", "hello", "-v", "who=Ann", note="HELLO")
        run("run", "demo.yaml", "-w", "hello", "-v", "who=Ann", "-q")
        run("run", "demo.yaml", "-w", "hello", "-v", "who=Ann", "--json")
        run("run", "demo.yaml", "-w", "hello")
        run("run", "demo.yaml", "-w", "hello", "-v", "whom=Ann")
        run("run", "demo.yaml", "-w", "helo")
        run("run", "demo.yaml", "-w", "broken", note="BROKEN")
        run("run", "demo.yaml", "-w", "survey", "-v", 'words:=["a", "bird"]', note="SURVEY")
        run("run", "demo.yaml", "-w", "release", note="RELEASE")
        run("run", "faulty.yaml")
        run("run", "absent.yaml")
        run("inbox")
        run("inbox", "--json")
        for name in ("HELLO", "BROKEN", "SURVEY", "RELEASE"):
            run("show", name)
        run("show", "HELLO", "--json")
        run("runs")
        run("runs", "--json")
        run("runs", "--status", "failed")
        run("why", "greeting", "HELLO")
        run("why", "lengths", "SURVEY")
        run("compare", "HELLO", "BROKEN")
        run("verify", "HELLO", "-d", "demo.yaml")
        run("what-if", "HELLO", "-d", "demo.yaml", "-v", "who=Bob")
        run("try", "greet", "HELLO", "-d", "demo.yaml")
        run("fork", "HELLO", "-d", "demo.yaml", "-v", "who=Bob")
        run("resume", "BROKEN", "-d", "demo.yaml")
        run("resume", "HELLO", "-d", "demo.yaml")
        run("tag", "HELLO", "kept")
        run("annotate", "HELLO", "--note", "a note")
        run("cancel", "RELEASE")
        run("export", "HELLO", "hello.jsonl")
        run("check")
        run("doctor", "demo.yaml")
        run("convert", "legacy.yaml", "--dialect", "dive")
        run("recover")
        run("rules")
        run("queue")
        run("files", "HELLO")
        run("gc")
        run("version")
        run("keys")
        return plain("\n".join(texts), folder)


CELLS = (
    "%load_ext divebook",
    "%%dive\n" + WORKFLOWS,
    "run = %dive run hello who=Ann\nrun.status, run.outputs",
    "%dive run broken",
    "%dive run hello",
    "%dive run helo",
    "%dive runs",
    "%dive inbox",
    "run.events.columns.tolist()",
    "run.steps.columns.tolist()",
    "run.variables",
    "run.costs().columns.tolist()",
    "%dive why greeting",
    "%dive help Script",
    "%dive nonsense",
    "%%dive\nWorkflows:\n  - Name: x\n    Stepz: []",
    "survey = %dive run survey words=$['a', 'bird']\nsurvey.items.columns.tolist()",
    "survey.messages.columns.tolist()",
    "import divebook\ndivebook.runs()",
    "%dive?",
)


def notebook() -> str:
    """Return what cells show as text."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    texts = []
    with empty_folder() as folder:
        os.environ["DIVEBOOK_STORE"] = "memory:"
        shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
        for cell in CELLS:
            output = io.StringIO()
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                shell.run_cell(cell, store_history=True)
            source = cell if len(cell) < 200 else cell[:60] + "..."
            texts.append(f">>> {source}\n{output.getvalue()}")
        shell.run_line_magic("unload_ext", "divebook")
        return plain(re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(texts)), folder)


def logs() -> str:
    """Return a digest of each recorded history, recorded now with fixed clock, chance and models."""
    import gzip

    from tests.replay.histories import STORIES, record

    lines = []
    for name in sorted(STORIES):
        text = gzip.decompress(record(name))
        lines.append(f"{hashlib.sha256(text).hexdigest()} {text.count(chr(10).encode()):4d} {name}")
    return "\n".join(lines) + "\n"


SNAPSHOTS: dict[str, Callable[[], str]] = {
    "public_api": public_api,
    "shell_help": shell_help,
    "shell": shell,
    "notebook": notebook,
    "logs": logs,
}
