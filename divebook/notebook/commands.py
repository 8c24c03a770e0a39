"""What a sub-command of ``%dive`` is: a method whose docstring is its help, and lists its words and options.

A line of it that begins with ``--name`` is an option, with a value if a word follows after one space (``--tag TAG``);
``-n,`` before it is a short spelling. A line that begins with a word in capitals is a word that it takes, and
``KEY=VALUE`` says that it takes inputs. A usage that ends with ``...`` takes any number of words. One that can go on in
the ``--background`` returns a run that is waited for.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from IPython.core.error import UsageError

from divebook.errors import nearest

if TYPE_CHECKING:
    from divebook.notebook.arguments import Arguments
    from divebook.notebook.expressions import Names

Method: TypeAlias = "Callable[[Any, Arguments], Any]"

HELP_OPTIONS = frozenset({"--help", "-h"})
_OPTION = re.compile(r"^(?:(-\w), )?--([\w-]+)(?: (\S))?", re.MULTILINE)
_WORD = re.compile(r"^[A-Z]+ ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Command:
    """A sub-command of ``%dive``."""

    usage: str
    method: Method
    help: str
    """What it does, in full."""
    flags: Mapping[str, str]
    valued: Mapping[str, str]
    """Long names of the options without and with a value, by every spelling."""
    most_words: int
    inputs: bool
    data_word: int | None
    """The position of the word that may be any value."""

    @property
    def whole_help(self) -> str:
        """How it is written, and what it does."""
        return f"%dive {self.usage}\n\n{self.help}"

    def parse(self, words: list[str], names: Names | None = None) -> Arguments:
        """Sort what follows it; words that would be ignored are refused."""
        from divebook.notebook.arguments import parse  # loading the extension must be quick

        found = parse(words, self.flags, self.valued, inputs=self.inputs, names=names, data_word=self.data_word)
        extra, name = " ".join(found.words[self.most_words :]), self.usage.split()[0]
        if extra and self.inputs:
            raise UsageError(f"unexpected {extra!r}; write inputs as key=value, and texts with spaces in quotes")
        if extra and self.most_words:
            raise UsageError(f"unexpected {extra!r} after %dive {name}; put texts with spaces in quotes")
        if extra:
            raise UsageError(f"%dive {name} takes no words, found {extra!r}; %dive {name}? lists its options")
        return found


def command(usage: str, *, data_word: int | None = None) -> Callable[[Method], Command]:
    """Make a sub-command of a method that takes `Arguments`."""

    def made(method: Method) -> Command:
        text = inspect.getdoc(method) or ""
        flags: dict[str, str] = {}
        valued: dict[str, str] = {}
        for short, name, value in _OPTION.findall(text):
            (valued if value else flags).update(dict.fromkeys(filter(None, (f"--{name}", short)), name))
        words = sys.maxsize if usage.endswith(" ...") else len(_WORD.findall(text))
        return Command(usage, method, text, flags, valued, words, "\nKEY=VALUE" in text, data_word)

    return made


def help_with(word: str, commands: Mapping[str, Command]) -> str:
    """Return what a sub-command does, or a key of definitions means; UsageError if there is neither."""
    from divebook.errors import NotFoundError
    from divebook.workflow.key_help import help_about

    if word in commands:
        return commands[word].whole_help
    try:
        return help_about(word)
    except NotFoundError as error:
        close = nearest(word, (*commands, *error.available))
        advice = (
            f"did you mean %dive help {close}?" if close else "%dive help lists all sub-commands, %dive keys all keys"
        )
        raise UsageError(f"there is neither a sub-command nor a key {word!r} ({advice})") from None


def command_called(name: str, commands: Mapping[str, Command]) -> Command:
    """Return the sub-command of that name; UsageError if there is none."""
    if name not in commands:
        close = nearest(name, commands)
        advice = f"did you mean %dive {close}?" if close else f"there are: {', '.join(commands)}"
        raise UsageError(f"%dive {name} does not exist ({advice})")
    return commands[name]
