"""The class `Run`: handle of one execution in notebooks and scripts, with its display and its saved data."""

from __future__ import annotations

import asyncio
import contextvars
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

from divebook.definitions.resources import NOTEBOOK_DATA, Config
from divebook.engine.forks import Change
from divebook.engine.lifecycle import TERMINAL
from divebook.engine.state import ExecutionState, awaited_signals
from divebook.environments.environment import Environment
from divebook.environments.starts import StartOptions, restart_of
from divebook.environments.variants import FROM_FAILURE, NEW, DefinitionLike
from divebook.errors import ExecutionError, ExecutionWaitingError, LeaseHeldError, NotFoundError, StoreError
from divebook.events import Event
from divebook.events.catalog import COMPLETED, FAILED, WAITING
from divebook.events.recorded import garbage_collection_paused
from divebook.notebook.shell_state import shows_widgets
from divebook.notebook.view_output import PAGES, ViewOutput
from divebook.projections.comparison import Comparison
from divebook.projections.log_frames import FramedLog
from divebook.questions import Question
from divebook.runtime.execution import Execution, ReadExecution
from divebook.stores.history import History
from divebook.text.passwords import looks_secret
from divebook.text.redaction import one_line
from divebook.widgets.feed import Feed
from divebook.widgets.protocol import Delta, Header, Way
from divebook.widgets.publisher import Publisher, publisher_of
from divebook.widgets.recording import MAX_EVENTS, MIME, saved_run
from divebook.widgets.source import awaited_from_outside
from divebook.widgets.views import Handlers

if TYPE_CHECKING:
    from divebook.config.answers import Answers
    from divebook.definitions.definition import Workflow
    from divebook.environments.variants import ChangeLike, StepChanges, TrialOptions
    from divebook.notebook.view_output import RunReplay
    from divebook.projections.failures import Failure
    from divebook.replay.files import KeptFiles
    from divebook.replay.resume_changed import ResumePlan
    from divebook.replay.trial import StepTrial
    from divebook.replay.verify import Verification
    from divebook.replay.what_if import Plan, RepeatedWhatIf, WhatIf
    from divebook.widgets.protocol import TakingOver
    from divebook.widgets.views import LiveView


VARIABLE = "DIVEBOOK_NOTEBOOK_DATA"
ON, OFF = NOTEBOOK_DATA
POLL_INTERVAL = 0.1
"""Seconds between two checks while a run is awaited. Without checks, an idle event loop would not notice interrupts."""


# --- the data of a run in its output ---------------------------------------------------------------------------------
#
# The MIME type is ``application/vnd.divebook.run+json``, beside text and HTML. The data contain everything that a
# replay needs (definition, events, states, questions and answers, numbers of the header). The notebook alone can replay
# the run: in JupyterLab by divebook's extension, in Python by `divebook.open_notebook`.
#
# The size is at most 256 kB. For larger runs, long texts are cut first, then events are sampled; all failures and
# questions stay, and the data name the store with the whole log. Secrets are removed by `divebook.text.redaction`.
# ``DIVEBOOK_NOTEBOOK_DATA=off``, ``NotebookData: off`` in a definition's ``Config``, and ``%dive run --no-data`` (for
# one run) switch the data off.


def data_of(
    execution: Execution, log: Sequence[Event], config: Config, *, next_step: str = "", enabled: bool | None = None
) -> dict[str, Any]:
    """Return the data from which a notebook can replay a run without its store, by MIME type. Empty if the settings
    switch this data off, or if the log is damaged or empty.

    `enabled` overrides the settings.
    """
    # `enabled` is the option of one run (``--no-data``), which takes precedence over environment variable and
    # definition.
    if enabled is False or (enabled is None and _data_setting(config) == OFF):
        return {}
    # A damaged log has no certain states. A run without events has nothing to replay.
    if execution.damage is not None or not execution.state.last_sequence:
        return {}
    return {MIME: saved_run(execution, log, sent_secrets(config), next_step=next_step)}


