"""Texts and data of the questions that divebook itself asks people. Questions of workflows have the texts of their
definitions.

The log records each question, and an answer belongs to the question that was shown. Code that asks again after a
resumption therefore uses the recorded wording (`Wording.of`), or identifies the question by what it is about. Example:
a workspace had three changed files when the question was asked, and has four when the execution is resumed. The person
still answers about the three.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from divebook.events.catalog import InterruptRaised
from divebook.questions.question import ANEW, DONE, FAIL, FINISH, RAISE, RETRY, STOP, Question

OR_STOP = " and continue, or stop?"
IDEMPOTENT_ADVICE = (
    "If it may be called twice, define its function with idempotent=True: Retry then makes such calls again."
)


class Wording(NamedTuple):
    """The parts of a question that a person is shown: text, explanation, data, and the JSON schema of the answer."""

    question: str
    message: str | None = None
    data: Mapping[str, Any] | None = None
    schema: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, question: Question) -> Self:
        """Return the wording with which a recorded question was asked."""
        return cls(question.question, question.message, question.data, question.schema)

    @property
    def details(self) -> dict[str, Any]:
        """All but the text, as the options of `StepContext.interrupt`."""
        return {"message": self.message, "data": self.data, "schema": self.schema}

    def event(self, question_id: str, kind: str, operation_id: str | None = None) -> InterruptRaised:
        """Return the event that asks the question."""
        return InterruptRaised(question_id, kind, self.question, **self.details, operation_id=operation_id)


# --- bounds ----------------------------------------------------------------------------------------------------------


def bound_reached(summary: str, name: str, data: Mapping[str, Any], owner: str = "") -> Wording:
    """Return the question whether to raise a bound of an execution or an agent.

    Parameters
    ----------
    summary
        Sentence that states how much of the bound is used.
    name
        Key with which a user can raise the bound.
    owner
        Text that names the agent that the bound belongs to; empty for a bound of the execution.
    """
    prefix = f"{owner}: " if owner else ""
    return Wording(f"{prefix}{summary} Raise `{name}`{OR_STOP}", data={**data, "choices": [RAISE, STOP]})


def owner_of_bound(agent: str, delegating_agent: str | None) -> str:
    """Return the text that names the agent whose bound was reached. With `delegating_agent`, the bound is the agent's
    share of the bounds of that agent.
    """
    share = f" (its share of the bounds of agent {delegating_agent})" if delegating_agent else ""
    return f"Agent {agent}{share}"


def bound_of_agent_exceeded(summary: str, name: str, agent: str, delegating_agent: str | None) -> str:
    """Return the text of the error for a reached bound of an agent that is not raised. The agents are names in
    quotation marks, and `summary` and `name` those of `bound_reached`.
    """
    owner = owner_of_bound(agent, delegating_agent)
    return f"{owner}: {summary} Raise `{name}` in the Bounds of agent {delegating_agent or agent} and resume."


def bound_of_envelope_reached(bound: str, used: object, limit: object) -> str:
    """Return the text of the question whether to raise a bound of an envelope."""
    return f"{bound} reached: {used} of {limit} used. Raise the bound and continue, or stop?"


# --- calls of functions, tools and agents ----------------------------------------------------------------------------


def outcome_unknown(
    call: str, parameters: Any, *, process: str, cause: str | None, arguments: str, effects: str, is_own: bool
) -> Wording:
    """Return the question whether a call took effect whose start is in the log but whose end is not.

    Parameters
    ----------
    call
        Name of the called function.
    process
        What may have stopped during the call: ``kernel`` or ``process``.
    cause
        Error after which the outcome is unknown; None if the process stopped.
    arguments
        Arguments of the call in short form; empty if it has none.
    effects
        Sentence about what is known of the call, with a space before it.
    is_own
        True for a function of the user, which can be declared idempotent.
    """
    why = f"The {process} stopped after it began, or the run was cancelled."
    if cause is not None:
        why = f"It began, and then: {cause}."
    called = f" It was called with {arguments}." if arguments else ""
    advice = f" {IDEMPOTENT_ADVICE}" if is_own and cause is not None else ""
    return Wording(
        f"Did the call to {call} go through?",
        f"{why}{called}{effects}{advice}",
        {"parameters": parameters, "choices": [RETRY, DONE, FAIL]},
    )


def approval_of(call: str, message: str | None, data: Mapping[str, Any], schema: Mapping[str, Any] | None) -> Wording:
    """Return the question whether a tool call, action or step may be executed."""
    return Wording(f"Run {call}?", message, data, schema)


def result_of_tool(tool: str, data: Mapping[str, Any]) -> Wording:
    """Return the question for the result of a tool that a person executes."""
    return Wording(f"What is the result of {tool}?", data=data)


def asked_by_server(question: str, server: str, tool: str, schema: Mapping[str, Any], decline: str) -> Wording:
    """Return the question that an MCP server asks during a call of a tool. `decline` is the answer that gives it
    nothing.
    """
    message = f"the server {server} asks this during a call of {tool}; {decline} gives it no answer"
    return Wording(question, message, {"server": server, "tool": tool}, schema)


def agent_changed(agent: str, changes: Sequence[str], *, can_finish: bool, spent: Mapping[str, Any]) -> Wording:
    """Return the question how to continue a turn whose agent was changed after it began.

    Parameters
    ----------
    changes
        What has changed, as texts.
    can_finish
        True if the turn can be finished with the former definition of the agent.
    spent
        Entry of the data with the consumption of the turn so far; may be empty.
    """
    finish = f"{FINISH} to continue with the original agent, or " if can_finish else ""
    text = (
        f"Agent {agent} changed since this turn began ({'; '.join(changes)}). Answer {finish}{ANEW} to start the turn "
        "again, which also repeats its tool calls"
    )
    choices = [FINISH, ANEW] if can_finish else [ANEW]
    return Wording(text, data={"agent": agent, "changes": list(changes), "choices": choices, **spent})


# --- files -----------------------------------------------------------------------------------------------------------


def files_differ(
    workspace: str, summary: str, changes: Sequence[Mapping[str, Any]], *, restore: str, keep: str
) -> Wording:
    """Return the question what to do with files of a workspace that are not as the execution left them. `restore` and
    `keep` are the possible answers.
    """
    return Wording(
        f"The files of workspace {workspace} are not as the run left them. How should the run continue?",
        f"{summary}. {restore}: restore the files of the run; {keep}: continue with the files that are there.",
        {"workspace": workspace, "changes": list(changes)},
        {"enum": [restore, keep]},
    )


def files_to_take_over(
    message: str, data: Mapping[str, Any], paths: Sequence[str], preselected: Sequence[str]
) -> Wording:
    """Return the question which changed files of a workspace are copied to the original folder."""
    choice = {
        "type": "array",
        "title": "Files",
        "items": {"type": "string", "enum": list(paths)},
        "uniqueItems": True,
        "default": list(preselected),
    }
    return Wording("Which of these files should be applied to the folder?", message, data, choice)


# --- pipelines -------------------------------------------------------------------------------------------------------


def pipeline_stopped(kind: str) -> str:
    """Return the text of a question of a pipeline that has no text of its own."""
    return f"The pipeline has stopped: {kind}"
