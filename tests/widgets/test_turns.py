"""Turns of agents as views get them: who holds what, what was said, who spent what."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from divebook.engine.operations import Place
from divebook.engine.state import ExecutionState
from divebook.events import catalog
from divebook.events.codec import decode_line, encode
from divebook.projections.model_requests import requests_of
from divebook.projections.spans import spans_of
from divebook.runtime.streaming import TextDelta
from divebook.widgets.parts import MOST_REQUESTS, MOST_TEXT, conversation_of, newest_conversations, shortened
from divebook.widgets.protocol import Conversation, Sent, checked
from tests.engine.history import begun
from tests.widgets.feeds import STEP, Log

TURN = [
    decode_line(line) for line in (Path(__file__).parents[1] / "projections" / "turn.jsonl").read_bytes().splitlines()
]
CRITIC, COUNTER = 1, 7
"""Spans of the two turns in it."""

ID = ExecutionState("exec_1").question_id


def column(block, name):
    return [block["names"][place] for place in block[name]]


@pytest.fixture
def feed():
    """Return the feed of a run whose agent has called tools, and has given work to another one."""
    log = Log()
    log.events = list(TURN)
    log.feed.frame()
    return log.feed


def test_a_span_says_which_turn_holds_it(feed):
    block = feed.welcome("v", 0)["spans"]
    assert dict(zip(block["id"], block["within"], strict=True)) == {
        0: -1, CRITIC: -1, 2: CRITIC, 3: CRITIC, 4: CRITIC, 5: CRITIC, 6: CRITIC, COUNTER: CRITIC, 8: COUNTER, 9: CRITIC
    }  # fmt: skip
    assert column(block, "label")[2:5] == ["request 1", "search", "delete"]
    assert column(block, "label")[COUNTER] == "counter"


def test_a_conversation_has_what_was_new_what_was_answered_and_what_was_called(feed):
    said = checked(feed.conversation("v", CRITIC, 0), Conversation)
    assert (said["view"], said["agent"], said["error"], said["last"]) == ("v", "critic", "", len(TURN))
    first, second, third = said["requests"]
    assert first["sent"] == [{"kind": "user", "text": "Is the paper sound?", "call": ""}]
    assert [part["kind"] for part in first["answer"]] == ["thinking", "call", "call"]
    assert (first["tools"], first["instructions"]) == (["search", "delete", "assign_work"], "You are critic.")
    assert second["sent"] == []  # results of calls stand with the calls
    assert third["answer"] == [{"kind": "assistant", "text": "It is sound, with 12 samples.", "call": ""}]
    assert (first["model"], first["input_tokens"], first["output_tokens"], first["cost"]) == (
        "gpt-6-2026-10-01",
        210,
        40,
        0.0009,
    )


def test_calls_have_arguments_outcome_and_the_turn_that_they_led_to(feed):
    search, delete, work = feed.conversation("v", CRITIC, 0)["calls"]
    assert (search["id"], search["arguments"], search["outcome"], search["turn"]) == (
        3,
        {"query": "method"},
        "returned",
        -1,
    )
    assert search["result"] == "The method is sound.\nn = 12"
    assert (delete["outcome"], delete["result"]) == ("denied", "User denied tool call: keep the draft")
    assert (work["tool"], work["call"], work["turn"]) == ("assign_work", "call c", COUNTER)


def test_the_turn_of_an_agent_that_was_given_work_is_a_conversation_of_its_own(feed):
    said = feed.conversation("v", COUNTER, 0)
    assert said["agent"] == "counter"
    (request,) = said["requests"]
    assert (request["is_cached"], request["output"], request["cost"]) == (True, "final_result", None)
    assert request["answer"] == [{"kind": "assistant", "text": '{\n  "count": 12\n}', "call": ""}]
    assert said["calls"] == []  # the call that is the answer is none


def test_a_call_that_has_not_begun_is_there_with_the_arguments_of_the_model():
    log = Log()
    log.events = TURN[:6]  # up to the answer of the first request
    log.feed.frame()
    search, delete = log.feed.conversation("v", CRITIC, 0)["calls"]
    assert (search["id"], search["outcome"], search["arguments"]) == (-1, "", {"query": "method"})
    assert (delete["id"], delete["arguments"]) == (-1, {"path": "draft.txt"})


def test_a_call_names_the_questions_that_are_about_it(feed):
    search, _, work = feed.conversation("v", CRITIC, 0)["calls"]
    assert ID("question", Place("main", "ask", 1, None, "approve-1-call_a").operation_id) in search["questions"]
    assert ID(TURN[6].data.operation_id, 7) in search["questions"]  # what became of it is not known
    assert ID("question", Place("main", "ask", 1, None, "approve-2-45ff1b878d1e").operation_id) in work["questions"]


def test_a_call_of_a_server_names_the_questions_that_the_server_asks():
    """Under the keys of `divebook.agents.server_tools` and those of earlier versions: while the call runs, and as the
    reply to it.
    """
    log = Log()
    facts = long_turn(1, "x")
    fact, *place = facts[-2]
    log.write(*facts[:-2], (replace(fact, parameters={**fact.parameters, "server": "notes"}), *place), facts[-1])
    log.feed.frame()
    (call,) = log.feed.conversation("v", 1, 0)["calls"]
    assert call["server"] == "notes"
    for separator in (":", "-"):
        for number in ("in-1", "1", "2-1"):
            place_of_question = Place("main", "s", 1, None, f"elicit-1-c1{separator}{number}")
            assert ID("question", place_of_question.operation_id) in call["questions"]


def test_what_calls_returned_stands_with_the_calls_also_where_a_request_leaves_it_out():
    """Of most requests the log says only that they follow the one before; nothing of that is a person's."""
    log = Log()
    log.write(*long_turn(2, "found", says_new=False))
    log.feed.frame()
    said = log.feed.conversation("v", 1, 0)
    assert [request["sent"] for request in said["requests"]] == [[], []]
    assert [call["result"] for call in said["calls"]] == ["found", "found"]
    assert [part["kind"] for part in log.feed.sent("v", 4)["parts"]] == ["assistant", "call", "result"]


