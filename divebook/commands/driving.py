"""Commands that continue runs: ``resume``, ``fork``, ``answer``, ``signal``.

Their result is a `Drive`: a run that is still to be continued. The interface calls `Drive.begin` and waits, since each
one waits in its own way: with the live view of a cell, or with progress in a terminal and Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from divebook.commands.command import EXIT_CODES, SHELL, START, Invocation, command, option, word
from divebook.commands.control import BulkResults, BulkResultsData, bulk_data
from divebook.commands.inspection import ExecutionData, execution_data
from divebook.commands.parameters import (
    AnswersChanged,
    AnswersFile,
    AtSharedEvent,
    BoundsText,
    By,
    EarlyAnswers,
    InputsChanged,
    ModelName,
    PromptsChanged,
    ResultsChanged,
    RunId,
    RunIds,
    VariablesChanged,
)
from divebook.commands.values import read_change
from divebook.errors import DefinitionError, ExecutionNotFoundError, NotFoundError, SetupError

if TYPE_CHECKING:
    from divebook.config.answers import Answers
    from divebook.questions.bounds import Bounds
    from divebook.replay.resume_changed import ResumePlan
    from divebook.runtime.run import Run


@dataclass(frozen=True)
class Drive:
    """A run that an interface continues, shows and waits for."""

    call: Invocation
    _begin: Callable[[], Run]
    answers: Answers | None = None
    """Answers given in advance, with which the interface answers questions while it waits."""
    plan: ResumePlan | None = None
    """Plan of the results to reuse and the calls to make. The interface shows it before the run begins."""
    needs_advice: bool = True
    """False if the call names its definitions, so that an error about a missing one needs no advice."""
    asks: bool = False
    """True if a person at a terminal is to confirm the plan."""

    def begin(self) -> Run:
        """Start to continue the run, and return it at once."""
        if not self.needs_advice:
            return self._begin()
        with advising_definitions(self.call):
            return self._begin()


@contextmanager
def advising_definitions(call: Invocation) -> Iterator[None]:
    """Replace an error about a missing agent, action, tool or workflow, raised in the ``with`` block, by a `SetupError`
    that advises to name the file of definitions. Errors in a notebook, and in a call that names a file, stay.
    """
    try:
        yield
    except (DefinitionError, NotFoundError) as error:
        # A file would not help if something else is missing, such as the run or a step.
        is_missing_definition = getattr(error, "kind", "agent") in ("agent", "action", "tool", "workflow")
        if call.interface != SHELL or call.definitions is not None or not is_missing_definition:
            raise
        if isinstance(error, ExecutionNotFoundError):
            raise
        raise SetupError(
            f"{error}. A log contains the workflow, but no agents or actions; name the file that defines them with -d "
            "FILE or --actions"
        ) from error


def drive_data(run: Run) -> ExecutionData:
    """Return the run that a command has continued, after it has stopped, as plain data."""
    return execution_data(run)


class ResumePlanData(TypedDict):
    """Plan of a resumption with another definition, as JSON: reused results, and calls to make."""

    source: str
    workflow: str
    at: int
    reused: int
    kinds: dict[str, int]
    cost: float | None
    lines: list[str]


class PlannedData(TypedDict):
    """Result of ``resume --plan`` as JSON."""

    plan: ResumePlanData


def resume_data(result: Run | BulkResults | ResumePlan) -> ExecutionData | BulkResultsData | PlannedData:
    """Return a resumed run, the results of several, or a plan as plain data."""
    from divebook.runtime.run import Run

    if isinstance(result, BulkResults):
        return bulk_data(result)
    if isinstance(result, Run):
        return execution_data(result)
    return {
        "plan": {
            "source": result.source,
            "workflow": result.workflow,
            "at": result.at,
            "reused": result.reused,
            "kinds": dict(result.kinds),
            "cost": result.cost,
            "lines": list(result.lines),
        }
    }


def _exit_code_of_resumption(result: BulkResults | ResumePlan) -> int:
    """Return the exit code for several resumed runs: that of a failed run before that of a cancelled or waiting one."""
    if not isinstance(result, BulkResults):
        return 0
    if result.has_errors:
        return EXIT_CODES["failed"]
    codes = {EXIT_CODES.get(row.status, EXIT_CODES["failed"]) for row in result.rows}
    return next((code for code in (1, 130, 3) if code in codes), 0)


@command(
    "resume",
    START,
    example="resume exec_01k8",
    python="divebook.resume",
    data=resume_data,
    exit_code=_exit_code_of_resumption,
    needs_definitions=True,
    drives=True,
    waits_for_expiry=True,
    shell_help="With --definition new, the definition is read from the file in --definitions. The command prints the "
    "result, as `divebook run` does.",
)
def resume_runs(
    call: Invocation,
    runs: RunIds,
    *,
    definition: Annotated[
        Literal["new"] | None,
        option(
            "--definition",
            metavar="new",
            help="Continue as a new run with the current definition. Results are reused for all calls before the first "
            "call that differs from the recorded run, and for later calls with the same arguments. First a plan is "
            "printed.",
        ),
    ] = None,
    plan: Annotated[
        bool,
        option(
            "--plan",
            help="With --definition: only print which results would be reused and which calls would run, and their "
            "cost.",
        ),
    ] = False,
    yes: Annotated[
        bool, option("--yes", "-y", help="With --definition: start without a confirmation.", interfaces=[SHELL])
    ] = False,
    strategy: Annotated[
        Literal["from_start", "from_failure", "skip_failed"] | None,
        option(
            "--strategy",
            metavar="NAME",
            help="from_failure (default), from_start (a new run with the same inputs) or skip_failed (a fork in which "
            "failed steps count as completed).",
        ),
    ] = None,
    bounds: BoundsText = None,
    answer: EarlyAnswers = None,
    answers: AnswersFile = None,
) -> Drive | ResumePlan | BulkResults:
    """Resume runs where their logs end.

    Completed steps do not run again. With --definition new, a new run continues with the current definition. Several
    runs are resumed at the same time, and the result of each is shown.
    """
    from divebook.config.answers import answers_from, bounds_from
    from divebook.events.catalog import COMPLETED

    _require_sense(definition, strategy, plan=plan, has_bounds=bounds is not None)
    limits = bounds_from(bounds)
    early_answers = answers_from(answer or (), answers)
    if len(runs) > 1:
        is_for_one = definition is not None or strategy is not None or answer or answers
        return _resume_several(call, runs, limits, is_for_one=bool(is_for_one))
    run = call.run(runs[0])
    if call.interface == SHELL and strategy is None and definition is None and run.status == COMPLETED:
        call.print_note(f"execution {run.id} has completed; start a new run to run the workflow again")
    run = call.run(runs[0], with_definitions=True)
    if definition is not None:
        # The plan makes no calls and changes nothing.
        resume_plan = run.resume(limits, definition=definition, plan=True)
        if plan:
            return resume_plan
        return Drive(call, lambda: run.resume(limits, definition=definition), early_answers, resume_plan, asks=not yes)
    if strategy is not None:
        return Drive(call, lambda: run.retry(strategy), early_answers)
    defined = call.environment.definitions.workflows.get(run.workflow.name)
    # In a shell only the file of --definitions can define the workflow; a notebook may have defined it again in a cell.
    if defined is not None and defined.fingerprint != run.workflow.fingerprint:
        call.print_note(
            f"workflow {run.workflow.name!r} has changed since the run started; the run keeps its original definition. "
            "To continue with the new definition: --definition new"
        )
    return Drive(call, lambda: run.resume(limits), early_answers)


def _require_sense(definition: str | None, strategy: str | None, *, plan: bool, has_bounds: bool) -> None:
    """Refuse combinations of options without a meaning, before anything is started."""
    if plan and definition is None:
        raise SetupError("--plan shows the effect of --definition new; use both options together")
    if strategy is not None and (definition is not None or has_bounds):
        raise SetupError("--strategy cannot be combined with --definition or --bounds; remove them")


def _resume_several(call: Invocation, runs: list[str], bounds: Bounds | None, *, is_for_one: bool) -> BulkResults:
    """Resume several runs. Each has its own result, so that a failure of one does not stop the others."""
    from divebook.config.answers import handle_each

    if is_for_one:
        raise SetupError("--definition, --strategy, --answer and --answers apply to a single run; name only one run")
    call.add_definitions()

    def resume_one(run: Run) -> Run:
        return run.resume(bounds)

    return BulkResults(handle_each(call.environment, runs, resume_one, wait=call.waits), call.environment)


@command(
    "fork",
    START,
    example="fork exec_01k8 --at 12 --set city=Bonn",
    python="run.fork",
    data=drive_data,
    needs_definitions=True,
    drives=True,
    shell_help="`divebook show RUN --events` lists the events with their numbers and ids.",
    notebook_help="`r = %dive fork RUN --at 12 --set city=Bonn` assigns the new run to a variable. `%dive show RUN` "
    "steps through the events of the original run, with their numbers and ids.",
)
def fork(
    call: Invocation,
    run: RunId,
    *,
    at: AtSharedEvent = None,
    variables: VariablesChanged = None,
    inputs: InputsChanged = None,
    answer: AnswersChanged = None,
    result: ResultsChanged = None,
    prompt: PromptsChanged = None,
    model: ModelName = None,
) -> Drive:
    """Start a run that shares the first events of another run.

    The original run does not change. The new run continues live after the shared events.
    """
    from divebook.config.answers import change_from

    change = change_from(variables or (), result or (), prompts=prompt or ())
    source = call.run(run, with_definitions=True)
    change = read_change(source, change, inputs or (), answer or ())
    call.learn(change.variables, change.inputs)
    return Drive(call, lambda: source.fork(at, change, model=model))


@command(
    "answer",
    START,
    example="answer ask_1f0c retry",
    python="divebook.answer",
    data=drive_data,
    needs_definitions=True,
    drives=True,
)
def answer_question(
    call: Invocation,
    question: Annotated[str, word("QUESTION", "Id of the question, as shown by inbox.", completes="question")],
    response: Annotated[
        str,
        word(
            "ANSWER",
            "Answer: a string, yes or no, a number, or data in YAML or JSON, as required by the question (see inbox).",
            completes="choice",
            takes_object=True,
        ),
    ],
    *,
    result: Annotated[
        str | None, option("--result", metavar="JSON", help="With the answer done: the result of the call, in JSON.")
    ] = None,
    as_: Annotated[
        Literal["auto", "text", "json"],
        option(
            "--as",
            metavar="auto|text|json",
            help="Form of ANSWER. auto: data if the question asks for data, otherwise text.",
        ),
    ] = "auto",
    alike: Annotated[
        bool, option("--alike", help="Give the same answer to all similar open questions of the step, in all runs.")
    ] = False,
    by: By = None,
) -> Drive:
    """Answer a question, and continue its run.

    The answer "no" can give a reason: "no: not today". An answer can also contain data, as inbox shows: changed
    arguments, '{approved: true, data: {parameters: {host: h9}}}', or a rule that allows similar calls,
    '{approved: true, data: {rule: {scope: always}}}'.
    """
    from divebook.config.answers import typed_answer
    from divebook.text.format import plural

    value: Any = response
    # An object of the notebook is the answer itself. A text is interpreted according to the question.
    if isinstance(value, str):
        value = typed_answer(value, as_, result)
    elif as_ != "auto" or result is not None:
        raise SetupError(
            f"the answer is already a {type(response).__name__}; --as and --result apply only to strings, so remove "
            "them"
        )

    def send() -> Run:
        environment = call.environment
        call.add_definitions()
        if not alike:
            return environment.answer(question, value, by=by)
        first, *other_runs = environment.answer(question, value, alike=True, by=by)
        if other_runs:
            call.print_note(f"the same answer continues {plural(len(other_runs), 'other run')}")
        # A shell ends with the command, so that it waits for all runs. The first one is shown.
        if call.interface == SHELL:
            for other in other_runs:
                other.wait()
        return first

    return Drive(call, send)


@command(
    "signal",
    START,
    example="signal exec_01k8 approved '{by: ann}'",
    python="run.signal",
    data=drive_data,
    needs_definitions=True,
    drives=True,
)
def signal(
    call: Invocation,
    run: RunId,
    name: Annotated[str, word("NAME", "Name of the signal, as in the step.")],
    payload: Annotated[
        str | None, word("PAYLOAD", "Data of the signal in YAML or JSON. Plain words are a string.", takes_object=True)
    ] = None,
    *,
    by: By = None,
) -> Drive:
    """Send a signal to a run, and continue it."""
    from divebook.definitions.yaml_text import value_typed
    from divebook.engine.state import kept_until_taken

    value = value_typed(payload) if isinstance(payload, str) else payload

    def send() -> Run:
        call.add_definitions()
        receiver = call.run(run)
        # The text says that no step waits for this signal yet, which is kept until one does. A misspelled name would
        # be stored without an effect.
        if (text := kept_until_taken(receiver.state, name)) is not None:
            call.print_note(text)
        return receiver.signal(name, value, by)

    return Drive(call, send)
