"""What a tool says of itself holds in a turn: how often, how many at once, how much of its result a model gets."""

import asyncio
import threading
from typing import Any

import pytest
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import BinaryContent

from divebook import Agent, ScriptedModel
from divebook.agents.signatures import MOST_BYTES, shortened
from divebook.definitions.tools import ToolFunction, ToolHints
from divebook.events.codec import encode_line
from divebook.text.redaction import shared
from tests.agents.test_turns import ASK, SCRIPT, started
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment


def asked(tool, script=SCRIPT, **options):
    model = ScriptedModel(script)
    return environment(agents=[Agent("a", model=model, tools=[tool])], **options).start(ASK).wait(20)


def returns_of(execution, request):
    """Return what the model of a request was told that its calls came to."""
    sent = execution.requests[request - 1].messages[-1]
    return [part["content"] for part in sent["parts"] if part["part_kind"] == "tool-return"]


def results_in(execution):
    return [e.data.result for e in execution.history() if e.event_type == "operation_completed"]


def look(name: str) -> str:
    """Look a bird up."""
    return f"{name}: seen"


def test_a_tool_that_is_used_up_says_so_to_the_model_and_is_not_called():
    execution = asked(ToolFunction("look", look, limit=2))
    assert returns_of(execution, 2) == ["owl: seen", "lark: seen"]
    assert "used up: it may be called 2 times" in returns_of(execution, 3)[0]
    assert [o.key for o in started(execution) if o.operation_type == "tool_call"] == [
        "tool-1-call-1-1",
        "tool-1-call-1-2",
    ]


def test_only_so_many_calls_of_a_tool_run_at_once():
    at_once, most, lock = 0, [], threading.Lock()

    def look(name: str) -> str:
        nonlocal at_once
        with lock:
            at_once += 1
            most.append(at_once)
        threading.Event().wait(0.01)
        with lock:
            at_once -= 1
        return name

    calls = [{"call": {"look": {"name": str(n)}}} for n in range(6)]
    assert asked(ToolFunction("look", look, concurrency=2), [calls, "done"]).status == "completed"
    assert (len(most), max(most)) == (6, 2)


def test_a_model_gets_head_and_tail_of_a_long_result_and_the_log_has_it_whole():
    execution = asked(ToolFunction("look", lambda name: name * 1000, schema={"type": "object"}, most=100))
    assert {"result": "owl" * 1000} in results_in(execution)
    first, _ = returns_of(execution, 2)
    assert first.startswith("owlowl")
    assert "2,900 characters left out" in first
    assert len(first) < 200


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"a": "b"}, {"a": "b"}),
        ({"a": "b" * 100}, '{"a":"bbbb\n... 88 characters left out; the whole is in the log ...\nbbbbbbbb"}'),
        (12, 12),
        ([BinaryContent(b"x", media_type="image/png")], [BinaryContent(b"x", media_type="image/png")]),
        (
            [BinaryContent(b"x" * (MOST_BYTES + 1), media_type="image/png")],
            ["a file of 1,000,001 bytes (image/png), which is in the log"],
        ),
    ],
)
def test_results_of_any_kind_are_shortened_alike(result, expected):
    assert shortened(result, 20) == expected


def test_a_tool_that_raises_ends_the_turn_once_the_calls_beside_it_have_ended():
    raised, looked, broken = threading.Event(), [], [True]

    def look(name: str) -> str:
        if name == "owl" and broken:
            raised.set()
            raise ValueError("no such page")
        assert raised.wait(20)
        looked.append(name)
        return f"{name}: seen"

    execution = asked(ToolFunction("look", look))
    assert "no such page" in execution.error
    assert looked == ["lark"]
    assert {"result": "lark: seen"} in results_in(execution)
    broken.clear()
    again = environment(
        store=cut(execution.store, execution, len(execution.history())),
        agents=[Agent("a", model=ScriptedModel(SCRIPT), tools=[ToolFunction("look", look)])],
    )
    assert again.run_of(execution.id).resume().wait(20).variables == {"birds": "an owl, a lark and a wren"}
    assert looked == ["lark", "owl", "wren"]


def test_a_result_that_no_json_can_hold_is_text():
    class Page:
        def __str__(self):
            return "page 3"

    execution = asked(ToolFunction("look", lambda name: Page(), schema={"type": "object"}))
    assert returns_of(execution, 2) == ["Page: page 3", "Page: page 3"]


