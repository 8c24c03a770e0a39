"""Prompt steps: render a prompt and content blocks, and send them to an agent.

`PromptStep` is the handler. It calls `ask_agent`, which makes a single model request, or runs a recorded turn
(`run_turn`) if the agent has tools, structured output or a conversation.

`run_batches` sends the prompts of many rows through the batch API of a model provider.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import subprocess
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

import anyio
import anyio.to_thread

from divebook.agents import Agent, ScriptedModel
from divebook.agents.agent import OUTPUT, RECORDED_MODEL, TurnServices, loaded, turn_reasons, unasked
from divebook.agents.cache import Cached, Cassette, ResponseCache, lasting
from divebook.agents.models import RECORDED
from divebook.agents.running_turn import CALL, count_spent, present
from divebook.agents.turn import AgentTask, Answer, StepTurn, consumption_of, run_id_of
from divebook.definitions.answer_types import answer_type
from divebook.definitions.resources import AgentDefinition
from divebook.definitions.servers import ToolServer
from divebook.definitions.step import (
    Block,
    ContentEntry,
    Retry,
    Step,
    blocks_from_program_output,
    blocks_from_script_result,
    text_block,
)
from divebook.definitions.tools import ToolFunction, ToolHints
from divebook.documents import DocumentRepository, Policy
from divebook.engine.operations import (
    AGENT_TURN,
    BATCH_LOOK,
    BATCH_RESULTS,
    BATCH_SUBMISSION,
    DYNAMIC_CONTENT,
    TURN_KEY,
    Reserved,
    Setting,
)
from divebook.errors import NotFoundError, ScriptError, SetupError, StepError, TemplateError, ToolError
from divebook.events import catalog
from divebook.events.catalog import COMPLETED, FAILED, PENDING
from divebook.events.codec import short_hash, storable
from divebook.events.recorded import opened
from divebook.projections.model_requests import RequestView
from divebook.runtime.context import StepContext
from divebook.runtime.errors import clean_failure
from divebook.runtime.recorder import leaves_outcome_unknown
from divebook.runtime.step import Outcome
from divebook.scripting import Interpreter
from divebook.steps.conversations import BRANCHED, ConversationStore
from divebook.steps.row_calls import UNKNOWN, RowResult, error_text
from divebook.steps.script_step import ScriptHost, filled, render_texts
from divebook.text.redaction import shared

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
            "read the definition with divebook.config.load or in a %%dive cell"
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


# --- services for agents ----------------------------------------------------------------------------------------------


class AgentToolkit(TurnServices, Protocol):
    """Protocol for access to the tools, MCP servers and subordinates of agents."""

    def agent(self, name: str) -> Agent:
        """Return an agent by name; raise `NotFoundError` if there is none."""

    def tools_for(self, definition: AgentDefinition) -> Sequence[ToolFunction]:
        """Return the tools that are named in an agent's definition."""

    def servers_for(self, definition: AgentDefinition) -> Sequence[ToolServer]:
        """Return the MCP servers whose tools an agent may call."""

    def subordinates_for(self, definition: AgentDefinition) -> Sequence[Agent]:
        """Return the agents to which an agent may delegate work."""


class AgentServices(AgentToolkit, Protocol):
    """Protocol for the services that an environment provides to agents. The registry of an
    environment implements it.
    """

    threads: ConversationStore
    """Conversations of its store."""

    @property
    def responses(self) -> ResponseCache:
        """Cache of model responses, used by agents whose definition has the key `Cache`."""

    def requests_of(self, run: str) -> Sequence[RequestView]:
        """Return all model requests that a recorded run made; raise `ExecutionNotFoundError` if the store has no such
        run.
        """

    def policy_for_agent(self, name: str) -> Policy:
        """Return the access policy of an agent: the files, environment variables and credentials that it may use."""

    def check_agent(self, agent: Agent) -> None:
        """Raise an error unless each tool, server and subordinate that an agent names exists and is unambiguous."""


