"""Static analysis of users' functions: digests that detect changed code, and warnings about code that is not
deterministic.

**Digests** (`parts_of`) detect code that changed between a run and its replay. The analysis follows a function into the
functions and classes that its code names, within the same module. A notebook counts as one module. Values of plain
constants belong to the functions that read them. Comments and layout do not count. Code that cannot be read (C code,
methods called through instances, other modules) is ignored (`tests/definitions/test_code.py`).

**Determinism** (`doubts_of`): a workflow function runs again on replay and must make the same calls. The analysis finds
clocks, random numbers, files, iteration over sets and missing awaits, by the rules in `_RULES`.
"""

from __future__ import annotations

import ast
import dis
import functools
import hashlib
import inspect
import re
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from divebook.errors import DeterminismWarning, Problem
from divebook.text.syntax import parse_python

CONSTANTS = (int, float, complex, str, bytes, bool, type(None))
_READS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_GLOBALS"})
LABEL = "__divebook_label__"
"""Attribute of a function decorated with ``@step``: its kind and name, such as ``step parse``."""


class Part(NamedTuple):
    """A function or class in a user's code: the digest of its source, and the labels of the functions and classes that
    it uses.
    """

    digest: str
    uses: tuple[str, ...]
    """Labels of the functions and classes that the code names."""


def parts_of(roots: Mapping[str, Callable[..., Any]]) -> dict[str, Part]:
    """Return the digests of the functions `roots`, and of all functions and classes that they use directly or
    indirectly, as a dict by label.

    Labels are ``step parse``, ``function clean``, ``class Bird``. Only functions and classes of the same module count.
    """
    parts: dict[str, Part] = {}
    waiting: list[tuple[str, Any]] = list(roots.items())
    # Work list of labels and objects. A function that was visited is skipped, so that recursion ends.
    while waiting:
        label, thing = waiting.pop()
        if label not in parts:
            # Decorators are looked through. The variables are read once for both results: each start of a workflow
            # does this for all its functions.
            bare = inspect.unwrap(thing)
            variables = [variable for function in _functions(bare) for variable in _read(function)]
            used = _used(bare, variables)
            parts[label] = Part(_digest(bare, variables), tuple(sorted(used)))
            waiting += used.items()
    return parts


def code_of(roots: Mapping[str, Callable[..., Any]]) -> dict[str, str]:
    """Return digests in the form that a log records: one for each function in `roots` and for each function and class
    that it uses, by label.
    """
    return {label: part.digest for label, part in sorted(parts_of(roots).items())}


def reaching(parts: Mapping[str, Part], label: str) -> set[str]:
    """Return the labels of all functions and classes that may behave differently after a change of the function or
    class `label`: this label, and the labels of its direct and indirect users.
    """
    labels = {label}
    # Add the users of the labels so far, until there are no further users.
    while users := {name for name, part in parts.items() if name not in labels and labels.intersection(part.uses)}:
        labels |= users
    return labels


def source_of(function: Any) -> str:
    """Return the source of a function. The first result is cached, because the file may change after it was
    imported.
    """
    # Decorators are looked through: their wrappers have a code of their own.
    bare = inspect.unwrap(function)
    return _source(getattr(bare, "__code__", bare), bare)


_SOURCES: dict[Any, str] = {}


def _source(key: Any, bare: Any) -> str:
    if key not in _SOURCES:
        try:
            _SOURCES[key] = textwrap.dedent(inspect.getsource(bare))
        except (OSError, TypeError):
            # Code without a source, such as that of ``exec``, is identified by its bytecode.
            _SOURCES[key] = key.co_code.hex() if isinstance(key, CodeType) else repr(bare)
    return _SOURCES[key]


