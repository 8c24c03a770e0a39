"""The few lines of Python a sandbox session starts with.

They give scripts ``error``, ``string``, ``documents`` and the modules that need no import, and the helpers that
rewritten code calls; these take Python's own names as defaults, because a script may use such a name for a value of
its own. A script step is only given the pieces it mentions: a fresh session reads them every time.
"""

import re

from divebook.scripting.contexts import MAKE_CODE

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
