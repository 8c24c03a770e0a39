"""`Run`: what people hold in their hands when they run a workflow."""

from __future__ import annotations

import asyncio
import contextvars
import os
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

from divebook.engine.forks import Change
from divebook.engine.state import ExecutionState, awaited_signals
from divebook.environment.environment import Environment
from divebook.environment.starts import StartOptions, options_of
from divebook.environment.variants import FROM_FAILURE, NEW, DefinitionLike
from divebook.errors import ExecutionWaitingError, NotFoundError
from divebook.events import Event
from divebook.events.catalog import WAITING
from divebook.events.recorded import collector_resting
from divebook.notebook.frontend import shows_widgets
from divebook.projections.comparison import Comparison
from divebook.projections.frames_mixin import FramedLog
from divebook.questions import Question
from divebook.runtime.execution import Execution, ReadExecution
from divebook.runtime.forks import recorded_opening
from divebook.store.history import History
from divebook.text.passwords import looks_secret
from divebook.text.redaction import one_line
from divebook.widgets.recording import MIME, saved_run
from divebook.workflow.resources import NOTEBOOK_DATA, Config

if TYPE_CHECKING:
    from divebook.config.answers import Answers
    from divebook.environment.variants import ChangeLike, StepChanges, TrialOptions
    from divebook.notebook.lasting import RunReplay
    from divebook.replay.files import KeptFiles
    from divebook.replay.resume_changed import ResumePlan
    from divebook.replay.trial import StepTrial
    from divebook.replay.verify import Verification
    from divebook.replay.what_if import Plan, RepeatedWhatIf, WhatIf
    from divebook.widgets.views import LiveView
    from divebook.workflow.definition import Workflow


# The data of a run in its output: ``application/vnd.divebook.run+json``, beside the text and HTML that everybody sees.
#
# It holds what stepping through the run needs (definition, events, states, questions and answers, the header's
# numbers), so that the notebook alone replays it: in JupyterLab by the extension that comes with divebook, in Python by
# `divebook.open_notebook`. It is at most 256 kB; of larger runs long texts are cut first, then a sample of the events
# is kept, with all failures and questions, and it always says where the whole log is. Secrets are left out as
# `divebook.text.redaction` says. It is switched off by ``DIVEBOOK_NOTEBOOK_DATA=off``, by ``NotebookData: off`` in a
# definition's ``Config``, or for one run by ``%dive run --no-data``.


VARIABLE = "DIVEBOOK_NOTEBOOK_DATA"
ON, OFF = NOTEBOOK_DATA


def data_of(
    execution: Execution, log: Sequence[Event], config: Config, *, next_step: str = "", wanted: bool | None = None
) -> dict[str, Any]:
    """Return the data of a run by its type, or nothing if that is switched off; `wanted` overrides the settings."""
    if wanted is False or (wanted is None and _said(config) == OFF):
        return {}
    if execution.damage is not None or not execution.state.last_sequence:
        return {}
    return {MIME: saved_run(execution, log, sent_secrets(config), next_step=next_step)}


def _said(config: Config) -> str:
    said = os.environ.get(VARIABLE) or config.notebook_data or ON
    if said not in NOTEBOOK_DATA:
        raise NotFoundError("setting for notebook data", said, NOTEBOOK_DATA, f"{VARIABLE} cannot be {said!r}")
    return said


def sent_secrets(config: Config) -> Iterator[str]:
    """Return what providers are sent under names that look secret."""
    for provider in config.providers:
        for name, values in provider.request_headers.items():
            if looks_secret(name):
                yield from values


TICK = 0.1
"""Seconds between two looks while a run is awaited: an idle event loop does not see that its kernel is interrupted."""


