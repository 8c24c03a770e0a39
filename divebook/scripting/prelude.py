"""Environment of sandboxed code: available names, limits, the prelude of a session, and references.

The prelude is a few lines of Python that a sandbox session starts with. It defines ``error``, ``string``, ``documents``
and the modules that need no import, and the helper functions that rewritten code calls
(`divebook.scripting.syntax.rewrite`). The helpers take builtins such as ``isinstance`` as default arguments, because a
script may use these names for its variables. A fresh session parses its prelude every time. A script step therefore
gets only the parts of the prelude whose names occur in its code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeAlias

from divebook.events.classes import Instance
from divebook.events.recorded import BigInt, NonFinite, Recorded, TaggedDict
from divebook.text.arguments import same_name


class Host(Protocol):
    """Interface for functions outside the sandbox that a script step may call: clock, random bytes, documents and
    others.

    The functions run in the thread that runs the script. An exception of a function ends the script, which cannot catch
    it, and reaches the caller of `Interpreter.run_script` unchanged. There is one exception: a script may catch the
    FileNotFoundError of `document`.
    """

    def now(self) -> float:
        """Return the current time as seconds since 1970, UTC."""

    def entropy(self) -> bytes:
        """Return at least 16 random bytes. All random numbers of the script are derived from them."""

    def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds, when the script calls ``sleep``."""

    def document(self, path: str) -> Mapping[str, Any]:
        """Return the document at `path`, with its text under ``content``."""

    def mutate(self, change: str, key: Any, value: Any) -> None:
        """Record that the script has set or deleted a variable of the execution. `change` is ``set`` or ``delete``."""

    def printed(self, text: str) -> None:
        """Receive the text that the script has printed. Called once, after the end of the script."""


# --- purposes, limits and names -------------------------------------------------------------------------------------


class Purpose(Enum):
    """Purpose for which code is evaluated: as a script step (``ACTIVITY``), or as an expression, such as a condition or
    a template.
    """

    CONDITION = "condition"
    TEMPLATE = "template"
    EACH = "each"
    VALUE = "value"
    """A parameter of an action, or an input of a child workflow. Names and result may be recorded values, such as
    frames.
    """
    ACTIVITY = "activity"


@dataclass(frozen=True)
class Limits:
    """Limits of time and memory for a script, which is stopped with a `ScriptLimitError` when it exceeds a limit."""

    seconds: float = 5.0
    """Running time in seconds. Time in which the script waits for the host (sleep, documents) does not count."""

    memory: int = 256 * 1024 * 1024
    """Size of the heap inside the sandbox in bytes."""


DEFAULT_LIMITS = Limits()


def ran_too_long(seconds: float) -> str:
    """Return the error message about code that exceeded its limit of time."""
    return f"script ran longer than {seconds:g} s; do less in one script"


# The sandbox has them built in, without files.
MODULES = frozenset({"json", "math", "re"})
"""Modules that sandboxed code can use without an import."""


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
"""Builtins of the sandbox. ``open`` is included, because its use fails with an explanation."""

MAKE_CODE = frozenset({"eval", "exec", "locals"})
"""Builtins that can read names which do not occur in the source of a script, such as ``eval``."""

SAFE_NAMES = _SAFE_BUILTINS | MODULES | {"error", "string"}
"""Names that deterministic expressions may use, in addition to the values passed in.

Excluded because their result depends on more than their arguments: ``hash``, ``id``, ``iter`` (its text shows an
address), and everything about the clock, randomness, files and processes.
"""

ACTIVITY_NAMES = BUILTINS | SAFE_NAMES | {"documents", "__name__"}
"""Names that script steps may use."""


ATTRIBUTE = "__divebook_attribute__"
FORMAT = "__divebook_format__"
RESULT = "__divebook_result__"
ROUND = "__divebook_round__"
CHECK = "__divebook_check__"
ENTRIES = "__divebook_entries__"
DOCUMENT = "__divebook_document__"

CHANGE = "__divebook_change__"
MUTATION = "__divebook_mutation__"
"""Name of the host function that ``state.set`` and ``state.delete`` call."""

HELPERS = frozenset({ATTRIBUTE, FORMAT, RESULT, ROUND, CHECK, ENTRIES, DOCUMENT, CHANGE, MUTATION})
"""Names of helper functions that rewritten code uses. Scripts may not use these names."""

ERROR_FUNCTION = "error"
"""Name of the sandbox function ``error``. Its message is reported without the type of the exception."""

