"""Every way to ask an agent, and the log that it records: ``python -m tests.agents.test_ways_to_ask`` writes them anew.

Each line of ``ways_to_ask.txt`` is one run: the way, who retries, what happens, a digest of the recorded operations,
and their order (``>`` started, ``=`` completed, ``!`` failed, ``~`` another attempt follows). Clock, chance and models
are fixed. A changed line means that recorded logs of this way can no longer be replayed.
"""

import ast
import hashlib
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.capabilities import ReinjectSystemPrompt
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage

import divebook
from divebook import Agent, Environment, Retry, Step, Workflow, tool
from divebook.agents import agent
from divebook.definitions.functions import workflow
from divebook.definitions.resources import AgentDefinition, ApprovalRule
from divebook.definitions.servers import CallOutcome, MCPServerDefinition
from divebook.definitions.step import Each
from divebook.events import Event, catalog
from divebook.events.codec import encode, event_to_dict
from divebook.pipeline import Pipeline, create_envelope
from divebook.runtime.run import Run
from divebook.stores import MemoryStore
from tests.runtime.test_resuming import FixedChance, StoppedClock, cut
from tests.tools.fakes import FakeServer

SNAPSHOT = Path(__file__).parent / "ways_to_ask.txt"
NEVER = Retry(1)
ANSWERED_AT = re.compile(r'("timestamp":)"[^"]+"(?=,"kind":"response")')


# --- the ways ---------------------------------------------------------------------------------------------------------


@workflow
async def one_of_function(ctx):
    return await ctx.agent("a").run("Who?")


@workflow
async def two_of_gather(ctx):
    return await ctx.gather(ctx.agent("a").run("Who?"), ctx.agent("a").run("Where?"))


def _with_retry(defined: Workflow, retry: Retry | None) -> Workflow:
    return replace(defined, steps=[replace(step, retry=retry) for step in defined.steps])


def _prompt(**options: Any) -> Workflow:
    return Workflow("ask", [Step("ask", prompt="Who?", agent=options.pop("agent", "a"), store="said", **options)])


def _stage(environment: Environment, retry: Retry | None) -> Callable[[], Run]:
    stage = {
        "name": "draft",
        "stage_order": 0,
        "has_llm": True,
        "model_role": "a",
        "prompt": "Who?",
        "max_retries": 0 if retry is None else 2,
        "default_next": "end",
    }
    config = {"name": "p", "max_llm_calls": 50, "max_agent_hops": 50, "agents": [stage]}
    pipeline = Pipeline(config, environment=environment)
    return lambda: pipeline.start(create_envelope("Do it", "ann", "s1"))


def _workflow(defined: Workflow, environment: Environment, retry: Retry | None) -> Callable[[], Run]:
    environment.add_workflow(_with_retry(defined, retry))
    return partial(environment.start, defined.name)


WAYS: dict[str, Callable[[Environment, Retry | None], Callable[[], Run]]] = {
    "prompt": partial(_workflow, _prompt()),
    "prompt with a tool": partial(_workflow, _prompt(agent="b")),
    "each": partial(_workflow, _prompt(each=Each(["x", "y"], parallel=2))),
    "function": partial(_workflow, one_of_function),
    "gather": partial(_workflow, two_of_gather),
    "stage": _stage,
    "sampling": partial(_workflow, _prompt(agent="s")),
}
RETRIES = {
    "no retry": (NEVER, None),
    "agent retry": (Retry(3, seconds=2.0), None),
    "step retry": (Retry(3, seconds=5.0), Retry(3, seconds=2.0)),
}
"""Retry policies of the agents and of the step."""
EVENTS = ("ok", "fails once", "killed in a request", "killed after a failure")


# --- their world ------------------------------------------------------------------------------------------------------


@tool
async def look() -> str:
    """Look."""
    return "seen"


