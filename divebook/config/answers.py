"""Answers given before a question is asked, so that a run can go on alone; and bounds as they are typed.

Command line and magics share them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from divebook.engine.forks import Change
from divebook.environment.environment import Environment
from divebook.errors import DefinitionError, DivebookError, ExecutionError, InputError, NotFoundError
from divebook.questions import Question, Typed
from divebook.questions.bounds import Bounds
from divebook.runtime.execution import Execution
from divebook.runtime.messages import annotation
from divebook.store import ExecutionRecord
from divebook.text.names import normal_name
from divebook.text.redaction import one_line
from divebook.workflow.resources import RECOVERIES, Config
from divebook.workflow.yaml_text import value_typed, yaml_of

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


# What a fork or a what-if is to have otherwise, as it is typed: ``x=1`` of variables, inputs, answers, results.


def change_from(
    variables: Iterable[str] = (),
    inputs: Iterable[str] = (),
    answers: Iterable[str] = (),
    results: Iterable[str] = (),
    *,
    prompts: Iterable[str] = (),
    model: str | None = None,
) -> Change:
    """Return a change whose parts are written as ``NAME=VALUE``, values in YAML; prompts are texts as they stand.

    Raises
    ------
    InputError
        There is no ``=`` or no name before it, a name is given twice, or a value is no YAML.

    Examples
    --------
    >>> change_from(["city=Bonn"], ["n=3"]).to_data()
    {'variables': {'city': 'Bonn'}, 'inputs': {'n': 3}}
    """
    return Change(
        variables=pairs("--set", variables, "--set city=Bonn"),
        inputs=pairs("--input", inputs, "--input n=3"),
        answers=pairs("--answer", answers, "--answer ask_1f0c=yes"),
        results=pairs("--result", results, "--result op_5b1e=3"),
        prompts=pairs("--prompt", prompts, "--prompt draft='Shorter: ${state.text}'", str),
        model=model,
    )


def pairs(
    option: str, written: Iterable[str], example: str, read: Callable[[str], Any] = value_typed
) -> dict[str, Any]:
    """Return what an option says that is written as ``NAME=VALUE``, several times; values in YAML."""
    found: dict[str, Any] = {}
    for text in written:
        name, equals, value = text.partition("=")
        if not (equals and name):
            raise InputError(f"{option} {text!r} changes nothing; write NAME=VALUE, for instance {example}")
        if name in found:
            raise InputError(f"{option} {name}=... is given twice; keep one", name)
        try:
            found[name] = read(value)
        except DefinitionError as error:
            problem = error.problems[0].message
            raise InputError(f"{option} {name}: {problem} in {value!r}; write the value in YAML", name) from error
    return found


# Taking up executions that were interrupted: their process has died, or they slept past their time.


RECOVER_VARIABLE = "DIVEBOOK_RECOVER"
ASK, AUTO, OFF = RECOVERIES
MOST_AT_ONCE = 50
"""How many are resumed automatically at a time."""
MOST_REFUSED = 10
"""How many are looked at, for each one that is resumed at most."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The result of a recovery: which executions were resumed, and which were not."""

    resumed: tuple[Execution, ...] = ()
    refused: tuple[tuple[ExecutionRecord, DivebookError], ...] = ()
    """Those that cannot go on here, and why: an agent or action is missing, or another process was quicker."""
    left: int = 0
    """How many were not looked at."""

    @property
    def waiting(self) -> int:
        """How many do not go on."""
        return len(self.refused) + self.left


def way_to_recover(config: Config | None = None) -> str:
    """Return ``ask``, ``auto`` or ``off``: what the variable ``DIVEBOOK_RECOVER`` says, else the settings, else ask.

    Raises
    ------
    NotFoundError
        The variable has another value.
    """
    said = os.environ.get(RECOVER_VARIABLE) or (config.recover if config is not None else "") or ASK
    if said not in RECOVERIES:
        raise NotFoundError("way to recover", said, RECOVERIES, f"{RECOVER_VARIABLE} cannot be {said!r}")
    return said


