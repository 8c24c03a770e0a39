"""A result that a log can never contain is reported where the function is defined."""

import dataclasses
import datetime as dt
import threading
import typing
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pydantic import BaseModel

from divebook import action
from divebook.definitions import step
from divebook.errors import UnrecordableWarning


class Plain:
    pass


class Base:
    pass


@dataclasses.dataclass
class Derived(Base):
    n: int


class Model(BaseModel):
    n: int


def define(annotation, decorator=step):
    def call():
        return None

    call.__annotations__ = {"return": annotation}
    return decorator(call)


@pytest.mark.parametrize(
    "annotation",
    [
        Plain,
        type(threading.Lock()),
        Iterator[int],
        AsyncIterator[int],
        Callable[[], int],
        list[Plain],
        Plain | type(threading.Lock()),
        typing.Annotated[Plain, "text"],
    ],
    ids=str,
)
@pytest.mark.parametrize("decorator", [step, action])
def test_a_result_that_can_never_be_recorded_is_a_warning(annotation, decorator):
    with pytest.warns(UnrecordableWarning, match=r'"call" returns .*, which a log cannot store; return plain data'):
        define(annotation, decorator)


@pytest.mark.parametrize(
    "annotation",
    [
        None,
        typing.Any,
        object,
        int,
        dt.datetime,
        Path,
        Base,
        Derived,
        Model,
        Plain | None,
        list[int],
        dict[str, Derived],
        pd.DataFrame,
        np.ndarray,
        typing.Sequence[int],
        typing.Iterable[int],
        typing.Literal["a"],
        typing.TypeVar("T"),
        "Unknown",
    ],
    ids=str,
)
def test_a_result_that_may_be_recorded_is_not_reported(annotation):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        define(annotation)


class Name(str):
    __slots__ = ()


@pytest.mark.parametrize("annotation", [Name, list[Name], Name | None], ids=str)
def test_a_result_that_is_recorded_as_another_class_is_a_warning(annotation):
    with pytest.warns(
        UnrecordableWarning, match=r'"call" returns .*log stores instances of Name as plain str; return str'
    ):
        define(annotation)
