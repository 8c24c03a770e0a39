"""Command ``tutorial``: copy the notebooks of the tutorial into a folder and open JupyterLab.

The wheel contains the notebooks, as the folder `divebook/tutorial` (`hatch_build.py`). In a copy of the repository they
are in `notebooks/`.
"""

from __future__ import annotations

import importlib.util
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypedDict

from divebook.commands.command import DEFINE, SHELL, Invocation, command, option, word
from divebook.errors import SetupError
from divebook.libraries import install_command
from divebook.report.shown import Shown
from divebook.text.format import plural

if TYPE_CHECKING:
    from divebook.report.model import Report

FIRST = "01_quickstart.ipynb"
PATTERNS = ("[0-9]*.ipynb", "example_sundial-*.dist-info/*")
"""Files of the tutorial: the notebooks, and a package that the first one examines."""
FIRST_CELLS = (
    "%load_ext divebook",
    """\
%%dive agent writer
Instructions: Answer in one sentence.
# Model: openai:gpt-5-mini   (without a model, divebook answers with a scripted one, offline)""",
    """\
%%dive workflow hello
Inputs:
  - {Name: topic, Type: string, Default: durable workflows}
Steps:
  - {Name: write, Agent: writer, Prompt: "Explain ${inputs.topic}.", Store: text}
  - {Name: approve, Ask: {Question: "Keep this text?", Kind: confirmation}, Store: kept}""",
    "run = %dive run hello",
)
"""First cells of the notebook that the tile of JupyterLab's launcher creates (`widgets/src/lab/launcher.ts`)."""

_PACKAGE = Path(__file__).parents[1]
COPIED: Final = "copied"
UNCHANGED: Final = "unchanged"
KEPT: Final = "kept"


class TutorialFile(TypedDict):
    """A file of the tutorial as JSON. `state` is ``kept`` if the folder has a changed file of that name."""

    file: str
    state: Literal["copied", "unchanged", "kept"]


class TutorialData(TypedDict):
    """Result of ``tutorial`` as JSON."""

    folder: str
    files: list[TutorialFile]


@dataclass(frozen=True, repr=False)
class Tutorial(Shown):
    """The folder with the notebooks, and whether each file was copied."""

    folder: Path
    files: list[TutorialFile]

    def report(self) -> Report:
        """Return the path of the first notebook."""
        from divebook.report.model import Paragraph, Report

        return Report(blocks=(Paragraph((str(self.folder / FIRST),)),))


def tutorial_data(tutorial: Tutorial) -> TutorialData:
    """Return the files of the tutorial as plain data."""
    return {"folder": str(tutorial.folder), "files": tutorial.files}


def tutorial_files() -> Iterator[tuple[str, Path]]:
    """Yield the files of the tutorial: the path in its folder, and the path of the file to copy."""
    for folder in (_PACKAGE / "tutorial", _PACKAGE.parent / "notebooks"):
        if (folder / FIRST).exists():
            for pattern in PATTERNS:
                yield from ((path.relative_to(folder).as_posix(), path) for path in sorted(folder.glob(pattern)))
            return
    raise SetupError(f"this installation of divebook has no notebooks: {_PACKAGE / 'tutorial'} does not exist")


@command(
    "tutorial",
    DEFINE,
    example="tutorial",
    no_python="Not available in Python; run the command in a shell.",
    interfaces=[SHELL],
    data=tutorial_data,
    has_store=False,
    shell_help="The command ends when JupyterLab ends.",
)
def tutorial(
    call: Invocation,
    folder: Annotated[
        Path, word("FOLDER", "Folder for the notebooks; it is created if it is missing.", completes="file")
    ] = Path("divebook-tutorial"),
    *,
    no_open: Annotated[bool, option("--no-open", help="Copy the notebooks, and do not open JupyterLab.")] = False,
) -> Tutorial:
    """Copy the notebooks of the tutorial and open JupyterLab.

    A changed file is never overwritten. To get its original, remove the file or name another folder.
    """
    # Checked before anything is copied.
    if not no_open and importlib.util.find_spec("jupyterlab") is None:
        raise SetupError(f"opening the notebooks needs the package jupyterlab: {install_command('jupyterlab')}")
    files = [_copy(path, folder / name, name) for name, path in tutorial_files()]
    states = [each["state"] for each in files]
    call.print_note(f"{folder}: {plural(states.count(COPIED), 'file')} copied, {states.count(UNCHANGED)} up to date")
    for each in files:
        if each["state"] == KEPT:
            call.print_note(f"{folder / each['file']} was changed by you and is not overwritten", "yellow")
    if no_open:
        call.print_note(f"open it with: {shlex.join(['jupyter', 'lab', str(folder / FIRST)])}")
    else:
        _open(folder / FIRST)
    return Tutorial(folder, files)


def _copy(source: Path, target: Path, name: str) -> TutorialFile:
    """Copy a file, unless there is one of that name."""
    content = source.read_bytes()
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        # Mode "x" fails if the file exists, also if another process has created it just now.
        with target.open("xb") as stream:
            stream.write(content)
    except FileExistsError:
        return {"file": name, "state": UNCHANGED if target.is_file() and target.read_bytes() == content else KEPT}
    return {"file": name, "state": COPIED}


def _open(notebook: Path) -> None:
    """Open a notebook in JupyterLab, and wait until JupyterLab ends."""
    lab = subprocess.Popen([sys.executable, "-m", "jupyterlab", str(notebook)])
    # Ctrl-C reaches both processes. JupyterLab asks whether it shall end.
    while True:
        try:
            code = lab.wait()
        except KeyboardInterrupt:
            continue
        if code:
            raise SetupError(f"JupyterLab ended with exit code {code}; its messages are above")
        return
