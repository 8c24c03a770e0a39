"""Text about a session: its definitions, open questions and rules, and the commands that answer a waiting run."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from divebook.engine.state import AwaitedSignal, awaited_signals, waits_for
from divebook.environment.environment import Environment
from divebook.events.event import to_datetime
from divebook.projections.summary import badge_of
from divebook.questions import Question
from divebook.questions.question import address_of, example_answer, expected_in_full
from divebook.runtime.execution import Execution
from divebook.steps.approval_policy import rule_in_words
from divebook.store import EventStore
from divebook.text.format import in_notebook, in_shell, local_time, plural
from divebook.text.redaction import one_line, shared
from divebook.workflow.definition import InputDefinition, Workflow, is_pipeline, visible_steps

LISTING_WIDTH = 96


def contents(environment: Environment) -> str:
    """Return the workflows, agents and actions of an environment."""
    workflows = [_workflow_line(workflow) for workflow in environment.workflows.values()]
    agents = [f"{one_line(agent.name, 40)}  {agent.model_name}" for agent in environment.agents.values()]
    actions = textwrap.wrap(", ".join(environment.actions), LISTING_WIDTH)
    return "\n".join([*_section("workflows", workflows), *_section("agents", agents), *_section("actions", actions)])


def questions(environment: Environment, store: str | None = None) -> str:
    """Return the open questions with the commands that answer them; `store` is the value of ``--store`` for these."""
    blocks = ["\n    ".join(lines) for lines in open_questions(environment, store)]
    return "\n".join(_section("questions", blocks or ["none"]))


def open_questions(environment: Environment, store: str | None = None) -> list[list[str]]:
    """Return the lines of each open question, newest execution first."""
    blocks = []
    for execution_id, question in environment.interrupts():
        badge = badge_of(environment.store.record(execution_id))
        blocks.append(list(question_lines(execution_id, question, store, badge)))
    return blocks


def rules(environment: Environment, revoked: str | None = None) -> str:
    """Return the rules that people made when they approved calls; `revoked` is the id of a rule to revoke first."""
    if revoked is not None:
        environment.revoke(revoked)
    lines = [f"{rule.rule_id}  {rule_in_words(rule, name)}" for name, rule in environment.rules()]
    lines = [one_line(shared().text(line), 400) for line in lines]
    return "\n".join(_section("rules", lines or ["none"]))


def question_lines(execution_id: str, question: Question, store: str | None = None, badge: str = "") -> Iterable[str]:
    """Yield the lines of one question: its run and step, text, valid answers, expiry, and the command to answer."""
    run = f"{badge} {execution_id}".lstrip()
    yield f"{question.id}  {question.kind}  ({run}, step {one_line(question.step, 40)})"
    yield one_line(shared().text(question.question), 200)
    if question.message:
        yield one_line(shared().text(question.message), 200)
    until = "" if question.expires_at is None else f", until {local_time(question.expires_at)}"
    yield f"answer with {one_line(expected_in_full(question), 400)}{until}"
    yield f"to answer: {answer_line(execution_id, question, store)}"


def answer_line(execution_id: str, question: Question, store: str | None = None) -> str:
    """Return the magic that answers a question."""
    words = [address_of(execution_id, question), example_answer(question)]
    return in_notebook("answer", words, [] if store is None else ["--store", store])


def settled_text(words: str, by: str | None, at_us: int | None) -> str:
    """Return the answer or end of a question on one line, with the person and the time."""
    at = "" if at_us is None else f" at {local_time(to_datetime(at_us))}"
    return one_line(words, 120) + (f" (by {one_line(by, 60)}{at})" if by else "")


def signal_line(execution_id: str, awaited: AwaitedSignal, store: str | None = None) -> str:
    """Return the magic that sends a signal."""
    return in_notebook("signal", [execution_id, awaited.name], [] if store is None else ["--store", store])


def waiting_lines(execution: Execution) -> list[str]:
    """Return a line for each question and signal that an execution waits for, with the magic that provides it."""
    state = execution.state
    if state.paused is not None:
        resume = in_notebook("resume", [execution.id])
        return [f"{execution.id} is paused. Run the cell again to continue, or: {resume}"]
    lines = [
        f"an answer to {one_line(question.question, 80)!r}: {answer_line(execution.id, question)}"
        for question in execution.interrupts
    ]
    lines += [f"{awaited}: {signal_line(execution.id, awaited)}" for awaited in awaited_signals(state)]
    return [f"{execution.id} waits for {line}" for line in lines or waits_for(state, ()) or ["a time"]]


def ways_on(execution: Execution) -> list[str]:
    """Return the questions and signals that an execution waits for, with the magic and the shell command for each."""
    store = execution.store
    lines = []
    for question in execution.interrupts:
        lines += ["waits for an answer:", *(f"  {line}" for line in question_lines(execution.id, question))]
        words = [address_of(execution.id, question), example_answer(question)]
        lines += _also_in_shell("answer", words, store)
    for awaited in awaited_signals(execution.state):
        lines += [f"waits for {awaited}:", f"  to send it: {signal_line(execution.id, awaited)}"]
        lines += _also_in_shell("signal", [execution.id, awaited.name], store)
    return lines


def _also_in_shell(verb: str, words: Sequence[str], store: EventStore) -> list[str]:
    return [f"  or in a shell: {in_shell(verb, words, ['--store', store.location])}"] if store.shared else []


def _section(title: str, lines: Iterable[str]) -> list[str]:
    return [title, *(f"  {line}" for line in lines or ["none yet"])]


def _workflow_line(workflow: Workflow) -> str:
    inputs = ", ".join(map(_input_text, workflow.inputs))
    steps = plural(len(visible_steps(workflow)), "stage" if is_pipeline(workflow) else "step")
    about = f"  {one_line(workflow.description, 60)}" if workflow.description else ""
    return f"{one_line(workflow.name, 40)}({inputs})  {steps}{about}"


def _input_text(definition: InputDefinition) -> str:
    if definition.has_default:
        return f"{definition.name}={one_line(repr(definition.default), 20)}"
    return f"{definition.name}=None" if definition.required is False else definition.name
