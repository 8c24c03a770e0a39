"""Subcommands ``run``, ``resume``, ``fork``, ``answer`` and ``signal``: drive an execution and wait for it."""

from __future__ import annotations

import os
import signal as signal_signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import typer

from divebook.cli.options import (
    Actions,
    Agents,
    Answer,
    AnswersChanged,
    AnswersFile,
    BoundsText,
    By,
    Code,
    Durability,
    ExecutionId,
    InputsChanged,
    Json,
    ModelName,
    Note,
    OnConflict,
    PromptsChanged,
    Quiet,
    ResultsChanged,
    Store,
    Strict,
    Tags,
    VariablesChanged,
    Waits,
    command,
    number_option,
    ways_on,
)
from divebook.cli.output import note, say, secrets
from divebook.definitions.dialect import OWN, Dialect
from divebook.errors import (
    AnswerKeptError,
    ConcurrentAppendError,
    DefinitionError,
    ExecutionError,
    ExecutionNotFoundError,
    FencedError,
    NotFoundError,
    SetupError,
)
from divebook.events.catalog import COMPLETED, WAITING
from divebook.interrupts import interruptible_wait
from divebook.text.format import plural
from divebook.text.ranges import INTEGER

if TYPE_CHECKING:
    from divebook.cli.result import Progress
    from divebook.config.answers import Answers
    from divebook.definitions.definition import Workflow
    from divebook.environments.environment import Environment
    from divebook.environments.starts import StartOptions
    from divebook.replay.resume_changed import ResumePlan
    from divebook.runtime.run import Run


# Ctrl-C while an execution runs: the first cancels it durably, the second leaves at once.


# 128 + SIGINT, as shells report it.
INTERRUPTED = 130


