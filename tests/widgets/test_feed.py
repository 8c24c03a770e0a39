"""What a feed tells of a log that grows."""

import json

import pandas as pd

from divebook.events import catalog
from divebook.events.codec import storable
from divebook.runtime.streaming import TextDelta
from divebook.widgets.feed import EVENTS_PER_FRAME, FIRST_SPANS, MAX_DETAIL, MAX_TEXT, SPANS_PER_PAGE
from tests.engine.history import begun, step
from tests.widgets.feeds import OPERATION, OPERATION_DONE, STEP, Log, steps


def texts(block, column):
    return [block["names"][place] for place in block[column]]


def test_the_first_frame_tells_what_the_store_holds_already():
    log = Log()
    log.write(*steps(2))
    delta = log.feed.frame()
    assert (delta["after"], delta["last"], delta["total"]) == (0, 6, 2)
    assert texts(delta["spans"], "step") == ["s0", "s1"]
    assert texts(delta["spans"], "status") == ["completed", "completed"]


def test_a_frame_tells_only_what_changed_since_the_last():
    log = Log()
    log.write(*begun(), STEP)
    log.feed.frame()
    log.feed.receive(log.write(OPERATION))
    delta = log.feed.frame()
    assert delta["spans"]["id"] == [1]
    assert texts(delta["spans"], "label") == ["critic"]
    assert delta["spans"]["end"] == [-1]
    assert (delta["after"], delta["last"]) == (3, 4)


def test_many_events_become_one_frame():
    log = Log()
    log.feed.frame()
    log.feed.receive(log.write(*steps(50)))
    assert log.feed.frame()["total"] == 50
    assert log.feed.frame() is None


def test_nothing_new_is_no_frame():
    log = Log()
    log.write(*steps(1))
    log.feed.frame()
    log.header["now_us"] = 2
    assert log.feed.frame() is None
    log.header["status"] = "waiting"
    assert log.feed.frame()["header"]["status"] == "waiting"


def test_a_gap_is_found_by_its_sequence_and_read_from_the_store():
    log = Log()
    log.write(*steps(1))
    log.feed.frame()
    log.write(*step("unheard"))
    log.feed.receive(log.write(*step("heard")))
    delta = log.feed.frame()
    assert texts(delta["spans"], "step") == ["unheard", "heard"]
    assert log.reads == [0, 4]


def test_events_that_come_twice_count_once():
    log = Log()
    log.feed.frame()
    new = log.write(*steps(1))
    log.feed.receive(new)
    log.feed.receive(new)
    assert log.feed.frame()["total"] == 1


def test_a_long_history_comes_in_several_frames():
    log = Log()
    log.write(*steps(EVENTS_PER_FRAME))
    assert [log.feed.frame()["last"] for _ in range(2)] == [EVENTS_PER_FRAME, 2 * EVENTS_PER_FRAME]


def test_questions_are_told_when_they_change():
    log = Log()
    asked = {"interrupt_id": "ask_1", "status": "pending"}
    log.questions = [asked]
    assert log.feed.frame()["questions"] == [asked]
    assert log.feed.frame() is None
    log.questions = [{**asked, "status": "resolved"}]
    assert [asked["status"] for asked in log.feed.frame()["questions"]] == ["resolved"]


def test_a_welcome_brings_only_what_changed_since():
    log = Log()
    log.write(*steps(3))
    log.feed.frame()
    assert log.feed.welcome("v", 0)["spans"]["id"] == [0, 1, 2]
    again = log.feed.welcome("v", 6)
    assert (again["since"], again["spans"]["id"]) == (6, [2])


def test_a_view_from_another_life_starts_anew():
    log = Log()
    log.write(*steps(1))
    log.feed.frame()
    assert log.feed.welcome("v", 99)["since"] == 0


def test_a_welcome_of_many_spans_is_small_and_history_brings_the_rest():
    log = Log()
    log.write(*begun(), (catalog.StepStarted("wait"), "main", "long"), *steps(6000)[2:])
    while log.feed.frame():
        pass
    welcome = log.feed.welcome("v", 0)
    assert len(welcome["spans"]["id"]) <= FIRST_SPANS + 1
    assert len(json.dumps(welcome)) < 300_000
    page = log.feed.history("v", 0, 6001 - FIRST_SPANS)
    assert (page["first"], page["stop"]) == (0, 4501)
    assert page["spans"]["id"] == list(range(4501))
    assert len(log.feed.history("v", 0, 6001)["spans"]["id"]) == SPANS_PER_PAGE
    assert log.feed.history("v", 7000, 9000)["spans"]["id"] == []


def test_details_come_from_the_store_and_long_texts_are_cut():
    log = Log()
    long = catalog.OperationCompleted("op_1", "agent_response", 5, {"text": "x" * (MAX_TEXT + 7)}, None)
    log.write(*begun(), STEP, OPERATION, (long, "main", "s"))
    log.feed.frame()
    started, completed = log.feed.detail("v", 1)["events"]
    assert started["data"]["parameters"] == {"agent": "critic"}
    assert completed["event_type"] == "operation_completed"
    assert completed["data"]["result"]["text"].endswith("… (7 more characters)")


