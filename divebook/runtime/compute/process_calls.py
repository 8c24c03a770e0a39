"""Calls of user code in another process: pickling of calls and results, and the environment of the process.

A worker process starts once for many calls. Each call runs with the working directory, variables and import path that
its owner has at that time.
"""

from __future__ import annotations

import functools
import importlib
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

from divebook.errors import OperationError, UnpicklableError

if TYPE_CHECKING:
    from divebook.runtime.errors import Frame


class ProcessEnvironment(NamedTuple):
    """Working directory, environment variables and import path of a process. A call in another process gets those of
    the process that requested it.
    """

    folder: str | None
    """Working directory; None if it was deleted."""
    variables: dict[str, str] | dict[bytes, bytes]
    """Environment variables, in the form of the operating system."""
    imports: list[str]
    """Import path."""

    @classmethod
    def of_now(cls) -> ProcessEnvironment:
        """Return the present environment of this process. Other threads may change it meanwhile."""
        folder = None
        with suppress(OSError):
            folder = os.getcwd()  # noqa: PTH109 - runs twice per call
        variables = getattr(os.environ, "_data", os.environ)  # one copy takes a tenth of the time of decoding
        return cls(folder, dict(variables), [*map(str, sys.path)])

    def enter(self) -> None:
        """Apply this environment to the present process. A working directory that was deleted is ignored.

        Only differences are applied, because most calls find an equal environment.
        """
        present = self.of_now()
        if self.folder is not None and present.folder != self.folder:
            with suppress(OSError):
                os.chdir(self.folder)
        if present.variables != self.variables:
            for name in present.variables.keys() - self.variables.keys():
                os.environ.pop(os.fsdecode(name), None)
            os.environ.update({os.fsdecode(name): os.fsdecode(value) for name, value in self.variables.items()})
        if present.imports != self.imports:
            sys.path[:] = self.imports


# --- pickled calls ---------------------------------------------------------------------------------------------------
#
# A function and its arguments travel to the process, the result or error travels back.
#
# Code and values are pickled with cloudpickle, so definitions in a notebook cell or a script work as well. None of it
# is recorded in a log. The outcome is recorded as if the call had run here: an error has its class, fields, cause and
# the place in the code that raised it (`tests/runtime/test_processes.py`).


MOST_CAUSES = 20
"""Maximum number of causes of an error that are kept."""
_HERE = 'or let it run in a thread: executor="thread"'


class _FunctionRef(NamedTuple):
    """Reference to a function inside decorators, by module and qualified name. The name alone leads to the wrapper that
    the decorators have made, such as the recording wrapper of a ``@step``.
    """

    module: str
    path: str
    depth: int

    def load(self) -> Callable[..., Any]:
        """Import the module of the reference, and return the function inside its wrappers."""
        target: Any = importlib.import_module(self.module)
        for part in self.path.split("."):
            target = getattr(target, part)
        for _ in range(self.depth):
            target = target.__wrapped__
        function: Callable[..., Any] = target
        return function