def _data_setting(config: Config) -> str:
    """Return the setting that decides whether notebooks contain the data of runs: ``on`` or ``off``.

    Raises `NotFoundError` if the environment variable has another value.
    """
    setting = os.environ.get(VARIABLE) or config.notebook_data or ON
    if setting not in NOTEBOOK_DATA:
        raise NotFoundError("setting for notebook data", setting, NOTEBOOK_DATA, f"{VARIABLE} cannot be {setting!r}")
    return setting


def sent_secrets(config: Config) -> Iterator[str]:
    """Yield the secrets in the settings of model providers: the values of all request headers whose name
    sounds secret.
    """
    for provider in config.providers:
        # Only values of headers such as ``Authorization``. ``User-Agent`` and the like are not secret.
        for name, values in provider.request_headers.items():
            if looks_secret(name):
                yield from values


class Run(ReadExecution):
    """Handle of one execution of a workflow, running or past, with a display for notebooks and terminals.

    `divebook.run` and ``%dive run`` return it. Waiting works equally in a cell and in a script.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow
    >>> environment = Environment(store="memory:")
    >>> run = Run(environment.start(Workflow("sum", [Step("add", script="1 + 1", store="n")])), environment)
    >>> run.wait().status, run.variables
    ('completed', {'n': 2})
    """

    def __init__(self, execution: Execution, environment: Environment, answers: Answers | None = None) -> None:
        self._execution = execution
        self._environment = environment
        self._answers = answers
        self.shown_in: int | None = None
        """Execution count of the cell that already shows the run; None if no cell shows it."""
        self.remark = ""
        """Note for people about the run, for example that it was not run again."""
        self.keeps_data: bool | None = None
        """True if the output of the run contains its data; None to follow ``DIVEBOOK_NOTEBOOK_DATA`` and the Config."""
        self.strict = False
        """True if `wait` raises an error when the run has to wait for an answer or a signal."""

    # --- the execution -----------------------------------------------------------------------------------------------

    @property
    def execution(self) -> Execution:
        """The execution of which this object is a handle."""
        return self._execution

    @property
    def environment(self) -> Environment:
        """The environment that runs the execution."""
        return self._environment

    @property
    def state(self) -> ExecutionState:
        """State of the execution after all events that were read from its log; an immutable object."""
        return self._execution.state

    @property
    def asked(self) -> dict[str, Question]:
        """All questions that the run has asked, open or not, by id, the oldest first."""
        return self._execution.asked

    @property
    def interrupts(self) -> list[Question]:
        """The open questions of the run, the oldest first."""
        return self._execution.interrupts

    def _log(self) -> History:
        return self._execution.history()

    # --- actions ----------------------------------------------------------------------------------------

    @property
    def chain(self) -> list[str]:
        """Ids of the execution and its successors, from first to last; usually only this execution.

        ``divebook.frames(run.environment.store, where={"chain": run.id})`` reads all of them as one run.
        """
        return self._execution.chain

    def wait(self, timeout: float | None = None, *, check: bool = False) -> Self:
        """Wait until the run has ended, or waits for an answer; return this handle.

        An interrupt of the kernel ends the waiting, not the run. Use `cancel` to end the run.

        Parameters
        ----------
        timeout
            Seconds, after which a TimeoutError is raised. The run continues.
        check
            Raise ExecutionFailedError or ExecutionCancelledError unless the run completed.

        Raises
        ------
        ExecutionWaitingError
            The handle is `strict`, and the run has to wait for an answer or a signal.
        """
        # The first call waits until the run stops. Answers given in advance may then continue it, several times.
        self._execution.wait(timeout)
        if self._answers is not None:
            self._answers.settle(self._execution)
        if check:
            # It has stopped, so that this call only raises its error.
            self._execution.wait(check=True)
        return self._checked_strictly()

    def __await__(self) -> Generator[Any, None, Self]:
        """Wait like `wait` on any asyncio loop, including the kernel's; return this handle."""
        # `__await__` must return an iterator, which a coroutine provides.
        return self._wait_async().__await__()

    async def _wait_async(self) -> Self:
        waiter = asyncio.ensure_future(_wait(self._execution, self._answers))
        # A waiting loop would not notice an interrupt until the run stops. The timeout wakes it up.
        while not waiter.done():
            await asyncio.wait((waiter,), timeout=POLL_INTERVAL)
        # `result` raises the error of the waiter.
        waiter.result()
        return self._checked_strictly()

    def _checked_strictly(self) -> Self:
        if self.strict and self.status == WAITING:
            raise waiting_error(self._execution)
        return self

    @property
    def unused_answers(self) -> tuple[str, ...]:
        """Keys of the answers given in advance that no question of the run has used."""
        return () if self._answers is None else self._answers.unused

    def pause(self) -> Self:
        """Pause the run: no more steps start until it is resumed. Returns at once; `wait` until it is paused."""
        self._execution.pause()
        return self

    def compare(self, other: FramedLog | str, *more: FramedLog | str) -> Comparison:
        """Compare the run with other runs, or with executions of its store by id; the first difference comes first.

        As the last value of a cell the result shows both runs side by side; see `divebook.compare`.
        """
        return self._environment.compare(self, other, *more)

    def what_if(
        self, change: ChangeLike = None, at: int | None = None, **options: Any
    ) -> WhatIf | RepeatedWhatIf | Plan:
        """Run the execution once more with one change, answered from its log; see `divebook.Environment.what_if`."""
        result: WhatIf | RepeatedWhatIf | Plan = self._environment.what_if(self.id, change, at, **options)
        return result

    def try_step(
        self, step: str, changes: StepChanges = None, *, times: int = 1, **options: Unpack[TrialOptions]
    ) -> StepTrial:
        """Run one step of the run again with its recorded state, as a trial; see `Environment.try_step`."""
        return self._environment.try_step(self.id, step, changes, times=times, **options)

    def refresh(self) -> Self:
        """Read the events that another process has added to the log; return this handle."""
        self._execution.refresh()
        return self

    def cancel(self) -> Self:
        """Cancel the run; it can be resumed later. Returns at once; `wait` for the end."""
        self._environment.cancel(self.id)
        return self

    @overload
    def resume(self, *, definition: DefinitionLike | None = None) -> Self: ...

    @overload
    def resume(self, *, definition: DefinitionLike, plan: Literal[True]) -> ResumePlan: ...

    def resume(self, *, definition: DefinitionLike | None = None, plan: bool = False) -> Self | ResumePlan:
        """Resume the run where its log ends. Returns at once; `wait` for the end.

        With ``definition="new"`` a new execution starts, and this handle then refers to it. The new execution uses the
        current definition, and reuses all recorded calls that this definition makes too. With ``plan=True`` only the
        plan is returned, and nothing runs. See `Environment.resume`.
        """
        if plan:
            # The two calls differ in the overload that the type checker chooses.
            resume_plan: ResumePlan = self._environment.resume(self.id, definition=definition or NEW, plan=True)
            return resume_plan
        # The handle follows its execution: with a new definition this is another one.
        self._execution = self._environment.resume(self.id, definition=definition)
        return self

    def retry(self, strategy: str = FROM_FAILURE) -> Self:
        """Retry a failed run: ``from_start``, ``from_failure`` or ``skip_failed``; see `Environment.retry`."""
        self._execution = self._environment.retry(self.id, strategy)
        return self

    def fork(
        self,
        at: int | None = None,
        change: Change | Mapping[str, Any] | None = None,
        **options: Unpack[StartOptions],
    ) -> Run:
        """Return a new run that shares the first events and continues live after them; see `Environment.fork`."""
        return Run(self._environment.fork(self.id, at, change, **options), self._environment)

    def again(self) -> Self:
        """Start a new execution with the same inputs and the current definition. Returns at once.

        This handle then refers to the new execution. It gets the options of the old execution, so that the cell finds
        it when the cell runs again.
        """
        workflow, inputs, options = restart_of(self._execution, self._environment.workflows)
        self._execution = self._environment.start(workflow, inputs, **options)
        return self

    def answer(self, interrupt_id: str, response: Any, by: str | None = None) -> Self:
        """Answer a question of the run. The run continues at once; `wait` for the end."""
        # The answer may have resumed the run, which creates a new object for the same log.
        self._execution = self._environment.answer(interrupt_id, response, self.id, by)
        return self

    def signal(self, name: str, payload: Any = None, by: str | None = None) -> Self:
        """Send a signal to the run. If the run waits for this signal, it continues at once; `wait` for the end."""
        self._execution = self._environment.signal(self.id, name, payload, by)
        return self

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags of the run, by which lists can be filtered."""
        return self._environment.store.record(self.id).tags

    def tag(self, *tags: str) -> Self:
        """Add tags to the run, also after its end; see `divebook.Environment.annotate`."""
        self._environment.tag(self.id, *tags)
        return self

    def untag(self, *tags: str) -> Self:
        """Remove tags of the run."""
        self._environment.untag(self.id, *tags)
        return self

    def note(self, text: str) -> Self:
        """Set the note of the run, also after its end; an empty text removes the note."""
        self._environment.note(self.id, text)
        return self

    def label(self, **labels: Any) -> Self:
        """Set labels of the run, also after its end: ``run.label(quality="good")``; the value None removes a label."""
        self._environment.label(self.id, **labels)
        return self

    # --- display and export ------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"<Run {self.id} of {self._execution.workflow.name!r}: {self._execution.standing}>"

    def __str__(self) -> str:
        from divebook.notebook.report import as_text, report_of

        return as_text(report_of(self._execution, self._execution.history()))

    def view(self) -> LiveView:
        """Return a live view of the run as an anywidget, for front ends that display widgets themselves.

        In marimo a run as the last value of a cell is enough; `marimo.ui.anywidget(run.view())` has the same effect.
        """
        return view_of(self)

    def _display_(self) -> LiveView:
        """Return the live view of the run, as the widget that marimo displays."""
        return self.view()

    def _ipython_display_(self) -> None:
        """Display nothing if this cell already shows the run; else let IPython display the MIME bundle."""
        from IPython.core.getipython import get_ipython

        shell = get_ipython()
        # IPython calls this method first. NotImplementedError means that it shall use the MIME bundle.
        if self.shown_in is None or shell is None or self.shown_in != shell.execution_count:
            raise NotImplementedError

    def _repr_html_(self) -> str:
        # The method returns HTML only, so the data are not collected.
        return str(self.static_bundle(with_data=False)["text/html"])

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """Return the report of the run, and the data for its replay, by MIME type."""
        return self.static_bundle()

    def static_bundle(self, *, with_data: bool = True) -> dict[str, Any]:
        """Return the report of the run as text and HTML, and the data for its replay, by MIME type. `with_data` omits
        this data if False.

        They need no kernel and no trusted notebook. A comment in `divebook.notebook.run` describes the data, and how to
        switch it off.
        """
        from divebook.notebook.report import as_html, as_text, report_of
        from divebook.projections.summary import ReadLog

        # A log of many events creates many small objects at once. Garbage collection would scan all of them several
        # times (`benchmarks/values.py`).
        with garbage_collection_paused():
            # One `ReadLog` for report and data: each fold of a long log takes as long as all the rest.
            log = ReadLog.of(self._execution.history())
            report = report_of(self._execution, log)
            bundle = {"text/plain": as_text(report), "text/html": as_html(report)}
            if not with_data:
                return bundle
            config = self._environment.config
            data = data_of(self._execution, log, config, next_step=report.next, enabled=self.keeps_data)
            return bundle | data

    def to_html(self, file: str | Path, *, log: bool = True, overwrite: bool = False) -> Path:
        """Write the run as one HTML page that can be read without divebook; return the path.

        ``%dive open run.html`` opens the page again as a run. Secrets are removed. The log contains all texts in full;
        with `log=False` the file contains only the texts that the page shows.
        """
        secrets = sent_secrets(self._environment.config)
        return self._execution.to_html(file, log=log, overwrite=overwrite, known_secrets=secrets)

    def to_notebook(self, file: str | Path, *, overwrite: bool = False) -> Path:
        """Write the run as a notebook that describes it in sections and contains its log; return the path.

        ``%dive open run.ipynb`` opens the notebook again as a run. Secrets are removed.
        """
        secrets = sent_secrets(self._environment.config)
        return self._execution.to_notebook(file, overwrite=overwrite, known_secrets=secrets)

    def to_test(self, file: str | Path | None = None, *, overwrite: bool = False) -> Path:
        """Write the run as a test for pytest, with its log and definition beside it; return the path.

        The test needs neither key nor network. It fails at the first difference from the log, and names event, step and
        line. The default is ``test_NAME.py`` in the current folder. Secrets are removed.
        """
        from divebook.export.pytest import write_test

        secrets = sent_secrets(self._environment.config)
        return write_test(self._environment, self._execution, file, overwrite=overwrite, known_secrets=secrets)

    def files(self, workspace: str | None = None) -> KeptFiles:
        """Return the files of the run's workspace at any event, to compare, apply or restore them."""
        return self._environment.files(self.id, workspace)

    def verify(self, definition: Workflow | None = None) -> Verification:
        """Check the definition of the run against its log, without a call; see `divebook.Environment.verify`."""
        return self._environment.verify(self.id, definition)

    def replay(self) -> RunReplay:
        """Return a replay of the run's log: a widget that also has the methods of `Execution.replay`.

        Widget and methods share one position: after ``r = run.replay()`` and ``r`` as the last value of a cell,
        ``r.run_to(error=True)`` moves the page to the first failure, and ``r.position`` is the position in the page.
        """
        from divebook.notebook.view_output import RunReplay

        name = f"{self._execution.workflow.name} {self.id}"
        # `static_bundle` is passed as a function, because it is needed only when the replay is displayed.
        return RunReplay(self._execution, name, self.static_bundle, moves=shows_widgets())


