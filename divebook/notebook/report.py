"""Texts of sessions: definitions and open questions, and the commands that answer a waiting run."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from divebook.definitions.definition import InputDefinition, Workflow, is_pipeline, visible_steps
from divebook.engine.state import AwaitedSignal, awaited_signals, waits_for
from divebook.environments.environment import Environment
from divebook.projections.summary import badge_of
from divebook.questions import Question
from divebook.questions.question import address_of, example_answer, expected_in_full
from divebook.report.hints import Hint
from divebook.report.model import Block, Items, Paragraph, Report, Text
from divebook.report.shown import Shown
from divebook.runtime.run import Run
from divebook.stores import EventStore
from divebook.text.format import in_shell, local_time, plural
from divebook.text.redaction import one_line, shared

# --- session text ----------------------------------------------------------------------------------------------------
#
# Text about a session: its definitions and open questions, and the commands that answer a waiting run.


LISTING_WIDTH = 96


@dataclass(frozen=True, slots=True, repr=False)
class Listing(Shown):
    """Part of a session as a list: its definitions or open questions."""

    blocks: tuple[Block, ...]

    def report(self) -> Report:
        """Return the list."""
        return Report(blocks=self.blocks)


def contents(environment: Environment) -> Listing:
    """Return a list of the workflows, agents and actions of an environment."""
    workflows = [_workflow_line(workflow) for workflow in environment.definitions.workflows.values()]
    agents = [f"{one_line(agent.name, 40)}  {agent.model_name}" for agent in environment.definitions.agents.values()]
    actions = textwrap.wrap(", ".join(environment.definitions.actions), LISTING_WIDTH)
    lists = (("workflows", workflows), ("agents", agents), ("actions", actions))
    return Listing(tuple(block for title, lines in lists for block in _section(title, lines, "none yet")))


def questions(environment: Environment, store: str | None = None) -> Listing:
    """Return a list of the open questions with the commands that answer them. Questions of the newest execution come
    first.

    `store` is the value of ``--store`` in these commands.
    """
    blocks: list[Block] = []
    for execution_id, question in environment.inbox():
        # The badge (``what-if``, ``fork``) distinguishes runs whose questions have equal texts.
        badge = badge_of(environment.store.record(execution_id))
        head, text, *more = question_lines(execution_id, question, store, badge)
        label, _, command = more.pop().partition(": ")
        code = (f"{label}: ", Text(command, "code"))
        blocks += (Paragraph((Text(text, "strong"),), apart=True), Items((head, *more, code)))
    count = plural(len(blocks) // 2, "open question") if blocks else "no open questions"
    return Listing((Paragraph((count,)), *blocks))


def question_lines(execution_id: str, question: Question, store: str | None = None, badge: str = "") -> Iterable[str]:
    """Yield lines about one question: its run and step, its text, the valid answers, the time of expiry, and the
    command that answers it.
    """
    run = f"{badge} {execution_id}".lstrip()
    yield f"{question.id}  {question.kind}  ({run}, step {one_line(question.step, 40)})"
    yield one_line(shared().text(question.question), 200)
    if question.message:
        yield one_line(shared().text(question.message), 200)
    until = "" if question.expires_at is None else f", until {local_time(question.expires_at)}"
    yield f"answer with {one_line(expected_in_full(question), 400)}{until}"
    yield f"to answer: {answer_line(execution_id, question, store)}"


def answer_line(execution_id: str, question: Question, store: str | None = None) -> str:
    """Return the command that answers a question."""
    address = address_of(execution_id, question)
    # The session has one default store. Only questions of another store need the option.
    hint = Hint("answer", (address, example_answer(question)), "divebook.answer", (address, ...), store=store or "")
    return hint.text


def signal_line(execution_id: str, awaited: AwaitedSignal, store: str | None = None) -> str:
    """Return the command that sends a signal."""
    words = (execution_id, awaited.name)
    return Hint("signal", words, "signal", (awaited.name,), execution_id, store or "").text


def waiting_lines(execution: Run) -> list[str]:
    """Return one line for each question and signal that an execution waits for, with the command that answers or
    sends it. For a paused execution, return one line with the command that resumes it.
    """
    state = execution.state
    # A paused run may have open questions. An answer would not continue it, so only the resumption is named.
    if state.paused is not None:
        resume = Hint("resume", (execution.id,), "resume").text
        return [f"{execution.id} is paused. Run the cell again to continue, or: {resume}"]
    lines = [
        f"an answer to {one_line(question.question, 80)!r}: {answer_line(execution.id, question)}"
        for question in execution.open_questions
    ]
    lines += [f"{awaited}: {signal_line(execution.id, awaited)}" for awaited in awaited_signals(state)]
    # A run that waits for a timer has neither questions nor signals.
    return [f"{execution.id} waits for {line}" for line in lines or waits_for(state, ()) or ["a point in time"]]


def ways_on(execution: Run) -> list[str]:
    """Return lines about each question and signal that an execution waits for, with the command and the shell
    command that answer or send it.
    """
    store = execution.store
    lines = []
    for question in execution.open_questions:
        lines += ["waits for an answer:", *(f"  {line}" for line in question_lines(execution.id, question))]
        words = [address_of(execution.id, question), example_answer(question)]
        lines += _also_in_shell("answer", words, store)
    for awaited in awaited_signals(execution.state):
        lines += [f"waits for {awaited}:", f"  to send it: {signal_line(execution.id, awaited)}"]
        lines += _also_in_shell("signal", [execution.id, awaited.name], store)
    return lines


def _also_in_shell(verb: str, words: Sequence[str], store: EventStore) -> list[str]:
    # A store in memory, or one that is open in this process only, cannot be reached from a shell.
    return [f"  or in a shell: {in_shell(verb, words, ['--store', store.location])}"] if store.shared else []


def _section(title: str, lines: Sequence[str], empty: str) -> tuple[Block, Block]:
    """Return a title and the lines below it; the text `empty` if there are none."""
    return Paragraph((Text(title, "strong"),)), Items(tuple(lines or [empty]))


def _workflow_line(workflow: Workflow) -> str:
    inputs = ", ".join(map(_input_text, workflow.inputs))
    steps = plural(len(visible_steps(workflow)), "stage" if is_pipeline(workflow) else "step")
    about = f"  {one_line(workflow.description, 60)}" if workflow.description else ""
    return f"{one_line(workflow.name, 40)}({inputs})  {steps}{about}"


def _input_text(definition: InputDefinition) -> str:
    if definition.has_default:
        return f"{definition.name}={one_line(repr(definition.default), 20)}"
    # An input that is not required and has no default value is None in the workflow.
    return f"{definition.name}=None" if definition.required is False else definition.name
