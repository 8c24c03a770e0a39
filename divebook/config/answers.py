"""Answers given before a question is asked, so that a run can go on alone; and bounds as they are typed.

Command line and magics share them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from divebook.bounds import Bounds
from divebook.errors import InputError
from divebook.execution.execution import Execution
from divebook.questions import Question, Typed
from divebook.text.cuts import one_line
from divebook.text.names import normal_name
from divebook.workflow.yaml_value import yaml_of

VARIABLE = "DIVEBOOK_ANSWERS"
"""Environment variable: answers as a YAML mapping, or the path of a file that holds one."""

_QUOTED = re.compile(r"^'(.*)'$", re.DOTALL)
"""As shells want JSON, which never begins so."""
LOOK = 1.0
"""Seconds between two looks at an execution that goes on: whether it asks something meanwhile."""


class Answers:
    """Answers by what they are for: the id of a question, the step that asks, or ``step:2`` for its second question.

    Parameters
    ----------
    given
        For this run.
    standing
        For every run, where nothing else is given.

    Examples
    --------
    >>> Answers({"deploy": True, "name:2": "ann"}).keys
    ('deploy', 'name:2')
    """

    def __init__(self, given: Mapping[str, Any], standing: Mapping[str, Any] | None = None) -> None:
        self._given = {normal_name(key): value for key, value in given.items()}
        self._standing = {normal_name(key): value for key, value in (standing or {}).items()}
        self._used = set[str]()

    @property
    def keys(self) -> tuple[str, ...]:
        """What there are answers for."""
        return tuple(self._standing | self._given)

    @property
    def unused(self) -> tuple[str, ...]:
        """Those for this run for which no question came."""
        return tuple(key for key in self._given if key not in self._used)

    def settle(self, execution: Execution, by: str | None = None) -> Execution:
        """Answer what an execution asks, as soon as it does, and wait until there is nothing more to answer.

        Raises
        ------
        InterruptError
            An answer does not fit its question, which stays open.
        """
        self._wait(execution)
        while (found := self._next(execution)) is not None:
            question, key = found
            execution = execution.answer(question.id, self._given.get(key, self._standing.get(key)), by)
            self._used.add(key)
            self._wait(execution)
        return execution

    def _wait(self, execution: Execution) -> None:
        """Wait until nothing can happen in it, or until a question is open for which there is an answer.

        A question of one path may expire while another path goes on
        (test_an_answer_up_front_reaches_a_server_while_another_path_works).
        """
        while True:
            try:
                execution.wait(LOOK if self.keys else None)
            except TimeoutError:
                if not execution.is_live:  # it has come to rest just now, or this is an error of its own
                    execution.wait()
                elif self._next(execution) is None:
                    continue
            return

    def _next(self, execution: Execution) -> tuple[Question, str] | None:
        if execution.state.is_over:
            return None
        asked = sorted(execution.state.interrupts.values(), key=lambda found: (found.raised_us, found.id))
        for question in execution.interrupts:
            number = 1 + [found.id for found in asked if found.step == question.step].index(question.id)
            step = normal_name(question.step)
            for key in (question.id, f"{step}:{number}", step):
                if key in self._given or key in self._standing:
                    return question, key
        return None


def answers_from(
    typed: Iterable[str] = (), file: Path | str | None = None, given: Mapping[str, Any] | None = None
) -> Answers:
    """Return the answers of the environment variable, a file, a mapping and a command line; the later ones win.

    Parameters
    ----------
    typed
        What follows each ``--answer``: ``step=value``, or ``step:=JSON``.

    Raises
    ------
    InputError
        A file or the variable holds no mapping, or what was typed is not an assignment.
    """
    found: dict[str, Any] = {}
    if file is not None:
        if not Path(file).is_file():
            raise InputError(f"there is no file of answers at {file}")
        try:
            text = Path(file).read_text("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"the file of answers {file} is not UTF-8 text: {error}; write it as YAML") from None
        found |= _mapping(text, str(file))
    return Answers(found | dict(given or {}) | dict(map(_assignment, typed)), _standing())


def _standing() -> dict[str, Any]:
    variable = os.environ.get(VARIABLE, "").strip()
    if not variable:
        return {}
    is_file = "\n" not in variable and not variable.startswith("{") and Path(variable).is_file()
    return _mapping(Path(variable).read_text("utf-8") if is_file else variable, VARIABLE)


def _assignment(typed: str) -> tuple[str, Any]:
    """Return what an answer is for, and the answer."""
    key, equals, text = typed.partition("=")
    name = key.removesuffix(":")
    if not (equals and name):
        raise InputError(f"--answer {typed!r} is not understood; write --answer step=value, or step:=JSON")
    return name, json_of(f"--answer {name!r}", _QUOTED.sub(r"\1", text)) if key.endswith(":") else Typed(text)


def typed_answer(text: str, way: str | None = None, result: str | None = None) -> Any:
    """Return what was typed in order to answer a question, as a response, for shell and magics alike.

    Parameters
    ----------
    way
        ``text``, ``json`` or ``auto``: how it is read; by default as its question asks for.
    result
        JSON: what a call returned of which somebody says that it is done.

    Raises
    ------
    InputError
        It cannot be read in this way.
    """
    if way not in (None, "auto", "text", "json"):
        raise InputError(f"--as {way!r} is not known; write auto, text or json")
    if result is not None:
        return {"choice": text, "result": json_of("--result", result)}
    if way == "json":
        return json_of("the answer", text)
    return text if way == "text" else Typed(text)


def json_of(what: str, text: str) -> Any:
    """Return the value of a JSON text; `what` names it in the error."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        told = f"{what}: {one_line(text, 80)} is not JSON ({error})"
        raise InputError(f"{told}; a text needs double quotes inside single ones") from error


def _mapping(text: str, source: str) -> dict[str, Any]:
    value = yaml_of(text, source)
    if not isinstance(value, dict):
        raise InputError(f"{source} must map questions or steps to answers, as in `deploy: true`; it holds {value!r}")
    return {str(key): answer for key, answer in value.items()}


def bounds_from(text: str | None) -> Bounds | None:
    """Return bounds from ``max_cost=2.50,max_llm_calls=40``; None where there are none.

    Raises
    ------
    InputError
        A part is no ``name=value``.
    BoundsError
        A name or value cannot be used.

    Examples
    --------
    >>> bounds_from("max_cost=2.50, max_llm_calls=40").to_dict()
    {'max_llm_calls': 40, 'max_cost': '2.5'}
    """
    if not text:
        return None
    given: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals and value):
            raise InputError(f"bounds {text!r} are not understood at {part!r}; write max_cost=2.50,max_llm_calls=40")
        given[name] = yaml_of(value, "bounds")
    return Bounds.read(given)