def agent_for_run(context: StepContext, agent: Agent, services: AgentServices) -> Agent:
    """Return a copy of an agent for this run. It has the model of the run, if the run sets one. If the run must not ask
    models, as in a replay, it has a placeholder model.
    """
    agent = agent.with_model(context.model).under(services.policy_for_agent(agent.name))
    return agent if context.miss_policy is None or context.miss_policy.asks_models else unasked(agent)


# --- asking an agent -------------------------------------------------------------------------------------------------
#
# `ask_agent` is the only way to ask an agent from a step. Each answer is a turn: with a single request, or with tools,
# structured output, a conversation or delegation. Each request to a model is recorded, counted and retried as an
# operation of its own.


SHARE = "share"
"""Key in the setting of a turn for the part of the budget that the delegating turn assigned to it."""


Blocks: TypeAlias = Callable[[Agent, str], Awaitable[Sequence[Mapping[str, Any]]]]
"""Returns the content blocks of an agent's own `Context`. Their operations have a prefix before their keys."""


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
    return await TaskTurn(context, agent, task, services, blocks or _none).run_task()


class TaskTurn:
    """Turn in which an agent carries out one task. It has one of two recorded forms: a single request, which is an
    operation of the step, or an operation that encloses all requests and tool calls of the turn.

    Parameters
    ----------
    blocks
        Returns the content blocks of the `Context` of agents to which the agent delegates tasks.
    chain
        Turns that wait for this turn.
    """

    def __init__(  # noqa: PLR0917 - the arguments of `ask_agent`, and the chain
        self,
        context: StepContext,
        agent: Agent,
        task: AgentTask,
        services: AgentServices,
        blocks: Blocks,
        chain: DelegationChain = ALONE,
    ) -> None:
        self._context = context
        self._agent = agent_for_run(context, agent, services)
        self._task = task
        self._services = services
        self._blocks = blocks
        self._chain = chain
        self._key = f"{task.prefix}{TURN_KEY}"
        self._has_run = False
        """True if the enclosed turn ran in this process, even if it failed. False if its result came from the log."""

    async def run_task(self) -> Answer:
        """Return the agent's answer to the task."""
        # A turn that was recorded with its calls is resumed in this form, even if the agent has lost its tools since.
        is_recorded = self._context.record_of(self._key) is not None
        if is_recorded or turn_reasons_in(self._services, self._agent, self._task.output, self._task.thread):
            return await self.enclosed()
        return await self._single_request()

    async def _single_request(self) -> Answer:
        task = self._task
        text = await self._agent.respond(
            task.prompt,
            functools.partial(self._step_turn(None).operation, retry=self._agent.retry),
            content=task.content,
            context=task.context,
            date=self._context.started_at,
        )
        return Answer(text, text)

    async def enclosed(self) -> Answer:
        """Return the agent's answer to the task. The turn is recorded as an operation that encloses its requests and
        tool calls.
        """
        context = self._context
        conditions = await self._conditions()
        task = self._task = replace(self._task, share=conditions.get(SHARE))
        if task.thread is not None:
            self._task = replace(task, history=conditions["thread"]["history"])
        setting = Setting(conditions, short_hash(conditions))
        parameters = {"agent": self._agent.name, **task.to_dict()}
        try:
            result = await context.enclosing(
                AGENT_TURN, parameters, self._run, key=self._key, setting=setting, within=self._chain.within
            )
        finally:
            # The turn did not run here, so its requests have not been counted in the budget of the delegating turn.
            record = context.record_of(self._key)
            if not self._has_run and record is not None and record.status in (COMPLETED, FAILED):
                count_spent(consumption_of(context, record))
        # A replay must not change the conversation, which is shared with other runs.
        if task.thread is not None and (context.miss_policy is None or context.miss_policy.writes):
            await self._append_to_thread(conditions["thread"], result["messages"])
        return Answer(result.get("text", result["output"]), result["output"])

    async def _conditions(self) -> dict[str, Any]:
        """Return the setting that is recorded with the turn: its model, its share of the budget of the agent that
        delegated the turn, the number of the turn for a scripted model, and the conversation before the turn.

        A recorded turn keeps the recorded values in every process. Without a record, a replay policy may supply those
        of the original run. The share of a turn that is run again is computed anew, because the bounds of the
        delegating agent may have been raised.
        """
        context = self._context
        agent = self._agent
        conditions: dict[str, Any] = {"model": agent.model_name}
        record = context.record_of(self._key)
        delegating_turn = present()
        recorded_conditions = {} if record is None else (await context.start_of(self._key))[1]
        # A turn that began without a share keeps none.
        if delegating_turn is not None and (SHARE in recorded_conditions or record is None):
            is_again = record is not None and record.status == PENDING
            share = delegating_turn.share(ASSIGN_WORK, recorded_conditions.get(SHARE), is_again=is_again)
            conditions |= {} if share is None else {SHARE: share}
        # A what-if continues the script and the conversation where the original run did.
        if record is None and context.miss_policy is not None:
            recorded_conditions = context.miss_policy.setting_of(context.place(self._key).operation_id)
        if isinstance(agent.model, ScriptedModel) and not agent.model.is_texts:
            conditions["script"] = agent.model.turn(run_id_of(context, self._key), recorded_conditions.get("script"))
        if self._task.thread is not None:
            conversation = recorded_conditions.get("thread") or await self._services.threads.begin(self._task.thread)
            conditions["thread"] = conversation
        return conditions

    async def _append_to_thread(self, thread: Mapping[str, Any], messages: Any) -> None:
        """Append the messages of the turn to its conversation, unless they are stored already. If another turn was
        appended in the meantime, the messages become a new branch of the conversation, and an event records the
        branch's id.
        """
        context = self._context
        turn_id = run_id_of(context, self._key)
        branch_id = await self._services.threads.append(thread, turn_id, messages, context.run_id)
        if branch_id != thread["id"]:
            context.emit(BRANCHED, {"thread": thread["id"], "branch": branch_id}, key=f"{self._key}-branched")

    async def _run(self, turn: str) -> dict[str, Any]:
        """Run the agent's turn from its beginning. Requests and tool calls that the log has are answered from the log.
        Return the result of the turn in recorded form. `turn` is the id of the enclosing operation.
        """
        self._has_run = True
        services = self._services
        step_turn = self._step_turn(turn, await response_source_for(self._context, self._agent, services, turn))
        try:
            servers = services.servers_for(self._agent.definition)
            for server in servers:
                self._require_sampler(server)
            return await self._agent.turn(self._task, step_turn, self._tools(turn), servers, services)
        finally:
            step_turn.raise_suspension()

    def _step_turn(self, turn: str | None, response_source: ResponseSource | None = None) -> StepTurn:
        return StepTurn(self._context, self._task.prefix, turn, self._sample, response_source)

    def _require_sampler(self, server: ToolServer) -> None:
        """Raise `SetupError` if the agent that answers the sampling requests of an MCP server has tools. The text in
        such a request comes from the server and must not cause tool calls.
        """
        if server.sampling is None:
            return
        reasons = turn_reasons(self._sampler(server.sampling))
        if reasons:
            raise SetupError(
                f"agent {server.sampling} answers the model requests of MCP server {server.name}, but has "
                f"{reasons[0]}: name an agent in Sampling that answers with a single request"
            )

    def _sampler(self, name: str) -> Agent:
        return agent_for_run(self._context, self._services.agent(name), self._services)

    async def _sample(
        self, request: Mapping[str, Any], operation: Callable[..., Coroutine[Any, Any, Any]]
    ) -> dict[str, Any]:
        """Answer a sampling request of an MCP server with a single request to the model of the agent that the request
        names. Return the answer.
        """
        agent = self._sampler(request["agent"]).with_settings(
            temperature=request.get("temperature"), max_tokens=request["max_tokens"]
        )
        # A single request has one message, so earlier messages become text before the last one.
        *earlier_messages, last_message = request["messages"]
        texts = [request["system"]] if request.get("system") else []
        texts += [f"{message['role']}: {message['text']}" for message in earlier_messages]
        content = [text_block("\n\n".join(texts))] if texts else []
        with_retry = functools.partial(operation, retry=agent.retry)
        text = await agent.respond(last_message["text"], with_retry, context=content)
        return {"text": text, "model": agent.model_name}

    def _tools(self, turn: str) -> list[ToolFunction]:
        """Return the tools that the agent's definition names. If the agent has subordinates, add the tool
        ``assign_work``, unless another tool has that name.
        """
        definition = self._agent.definition
        chain = DelegationChain(turn, (*self._chain.agents, self._agent.name))
        tools = [*self._services.tools_for(definition)]
        assign_work = work_tool(
            self._services.subordinates_for(definition), chain.agents, functools.partial(self._delegate, chain)
        )
        # A tool of the user has precedence.
        if assign_work is None or any(tool.name == assign_work.name for tool in (*tools, *self._agent.tools)):
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
        task = AgentTask(description, context=await self._blocks(subordinate, prefix), prefix=prefix)
        turn = TaskTurn(self._context, subordinate, task, self._services, self._blocks, chain)
        return (await turn.enclosed()).text