def waiting_error(execution: Execution) -> ExecutionWaitingError:
    """Return the error for an execution that has to wait: it names the first open question and all awaited signals."""
    # One question is enough for the text of an error. The list of signals is short.
    first_question = one_line(execution.interrupts[0].question, 200) if execution.interrupts else ""
    signals = [str(awaited) for awaited in awaited_signals(execution.state)]
    return ExecutionWaitingError(execution.id, first_question, " and ".join(signals))


async def _wait(execution: Execution, answers: Answers | None) -> None:
    """Wait until an execution has ended or waits for a person, and answer its questions with the answers that were
    given in advance (None: no answers).
    """
    await execution
    if answers is None:
        return
    # The answers are settled on a thread, because `settle` blocks and this loop belongs to the kernel.
    # The kernel's loop has an executor, but its thread would survive an unload of the extension.
    executor = ThreadPoolExecutor(1)
    try:
        # The copied context lets the kernel find the cell below which output of the run is printed.
        await asyncio.wrap_future(executor.submit(contextvars.copy_context().run, answers.settle, execution))
    finally:
        # Without waiting, since an interrupt must not be held up by the thread.
        executor.shutdown(wait=False)


# --- the connection to the page around a notebook --------------------------------------------------------------------


def connect_page(environment: Environment) -> Callable[[], None]:
    """Show the open questions and the runs of an environment in all JupyterLab tabs; return a function that stops this.

    Nothing happens without a kernel, or if the front end shows no widgets.
    """
    if not _has_page():
        return lambda: None
    from divebook.notebook.view_output import PAGES
    from divebook.widgets.runs_and_questions import RunsFeed, inbox_publisher_of
    from divebook.widgets.views import Handlers, InboxComm, RunsComm

    questions = InboxComm(inbox_publisher_of(environment), Handlers(environment.answer))
    # The extension of a JupyterLab page reports hosting on this comm before any view exists.
    questions.when_hosted(PAGES.on_hosting)
    runs = RunsComm(RunsFeed(environment))

    def close() -> None:
        questions.close()
        runs.close()

    return close


