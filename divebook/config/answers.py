"""Features that the command line and the magics share: early answers (given before the questions are asked, so that a
run needs no person), bounds, changes, recovery, and operations on several executions.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from divebook.definitions.resources import RECOVERIES, Config
from divebook.definitions.yaml_text import value_typed, yaml_of
from divebook.engine.forks import Change
from divebook.environments.environment import Environment
from divebook.errors import (
    DefinitionError,
    DivebookError,
    ExecutionError,
    InputError,
    InterruptError,
    NotFoundError,
    did_you_mean,
)
from divebook.projections.summary import status_in
from divebook.questions import Question, Typed
from divebook.questions.bounds import Bounds
from divebook.questions.question import address_of
from divebook.runtime.messages import annotation
from divebook.runtime.run import Run, asked_questions
from divebook.stores import ExecutionRecord
from divebook.text.arguments import assignment_of, normal_name, require
from divebook.text.path_arguments import similar_file
from divebook.text.redaction import one_line, shared

VARIABLE = "DIVEBOOK_ANSWERS"
"""Environment variable with early answers: a YAML mapping, or the path of a file that contains one."""

_QUOTED = re.compile(r"^'(.*)'$", re.DOTALL)
"""Pattern of JSON in single quotes, as shells require it. JSON itself never starts with a single quote."""
POLL_INTERVAL = 1.0
"""Seconds between two checks for open questions of a running execution."""


class Answers:
    """Answers to the questions of a run that are given before the questions are asked. The key is a question id, a
    step, or ``step:2`` for a step's second question.

    Parameters
    ----------
    answers
        Answers for this run.
    defaults
        Answers for every run, used where `answers` has none.

    Examples
    --------
    >>> Answers({"deploy": True, "name:2": "ann"}).keys
    ('deploy', 'name:2')
    """

    def __init__(self, answers: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> None:
        self._answers = {normal_name(key): value for key, value in answers.items()}
        self._defaults = {normal_name(key): value for key, value in (defaults or {}).items()}
        self._used = set[str]()
        self._misfits = set[str]()
        """Keys of the answers that did not fit their question. They are not tried again."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of all early answers: question ids, steps, and steps with the number of a question (``step:2``)."""
        return tuple(self._defaults | self._answers)

    @property
    def unused(self) -> tuple[str, ...]:
        """Keys of the early answers for this run that have not been used for a question so far."""
        return tuple(key for key in self._answers if key not in self._used)

    def unused_notes(self, run: Run) -> Iterator[str]:
        """Yield one line for each early answer that no question of a run has used, with the name of a step that a
        misspelt one may stand for.
        """
        names = [question.step for question in asked_questions(run)] + [step.name for step in run.workflow.steps]
        open_steps = ", ".join(dict.fromkeys(question.step for question in run.open_questions))
        # A run that waits may ask the question later.
        fact = "was not used" if run.state.is_over else "is not used yet"
        for key in self.unused:
            step = key.partition(":")[0]
            suggestion = None if step in names else did_you_mean(step, names)
            advice = suggestion or (open_steps and f"open questions: {open_steps}")
            yield (
                f"the answer for {key!r} {fact}: no question with this id or step was "
                f"asked{f' ({advice})' if advice else ''}"
            )

    def settle(
        self, execution: Run, by: str | None = None, on_misfit: Callable[[InterruptError], object] | None = None
    ) -> Run:
        """Wait for an execution, and answer those of its questions for which there are early answers. Return the
        execution when it has stopped and none of its open questions has an early answer.

        Parameters
        ----------
        on_misfit
            Called with the error of an answer that does not fit. The execution then continues without this answer.

        Raises
        ------
        InterruptError
            An answer does not fit its question, which stays open, and `on_misfit` is not given.
        """
        self._wait(execution)
        # An answer may lead to further questions, so the open ones are looked up after each answer.
        question_and_key = self._next(execution)
        while question_and_key is not None:
            question, key = question_and_key
            self._used.add(key)
            try:
                execution = execution.answer(question.id, self._answers.get(key, self._defaults.get(key)), by)
            except InterruptError as error:
                # The address names the run as well, so that a person can answer the question that is still open.
                misfit = InterruptError(address_of(execution.id, question), error.reason)
                if on_misfit is None:
                    raise misfit from None
                on_misfit(misfit)
                self._misfits.add(key)
            self._wait(execution)
            question_and_key = self._next(execution)
        return execution

    def _wait(self, execution: Run) -> None:
        """Wait until an execution stops, or has an open question for which there is an early answer.

        The second case matters where one path asks while another one works: the question might expire
        (test_an_answer_up_front_reaches_a_server_while_another_path_works).
        """
        while True:
            try:
                # Without early answers, no open question can end the wait early.
                execution.wait(POLL_INTERVAL if self.keys else None)
            except TimeoutError:
                if not execution.is_live:  # it stopped just now, or the TimeoutError is an error of its own
                    execution.wait()
                elif self._next(execution) is None:
                    continue
            return

    def _next(self, execution: Run) -> tuple[Question, str] | None:
        """Return the first open question of an execution for which there is an early answer, and the key of the answer;
        None without such a question.
        """
        if execution.state.is_over:
            return None
        questions = sorted(execution.state.interrupts.values(), key=lambda question: question.order)
        # The number of a question counts all questions of its step so far, answered ones too, so that ``step:2`` keeps
        # its meaning. The most specific key wins.
        for question in execution.open_questions:
            ids_of_step = [other.id for other in questions if other.step == question.step]
            number = 1 + ids_of_step.index(question.id)
            step = normal_name(question.step)
            for key in (question.id, f"{step}:{number}", step):
                if (key in self._answers or key in self._defaults) and key not in self._misfits:
                    return question, key
        return None