class Models:
    """Models whose first request with each of some prompts fails."""

    def __init__(self, failing: bool) -> None:
        self._failing = failing
        self._requests: Counter[str] = Counter()

    def model(self, tool_name: str = "") -> FunctionModel:
        return FunctionModel(partial(self._answer, tool_name), model_name="m")

    async def _answer(self, tool_name: str, messages: Any, _info: Any) -> ModelResponse:
        prompt = str(messages[-1].parts[-1].content)
        # The agent whose tool server asks must not fail itself: only the server's request is examined.
        self._requests[prompt] += 1
        if self._failing and self._requests[prompt] == 1 and tool_name != "ponder" and len(messages) == 1:
            raise ModelHTTPError(503, "m", "overloaded")
        parts: list[Any] = [TextPart('{"text": "ann"}')]
        if tool_name and len(messages) == 1:
            parts = [ToolCallPart(tool_name, {}, tool_call_id="c1")]
        return ModelResponse(parts=parts, usage=RequestUsage(input_tokens=7, output_tokens=3), model_name="m")


def _ponder(_arguments: Any, answers: Any) -> CallOutcome | str:
    if answers:
        return str(answers["q"])
    messages = [{"role": "user", "text": "Why?"}]
    request = {"agent": "thinker", "messages": messages, "system": None, "max_tokens": 9, "temperature": None}
    return CallOutcome(requests={"q": request}, state="s1")


def _environment(store: MemoryStore, retry: Retry, *, failing: bool, clock: StoppedClock) -> Environment:
    models = Models(failing)

    def agent_with(name: str, tool_name: str = "", **options: Any) -> Agent:
        return Agent(AgentDefinition(name, retry=retry), model=models.model(tool_name), **options)

    agents = [
        agent_with("a"),
        agent_with("b", "look", tools=[look]),
        agent_with("s", "ponder", servers=["good"]),
        agent_with("thinker"),
    ]
    environment = Environment(
        store=store,
        agents=agents,
        servers=[MCPServerDefinition("good", "stdio", command=sys.executable, sampling="thinker")],
        approvals=[ApprovalRule()],
        clock=clock,
        chance=FixedChance(),
    )
    server, fake = environment.internals.registry.servers["good"], FakeServer("good", ponder=_ponder)
    server.discover, server.call = fake.discover, fake.call
    return environment


def run(way: str, retries: str, event: str) -> Run:
    """Ask in one way, and return the execution in which an agent was asked."""
    of_agent, of_step = RETRIES[retries]
    store = MemoryStore()
    clock = StoppedClock()
    failing = event in ("fails once", "killed after a failure")
    made = _environment(store, of_agent, failing=failing, clock=clock)
    execution = WAYS[way](made, of_step)().wait(20)
    if not event.startswith("killed"):
        return execution
    kind = catalog.OperationStarted if event == "killed in a request" else catalog.OperationFailed
    requests = [
        e for e in execution.history() if isinstance(e.data, kind) and e.data.operation_type == "agent_response"
    ]
    # For the server, the request that the server asks for, not those of the agent that calls it.
    place = requests[1 if way == "sampling" and event == "killed in a request" else 0]
    shorter = cut(store, execution, place.sequence)
    again = _environment(shorter, of_agent, failing=False, clock=clock)
    WAYS[way](again, of_step)
    return again.run_of(execution.id).resume().wait(20)


SIGNS = {
    catalog.OperationStarted: ">",
    catalog.OperationCompleted: "=",
    catalog.OperationFailed: "!",
    catalog.StepRetried: "~",
}


def _operations(execution: Run) -> Iterator[str]:
    names: dict[str, str] = {}
    for event in execution.history():
        data = event.data
        if isinstance(data, catalog.OperationStarted):
            item = "" if data.iteration_index is None else f"[{data.iteration_index}]"
            within = "" if data.within is None else f"<{data.within}"
            names[data.operation_id] = f"{data.operation_type}{item}:{data.key}{within}"
        if type(data) in SIGNS:
            name = data.key or "step" if isinstance(data, catalog.StepRetried) else names[data.operation_id]
            yield f"{SIGNS[type(data)]}{name}"
    yield execution.status


def _content(event: Event) -> str:
    """Return the recorded data of an operation without the places in files, and without the time of a response."""
    data = event_to_dict(event)["data"]
    data.pop("trace", None)
    data.get("raised", {}).pop("place", None)
    return ANSWERED_AT.sub(r"\1", encode({event.event_type: data}).decode())