def test_what_has_not_changed_since_an_event_is_left_out(feed):
    said = feed.conversation("v", CRITIC, 19)
    assert [request["number"] for request in said["requests"]] == [3]
    assert [call["tool"] for call in said["calls"]] == ["assign_work"]
    assert feed.conversation("v", CRITIC, len(TURN))["requests"] == []


def test_a_single_request_is_a_conversation_too():
    log = Log()
    asked = {"agent": "poet", "prompt": "Write.", "instructions": "You are a poet.", "model": "scripted"}
    answer = {"parts": [{"part_kind": "text", "content": "Roses"}], "model_name": "scripted", "cost_nanodollars": 5}
    started = catalog.OperationStarted("op_1", "agent_response", asked, key="1", name="poet")
    done = catalog.OperationCompleted("op_1", "agent_response", 5, answer, {"requests": 1, "input_tokens": 3})
    log.write(*begun(), STEP, (started, "main", "s"), (done, "main", "s"))
    log.feed.frame()
    said = log.feed.conversation("v", 1, 0)
    (request,) = said["requests"]
    assert (said["agent"], request["instructions"]) == ("poet", "You are a poet.")
    assert [(part["kind"], part["text"]) for part in request["sent"] + request["answer"]][-2:] == [
        ("user", "Write."),
        ("assistant", "Roses"),
    ]


@pytest.mark.parametrize("span", [-1, 0, 3, 99])
def test_what_is_no_conversation_is_said_to_be_none(feed, span):
    assert "no conversation" in checked(feed.conversation("v", span, 0), Conversation)["error"]
    assert "is not a request" in checked(feed.sent("v", span), Sent)["error"]


