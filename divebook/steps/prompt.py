"""Prompt steps: a rendered text and content blocks go to an agent."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar

import anyio.to_thread

from divebook.agents import Agent, ScriptedModel
from divebook.agents.cache import Cached, Cassette, lasting
from divebook.agents.models import DEFAULT_MODELS, RECORDED, is_known_provider
from divebook.agents.tools import CALL, consumed_by, count_spent, present
from divebook.agents.turn import SPENT, AgentTask, Answer
from divebook.documents import DocumentRepository, Policy
from divebook.engine.operations import AGENT_RESPONSE, AGENT_TURN, DYNAMIC_CONTENT, RunOperation, Setting
from divebook.engine.state import OperationRecord
from divebook.errors import (
    DefinitionError,
    ExecutionNotFoundError,
    NotFoundError,
    SetupError,
    StepError,
    ToolError,
    nearest,
)
from divebook.events.catalog import COMPLETED, FAILED, PENDING
from divebook.events.codec import short_hash
from divebook.events.recorded import opened
from divebook.projections.requests import RequestView
from divebook.runtime.context import StepContext
from divebook.runtime.errors import clean_failure
from divebook.runtime.step import Outcome
from divebook.scripting import Interpreter
from divebook.steps.action import ScriptHost, filled, render_texts
from divebook.steps.batched_rows import run_batches
from divebook.steps.conversations import BRANCHED
from divebook.steps.turns import TURN, AgentServices, AgentToolkit, StepTurn, as_asked, run_id_of
from divebook.store import EventStore
from divebook.text.redaction import logger, shared
from divebook.tools.builtin import ABSENT, OFFERED
from divebook.workflow.resources import ToolDefinition
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
    from divebook.agents.requests import ResponseSource


# Content blocks of prompt steps: the ready ones as they are, the dynamic ones evaluated as recorded operations.


PROGRAM_SECONDS = 60.0


class ContentBuilder:
    """Turns content entries into blocks while a step runs."""

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
        """Return the blocks of all entries, in order; with a `prefix` their operations have names that begin so."""
        found: list[Block] = []
        for number, entry in enumerate(entries, 1):
            found.extend(await self._blocks_of(entry, context, agent, f"{prefix}content-{number}" if prefix else None))
        return found

    def of_agent(self, context: StepContext, agent: Agent, prefix: str) -> Awaitable[list[Block]]:
        """Return the blocks of an agent's own context."""
        return self.blocks(agent.definition.context, context, agent.name, prefix)

    async def _blocks_of(self, entry: ContentEntry, context: StepContext, agent: str, key: str | None) -> list[Block]:
        if entry.blocks is not None:
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
        names = {**context.names, "workflow": context.workflow.name, "step": context.step.name, "agent": agent}
        host = ScriptHost(context, self._documents, self._printer)

        async def call() -> list[Block]:
            result = await anyio.to_thread.run_sync(self._interpreter.run_script, script, names, host)
            return blocks_from_script_result(result)

        recorded: list[Block] = await context.operation(
            DYNAMIC_CONTENT, {"script": script}, call, repeatable=True, key=key
        )
        return recorded

    async def _from_program(self, program: str, context: StepContext, agent: str, key: str | None) -> list[Block]:
        given = {
            "inputs": dict(context.inputs),
            "state": dict(context.variables),
            "workflow": context.workflow.name,
            "step": context.step.name,
            "agent": agent,
        }

        async def call() -> list[Block]:
            self._policy.program(program)
            return await anyio.to_thread.run_sync(run_program, program, given)

        recorded: list[Block] = await context.operation(
            DYNAMIC_CONTENT, {"program": program}, call, repeatable=True, key=key
        )
        return recorded


