"""What a session holds, as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from divebook.engine.waiting import AwaitedSignal, awaited_signals, waits_for
from divebook.environment import Environment
from divebook.events.event import to_datetime
from divebook.execution.execution import Execution
from divebook.execution.overview import badge_of
from divebook.questions import Question
from divebook.questions.wording import address_of, example_answer, wanted_in_full
from divebook.steps.rules import rule_in_words
from divebook.store import EventStore
from divebook.text.commands import in_notebook, in_shell
from divebook.text.cuts import one_line
from divebook.text.redaction import shared
from divebook.text.shown import plural
from divebook.text.times import local_time
from divebook.workflow.definition import InputDefinition, Workflow
from divebook.workflow.pipeline_steps import is_pipeline, visible_steps

WIDTH = 96


def contents(environment: Environment) -> str:
    """Return the workflows, agents and actions of an environment."""
    workflows = [_workflow_line(workflow) for workflow in environment.workflows.values()]
    agents = [f"{one_line(agent.name, 40)}  {agent.model_name}" for agent in environment.agents.values()]
    actions = textwrap.wrap(", ".join(environment.actions), WIDTH)
    return "\n".join([*_section("workflows", workflows), *_section("agents", agents), *_section("actions", actions)])


def questions(environment: Environment, store: str | None = None) -> str:
    """Return the questions that wait for an answer, and how to give it in a session that names this store."""
    asked = ["\n    ".join(lines) for lines in open_questions(environment, store)]
    return "\n".join(_section("questions", asked or ["none"]))


def open_questions(environment: Environment, store: str | None = None) -> list[list[str]]:
    """Return the lines of each question that waits for an answer, newest execution first."""
    asked = [(environment.store.record(found), found, question) for found, question in environment.interrupts()]
    return [list(question_lines(found, question, store, badge_of(record))) for record, found, question in asked]


def rules(environment: Environment, revoked: str | None = None) -> str:
    """Return the rules that people made when they approved calls, after one of them was revoked if one is named."""
    if revoked is not None:
        environment.revoke(revoked)
    held = [f"{rule.rule_id}  {rule_in_words(rule, name)}" for name, rule in environment.rules()]
    return "\n".join(_section("rules", [one_line(shared().text(line), 400) for line in held] or ["none"]))


def question_lines(execution_id: str, question: Question, store: str | None = None, badge: str = "") -> Iterable[str]:
    """Yield the lines of one question: who asks, what, what fits, until when, and what to type."""
    who = f"{badge} {execution_id}".lstrip()
    yield f"{question.id}  {question.kind}  ({who}, step {one_line(question.step, 40)})"
    yield one_line(shared().text(question.question), 200)
    if question.message:
        yield one_line(shared().text(question.message), 200)
    until = "" if question.expires_at is None else f", until {local_time(question.expires_at)}"
    yield f"answer with {one_line(wanted_in_full(question), 400)}{until}"
    yield f"to answer: {answer_line(execution_id, question, store)}"


def answer_line(execution_id: str, question: Question, store: str | None = None) -> str:
    """Return the magic that answers a question."""
    words = [address_of(execution_id, question), example_answer(question)]
    return in_notebook("answer", words, [] if store is None else ["--store", store])


def settled_text(words: str, by: str | None, at_us: int | None) -> str:
    """Return on one line what became of a question, who answered it, and when."""
    at = "" if at_us is None else f" at {local_time(to_datetime(at_us))}"
    return one_line(words, 120) + (f" (by {one_line(by, 60)}{at})" if by else "")


def signal_line(execution_id: str, awaited: AwaitedSignal, store: str | None = None) -> str:
    """Return the magic that sends a signal."""
    return in_notebook("signal", [execution_id, awaited.name], [] if store is None else ["--store", store])


def waiting_lines(execution: Execution) -> list[str]:
    """Return a line for each thing that an execution waits for, with the magic that gives it."""
    state = execution.state
    if state.paused is not None:
        resume = in_notebook("resume", [execution.id])
        return [f"{execution.id} is paused. Run the cell again to continue, or: {resume}"]
    lines = [
        *(
            f"an answer to {one_line(asked.question, 80)!r}: {answer_line(execution.id, asked)}"
            for asked in execution.interrupts
        ),
        *(f"{awaited}: {signal_line(execution.id, awaited)}" for awaited in awaited_signals(state)),
    ]
    return [f"{execution.id} waits for {line}" for line in lines or waits_for(state, ()) or ["a time"]]


def ways_on(execution: Execution) -> list[str]:
    """Return what an execution waits for, and the commands that give it, here and in a shell."""
    store, lines = execution.store, []
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
