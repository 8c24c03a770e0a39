"""The few lines of Python a sandbox session starts with.

They give scripts ``error``, ``string``, ``documents`` and the modules that need no import, and the helpers that
rewritten code calls; these take Python's own names as defaults, because a script may use such a name for a value of
its own. A script step is only given the pieces it mentions: a fresh session reads them every time.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeAlias

from divebook.events.classes import Instance
from divebook.events.recorded import BigInt, NonFinite, Recorded, TaggedDict
from divebook.scripting.values import plain
from divebook.text.arguments import same_name

# The contexts a script can run in, the names each offers, and the limits.


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


ATTRIBUTE = "__divebook_attribute__"
FORMAT = "__divebook_format__"
RESULT = "__divebook_result__"
ROUND = "__divebook_round__"
CHECK = "__divebook_check__"
ENTRIES = "__divebook_entries__"
DOCUMENT = "__divebook_document__"

CHANGE = "__divebook_change__"
MUTATION = "__divebook_mutation__"
"""What `CHANGE` asks the host for."""

HELPERS = frozenset({ATTRIBUTE, FORMAT, RESULT, ROUND, CHECK, ENTRIES, DOCUMENT, CHANGE, MUTATION})
"""Names that rewritten code relies on, so scripts may not use them."""

ERROR_FUNCTION = "error"
"""Name of the function in the sandbox whose message is reported bare, without an exception type."""

_PIECES = {
    "json": "import json",
    "math": "import math",
    "re": "import re",
    "string": "string = str",
    ERROR_FUNCTION: """
def error(message="error", Exception=Exception, str=str):
    raise Exception(str(message))
""",
    "round": f"""
{ROUND} = round


def round(number, ndigits=None, *, isinstance=isinstance, float=float, int=int, abs=abs, divmod=divmod,
          exact={ROUND}):
    # The sandbox multiplies, rounds and divides, which is a digit off for 4 % of amounts. A format is exact there.
    if ndigits is None or not isinstance(number, float) or not isinstance(ndigits, int):
        return exact(number, ndigits)
    if number != number or number in (float("inf"), float("-inf")) or ndigits > 323:
        return number
    if ndigits >= 0:
        return float(f"{{number:.{{int(ndigits)}}f}}")
    if ndigits < -308:
        return 0.0 * number
    unit = 10**-ndigits
    size = abs(number)
    units, rest = divmod(int(size), unit)
    twice = 2 * rest
    if twice > unit or (twice == unit and (int(size) < size or units % 2)):
        units += 1
    rounded = float(units * unit)
    return -rounded if f"{{number}}".startswith("-") else rounded
""",
    ATTRIBUTE: f"""
def {ATTRIBUTE}(value, name, path="this mapping", isinstance=isinstance, dict=dict, str=str, getattr=getattr):
    if isinstance(value, dict):
        if name in value:
            return value[name]
        keys = ", ".join([str(key) for key in value][:10])
        raise AttributeError(f"{{path}} has no key '{{name}}' (keys: {{keys}})")
    return getattr(value, name)
""",
    CHANGE: f"""
def {CHANGE}(state, change, key, value=None, isinstance=isinstance, dict=dict, getattr=getattr):
    if not isinstance(state, dict):
        return getattr(state, change)(key, value)
    {MUTATION}(change, key, value)
    if change == "set":
        state[key] = value
    else:
        state.pop(key, None)
""",
    FORMAT: f"""
def {FORMAT}(value, conversion, specification, str=str, repr=repr):
    if conversion:
        value = str(value) if conversion == "s" else repr(value)
    return f"{{value:{{specification}}}}" if specification else f"{{value}}"
""",
    RESULT: f"""
def {CHECK}(value, above, isinstance=isinstance, nested=(list, dict, set, tuple), dict=dict, list=list, type=type):
    if isinstance(value, nested):
        for outer in above:
            if outer is value:
                raise ValueError("a script cannot return a value that is part of itself; leave that part out")
        for item in list(value.values()) if isinstance(value, dict) else value:
            {CHECK}(item, above + [value])
    elif str(type(value)) == "<class 'coroutine'>":
        raise TypeError("a script cannot return a coroutine; await it and return what it gives")


def {RESULT}(value, isinstance=isinstance, plain=(str, int, float), nested=(list, dict, set, tuple), str=str, repr=repr,
             type=type, list=list, check={CHECK}):
    if value is None or isinstance(value, plain):
        return value
    if isinstance(value, nested):
        text = repr(value)  # written in the sandbox's own code: quick, and it shows whether a closer look is needed
        if "..." in text or "<coroutine" in text:
            check(value, [])
        return value
    kind = str(type(value))[8:-2]
    if kind in ("dict_keys", "dict_values", "dict_items", "range"):
        return list(value)
    if kind in ("function", "builtin_function_or_method", "method"):
        raise TypeError("a script cannot return a function; call it and return what it gives")
    if kind == "coroutine":
        check(value, [])
    if kind in ("type", "module"):
        kind = "class" if kind == "type" else kind
        raise TypeError(f"a script cannot return a {{kind}}; return text, numbers, lists or dicts")
    if kind in ("re.Match", "re.Pattern", "list_iterator", "slice"):
        raise TypeError(f"a script cannot return {{kind}}; return text, numbers, lists or dicts taken from it")
    return value