class Interrupts:
    """Context manager that handles keyboard interrupts (Ctrl-C): the first one cancels the execution, the second one
    ends the process.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.count = 0
        self._say = say
        self._lock = threading.Lock()
        self._execution: Run | None = None
        self._restore: list[Callable[[], Any]] = []

    def __enter__(self) -> Self:
        # Only the main thread can set signal handlers.
        if threading.current_thread() is threading.main_thread():
            self._take_over()
        return self

    def _take_over(self) -> None:
        # A thread reads the signals from a socket pair, to whose other end Python writes the number of each signal. The
        # main thread cannot handle them: it waits for a lock, and would notice a signal from just before only
        # afterwards. Also, a KeyboardInterrupt could be raised when an execution has started and its id is not known
        # yet (`tests/cli/test_process.py` interrupts real processes).
        ours, signals = socket.socketpair()
        signals.settimeout(0)  # required by set_wakeup_fd: a full buffer must not block
        listener = threading.Thread(target=self._listen, args=(ours,), name="divebook-interrupts", daemon=True)
        # The handler does nothing: it only prevents KeyboardInterrupt.
        handler = signal_signal.signal(signal_signal.SIGINT, lambda *_: None)
        wakeup = signal_signal.set_wakeup_fd(signals.fileno(), warn_on_full_buffer=False)
        # The order matters: no signal is written any more, the old handler is back, then the closed socket ends `recv`
        # in the thread, and the thread ends before its own socket is closed.
        self._restore = [
            lambda: signal_signal.set_wakeup_fd(wakeup),
            lambda: signal_signal.signal(signal_signal.SIGINT, handler),
            signals.close,
            listener.join,
            ours.close,
        ]
        listener.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for undo in self._restore:
            undo()

    def guard(self, execution: Run) -> None:
        """Set the execution that a keyboard interrupt (Ctrl-C) cancels. If Ctrl-C was already pressed, cancel the
        execution at once.
        """
        # Ctrl-C may be pressed before the execution has an id. The lock orders both: whichever comes second cancels.
        with self._lock:
            self._execution = execution
            if self.count:
                self._cancel(execution)

    def _listen(self, signals: socket.socket) -> None:
        # An empty result means that the other end was closed.
        while number := signals.recv(1):
            if number[0] == signal_signal.SIGINT:
                self._interrupted()

    def _interrupted(self) -> None:
        with self._lock:
            self.count += 1
            if self.count > 1:
                self._leave()
            elif self._execution is not None:
                self._cancel(self._execution)

    def _cancel(self, execution: Run) -> None:
        self._say("cancelling; press Ctrl-C again to leave at once")
        with suppress(ExecutionError):  # it ended by itself a moment ago
            execution.cancel()

    def _leave(self) -> None:
        again = f": divebook resume {self._execution.id}" if self._execution else ""
        self._say(f"left at once; it can be resumed{again}")
        sys.stderr.flush()
        os._exit(INTERRUPTED)  # a blocking action would delay a normal exit


# --- waiting for an execution and its successors ---------------------------------------------------------------------

MAX_WAIT = 1.0
"""Seconds after which a waiting execution is checked again, even without a notification from the store."""


def finish(
    start: Callable[[], Run],
    environment: Environment,
    progress: Progress,
    answers: Answers | None = None,
    *,
    waits: bool | None = False,
) -> tuple[Run, bool]:
    """Start an execution with the function `start`, and wait until it and all its successors have ended or wait for a
    person.

    Parameters
    ----------
    waits
        Whether to wait until questions with a default expire. None waits only without a terminal to ask a person,
        and not for a question that is asked during a call.

    Returns
    -------
    tuple
        The last execution, and whether Ctrl-C was pressed.
    """
    # Before the start, so that no step is missed.
    progress.watch(environment.store)
    with Interrupts(progress.print) as interrupts:
        execution = start()
        # One pass for each execution of a chain, and for each wait for news.
        while True:
            # Ctrl-C cancels the execution that runs now, and not its predecessor.
            interrupts.guard(execution)
            # Inputs and variables of a successor may contain other secrets.
            secrets.learn(execution.state.inputs, execution.state.variables)
            try:
                if execution.was_driven or execution.state.is_over:  # otherwise another process drives it
                    execution = execution.wait() if answers is None else answers.settle(execution)
            except (ConcurrentAppendError, FencedError):
                # The append or the lease was lost to another process. If the execution has ended since, that process
                # cancelled it; otherwise the error is real.
                if environment.store.record(execution.id).ended_at is None:
                    raise
                execution = _as_recorded(environment, execution)  # another process cancelled it
            if _continues_alone(execution, waits=waits):
                _wait_for_news(execution)
                # The news may have changed the status, so that the loop begins again.
                continue
            successor = execution.successor
            if successor is None:
                for key in () if answers is None else answers.unused:
                    progress.print(f"the answer for {key!r} was not needed: no question of that name was asked")
                return execution, bool(interrupts.count)
            execution = successor


def with_children(execution: Run) -> Iterator[Run]:
    """Yield an execution and all its descendants (children, their children, and so on)."""
    yield execution
    for child in execution.children:
        yield from with_children(child)


def has_terminal() -> bool:
    """Return whether standard input is a terminal, so that a person can type answers."""
    return sys.stdin.isatty()


def _continues_alone(execution: Run, *, waits: bool | None) -> bool:
    """Return whether an execution will continue without an answer from a person, so that the command keeps waiting for
    it.

    That is the case if it or a child has a question with a default that expires, or if a child is still running.
    """
    from divebook.runtime.manager import is_idle

    # At a terminal the command returns, so that a person can answer.
    if waits is False or (waits is None and has_terminal()):
        return False
    # A paused execution continues only when a person resumes it.
    if execution.status != WAITING or execution.state.paused is not None or not execution.was_driven:
        return False
    for family_member in with_children(execution):
        # A call is held open in this process while it asks, and is not left waiting by default.
        if family_member.is_blocked and not waits:
            continue
        for question in family_member.interrupts:
            if question.expires_us is not None and question.default is not None:
                return True
    # An execution is not idle if it sleeps, pauses before a retry, has an unread message, or if a child works.
    return not is_idle(execution.refresh().state, execution.store)


def _wait_for_news(execution: Run) -> None:
    """Wait until the log of an execution, or of one of its descendants, has a new event."""
    from divebook.stores.follow import on_change  # loads the stores, which not every command needs

    news = threading.Event()
    store = execution.store
    unsubscribe = on_change(store, lambda _: news.set())
    # After subscribing, so that an event between both is not missed.
    before = _last_sequences(execution)
    try:
        while _last_sequences(execution) == before:
            interruptible_wait(news, MAX_WAIT)
            news.clear()
    finally:
        unsubscribe()


def _last_sequences(execution: Run) -> dict[str, int]:
    """Return the sequence number of the last event of an execution and each of its descendants, by execution id."""
    return {member.id: member.refresh().state.last_sequence for member in with_children(execution)}


def _as_recorded(environment: Environment, execution: Run) -> Run:
    from divebook.environments.environment import Environment

    # The present object has the state that this process could not append to. A new environment reads the log.
    return Environment(store=environment.store).run_of(execution.id)


WAITS = 3
"""Exit code of a run that has stopped because it waits for an answer or a signal."""
STRICT = 1
"""Exit code, with ``--strict``, of a run that has stopped because it waits for an answer or a signal."""


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE|FOLDER", help="Definitions: YAML, JSON, a notebook or Python.")],
    *,
    workflow: Annotated[
        str | None, typer.Option("--workflow", "-w", metavar="NAME", help="The workflow to run.")
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", "-v", metavar="KEY=VALUE", help="An input; KEY:=JSON for lists and maps."),
    ] = None,
    code: Code = False,
    actions: Actions = None,
    store: Store = None,
    durability: Durability = None,
    bounds: BoundsText = None,
    model: ModelName = None,
    tag: Tags = None,
    note: Note = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="TEXT", help="With a key it is started once, however often asked.")
    ] = None,
    on_conflict: OnConflict = "warn",
    answer: Answer = None,
    answers: AnswersFile = None,
    wait: Waits = None,
    strict: Strict = False,
    dialect: Annotated[Dialect, typer.Option(help="dive: the legacy Dive dialect.")] = OWN,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a workflow and print its result.

    If the run has to wait for an answer, the command prints how to answer and ends with exit code 3. Without a terminal
    it waits for a question with ExpiresIn and Default, and continues with the Default when the question expires;
    --no-wait returns at once. Ctrl-C cancels the run, which can be resumed.
    """
    from divebook.cli.project import add_definitions, choose_workflow, inputs_from, open_environment
    from divebook.cli.result import make_progress
    from divebook.config.answers import answers_from, bounds_from

    # Wrong arguments are reported before a store is opened or created.
    values = inputs_from(inputs or ())
    limits = bounds_from(bounds)
    secrets.learn(values)
    prepared_answers = answers_from(answer or (), answers)
    with make_progress(quiet=quiet) as progress:
        environment = open_environment(store, actions or (), progress.print)
        add_definitions(environment, file, dialect, code=code)
        chosen = choose_workflow(environment, workflow, file)
        options: StartOptions = {
            # Values of the command line are texts, which the types of the workflow convert.
            "coerce_text": True,
            "durability": durability,
            "bounds": limits,
            "model": model,
            "tags": tag,
            "note": note,
            "key": key,
            "on_conflict": on_conflict,
        }
        started = partial(environment.start, chosen, values, **options)
        ended = finish(started, environment, progress, prepared_answers, waits=wait)
    conclude(*ended, [str(file), *repeated_options(actions, store, code=code)], json=json, strict=strict)


