"""What a header says of the course of a run."""

import json

from divebook import Each, Step, Workflow
from divebook.events import catalog
from divebook.projections.summary import ReadLog
from divebook.widgets.feed import Feed
from divebook.widgets.protocol import StepProgress, checked
from divebook.widgets.source import MOST_PHASES, source_of, with_activity
from tests.engine.history import events, step
from tests.runtime.worlds import Gate, environment
from tests.widgets.feeds import HEADER, Log

ASKED, ANSWERED = catalog.InterruptRaised("ask_1", "question", "Well?"), catalog.InterruptResolved("ask_1", {})


def header_after(*facts, live=True):
    log = ReadLog(events(catalog.ExecutionStarted("w"), *facts))
    log.spreads.count()
    return with_activity({**HEADER, "live": live}, log.activity, log.spreads)


def test_a_header_counts_up_to_when_the_present_began():
    header = header_after((ASKED, "main"), (ANSWERED, "main"))
    assert (header["doing"], header["since_us"], header["worked_us"]) == ("worked", 3_000_000, 1_000_000)
    assert header["waited_us"] == 1_000_000
    assert header["stretches"] == [{"doing": "waited", "begin_us": 2_000_000, "end_us": 3_000_000}]


def test_a_stretch_that_lasts_has_no_end():
    header = header_after((ASKED, "main"))
    assert header["stretches"] == [{"doing": "waited", "begin_us": 2_000_000, "end_us": None}]


def test_a_run_whose_process_is_gone_has_stopped_when_it_was_last_heard_of():
    header = header_after((catalog.OperationStarted("op_1", "script"), "main"), live=False)
    assert (header["doing"], header["since_us"], header["worked_us"]) == ("stopped", 2_000_000, 1_000_000)


def test_the_longest_stretches_are_shown_and_all_are_counted():
    answers = [(fact, "main") for _ in range(MOST_PHASES + 20) for fact in (ASKED, ANSWERED)]
    header = header_after(*answers)
    assert len(header["stretches"]) == MOST_PHASES
    assert header["waited_us"] == (MOST_PHASES + 20) * 1_000_000


def test_a_feed_says_nothing_anew_while_the_same_goes_on():
    log = Log()
    log.write(catalog.ExecutionStarted("w"), (ASKED, "main"))
    assert log.feed.frame()["header"]["doing"] == "waited"
    log.header["now_us"] = 99
    log.feed.request_refresh()
    assert log.feed.frame() is None


def test_a_header_tells_how_far_the_items_of_a_step_are():
    gate = Gate()
    steps = [Step("classify", action="gate", parameters={"value": "${row}"}, each=Each(["a", "b", "c"], "row"))]
    execution = environment(actions=[gate.action()]).start(Workflow("w", steps))
    assert gate.reached.wait(20)
    feed = Feed(source_of(execution))
    (told,) = feed.frame()["header"]["progress"]
    assert (told["step"], told["done"], told["total"], told["running"]) == ("classify", 0, 3, True)
    gate.opened.set()
    execution.wait(20)
    feed.request_refresh()
    delta = feed.frame()
    (told,) = delta["header"]["progress"]
    assert (told["done"], told["total"], told["running"], told["left_us"]) == (3, 3, False, None)
    names = delta["spans"]["names"]
    assert {names[place] for place in delta["spans"]["item"]} == {"", "a", "b", "c"}


def test_a_step_without_items_has_no_progress():
    assert header_after(*step("s"))["progress"] == []


def gave(*values, to="s"):
    """Return the facts of a step whose items gave values."""
    begun = catalog.StepStarted("action"), "main", to
    items = [(catalog.IterationStarted(at, total=len(values)), "main", to) for at in range(len(values))]
    return [begun, *items, *((catalog.IterationCompleted(at, {"text": v}), "main", to) for at, v in enumerate(values))]


def ended(to):
    return catalog.StepCompleted("action"), "main", to


def told(header):
    return {step["step"]: [spread["words"] for spread in step["spread"]] for step in header["progress"]}


def test_a_header_tells_what_the_items_of_the_latest_steps_gave():
    steps = [fact for name in "abcd" for fact in (*gave(name, name, to=name), ended(name))]
    assert told(header_after(*steps)) == {name: [f"result: {name} 2"] if name != "a" else [] for name in "abcd"}
    assert told(header_after(*steps, *gave("x", "x", to="e"))) == {**{key: [] for key in "abcd"}, "e": ["result: x 2"]}


def test_what_a_header_tells_of_items_is_of_the_protocol():
    header = header_after(*gave("praise", "blame", "praise"))
    assert checked(json.loads(json.dumps(header["progress"])), list[StepProgress]) == header["progress"]
    (spread,) = header["progress"][0]["spread"]
    assert spread["parts"] == [{"name": "praise", "count": 2}, {"name": "blame", "count": 1}]