def test_all_that_was_sent_with_a_request_is_told_on_demand(feed):
    parts = feed.sent("v", 5)["parts"]
    assert [part["kind"] for part in parts] == ["system", "user", "thinking", "call", "call", "result", "result"]
    assert "n = 12" in parts[5]["text"]
    assert len(feed.sent("v", 8)["parts"]) == 2


def test_the_header_says_who_spent_what(feed):
    header = feed.welcome("v", 0)["header"]
    assert header["tool_calls"] == 3
    assert header["spenders"] == [{"agent": "critic", "requests": 3, "tokens": 742, "cost": pytest.approx(0.0018)}]


def test_work_that_was_given_is_one_call_and_so_are_the_rounds_of_a_server():
    log = Log()
    started = catalog.OperationStarted
    facts = [*begun(), STEP, (started("turn", "agent_turn", {"agent": "a"}, key="turn"), "main", "s")]
    turn = len(facts)
    log.write(
        *facts,
        (started("r1", "tool_call", {"tool": "t"}, key="tool-1-c", within=turn), "main", "s"),
        (started("r2", "tool_call", {"tool": "t"}, key="tool-1-c#2", within=turn), "main", "s"),
        (started("w", "agent_turn", {"agent": "b"}, key="tool-1-d/turn", within=turn), "main", "s"),
    )
    log.feed.frame()
    assert log.feed.welcome("v", 0)["header"]["tool_calls"] == 2


def test_thoughts_and_arguments_are_streams_of_their_own():
    log = Log()
    log.events = TURN[:5]
    log.feed.frame()
    operation = TURN[4].data.operation_id
    for part, text in (("thinking", "Two "), ("text", "I "), ("arguments:search:call_a", '{"query" ')):
        log.feed.stream(TextDelta(operation, 0, text, part))
    told = log.feed.frame()["streamed"]
    assert {piece["part"]: piece["text"] for piece in told} == {
        "thinking": "Two ", "text": "I ", "arguments:search:call_a": '{"query" '
    }  # fmt: skip
    assert {piece["id"] for piece in told} == {2}


# --- sizes and damage ----------------------------------------------------------------------------------------------


def long_turn(count, text, *, says_new=True):
    """Return the facts of a turn with so many requests, each of which calls a tool."""
    facts = [*begun(), STEP, (catalog.OperationStarted("turn", "agent_turn", {"agent": "a"}, key="turn"), "main", "s")]
    turn = len(facts)
    for n in range(1, count + 1):
        given = {"agent": "a", "request": n, "kept": 0, "new": [{"response": n - 1}] if n > 1 else []}
        given = given if says_new else {"agent": "a", "request": n, "kept": 0}
        call = {"part_kind": "tool-call", "tool_name": "t", "args": {"x": text}, "tool_call_id": f"c{n}"}
        answer = {"kind": "response", "parts": [{"part_kind": "text", "content": text}, call]}
        called = {"tool": "t", "arguments": {"x": text}}
        facts += [
            (fact, "main", "s")
            for fact in (
                catalog.OperationStarted(f"m{n}", "agent_response", given, key=f"model-{n}", within=turn),
                catalog.OperationCompleted(f"m{n}", "agent_response", 1, answer),
                catalog.OperationStarted(f"t{n}", "tool_call", called, key=f"tool-{n}-c{n}", within=turn),
                catalog.OperationCompleted(f"t{n}", "tool_call", 1, {"kind": "tool_return", "result": text}),
            )
        ]
    return facts


def test_a_turn_of_hundreds_of_requests_is_told_by_its_newest():
    log = Log()
    log.write(*long_turn(200, "x"))
    log.feed.frame()
    said = log.feed.conversation("v", 1, 0)
    assert [request["number"] for request in said["requests"]] == list(range(201 - MOST_REQUESTS, 201))
    assert {call["request"] for call in said["calls"]} == {request["number"] for request in said["requests"]}