def test_a_detail_of_many_long_texts_stays_small():
    log = Log()
    data = {str(number): "y" * MAX_TEXT for number in range(30)}
    log.write(*begun(), STEP, (catalog.OperationStarted("op_1", "t", data), "main", "s"))
    log.feed.frame()
    assert len(json.dumps(log.feed.detail("v", 1))) < 2 * MAX_DETAIL


def test_a_detail_of_no_span_says_so():
    assert log_error(Log()) == "there is no call 5"


def log_error(log):
    return log.feed.detail("v", 5)["error"]


def test_hostile_names_are_harmless_on_their_way():
    log = Log()
    item = catalog.IterationStarted(0, "<script>\x1b[31m\u202e" + "z" * 5_000_000)
    log.write(*begun(), (catalog.StepStarted("script"), "main", "s\x1b[2J"), (item, "main", "s\x1b[2J"))
    block = log.feed.frame()["spans"]
    assert texts(block, "step") == ["s\\x1b[2J"] * 2
    assert len(texts(block, "label")[1]) < 200
    assert "\u202e" not in texts(block, "label")[1]


def test_streamed_text_comes_in_pieces_that_say_where_they_belong():
    log = Log()
    log.write(*begun(), STEP, OPERATION)
    log.feed.frame()
    log.feed.stream(TextDelta("op_1", 0, "Hello "))
    assert log.feed.frame()["streamed"] == [{"id": 1, "part": "text", "at": 0, "text": "Hello "}]
    log.feed.stream(TextDelta("op_1", 6, "wor"))
    log.feed.stream(TextDelta("op_1", 9, "ld\ud800 "))
    assert log.feed.frame()["streamed"] == [{"id": 1, "part": "text", "at": 6, "text": "world? "}]
    assert log.feed.welcome("v", 0)["streamed"] == [{"id": 1, "part": "text", "at": 0, "text": "Hello world? "}]
    log.feed.receive(log.write(OPERATION_DONE))
    log.feed.frame()
    assert log.feed.welcome("v", 0)["streamed"] == []


def test_the_text_of_a_call_that_is_made_again_begins_anew():
    log = Log()
    log.write(*begun(), STEP, OPERATION)
    log.feed.stream(TextDelta("op_1", 0, "Roses are"))
    log.feed.frame()
    log.feed.stream(TextDelta("op_1", 0, "Violets "))
    assert log.feed.frame()["streamed"] == [{"id": 1, "part": "text", "at": 0, "text": "Violets "}]


def test_streamed_text_whose_beginning_was_missed_says_where_it_belongs():
    log = Log()
    log.write(*begun(), STEP, OPERATION)
    log.feed.stream(TextDelta("op_1", 20, "of a long "))
    log.feed.stream(TextDelta("op_1", 30, "story "))
    assert log.feed.frame()["streamed"] == [{"id": 1, "part": "text", "at": 20, "text": "of a long story "}]


def test_streamed_text_that_comes_before_its_call_is_known_waits():
    log = Log()
    log.write(*begun(), STEP)
    log.feed.stream(TextDelta("op_1", 0, "early "))
    assert log.feed.frame()["streamed"] == []
    log.feed.receive(log.write(OPERATION))
    assert [piece["text"] for piece in log.feed.frame()["streamed"]] == ["early "]


def test_a_persons_own_event_stands_on_the_timeline():
    log = Log()
    log.write(
        *begun(), (catalog.StepStarted("script"), "main", "a"), (catalog.EventEmitted("found", {"n": 3}), "main", "a")
    )
    spans = log.feed.frame()["spans"]
    assert spans["names"][spans["kind"][-1]] == "event"
    assert "found" in spans["names"][spans["label"][-1]]


def test_a_call_that_begins_after_its_item_was_told_is_named_after_it_all_the_same():
    log = Log()
    item = catalog.IterationStarted(0, {"name": "certifi"})
    log.write(*begun(), STEP, (item, "main", "s"))
    assert texts(log.feed.frame()["spans"], "item")[-1] == "certifi"
    call = catalog.OperationStarted("op_1", "action_execution", {"action_name": "Read"}, iteration_index=0)
    log.feed.receive(log.write((call, "main", "s")))
    assert texts(log.feed.frame()["spans"], "item") == ["certifi"]


def test_what_rows_gave_is_counted_a_few_rows_with_each_frame():
    log = Log()
    frame = storable(pd.DataFrame({"label": ["praise", "blame"] * 1_500}), "rows")
    parts = [(catalog.RowsCompleted(number, "op_1", frame, 3_000, 0, 9_000), "main", "label") for number in range(3)]
    log.write(*begun(), (catalog.StepStarted("action"), "main", "label"), *parts)
    told = []
    while log.feed.has_news:
        (step,) = log.feed.frame()["header"]["progress"]
        told.append([spread["words"] for spread in step["spread"]])
    assert told == [["label: blame 3,000, praise 3,000"], ["label: blame 4,500, praise 4,500"]]
    assert log.feed.frame() is None
    (step,) = log.feed.welcome("v", 0)["header"]["progress"]
    assert step["done"] == 9_000