def turn_reasons_in(services: AgentServices, agent: Agent, output: Any = None, thread: str | None = None) -> list[str]:
    """Return the reasons why an agent answers in a recorded turn in its environment; see `turn_reasons`."""
    subordinates = services.subordinates_for(agent.definition)
    return turn_reasons(agent, output=output, thread=thread, subordinates=subordinates)


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


async def _none(*_: object) -> Sequence[Mapping[str, Any]]:
    return ()


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
        is_turn = agent is not None and turn_reasons_in(self._services, agent, step.output, step.thread)
        return agent if is_turn else None

    async def ask(self, context: StepContext, name: str, task: AgentTask) -> Answer:
        """Ask an agent on behalf of a workflow function (`ctx.agent`); raise `NotFoundError` for an unknown agent."""
        agent = self._find_agent(name)
        if agent is None:
            raise NotFoundError("agent", name)
        if context.record_of(f"{task.prefix}{TURN_KEY}") is None:
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


# --- rows of a frame in batches ---------------------------------------------------------------------------------------

# Prompts for the rows of a frame, sent through the batch API of a model provider.
#
# Each batch has three operations: submission, status checks and fetching of the results. The submission must not be
# repeated; its result is the handle of the batch, plain data in the log. Status checks may be repeated. A timer runs
# between the checks, so that the execution can be parked and its process can end. Results are recorded like those of
# `divebook.steps.row_calls`.
#
# Before a submission, the provider is asked whether it already has the batch, submitted by a process that died. If the
# provider cannot tell, and the log has the start of a submission but not its end, a person is asked
# (`tests/rows/test_batches.py`). Example: a process submits the batch of rows 0 to 9,999 and dies before it records the
# handle. The next process finds the recorded start, lists the batches of the provider since then, recognizes the batch
# by the id of its first request, and records its handle instead of paying twice.