# Pieces of the prelude by name. `ATTRIBUTE` reads a key or an attribute, `CHANGE` sets or deletes a variable, `FORMAT`
# formats a part of an f-string, `RESULT` refuses results that are not data, and `ENTRIES` builds a dict like Python.
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
    """Return the Python source that a sandbox session runs first, to define helper functions. Only helpers whose names
    occur in `code` are included.

    Return all helpers if `code` is None or may evaluate more code.
    """
    # Words and not names of the syntax tree: a word in a string adds a piece in vain, which costs little and is never
    # wrong.
    words = set(re.findall(r"\w+", code or ""))
    # ``eval`` and similar functions may use helpers that do not occur in the source.
    everything = code is None or not words.isdisjoint(MAKE_CODE)
    return "\n".join(text for name, text in _PIECES.items() if everything or name in words)


# --- references ------------------------------------------------------------------------------------------------------
#
# References: expressions that only refer to a value, such as ``state.rows`` or ``inputs.user["name"]``.
#
# The value of a reference is looked up, without the sandbox, however large it is. A crossing to the sandbox takes as
# long as a trivial step and copies the whole value. Both ways must give the same
# (test_a_reference_means_the_same_with_and_without_the_sandbox). This module alone decides which expressions are
# references.
#
# An example: `reference_of` returns ``Reference("state", (Attribute("order"), Item("id")))`` for ``state.order["id"]``.
# `Reference.resolve` then follows the parts, beginning with the value of ``state``.


NOTHING = object()
"""Marker for a value that only the sandbox can compute: a key is missing, or the value cannot be used as it is."""

# Compared by `type`: a subclass, such as a string enum, is not plain data.
_ATOMS = frozenset({type(None), bool, int, float, str, bytes, BigInt, NonFinite})
_PLAIN = _ATOMS | {dict, list, TaggedDict, datetime, date, time, timedelta, Decimal}
"""Types of values that the sandbox returns unchanged."""


class Attribute(NamedTuple):
    """The part ``.name`` of a reference such as ``state.name``: reads the key ``name`` of a mapping."""

    name: str

    def spelled_as_in(self, names: Any) -> Attribute:
        """Return this attribute with its name spelled like a key of `names`. Two spellings of a name are the same if
        their Unicode normalization forms are equal. Return an equal attribute if no key matches.
        """
        # ASCII names have one spelling only, and skip the search.
        return self if self.name.isascii() else Attribute(_matching_key(self.name, names))

    def of(self, value: Any) -> Any:
        """Read this attribute from a value: return the entry of the mapping `value` under the attribute's name;
        `NOTHING` if the mapping lacks it or the value is not a mapping.
        """
        return _entry(value, self.name, NOTHING)


class Item(NamedTuple):
    """The part ``[key]`` of a reference such as ``state.rows[0]``: a string reads a key of a mapping, an integer an
    item of a list.
    """

    key: str | int

    def spelled_as_in(self, names: Any) -> Item:
        """Return this item with its key spelled like a key of `names`. Two spellings of a key are the same if their
        Unicode normalization forms are equal. Return an equal item if no key matches.
        """
        return self if type(self.key) is int or str(self.key).isascii() else Item(_matching_key(self.key, names))

    def of(self, value: Any) -> Any:
        """Read this item from a value: return the entry of the mapping, or the item of the list, under the key;
        `NOTHING` if the value has no such entry.
        """
        if type(self.key) is str:
            return _entry(value, self.key, NOTHING)
        is_there = type(value) is list and -len(value) <= self.key < len(value)  # type: ignore[operator]
        return value[self.key] if is_there else NOTHING


class Get(NamedTuple):
    """The part ``.get(key, default)`` of a reference such as ``state.get("total", 0)``: reads a key of a mapping, or
    returns the default if the mapping lacks the key.
    """

    key: str
    default: Any

    def spelled_as_in(self, names: Any) -> Get:
        """Return this ``.get`` part with its key spelled like a key of `names`. Two spellings of a key are the same if
        their Unicode normalization forms are equal. Return an equal part if no key matches.
        """
        return self if self.key.isascii() else Get(_matching_key(self.key, names), self.default)

    def of(self, value: Any) -> Any:
        """Evaluate ``value.get(key, default)``: return the entry of the mapping `value` under the key, or else the
        default. Return `NOTHING` if the value is not a mapping.
        """
        return _entry(value, self.key, self.default)


Part: TypeAlias = Attribute | Item | Get


def _matching_key(name: Any, names: Any) -> Any:
    """Return `name` as the keys of the mapping `names` spell it: the key that has the same Unicode normalization form
    (NFKC). Return `name` unchanged if no key has it, or if `names` is not a mapping.
    """
    key = same_name(name, names) if isinstance(names, Mapping) else None
    return name if key is None else key