class Run(ReadExecution):
    """One execution of a workflow, live or past, that shows itself in notebooks and terminals.

    `divebook.run` and ``%dive run`` make them. Waiting works the same in a cell and in a script.

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
        """Number of the execution of a cell that shows it already."""
        self.remark = ""
        """What is said beside it: that it was not run again, say."""
        self.keeps_data: bool | None = None
        """Whether its output carries its data; None as ``DIVEBOOK_NOTEBOOK_DATA`` and the Config say."""
        self.strict = False
        """Whether waiting for it raises an error where it has to wait for an answer or a signal itself."""

    # --- what it is ------------------------------------------------------------------------------------------------

    @property
    def execution(self) -> Execution:
        """The execution itself."""
        return self._execution

    @property
    def environment(self) -> Environment:
        """Where it runs."""
        return self._environment

    @property
    def state(self) -> ExecutionState:
        """The fold of its log so far; an immutable snapshot."""
        return self._execution.state

    @property
    def asked(self) -> dict[str, Question]:
        """Every question ever asked, by id, oldest first."""
        return self._execution.asked

    @property
    def interrupts(self) -> list[Question]:
        """The questions that wait for an answer, oldest first."""
        return self._execution.interrupts

    def _log(self) -> History:
        return self._execution.history()

    # --- what to do with it ----------------------------------------------------------------------------------------

    @property
    def chain(self) -> list[str]:
        """Ids of the executions of which one went on as the next, the first one first; mostly this one alone.

        ``divebook.frames(run.environment.store, where={"chain": run.id})`` reads them as one.
        """
        return self._execution.chain

    def wait(self, timeout: float | None = None, *, check: bool = False) -> Self:
        """Block until it has ended, or waits for an answer; return itself.

        An interrupt of the kernel ends the waiting, not the run; `cancel` does that.

        Parameters
        ----------
        timeout
            Seconds; TimeoutError afterwards, while the run goes on.
        check
            Raise ExecutionFailedError or ExecutionCancelledError unless it completed.

        Raises
        ------
        ExecutionWaitingError
            It is `strict`, and has to wait for an answer or a signal.
        """
        self._execution.wait(timeout)
        if self._answers is not None:
            self._answers.settle(self._execution)
        if check:
            self._execution.wait(check=True)
        return self._strictly()

    def __await__(self) -> Generator[Any, None, Self]:
        """Wait on any asyncio loop, the kernel's included; return itself."""
        return self._settled().__await__()

    async def _settled(self) -> Self:
        waiter = asyncio.ensure_future(_wait(self._execution, self._answers))
        while not waiter.done():
            await asyncio.wait((waiter,), timeout=TICK)
        waiter.result()
        return self._strictly()

    def _strictly(self) -> Self:
        if self.strict and self.status == WAITING:
            raise waiting_error(self._execution)
        return self

    @property
    def unused_answers(self) -> tuple[str, ...]:
        """Answers up front for which no question came."""
        return () if self._answers is None else self._answers.unused

    def pause(self) -> Self:
        """Let nothing more begin until it is resumed; returns at once, `wait` for it to come to rest."""
        self._execution.pause()
        return self

    def compare(self, other: FramedLog | str, *more: FramedLog | str) -> Comparison:
        """Lay it side by side with other runs, or with those of other ids in its store: the first difference first.

        As the last value of a cell both runs are shown beside each other; see `divebook.compare`.
        """
        return self._environment.compare(self, other, *more)

    def what_if(
        self, change: ChangeLike = None, at: int | None = None, **options: Any
    ) -> WhatIf | RepeatedWhatIf | Plan:
        """Go through it once more with one change, answered from its log; see `divebook.Environment.what_if`."""
        found: WhatIf | RepeatedWhatIf | Plan = self._environment.what_if(self.id, change, at, **options)
        return found

    def try_step(
        self, step: str, changes: StepChanges = None, *, times: int = 1, **options: Unpack[TrialOptions]
    ) -> StepTrial:
        """Do one of its steps again with the state it had, beside what is recorded; see `Environment.try_step`."""
        return self._environment.try_step(self.id, step, changes, times=times, **options)

    def refresh(self) -> Self:
        """Read on in the log, if another process has written to it."""
        self._execution.refresh()
        return self

    def cancel(self) -> Self:
        """Stop it in such a way that it can be resumed; returns at once, `wait` for the end."""
        self._environment.cancel(self.id)
        return self

    @overload
    def resume(self, *, definition: DefinitionLike | None = None) -> Self: ...

    @overload
    def resume(self, *, definition: DefinitionLike, plan: Literal[True]) -> ResumePlan: ...

    def resume(self, *, definition: DefinitionLike | None = None, plan: bool = False) -> Self | ResumePlan:
        """Take it up again where its log ends; returns at once, `wait` for the end.

        With ``definition="new"`` it is a new run from now on, which goes on with the definition of now and keeps all
        that this one would do again; with ``plan=True`` only what that would be is returned, without a single call. See
        `Environment.resume`.
        """
        if plan:
            found: ResumePlan = self._environment.resume(self.id, definition=definition or NEW, plan=True)
            return found
        self._execution = self._environment.resume(self.id, definition=definition)
        return self

    def retry(self, strategy: str = FROM_FAILURE) -> Self:
        """Try again: ``from_start``, ``from_failure`` or ``skip_failed``; see `Environment.retry`."""
        self._execution = self._environment.retry(self.id, strategy)
        return self

    def fork(
        self,
        at: int | None = None,
        change: Change | Mapping[str, Any] | None = None,
        **options: Unpack[StartOptions],
    ) -> Run:
        """Return a new run that shares its first events and goes on live after those; see `Environment.fork`."""
        return Run(self._environment.fork(self.id, at, change, **options), self._environment)

    def again(self) -> Self:
        """Be a new run from now on: of the workflow as it is defined now, with the same inputs; returns at once.

        It is started as this one was, so that the cell which began this one takes it for its own.
        """
        old = self._execution
        opening = recorded_opening(old.id, old.store)
        workflow = self._environment.workflows.get(old.workflow.name, old.workflow)
        self._execution = self._environment.start(workflow, old.inputs, **options_of(opening, old.workflow))
        return self

    def answer(self, interrupt_id: str, response: Any, by: str | None = None) -> Self:
        """Answer one of its questions; it goes on at once, `wait` for the end."""
        self._execution = self._environment.answer(interrupt_id, response, self.id, by)
        return self

    def signal(self, name: str, payload: Any = None, by: str | None = None) -> Self:
        """Send it a signal; it goes on at once if it waited for that, `wait` for the end."""
        self._execution = self._environment.signal(self.id, name, payload, by)
        return self

    @property
    def tags(self) -> tuple[str, ...]:
        """The words that lists show it with and find it by."""
        return self._environment.store.record(self.id).tags

    def tag(self, *tags: str) -> Self:
        """Give it tags, also once it has ended; see `divebook.Environment.annotate`."""
        self._environment.tag(self.id, *tags)
        return self

    def untag(self, *tags: str) -> Self:
        """Take tags away from it."""
        self._environment.untag(self.id, *tags)
        return self

    def note(self, text: str) -> Self:
        """Give it a note in place of the one that it has, also once it has ended; an empty one takes it away."""
        self._environment.note(self.id, text)
        return self

    def label(self, **labels: Any) -> Self:
        """Give it labels, also once it has ended: ``run.label(quality="good")``; None takes one away."""
        self._environment.label(self.id, **labels)
        return self

    # --- how it shows ----------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"<Run {self.id} of {self._execution.workflow.name!r}: {self._execution.standing}>"

    def __str__(self) -> str:
        from divebook.notebook.report import as_text, report_of

        return as_text(report_of(self._execution, self._execution.history()))

    def view(self) -> LiveView:
        """Return a live view of it, an anywidget, for front ends that show widgets by themselves.

        marimo needs no more than the run as the last value of a cell; `marimo.ui.anywidget(run.view())` does the same.
        """
        from divebook.notebook.lasting import view_of

        return view_of(self)

    def _display_(self) -> LiveView:
        """Return what marimo shows of it."""
        return self.view()

    def _ipython_display_(self) -> None:
        """Show nothing more where this cell has shown it already; otherwise leave it to the bundle."""
        from IPython.core.getipython import get_ipython

        shell = get_ipython()
        if self.shown_in is None or shell is None or self.shown_in != shell.execution_count:
            raise NotImplementedError

    def _repr_html_(self) -> str:
        return str(self.static_bundle(with_data=False)["text/html"])

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """Return its static form."""
        return self.static_bundle()

    def static_bundle(self, *, with_data: bool = True) -> dict[str, Any]:
        """Return what needs neither kernel nor trust: text, HTML, and the data of the run to be stepped through.

        `divebook.notebook.run` says what is in the data, what is left out, and how to do without.
        """
        from divebook.notebook.report import as_html, as_text, report_of
        from divebook.projections.summary import ReadLog

        with collector_resting():
            log = ReadLog.of(self._execution.history())
            report = report_of(self._execution, log)
            shown = {"text/plain": as_text(report), "text/html": as_html(report)}
            if not with_data:
                return shown
            config = self._environment.config
            wanted = self.keeps_data
            return shown | data_of(self._execution, log, config, next_step=report.next, wanted=wanted)

    def to_html(self, file: str | Path, *, log: bool = True, overwrite: bool = False) -> Path:
        """Write it as one page that shows it without divebook, and opens again as a run; return its path.

        ``%dive open run.html`` opens it. Secrets are left out; `log=False` leaves out the log too, which has all texts
        in full, so that only what the page shows is in it.
        """
        secrets = sent_secrets(self._environment.config)
        return self._execution.to_html(file, log=log, overwrite=overwrite, known_secrets=secrets)

    def to_notebook(self, file: str | Path, *, overwrite: bool = False) -> Path:
        """Write it as a notebook that tells of it in sections and carries its log; return its path.

        ``%dive open run.ipynb`` opens it again as a run. Secrets are left out.
        """
        secrets = sent_secrets(self._environment.config)
        return self._execution.to_notebook(file, overwrite=overwrite, known_secrets=secrets)

    def to_test(self, file: str | Path | None = None, *, overwrite: bool = False) -> Path:
        """Write it as a test for pytest, with its log and definition beside it; return its path.

        The test needs neither key nor network, and fails at the first thing that is done otherwise than its log says:
        event, step and line. By default it is ``test_NAME.py`` in the current folder. Secrets are left out.
        """
        from divebook.export.pytest import write_test

        secrets = sent_secrets(self._environment.config)
        return write_test(self._environment, self._execution, file, overwrite=overwrite, known_secrets=secrets)

    def files(self, workspace: str | None = None) -> KeptFiles:
        """Return the files of its workspace, at any event: to look at, take over, put back."""
        return self._environment.files(self.id, workspace)

    def verify(self, definition: Workflow | None = None) -> Verification:
        """Drive its definition against its log without a call; see `divebook.Environment.verify`."""
        return self._environment.verify(self.id, definition)

    def replay(self) -> RunReplay:
        """Return what goes through its log event by event: a view, and the methods of `Execution.replay`.

        Each follows the other: after ``r = run.replay()`` and ``r`` as the last value of a cell,
        ``r.run_to(error=True)`` goes to the first failure, in the page as well, and ``r.position`` is where somebody
        went in the page.
        """
        from divebook.notebook.lasting import RunReplay

        name = f"{self._execution.workflow.name} {self.id}"
        return RunReplay(self._execution, name, self.static_bundle, moves=shows_widgets())