MOST_ROWS = 10_000
"""Maximum number of rows in one batch. The provider may accept fewer."""
CHECKS = Retry(seconds=30.0, factor=1.5, max_seconds=900.0, jitter=0.0)
"""Pauses between two checks of a batch. The number of checks is not limited. Without jitter, because the log records
each pause and a resumed execution must wait for the same.
"""
MOST_UNREAD_RESULTS = 3
"""Number of further attempts to read unreadable results, before the rows fail."""
CANCEL_SECONDS = 10
"""Seconds for which a cancelled execution waits until the provider has accepted the cancellation of its batches."""
SUBMIT_LATER = "later"
"""Key in the result of a postponed submission: minimum delay in seconds."""
BATCHES = "divebook.agents.batches"
BATCH_ENDED = "ended"


async def run_batches(context: StepContext, agent: Agent, frame: Any, services: AgentServices) -> Outcome:
    """Execute a prompt step for the rows of a frame: send one prompt per row to an agent, as batches. The result states
    the number of rows and of failed rows.

    Raises
    ------
    StepError
        The agent does more than answer one request, or its model has no batch API.
    """
    from divebook.events.arrow.rows import records_of

    agent = agent_for_run(context, agent, services)
    _require_one_request(agent, services)
    rows = records_of(opened(frame))
    output = answer_type(agent.output if context.step.output is None else context.step.output)
    module = await loaded(BATCHES)
    batches = await module.AgentBatches.of(agent, agent.instructions(context.started_at), output)
    failed = await BatchedRows(context, agent, batches, rows).run()
    text = f"{len(rows):,} rows" + (f", {failed:,} of which failed" if failed else "")
    return Outcome(text, {"rows": len(rows), "failed": failed})