def _has_page() -> bool:
    # Scripts do not import IPython, and this function must not do it for them.
    if "IPython" not in sys.modules:
        return False
    from IPython.core.getipython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None and shows_widgets()


# --- the live view of a run ------------------------------------------------------------------------------------------

# Live view of a run as a widget: the functions of its buttons and forms, and the recovery options after a failure.


def view_of(run: Run) -> LiveView:
    """Return a new live view of a run as a widget.

    If a button starts a new run, the view then shows the new run.
    """
    from divebook.widgets.views import LiveView

    # The handlers need the view and the view needs the handlers. The function reads `view` only when a button is
    # pressed.
    view = LiveView(follow_run(run), _handlers(run, lambda: view.follow(follow_run(run))))
    return view


def follow_run(run: Run) -> Publisher[Feed]:
    """Return the publisher that sends the changes of a run to its live views. After a failure it also sends the
    recovery options, such as running again.
    """
    # A function and not an execution, because a button can replace the execution of the run.
    options = RecoveryOptions(run.environment, lambda: run.execution)
    # The publisher calls `of` again and again: an edit of a function appends no event.
    return publisher_of(run.execution, options.of)


def _handlers(run: Run, on_new_execution: Callable[[], None]) -> Handlers:
    """Return the functions that the buttons and forms of a run's view call. Their errors are shown in the view.

    Parameters
    ----------
    on_new_execution
        Called after a button has started another execution in place of the present one.
    """

    def again() -> None:
        run.again()
        on_new_execution()

    def fix() -> None:
        # `continue_failed` starts a new execution only if something was edited.
        before = run.execution
        continue_failed(run)
        if run.execution.id != before.id:
            on_new_execution()

    def resume() -> None:
        reason = awaited_from_outside(run.execution)
        # Resuming a run that needs an answer would do nothing. The view shows the reason instead.
        if reason:
            raise ExecutionError(reason)
        run.resume()

    def take_over(message: TakingOver) -> str:
        files = run.environment.files(run.execution.id, message["workspace"])
        # Only changes up to the event that the person saw are applied.
        applied = files.apply(paths=message["paths"], until=message["at"])
        return applied.told(files.source)

    # The plan is made when the person presses the button, with the definitions of that moment.
    plan = partial(plan_of, run)
    return Handlers(run.answer, run.pause, resume, run.cancel, plan=plan, fix=fix, again=again, take_over=take_over)