def answers_from(
    typed: Iterable[str] = (), file: Path | str | None = None, mapping: Mapping[str, Any] | None = None
) -> Answers:
    """Collect early answers (given before the questions are asked) from the environment variable `VARIABLE`, a file, a
    mapping and a command line.

    A later source in this order replaces answers of an earlier one.

    Parameters
    ----------
    typed
        Values of ``--answer``: ``step=value``, or ``step:=JSON``.
    file
        YAML file with a mapping.
    mapping
        Answers by question id or step.

    Raises
    ------
    InputError
        The file or the variable contains no mapping, or a typed text is not an assignment.
    """
    # Later sources replace answers of earlier ones, in the order file, mapping, command line.
    answers: dict[str, Any] = {}
    if file is not None:
        if not Path(file).is_file():
            raise InputError(f"there is no answers file at {file}{similar_file(Path(file))}")
        try:
            text = Path(file).read_text("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"the answers file {file} is not UTF-8 text: {error}; write it as YAML") from None
        answers |= _mapping(text, str(file))
    expected = "a mapping of question ids or steps to answers, or the path of a file that contains such a mapping"
    require(mapping, "answers", expected, fits=isinstance(mapping, Mapping))
    answers |= dict(mapping or {})
    answers |= _typed_answers(typed)
    return Answers(answers, _default_answers())


def _default_answers() -> dict[str, Any]:
    """Return the early answers in the environment variable `VARIABLE`, which contains YAML or the path of a YAML file;
    an empty dict if it is not set.
    """
    variable = os.environ.get(VARIABLE, "").strip()
    if not variable:
        return {}
    # YAML of several lines, or in braces, is never taken for the path of a file.
    is_file = "\n" not in variable and not variable.startswith("{") and Path(variable).is_file()
    return _mapping(Path(variable).read_text("utf-8") if is_file else variable, VARIABLE)


def _typed_answers(typed: Iterable[str]) -> dict[str, Any]:
    """Parse command-line arguments ``step=value`` and ``step:=JSON``; return the values by key."""
    answers: dict[str, Any] = {}
    for each in typed:
        # "deploy=yes" -> ("deploy", Typed("yes")), "deploy:=true" -> ("deploy", True)
        assignment = assignment_of(each)
        if assignment is None:
            raise InputError(f"--answer {each!r} is not valid; write --answer step=value, or step:=JSON")
        name, text, is_json = assignment
        if name in answers:
            raise InputError(f"--answer {name}=... is given twice; keep one", name)
        answers[name] = json_of(f"--answer {name!r}", _QUOTED.sub(r"\1", text)) if is_json else Typed(text)
    return answers


def typed_answer(text: str, way: str | None = None, result: str | None = None) -> Any:
    """Convert the text that a person typed as the answer to a question, in the shell or a magic, to the value that the
    question expects.

    Parameters
    ----------
    way
        Interpretation of the text: ``text``, ``json``, or ``auto`` (the default), which depends on the question.
    result
        JSON: the return value of a call that a person has confirmed to be done.

    Raises
    ------
    InputError
        The text cannot be read in this way.
    """
    if way not in (None, "auto", "text", "json"):
        raise InputError(f"--as cannot be {way!r}; write auto, text or json")
    if result is not None:
        # The form of the answer to the question about a call of unknown outcome (`divebook.questions.answer`).
        return {"choice": text, "result": json_of("--result", result)}
    if way == "json":
        return json_of("the answer", text)
    return text if way == "text" else Typed(text)


def json_of(what: str, text: str) -> Any:
    """Parse a JSON text and return its value. Raise InputError if it is not JSON; the error begins with `what`, which
    describes where the text is from.
    """
    try:
        return json.loads(text)
    # Deeply nested brackets exceed Python's limit of recursion.
    except (ValueError, RecursionError) as error:
        message = f"{what}: {one_line(text, 80)} is not JSON ({error})"
        raise InputError(f"{message}; put a string in double quotes inside single quotes") from error


def json_input(what: str, name: str, text: str) -> Any:
    """Parse the JSON text of a value that a person typed. Like `json_of`, but the error does not repeat the text if the
    name says that it is a secret.
    """
    try:
        return json_of(what, text)
    except InputError:
        if shared().under(name, text) == text:
            raise
        raise InputError(f"{what} is not JSON; put a string in double quotes inside single quotes", name) from None


def _mapping(text: str, source: str) -> dict[str, Any]:
    value = yaml_of(text, source)
    if not isinstance(value, dict):
        raise InputError(
            f"{source} must map questions or steps to answers, as in `deploy: true`; it contains {value!r}"
        )
    return {str(key): answer for key, answer in value.items()}


def bounds_from(text: str | None) -> Bounds | None:
    """Parse a budget such as ``max_cost=2.50,max_llm_calls=40``; return None for an empty text.

    Raises
    ------
    InputError
        A part is not ``name=value``.
    BoundsError
        A name or value is not valid.

    Examples
    --------
    >>> bounds_from("max_cost=2.50, max_llm_calls=40").to_dict()
    {'max_llm_calls': 40, 'max_cost': '2.5'}
    """
    if not text:
        return None
    values: dict[str, Any] = {}
    for part in text.split(","):
        assignment = assignment_of(part.strip(), json=False)
        if assignment is None or not assignment.text.strip():
            raise InputError(
                f"the bounds {text!r} contain an entry that is not valid: {part!r}; write "
                "max_cost=2.50,max_llm_calls=40"
            )
        # "40" -> 40, "2.50" -> 2.5
        values[assignment.name.strip()] = yaml_of(assignment.text.strip(), "bounds")
    return Bounds.read(values)


# --- changes of a fork or what-if, as they are typed: ``NAME=VALUE`` -------------------------------------------------


def change_from(
    variables: Iterable[str] = (),
    results: Iterable[str] = (),
    *,
    prompts: Iterable[str] = (),
    model: str | None = None,
) -> Change:
    """Build the change of a fork or what-if from command-line texts of the form ``NAME=VALUE``.

    Values are YAML, or JSON in the form ``NAME:=JSON``; prompts are plain text.

    Raises
    ------
    InputError
        A text has no ``=`` or no name before it, a name is repeated, or a value is not YAML.

    Examples
    --------
    >>> change_from(["city=Bonn", 'words:=["a"]'], ["op_5b1e=3"]).to_data()
    {'variables': {'city': 'Bonn', 'words': ['a']}, 'results': {'op_5b1e': 3}}
    """
    return Change(
        variables=pairs("--set", variables, "--set city=Bonn"),
        results=pairs("--result", results, "--result op_5b1e=3"),
        prompts=pairs("--prompt", prompts, "--prompt draft='Shorter: ${state.text}'", str),
        model=model,
    )


def pairs(option: str, texts: Iterable[str], example: str, read: Callable[[str], Any] = value_typed) -> dict[str, Any]:
    """Parse the values ``NAME=VALUE`` of an option that may be repeated; return the values by name. The function `read`
    parses each value; without it, values are YAML, or JSON in the form ``NAME:=JSON``.
    """
    values: dict[str, Any] = {}
    for text in texts:
        assignment = assignment_of(text, json=read is not str)
        if assignment is None:
            raise InputError(f"{option} {text!r} has no value; write NAME=VALUE, for example {example}")
        name, value, is_json = assignment
        if name in values:
            raise InputError(f"{option} {name}=... is given twice; keep one", name)
        try:
            values[name] = json_input(f"{option} {name}", name, value) if is_json else read(value)
        except DefinitionError as error:
            problem = error.problems[0].message
            shown = shared().under(name, value)
            raise InputError(f"{option} {name}: {problem} in {shown!r}; write the value in YAML", name) from error
    return values


# --- recovery of interrupted executions: their process has died, or their timer has passed ---------------------------

RECOVER_VARIABLE = "DIVEBOOK_RECOVER"
ASK, AUTO, OFF = RECOVERIES
MAX_RESUMED = 50
"""Maximum number of executions that one automatic recovery resumes."""
MAX_TRIED = 10
"""Maximum number of executions that a recovery tries for each execution that it may resume."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """Result of the recovery of interrupted executions: those resumed, those refused, and the number of those not
    tried.
    """

    resumed: tuple[Run, ...] = ()
    refused: tuple[tuple[ExecutionRecord, DivebookError], ...] = ()
    """Executions that cannot be resumed here, each with its error: a missing agent or action, or another process was
    faster."""
    untried: int = 0
    """Number of executions that the recovery did not try."""

    @property
    def waiting(self) -> int:
        """Number of executions that were not resumed, because they were refused or not tried."""
        return len(self.refused) + self.untried


def recovery_mode(config: Config | None = None) -> str:
    """Return the configured mode for the recovery of interrupted executions: ``ask``, ``auto`` or ``off``.

    The variable ``DIVEBOOK_RECOVER`` takes precedence over the settings; the default is ``ask``.

    Raises
    ------
    NotFoundError
        The variable has another value.
    """
    setting = os.environ.get(RECOVER_VARIABLE) or (config.recover if config is not None else "") or ASK
    if setting not in RECOVERIES:
        raise NotFoundError("way to recover", setting, RECOVERIES, f"{RECOVER_VARIABLE} cannot be {setting!r}")
    return setting


def resume_all(environment: Environment, records: Sequence[ExecutionRecord]) -> Recovered:
    """Resume the given executions, without waiting for them. Executions that this process cannot resume are listed in
    the result with the reason.
    """
    return _resume_each(records, lambda name: environment.run_of(name).resume(), len(records))


def recover_automatically(environment: Environment, records: Sequence[ExecutionRecord]) -> Recovered:
    """Resume up to `MAX_RESUMED` of the given executions. Refuse executions that make no progress, so that a person
    decides about them.
    """
    return _resume_each(records, environment.queues.recover, MAX_RESUMED)


def _resume_each(records: Sequence[ExecutionRecord], resume: Callable[[str], Run], most: int) -> Recovered:
    resumed: list[Run] = []
    refused: list[tuple[ExecutionRecord, DivebookError]] = []
    # Every refused execution costs a try, so the tries are limited as well.
    for record in records[: most * MAX_TRIED]:
        if len(resumed) == most:
            break
        try:
            resumed.append(resume(record.execution_id))
        # One execution that cannot be resumed here does not keep the others from it.
        except DivebookError as error:
            refused.append((record, error))
    # Executions beyond either limit are untried.
    return Recovered(tuple(resumed), tuple(refused), len(records) - len(resumed) - len(refused))


def interrupted(environment: Environment, execution_id: str | None = None) -> list[ExecutionRecord]:
    """Return the summary rows of the interrupted executions, which can be recovered: all of them, or only the one with
    an id or a prefix of it.

    Raises
    ------
    ExecutionNotFoundError
        No execution has that id.
    ExecutionError
        The execution is not interrupted.
    """
    records = environment.queues.recoverable()
    if execution_id is None:
        return records
    # The prefix may also belong to an execution that is not interrupted, which the error below explains.
    whole_id = environment.store.resolve(execution_id)
    matches = [record for record in records if record.execution_id == whole_id]
    if not matches:
        status = status_in(environment.store, whole_id)
        raise ExecutionError(f"execution {whole_id} is {status}, but not interrupted; use resume to continue it anyway")
    return matches


# --- bulk operations: one operation on many executions, in which a failure of one does not stop the others -----------

BulkOperation: TypeAlias = Callable[[Run], object]
"""Operation on one execution, by id. If it returns an execution, callers of `handle_each` can wait for it."""


@dataclass(frozen=True, slots=True)
class BulkResult:
    """Result for one execution of an operation that is applied to several executions."""

    execution_id: str
    before: str = ""
    """Status of the execution before the operation; empty if the store has no such execution."""
    status: str = ""
    """Status after the operation: that of the new execution if the operation started one."""
    new_id: str = ""
    """Id of the new execution if the operation started one, otherwise empty."""
    error: DivebookError | None = None
    """Error of the operation, or None if it succeeded."""


def annotating(
    *, note: str | None = None, labels: Iterable[str] = (), tags: Iterable[str] = (), untag: Iterable[str] = ()
) -> BulkOperation:
    """Return a function that adds the given annotation (tags, note, labels) to one execution; `handle_each` calls it
    for each of several executions. Raise at once if the annotation is not valid.

    Parameters
    ----------
    labels
        Texts of the form ``NAME=VALUE``, with values in YAML.
    """
    label_values = pairs("--label", labels, "--label quality=good")
    # The annotation is built only for its checks, before the first execution is changed.
    annotation(tags=tags, untagged=untag, note=note, labels=label_values)
    # The record and not the run, because an annotation starts nothing that a caller could wait for.
    return lambda run: run.annotate(note=note, labels=label_values, tags=tags, untag=untag).internals.record


def handle_each(
    environment: Environment,
    execution_ids: Iterable[str],
    operation: BulkOperation,
    *,
    wait: bool = True,
    dry_run: bool = False,
) -> list[BulkResult]:
    """Apply an operation to each of several executions; return a result for each.

    The operation is first applied to all of them; only then does this function wait for the executions that run.

    Parameters
    ----------
    wait
        True to wait for the executions that the operation returned.
    dry_run
        Only look up the executions.
    """
    # An id that occurs twice is handled once.
    results = [_apply(environment, name, operation, dry_run=dry_run) for name in dict.fromkeys(execution_ids)]
    return [_after_waiting(row, execution, wait=wait) for row, execution in results]


def _apply(
    environment: Environment, name: str, operation: BulkOperation, *, dry_run: bool
) -> tuple[BulkResult, Run | None]:
    # Until the store has resolved it, the result shows the id as the caller gave it.
    whole_id = name
    before = ""
    try:
        whole_id = environment.store.resolve(name)
        before = status_in(environment.store, whole_id)
        result = None if dry_run else operation(environment.run_of(whole_id))
    except DivebookError as error:
        return BulkResult(whole_id, before, before, error=error), None
    if not isinstance(result, Run):
        return BulkResult(whole_id, before, before), None
    # Resuming returns the same execution, a fork another one.
    new_id = result.id if result.id != whole_id else ""
    return BulkResult(whole_id, before, before, new_id), result


def _after_waiting(row: BulkResult, execution: Run | None, *, wait: bool) -> BulkResult:
    """Return the result `row` of a bulk operation with the present status of the execution that it led to. If `wait` is
    true, wait for that execution first. Without an execution, return `row` unchanged.
    """
    if execution is None:
        return row
    try:
        if wait and execution.is_live:
            execution = execution.wait()
        status = execution.status
    # The operation itself succeeded, so the result keeps its new id beside the error of the wait.
    except DivebookError as error:
        return BulkResult(row.execution_id, row.before, execution.status, row.new_id, error)
    return BulkResult(row.execution_id, row.before, status, row.new_id)