def take_up(environment: Environment, records: Sequence[ExecutionRecord]) -> Recovered:
    """Resume executions as far as their definitions allow it; they go on at once, and are not waited for."""
    return _each(records, environment.resume, len(records))


def take_up_by_itself(environment: Environment, records: Sequence[ExecutionRecord]) -> Recovered:
    """Resume executions automatically; one that makes no progress is left to a person."""
    return _each(records, environment.recover, MOST_AT_ONCE)


def _each(records: Sequence[ExecutionRecord], resume: Callable[[str], Execution], most: int) -> Recovered:
    resumed: list[Execution] = []
    refused: list[tuple[ExecutionRecord, DivebookError]] = []
    for record in records[: most * MOST_REFUSED]:
        if len(resumed) == most:
            break
        try:
            resumed.append(resume(record.execution_id))
        except DivebookError as error:
            refused.append((record, error))
    return Recovered(tuple(resumed), tuple(refused), len(records) - len(resumed) - len(refused))


def interrupted(environment: Environment, execution_id: str | None = None) -> list[ExecutionRecord]:
    """Return the executions that can be recovered: all, or the one whose id begins so.

    Raises
    ------
    ExecutionNotFoundError
        There is none of that id.
    ExecutionError
        It is not interrupted.
    """
    records = environment.recoverable()
    if execution_id is None:
        return records
    whole_id = environment.store.resolve(execution_id)
    chosen = [record for record in records if record.execution_id == whole_id]
    if not chosen:
        status = environment.store.record(whole_id).status
        raise ExecutionError(f"execution {whole_id} is {status}, but not interrupted; to go on all the same, resume it")
    return chosen


# One thing done with many executions: what fails for one of them is said in its row, and the others go on.


Verb: TypeAlias = Callable[[Environment, str], object]
"""Does it with one execution, by its id; an execution that it returns goes on, or came of it, and may be another."""


@dataclass(frozen=True, slots=True)
class Handled:
    """What became of one of them."""

    execution_id: str
    before: str = ""
    """Its status before; empty where the store has no such execution."""
    status: str = ""
    """The status of what came of it."""
    made: str = ""
    """The execution that came of it, where that is another one."""
    error: DivebookError | None = None
    """Why nothing was done."""


def annotating(
    *, note: str | None = None, labels: Iterable[str] = (), tags: Iterable[str] = (), untag: Iterable[str] = ()
) -> Verb:
    """Return what says something of each; raises where that can be said of none. Labels are written NAME=VALUE."""
    told = pairs("--label", labels, "--label quality=good")
    annotation(tags=tags, untagged=untag, note=note, labels=told)
    return lambda environment, name: environment.annotate(name, note=note, labels=told, tags=tags, untag=untag)


def handle_each(
    environment: Environment, execution_ids: Iterable[str], verb: Verb, *, wait: bool = True, dry_run: bool = False
) -> list[Handled]:
    """Do one thing with each of them, and return a row for each.

    Parameters
    ----------
    wait
        Whether what goes on is waited for, once it was done with all.
    dry_run
        Only find out which they are.
    """
    begun = [_begun(environment, name, verb, dry_run=dry_run) for name in dict.fromkeys(execution_ids)]
    return [_ended(row, found, wait=wait) for row, found in begun]


def _begun(environment: Environment, name: str, verb: Verb, *, dry_run: bool) -> tuple[Handled, Execution | None]:
    whole_id = name
    before = ""
    try:
        whole_id = environment.store.resolve(name)
        before = environment.store.record(whole_id).status
        result = None if dry_run else verb(environment, whole_id)
    except DivebookError as error:
        return Handled(whole_id, before, before, error=error), None
    found = result if isinstance(result, Execution) else None
    made = found.id if found is not None and found.id != whole_id else ""
    return Handled(whole_id, before, before, made), found


def _ended(row: Handled, found: Execution | None, *, wait: bool) -> Handled:
    if found is None:
        return row
    try:
        status = (found.wait() if wait and found.is_live else found).status
    except DivebookError as error:
        return Handled(row.execution_id, row.before, found.status, row.made, error)
    return Handled(row.execution_id, row.before, status, row.made)
