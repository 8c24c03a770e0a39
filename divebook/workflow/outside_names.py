"""Functions of Python and libraries that give something else each time: by full name, with what to write instead."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any, NamedTuple


class Rule(NamedTuple):
    """Why something may not stand in a workflow function, and what may."""

    why: str
    """The rest of a sentence that begins with its name."""
    fix: str


_STEP = "put it into a @step function, and await that"
_CLOCK = Rule("gives another time whenever the function runs again", "write `await ctx.now()`")
_SLEEP = Rule("is not recorded, so that it is waited for again", "write `await ctx.sleep(seconds)`")
_LIMIT = Rule(
    "measures time that is not recorded, and is refused when it runs",
    "write @step(timeout=seconds) for a call, `ctx.wait_signal(name, within=seconds)` for a wait",
)
_CHANCE = Rule("gives something else whenever the function runs again", f"write `await ctx.random()`, or {_STEP}")
_OUTSIDE = Rule("reads or changes what is outside whenever the function runs again", _STEP)
TASK = Rule("begins calls in an order that depends on speed", "write `await ctx.gather(...)`")
_THREAD = Rule("runs where nothing is recorded", _STEP)
_IDENTITY = Rule("gives something else in another process", "compare values, or use hashlib")

_UNLESS_ARGUMENTS = re.compile(
    r"time\.(localtime|gmtime|ctime|strftime)|random\.Random|numpy\.random\.(default_rng|RandomState|Generator)"
)
"""What is the same each time where it is told what to begin with."""
_CLOCKS = (
    r"time\.(time|monotonic|perf_counter|process_time|thread_time)(_ns)?",
    r"time\.(localtime|gmtime|ctime|strftime)",
    r"datetime\.datetime\.(now|utcnow|today)",
    r"datetime\.date\.today",
    r"pandas\..*Timestamp\.(now|today|utcnow)",
)
_SLEEPS = (r"time\.sleep", r"asyncio\.(tasks\.)?sleep", r"(anyio|trio)\.(.*\.)?sleep")
_LIMITS = (
    r"asyncio\.(\w+\.)?(timeout|timeout_at|wait_for)",
    r"anyio\.(.*\.)?(fail_after|move_on_after|fail_at|move_on_at|current_time)",
)
_CHANCES = (r"(random|_random|secrets|numpy\.random)\..*", r"uuid\.uuid[14]", r"(os|posix|nt)\.urandom")
_TASKS = (r"asyncio\.(\w+\.)?(create_task|ensure_future|gather|TaskGroup|as_completed|wait|run_coroutine_threadsafe)",)
_THREADS = (
    r"asyncio\.(\w+\.)?to_thread",
    r"threading\.(Thread|Timer)",
    r"concurrent\.futures\..*Executor",
    r"multiprocessing\..*",
)
_IDENTITIES = (r"builtins\.(id|hash)",)
_FILES = r"(exists|isfile|isdir|getsize|getmtime)"
_OUTSIDES = (
    r"builtins\.(open|input)",
    r"(io|_io)\.open",
    r"(os|posix)\.environ",
    r"(os|posix|nt)\.(getenv|listdir|scandir|walk|stat|getcwd|getpid|remove|unlink|rename|mkdir|makedirs|system|popen)",
    rf"(os\.path|posixpath|genericpath)\.{_FILES}",
    r"pathlib\.(.*\.)?Path(\(\))?\.(read_\w+|write_\w+|open|exists|is_file|is_dir|iterdir|glob|rglob|stat|unlink)",
    r"pathlib\.(.*\.)?Path(\(\))?\.(mkdir|touch|rename|cwd|home)",
    r"(requests|httpx2?|urllib\.request|urllib3|aiohttp|socket|subprocess|ftplib|smtplib|shutil|glob|tempfile)\..*",
    r"(platform|getpass)\..*",
    r"sqlite3\.(dbapi2\.)?connect",
    r"(pandas|polars)\.(\w+\.)*(read|scan)_\w+",
)
_RULES = {
    _CLOCK: _CLOCKS,
    _SLEEP: _SLEEPS,
    _LIMIT: _LIMITS,
    _CHANCE: _CHANCES,
    TASK: _TASKS,
    _THREAD: _THREADS,
    _IDENTITY: _IDENTITIES,
    _OUTSIDE: _OUTSIDES,
}
_COMPILED = [
    (rule, re.compile("|".join(f"(?:{pattern})" for pattern in patterns))) for rule, patterns in _RULES.items()
]
_READ_WITHOUT_CALL = re.compile(r"(os|posix)\.environ")

MUTATING = frozenset(
    {
        "append",
        "add",
        "update",
        "extend",
        "pop",
        "clear",
        "setdefault",
        "remove",
        "insert",
        "popitem",
        "discard",
        "sort",
    }
)
"""Methods that change a list, dict or set."""


def rule_for(dotted: str, *, has_arguments: bool = False, is_called: bool = True) -> Rule | None:
    """Return why something that is named from its module on may not be called, or read, in a workflow function."""
    if not dotted or (not is_called and not _READ_WITHOUT_CALL.fullmatch(dotted)):
        return None
    if has_arguments and _UNLESS_ARGUMENTS.fullmatch(dotted):
        return None
    if is_called and _READ_WITHOUT_CALL.match(dotted):
        return None  # the name itself is told already
    return next((rule for rule, pattern in _COMPILED if pattern.fullmatch(dotted)), None)


def identity_of(value: Any) -> str:
    """Return the name of a module, function, class or method, from its module on; empty for anything else."""
    if isinstance(value, ModuleType):
        return value.__name__
    name = getattr(value, "__qualname__", None)
    owner = getattr(value, "__self__", None)
    module = getattr(value, "__module__", None)
    if not isinstance(module, str) and owner is not None and not isinstance(owner, ModuleType):
        module = type(owner).__module__
    if isinstance(name, str) and isinstance(module, str):
        return f"{module}.{name}"
    return f"{type(value).__module__}.environ" if type(value).__name__ == "_Environ" else ""