async def waits(name: str) -> str:
    """Look a bird up for ever."""
    await asyncio.Event().wait()
    return name


def test_a_call_that_takes_too_long_is_told_to_the_model_where_nothing_can_have_happened():
    execution = asked(ToolFunction("look", waits, timeout=0.01, hints=ToolHints(read_only=True)))
    assert execution.variables == {"birds": "an owl, a lark and a wren"}
    assert returns_of(execution, 2) == ["look took more than 0.01 seconds"] * 2


def test_a_call_that_takes_too_long_and_may_have_done_something_is_asked_about():
    execution = asked(ToolFunction("look", waits, timeout=0.01), [{"call": {"look": {"name": "owl"}}}, "an owl"])
    (question,) = execution.open_questions
    assert "go through?" in question.question
    assert "a call of 'look' took longer than its Timeout of 0.01 seconds" in question.message
    assert execution.tool_calls[["status", "outcome"]].to_numpy().tolist() == [["waiting", "unknown"]]
    execution.answer(question.id, {"choice": "done", "result": "seen"}).wait(20)
    assert (execution.variables, returns_of(execution, 2)) == ({"birds": "an owl"}, ["seen"])


def test_a_model_hears_whether_a_call_was_made_that_no_log_can_hold():
    looked = []

    def look(name: Any) -> str:
        """Look up."""
        looked.append(name)
        raise ToolFailed("half of a character: \ud800")

    deep = f'{{"name": {"[" * 200}{"]" * 200}}}'
    script = [[{"call": {"look": {"name": "owl"}}}, {"call": {"look": deep}}], "an owl"]
    returned = returns_of(asked(ToolFunction("look", look), script), 2)
    assert looked == ["owl"]
    assert [str(text).partition(" the log cannot hold: ")[0] for text in returned] == [
        "look was called, and says what",
        "look was not called with what",
    ]


SECRET = "a horse of paper and of glue"


class RefusedError(Exception):
    def __init__(self, address):
        self.address = address
        super().__init__("it was refused")

    def __str__(self):
        return f"{self.address} was refused"


def log_of_a_call(look):
    shared().know(SECRET)
    execution = asked(ToolFunction("look", look), [{"call": {"look": {"name": "owl"}}}, "an owl"])
    return b"\n".join(map(encode_line, execution.history())).decode()


def test_a_secret_that_was_looked_up_is_not_in_what_a_call_returned():
    def look(name: str) -> dict[str, str]:
        return {name: f"opened with {SECRET}", "token": "stays, since nobody made it known"}

    log = log_of_a_call(look)
    assert SECRET not in log
    assert "opened with [redacted]" in log
    assert "stays, since nobody made it known" in log


@pytest.mark.parametrize("error", [ValueError(f"{SECRET} was refused"), RefusedError(f"http://there/{SECRET}")])
def test_a_secret_that_was_looked_up_is_not_in_what_a_call_raised(error):
    def look(name: str) -> str:
        raise error from KeyError(f"{name} {SECRET}")

    log = log_of_a_call(look)
    assert SECRET not in log
    assert "[redacted] was refused" in log


@pytest.mark.parametrize("stop", ["pause", "cancel"])
def test_a_run_that_is_stopped_while_a_tool_is_called_does_not_make_its_call_again_unasked(stop):
    began, over, calls = threading.Event(), threading.Event(), []

    def look(name: str) -> str:
        """Look a bird up."""
        calls.append(name)
        began.set()
        over.wait(20)
        return f"{name}: seen"

    model = ScriptedModel([{"call": {"look": {"name": "owl"}}}, "done"])
    world = environment(agents=[Agent("a", model=model, tools=[look])])
    execution = world.start(ASK)
    assert began.wait(20)
    getattr(execution, stop)()
    over.set()
    execution.wait(20)
    assert execution.status == ("cancelled" if stop == "cancel" else "paused")
    resumed = world.run_of(execution.id).resume().wait(20)
    for question in resumed.open_questions:
        assert (stop, question.kind) == ("cancel", "outcome_unknown")
        resumed.answer(question.id, {"choice": "done", "result": "owl: seen"}).wait(20)
    assert (resumed.error, resumed.variables, calls) == (None, {"birds": "done"}, ["owl"])
    assert returns_of(resumed, 2) == ["owl: seen"]
