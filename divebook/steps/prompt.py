"""Prompt steps: render a prompt and content blocks, and send them to an agent.

`PromptStep` is the handler. It calls `ask_agent`, which makes a single model request, or runs a recorded turn
(`run_turn`) if the agent has tools, structured output or a conversation.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import anyio.to_thread

from divebook.agents import Agent, ScriptedModel
from divebook.agents.cache import Cached, Cassette, lasting
from divebook.agents.models import RECORDED
from divebook.agents.running_turn import CALL, count_spent, present
from divebook.agents.turn import AgentTask, Answer
from divebook.documents import DocumentRepository, Policy
from divebook.engine.operations import AGENT_TURN, DYNAMIC_CONTENT, RunOperation, Setting
from divebook.errors import NotFoundError, SetupError, StepError, ToolError
from divebook.events.catalog import COMPLETED, FAILED, PENDING
from divebook.events.codec import short_hash
from divebook.projections.model_requests import RequestView
from divebook.runtime.context import StepContext
from divebook.runtime.errors import clean_failure
from divebook.runtime.step import Outcome
from divebook.scripting import Interpreter
from divebook.steps.batched_rows import run_batches
from divebook.steps.conversations import BRANCHED
from divebook.steps.script_step import ScriptHost, filled, render_texts
from divebook.steps.step_turn import TURN, AgentServices, StepTurn, agent_for_run, consumption_of, run_id_of
from divebook.text.redaction import shared
from divebook.workflow.step import (
    Block,
    ContentEntry,
    Retry,
    Step,
    blocks_from_program_output,
    blocks_from_script_result,
    text_block,
)
from divebook.workflow.tools import ToolFunction, ToolHints

if TYPE_CHECKING:
    from divebook.agents.request_record import ResponseSource


# --- content blocks --------------------------------------------------------------------------------------------------
#
# Content blocks of prompt steps. Dynamic blocks are evaluated as recorded operations.


PROGRAM_SECONDS = 60.0


class ContentBuilder:
    """Builder of content blocks (text, images, documents) for prompts, from the content entries of a definition.
    Scripts and programs that produce content run as recorded operations.
    """

    def __init__(
        self, interpreter: Interpreter, documents: DocumentRepository, printer: Callable[[str], None], policy: Policy
    ) -> None:
        self._interpreter = interpreter
        self._documents = documents
        self._printer = printer
        self._policy = policy

    async def blocks(
        self, entries: Sequence[ContentEntry], context: StepContext, agent: str, prefix: str = ""
    ) -> list[Block]:
        """Build the content blocks of content entries, in their order. The operation keys of scripts and programs begin
        with `prefix`.
        """
        blocks: list[Block] = []
        for number, entry in enumerate(entries, 1):
            # Without a prefix, the operations of the step are numbered.
            blocks.extend(await self._blocks_of(entry, context, agent, f"{prefix}content-{number}" if prefix else None))
        return blocks

    def of_agent(self, context: StepContext, agent: Agent, prefix: str) -> Awaitable[list[Block]]:
        """Build the content blocks of the entries under the key `Context` in an agent's definition."""
        return self.blocks(agent.definition.context, context, agent.name, prefix)

    async def _blocks_of(self, entry: ContentEntry, context: StepContext, agent: str, key: str | None) -> list[Block]:
        if entry.blocks is not None:
            # Copied, because all runs share the definition.
            return [dict(block) for block in entry.blocks]
        if entry.text is not None:
            return [text_block(entry.text.strip())]
        if entry.document is not None:
            return [text_block(self._documents.get(entry.document).content)]
        if entry.dynamic is not None:
            return await self._from_script(entry.dynamic, context, agent, key)
        if entry.dynamic_from is not None:
            return await self._from_program(entry.dynamic_from, context, agent, key)
        raise SetupError(
            f"content {entry.source} {getattr(entry, entry.source)!r} of step {context.step.name!r} was not loaded; "
            "read the definition with divebook.load or in a %%dive cell"
        )

    async def _from_script(self, script: str, context: StepContext, agent: str, key: str | None) -> list[Block]:
        # A script in the content may also use these three names.
        names = {**context.names, "workflow": context.workflow.name, "step": context.step.name, "agent": agent}
        host = ScriptHost(context, self._documents, self._printer)

        async def call() -> list[Block]:
            result = await anyio.to_thread.run_sync(self._interpreter.run_script, script, names, host)
            return blocks_from_script_result(result)

        blocks: list[Block] = await context.operation(
            DYNAMIC_CONTENT, {"script": script}, call, repeatable=True, key=key
        )
        return blocks

    async def _from_program(self, program: str, context: StepContext, agent: str, key: str | None) -> list[Block]:
        variables = {
            "inputs": dict(context.inputs),
            "state": dict(context.variables),
            "workflow": context.workflow.name,
            "step": context.step.name,
            "agent": agent,
        }

        async def call() -> list[Block]:
            # Checked when the program really runs; a replay takes its output from the log.
            self._policy.program(program)
            return await anyio.to_thread.run_sync(run_program, program, variables)

        blocks: list[Block] = await context.operation(
            DYNAMIC_CONTENT, {"program": program}, call, repeatable=True, key=key
        )
        return blocks


