"""Example of a package with one plugin of each group."""

import json
from pathlib import Path

from divebook.errors import ConcurrentAppendError
from divebook.runtime.step import Outcome
from divebook.steps.script_step import filled
from divebook.workspaces import LocalWorkspace


class Lines:
    """Event store with a file of JSON lines for each execution."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def _file(self, execution_id):
        return self.folder / f"{execution_id}.jsonl"

    def ids(self):
        return [file.stem for file in self.folder.glob("*.jsonl")]

    def read(self, execution_id, after):
        file = self._file(execution_id)
        return [json.loads(line) for line in file.read_text().splitlines()[after:]] if file.exists() else []

    def append(self, execution_id, entries, expected):
        count = len(self.read(execution_id, 0))
        if count != expected:
            raise ConcurrentAppendError(execution_id, expected, count)
        with self._file(execution_id).open("a") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in entries)


def open_lines(url):
    """Open the store at ``acme://FOLDER``."""
    return Lines(url.partition("://")[2])


def weather(city: str) -> str:
    """Return the weather in a city."""
    return f"sun in {city}"


async def shout(context):
    """Execute a step of type ``acme_shout``: its value is the parameter ``Text`` in capitals."""
    parameters = await filled(context.step.parameters, context.names)
    text = parameters["Text"].upper()
    return Outcome(text, text)


class Box(LocalWorkspace):
    """Workspace on this machine, with a mark."""

    kind = "acme_box"


def make_box(folder, definition, options):
    """Make a workspace of kind ``acme_box``."""
    (folder / "mark.txt").write_text(definition.name)
    return Box(folder, **options)


def notifier(address):
    """Return a hook that appends each question to the file in ``acme://FILE``."""
    file = Path(address.partition("://")[2])

    def append(question):
        with file.open("a") as stream:
            stream.write(question["question"] + "\n")

    return append


class Money:
    """Amount of money, a class that divebook does not know."""

    def __init__(self, cents, currency):
        self.cents = cents
        self.currency = currency

    def __eq__(self, other):
        return isinstance(other, Money) and vars(self) == vars(other)

    __hash__ = None


MONEY = (
    lambda money: {"cents": money.cents, "currency": money.currency},
    lambda plain: Money(plain["cents"], plain["currency"]),
)