def fork(
    execution_id: ExecutionId,
    file: Agents = None,
    *,
    at: Annotated[
        int | None,
        number_option(
            "--at",
            allowed=INTEGER,
            help="The last event it shares; else all before what changes.",
        ),
    ] = None,
    variables: VariablesChanged = None,
    inputs: InputsChanged = None,
    answer: AnswersChanged = None,
    result: ResultsChanged = None,
    prompt: PromptsChanged = None,
    code: Code = False,
    actions: Actions = None,
    store: Store = None,
    model: ModelName = None,
    strict: Strict = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Start an execution that shares the first events of another one.

    The other execution does not change. `divebook show ID --events` lists numbers and ids of events.
    """
    from divebook.cli.project import environment_for, existing_store
    from divebook.cli.result import make_progress
    from divebook.config.answers import change_from

    existing_store(store)
    change = change_from(variables or (), inputs or (), answer or (), result or (), prompts=prompt or ())
    secrets.learn(change.variables, change.inputs)
    with make_progress(quiet=quiet) as progress:
        environment = environment_for(execution_id, file, actions, store, progress.print, code=code)
        # `partial`, because the execution is started inside `finish`, where Ctrl-C is already handled.
        begin = partial(environment.run_of(execution_id).fork, at, change, model=model)
        forked = partial(hint_to_name_file, begin, "fork", file)
        ended = finish(forked, environment, progress)
    # The commands that are printed at the end repeat the file and the options of this one.
    names = [] if file is None else [str(file)]
    conclude(*ended, [*names, *repeated_options(actions, store, code=code)], json=json, strict=strict)


def answer(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="The question, as inbox names it.")],
    response: Annotated[
        str, typer.Argument(metavar="ANSWER", help="A text, yes or no, a number, data in YAML or JSON: as inbox says.")
    ],
    file: Agents = None,
    *,
    result: Annotated[
        str | None, typer.Option("--result", metavar="JSON", help="With done: what the call returned.")
    ] = None,
    as_: Annotated[
        Literal["auto", "text", "json"],
        typer.Option("--as", help="How ANSWER is read; auto: as data where the question asks for data, else as text."),
    ] = "auto",
    alike: Annotated[
        bool, typer.Option("--alike", help="The same answer for all open questions that the step asks alike.")
    ] = False,
    by: By = None,
    code: Code = False,
    actions: Actions = None,
    store: Store = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Answer a question and resume its execution.

    A no may give a reason: "no: not today". An answer can also contain data, as inbox shows it: other arguments,
    '{approved: true, data: {parameters: {host: h9}}}', or a rule that allows more calls like this one, '{approved:
    true, data: {rule: {scope: always}}}'.
    """
    from divebook.config.answers import typed_answer

    value = typed_answer(response, as_, result)

    def send(environment: Environment) -> Run:
        if not alike:
            return environment.answer(question, value, by=by)
        first, *other_runs = environment.answer_alike(question, value, by)
        # The first execution is waited for by `finish`, with its progress.
        for other in other_runs:
            other.wait()
        if other_runs:
            note(f"the same answer continues {plural(len(other_runs), 'other run')}")
        return first

    _carry_on(send, file, actions, store, code=code, json=json, quiet=quiet)


def signal(
    execution_id: ExecutionId,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the signal, as the step has it.")],
    payload: Annotated[
        str | None, typer.Argument(metavar="PAYLOAD", help="In YAML or JSON; plain words are a text.")
    ] = None,
    file: Agents = None,
    *,
    by: By = None,
    code: Code = False,
    actions: Actions = None,
    store: Store = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Send a signal to an execution and resume it."""
    from divebook.definitions.yaml_text import value_typed
    from divebook.engine.state import kept_until_taken

    value = None if payload is None else value_typed(payload)

    def send(environment: Environment) -> Run:
        # The text says that no step waits for this signal yet, which is kept until one does.
        if (text := kept_until_taken(environment.run_of(execution_id).state, name)) is not None:
            note(text)
        return environment.signal(execution_id, name, value, by)

    _carry_on(send, file, actions, store, code=code, json=json, quiet=quiet)


def _carry_on(
    send: Callable[[Environment], Run],
    file: Path | None,
    actions: list[str] | None,
    store: str | None,
    *,
    code: bool,
    json: bool,
    quiet: bool,
) -> None:
    """Call the function `send`, which answers a question of an execution or sends it a signal. Then wait until the
    execution ends or waits again, and print its result.
    """
    from divebook.cli.project import add_definitions, existing_store, open_environment
    from divebook.cli.result import make_progress

    existing_store(store)
    # Computed before the call, because the error needs it as well.
    again = [*([] if file is None else [str(file)]), *repeated_options(actions, store, code=code)]
    try:
        with make_progress(quiet=quiet) as progress:
            environment = open_environment(store, actions or (), progress.print)
            if file is not None:
                add_definitions(environment, file, code=code)
            ended = finish(lambda: send(environment), environment, progress)
    # The answer is stored, and the execution continues when its agents and actions are there.
    except AnswerKeptError as error:
        note(str(error), "yellow")
        needed = again if file is not None else ["FILE", *again]
        note(f"to continue: {command('resume', [error.execution_id], needed)}", "yellow")
        raise typer.Exit(WAITS) from error
    conclude(*ended, again, json=json)


def hint_to_name_file(begin: Callable[[], Run], command_name: str, file: Path | None) -> Run:
    """Start an execution by calling `begin`. If an agent or action is missing and the command line names no file of
    definitions, raise `SetupError` with the advice to name the file.
    """
    try:
        return begin()
    # A subclass of `NotFoundError`, about which a file of agents says nothing.
    except ExecutionNotFoundError:
        raise
    except (DefinitionError, NotFoundError) as error:
        if file is not None:
            raise
        raise SetupError(
            f"{error}. A log holds the workflow, not agents and actions: "
            f"name their file (divebook {command_name} ID FILE) or --actions"
        ) from error


def repeated_options(actions: Sequence[str] | None, store: str | None, *, code: bool) -> list[str]:
    """Return those options of the running command (``--code``, ``--actions``, ``--store``) that a later command must
    repeat to resume the execution.
    """
    options = ["--code"] if code else []
    for source in actions or ():
        options += ["--actions", source]
    if store:
        options += ["--store", store]
    return options


def conclude(
    execution: Run,
    interrupted: bool,  # noqa: FBT001
    again: Sequence[str],
    *,
    json: bool,
    strict: bool = False,
) -> None:
    """End a command that drove an execution: print its result and the commands with which a person can continue it, and
    exit with the exit code of its status.
    """
    from divebook.cli.result import print_result

    code = print_result(execution, json=json)
    is_kept = execution.store.keeps
    # Without ways to continue: point to `show` if another process drives the execution, else to `resume` if it failed.
    # The code of --strict replaces others, and that of an interrupt replaces every code but 0.
    is_elsewhere = not (execution.was_driven or execution.state.is_over)
    # A store in memory ends with the process, so that no command could continue.
    ways = [line for each in with_children(execution) for line in ways_on(each, again)] if is_kept else []
    for line in ways:
        note(line, "yellow")
    for each in with_children(execution):
        # The call cannot wait in another process. It is made again, and then finds the answer.
        if each.is_blocked:
            note("the tool call that asks is cut off when this command ends; the answer is used when it is made again")
            each.leave()
    if is_elsewhere:
        code = WAITS
        # `--store` and its value are the last two options.
        look = command("show", [execution.id], again[-2:] if "--store" in again else ())
        note(
            f"it is stored; another process drives the execution and continues it. To see its status: {look}",
            "yellow",
        )
    elif code and is_kept and not ways:
        note(f"to continue: {command('resume', [execution.id], again)}", "yellow")
    if strict and execution.status == WAITING:
        note("error: it has to wait for an answer or a signal, which --strict does not allow", "bold red")
        code = STRICT
    raise typer.Exit(INTERRUPTED if code and interrupted else code)


# ``divebook resume``: where a log ends, with a corrected definition, or in one of the ways to try again.


def resume(
    execution_id: ExecutionId,
    file: Agents = None,
    actions: Actions = None,
    store: Store = None,
    *,
    definition: Annotated[
        Literal["new"] | None,
        typer.Option("--definition", help="new: continue with the definition in FILE, as a new execution."),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="With --definition: only say what would be reused and done, and its cost.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --definition: do not ask before it begins.")] = False,
    strategy: Annotated[
        Literal["from_start", "from_failure", "skip_failed"] | None,
        typer.Option("--strategy", help="How to try again; skip_failed: failed steps count as done, in a fork."),
    ] = None,
    code: Code = False,
    bounds: BoundsText = None,
    answer: Answer = None,
    answers: AnswersFile = None,
    wait: Waits = None,
    strict: Strict = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Resume an execution where its log ends.

    Completed steps do not run again. With --definition new, a new execution continues with a corrected definition; the
    command first prints which results are reused, which calls are made, and the likely cost. Prints the result, as run
    does.
    """
    from divebook.cli.project import add_definitions, existing_store, open_environment
    from divebook.cli.result import make_progress
    from divebook.config.answers import answers_from, bounds_from

    _require_sense(definition, strategy, plan=plan, has_bounds=bounds is not None)
    existing_store(store)
    limits = bounds_from(bounds)
    prepared_answers = answers_from(answer or (), answers)
    # Not entered yet: a live list would overwrite the question of the plan.
    progress = make_progress(quiet=quiet)
    environment = open_environment(store, actions or (), progress.print)
    if strategy is None and environment.run_of(execution_id).status == COMPLETED:
        raise ExecutionError(f"execution {execution_id} has completed; start a new one to run the workflow again")
    if file is not None:
        # The file is read in the dialect of the workflow that is resumed.
        recorded = environment.run_of(execution_id).workflow
        add_definitions(environment, file, recorded.dialect, code=code)
        if definition is None:
            _print_changes(environment, recorded, progress)
    if definition is not None:
        # The plan makes no calls and changes nothing.
        resume_plan = environment.run_of(execution_id).resume(limits, definition=definition, plan=True)
        _show(resume_plan, print_line=say if plan else note, asks=not (plan or yes))
    if plan:
        return
    with progress:
        run = environment.run_of(execution_id)
        resumed = partial(run.resume, limits, definition=definition)
        begin = resumed if strategy is None else partial(run.retry, strategy)
        ended = finish(
            partial(hint_to_name_file, begin, "resume", file), environment, progress, prepared_answers, waits=wait
        )
    names = [] if file is None else [str(file)]
    conclude(*ended, [*names, *repeated_options(actions, store, code=code)], json=json, strict=strict)


def _require_sense(definition: str | None, strategy: str | None, *, plan: bool, has_bounds: bool) -> None:
    if plan and definition is None:
        raise SetupError("--plan says what --definition new would do; give both")
    if strategy is not None and (definition is not None or has_bounds):
        raise SetupError("--strategy goes with neither --definition nor --bounds; leave those out")


def _show(resume_plan: ResumePlan, *, print_line: Callable[[str], None], asks: bool) -> None:
    """Print which recorded results an execution reuses and which calls it makes again if it is resumed with another
    definition. With `asks`, ask the person at the terminal for confirmation; a refusal ends the command.
    """
    for line in resume_plan.lines:
        print_line(line)
    # Without a terminal, no person can confirm; the option --definition is then the confirmation.
    if asks and sys.stdin.isatty():
        typer.confirm("Continue?", abort=True, err=True)


def _print_changes(environment: Environment, recorded: Workflow, progress: Progress) -> None:
    defined = environment.workflows.get(recorded.name)
    if defined is not None and defined.fingerprint != recorded.fingerprint:
        progress.print(
            f"workflow {recorded.name!r} has changed since; the execution keeps the definition it was started with. "
            "To continue with the new one: --definition new"
        )