def run_program(program: str, variables: dict[str, Any]) -> list[Block]:
    """Run a program, and return the content blocks that the program prints as a JSON list.

    Parameters
    ----------
    program
        Path of an executable file.
    variables
        Passed to the program as JSON in the environment variable ``DIVE_GLOBALS``.

    Raises
    ------
    StepError
        The file does not exist, or the program fails, runs longer than a minute, or prints anything but such a list.
    """
    if not Path(program).is_file():
        raise StepError(f"script file not found: {program}")
    # Values that JSON lacks are passed as text.
    environ = {**os.environ, "DIVE_GLOBALS": json.dumps(variables, default=str)}
    try:
        process = subprocess.run(
            [str(Path(program).resolve())], env=environ, capture_output=True, check=True, timeout=PROGRAM_SECONDS
        )
        return blocks_from_program_output(process.stdout.decode())
    except subprocess.CalledProcessError as error:
        output = shared().text(error.stderr.decode(errors="replace").strip())[-500:]
        raise StepError(f"script execution failed: {program} ended with code {error.returncode}: {output}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StepError(f"script execution failed: {error}") from error
    except UnicodeDecodeError as error:
        raise StepError(f"failed to parse script JSON output of {program}: {error}") from error


# --- delegation ------------------------------------------------------------------------------------------------------
#
# Delegation of work between agents: the tool ``assign_work``, each call of which is a turn of another agent.
#
# The turn is recorded in the same log, under the key of the call, with its own questions and its own lane. The budget
# of the execution applies to it like to every other turn.


ASSIGN_WORK = "assign_work"


MOST_DEEP = 4
"""Maximum length of a delegation chain, in agents."""


Delegate = Callable[[Agent, str], Awaitable[str]]
"""Asks an agent to answer a prompt; returns its answer."""


def work_tool(agents: Sequence[Agent], above: Iterable[str], delegate: Delegate) -> ToolFunction | None:
    """Return the tool ``assign_work``, with which a model delegates tasks to other agents; None if no agent is
    available.

    Parameters
    ----------
    agents
        Agents to which tasks may be delegated.
    above
        Names of the agents in the delegation chain: the delegating agent and the agents that wait for its answer. Tasks
        are not delegated to them.
    """
    chain = list(above)
    available = {candidate.name: candidate for candidate in agents if candidate.name not in chain}
    if not available or len(chain) >= MOST_DEEP:
        return None

    async def assign_work(  # noqa: PLR0917 - a model passes the arguments by name
        agent: str,
        name: str,
        description: str,
        expected_output: str,
        output_format: str | None = None,
        context: str | None = None,
    ) -> str:
        work = {"Work": name, "Expected output": expected_output, "Format": output_format, "Context": context}
        details = [f"{title}: {text}" for title, text in work.items() if text]
        return await delegate(available[agent], "\n\n".join([description, *details]))

    # The schema for the model then lists the names of the agents.
    assign_work.__annotations__["agent"] = Literal[tuple(available)]
    assign_work.__doc__ = _DESCRIPTION.format("\n".join(map(_list_entry, available.values())))
    # Delegation itself needs no approval and is not recorded as a call: the other agent's turn and its calls are.
    return ToolFunction(
        ASSIGN_WORK,
        assign_work,
        assign_work.__doc__,
        hints=ToolHints(read_only=True, destructive=False, open_world=False),
        inline=True,
    )


def _list_entry(agent: Agent) -> str:
    goal = agent.definition.goal
    return f"- {agent.name}: {goal}" if goal else f"- {agent.name}"


_DESCRIPTION = """Have another agent do a part of the work, and get what it answers. It knows nothing but what you say.

The agents:
{}

Parameters
----------
agent
    Who is to do it.
name
    A short name of the work.
description
    What is to be done, in full.
expected_output
    What the answer is to hold.
output_format
    How it is to be written.
context
    What the agent must know for it.
"""


class DelegationChain(NamedTuple):
    """The agents that wait for the current turn, in order: the first delegated a task to the second, and so on; the
    last delegated the task of the current turn.
    """

    within: str | None = None
    """Id of the nearest waiting turn."""
    agents: tuple[str, ...] = ()


ALONE = DelegationChain()


# --- agent turns -----------------------------------------------------------------------------------------------------
#
# Calls of agents from a step: a single request, or a recorded turn with tools and delegation.
#
# `ask_agent` is the only way to ask an agent from a step. Each request to its model is recorded, counted and retried as
# an operation of its own.


async def ask_agent(
    context: StepContext, agent: Agent, task: AgentTask, services: AgentServices, blocks: Blocks | None = None
) -> Answer:
    """Give an agent a task, and return the agent's answer. Its model requests and tool calls are recorded as operations
    of the step.

    Parameters
    ----------
    services
        Services of the environment.
    blocks
        Returns the content blocks of the `Context` of agents to which the agent delegates tasks. By default these
        agents get no blocks.
    """
    agent = agent_for_run(context, agent, services)
    # A recorded turn is resumed as a turn, even if the agent has lost its tools since.
    has_turn = context.record_of(f"{task.prefix}{TURN}") is not None
    if has_turn or uses_tools(agent, services) or task.output is not None or task.thread is not None:
        return await run_turn(context, agent, task, services, blocks or _none)
    # A step with a Retry repeats the whole step. Retrying each request as well would multiply the requests.
    operation = context.operation if context.step.retry is not None else _with_retries(context, agent.retry)
    text = await agent.respond(
        task.prompt, operation, content=task.content, context=task.context, date=context.started_at
    )
    return Answer(text, text)


async def run_turn(
    context: StepContext,
    agent: Agent,
    task: AgentTask,
    services: AgentServices,
    blocks: Blocks,
    *,
    chain: DelegationChain = ALONE,
) -> Answer:
    """Run a turn of an agent as a recorded operation: with tools, structured output or a conversation. Return the
    agent's answer.

    Parameters
    ----------
    blocks
        Returns the content blocks of the `Context` of agents to which the agent delegates tasks.
    chain
        Turns that wait for this turn.
    """
    key = f"{task.prefix}{TURN}"
    conditions = await _turn_conditions(context, agent, task, key, services)
    task = replace(task, share=conditions.get(SHARE))
    if task.thread is not None:
        task = replace(task, history=conditions["thread"]["history"])
    setting = Setting(conditions, short_hash(conditions))
    parameters = {"agent": agent.name, **task.to_dict()}
    recorded_turn = _RecordedTurn(context, agent, task, services, blocks, chain)
    try:
        result = await context.enclosing(
            AGENT_TURN, parameters, recorded_turn.run, key=key, setting=setting, within=chain.within
        )
    finally:
        # The turn did not run here, so its requests have not been counted in the budget of the delegating turn.
        record = context.record_of(key)
        if not recorded_turn.has_run and record is not None and record.status in (COMPLETED, FAILED):
            count_spent(consumption_of(context, record))
    # A replay must not change the conversation, which is shared with other runs.
    if task.thread is not None and (context.miss_policy is None or context.miss_policy.writes):
        await _append_to_thread(context, services, conditions["thread"], key, result["messages"])
    return Answer(result.get("text", result["output"]), result["output"])


async def response_source_for(
    context: StepContext, agent: Agent, services: AgentServices, turn: str
) -> ResponseSource | None:
    """Return the source of stored model responses for an agent's turn: a recorded run or the response cache. The turn
    asks it first, and sends a request to the model only if it has no response. Return None if the agent uses neither.

    `turn` is the id of the turn's operation.

    Raises
    ------
    ExecutionNotFoundError
        The agent's model is ``recorded:RUN``, and the store has no such run.
    """
    if agent.model_name.startswith(RECORDED):
        run = agent.model_name.removeprefix(RECORDED)
        requests = await anyio.to_thread.run_sync(services.requests_of, run)  # the log may be long
        return Cassette(agent.model_name, agent.name, _at(context, requests, turn))
    if agent.definition.cache is None:
        return None
    return Cached(services.responses, lasting(agent.definition.cache))


def _at(context: StepContext, requests: Sequence[RequestView], turn: str) -> list[RequestView]:
    """Return those model requests of another run that belong to the turn with the id `turn`. If that run has no such
    turn, return its single requests (without a turn) at the same place: path, step, visit and loop item.
    """
    of_same_turn = [request for request in requests if request.span.within == turn]
    place = context.place("", 0)
    # A single request belongs to the place of the step.
    place_of_step = place.path, place.step, place.visit, place.iteration_index
    without_turn = [request for request in requests if request.span.within is None]
    return of_same_turn or [
        request
        for request in without_turn
        if (request.span.path, request.span.step, request.span.visit, request.span.iteration) == place_of_step
    ]


SHARE = "share"
"""Key in the setting of a turn for the part of the budget that the delegating turn assigned to it."""


Blocks: TypeAlias = Callable[[Agent, str], Awaitable[Sequence[Mapping[str, Any]]]]
"""Returns the content blocks of an agent's own `Context`. Their operations have a prefix before their keys."""


def uses_tools(agent: Agent, services: AgentServices) -> bool:
    """Return True if an agent may call tools or delegate tasks. Such an agent answers in a recorded turn, which
    consists of several operations, and not with a single request.
    """
    return agent.has_hands or bool(services.subordinates_for(agent.definition))


@dataclass
class _RecordedTurn:
    """One agent turn as an operation of a step. If the log already has the result of the turn, the turn does not
    run.
    """

    context: StepContext
    agent: Agent
    task: AgentTask
    services: AgentServices
    blocks: Blocks
    chain: DelegationChain
    has_run: bool = False
    """True if the turn ran in this process, even if it failed. False if its result came from the log."""

    async def run(self, turn: str) -> dict[str, Any]:
        """Run the agent's turn from its beginning. Requests and tool calls that the log has are answered from the log.
        Return the result of the turn in recorded form.
        """
        self.has_run = True
        response_source = await response_source_for(self.context, self.agent, self.services, turn)
        turn_context = StepTurn(self.context, self.task.prefix, turn, self.services, response_source)
        try:
            servers = self.services.servers_for(self.agent.definition)
            return await self.agent.turn(self.task, turn_context, self._tools(turn), servers, self.services.limited)
        finally:
            turn_context.raise_suspension()

    def _tools(self, turn: str) -> list[ToolFunction]:
        """Return the tools that the agent's definition names. If the agent has subordinates, add the tool
        ``assign_work``, unless another tool has that name.
        """
        definition = self.agent.definition
        chain = DelegationChain(turn, (*self.chain.agents, self.agent.name))
        tools = [*self.services.tools_for(definition)]
        assign_work = work_tool(
            self.services.subordinates_for(definition), chain.agents, functools.partial(self._delegate, chain)
        )
        # A tool of the user has precedence.
        if assign_work is None or any(tool.name == assign_work.name for tool in (*tools, *self.agent.tools)):
            return tools
        return [*tools, assign_work]

    async def _delegate(self, chain: DelegationChain, subordinate: Agent, description: str) -> str:
        """Run a turn of the agent `subordinate` for a delegated task, and return the text of its answer. The operation
        keys of the turn begin with the key of the delegating tool call.
        """
        call = CALL.get()
        assert call is not None  # noqa: S101 - the guard around all tools has set it
        # For call `c1` that request 2 asks for, the operation keys of the subordinate turn begin with `tool-2-c1/`.
        prefix = f"{call.turn.context.prefix}{call.key}/"
        task = AgentTask(description, context=await self.blocks(subordinate, prefix), prefix=prefix)
        subordinate = agent_for_run(self.context, subordinate, self.services)
        return (await run_turn(self.context, subordinate, task, self.services, self.blocks, chain=chain)).text


async def _turn_conditions(
    context: StepContext, agent: Agent, task: AgentTask, key: str, services: AgentServices
) -> dict[str, Any]:
    """Return the setting that is recorded with an agent's turn: its model, its share of the budget of the agent that
    delegated the turn, the number of the turn for a scripted model, and the conversation before the turn.

    A recorded turn keeps the recorded values in every process. Without a record, a replay policy may supply those of
    the original run. The share of a turn that is run again is computed anew, because the bounds of the delegating agent
    may have been raised.
    """
    conditions: dict[str, Any] = {"model": agent.model_name}
    record = context.record_of(key)
    delegating_turn = present()
    recorded_conditions = {} if record is None else (await context.start_of(key))[1]
    # A turn that began without a share keeps none.
    if delegating_turn is not None and (SHARE in recorded_conditions or record is None):
        is_again = record is not None and record.status == PENDING
        share = delegating_turn.share(ASSIGN_WORK, recorded_conditions.get(SHARE), is_again=is_again)
        conditions |= {} if share is None else {SHARE: share}
    # A what-if continues the script and the conversation where the original run did.
    if record is None and context.miss_policy is not None:
        recorded_conditions = context.miss_policy.setting_of(context.place(key).operation_id)
    if isinstance(agent.model, ScriptedModel) and not agent.model.is_texts:
        conditions["script"] = agent.model.turn(run_id_of(context, key), recorded_conditions.get("script"))
    if task.thread is not None:
        conditions["thread"] = recorded_conditions.get("thread") or await services.threads.begin(task.thread)
    return conditions


async def _append_to_thread(
    context: StepContext, services: AgentServices, thread: Mapping[str, Any], key: str, messages: Any
) -> None:
    """Append the messages of an agent's turn to its conversation, unless they are stored already. If another turn was
    appended in the meantime, the messages become a new branch of the conversation, and an event records the branch's
    id.
    """
    branch_id = await services.threads.append(thread, run_id_of(context, key), messages, context.execution_id)
    if branch_id != thread["id"]:
        context.emit(BRANCHED, {"thread": thread["id"], "branch": branch_id}, key=f"{key}-branched")


async def _none(*_: object) -> Sequence[Mapping[str, Any]]:
    return ()


def _with_retries(context: StepContext, policy: Retry) -> RunOperation:
    """Return a function that is called like `StepContext.operation`, but repeats a failed operation as the retry policy
    allows.
    """

    async def operation(
        operation_type: str,
        parameters: Mapping[str, Any],
        call: Callable[[], Awaitable[Any]],
        *,
        key: str | None = None,
        **options: Any,
    ) -> Any:
        # All attempts of a call have one key, and differ by their number.
        name = context.next_key() if key is None else key

        async def attempt(failures: int) -> Any:
            return await context.operation(operation_type, parameters, call, key=name, attempt=failures, **options)

        return await context.retried(name, policy, attempt)

    return operation


class PromptStep:
    """Handler of prompt steps, which send a prompt to an agent.

    Parameters
    ----------
    find_agent
        Returns an agent by name, and the default agent for None. Returns None if the environment has no agents.
    content
        Builder of content blocks.
    services
        Services of the environment for agents.
    """

    def __init__(
        self, find_agent: Callable[[str | None], Agent | None], content: ContentBuilder, services: AgentServices
    ) -> None:
        self._find_agent = find_agent
        self._content = content
        self._services = services

    async def __call__(self, context: StepContext) -> Outcome:
        """Execute a prompt step: send its prompt to its agent. The value of the step is the agent's answer; the output
        is the answer's text.
        """
        step = context.step
        agent = self._find_agent(step.agent)
        if agent is None:
            raise StepError(f'no agent specified for prompt step "{step.name}"; define one, or name it with Agent')
        # Rows are sent as batches, items as single requests.
        if step.each is not None and step.each.rows is not None:
            frame = await filled({"rows": step.each.rows}, context.names, cache=context.known)
            return await run_batches(context, agent, frame["rows"], self._services)
        prompt, thread = await render_texts([step.prompt or "", step.thread or ""], context.names)
        content = await self._content.blocks(step.content, context, agent.name)
        task = AgentTask(prompt, content, output=step.output, thread=thread or None)
        answer = await self._answer(context, agent, task)
        return Outcome(answer.text, answer.value)

    def agent_of_step(self, step: Step) -> Agent | None:
        """Return the agent of a prompt step if it answers in a recorded turn, whose requests and tool calls are retried
        separately. Return None if the step makes a single request, or its agent does not exist.
        """
        try:
            agent = self._find_agent(step.agent)
        except NotFoundError:
            return None  # the step itself reports the unknown agent when it runs
        is_turn = agent is not None and (
            uses_tools(agent, self._services) or (step.output, step.thread) != (None, None)
        )
        return agent if is_turn else None

    async def ask(self, context: StepContext, name: str, task: AgentTask) -> Answer:
        """Ask an agent on behalf of a workflow function (`ctx.agent`); raise `NotFoundError` for an unknown agent."""
        agent = self._find_agent(name)
        if agent is None:
            raise NotFoundError("agent", name)
        if context.record_of(f"{task.prefix}{TURN}") is None:
            self._services.check_agent(agent)  # the name was not known when the execution started
        return await self._answer(context, agent, task)

    async def _answer(self, context: StepContext, agent: Agent, task: AgentTask) -> Answer:
        blocks = functools.partial(self._content.of_agent, context)
        # The operations of the agent's own `Context` have no prefix, those of subordinates have one.
        own_context = await blocks(agent, "")
        try:
            task_with_context = replace(task, context=own_context) if own_context else task
            return await ask_agent(context, agent, task_with_context, self._services, blocks)
        except ToolError as error:
            raise ToolError(error.agent, error.tool, error.cause) from error
        except Exception as error:
            raise StepError(f"agent {agent.name} failed: {clean_failure(error)}") from error
