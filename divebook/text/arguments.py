"""Validation of arguments of the public API. An error states the expected form, the value, and what to write instead.

A wrong object is refused where it is passed. Otherwise it would fail later, with an error about an attribute of the
library, or after a run has begun.
"""

from __future__ import annotations

import functools
import inspect
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from inspect import Parameter
from numbers import Real
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from divebook.errors import SetupError, unexpected_argument
from divebook.text.format import parse_duration
from divebook.text.ranges import MOST_SECONDS, NumberRange

DurationLike: TypeAlias = "timedelta | float | str"
"""A duration in the public API: a timedelta, a number of seconds, or a string such as ``"5 min"``."""
DURATION_FORMS = "a number of seconds, a timedelta, or a string such as '5 min'"
"""Description of the values of `DurationLike`, for errors."""
_SHORT = (str, int, float, bool, bytes, type(None))


def describe(value: object) -> str:
    """Return a short description of a value for an error message: the value itself if it is short, or else its class.

    >>> describe(5), describe(int), describe([1])
    ('5', 'the class int', 'a list')
    """
    if isinstance(value, type):
        return f"the class {value.__qualname__}"
    if isinstance(value, _SHORT):
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:57]}..."
    return f"a {type(value).__qualname__}"


def require(value: object, name: str, expected: str, *, fits: bool) -> None:
    """Raise `SetupError` if an argument of the public API is not valid (`fits` is False). None means that the caller
    omitted the argument, and is accepted.

    Parameters
    ----------
    name
        Name of the argument, as callers write it.
    expected
        Noun phrase that describes a valid value and its spelling.
    fits
        Result of the caller's check of the value.
    """
    if value is not None and not fits:
        raise SetupError(f"{name} must be {expected}, not {describe(value)}")


def suggest_arguments(target: C) -> C:
    """Return a public function or class with another error for a misspelt keyword argument: it names the argument that
    was meant. Use it as a decorator. Correct calls do not change.
    """
    is_class = isinstance(target, type)
    function: Callable[..., Any] = target.__init__ if is_class else target

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except BaseException as error:
            # Examined only after an error, so that a correct call costs nothing more. An error of the body passes.
            unexpected = misspelt_argument(target, options) if isinstance(error, TypeError) else None
            if unexpected is not None:
                raise unexpected from None
            # Without this frame, which says nothing to people. `raise` adds no other one.
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
            raise

    if not is_class:
        return cast("C", call)
    target.__init__ = call  # type: ignore[method-assign]
    return target


def suggest_in_methods(target: type[T]) -> type[T]:
    """Return a public class, in whose public methods `suggest_arguments` is applied. Use it as a decorator."""
    for name, method in list(vars(target).items()):
        # Without parameters beside `self`, there is nothing to suggest.
        if not name.startswith("_") and inspect.isfunction(method) and len(inspect.signature(method).parameters) > 1:
            setattr(target, name, suggest_arguments(method))
    return target


def misspelt_argument(function: Callable[..., Any], options: Mapping[str, object]) -> TypeError | None:
    """Return the error that names the parameter of a public function or class that was meant by an unknown keyword
    argument in `options`. Return None if all are known.
    """
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters):
        return None
    kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    names = [parameter.name for parameter in parameters if parameter.kind in kinds and parameter.name != "self"]
    unknown = next((name for name in options if name not in names), None)
    return None if unknown is None else unexpected_argument(function.__name__, unknown, names)


def require_string(value: object, name: str) -> None:
    """Raise `SetupError` unless an argument of the public API, which the caller cannot omit, is a string."""
    if not isinstance(value, str):
        raise SetupError(f"{name} must be a string, not {describe(value)}")


def is_list_of_strings(value: object) -> bool:
    """Return True if an argument is a list, or another sequence, that contains only strings."""
    return isinstance(value, Sequence) and not isinstance(value, bytes) and all(isinstance(part, str) for part in value)