def pickle_call(label: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
    """Serialize a call (function and arguments) with cloudpickle, for another process.

    Raises
    ------
    UnpicklableError
        The code of the function or an argument cannot be pickled.
    """
    code = _function_ref(function) or function
    try:
        return _pickle((code, args, dict(kwargs)))
    except Exception as error:
        raise _unpicklable_error(label, args, kwargs, error) from error


def make_pickled_call(call: bytes) -> bytes:
    """Make a call that another process has pickled with `pickle_call`. Return its pickled result or error, for
    `unpickle_result`.
    """
    import cloudpickle

    label = "a call"
    try:
        code, args, kwargs = cloudpickle.loads(call)
        function = code.load() if isinstance(code, _FunctionRef) else code
        label = getattr(function, "__name__", label)
        result = function(*args, **kwargs)
    # Nothing may leave this function: an exception here would end the worker, and with it the certainty about the
    # outcome.
    except BaseException as error:  # noqa: BLE001 - the exception belongs to the caller
        return _pickle((None, _PickledError.of(error)))
    try:
        return _pickle((result, None))
    except Exception as error:  # noqa: BLE001 - pickling of user classes may raise anything
        message = (
            f"the result of {label} ({type(result).__name__}) cannot be sent back from its process: {error}. Return"
        )
        # The call has returned, so it took effect. A description of the lost result travels with the error.
        from divebook.runtime.clock import mark_lost

        unpicklable = UnpicklableError(f"{message} plain data, frames or arrays, {_HERE}")
        mark_lost(unpicklable, result)
        return _pickle((None, _PickledError.of(unpicklable)))


def unpickle_result(outcome: bytes) -> Any:
    """Return the result of a call from its pickled outcome, which `make_pickled_call` has returned in another process.
    If the call raised an error, raise this error.
    """
    import cloudpickle

    try:
        result, raised = cloudpickle.loads(outcome)
    except Exception as error:  # unpickling of user classes may raise anything
        from divebook.runtime.clock import mark_lost

        mark_lost(error, f"a pickled result of {len(outcome):,} bytes")
        raise
    if raised is not None:
        raise raised.error()
    return result


class _PickledError(NamedTuple):
    """Form in which an error is sent to another process: pickled as a whole if possible, and in parts."""

    whole: bytes | None
    """The pickled error, if it can be pickled and unpickled."""
    parts: bytes
    """The pickled class, arguments and fields, as far as possible."""
    text: str
    names: tuple[str, ...]
    frames: Sequence[Frame]
    cause: _PickledError | None

    @classmethod
    def of(cls, error: BaseException, depth: int = 0) -> _PickledError:
        """Create the pickled form of an error that was raised in this process, with its causes."""
        from divebook.engine.retries import names_of  # a worker loads these engine modules only if needed
        from divebook.runtime.errors import clean_text, frames_of

        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        pickled_cause = None if cause is None or depth >= MOST_CAUSES else cls.of(cause, depth + 1)
        # Each part that can be pickled is kept, so that one bad attribute does not cost the whole error.
        fields = {name: value for name, value in vars(error).items() if _try_pickle(value)}
        args = error.args if _try_pickle(error.args) else (str(error),)
        parts = _try_pickle((type(error), args, fields)) or _try_pickle((Exception, (clean_text(error),), {})) or b""
        return cls(_try_pickle(error), parts, clean_text(error), names_of(error), frames_of(error), pickled_cause)

    def error(self) -> BaseException:
        """Create the error again in this process, with its stack frames and causes. If that is impossible, create an
        `OperationError` with its text.
        """
        from divebook.runtime.errors import ELSEWHERE

        error = self._new_error()
        if self.frames:
            setattr(error, ELSEWHERE, self.frames)
        if self.cause is not None:
            error.__cause__ = self.cause.error()
        return error

    def _new_error(self) -> BaseException:
        import cloudpickle

        try:
            if self.whole is not None:
                whole: BaseException = cloudpickle.loads(self.whole)
                return whole
            kind, args, fields = cloudpickle.loads(self.parts)
            error: BaseException = kind.__new__(kind, *args)
            built_in: Any = next(base for base in kind.__mro__ if base.__module__ == "builtins")
            built_in.__init__(error, *args)  # avoids constructors of user classes, which may take other arguments
            vars(error).update(fields)
        except Exception:  # noqa: BLE001 - unpickling may raise anything; text and names remain
            return OperationError(self.text, error_names=self.names)
        return error


def _try_pickle(value: Any) -> bytes | None:
    """Return the bytes of a pickled value. Return None if the value cannot be pickled and unpickled again."""
    import cloudpickle

    try:
        dumped = _pickle(value)
        cloudpickle.loads(dumped)
    except Exception:  # noqa: BLE001 - whatever its class raises, it cannot be pickled
        return None
    return dumped


def _pickle(value: Any) -> bytes:
    file = io.BytesIO()
    _pickler()(file).dump(value)
    return file.getvalue()


@functools.cache
def _pickler() -> Any:
    """Return cloudpickle's pickler class with changed treatment of code objects and pandas timestamps.

    - Code objects keep their file name. Cloudpickle 3.1.3 and later remove it, and an error from a process would not
      have its place.
    - A pandas timestamp keeps its `fold`, which pandas leaves out (tests/runtime/test_processes.py).
    """
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, CodeType):
                make, parts = self.dispatch_table[CodeType](value)
                return _restored_code, (value.co_filename, make, parts)
            if _is_timestamp(value) and value.fold:
                make, parts = value.__reduce__()[:2]
                return _restored_timestamp, (make, parts)
            return super().reducer_override(value)

    return Pickler