""",
    ENTRIES: f"""
def {ENTRIES}(entries, isinstance=isinstance, dict=dict, list=list, len=len):
    if isinstance(entries, dict):
        return entries
    entries = list(entries)
    made = dict(entries)
    if len(made) == len(entries):
        return made
    # Of equal keys, such as 1 and True, Python keeps the first, and the last value; the sandbox keeps the last key.
    made, keys = {{}}, {{}}
    for key, value in entries:
        if key in keys:
            key = keys[key]
        else:
            keys[key] = key
        made[key] = value
    return made
""",
    "documents": f"""
class Documents:
    def get(self, path):
        return {DOCUMENT}(path)


documents = Documents()
""",
}


def prelude(code: str | None = None) -> str:
    """Return the pieces that `code` mentions; all of them without `code`, or if it may make more code."""
    words = set(re.findall(r"\w+", code or ""))
    everything = code is None or not words.isdisjoint(MAKE_CODE)
    return "\n".join(text for name, text in _PIECES.items() if everything or name in words)


# What a script step may ask of the world, and how the sandbox's questions are put to it.


class Host(Protocol):
    """Answers the questions of one script; called in the thread that runs it.

    What these methods raise reaches the caller of `Interpreter.run_script` unchanged and ends the script; the script
    cannot catch it. The one exception is a FileNotFoundError of `document`, which a script may handle.
    """

    def now(self) -> float:
        """Return the time as seconds since 1970, UTC."""

    def entropy(self) -> bytes:
        """Return at least 16 bytes of chance; every random number of the script follows from them."""

    def sleep(self, seconds: float) -> None:
        """Wait."""

    def document(self, path: str) -> Mapping[str, Any]:
        """Return the document at `path`, with its text under ``content``."""

    def mutate(self, change: str, key: Any, value: Any) -> None:
        """Take note of a variable that the script ``set`` or ``delete``d."""

    def printed(self, text: str) -> None:
        """Take everything the script printed, once, after it ended."""


_REFUSED = "scripts are sandboxed: {name} is not available; read text with documents.get(path), write it with an action"
_NO_HOST = "the clock, chance and documents are not available here"


class HostAnswers:
    """Puts the sandbox's system calls to a `Host`, as the results Monty expects."""

    def __init__(self, host: Host | None) -> None:
        self._host = host
        self.missing: FileNotFoundError | None = None
        """The last document that the script asked for and that is missing."""

    def answer(self, name: str, arguments: tuple[Any, ...]) -> dict[str, Any]:
        """Return the result of one system call; what the host raises passes through."""
        question = _QUESTIONS.get(name)
        if question is None:
            return _refusal("PermissionError", _REFUSED.format(name=name))
        if self._host is None:
            return _refusal("RuntimeError", f"{name}: {_NO_HOST}")
        try:
            return {"return_value": question(self._host, *arguments)}
        except FileNotFoundError as error:
            if name != DOCUMENT:
                raise
            self.missing = error
            return _refusal("FileNotFoundError", str(error))


def _refusal(kind: str, message: str) -> dict[str, Any]:
    return {"exc_type": kind, "message": message}


def _time(host: Host, *_: Any) -> float:
    return host.now()


def _now(host: Host, zone: Any = None) -> datetime:
    moment = datetime.fromtimestamp(host.now(), zone or UTC)
    return moment if zone else moment.replace(tzinfo=None)


def _today(host: Host) -> date:
    return _now(host).date()


def _random_bytes(host: Host, count: int) -> bytes:
    return hashlib.shake_256(host.entropy()).digest(count)


def _sleep(host: Host, seconds: float, *_: Any) -> None:
    host.sleep(seconds)


def _document(host: Host, path: str) -> dict[str, Any]:
    return dict(host.document(path))


def _mutation(host: Host, change: str, key: Any, value: Any = None) -> None:
    host.mutate(change, key, plain(value))


_QUESTIONS: dict[str, Callable[..., Any]] = {
    "time.time": _time,
    "datetime.now": _now,
    "date.today": _today,
    "os.urandom": _random_bytes,
    "time.sleep": _sleep,
    "asyncio.sleep": _sleep,
    DOCUMENT: _document,
    MUTATION: _mutation,
}


# Expressions that only refer to a value, as ``state.rows`` does: which they are is decided here, and nowhere else.
#
# Such a value is looked up. It never enters the sandbox, however large it is; a crossing takes as long as a trivial
# step, and copies all of it (test_a_reference_means_the_same_with_and_without_the_sandbox).


NOTHING = object()
"""What an expression refers to where only the sandbox can tell."""