# --- recovery options of a failed run --------------------------------------------------------------------------------
#
# If the definition or a function has changed since the run, continuing works like ``resume(definition="new")``: as a
# new run, after a plan that a person confirms. Otherwise the run itself is resumed (`tests/notebook/test_ways.py`).

FIX = "Fix and continue from here"
AGAIN = "Run again"
REPLAY = "Open replay here"


class RecoveryOptions:
    """Provider of the recovery options that a view shows after a run has failed: fix and continue, run again, replay.

    The failure is read from the log once for each end of the run.
    """

    def __init__(self, environment: Environment, execution: Callable[[], Execution]) -> None:
        self._environment = environment
        self._execution = execution
        self._failure: Failure | None = None
        self._failure_read_at = 0
        """Sequence number of the last event when the failure was read; 0 before."""

    def of(self, header: Header, kept_results: str) -> list[Way]:
        """Return the recovery options of the run; an empty list if the run has not failed or is running.

        Parameters
        ----------
        header
            Cost and duration of the run, shown with "Run again".
        kept_results
            Text that describes what continuing reuses.
        """
        execution = self._execution()
        # Only a failed run has these options. A cancelled one has the command ``resume``.
        if execution.is_live or execution.status != FAILED:
            return []
        failure = self._read_failure(execution)
        return [self._fix(execution, failure, kept_results), _run_again(header), _replay()]

    def _read_failure(self, execution: Execution) -> Failure | None:
        last = execution.state.last_sequence
        # The number of events identifies the end: a run that was continued and failed again has more events.
        if self._failure_read_at != last:
            try:
                self._failure = execution.failure
            except StoreError:  # the log is damaged, and the view shows that
                self._failure = None
            self._failure_read_at = last
        return self._failure

    def _fix(self, execution: Execution, failure: Failure | None, kept_results: str) -> Way:
        # Compared at each call and not cached, since any cell may edit a definition.
        text, is_ready = _advice(failure, changed_definitions(self._environment, execution))
        return Way(
            name="fix", label=FIX, told=text, reused=kept_results, live="", cost=None, took_us=None, ready=is_ready
        )