def _used(bare: Any, variables: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the functions and classes of the same module that the code of a function or class uses, as a dict by
    label. `variables` are the names and values of all variables that the code reads.
    """
    values = {_label(value): value for _, value in variables}
    # Objects of other modules are not followed: libraries change by their version.
    return {label: value for label, value in values.items() if label and _is_of(inspect.unwrap(value), bare.__module__)}


def _label(value: Any) -> str:
    label: str | None = getattr(value, LABEL, None) if callable(value) else None
    if label is not None:
        return label
    if isinstance(value, FunctionType):
        return f"function {value.__qualname__}"
    return f"class {value.__qualname__}" if isinstance(value, type) else ""


def _is_of(value: Any, module: str) -> bool:
    return getattr(value, "__module__", None) == module


def _functions(target: Any) -> list[FunctionType]:
    """Return the functions whose code runs when a function or class is used: the function itself, or all functions of
    the class and of its nested classes.
    """
    if isinstance(target, type):
        accessors = [function for _, function in _accessors(target)]
        return [*_methods(target), *accessors, *(part for nested in _nested(target) for part in _functions(nested))]
    return [target] if isinstance(target, FunctionType) else []


def _methods(cls: type) -> list[FunctionType]:
    """Return the methods and static methods of a class. Both are callable members."""
    members = (inspect.unwrap(member) for member in vars(cls).values() if callable(member))
    return [member for member in members if isinstance(member, FunctionType)]


def _accessors(cls: type) -> list[tuple[str, FunctionType]]:
    """Return name and function of each member of a class that is a descriptor and not callable: properties with their
    setters and deleters, cached properties, class methods, partial and single-dispatch methods.
    """
    functions = [
        (name, inspect.unwrap(part)) for name, member in vars(cls).items() for part in _parts_of_descriptor(member)
    ]
    # Libraries add members of their own, such as ``_make`` of a named tuple. They change by their version.
    return [(name, part) for name, part in functions if isinstance(part, FunctionType) and _is_of(part, cls.__module__)]


def _parts_of_descriptor(member: Any) -> list[Any]:
    match member:
        case property():
            return [part for part in (member.fget, member.fset, member.fdel) if part is not None]
        case classmethod():
            # ``@classmethod`` above ``@property`` is allowed until Python 3.12.
            return _parts_of_descriptor(member.__func__) or [member.__func__]
        case functools.cached_property() | functools.partialmethod():
            return [member.func]
        case functools.singledispatchmethod():
            return list(member.dispatcher.registry.values())
    return []


def _nested(cls: type) -> list[type]:
    """Return the classes that are defined in the body of a class. A class that is only assigned there has an entry of
    its own if code reads it.
    """
    return [
        member
        for name, member in vars(cls).items()
        if isinstance(member, type)
        and _is_of(member, cls.__module__)
        and member.__qualname__ == f"{cls.__qualname__}.{name}"
    ]


def _read(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each variable that a function reads but does not define itself: global variables, and
    variables of enclosing functions.
    """
    # {name of a variable of an enclosing function: its cell}
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
    for name in _names(function.__code__):
        if name in cells:
            try:
                yield name, cells[name].cell_contents
            except ValueError:  # not bound yet
                continue
        elif name in function.__globals__:
            yield name, function.__globals__[name]


@functools.lru_cache(maxsize=4096)
def _names(code: CodeType) -> tuple[str, ...]:
    """Return the names of the variables that compiled code reads from outside its own scope. The code of functions
    nested inside it is included.
    """
    names = {step.argval for step in dis.get_instructions(code) if step.opname in _READS}
    # Code of nested functions, lambdas and comprehensions is a constant of the outer code.
    for part in code.co_consts:
        if isinstance(part, CodeType):
            names.update(_names(part))
    return tuple(sorted(names))


def _digest(bare: Any, variables: Iterable[tuple[str, Any]]) -> str:
    """Return a hash of the source of a function or class without comments and layout, and of the constants among the
    variables that it reads.
    """
    constants = {}
    for name, value in variables:
        # A list or a dict may change while the program runs, and does not count as a constant.
        if isinstance(value, CONSTANTS) or (isinstance(value, tuple | frozenset) and _is_plain(value)):
            constants[name] = _constant_text(value)
    source = _class_text(bare) if isinstance(bare, type) else _normal(source_of(bare))
    return _hashed(source, str(sorted(constants.items())))


@functools.lru_cache(maxsize=4096)
def _hashed(source: str, constants: str) -> str:
    # 16 hex digits are 64 bits, enough to tell the versions of one function apart. \x1f separates the two parts, and
    # occurs in neither.
    return hashlib.sha256(f"{source}\x1f{constants}".encode()).hexdigest()[:16]


def _class_text(cls: type) -> str:
    """Return the text of a class from which its digest is computed: its bases, methods, annotations and constants, and
    its properties, class methods and nested classes.

    Python does not find the source of a class defined in a notebook, so that the methods are read one by one.
    """
    # Names such as ``__module__`` and ``__doc__`` do not affect behaviour.
    attributes = {name: value for name, value in vars(cls).items() if not name.startswith("__")}
    members = {name: value for name, value in attributes.items() if isinstance(value, CONSTANTS)}
    methods = {function.__qualname__: _normal(source_of(function)) for function in _methods(cls)}
    # Bases by name: their own code has entries of its own if it is in the same module.
    bases = [base.__qualname__ for base in cls.__mro__[1:]]
    annotations = {name: str(kind) for name, kind in vars(cls).get("__annotations__", {}).items()}
    text = f"{bases}{sorted(methods.items())}{sorted(annotations.items())}{_members_text(members)}"
    # Getter and setter of a property have the same name, so that these members are a list of pairs. They are appended
    # only if the class has any, because logs of earlier versions hold digests without them.
    additions = [(name, _normal(source_of(function))) for name, function in _accessors(cls)]
    additions += [(nested.__qualname__, _class_text(nested)) for nested in _nested(cls)]
    return f"{text}{sorted(additions)}" if additions else text


def _members_text(members: dict[str, Any]) -> str:
    """Return the constants of a class as text for its digest: pairs of name and value, sorted by name, in the format of
    ``repr``.
    """
    return f"[{', '.join(f'({name!r}, {_constant_text(members[name])})' for name in sorted(members))}]"


def _constant_text(value: Any) -> str:
    """Return the ``repr`` of a constant. Integers too large for ``repr`` are written in hexadecimal.

    Python refuses to write an integer of more than 4,300 digits in decimal, because that takes quadratic time.
    """
    try:
        return repr(value)
    except ValueError:
        if isinstance(value, tuple):
            return f"({', '.join(map(_constant_text, value))})"
        if isinstance(value, int):
            return hex(value)
        raise


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return isinstance(value, CONSTANTS)


@functools.lru_cache(maxsize=4096)
def _normal(source: str) -> str:
    """Return the syntax tree of a source as a string. It is the same for sources that differ only in comments and
    layout.
    """
    try:
        return ast.dump(parse_python(source))
    except SyntaxError:  # a lambda in the middle of a line
        return source


# --- rules: functions of Python and libraries that are not deterministic, with replacements ---------------------------


class Rule(NamedTuple):
    """Rule that forbids a function or value inside a workflow function: the reason, and advice on a replacement."""

    why: str
    """Rest of a sentence whose subject is the name of the function."""
    fix: str


_STEP = "move it into a @step function, and await that"
_CLOCK = Rule("returns a different value each time the function runs", "write `await ctx.now()`")
_SLEEP = Rule("is not recorded, so the function waits again each time it runs", "write `await ctx.sleep(seconds)`")
_LIMIT = Rule(
    "measures time that is not recorded, and therefore raises an error in a workflow function",
    "write @step(timeout=seconds) for a call, `ctx.wait_signal(name, within=seconds)` for a wait",
)
_CHANCE = Rule("returns a different value each time the function runs", f"write `await ctx.random()`, or {_STEP}")
_OUTSIDE = Rule("reads or changes external state each time the function runs", _STEP)
TASK = Rule("starts calls in an order that depends on timing", "write `await ctx.gather(...)`")
_THREAD = Rule("runs code whose results are not recorded", _STEP)
_IDENTITY = Rule("returns a different value in each process", "compare values, or use hashlib")

_UNLESS_ARGUMENTS = re.compile(
    r"time\.(localtime|gmtime|ctime|strftime)|random\.Random|numpy\.random\.(default_rng|RandomState|Generator)"
)
"""Functions that are deterministic if they get arguments, such as a seed."""
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
    """Return the rule that forbids the use of a function or value inside a workflow function; None if its use is
    allowed.

    `dotted` is the name of the function or value with its module, such as ``time.time``.
    """
    # Only ``os.environ`` is reported without a call: a function that is merely named does nothing.
    if not dotted or (not is_called and not _READ_WITHOUT_CALL.fullmatch(dotted)):
        return None
    if has_arguments and _UNLESS_ARGUMENTS.fullmatch(dotted):
        return None
    if is_called and _READ_WITHOUT_CALL.match(dotted):
        return None  # the read of the name itself is reported
    return next((rule for rule, pattern in _COMPILED if pattern.fullmatch(dotted)), None)


def identity_of(value: Any) -> str:
    """Return the dotted name of a module, function, class or method, such as ``time.time``; empty for other values."""
    if isinstance(value, ModuleType):
        return value.__name__
    name = getattr(value, "__qualname__", None)
    owner = getattr(value, "__self__", None)
    module = getattr(value, "__module__", None)
    # A method of an object in C has no module. That of the object's class stands for it.
    if not isinstance(module, str) and owner is not None and not isinstance(owner, ModuleType):
        module = type(owner).__module__
    if isinstance(name, str) and isinstance(module, str):
        return f"{module}.{name}"
    # ``os.environ`` is an instance. Its class has no other name.
    return f"{type(value).__module__}.environ" if type(value).__name__ == "_Environ" else ""


# --- determinism of workflow functions --------------------------------------------------------------------------------
#
# On resume and replay a workflow function runs from its beginning, and its recorded calls are answered from the log.
# The code between these calls must therefore give the same result: no clock, no random numbers, nothing from outside,
# no order of sets, no changed globals, and every await a recorded one. The analysis walks the syntax tree of the
# function and of functions of the same module that it names. It skips step functions and actions, whose calls are
# recorded, and lines that end in ``# dive: ignore``. In ``x = time.time()`` the name ``time`` is resolved to the
# module, the dotted name ``time.time`` matches a rule, and the line is reported when the function is defined.
#
# Scripts and templates need no such analysis: in their sandbox the clock, random numbers and the order of sets are
# recorded or fixed (`tests/definitions/test_determinism.py`).


SILENT = "# dive: ignore"
_AWAITED = frozenset(
    {"now", "random", "sleep", "interrupt", "ask", "confirm", "wait_signal", "gather", "run", "version"}
)
"""Methods of a workflow's context that must be awaited."""
_ORDERING = frozenset({"list", "tuple", "enumerate", "iter", "next", "map", "filter", "zip", "reversed"})
"""Functions whose result depends on the order of their argument."""
_UNAWAITED = Rule("is not awaited, so the call never runs", "write `await` before it")
_UNRECORDED = Rule(
    "is awaited but not recorded, so it is called again each time the function runs",
    "call it in an async @step function, and await that",
)
_SET_ORDER = Rule("iterates over a set, whose order differs between processes", "write `sorted(...)` around it")
_GLOBAL = Rule(
    "changes state outside the function, so the function starts with the changed state when it runs again",
    "keep it in a local variable of the function",
)


class Doubt(NamedTuple):
    """Warning about an expression that may give a different result on replay, with the function that contains it."""

    function: Callable[..., Any]
    problem: Problem


def warn_of(function: Callable[..., Any]) -> None:
    """Warn (`DeterminismWarning`) about each line of a workflow function that may give a different result on replay.

    Functions of the same module that the workflow function uses are checked, too.
    """
    for doubtful_function, problem in doubts_of(function):
        place, line = shown_place(doubtful_function, problem.line)
        warnings.warn_explicit(f"{problem.message}; {problem.hint}", DeterminismWarning, place, line)


def shown_place(function: Callable[..., Any], line: int) -> tuple[str, int]:
    """Return the file and line of a function's code as people see them. For code in a notebook: the label of its cell,
    and the line in the cell.
    """
    file = inspect.unwrap(function).__code__.co_filename
    if "IPython" not in sys.modules:  # this process is not a kernel, so the function is in no cell
        return file, line
    from divebook.notebook.shell_state import cell_of

    cell = cell_of(file)
    return (file, line) if cell is None else (cell.label, line + cell.above)


def doubts_of(function: Callable[..., Any]) -> Iterator[Doubt]:
    """Yield a `Doubt` for each expression of a workflow function that may give a different result on replay.

    Functions of the same module that the function uses are checked, too. Line numbers count from the start of the file.
    """
    # The first parameter is the context, whatever it is called.
    context = next(iter(inspect.signature(function).parameters), "ctx")
    visited: set[Any] = set()
    waiting: list[Callable[..., Any]] = [inspect.unwrap(function)]
    while waiting:
        # The function itself first, then those that it uses, in the order in which they are used.
        current = waiting.pop(0)
        if current in visited or not isinstance(current, FunctionType):
            continue
        visited.add(current)
        source = _source_text(current)
        if source is None:
            continue
        # A helper function gets the context under a usual name.
        visitor = _DeterminismVisitor(current, frozenset({context, "ctx", "context"}))
        visitor.visit(source.tree)
        # Missing awaits show only when all uses of a name are known.
        visitor.end(source.tree)
        doubts = sorted(visitor.doubts, key=lambda doubt: (doubt[0].lineno, doubt[0].col_offset))
        for node, rule, name in doubts:
            if not source.is_silent(node):
                yield Doubt(current, source.problem(node, rule, name))
        waiting += visitor.used


class _Text(NamedTuple):
    """Source lines and syntax tree of one function."""

    tree: ast.FunctionDef | ast.AsyncFunctionDef
    lines: list[str]
    first: int

    def is_silent(self, node: ast.expr | ast.stmt) -> bool:
        return any(SILENT in line for line in self.lines[node.lineno - 1 : node.end_lineno])

    def problem(self, node: ast.expr | ast.stmt, rule: Rule, name: str) -> Problem:
        line = self.first + node.lineno - 1
        return Problem(f"{name} {rule.why}", line, node.col_offset + 1, severity="warning", hint=rule.fix)


def _source_text(function: FunctionType) -> _Text | None:
    try:
        lines, first = inspect.getsourcelines(function)
        tree = parse_python(textwrap.dedent("".join(lines))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):  # no source, or a lambda in the middle of a line
        return None
    if not isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    # Decorators run when the function is defined, not when it runs again.
    tree.decorator_list = []
    return _Text(tree, lines, max(first, 1))


class _DeterminismVisitor(ast.NodeVisitor):
    """AST visitor that collects the expressions of one function, and of functions nested in it, that are not
    deterministic.

    Parameters
    ----------
    contexts
        Possible names of the workflow's context.
    """

    def __init__(self, function: FunctionType, contexts: frozenset[str]) -> None:
        self._function = function
        self._contexts = contexts
        self.doubts: list[tuple[ast.expr | ast.stmt, Rule, str]] = []
        self.used: list[Callable[..., Any]] = []
        """Functions of the same module that the function names."""
        self._local_names = _bound_in(function)
        self._sets: set[str] = set()
        """Names of variables that hold a set."""
        self._foreign: set[str] = set()
        """Names of objects of other libraries, whose awaited methods are not recorded."""
        self._unawaited: dict[str, tuple[ast.expr, str]] = {}
        """Calls that were assigned to a name without an await, by this name."""
        self._reassigned: set[str] = set()
        """Names to which other values were assigned too."""
        self._loaded: set[str] = set()
        """Names that are read."""

    def end(self, tree: ast.AST) -> None:
        """Finish the analysis of a function: add a warning for each recorded call whose ``await`` is missing. Such a
        call is used like a value, or is assigned to a name that is never awaited.
        """
        # Nodes of a syntax tree do not know their parents.
        parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        uses: dict[str, list[bool]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and self._is_recorded(node.func) and self._is_value(node, parents):
                self.doubts.append((node, _UNAWAITED, f"{ast.unparse(node.func)}()"))
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in self._unawaited:
                uses.setdefault(node.id, []).append(self._is_value(node, parents))
        for name, (node, call_text) in self._unawaited.items():
            # A name that also holds other values may be used as a value correctly.
            is_value = name not in self._reassigned and all(uses.get(name, []))
            # A call whose name is never read is lost. One whose name is only used as a value lacks the await.
            if name not in self._loaded or is_value:
                self.doubts.append((node, _UNAWAITED, call_text))

    def _is_value(self, node: ast.expr, parents: Mapping[ast.AST, ast.AST]) -> bool:
        """Return True if the result of an expression is used directly, as in ``call() + 1``. A recorded call in this
        position lacks an ``await``.

        An argument of another function, or an item of a list, may be awaited later, for example by `ctx.gather`.
        """
        parent = parents.get(node)
        match parent:
            case ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.FormattedValue() | ast.Subscript():
                return True
            case ast.Attribute(attr=name):
                # ``close``, ``send`` and ``throw`` are methods of the coroutine itself.
                return name not in {"close", "send", "throw"}
            case ast.If(test=used) | ast.While(test=used) | ast.Assert(test=used) | ast.For(iter=used):
                return used is node
            case ast.comprehension(iter=used):
                return used is node
            # ``a or b`` has the value of one of its parts, so that its own use decides.
            case ast.BoolOp() | ast.IfExp():
                return self._is_value(parent, parents)
            case ast.Return():
                return _is_in_async(parent, parents)
            case ast.Call(func=ast.Attribute(attr="gather")):
                return False
            case ast.Call(func=callee):
                # An argument of another recorded call must be a value, not a coroutine.
                return callee is not node and self._is_recorded(callee)
        return False

    # --- names -----------------------------------------------------------------------------------------------------

    def _value(self, name: str) -> Any:
        """Return the object to which a name refers in the analysed function: a global variable, a variable of an
        enclosing function, or a builtin. Return None for a local variable or an unknown name.
        """
        if name in self._local_names:
            return None
        # First variables of enclosing functions, then globals, then builtins, as Python looks them up.
        code = self._function.__code__
        if name in code.co_freevars:
            cell = (self._function.__closure__ or ())[code.co_freevars.index(name)]
            try:
                return cell.cell_contents
            except ValueError:  # not bound yet
                return None
        # ``__builtins__`` is a module in ``__main__``, and a dict in other modules.
        builtins = self._function.__globals__.get("__builtins__", {})
        builtin_names = builtins if isinstance(builtins, dict) else vars(builtins)
        return self._function.__globals__.get(name, builtin_names.get(name))

    def _dotted(self, node: ast.expr) -> str:
        """Return the dotted name of the object to which an expression refers, such as ``time.time``; empty if the
        object is unknown.
        """
        match node:
            case ast.Name():
                return identity_of(self._value(node.id))
            case ast.Attribute():
                root = self._dotted(node.value)
                return f"{root}.{node.attr}" if root else ""
            # ``Path("a").exists`` -> "pathlib.Path().exists". The rules have the parentheses.
            case ast.Call():
                root = self._dotted(node.func)
                return f"{root}()" if root else ""
        return ""

    def _is_recorded(self, node: ast.expr) -> bool:
        """Return True if an expression refers to a function whose calls the log records: a step function, or an async
        method of the workflow context.
        """
        match node:
            case ast.Name():
                return str(getattr(self._value(node.id), LABEL, "")).startswith(("step ", "workflow "))
            case ast.Attribute(ast.Name(id=name), attr):
                return name in self._contexts and attr in _AWAITED
            case ast.Attribute(ast.Call(ast.Attribute(ast.Name(id=name), "agent")), "run"):
                return name in self._contexts
        return False

    # --- visited nodes -----------------------------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._loaded.add(node.id)
            # Step functions are recorded, and need no check. Other functions of the module are checked like this one.
            value = inspect.unwrap(self._value(node.id)) if callable(self._value(node.id)) else None
            is_step = getattr(self._value(node.id), LABEL, None) is not None
            if isinstance(value, FunctionType) and not is_step and value.__module__ == self._function.__module__:
                self.used.append(value)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        rule = rule_for(self._dotted(node), is_called=False)
        if rule is not None:
            self.doubts.append((node, rule, ast.unparse(node)))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        rule = rule_for(self._dotted(node.func), has_arguments=bool(node.args or node.keywords))
        # ``create_task`` of recorded calls is allowed.
        if rule is not None and not (rule is TASK and self._are_in_order(node.args)):
            self.doubts.append((node, rule, f"{ast.unparse(node.func)}()"))
        self._look_at_order(node)
        # A method that changes a list or dict of the module outlasts the run.
        if isinstance(node.func, ast.Attribute) and node.func.attr in MUTATING:
            self._look_at_change(node, node.func.value)
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call) and self._is_recorded(node.value.func):
            self.doubts.append((node.value, _UNAWAITED, f"{ast.unparse(node.value.func)}()"))
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._record_values([target.id for target in node.targets if isinstance(target, ast.Name)], node.value)
        for target in node.targets:
            if isinstance(target, ast.Subscript | ast.Attribute):
                self._look_at_change(target, target.value)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Subscript | ast.Attribute):
            self._look_at_change(node.target, node.target.value)
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        self.doubts.append((node, _GLOBAL, f"global {', '.join(node.names)}"))

    def visit_AsyncWith(self, node: ast.AsyncWith) -> None:
        for item in node.items:
            if isinstance(item.optional_vars, ast.Name):
                self._record_values([item.optional_vars.id], item.context_expr)
        self.generic_visit(node)

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            if isinstance(item.optional_vars, ast.Name):
                self._record_values([item.optional_vars.id], item.context_expr)
        self.generic_visit(node)

    def visit_Await(self, node: ast.Await) -> None:
        if isinstance(node.value, ast.Call) and self._is_unrecorded(node.value.func):
            self.doubts.append((node, _UNRECORDED, f"{ast.unparse(node.value.func)}()"))
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        self._look_at_iteration(node.iter)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self._look_at_iteration(node.iter)
        self.generic_visit(node)

    def visit_SetComp(self, node: ast.SetComp) -> None:
        for generator in node.generators:
            if self._is_set(generator.iter):  # the result is a set again, so that the order has no effect
                self.visit(generator.iter)
            else:
                self.visit(generator)
        self.visit(node.elt)

    def visit_Starred(self, node: ast.Starred) -> None:
        self._look_at_iteration(node.value)
        self.generic_visit(node)

    # --- classification ----------------------------------------------------------------------------------------------

    def _record_values(self, names: Iterable[str], value: ast.expr) -> None:
        """Remember the names to which an assignment binds a set, an object of a library, or a recorded call without
        ``await``. Later uses of these names may cause warnings.

        A later assignment replaces the earlier one for sets. For unawaited calls the last one counts, and `_reassigned`
        has the names that also hold other values.
        """
        for name in names:
            # The name may have held a set before.
            self._sets.discard(name)
            if not (isinstance(value, ast.Call) and self._is_recorded(value.func)):
                self._reassigned.add(name)
            if self._is_set(value):
                self._sets.add(name)
            if isinstance(value, ast.Call):
                if self._is_foreign(self._dotted(value.func)):
                    self._foreign.add(name)
                if self._is_recorded(value.func):
                    self._unawaited[name] = value, f"{ast.unparse(value.func)}()"

    def _is_foreign(self, dotted: str) -> bool:
        """Return True if a dotted name such as ``time.time`` belongs to the standard library or an installed package.
        Calls of such functions are not recorded.
        """
        module = dotted.partition(".")[0]
        if module in sys.stdlib_module_names:
            return module != "builtins"
        # "site-packages" or "dist-packages": an installed library.
        return "-packages" in str(getattr(sys.modules.get(module), "__file__", "")) and module != "divebook"

    def _is_unrecorded(self, callee: ast.expr) -> bool:
        if self._is_recorded(callee) or rule_for(self._dotted(callee)) is not None:
            # Rules name such a call with better advice.
            return False
        if isinstance(callee, ast.Name):
            value = self._value(callee.id)
            return inspect.iscoroutinefunction(value) and self._is_foreign(identity_of(value))
        if isinstance(callee, ast.Attribute):
            root = callee.value
            if isinstance(root, ast.Name) and root.id in self._foreign:
                return True
            return self._is_foreign(self._dotted(callee))
        return False

    def _is_set(self, node: ast.expr) -> bool:
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.Name():
                return node.id in self._sets or isinstance(self._value(node.id), set | frozenset)
            case ast.Call(ast.Name(id="set" | "frozenset")):
                return True
            case ast.BinOp(left, ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor(), right):
                return self._is_set(left) or self._is_set(right)
        return False

    def _are_in_order(self, calls: Iterable[ast.expr]) -> bool:
        """Return True if ``create_task`` may be called with these arguments: all of them are recorded calls. The key of
        a recorded call is assigned before its task starts, so that the order in which tasks run does not matter.
        """
        return all(
            isinstance(call, ast.Starred) or (isinstance(call, ast.Call) and self._is_recorded(call.func))
            for call in calls
        )

    def _look_at_iteration(self, node: ast.expr) -> None:
        if self._is_set(node):
            self.doubts.append((node, _SET_ORDER, ast.unparse(node)))

    def _look_at_order(self, node: ast.Call) -> None:
        match node.func:
            case ast.Name(id=name) if name in _ORDERING:
                ordered = node.args
            case ast.Attribute(ast.Constant(), "join"):
                ordered = node.args
            # ``pop`` without arguments takes the last item of a list, and any item of a set.
            case ast.Attribute(value, "pop") if not node.args:
                ordered = [value]
            case _:
                return
        for each in ordered:
            self._look_at_iteration(each)

    def _look_at_change(self, node: ast.expr, of: ast.expr) -> None:
        """Record a warning about the expression `node` if it changes a list, dict or set that exists outside of the
        workflow function, because such a change outlives the run. `of` is the syntax node of the changed object.
        """
        # ``CACHE["a"].b = 1`` changes the object ``CACHE``.
        while isinstance(of, ast.Subscript | ast.Attribute):
            of = of.value
        if isinstance(of, ast.Name) and isinstance(self._value(of.id), list | dict | set):
            self.doubts.append((node, _GLOBAL, ast.unparse(node)))


def _is_in_async(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> bool:
    """Return True if the innermost function that contains a syntax node is async.

    Other functions may return a coroutine that their caller awaits.
    """
    while node in parents and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        node = parents[node]
    return isinstance(node, ast.AsyncFunctionDef)


def _bound_in(function: FunctionType) -> set[str]:
    """Return the names of all local variables of a function, including the local variables of functions nested inside
    it.
    """
    names: set[str] = set()
    waiting = [function.__code__]
    while waiting:
        code = waiting.pop()
        # Variables of the code itself, and those that nested functions use.
        names |= {*code.co_varnames, *code.co_cellvars}
        waiting += [part for part in code.co_consts if hasattr(part, "co_varnames")]
    return names