def _entry(value: Any, key: str, default: Any) -> Any:
    # A recorded instance of a class has its fields as keys.
    if isinstance(value, Instance):
        value = value.plain()
    return value.get(key, default) if isinstance(value, Mapping) else NOTHING


class Reference(NamedTuple):
    """Expression that only refers to a value, such as ``state.order["id"]``: a name (``state``), and the parts that are
    read from its value in order (``.order``, ``["id"]``).
    """

    name: str
    parts: tuple[Part, ...]

    def resolve(self, names: Mapping[str, Any], purpose: Purpose) -> Any:
        """Look up the value of the reference in `names`, the values by variable name. Return `NOTHING` if the value
        does not exist, or only the sandbox can compute it.
        """
        # Each part may return `NOTHING`, which ends the look-up. The sandbox then evaluates the expression, and raises
        # Python's error.
        value = names.get(self.name, NOTHING)
        for number, part in enumerate(self.parts):
            if value is NOTHING:
                return NOTHING
            # The first part is the name of a variable or input. Only these names have a normalized spelling.
            value = (part.spelled_as_in(value) if number == 0 else part).of(value)
        if purpose is Purpose.VALUE and isinstance(value, Mapping) and type(value) not in _PLAIN:
            value = dict(value)  # ``$(state)`` as a whole: the state is a mapping of another type
        return value if value is NOTHING or _STAYS[purpose](value) else NOTHING


def reference_of(tree: ast.Expression | ast.Module) -> Reference | None:
    """Convert the syntax tree of an expression to a `Reference`. Return None if the expression is not a reference."""
    # The parts are collected from the last to the first, because the syntax tree has the last one at its root.
    parts: list[Part] = []
    node: Any = tree.body
    while not isinstance(node, ast.Name):
        part_and_rest = last_part(node)
        if part_and_rest is None:
            return None
        part, node = part_and_rest
        parts.append(part)
    return Reference(node.id, tuple(reversed(parts)))


def last_part(node: Any) -> tuple[Part, ast.expr] | None:
    """Split the last part off an expression: for ``a.b["c"]`` return ``Item("c")`` and the node of ``a.b``.

    Return None if the expression has no such part. Keys of items and arguments of ``get`` must be constants.
    """
    if isinstance(node, ast.Attribute):
        return Attribute(node.attr), node.value
    if isinstance(node, ast.Subscript):
        key = _constant(node.slice)
        # `type` excludes booleans: ``rows[True]`` is left to the sandbox.
        return (Item(key), node.value) if type(key) in (str, int) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
        arguments = None if node.keywords else tuple(map(_constant, node.args))
        # The arguments must be constants: ``state.get(name)`` is not a reference.
        if arguments and len(arguments) in (1, 2) and type(arguments[0]) is str and NOTHING not in arguments:
            return Get(arguments[0], arguments[1] if len(arguments) > 1 else None), node.func.value
    return None


def _constant(node: ast.expr) -> Any:
    """Return the value of a syntax node that is a constant or a negative integer; `NOTHING` for any other node."""
    # ``rows[-1]`` has a negative index, which the syntax tree holds as an operator and a number.
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        below = _constant(node.operand)
        return -below if type(below) is int else NOTHING
    return node.value if isinstance(node, ast.Constant) and type(node.value) in _ATOMS else NOTHING


def _is_data(value: Any) -> bool:
    """Return True if the type of a value is a plain type, such as a number, string, list or mapping. The items of a
    list or mapping are not tested, because this is sufficient for conditions and loop items.
    """
    return type(value) in _PLAIN


def _is_recordable(value: Any) -> bool:
    """Return True if a log can hold a value: plain data, or a recorded value such as a frame or an instance."""
    return type(value) in _PLAIN or isinstance(value, Recorded)


def is_plain(value: Any) -> bool:
    """Return True if a value consists of plain data at all depths.

    Other values change in the sandbox: a frame, for example, becomes a list of rows.
    """
    kind = type(value)
    if kind is list:
        # A list of numbers or texts is tested in C. Only other lists are walked.
        return _ATOMS.issuperset(map(type, value)) or all(map(is_plain, value))
    if kind is dict or kind is TaggedDict:
        return _ATOMS.issuperset(map(type, value.values())) or all(map(is_plain, value.values()))
    return kind in _PLAIN


_STAYS: Mapping[Purpose, Callable[[Any], bool]] = {
    Purpose.CONDITION: _is_data,
    Purpose.EACH: _is_data,
    Purpose.TEMPLATE: is_plain,
    Purpose.VALUE: _is_recordable,
}
"""Tests by purpose: True if a value that was looked up can be used in place of the sandbox's result.

For the purpose `VALUE` the looked-up value is preferred, because frames and instances keep their type.
"""