def test_long_texts_are_cut():
    log = Log()
    log.write(*long_turn(1, "x" * 1_000_000))
    log.feed.frame()
    said = log.feed.conversation("v", 1, 0)
    assert len(encode(said)) < 5 * MOST_TEXT
    assert "more characters" in said["requests"][0]["answer"][0]["text"]


def test_a_long_result_is_told_by_its_beginning_and_its_end():
    log = Log()
    log.write(*long_turn(1, "\n".join(f"line {number}" for number in range(1_000_000))))
    log.feed.frame()
    (call,) = log.feed.conversation("v", 1, 0)["calls"]
    first, *_, last = call["result"].splitlines()
    assert (first, last, call["lines"]) == ("line 0", "line 999999", 1_000_000)
    assert "characters left out; the whole is in the log" in call["result"]


def test_no_half_of_a_secret_is_left_where_a_result_is_cut():
    secret = "sk-" + "a1B2c3D4e5" * 4
    half = "." * (MOST_TEXT // 2 - 20)
    log = Log()
    log.write(*long_turn(1, f"{half} {secret} {'.' * MOST_TEXT} {secret} {half}"))
    log.feed.frame()
    (call,) = log.feed.conversation("v", 1, 0)["calls"]
    assert "sk-a1B2" not in call["result"]
    assert "c3D4e5" not in call["result"]


def test_a_conversation_that_is_cut_for_a_notebook_keeps_its_form():
    said, given = newest_conversations(spans_of(TURN), 2, ID)
    assert checked(shortened(given, 3), Conversation)["calls"] == []
    short = checked(shortened(said, 5), Conversation)
    assert short["requests"][0]["sent"][0]["text"].startswith("Is th…")
    assert all(set(call) == set(said["calls"][0]) for call in short["calls"])


def test_of_many_turns_those_are_kept_that_nobody_gave_their_work():
    (said,) = newest_conversations(spans_of(TURN), 1, ID)
    assert said["agent"] == "critic"  # and not the counter, whose turn is newer


@pytest.mark.parametrize("place", range(3, len(TURN)))
def test_a_log_that_ends_anywhere_is_told(place):
    """Of each beginning of a log something can be shown, and all of it is of the right form."""
    spans = spans_of(TURN[:place])
    for said in newest_conversations(spans, 9, ID):
        checked(json.loads(encode(said)), Conversation)
    assert len(requests_of(TURN[:place])) == sum(len(said["requests"]) for said in newest_conversations(spans, 9, ID))


def test_what_was_left_out_of_a_log_is_left_out_of_what_is_said():
    spans = spans_of(TURN)
    for span in spans:
        span.parameters, span.result, span.setting = {"…": "(3 more)"}, "… (9 more characters)", None
    turn, *inside = spans[CRITIC:]
    checked(conversation_of(turn, [span for span in inside if span.holder == CRITIC], {}, ID), Conversation)


def test_a_fork_counts_what_it_has_called_and_spent_itself():
    log = Log()
    started, ended = catalog.OperationStarted, catalog.OperationCompleted
    facts = [*begun(), STEP, (started("turn", "agent_turn", {"agent": "a"}, key="turn"), "main", "s")]
    turn, usage = len(facts), {"input_tokens": 3, "output_tokens": 1}
    called = started("c1", "tool_call", {"tool": "t"}, key="tool-1-c", within=turn)
    asked = started("m1", "agent_response", {"agent": "a"}, key="model-1", within=turn)
    log.write(*facts, (asked, "main", "s"), (ended("m1", "agent_response", 1, {}, usage), "main", "s"))
    log.write((called, "main", "s"))
    log.feed.frame()
    before = log.feed.welcome("v", 0)["header"]
    assert (before["tool_calls"], before["spenders"][0]["tokens"]) == (1, 4)
    log.write((catalog.ExecutionForked("exec_0", len(facts) + 3, "w"), "", ""))
    log.feed.request_refresh()
    log.feed.frame()
    header = log.feed.welcome("v", 0)["header"]
    assert (header["tool_calls"], header["spenders"]) == (0, [])
