"""The contexts a script can run in, the names each offers, and the limits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Context(Enum):
    """What a piece of script is for; all but ``ACTIVITY`` are expressions that always give the same answer."""

    CONDITION = "condition"
    TEMPLATE = "template"
    EACH = "each"
    VALUE = "value"
    """A parameter, or an input of another workflow: its names hold what a log holds, and so does what it gives."""
    ACTIVITY = "activity"


@dataclass(frozen=True)
class Limits:
    """What a script may use before it is stopped with a `ScriptLimitError`."""

    seconds: float = 5.0
    """Running time; waiting for the host (sleep, documents) does not count."""

    memory: int = 256 * 1024 * 1024
    """Bytes of heap inside the sandbox."""


DEFAULT_LIMITS = Limits()


def ran_too_long(seconds: float) -> str:
    """Return the message about a script that has taken so much time."""
    return f"script ran longer than {seconds:g} s; do less in one script"


MODULES = frozenset({"json", "math", "re"})
"""Modules that are names everywhere, without an import."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SAFE_BUILTINS = _words("""
    abs all any bin bool bytes chr dict divmod enumerate filter float format frozenset hex int isinstance len list map
    max min oct ord pow range repr reversed round set slice sorted str sum tuple type zip
""")

BUILTINS = _SAFE_BUILTINS | _words("""
    ArithmeticError AssertionError AttributeError BaseException Ellipsis Exception FileExistsError FileNotFoundError
    ImportError IndexError IsADirectoryError KeyError KeyboardInterrupt LookupError MemoryError ModuleNotFoundError
    NameError NotADirectoryError NotImplemented NotImplementedError OSError OverflowError PermissionError RecursionError
    RuntimeError StopIteration SyntaxError SystemExit TimeoutError TypeError UnboundLocalError UnicodeDecodeError
    UnicodeEncodeError ValueError ZeroDivisionError
    complex eval exec getattr hasattr hash id iter locals next object open print property setattr
""")
"""What the sandbox has of Python's own names. ``open`` is there so that using it can explain itself."""

MAKE_CODE = frozenset({"eval", "exec", "locals"})
"""What can reach names that do not stand in the text of a script."""

SAFE_NAMES = _SAFE_BUILTINS | MODULES | {"error", "string"}
"""Names of the deterministic contexts, apart from the values passed in.

Left out because their answer depends on more than their arguments: ``hash``, ``id``, ``iter`` (shows an address) and
everything of the clock, chance, files and processes.
"""

ACTIVITY_NAMES = BUILTINS | SAFE_NAMES | {"documents", "__name__"}
"""Names of script steps."""