def changed_definitions(environment: Environment, execution: Execution) -> list[str]:
    """Compare the definition and the Python functions of an execution with those in the environment now. Return the
    names of those that were edited: ``the definition`` for the workflow, and the names of the functions.

    An edit counts as soon as its cell has run.
    """
    state = execution.state
    # A workflow that this kernel has not defined is compared with itself, so that its definition counts as unchanged.
    workflow = environment.workflows.get(state.workflow_name, execution.workflow)
    before = state.code
    now = environment.code_of(workflow)
    # A function that exists only before or only now differs too.
    functions = sorted(label for label in before.keys() | now.keys() if before.get(label) != now.get(label))
    if workflow.fingerprint != state.fingerprint:
        return ["the definition", *functions]
    return functions


def plan_of(run: Run) -> str:
    """Return the text that a person must confirm before a failed run continues with edited definitions. It lists the
    results that are reused and the calls that are made again. If nothing was edited, return an empty text.
    """
    if not changed_definitions(run.environment, run.execution):
        # Without changes, a person need not confirm the recovery.
        return ""
    return "\n".join(run.environment.resume(run.execution.id, definition=NEW, plan=True).lines)


def continue_failed(run: Run) -> None:
    """Resume a failed run. If its definition or functions were edited, it continues with the edited ones.

    Another process may do the same at this moment. The lease ensures that only one process runs it.

    Raises
    ------
    ExecutionError
        Another process runs it already.
    """
    try:
        run.resume(definition=NEW if changed_definitions(run.environment, run.execution) else None)
    # Another process holds the lease, so this one cannot drive the run. The message names that process.
    except LeaseHeldError as held:
        who = f"{held.name or 'another process'} (process {held.pid} on {held.host})"
        raise ExecutionError(f"It runs in {who} already, and is not run twice. Run the cell again to see it") from held
    except ExecutionError:
        # Two pages of one kernel, or two kernels, may continue the run at the same moment. The later one gets an error,
        # but its purpose is achieved (`tests/notebook/test_ways.py`).
        if run.execution.refresh().status != COMPLETED:  # another kernel has completed it
            raise


