"""What is around a call that is made in another process: the working directory, the variables, the code of modules.

A process is started once for many calls. Where it was started is no matter: a call finds what its owner has when it
begins, and one that has imported a file which has changed since makes no more calls.
"""

from __future__ import annotations

import codecs
import functools
import importlib
import io
import os
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

from divebook.errors import OperationError, UnpicklableError

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from divebook.runtime.errors import Frame


_INSTALLED = tuple(
    {os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
"""Folders of code that nobody edits."""
_NEVER = (0, -1)
"""What no file is."""


class ProcessEnvironment(NamedTuple):
    """What a process has that calls see."""

    folder: str | None
    """None if it is gone."""
    variables: dict[str, str] | dict[bytes, bytes]
    """As the system has them."""
    imports: list[str]
    """Where modules are looked for."""

    @classmethod
    def of_now(cls) -> ProcessEnvironment:
        """Return that of this process; other threads may change it meanwhile."""
        folder = None
        with suppress(OSError):
            folder = os.getcwd()  # noqa: PTH109 - twice a call
        held = getattr(os.environ, "_data", os.environ)  # as one copy, and in a tenth of the time that decoding takes
        return cls(folder, dict(held), [*map(str, sys.path)])

    def enter(self) -> None:
        """Have this process be so; a folder that is gone by now is left out."""
        here = self.of_now()
        if self.folder is not None and here.folder != self.folder:
            with suppress(OSError):
                os.chdir(self.folder)
        if here.variables != self.variables:
            for name in here.variables.keys() - self.variables.keys():
                os.environ.pop(os.fsdecode(name), None)
            os.environ.update({os.fsdecode(name): os.fsdecode(value) for name, value in self.variables.items()})
        if here.imports != self.imports:
            sys.path[:] = self.imports


class KnownModules:
    """The files that this process has imported, but for what is installed, as they were then."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int]] = {}
        """Time and size of each file."""
        self._seen: set[str] = set()
        self._began = time.time_ns()
        self.look()

    def have_changed(self) -> bool:
        """Whether a file is another one than it was when it was imported; asked when a call begins."""
        self._began = time.time_ns()
        return any(_stamp(file, found) != found for file, found in self._known.items())

    def look(self) -> None:
        """Note what a call has imported."""
        for name in [name for name in list(sys.modules) if name not in self._seen]:
            self._seen.add(name)
            file = getattr(sys.modules.get(name), "__file__", None)
            if not isinstance(file, str) or name.partition(".")[0] == "divebook" or _is_installed(file):
                continue
            found = _stamp(file, _NEVER)
            if found != _NEVER:
                is_late = self._began <= found[0] <= time.time_ns()  # it may have been imported before it changed
                self._known[file] = _NEVER if is_late else found


def _is_installed(file: str) -> bool:
    real = os.path.realpath(file)
    return real.startswith(_INSTALLED) or f"{os.sep}site-packages{os.sep}" in real  # of another environment


def _stamp(file: str, otherwise: tuple[int, int]) -> tuple[int, int]:
    """Return time and size of a file, or something else if there is none, as of what is in an archive."""
    try:
        about = os.stat(file)  # noqa: PTH116 - many times a call
    except OSError:
        return otherwise
    return about.st_mtime_ns, about.st_size


# Calls between processes: a function with its arguments on the way there, what it came to on the way back.
#
# Code and values travel by cloudpickle, so that what is defined in a notebook's cell or in a script works as well; none
# of it is ever in a log. What comes back is recorded as if it had been made here: an error has its class, its fields,
# its cause and the place in the code that raised it (`tests/execution/test_processes.py`).


MOST_CAUSES = 20
"""How far back what an error was raised from is followed."""
_HERE = 'or let it run in a thread: executor="thread"'


class _Named(NamedTuple):
    """A function of a module, so many decorators deep: the name of a ``@step`` leads to what records its calls."""

    module: str
    path: str
    depth: int

    def found(self) -> Callable[..., Any]:
        """Return the function, in whatever process."""
        thing: Any = importlib.import_module(self.module)
        for part in self.path.split("."):
            thing = getattr(thing, part)
        for _ in range(self.depth):
            thing = thing.__wrapped__
        function: Callable[..., Any] = thing
        return function


def ship(label: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
    """Return a call as bytes.

    Raises
    ------
    UnpicklableError
        Its code or an argument cannot leave this process.
    """
    code = _named(function) or function
    try:
        return _dumped((code, args, dict(kwargs)))
    except Exception as error:
        raise _culprit(label, args, kwargs, error) from error


def make_shipped(call: bytes) -> bytes:
    """Make a call that came from another process; return what it came to, whatever that is."""
    import cloudpickle

    label = "a call"
    try:
        code, args, kwargs = cloudpickle.loads(call)
        function = code.found() if isinstance(code, _Named) else code
        label = getattr(function, "__name__", label)
        result = function(*args, **kwargs)
    except BaseException as error:  # noqa: BLE001 - it belongs to who called
        return _dumped((None, _Raised.of(error)))
    try:
        return _dumped((result, None))
    except Exception as error:  # noqa: BLE001 - whatever a class's own code raises when it is pickled
        told = f"the result of {label} ({type(result).__name__}) cannot come back from its process: {error}. Return"
        from divebook.runtime.clock import mark_lost

        unpicklable = UnpicklableError(f"{told} plain data, frames or arrays, {_HERE}")
        mark_lost(unpicklable, result)
        return _dumped((None, _Raised.of(unpicklable)))


def unship(outcome: bytes) -> Any:
    """Return what a call came to in another process, or raise what it raised."""
    import cloudpickle

    try:
        result, raised = cloudpickle.loads(outcome)
    except Exception as error:  # a class of the result may raise anything when it is made again
        from divebook.runtime.clock import mark_lost

        mark_lost(error, f"a pickled result of {len(outcome):,} bytes")
        raise
    if raised is not None:
        raise raised.again()
    return result


class _Raised(NamedTuple):
    """An error on its way between processes."""

    whole: bytes | None
    """The error, if it can be pickled and made again."""
    parts: bytes
    """Its class, arguments and fields, as far as they can."""
    text: str
    names: tuple[str, ...]
    frames: Sequence[Frame]
    cause: _Raised | None

    @classmethod
    def of(cls, error: BaseException, depth: int = 0) -> _Raised:
        """Return an error that was raised here, with what it was raised from."""
        from divebook.engine.retries import names_of  # what a worker needs of the engine, and only then
        from divebook.runtime.errors import clean_text, frames_of

        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        behind = None if cause is None or depth >= MOST_CAUSES else cls.of(cause, depth + 1)
        fields = {name: value for name, value in vars(error).items() if _travels(value)}
        args = error.args if _travels(error.args) else (str(error),)
        parts = _travels((type(error), args, fields)) or _travels((Exception, (clean_text(error),), {})) or b""
        return cls(_travels(error), parts, clean_text(error), names_of(error), frames_of(error), behind)

    def again(self) -> BaseException:
        """Return the error."""
        from divebook.runtime.errors import ELSEWHERE

        error = self._made()
        if self.frames:
            setattr(error, ELSEWHERE, self.frames)
        if self.cause is not None:
            error.__cause__ = self.cause.again()
        return error

    def _made(self) -> BaseException:
        import cloudpickle

        try:
            if self.whole is not None:
                whole: BaseException = cloudpickle.loads(self.whole)
                return whole
            kind, args, fields = cloudpickle.loads(self.parts)
            error: BaseException = kind.__new__(kind, *args)
            built_in: Any = next(base for base in kind.__mro__ if base.__module__ == "builtins")
            built_in.__init__(error, *args)  # no constructor of a person's class, which may take other arguments
            vars(error).update(fields)
        except Exception:  # noqa: BLE001 - a class may do anything when it is made again; its text and names remain
            return OperationError(self.text, error_names=self.names)
        return error


def _travels(value: Any) -> bytes | None:
    """Return a value as bytes, if it can be pickled and made again."""
    import cloudpickle

    try:
        dumped = _dumped(value)
        cloudpickle.loads(dumped)
    except Exception:  # noqa: BLE001 - whatever its class raises, it does not travel
        return None
    return dumped


def _dumped(value: Any) -> bytes:
    file = io.BytesIO()
    _pickler()(file).dump(value)
    return file.getvalue()


@functools.cache
def _pickler() -> Any:
    """Return cloudpickle's pickler, with two exceptions.

    - Code keeps the name of its file. Cloudpickle 3.1.3 and later leave it out, and an error from a process would not
      say where it was raised.
    - A pandas timestamp keeps its `fold`, which pandas leaves out (tests/execution/test_processes.py).
    """
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, CodeType):
                make, parts = self.dispatch_table[CodeType](value)
                return _code, (value.co_filename, make, parts)
            if _is_timestamp(value) and value.fold:
                make, parts = value.__reduce__()[:2]
                return _folded, (make, parts)
            return super().reducer_override(value)

    return Pickler


def _is_timestamp(value: Any) -> bool:
    """Whether it is a pandas timestamp, told without loading pandas."""
    kind = type(value)
    return kind.__name__ == "Timestamp" and kind.__module__.partition(".")[0] == "pandas"


def _folded(make: Callable[..., Any], parts: tuple[Any, ...]) -> Any:
    moment = make(*parts)
    return moment if moment.fold else moment.replace(fold=1)


def _code(filename: str, make: Callable[..., CodeType], parts: tuple[Any, ...]) -> CodeType:
    return make(*parts).replace(co_filename=filename)


def _named(function: Callable[..., Any]) -> _Named | None:
    """Return the name of a function that leads to it in every process, if it is below decorators there.

    Any other function travels as cloudpickle sees fit: by its name where that leads to it, else by value.
    """
    module, path = getattr(function, "__module__", None), getattr(function, "__qualname__", "<")
    if not isinstance(module, str) or not _is_importable(module) or "<" in path:
        return None
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    depth = 0
    while found is not None and found is not function:
        found, depth = getattr(found, "__wrapped__", None), depth + 1
    return _Named(module, path, depth) if depth and found is function else None


@functools.lru_cache(maxsize=1024)
def _is_importable(name: str) -> bool:
    """Return whether another process can import a module; one that it cannot travels by value from now on.

    Such are a notebook, a script, and a file that was named to the shell.
    """
    import cloudpickle

    module = sys.modules.get(name)
    if module is None or name == "__main__":
        return False
    top = name.partition(".")[0]
    if getattr(module, "__file__", None) is None or any(_finds(finder, top) for finder in sys.meta_path):
        return True
    cloudpickle.register_pickle_by_value(module)
    return False


def _finds(finder: Any, name: str) -> bool:
    find = getattr(finder, "find_spec", None)
    return find is not None and find(name, None) is not None


def _culprit(label: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], error: Exception) -> UnpicklableError:
    """Return an error that names what cannot be pickled."""
    arguments = {str(place): value for place, value in enumerate(args, 1)} | dict(kwargs)
    for name, value in arguments.items():
        if not _is_dumped(value):
            what = f"its argument {name!r} ({type(value).__name__}) cannot be pickled: {error}"
            way_on = "Give it what can be (plain data, a path, a URL) and open the rest inside the function"
            return UnpicklableError(f"{label} cannot run in another process: {what}. {way_on}, {_HERE}")
    what = f"its code, or something that it uses, cannot be pickled: {error}"
    way_on = "Make what it uses inside the function, or in a module that it imports"
    return UnpicklableError(f"{label} cannot run in another process: {what}. {way_on}, {_HERE}")


def _is_dumped(value: Any) -> bool:
    try:
        _dumped(value)
    except Exception:  # noqa: BLE001 - whatever its class raises
        return False
    return True


# What functions print in another process, on its way to who prints it: streams as programs know them.


class PrintedThere(io.RawIOBase):
    """The lowest layer of a stream, which hands on what is written to it as text.

    Parameters
    ----------
    name, number
        Of the stream in the module ``sys``, and of the descriptor that programs may be given in its place.
    hand_on
        Takes the name and a text.
    """

    def __init__(self, name: str, number: int, hand_on: Callable[[tuple[str, str]], object]) -> None:
        self._name, self._number, self._hand_on = name, number, hand_on
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # bytes may end in the middle of a character

    def writable(self) -> bool:
        """Say that it can be written to."""
        return True

    def fileno(self) -> int:
        """Return what programs are given."""
        return self._number

    def write(self, data: Buffer, /) -> int:
        """Hand on what characters are there."""
        raw = bytes(data)
        if text := self._decoder.decode(raw):
            self._hand_on((self._name, text))
        return len(raw)


def stream_of(printed: PrintedThere) -> io.TextIOWrapper:
    """Return a stream like ``sys.stdout``, by lines; what no encoding has (lone surrogates) is written in ASCII."""
    buffer = io.BufferedWriter(printed)
    return io.TextIOWrapper(buffer, "utf-8", "backslashreplace", newline="\n", line_buffering=True)
