"""The code blocks of the documentation are executed, in the order in which a reader would type them.

The conventions of the blocks:

- ``python`` is executed in the namespace of its page.
- ``yaml`` that begins with ``%%dive``, and ``ipython``, are cells of a notebook. On a page with cells, ``python``
  blocks are cells of the same notebook.
- A block with ``title="FILE"`` is written to that file.
- ``console`` has commands after ``$ ``, each followed by its output. Commands of `EXECUTED` are executed.
- ``text`` after another block is the output of that block. ``...`` stands for any text.
- ``sh`` is not executed. The options of its ``divebook`` commands must exist.

A comment ``<!-- not run: REASON -->`` before a block keeps it from being executed. Its code must still be valid.
"""

import ast
import doctest
import linecache
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest
import typer.main
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
from typer.testing import CliRunner

from divebook.cli.dev_env import app as dev_env
from divebook.cli.main import app
from divebook.definitions.functions import WORKFLOW_FUNCTIONS
from divebook.definitions.reader import read_definitions
from divebook.notebook.session import open_session, reset_session
from divebook.steps.actions import REGISTERED

pytestmark = pytest.mark.timeout(600)
"""A page may start several processes, which take long on a busy machine."""

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "notebooks"
GENERATED = ("COMMANDS.md", "DEV_ENV.md", "KEYS.md")
"""Pages that are made from declarations, whose examples other tests execute."""
FENCE = re.compile(
    r'^(?:<!-- not run: (?P<reason>[^\n]+) -->\n)?```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?[^\n]*\n'
    r"(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
EXECUTED = ("divebook", "dev_env", "python", "cat")
PROGRAMS = {"divebook": app, "dev_env": dev_env}
AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
ELLIPSIS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Block(NamedTuple):
    """One fenced block of a page."""

    line: int
    language: str
    title: str | None
    reason: str | None
    """The reason why it is not executed, or None."""
    code: str

    @property
    def is_cell(self):
        return self.title is None and (self.language == "ipython" or self.code.startswith("%%dive"))


def blocks_of(text):
    return [
        Block(
            text.count("\n", 0, match.start("code")), *match.group("language", "title", "reason"), match.group("code")
        )
        for match in FENCE.finditer(text)
    ]


def pages():
    """Return the paths of the pages that are written by hand and have blocks."""
    paths = [ROOT / "README.md", *sorted(FOLDER.rglob("*.md"))]
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    return [
        path.relative_to(ROOT).as_posix()
        for path, text in texts.items()
        if path.name not in GENERATED and not path.name.startswith("licence") and "```" in text
    ]


def assert_output(printed, expected, where):
    """Compare text with what a page shows, in which ``...`` stands for any text."""
    printed, expected = printed.strip(), expected.strip()
    if not doctest.OutputChecker().check_output(f"{expected}\n", f"{printed}\n", ELLIPSIS):
        raise AssertionError(f"{where}: the page shows\n{expected}\n\nbut the block printed\n{printed}")


class Reader:
    """Executes the blocks of one page in a folder of its own. `printed` is what the last block printed."""

    def __init__(self, name, capsys, shell):
        self.name, self.capsys, self.shell = name, capsys, shell
        self.namespace = {"__name__": "__main__"}
        self.printed = ""

    def execute(self, block):
        """Execute a block."""
        where = f"{self.name}, line {block.line}"
        if block.title is not None:
            file = Path(block.title)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.code, encoding="utf-8")
        elif block.language == "text":
            assert_output(self.printed, block.code, where)
        elif block.language == "console":
            self.printed = self.run_commands(block.code, where)
        elif block.is_cell or (block.language == "python" and self.shell is not None):
            self.printed = self.run_cell(block.code, where)
        elif block.language == "python":
            self.printed = self.run_python(block.code, where)
        elif block.language == "yaml":
            read_definitions(block.code)

    def run_python(self, code, where):
        # Functions need a source, from which a workflow takes its definition.
        linecache.cache[where] = (len(code), None, code.splitlines(keepends=True), where)
        exec(compile(code, where, "exec"), self.namespace)
        return self.capsys.readouterr().out

    def run_cell(self, code, where):
        result = self.shell.run_cell(code, store_history=True)
        printed = self.capsys.readouterr()
        error = result.error_before_exec or result.error_in_exec
        text = re.sub(r"^Out\[\d+\]: ?", "", printed.out, flags=re.MULTILINE)
        # A page may show a cell that fails, with its error as the output.
        self.failed = None if error is None else f"{where}: {error!r}\n{printed.out}{printed.err}"
        return text + printed.err

    def run_commands(self, code, where):
        shown = ""
        for part in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
            line, _, expected = part.partition("\n")
            # A backslash continues a command on the next line.
            while line.endswith("\\"):
                more, _, expected = expected.partition("\n")
                line = f"{line[:-1].rstrip()} {more.strip()}"
            program, *arguments = shlex.split(line, comments=True)
            if program in EXECUTED:
                shown = self.run_command(program, arguments)
                if expected.strip():
                    assert_output(shown, expected, f"{where}, `{line}`")
        return shown

    def run_command(self, program, arguments):
        if program in PROGRAMS:
            result = CliRunner().invoke(PROGRAMS[program], arguments)
            if result.exception is not None and not isinstance(result.exception, SystemExit):
                raise result.exception
            return result.output
        command = [sys.executable, *arguments] if program == "python" else [program, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def bare_shell():
    before = sys.modules["__main__"]
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    shell.colors = "nocolor"
    sys.modules["__main__"] = before
    yield shell
    InteractiveShell.clear_instance()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Work in an empty folder with a store of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DIVEBOOK_STORE", str(tmp_path / "runs.db"))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    actions = dict(REGISTERED)
    before = set(sys.modules)
    # Emptied, not replaced: workflow functions of a page call each other through this dict.
    # Pages set variables such as DIVEBOOK_KEY, which would encrypt the stores of other tests.
    with patch.dict(WORKFLOW_FUNCTIONS, clear=True), patch.dict(os.environ):
        yield tmp_path
    REGISTERED.clear()
    REGISTERED.update(actions)
    # Files of a page are modules that other pages must not find.
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def notebook(bare_shell, folder, monkeypatch):
    """Return the shell with the extension loaded."""
    open_session(os.environ["DIVEBOOK_STORE"])
    monkeypatch.setitem(sys.modules, "__main__", bare_shell.user_module)
    bare_shell.run_line_magic("load_ext", "divebook")
    # The cells of each page are counted from 1.
    bare_shell.execution_count = 1
    yield bare_shell
    bare_shell.run_line_magic("unload_ext", "divebook")
    bare_shell.reset(new_session=False)
    reset_session()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", pages())
def test_the_blocks_of_a_page_run(name, capsys, request):
    blocks = blocks_of((ROOT / name).read_text(encoding="utf-8"))
    has_cells = any(block.is_cell and block.reason is None for block in blocks)
    reader = Reader(name, capsys, request.getfixturevalue("notebook") if has_cells else None)
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        if block.reason is None:
            reader.failed = None
            reader.execute(block)
            shows_error = following is not None and following.language == "text" and following.reason is None
            assert reader.failed is None or shows_error, reader.failed


def options_of(line):
    """Return the words of a command of divebook that begin with dashes, and the options that the command has."""
    _, name, *words = shlex.split(line, comments=True)
    command = typer.main.get_command(app).commands[name]
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    return {word.partition("=")[0] for word in words if re.match("--?[a-z]", word)}, options | {"--help"}


@pytest.mark.parametrize("name", pages())
def test_blocks_that_are_not_executed_are_valid(name):
    for block in blocks_of((ROOT / name).read_text(encoding="utf-8")):
        if block.language == "python" and block.reason is not None:
            compile(block.code, f"{name}, line {block.line}", "exec", AWAIT)
        if block.code.startswith("%%dive\n") and block.reason is not None:
            read_definitions(block.code.partition("\n")[2])
        if block.language in ("sh", "console") and (block.language == "sh" or block.reason is not None):
            for line in re.findall(r"^(?:\$ )?(divebook [a-z].*?)(?: [|>&].*)?$", block.code, re.MULTILINE):
                used, existing = options_of(line)
                assert used <= existing, f"{name}, line {block.line}: {line}"


@pytest.mark.parametrize("name", pages())
def test_each_fence_is_a_block(name):
    """A fence in a list, or one that is not closed, would be a block that nothing executes."""
    text = (ROOT / name).read_text(encoding="utf-8")
    assert 2 * len(blocks_of(text)) == len(re.findall(r"^ *```", text, re.MULTILINE))