def _advice(failure: Failure | None, changed: list[str]) -> tuple[str, bool]:
    """Return the text of the recovery option "Fix and continue", and whether continuing can succeed now.

    It cannot succeed while the failed function is unchanged. A failed model or tool call may succeed without a change.
    """
    if changed:
        return f"Continuing uses {', '.join(changed)} as now defined, and first shows what that changes.", True
    # The error was raised in the person's own function and not in a model, a tool or a server.
    is_own_code = failure is not None and (failure.traceback or not failure.called)
    # Without a known place, no line can be edited.
    if failure is None or not failure.place or not is_own_code:
        return "Continue retries the failed call.", True
    function = failure.called or failure.step
    return f"{function} is as it was, and would fail again: edit {failure.place}, and run that cell first.", False


def _run_again(header: Header) -> Way:
    return Way(
        name="again",
        label=AGAIN,
        told="Starts a new run with the same inputs, and with definition and functions as they are now.",
        reused="",
        live="all of it",
        cost=header["cost"],
        took_us=header["worked_us"],
        ready=True,
    )


def _replay() -> Way:
    return Way(
        name="replay",
        label=REPLAY,
        told="Shows the state at the event that failed.",
        reused="",
        live="",
        cost=None,
        took_us=None,
        ready=True,
    )


# --- the output of a run in a cell -----------------------------------------------------------------------------------

# Output of a run in a cell: a live view while the kernel runs, and a saved form (text and HTML for pages without a
# kernel), which is updated until the run ends.


SAVE_PAUSE = 20
"""Minimum pause between two saves of a running run, as a multiple of the time that the last save took."""