def line_of(way: str, retries: str, event: str) -> str:
    """Return the line of one run."""
    execution = run(way, retries, event)
    contents = [_content(one) for one in execution.history() if type(one.data) in SIGNS]
    digest = hashlib.sha256("\n".join(contents).encode()).hexdigest()[:12]
    return f"{way} | {retries} | {event} | {digest} | {' '.join(_operations(execution))}"


CASES = [(way, retries, event) for way in WAYS for retries in RETRIES for event in EVENTS]


@pytest.mark.parametrize(("way", "retries", "event"), CASES)
def test_each_way_to_ask_records_what_it_always_did(way, retries, event):
    lines = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    assert line_of(way, retries, event) == lines[CASES.index((way, retries, event))]


def test_each_way_sends_the_same_request_and_counts_it_alike():
    sent = {}
    for way in WAYS:
        request = run(way, "no retry", "ok").requests[1 if way == "sampling" else 0]
        prompts = [message["parts"][-1]["content"] for message in request.messages]
        instructions = request.instructions.replace(f"You are {request.agent}.", "You are NAME.")
        sent[way] = prompts, instructions, dict(request.usage), request.cost, request.model
    asked = ["Who?"], "You are NAME.\n\nToday is Tuesday, 14 November 2023."
    counted = {"requests": 1, "input_tokens": 7, "output_tokens": 3}, None, "function:m"
    # The agent of a server gets no date.
    others = {"sampling": (["Why?"], "You are NAME.", *counted)}
    assert sent == dict.fromkeys(WAYS, (*asked, *counted)) | others


def test_agents_are_asked_in_one_file():
    """Prompt steps, `ctx.agent`, stages and tool servers go through `TaskTurn`, which chooses the recorded form."""
    package = Path(divebook.__file__).parent
    askers = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "respond"
    }
    assert askers == {"steps/prompt.py", "agents/agent.py"}


SAYING = FunctionModel(lambda _messages, _info: ModelResponse(parts=[TextPart("ann")]))
REASONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "": ({}, {}),
    agent.TOOLS: ({"tools": [look]}, {}),
    agent.CAPABILITIES: ({"capabilities": [ReinjectSystemPrompt()]}, {}),
    agent.SUBORDINATES: ({"subordinates": ["thinker"]}, {}),
    agent.BOUNDS: ({"bounds": {"max_llm_calls": 5}}, {}),
    agent.CACHE: ({"cache": "7d"}, {}),
    agent.OUTPUT: ({"output": str}, {}),
    agent.CONVERSATION: ({}, {"thread": "t"}),
}
"""Options of the agent and of the step for each reason why an answer is a turn."""


@pytest.mark.parametrize("reason", REASONS)
def test_all_ways_agree_when_an_answer_is_a_turn(reason):
    """There were six rules, of which one did not know each reason."""
    of_agent, of_step = REASONS[reason]
    asked = Agent("a", model=SAYING, **of_agent)
    environment = Environment(store=MemoryStore(), agents=[asked, Agent("thinker", model=SAYING)])
    step = Step("ask", prompt="Who?", agent="a", **of_step)
    operations = list(_operations(environment.start(Workflow("ask", [step])).wait(20)))
    is_turn = ">agent_turn:turn" in operations
    assert is_turn == bool(reason)
    prompts = environment._registry.handlers["prompt"]
    assert (prompts.agent_of_step(step) is asked) == is_turn
    if "thread" not in of_step:
        assert asked.has_hands == is_turn
        batch = Step("ask", prompt="Who?", agent="a", each=Each(rows="$([{'n': 1}])"))
        error = environment.start(Workflow("batch", [batch])).wait(20).error or ""
        assert (f"has {reason}, but a batch needs" in error) == (reason not in ("", agent.OUTPUT))


def test_one_function_records_model_requests():
    """Single requests and those of turns once had two makers. An imported log is written, not made."""
    package = Path(divebook.__file__).parent
    makers = {
        f"{path.relative_to(package)}: {function.name}"
        for path in package.rglob("*.py")
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and any(getattr(value, "id", "") == "AGENT_RESPONSE" for value in call.args)
    }
    assert makers == {"agents/requests.py: record_request", "agents/imports.py: _write_request"}


if __name__ == "__main__":
    SNAPSHOT.write_text("".join(f"{line_of(*case)}\n" for case in CASES), encoding="utf-8")
    sys.stdout.write(f"{len(CASES)} lines\n")