def _require_one_request(agent: Agent, services: AgentServices) -> None:
    # A batch can request structured output, and has an error of its own for models without an API for batches. All
    # other reasons need further requests, or a decision before a request.
    reasons = turn_reasons_in(services, agent)
    reason = next((reason for reason in reasons if reason not in (OUTPUT, RECORDED_MODEL)), None)
    if reason is not None:
        raise StepError(
            f"agent {agent.name} has {reason}, but a batch needs an agent that answers with a single request: remove "
            "batch=True (in YAML write Items instead of Rows), or name another agent"
        )


class BatchedRows:
    """Batches of prompts for one prompt step, with one prompt for each row of a frame. A batch that the log already has
    is not submitted again.
    """

    def __init__(self, context: StepContext, agent: Agent, batches: Any, rows: list[dict[str, Any]]) -> None:
        self._context = context
        self._agent = agent
        self._batches = batches
        self._rows = rows

    async def run(self) -> int:
        """Send all batches to the provider, then wait for the results of each batch in order. Return the number of
        failed rows.

        If the execution is cancelled, running batches are cancelled at the provider. This is not recorded, because the
        log of the execution has ended by then.
        """
        submitted: list[tuple[int, Mapping[str, Any]]] = []
        first = 0
        failed = 0
        try:
            # All batches are submitted first, because the provider processes them concurrently. Each begins after the
            # last row for which the batch before had room.
            while first < len(self._rows):
                submitted.append((first, await self._submit(first, [batch for _, batch in submitted])))
                first = submitted[-1][1]["last"] + 1
            while submitted:
                # Removed only after its results are recorded, so that a batch that is being collected is cancelled as
                # well.
                failed += await self._collect_when_ended(*submitted[0])
                submitted.pop(0)
        except asyncio.CancelledError:
            # Only a cancelled execution gives its batches up. A parked one continues with them later.
            if self._context.is_given_up():
                # This task is cancelled already, so the requests to the provider need a shield.
                with anyio.move_on_after(CANCEL_SECONDS, shield=True):
                    for _, batch in submitted:
                        await self._batches.cancel_batch(batch["batch"])
            raise
        return failed

    def _request_id(self, first: int, at: int) -> str:
        """Return the id of the request for one row within its batch. If the batch is submitted again, the request has
        the same id.
        """
        return f"{short_hash(self._context.idempotency_key(_batch_key('submit', first)))}-{at}"

    async def _submit(self, first: int, earlier_batches: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return the record of the batch that begins with row `first`. If the log does not have it, submit the batch to
        the provider first.

        The result has the provider's handle, the position of the last row, the errors of rows whose prompt could not be
        rendered, and the reserved consumption.

        The bounds must allow the reservation in addition to those of earlier batches. While the provider accepts no
        batch or cannot be reached, the submission is repeated after a timer.
        """
        tries = 0
        may_exist = False
        while True:
            submission = await self._try_to_submit(first, earlier_batches, tries, may_exist=may_exist)
            if SUBMIT_LATER not in submission:
                return submission
            may_exist = submission["may_exist"]
            tries = tries + 1
            await self._context.sleep(max(CHECKS.delay(tries), submission[SUBMIT_LATER]))

    async def _try_to_submit(
        self, first: int, earlier_batches: Sequence[Mapping[str, Any]], tries: int, *, may_exist: bool
    ) -> Mapping[str, Any]:
        """Send the batch that begins with row `first` to the provider, without retries. Return the record of the batch.
        If the provider fails, return instead a dict whose key `SUBMIT_LATER` has the seconds to wait before the next
        attempt.

        `may_exist` is True if an earlier try may have created the batch at the provider.
        """
        # First try: `batch-submit-0`, its repetition after a pause: `batch-submit-0-1`.
        key = _batch_key("submit", first, tries or None)
        batches = self._batches
        context = self._context
        parameters = {"agent": self._agent.name, "first": first, "model": self._agent.model_name}
        record = context.record_of(key)
        is_recorded = record is not None and record.status == COMPLETED
        prompts: dict[str, str] = {}
        errors: dict[str, str] = {}
        requests: list[Any] = []
        # A recorded submission needs no prompts: its result comes from the log.
        if not is_recorded:
            prompts, errors = await self._prompts(first)
            requests = await batches.encode(prompts, MOST_ROWS)
        last = _last_position(requests, first + len(prompts) + len(errors) - 1, len(prompts))
        reserved = batches.reserved(list(prompts.values())[: len(requests)])
        # "unsaid": {position: error} of rows without a prompt. The positions are text, because JSON has no other keys.
        result = {
            "last": last,
            "unsaid": {at: why for at, why in errors.items() if int(at) <= last},
            "held": {"tokens": reserved.tokens, "cost": reserved.cost},
        }
        since = context.started_at or datetime.now(UTC)
        # Empty if a submission has begun: only the provider's list, or else a person, can tell whether it arrived.
        unchecked = [may_exist] if record is None else []

        async def submit() -> dict[str, Any]:
            # All prompts of the batch have failed, so no request is left to send.
            if not requests:
                return {**result, "batch": None}
            # Always search the provider's list, because a resumed run forgets failed submissions, which may have
            # created the batch (test_a_batch_that_was_made_though_the_provider_failed_is_found_there).
            other_ids = [batch["batch"]["id"] for batch in earlier_batches if batch["batch"] is not None]
            may_exist_now = unchecked.pop() if unchecked else record is not None and await batches.can_list()
            outcome = await batches.submit(
                requests, since, other_ids, may_exist=may_exist_now, leaves_unknown=leaves_outcome_unknown
            )
            if isinstance(outcome, dict):
                return {**result, "batch": outcome}
            return {SUBMIT_LATER: outcome.seconds, "why": outcome.reason, "may_exist": outcome.may_exist}

        # A person answers with the id of the batch that the provider shows, or with nothing if it has none.
        def done(batch_id: Any) -> dict[str, Any]:
            is_id = isinstance(batch_id, str) and batch_id
            return {**result, "batch": batches.handle(batch_id, requests, since) if is_id else None}

        # Earlier batches may still be running, so their reservations count as well.
        total_reserved = reserved
        for batch in earlier_batches:
            total_reserved = total_reserved.plus(Reserved(**batch["held"]))
        submitted: Mapping[str, Any] = await context.operation(
            BATCH_SUBMISSION,
            parameters,
            submit,
            key=key,
            repeatable=not is_recorded and await batches.can_list(),
            reserved=total_reserved,
            done=done,
        )
        return submitted

    async def _prompts(self, first: int) -> tuple[dict[str, str], dict[str, str]]:
        """Render the prompts of up to `MOST_ROWS` rows, beginning with row `first`. Return two dicts: the prompts by
        request id, and the errors by row position for rows whose prompt cannot be rendered.
        """
        names = self._context.names
        prompts = dict[str, str]()
        errors = dict[str, str]()
        for at, row in enumerate(self._rows[first : first + MOST_ROWS], first):
            try:
                # Templates name the row as `row` or, like other variables, as `state.row`.
                (text,) = await render_texts(
                    [self._context.step.prompt or ""], {**names, "state": {**names["state"], "row": row}, "row": row}
                )
                prompts[self._request_id(first, at)] = text
            except (StepError, ScriptError, TemplateError) as error:
                errors[str(at)] = error_text(error)
        return prompts, errors

    async def _collect_when_ended(self, first: int, batch: Mapping[str, Any]) -> int:
        """Wait until the provider has processed a submitted batch, then record the results of its rows. Return the
        number of failed rows.
        """
        handle = batch["batch"]
        checks = 0
        unreadable_count = 0
        parameters = {"agent": self._agent.name, "first": first}
        while True:
            # The handle is None for a batch without requests: all its prompts failed to render.
            if handle is not None and handle["status"] != BATCH_ENDED:
                check = functools.partial(self._batches.refresh, handle)
                key = _batch_key("look", first, checks)
                handle = await self._context.operation(BATCH_LOOK, parameters, check, key=key, repeatable=True)
            if handle is None or handle["status"] == BATCH_ENDED:
                key = _batch_key("results", first, checks)
                ended_batch = {**batch, "batch": handle}
                # Each unreadable result costs one attempt. With the last one, the rows fail instead.
                is_last = unreadable_count >= MOST_UNREAD_RESULTS
                collect = functools.partial(self._collect, key, first, ended_batch, is_last=is_last)
                result = await self._context.operation(
                    BATCH_RESULTS, parameters, collect, key=key, usage=_usage_in, repeatable=True
                )
                if result is not None:
                    return int(result["failed"])
                unreadable_count += 1
            checks = checks + 1
            await self._context.sleep(CHECKS.delay(checks))

    async def _collect(self, key: str, first: int, batch: Mapping[str, Any], *, is_last: bool) -> dict[str, Any] | None:
        """Fetch the results of a batch that the provider has processed, and record the result of each row. Return a
        dict: the number of rows, the number of failed rows, and the usage. Return None if the provider cannot be
        reached.
        """
        from divebook.events.arrow.rows import failures_by_position, frame_of

        errors = batch["unsaid"]
        rows = range(first, batch["last"] + 1)
        names = {at: self._request_id(first, at) for at in rows if str(at) not in errors}
        if batch["batch"] is None:
            answers: Mapping[str, Any] | None = {}
        else:
            answers = await self._batches.answers(batch["batch"], list(names.values()), is_last=is_last)
        if answers is None:
            return None
        results = [_row_result(at, errors.get(str(at)), answers.get(names.get(at, ""))) for at in rows]
        recorded_rows = failures_by_position(list(self._context.items.values()))
        failed = sum(error is not None for *_, error in results)
        if not recorded_rows.keys() & set(rows):  # otherwise a process died after it recorded the rows
            number = len(self._context.items)
            operation_id = self._context.place(key).operation_id
            result = storable(frame_of(results), "rows")
            event = catalog.RowsCompleted(number, operation_id, result, len(results), failed, len(self._rows))
            self._context.record_event(event)
        return {"rows": len(rows), "failed": failed, "usage": _total_usage(answers)}


def _row_result(at: int, error: str | None, answer: Any) -> RowResult:
    """Return the result of one row in recorded form: its position, its value and its error. A row without an answer
    from the provider gets the error "outcome unknown".
    """
    if error is not None:
        return at, None, error
    return (at, None, UNKNOWN) if answer is None else (at, answer.value, answer.error)


def _last_position(requests: list[Any], last: int, prompts: int) -> int:
    """Return the position of the last row whose prompt is in a batch.

    Parameters
    ----------
    requests
        Requests of the batch. They are fewer than the prompts if the size of a batch is limited.
    last
        Position of the row of the last prompt.
    prompts
        Number of prompts.
    """
    return last if len(requests) == prompts else int(requests[-1].custom_id.rpartition("-")[2])


def _batch_key(kind: str, first: int, number: int | None = None) -> str:
    return f"batch-{kind}-{first}" + ("" if number is None else f"-{number}")


def _total_usage(answers: Mapping[str, Any]) -> dict[str, int]:
    total: dict[str, int] = {}
    for answer in answers.values():
        for name, amount in answer.usage.items():
            total[name] = total.get(name, 0) + amount
    return total


def _usage_in(result: Any) -> Mapping[str, int]:
    usage: Mapping[str, int] = result["usage"] if result else {}
    return usage