class LiveOutput:
    """Output of one run in one cell, for front ends that show widgets.

    The publisher's thread calls `_on_delta` and `_save_if_due`, the cell's thread calls `leave`. A lock serializes the
    saves.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        # All views of the execution share one publisher, and thus one reading of its events.
        self._publisher: Publisher[Feed] = publisher_of(run.execution)
        self.view = view_of(run)
        # The lock is held while the state is read and saved. Otherwise a slow save of an old state could overwrite a
        # newer one.
        self._lock = threading.Lock()
        self._saved_end = 0
        """Sequence number of the last event when the end of the run was saved; 0 before. A failed run can be continued
        from the page, and then ends again.
        """
        self._last_status: tuple[str, bool] | None = None
        """Status and liveness of the run in the last delta."""
        self._next_save_at = 0.0
        """Monotonic time before which the run is not saved again."""
        self._is_save_due = False
        # The first output contains no replay data: it would take seconds for a long run, and the run changes at once.
        self._output = ViewOutput(self.view, run.static_bundle(with_data=False))
        # Added after the output exists, because the publisher may call `_on_delta` before `add` returns.
        self._detach: Callable[[], None] = self._publisher.add(self._on_delta, self._save_if_due)
        self.view.when_moved(self._follow)

    @property
    def is_watched(self) -> bool:
        """True if a browser shows the run's view and the kernel receives the browser's messages."""
        return self.view.greeted.is_set()

    @property
    def is_hosting_undecided(self) -> bool:
        """True as long as it is unknown whether the page can show the live view and its saved form (text and HTML for
        pages without a kernel) in the same output. A page reports this after it has loaded; see `view_output.Pages`.
        """
        return PAGES.host_views is None and not self.view.is_hosted

    def leave(self) -> None:
        """Save the run as text and HTML in the output at the end of the cell, so that a page without a kernel can show
        it.

        For a long run this takes seconds. If a page shows the view, the publisher's thread saves the run, and the cell
        does not wait (``python -m benchmarks.ending``).
        """
        # This is the end of the first cell with a view. A page that shows the view has had time to report; later cells
        # then rely on what is known now.
        if PAGES.host_views is None and self.is_watched:
            PAGES.host_views = self.view.is_hosted
        state = self.run.refresh().execution.state
        # At its end a run is saved once for each end, while a running one may be saved many times.
        finish = self._save_end if state.is_over else self._save
        may_wait = self._output.is_kept or (self.is_watched and state.is_over)
        # A page that shows the view needs no saved form yet.
        if may_wait and state.last_sequence > MAX_EVENTS:
            self._publisher.post(finish, urgent=False)
        else:
            finish()

    def _follow(self, publisher: Publisher[Feed]) -> None:
        """Replace the run whose state is saved in this output, because a button in the page has started a new run.
        `publisher` sends the changes of the new run.
        """
        # The old run must not write into this output any more.
        self._detach()
        self._publisher = publisher
        self._last_status = None
        self._saved_end = 0
        self._detach = publisher.add(self._on_delta, self._save_if_due)

    def _on_delta(self, delta: Delta) -> int:
        """Receive a message with changes of the run. If the run has ended since the previous message, save its final
        state in the output; if it has only stopped, save its current state.

        Called for every `Delta`, on the publisher's thread; returns 0, because no message is sent.
        """
        status = delta["header"]["status"]
        is_live = delta["header"]["live"]
        before = self._last_status
        self._last_status = status, is_live
        # A delta is sent for each change of the run. Only a change of status or liveness is worth a save.
        if self._last_status == before:
            return 0
        # Paused or waiting for a person: the run may stay in this state for days, so the notebook should contain it.
        self._is_save_due = not is_live and status not in TERMINAL
        if status in TERMINAL and not is_live:
            self._save_end()
        self._save_if_due()
        return 0

    def _save_if_due(self) -> None:
        """Save the current state of a run that has stopped, but not ended, in the output. If the last save was a short
        time ago, do nothing.

        The publisher calls this method at each heartbeat, so that a postponed save is made later.
        """
        # Without an output for the saved form, saving would insert a second output into the page while the cell runs.
        if self._is_save_due and self._output.is_lasting and time.monotonic() >= self._next_save_at:
            # Reset before the save: a change during it requests another one.
            self._is_save_due = False
            self._save()

    def _save(self) -> None:
        """Save the current state of the run as text, HTML and replay data in the output."""
        with self._lock:
            start = time.monotonic()
            self._output.save(self.run.refresh().static_bundle())
            now = time.monotonic()
            # Saving a long run takes seconds, so the pause grows with the time that saving takes.
            self._next_save_at = now + SAVE_PAUSE * (now - start)

    def _save_end(self) -> None:
        """Save the final state of the run in the output, once each time that the run ends."""
        with self._lock:
            # Under the lock: the publisher's thread and the cell's thread both see the end.
            last = self.run.refresh().execution.state.last_sequence
            # The same last event means that this end is saved already. A resumed run has more events.
            if last == self._saved_end:
                return
            stays = self._output.end(self.run.static_bundle())
            self._saved_end = last
        # A completed run cannot change any more, and a retired view needs no saves.
        if not stays or self.run.status == COMPLETED:
            self._detach()