_ATOMS = frozenset({type(None), bool, int, float, str, bytes, BigInt, NonFinite})
_PLAIN = _ATOMS | {dict, list, TaggedDict, datetime, date, time, timedelta, Decimal}
"""Types of values that come out of the sandbox as they went in."""


class Attribute(NamedTuple):
    """``.name``, which on data is a key."""

    name: str

    def named_in(self, names: Any) -> Attribute:
        """Return the part with the spelling that its name has among variables or inputs."""
        return self if self.name.isascii() else Attribute(_spelt(self.name, names))

    def of(self, value: Any) -> Any:
        """Return what it gives of a value."""
        return _entry(value, self.name, NOTHING)


class Item(NamedTuple):
    """``[key]``: a text of a mapping, a whole number of a list."""

    key: str | int

    def named_in(self, names: Any) -> Item:
        """Return the part with the spelling that its key has among variables or inputs."""
        return self if type(self.key) is int or str(self.key).isascii() else Item(_spelt(self.key, names))

    def of(self, value: Any) -> Any:
        """Return what it gives of a value."""
        if type(self.key) is str:
            return _entry(value, self.key, NOTHING)
        is_there = type(value) is list and -len(value) <= self.key < len(value)  # type: ignore[operator]
        return value[self.key] if is_there else NOTHING


class Get(NamedTuple):
    """``.get(key, default)``."""

    key: str
    default: Any

    def named_in(self, names: Any) -> Get:
        """Return the part with the spelling that its key has among variables or inputs."""
        return self if self.key.isascii() else Get(_spelt(self.key, names), self.default)

    def of(self, value: Any) -> Any:
        """Return what it gives of a value."""
        return _entry(value, self.key, self.default)


Part: TypeAlias = Attribute | Item | Get


def _spelt(name: Any, names: Any) -> Any:
    known = same_name(name, names) if isinstance(names, Mapping) else None
    return name if known is None else known


def _entry(value: Any, key: str, default: Any) -> Any:
    if isinstance(value, Instance):
        value = value.plain()
    return value.get(key, default) if isinstance(value, Mapping) else NOTHING


class Reference(NamedTuple):
    """What an expression refers to: a name, and the way from its value."""

    name: str
    parts: tuple[Part, ...]

    def found(self, names: Mapping[str, Any], context: Context) -> Any:
        """Return the value that it refers to, or `NOTHING`."""
        value = names.get(self.name, NOTHING)
        for number, part in enumerate(self.parts):
            if value is NOTHING:
                return NOTHING
            value = (part.named_in(value) if number == 0 else part).of(value)
        if context is Context.VALUE and isinstance(value, Mapping) and type(value) not in _PLAIN:
            value = dict(value)  # all variables: the state is no dict
        return value if value is NOTHING or _STAYS[context](value) else NOTHING


def reference_of(tree: ast.Expression | ast.Module) -> Reference | None:
    """Return what an expression refers to; None if it is anything else than a reference."""
    parts: list[Part] = []
    node: Any = tree.body
    while not isinstance(node, ast.Name):
        found = last_part(node)
        if found is None:
            return None
        part, node = found
        parts.append(part)
    return Reference(node.id, tuple(reversed(parts)))


def last_part(node: Any) -> tuple[Part, ast.expr] | None:
    """Return the last part of a reference, and the expression that it is a part of; None without one."""
    if isinstance(node, ast.Attribute):
        return Attribute(node.attr), node.value
    if isinstance(node, ast.Subscript):
        key = _constant(node.slice)
        return (Item(key), node.value) if type(key) in (str, int) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
        given = None if node.keywords else tuple(map(_constant, node.args))
        if given and len(given) in (1, 2) and type(given[0]) is str and NOTHING not in given:
            return Get(given[0], given[1] if len(given) > 1 else None), node.func.value
    return None


def _constant(node: ast.expr) -> Any:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        below = _constant(node.operand)
        return -below if type(below) is int else NOTHING
    return node.value if isinstance(node, ast.Constant) and type(node.value) in _ATOMS else NOTHING


def _is_data(value: Any) -> bool:
    """Whether a value is of a plain type; what it holds does not matter to who asks."""
    return type(value) in _PLAIN


def _is_recordable(value: Any) -> bool:
    return type(value) in _PLAIN or isinstance(value, Recorded)


def is_plain(value: Any) -> bool:
    """Whether nothing in a value is more than plain data: the sandbox is given the rows of a frame, say."""
    kind = type(value)
    if kind is list:
        return _ATOMS.issuperset(map(type, value)) or all(map(is_plain, value))
    if kind is dict or kind is TaggedDict:
        return _ATOMS.issuperset(map(type, value.values())) or all(map(is_plain, value.values()))
    return kind in _PLAIN


_STAYS: Mapping[Context, Callable[[Any], bool]] = {
    Context.CONDITION: _is_data,
    Context.EACH: _is_data,
    Context.TEMPLATE: is_plain,
    Context.VALUE: _is_recordable,
}
"""By context, whether a value found there is what the sandbox would give, or better than that: frames and instances
stay what they are where a value is handed on."""