def list_of(value: Any, name: str, example: str) -> list[Any]:
    """Convert an iterable argument to a list. Raise `SetupError` if it is a string, a mapping or not iterable."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise SetupError(f"{name} must be a list, not {describe(value)}; write {example}")
    return list(value)


def id_of(value: Any, name: str = "the execution") -> str:
    """Return the id of an execution from an argument that is either the id or an object with the attribute ``id``, such
    as a `Run`.

    Raises
    ------
    SetupError
        The argument is neither.
    """
    # A class may have a string ``id`` of its own, but is not an execution.
    execution_id = value if isinstance(value, str | type) else getattr(value, "id", None)
    if not isinstance(execution_id, str):
        raise SetupError(f"{name} must be an id or a Run, not {describe(value)}")
    return execution_id


def question_id_of(value: Any) -> str:
    """Return the id of a question from an argument that is either the id or a `Question`. Raise `SetupError` for any
    other object.
    """
    # Other objects, such as a run, have a string ``id`` as well, and are not questions.
    is_question = hasattr(value, "answered_by")
    question_id = value if isinstance(value, str | type) else getattr(value, "id", None) if is_question else None
    if not isinstance(question_id, str):
        raise SetupError(f"the question must be a Question or its id, not {describe(value)}")
    return question_id


def seconds_of(value: object, name: str) -> float:
    """Convert a duration to seconds: a `datetime.timedelta`, a number of seconds, or a string such as ``5 min``.

    Every duration of the public API passes through this function, so that all take the same forms. A number is returned
    unchanged, since it may be recorded. The caller checks its range.

    Parameters
    ----------
    name
        Name of the argument or of the call, for the error.

    Raises
    ------
    SetupError
        The value is not a duration.

    >>> seconds_of("1m30s", "timeout"), seconds_of(timedelta(minutes=2), "timeout"), seconds_of(3, "timeout")
    (90.0, 120.0, 3)
    """
    number: Any = plain_seconds(value)
    is_boolean = isinstance(value, bool)
    # `numpy` and `fractions` register their numbers as `Real`. A boolean is an integer in Python, but not a time.
    if not is_boolean and isinstance(number, Real) and number == number:  # noqa: PLR0124 - not for NaN
        return cast("float", number)
    raise SetupError(f"{name} must be {DURATION_FORMS}, not {describe(value)}")


def plain_seconds(value: Any) -> Any:
    """Convert a timedelta, or a string such as ``5 min``, to seconds. Return any other value unchanged, for a caller
    that checks numbers itself, or takes templates as well.
    """
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str):
        with suppress(ValueError, OverflowError):
            return parse_duration(value)
    return value


def expected_seconds(allowed: NumberRange, value: object) -> str:
    """Describe the durations that a setting accepts, for an error about another value: the range of the seconds for a
    number outside of it, and the forms of durations for anything else.

    >>> expected_seconds(NumberRange(0, 10, unit="seconds"), 11), expected_seconds(NumberRange(0, 10), "soon")
    ('a number of seconds from 0 to 10', "a number of seconds, a timedelta, or a string such as '5 min'")
    """
    number = plain_seconds(value)
    return str(allowed) if isinstance(number, int | float) and not isinstance(number, bool) else DURATION_FORMS


class Assignment(NamedTuple):
    """A value that a person typed as ``NAME=VALUE``, or as ``NAME:=JSON``."""

    name: str
    text: str
    is_json: bool


def assignment_of(typed: str, *, json: bool = True) -> Assignment | None:
    """Split a text ``NAME=VALUE`` or ``NAME:=JSON``. Return None for a text that has no name or no ``=``.

    Without `json`, a colon belongs to the name.

    >>> assignment_of("city=Bonn"), assignment_of('words:=["a"]')
    (Assignment(name='city', text='Bonn', is_json=False), Assignment(name='words', text='["a"]', is_json=True))
    """
    name, equals, text = typed.partition("=")
    is_json = json and name.endswith(":")
    name = name.removesuffix(":") if is_json else name
    return Assignment(name, text, is_json) if equals and name else None


def wait_limit(timeout: object) -> float | None:
    """Convert the `timeout` argument of a wait to the seconds that the wait may last; None means without limit.

    None, infinity and more than 100 years all mean "without limit", since timers of the system cannot hold more. A
    negative number means 0: a caller may pass the rest of a deadline that has passed.

    Raises
    ------
    SetupError
        The timeout is not a duration; see `seconds_of`.

    >>> wait_limit(2.5), wait_limit("2 s"), wait_limit(-1), wait_limit(float("inf"))
    (2.5, 2.0, 0.0, None)
    """
    if timeout is None:
        return None
    seconds = seconds_of(timeout, "timeout")
    # Compared before they become floats, since an integer may be larger than any float.
    if seconds > MOST_SECONDS:
        return None
    return 0.0 if seconds <= 0 else float(seconds)


# --- names -----------------------------------------------------------------------------------------------------------
#
# Comparison of names in Unicode normalization form NFKC.
#
# Two spellings of one name are equal, such as a letter with its accent in one code point or in two. Python compares
# identifiers in NFKC. Names of definitions are stored in this form, so that ``café`` in an expression finds the
# variable ``café``, however either was typed.


T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., Any])


def normal_name(name: T) -> T:
    r"""Convert a name to Unicode normalization form NFKC. Values other than strings are returned unchanged.

    >>> len("cafe\N{COMBINING ACUTE ACCENT}"), len(normal_name("cafe\N{COMBINING ACUTE ACCENT}"))
    (5, 4)
    """
    if not isinstance(name, str) or name.isascii():
        return name
    # The result has the type of the argument, which may be a subclass of str.
    return type(name)(unicodedata.normalize("NFKC", name))


def same_name(name: Any, names: Collection[object]) -> Any:
    """Find the member of a collection that has a given name: the equal member, or else a member with the same Unicode
    normalization form NFKC.

    Return None if no member matches.
    """
    # The equal member takes precedence, and in the common case no name is normalized.
    if name in names:
        return name
    if not isinstance(name, str) or name.isascii():
        return None
    # A linear search is enough: only names with other characters than ASCII reach it.
    normal = normal_name(name)
    return next((other for other in names if isinstance(other, str) and normal_name(other) == normal), None)