def _is_timestamp(value: Any) -> bool:
    """Return whether a value is a pandas timestamp, without importing pandas."""
    kind = type(value)
    return kind.__name__ == "Timestamp" and kind.__module__.partition(".")[0] == "pandas"


def _restored_timestamp(make: Callable[..., Any], parts: tuple[Any, ...]) -> Any:
    timestamp = make(*parts)
    return timestamp if timestamp.fold else timestamp.replace(fold=1)


def _restored_code(filename: str, make: Callable[..., CodeType], parts: tuple[Any, ...]) -> CodeType:
    return make(*parts).replace(co_filename=filename)


def _function_ref(function: Callable[..., Any]) -> _FunctionRef | None:
    """Return a reference by name to a function that decorators wrap under this name. Return None for any other
    function.

    Cloudpickle pickles any other function by name if that leads to the function, else by value.
    """
    module = getattr(function, "__module__", None)
    path = getattr(function, "__qualname__", "<")
    if not isinstance(module, str) or not _is_importable(module) or "<" in path:
        return None
    # Follow the name to the outermost wrapper, then the `__wrapped__` links inwards. Example: a function below two
    # decorators has depth 2.
    target: Any = sys.modules.get(module)
    for part in path.split("."):
        target = getattr(target, part, None)
    depth = 0
    while target is not None and target is not function:
        target = getattr(target, "__wrapped__", None)
        depth = depth + 1
    return _FunctionRef(module, path, depth) if depth and target is function else None


@functools.lru_cache(maxsize=1024)
def _is_importable(name: str) -> bool:
    """Return whether another process can import the module with this name. If it cannot, make cloudpickle send the
    definitions in the module by value.

    That is the case for a notebook, a script, and a file that was passed to the CLI.
    """
    import cloudpickle

    module = sys.modules.get(name)
    if module is None or name == "__main__":
        return False
    top = name.partition(".")[0]
    # Built-in modules have no file. A file that no finder finds was loaded from a path, as the CLI does.
    if getattr(module, "__file__", None) is None or any(_finds(finder, top) for finder in sys.meta_path):
        return True
    cloudpickle.register_pickle_by_value(module)
    return False


def _finds(finder: Any, name: str) -> bool:
    find = getattr(finder, "find_spec", None)
    return find is not None and find(name, None) is not None


def _unpicklable_error(
    label: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], error: Exception
) -> UnpicklableError:
    """Return the error for a call that cannot be pickled. It names the argument that is the cause, or else the code of
    the function.
    """
    arguments = {str(place): value for place, value in enumerate(args, 1)} | dict(kwargs)
    for name, value in arguments.items():
        if not _is_picklable(value):
            reason = f"its argument {name!r} ({type(value).__name__}) cannot be pickled: {error}"
            way_on = (
                "Pass an argument that can be pickled (plain data, a path, a URL), and open the rest inside the "
                "function"
            )
            return UnpicklableError(f"{label} cannot run in another process: {reason}. {way_on}, {_HERE}")
    reason = f"its code, or an object that it uses, cannot be pickled: {error}"
    way_on = "Create the objects that it uses inside the function, or in a module that it imports"
    return UnpicklableError(f"{label} cannot run in another process: {reason}. {way_on}, {_HERE}")


def _is_picklable(value: Any) -> bool:
    try:
        _pickle(value)
    except Exception:  # noqa: BLE001 - whatever its class raises
        return False
    return True