def waiting_error(execution: Execution) -> ExecutionWaitingError:
    """Return what is wrong if an execution has to wait."""
    asked = [one_line(question.question, 200) for question in execution.interrupts[:1]]
    signals = [str(awaited) for awaited in awaited_signals(execution.state)]
    return ExecutionWaitingError(execution.id, "".join(asked), " and ".join(signals))


async def _wait(execution: Execution, answers: Answers | None) -> None:
    await execution
    if answers is None:
        return
    own = ThreadPoolExecutor(1)  # that of the loop, which is the kernel's, would keep its thread after an unload
    try:
        await asyncio.wrap_future(own.submit(contextvars.copy_context().run, answers.settle, execution))
    finally:
        own.shutdown(wait=False)


# What the page around a notebook hears of its kernel: JupyterLab tells of questions wherever a person looks.


def open_line(environment: Environment) -> Callable[[], None]:
    """Let pages of JupyterLab follow the questions and the runs of an environment; return what ends that.

    Nothing is opened but in a kernel with a front end that shows widgets.
    """
    if not _has_page():
        return lambda: None
    from divebook.notebook.lasting import PAGES
    from divebook.widgets.lists import RunsFeed, inbox_publisher_of
    from divebook.widgets.views import Handlers, InboxComm, RunsComm

    questions = InboxComm(inbox_publisher_of(environment), Handlers(environment.answer))
    questions.when_hosted(PAGES.learn)
    runs = RunsComm(RunsFeed(environment))

    def close() -> None:
        questions.close()
        runs.close()

    return close


def _has_page() -> bool:
    if "IPython" not in sys.modules:
        return False
    from IPython.core.getipython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None and shows_widgets()