def run_program(program: str, given: dict[str, Any]) -> list[Block]:
    """Run a program that prints a JSON list of content blocks.

    Parameters
    ----------
    program
        Path of an executable file.
    given
        What it finds as JSON in the process variable ``DIVE_GLOBALS``.

    Raises
    ------
    StepError
        There is no such file, it fails, takes more than a minute, or prints something else.
    """
    if not Path(program).is_file():
        raise StepError(f"script file not found: {program}")
    environ = {**os.environ, "DIVE_GLOBALS": json.dumps(given, default=str)}
    try:
        done = subprocess.run(
            [str(Path(program).resolve())], env=environ, capture_output=True, check=True, timeout=PROGRAM_SECONDS
        )
        return blocks_from_program_output(done.stdout.decode())
    except subprocess.CalledProcessError as error:
        said = shared().text(error.stderr.decode(errors="replace").strip())[-500:]
        raise StepError(f"script execution failed: {program} ended with code {error.returncode}: {said}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StepError(f"script execution failed: {error}") from error
    except UnicodeDecodeError as error:
        raise StepError(f"failed to parse script JSON output of {program}: {error}") from error


# Work that one agent hands to another: the tool ``assign_work``, each call of which is a turn of the other agent.
#
# The turn is recorded in the same log, under the key of the call, with its own questions and its own lane; the budget
# of the execution holds for it as for every other.


ASSIGN_WORK = "assign_work"
MOST_DEEP = 4
"""How many agents may stand in one line, each working for the one before."""

Hand = Callable[[Agent, str], Awaitable[str]]
"""Has an agent do what a prompt says, and returns its answer."""


def work_tool(others: Sequence[Agent], above: Iterable[str], hand: Hand) -> ToolFunction | None:
    """Return the tool by which an agent gives work to others, or None if there is nobody that it could be given to.

    Parameters
    ----------
    others
        The agents that may be given work.
    above
        The names of the agents at work already: the one that assigns, and those it works for.
    """
    line = list(above)
    free = {other.name: other for other in others if other.name not in line} if len(line) < MOST_DEEP else {}
    if not free:
        return None

    async def assign_work(  # noqa: PLR0917 - a model gives them by name
        agent: str,
        name: str,
        description: str,
        expected_output: str,
        output_format: str | None = None,
        context: str | None = None,
    ) -> str:
        work = {"Work": name, "Expected output": expected_output, "Format": output_format, "Context": context}
        said = [f"{title}: {text}" for title, text in work.items() if text]
        return await hand(free[agent], "\n\n".join([description, *said]))

    assign_work.__annotations__["agent"] = Literal[tuple(free)]
    assign_work.__doc__ = _DESCRIPTION.format("\n".join(map(_introduced, free.values())))
    return ToolFunction(
        ASSIGN_WORK,
        assign_work,
        assign_work.__doc__,
        hints=ToolHints(read_only=True, destructive=False, open_world=False),
        inline=True,
    )


def _introduced(agent: Agent) -> str:
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


# Where the answers of a turn come from, if not from its model alone.


async def recall_for(context: StepContext, agent: Agent, offers: AgentServices, turn: str) -> ResponseSource | None:
    """Return it for a turn of an agent; `turn` is the id of its operation.

    Raises
    ------
    ExecutionNotFoundError
        It is to answer as a run did that is not there.
    """
    if agent.model_name.startswith(RECORDED):
        run = agent.model_name.removeprefix(RECORDED)
        requests = await anyio.to_thread.run_sync(offers.requests_of, run)  # the log may be long
        return Cassette(agent.model_name, agent.name, _at(context, requests, turn))
    if agent.definition.cache is None:
        return None
    return Cached(offers.responses, lasting(agent.definition.cache))


def _at(context: StepContext, requests: Sequence[RequestView], turn: str) -> list[RequestView]:
    """Return the requests of the same turn of another run, or those that agents without tools made in the same step."""
    same = [request for request in requests if request.span.within == turn]
    place = context.place("", 0)
    where = place.path, place.step, place.visit, place.iteration_index
    plain = [request for request in requests if request.span.within is None]
    return same or [
        request
        for request in plain
        if (request.span.path, request.span.step, request.span.visit, request.span.iteration) == where
    ]


# An agent with tools is asked in a step: the log has its turn, or it runs and may hand work on to others.


SHARE = "share"
"""What the log keeps of a turn that was given a part of what is left to the one that it works for."""
Blocks: TypeAlias = Callable[[Agent, str], Awaitable[Sequence[Mapping[str, Any]]]]
"""Gives the blocks of an agent's own `Context`; what they record has a prefix in front of its keys."""


class DelegationChain(NamedTuple):
    """The turns that wait for one, and the agents at work in them."""

    within: str | None = None
    """Id of the nearest."""
    agents: tuple[str, ...] = ()


ALONE = DelegationChain()


def has_hands(agent: Agent, offers: AgentServices) -> bool:
    """Whether an agent may do more than answer: call tools, or give work to others."""
    return agent.has_hands or bool(offers.subordinates_for(agent.definition))


async def take_turn(
    context: StepContext,
    agent: Agent,
    asked: AgentTask,
    offers: AgentServices,
    blocks: Blocks,
    *,
    chain: DelegationChain = ALONE,
) -> Answer:
    """Return what an agent with tools answers, or one that is to answer with data.

    Parameters
    ----------
    blocks
        Gives what agents that it gives work to know.
    chain
        Who waits for it.
    """
    key = f"{asked.prefix}{TURN}"
    made_with = await _made_with(context, agent, asked, key, offers)
    asked = replace(asked, share=made_with.get(SHARE))
    if asked.thread is not None:
        asked = replace(asked, history=made_with["thread"]["history"])
    setting = Setting(made_with, short_hash(made_with))
    parameters = {"agent": agent.name, **asked.to_dict()}
    taking = _Taking(context, agent, asked, offers, blocks, chain)
    try:
        result = await context.enclosing(
            AGENT_TURN, parameters, taking.run, key=key, setting=setting, within=chain.within
        )
    finally:
        if not taking.has_run:
            for spent in _spent_in(context, context.record_of(key)):
                count_spent(spent)
    if asked.thread is not None and (context.miss_policy is None or context.miss_policy.writes):
        await _write_down(context, offers, made_with["thread"], key, result["messages"])
    return Answer(result.get("text", result["output"]), result["output"])


@dataclass
class _Taking:
    """A turn that the log may have already."""

    context: StepContext
    agent: Agent
    asked: AgentTask
    offers: AgentServices
    blocks: Blocks
    chain: DelegationChain
    has_run: bool = False
    """Whether it ran in this process, to its end or not; else it had ended before."""

    async def run(self, turn: str) -> dict[str, Any]:
        """Begin it, or enter it again; return what it comes to."""
        self.has_run = True
        recall = await recall_for(self.context, self.agent, self.offers, turn)
        means = StepTurn(self.context, self.asked.prefix, turn, self.offers, recall)
        try:
            servers = self.offers.servers_for(self.agent.definition)
            return await self.agent.turn(self.asked, means, self._tools(turn), servers, self.offers.limited)
        finally:
            means.require_going_on()

    def _tools(self, turn: str) -> list[ToolFunction]:
        """Return the tools that its agent names, and that by which it hands work on, if it may and has no such tool."""
        definition = self.agent.definition
        below = DelegationChain(turn, (*self.chain.agents, self.agent.name))
        named = [*self.offers.tools_for(definition)]
        handing = work_tool(
            self.offers.subordinates_for(definition), below.agents, functools.partial(self._hand, below)
        )
        if handing is None or any(tool.name == handing.name for tool in (*named, *self.agent.tools)):
            return named
        return [*named, handing]

    async def _hand(self, below: DelegationChain, other: Agent, work: str) -> str:
        """Have another agent do a work, in a turn under the key of the call that hands it on."""
        call = CALL.get()
        assert call is not None  # noqa: S101 - the guard around all tools has set it
        prefix = f"{call.turn.context.prefix}{call.key}/"
        given = AgentTask(work, context=await self.blocks(other, prefix), prefix=prefix)
        other = as_asked(self.context, other, self.offers)
        return (await take_turn(self.context, other, given, self.offers, self.blocks, chain=below)).text


def _spent_in(context: StepContext, record: OperationRecord | None) -> Iterator[Mapping[str, int]]:
    """Give what a turn has spent that ended before this process took it up: as it says itself, or its requests do."""
    if record is None or record.status not in (COMPLETED, FAILED):
        return
    if record.operation_type == AGENT_TURN and record.status == COMPLETED:
        yield opened(record.result).get(SPENT, {})
    elif record.operation_type == AGENT_TURN:
        for held in context.records_in(record):
            yield from _spent_in(context, held)
    elif record.operation_type == AGENT_RESPONSE:
        yield {"calls": 1} if record.status == FAILED else consumed_by(opened(record.result))


async def _made_with(
    context: StepContext, agent: Agent, asked: AgentTask, key: str, offers: AgentServices
) -> dict[str, Any]:
    """Return what a turn is made with: its places in a script and in a thread stay, whatever process goes on."""
    made_with: dict[str, Any] = {"model": agent.model_name}
    record = context.record_of(key)
    above = present()
    known = {} if record is None else (await context.start_of(key))[1]
    if above is not None and (SHARE in known or record is None):
        is_again = record is not None and record.status == PENDING
        share = above.share(ASSIGN_WORK, known.get(SHARE), is_again=is_again)
        made_with |= {} if share is None else {SHARE: share}
    if record is None and context.miss_policy is not None:
        known = context.miss_policy.setting_of(context.place(key).operation_id)
    if isinstance(agent.model, ScriptedModel) and not agent.model.is_texts:
        made_with["script"] = agent.model.turn(run_id_of(context, key), known.get("script"))
    if asked.thread is not None:
        made_with["thread"] = known.get("thread") or await offers.threads.begin(asked.thread)
    return made_with


async def _write_down(
    context: StepContext, offers: AgentServices, thread: Mapping[str, Any], key: str, messages: Any
) -> None:
    """Add a turn to its thread, once; the log says where another one was there before."""
    stands_in = await offers.threads.append(thread, run_id_of(context, key), messages, context.execution_id)
    if stands_in != thread["id"]:
        context.emit(BRANCHED, {"thread": thread["id"], "branch": stands_in}, key=f"{key}-branched")


# The one way to ask an agent from a step: each request to its model is recorded, counted and tried again by itself.


async def ask_agent(
    context: StepContext, agent: Agent, asked: AgentTask, offers: AgentServices, blocks: Blocks | None = None
) -> Answer:
    """Return an agent's answer.

    Parameters
    ----------
    offers
        What its environment gives it.
    blocks
        Gives what agents that it gives work to know; by default nothing.
    """
    agent = as_asked(context, agent, offers)
    has_begun = context.record_of(f"{asked.prefix}{TURN}") is not None  # with tools, which it may have no more
    if has_begun or has_hands(agent, offers) or asked.output is not None or asked.thread is not None:
        return await take_turn(context, agent, asked, offers, blocks or _none)
    # A step with a Retry of its own tries the whole step again; both together would multiply the requests.
    operation = context.operation if context.step.retry is not None else _tried_again(context, agent.retry)
    text = await agent.respond(
        asked.prompt, operation, content=asked.content, context=asked.context, date=context.started_at
    )
    return Answer(text, text)


async def _none(*_: object) -> Sequence[Mapping[str, Any]]:
    return ()


def _tried_again(context: StepContext, policy: Retry) -> RunOperation:
    """Return the context's `operation`, with a further one for each attempt that the policy allows."""

    async def operation(
        operation_type: str,
        parameters: Mapping[str, Any],
        call: Callable[[], Awaitable[Any]],
        *,
        key: str | None = None,
        **options: Any,
    ) -> Any:
        name = context.next_key() if key is None else key

        async def attempt(failures: int) -> Any:
            return await context.operation(operation_type, parameters, call, key=name, attempt=failures, **options)

        return await context.retried(name, policy, attempt)

    return operation


class PromptStep:
    """Carries out prompt steps.

    Parameters
    ----------
    find_agent
        Gives the agent of a name, or the default agent for None; None where there is none at all.
    content
        Turns content entries into blocks.
    offers
        What the environment gives to agents.
    """

    def __init__(
        self, find_agent: Callable[[str | None], Agent | None], content: ContentBuilder, offers: AgentServices
    ) -> None:
        self._find_agent = find_agent
        self._content = content
        self._offers = offers

    async def __call__(self, context: StepContext) -> Outcome:
        """Ask the agent; its answer is the step's value and output."""
        step = context.step
        agent = self._find_agent(step.agent)
        if agent is None:
            raise StepError(f'no agent specified for prompt step "{step.name}"; define one, or name it with Agent')
        if step.each is not None and step.each.rows is not None:
            frame = await filled({"rows": step.each.rows}, context.names, known=context.known)
            return await run_batches(context, agent, frame["rows"], self._offers)
        prompt, thread = await render_texts([step.prompt or "", step.thread or ""], context.names)
        content = await self._content.blocks(step.content, context, agent.name)
        asked = AgentTask(prompt, content, output=step.output, thread=thread or None)
        answer = await self._answer(context, agent, asked)
        return Outcome(answer.text, answer.value)

    def agent_of_step(self, step: Step) -> Agent | None:
        """Return the agent of a step if it may call tools: what it does are calls of its own, each tried by itself."""
        try:
            agent = self._find_agent(step.agent)
        except NotFoundError:
            return None  # which the step says when it runs
        is_turn = agent is not None and (has_hands(agent, self._offers) or (step.output, step.thread) != (None, None))
        return agent if is_turn else None

    async def ask(self, context: StepContext, name: str, asked: AgentTask) -> Answer:
        """Return the answer of an agent to a workflow function; raises `NotFoundError`."""
        agent = self._find_agent(name)
        if agent is None:
            raise NotFoundError("agent", name)
        if context.record_of(f"{asked.prefix}{TURN}") is None:
            self._offers.check_agent(agent)  # its name was not known when the execution began
        return await self._answer(context, agent, asked)

    async def _answer(self, context: StepContext, agent: Agent, asked: AgentTask) -> Answer:
        blocks = functools.partial(self._content.of_agent, context)
        own = await blocks(agent, "")
        try:
            given = replace(asked, context=own) if own else asked
            return await ask_agent(context, agent, given, self._offers, blocks)
        except ToolError as error:
            raise ToolError(error.agent, error.tool, error.cause) from error
        except Exception as error:
            raise StepError(f"agent {agent.name} failed: {clean_failure(error)}") from error


# What is wrong with agents, said before anything is recorded: names that nothing has, and names that two things have.
#
# Workflow functions name their agents while they run, so that theirs are looked at when they ask them.


N = TypeVar("N", str, str | None)
_log = logger(__name__)
OurTools: TypeAlias = Mapping[str, ToolFunction]
"""The tools that were given to an environment itself, by name."""


def require_named(kind: str, names: Iterable[str], known: Iterable[str], agent: str) -> None:
    """Raise NotFoundError unless all that an agent names is known."""
    for name in names:
        if name not in known:
            raise NotFoundError(kind, name, known, f"{kind} not found: {name}, which agent {agent} names")


def asked_agents(
    steps: Iterable[Step], find: Callable[[str | None], Agent | None], equipment: AgentToolkit
) -> list[Agent]:
    """Return the agents that prompt steps ask, and all that may do work for them, once each."""
    return all_asked({step.agent for step in steps if step.type == "prompt"}, find, equipment)


def all_asked(names: Iterable[N], find: Callable[[N], Agent | None], equipment: AgentToolkit) -> list[Agent]:
    """Return the agents of some names, and all that may do work for them, once each."""
    found: dict[str, Agent] = {}
    left = [agent for agent in map(find, names) if agent is not None]
    while left:
        one = left.pop()
        if one.name not in found:
            found[one.name] = one
            left += equipment.subordinates_for(one.definition)
    return [*found.values()]


def check_declared(
    said: Iterable[ToolDefinition], known: Iterable[str], agents: Iterable[Agent], servers: Iterable[str]
) -> None:
    """Raise NotFoundError if ``Tools`` says something of a tool that is none: it would have no effect."""
    names = {*known, *OFFERED, *ABSENT, ASSIGN_WORK, *(tool.name for agent in agents for tool in agent.tools)}
    for entry in said:
        if entry.name not in names and not any(servers):  # of a server's tools we know when it was asked
            missing = f"Tools of the definition says something of an unknown tool: {entry.name}"
            raise NotFoundError("tool", entry.name, names, missing)


def check_agent(agent: Agent, equipment: AgentToolkit, ours: OurTools) -> None:
    """Raise unless what an agent names is there, once; one of the old system goes without tools of services.

    Raises
    ------
    NotFoundError, SetupError, DefinitionError
        It is not, or a tool cannot be shown to a model.
    """
    definition = agent.definition
    for name in definition.tool_config:
        if name not in definition.tools:
            raise SetupError(f"ToolConfig of agent {agent.name} names {name}, which is not among its Tools: add it")
    equipment.subordinates_for(definition)
    equipment.servers_for(definition)
    tools = [equipment.limited(tool) for tool in (*equipment.tools_for(definition), *agent.tools)]
    _check_names(agent, tools, ours)
    _check_signatures(agent, tools)
    for name in ABSENT.keys() & set(definition.tools) - {tool.name for tool in tools}:
        _log.warning("agent %s goes without the tool %s: %s", agent.name, name, ABSENT[name])


def _check_names(agent: Agent, tools: Iterable[ToolFunction], ours: OurTools) -> None:
    """Raise if two tools have one name: a rule for one, or its `approval`, would be taken for that of the other."""
    found: dict[str, ToolFunction] = {}
    for tool in tools:
        if tool.name in found:
            both = f"{_place(found[tool.name].function)} and {_place(tool.function)}"
            raise SetupError(
                f"agent {agent.name} has two tools called {tool.name}: {both}; leave one out, or give it another name "
                "with @tool(name=...)"
            )
        found[tool.name] = tool
    for tool in agent.tools:
        other = ours.get(tool.name)
        if other is not None and not _is_same(tool.function, other.function):
            raise SetupError(
                f"agent {agent.name} has a tool called {tool.name} of its own, {_place(tool.function)}, and its "
                f"environment another one, {_place(other.function)}: give one of them another name with "
                f'@tool(name=...), or let the agent have the other with tools=["{tool.name}"]'
            )


def _is_same(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Return whether two functions are one, or one that a cell has made again; those made in a call may differ."""
    return one == other or (_place(one) == _place(other) and "<locals>" not in _place(one))


def _place(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", None)
    return repr(function) if name is None else f"{function.__module__}.{name}"


def _check_signatures(agent: Agent, tools: Iterable[ToolFunction]) -> None:
    """Raise unless the functions of a person can be shown to a model; ours and those of servers can."""
    for tool in tools:
        if tool.schema is None and not _place(tool.function).startswith("divebook."):
            from divebook.agents.signatures import library_tool  # half a second; asked only for agents with tools

            try:
                library_tool(tool, _never)
            except DefinitionError as error:
                raise DefinitionError(error.problems, f"agent {agent.name}") from error


async def _never(*_: Any) -> Any:
    raise AssertionError("a tool that is only looked at is not called")


def check_model(model: Any, whose: str, store: EventStore) -> None:
    """Raise SetupError if a model is named that nobody has; `whose` begins the error.

    Whether its library and key are there is said when it is asked: that can be mended while the run waits.
    """
    if not isinstance(model, str) or ":" not in model:
        return
    provider, _, name = model.partition(":")
    if model.startswith(RECORDED):
        try:
            store.record(name)
        except ExecutionNotFoundError as error:
            raise SetupError(f"{whose}: {model} names a run that is not there: {error}") from error
    elif provider not in DEFAULT_MODELS and not is_known_provider(provider):
        close = nearest(provider, DEFAULT_MODELS)
        advice = f"did you mean {close}:{name}?" if close else f"use one of pydantic-ai's, such as openai:{name}"
        raise SetupError(f"{whose}: no provider of models is called {provider!r}, as {model!r} says; {advice}")
