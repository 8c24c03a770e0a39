"""Answers that are given before anybody asks, so that a run needs nobody; and bounds as they are typed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from divebook.engine.state import Interrupt
from divebook.envelope.bounds import Bounds
from divebook.errors import InputError
from divebook.events.catalog import WAITING
from divebook.execution import Execution
from divebook.workflow.kinds import Anything
from divebook.workflow.reading import Reading
from divebook.workflow.yaml_text import parse_yaml

VARIABLE = "DIVEBOOK_ANSWERS"
"""Environment variable: answers as a YAML mapping, or the path of a file that holds one."""


class Answers:
    """Answers by what they are for: the id of a question, the step that asks, or ``step:2`` for its second question.

    Examples
    --------
    >>> Answers({"deploy": True, "name:2": "ann"}).keys
    ('deploy', 'name:2')
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given, self._used = dict(given), set[str]()

    @property
    def keys(self) -> tuple[str, ...]:
        """What there are answers for."""
        return tuple(self._given)

    @property
    def unused(self) -> tuple[str, ...]:
        """Those for which no question came."""
        return tuple(key for key in self._given if key not in self._used)

    def settle(self, execution: Execution, by: str | None = None) -> Execution:
        """Wait until an execution rests, answer what can be answered, and so on until there is nothing more to answer.

        Raises
        ------
        InterruptError
            An answer does not fit its question, which stays open.
        """
        execution.wait()
        while execution.status == WAITING and (found := self._next(execution)) is not None:
            question, key = found
            execution = execution.answer(question.interrupt_id, self._given[key], by).wait()
            self._used.add(key)
        return execution

    def _next(self, execution: Execution) -> tuple[Interrupt, str] | None:
        asked = sorted(execution.state.interrupts.values(), key=lambda found: (found.raised_us, found.interrupt_id))
        for question in execution.interrupts:
            number = 1 + [found.interrupt_id for found in asked if found.step == question.step].index(
                question.interrupt_id
            )
            for key in (question.interrupt_id, f"{question.step}:{number}", question.step):
                if key in self._given:
                    return question, key
        return None


def answers_from(assignments: Iterable[tuple[str, Any]] = (), file: Path | None = None) -> Answers:
    """Return the answers of the environment variable, a file and a command line; the later ones win.

    Raises
    ------
    InputError
        A file or the variable holds no mapping.
    """
    variable = os.environ.get(VARIABLE, "").strip()
    given: dict[str, Any] = {}
    if variable:
        is_file = "\n" not in variable and not variable.startswith("{") and Path(variable).is_file()
        given |= _mapping(Path(variable).read_text("utf-8") if is_file else variable, VARIABLE)
    if file is not None:
        if not file.is_file():
            raise InputError(f"there is no file of answers at {file}")
        given |= _mapping(file.read_text("utf-8"), str(file))
    return Answers(given | dict(assignments))


def _mapping(text: str, source: str) -> dict[str, Any]:
    value = yaml_of(text, source)
    if not isinstance(value, dict):
        raise InputError(f"{source} must map questions or steps to answers, as in `deploy: true`; it holds {value!r}")
    return {str(key): answer for key, answer in value.items()}


def yaml_of(text: str, source: str) -> Any:
    """Return what a YAML text means; raises `DefinitionError`."""
    reading = Reading(text, source)
    node = parse_yaml(reading)
    reading.raise_errors()
    value = None if node is None else Anything().read(node, (source,), reading)
    reading.raise_errors()
    return value


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
