"""A run in a script and on a loop, and how it shows."""

import asyncio
import gc
import re
import threading

import pytest

from divebook import Each, Environment, Run, Step, Workflow
from divebook.cli.result import print_result
from divebook.errors import ExecutionError, ExecutionFailedError, ExecutionPausedError, SetupError
from divebook.events.catalog import StepCompleted
from divebook.notebook import run_view, run_wait
from divebook.notebook.report import waiting_lines
from divebook.notebook.run_wait import await_run, wait_for_run
from divebook.notebook.saved_notebook import open_notebook
from divebook.notebook.shell_state import FrontEnd
from divebook.steps import Action
from divebook.text.format import AS_TEXT
from tests.notebook.test_saved import notebook
from tests.runtime.worlds import held_up
from tests.steps.test_approval import ManualClock

HOSTILE = (
    "<script>alert(1)</script><style>*{}</style><svg onload=x> \x1b[31mred\x1b[0m \u202egnp.exe \x00\x07"
    + "long " * 9000
)


def forms_of(run):
    """Return the forms that people read."""
    bundle = run._repr_mimebundle_()
    return bundle["text/plain"], bundle["text/html"]


def run(*steps, actions=(), **settings):
    workflow = Workflow("w", steps, **settings)
    environment = Environment(store="memory:", actions=actions, printer=lambda _: None)
    return environment.start(workflow)


@pytest.fixture
def gate():
    """Return an action that blocks until it is let go."""
    event = threading.Event()
    yield event
    event.set()


def waits_at(gate):
    return run(Step("first", script="1"), Step("wait", action="Gate"), actions=[Action("Gate", lambda: gate.wait(20))])


def test_it_is_waited_for_in_a_script():
    done = run(Step("s", script="1 + 1", store="n"), outputs=["n"]).wait()
    assert (done.status, done.outputs, done.variables, done.error) == ("completed", {"n": 2}, {"n": 2}, None)


def test_it_is_awaited_on_a_running_loop():
    async def main():
        return await run(Step("s", script="1", store="n"))

    assert asyncio.run(main()).status == "completed"


def test_it_is_waited_for_inside_a_running_loop():
    async def main():
        return run(Step("s", script="1", store="n")).wait()

    assert asyncio.run(main()).status == "completed"


def test_waiting_has_an_end_and_the_run_goes_on(gate):
    started = waits_at(gate)
    with pytest.raises(TimeoutError):
        started.wait(0.01)
    assert started.status == "running"
    gate.set()
    assert started.wait().status == "completed"


def test_a_failure_is_raised_when_asked_for():
    failed = run(Step("s", script="1 / 0"))
    assert failed.wait().status == "failed"
    with pytest.raises(ExecutionFailedError, match="division by zero"):
        failed.wait(check=True)


def test_it_is_cancelled_and_resumed(gate):
    calls = []

    async def slow():
        calls.append(1)
        await asyncio.sleep(0 if gate.is_set() else 20)

    slow_action = Action("Slow", slow, idempotent=True)
    started = run(Step("first", script="1"), Step("slow", action="Slow"), actions=[slow_action])
    while not calls:
        started.events  # noqa: B018 - reading lets time pass
    assert started.cancel().wait().status == "cancelled"
    gate.set()
    assert started.resume().wait().status == "completed"
    assert (started.steps.step == "first").sum() == 1


def test_a_fork_is_a_run_of_its_own_beside_its_source():
    source = run(Step("first", script="1", store="n"), Step("then", script="state.n + 1", store="m")).wait(check=True)
    history = list(source.history())
    first_done = next(event.sequence for event in history if isinstance(event.data, StepCompleted))
    forked = source.fork(at=first_done, change={"variables": {"n": 41}}, note="with 41").wait(check=True)
    assert isinstance(forked, Run)
    assert (forked.variables, source.variables) == ({"n": 41, "m": 42}, {"n": 1, "m": 2})
    assert forked.environment is source.environment
    record = forked.environment.store.record(forked.id)
    assert (record.origin, record.parent, record.note) == ("fork", source.id, "with 41")
    assert list(source.refresh().history()) == history
    with pytest.raises(SetupError, match=f"1 to {len(history)}, not 900"):
        source.fork(at=900)


def test_a_question_is_shown_and_answered():
    calls = []

    async def pay():
        calls.append(1)
        await asyncio.sleep(0 if len(calls) > 1 else 20)

    started = run(Step("pay", action="Pay"), actions=[Action("Pay", pay)])
    while not calls:
        started.events  # noqa: B018 - reading lets time pass
    asking = started.cancel().wait().resume().wait()
    (question,) = asking.open_questions
    for form in forms_of(asking):
        assert "… waiting" in form
        assert "running" not in form  # neither the run nor the step that asks
        assert "Did the call to Pay go through?" in form
        assert question.id in form
        assert "retry" in form
        assert "%dive resume" not in form
    assert asking.answer(question.id, "retry").wait().status == "completed"
    assert len(calls) == 2


def test_frames_are_at_hand():
    done = run(Step("s", script="1")).wait()
    assert list(done.operations.step) == ["s"]
    assert list(done.steps.status) == ["completed"]
    assert done.events.type.iloc[-1] == "execution_completed"
    assert list(done.internals.paths) == ["main"]
    assert done.usage.requests == 0


def test_one_call_gives_a_frame_of_the_items_that_failed():
    each = Each([1, 0, 2, 0], as_="i", on_item_error="keep")
    environment = Environment(store="memory:")
    run = environment.start(Workflow("w", [Step("s", each=each, script="1 / state.i")])).wait(20)
    assert run.failed_items[["iteration", "item"]].to_numpy().tolist() == [[1, 0], [3, 0]]
    assert run.failed_items.error.str.contains("division by zero").all()


def test_both_forms_tell_the_same():
    done = run(
        Step("count", script="[1, 2]", store="rows"), Step("say", action="Print", parameters={"Message": "x"})
    ).wait()
    bundle = done._repr_mimebundle_()
    for fact in (done.id, "count", "say", "✓ completed", "[1, 2]", "rows"):
        assert fact in bundle["text/plain"]
        assert fact in bundle["text/html"]
    assert bundle["text/html"] == done._repr_html_()
    assert bundle["text/plain"] == str(done)
    assert repr(done) == f"<Run {done.id} of 'w': completed>"


def test_html_begins_with_a_table_and_needs_no_style_sheet_script_or_class():
    html = run(Step("s", script="1", store="n")).wait()._repr_html_()
    html = html.replace(f' class="{AS_TEXT}"', "", 1)  # which has no looks
    assert html.index("<table") < html.index("<img")
    for forbidden in ("<style", "<svg", "<script", "class=", "onload", "background:#", "color:#"):
        assert forbidden not in html
    for needed in ('<th scope="col"', 'scope="row"', "<details", "alt=", "data:image/svg+xml;base64,"):
        assert needed in html


def test_hostile_text_is_harmless_in_both_forms():
    done = run(
        Step("<b>s</b>", action="Evil", store="x"),
        Step("bad", action="Fail"),
        actions=[Action("Evil", lambda: HOSTILE), Action("Fail", lambda: 1 / len(HOSTILE[:0]))],
        outputs=["x"],
    ).wait()
    bundle = done._repr_mimebundle_()
    for form in forms_of(done):
        assert not {"\x1b", "\x00", "\x07", "\u202e"} & set(form)
        assert "\\x1b[31mred" in form
        assert "more characters)" in form
        assert len(form) < 60_000
    html = bundle["text/html"]
    assert "<b>s</b>" not in html
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)" in html


def test_a_failed_run_shows_its_error_and_what_to_do_next():
    failed = run(Step("bad", script="1 / 0")).wait()
    for form in forms_of(failed):
        assert "✕ failed" in form
        assert "division by zero" in form
        assert "run.resume()" in form


def test_a_running_run_shows_how_far_it_is(gate):
    started = waits_at(gate)
    while len(started.steps) < 2:
        pass
    for form in forms_of(started):
        assert "▸ running" in form
        assert "✓ completed" in form
        assert "run.refresh()" in form


def test_many_steps_are_cut_with_a_count_and_the_last_one_is_shown():
    loop = Step(
        "loop",
        script="state.get('n', 0) + 1",
        store="n",
        next=[("loop", "$(state.n < 400)"), ("end", "$(state.n >= 400)")],
    )
    done = run(loop, Step("end", script="'last'")).wait()
    bundle = done._repr_mimebundle_()
    assert bundle["text/html"].count("<tr>") < 240
    assert "200 of 401 steps" in bundle["text/html"]
    for form in forms_of(done):
        assert "377 steps not shown here" in form
        assert "last" in form


def test_many_variables_are_cut_with_a_count():
    steps = [Step(f"s{index}", script=str(index), store=f"v{index}") for index in range(30)]
    text = str(run(*steps).wait())
    assert "30 variables, the first 20 of them" in text


def test_long_values_leave_room_for_the_question_until_the_run_is_over():
    asking = run(
        Step("s", script="'word ' * 1000", store="long"),
        Step("ask", type="interrupt", ask="Which?", store="x"),
    ).wait()
    assert "… (4,700 more characters)" in str(asking)
    done = asking.answer(asking.open_questions[0].id, "this").wait()
    assert "… (1,000 more characters)" in str(done)


def test_resume_in_a_view_does_nothing_where_only_an_answer_helps():
    asking = run(Step("ask", type="interrupt", ask="Which?", store="x")).wait()
    resume = run_view._handlers(asking, lambda: None).resume
    with pytest.raises(ExecutionError, match="Answer the question to continue"):
        resume()
    assert [event.event_type for event in asking.history()].count("execution_resumed") == 0


def test_a_paused_run_says_so_in_both_forms(gate):
    held = run(Step("wait", action="Gate"), Step("after", script="1"), actions=[Action("Gate", lambda: gate.wait(20))])
    held.pause()  # before `after`, whether the call has begun or not
    gate.set()
    held.wait()
    assert all("‖ paused" in form for form in forms_of(held))


@pytest.mark.usefixtures("notebook_words")
@pytest.mark.parametrize("finish", [wait_for_run, lambda run, here: asyncio.run(await_run(run, here))])
def test_a_pause_from_the_page_fails_the_cell_as_an_interrupt_does(gate, finish, monkeypatch):
    begun, awaited = threading.Event(), threading.Event()
    monkeypatch.setattr(run_wait, "_is_in_other_process", lambda _: awaited.set())

    def wait():
        begun.set()
        gate.wait(20)

    held = run(Step("wait", action="Gate"), Step("after", script="1"), actions=[Action("Gate", wait)])

    def press():
        begun.wait(20)
        awaited.wait(20)
        held.pause()
        gate.set()

    pressed = threading.Thread(target=press)
    pressed.start()
    with pytest.raises(ExecutionPausedError) as caught:
        finish(held, FrontEnd())
    pressed.join()
    told, advice = caught.value._render_traceback_()
    assert told == f"run {held.id} is paused; 1 completed call saved"
    assert advice == f"Run the cell again to continue, or: %dive resume {held.id}"


def test_a_run_that_was_paused_before_fails_no_cell_that_shows_it(gate):
    held = run(Step("wait", action="Gate"), Step("after", script="1"), actions=[Action("Gate", lambda: gate.wait(20))])
    held.pause()
    gate.set()
    assert held.wait().status == "paused"
    way_on = "Run the cell again to continue, or: run.resume()"
    assert waiting_lines(held) == [f"{held.id} is paused. {way_on}"]
    assert wait_for_run(held, FrontEnd()) is held


def test_a_run_that_is_held_up_says_what_holds_it_up():
    with held_up() as execution:
        text, page = forms_of(execution)
    assert "waiting for the disk since 0 s: the disk is full. Free some space" in text
    assert "waiting for the disk since 0 s: the disk is full. Free some space" in page


@pytest.mark.parametrize("was_enabled", [True, False])
def test_the_collector_rests_while_a_run_is_shown_and_is_then_as_it_was(monkeypatch, was_enabled):
    environment = Environment(store="memory:")
    run = environment.start(Workflow("w", [Step("a", script="1")])).wait()
    resting = []
    monkeypatch.setattr("divebook.notebook.run_view.data_of", lambda *_, **__: resting.append(gc.isenabled()) or {})
    enabled = gc.isenabled()
    try:
        (gc.enable if was_enabled else gc.disable)()
        run.internals.static_bundle()
        assert (resting, gc.isenabled()) == ([False], was_enabled)
        monkeypatch.setattr(run, "history", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run.internals.static_bundle()
        assert gc.isenabled() is was_enabled
    finally:
        (gc.enable if enabled else gc.disable)()


def test_tags_are_given_at_any_time_and_a_resumed_run_keeps_them():
    failing = run(Step("s", script="1 / 0")).wait()
    assert failing.tag("baseline", "odd").untag("odd").tags == ("baseline",)
    assert failing.resume().wait().status == "failed"
    assert failing.tags == ("baseline",)
    assert [record.execution_id for record in failing._environment.store.records(tag="baseline")] == [failing.id]


def test_reports_say_how_long_a_run_worked_and_how_long_it_waited_for_a_person(tmp_path, capsys):
    clock = ManualClock()
    environment = Environment(store="memory:", clock=clock)
    asking = environment.start(Workflow("w", [Step("ask", ask="Which?")])).wait()
    clock.ahead = 63_000_000
    done = asking.answer(asking.open_questions[0].id, "this").wait()
    print_result(done, [], json=False)
    (reopened,) = open_notebook(notebook(tmp_path, done.internals.static_bundle()))
    for told in (*forms_of(done), capsys.readouterr().out, str(reopened)):
        assert re.search(r"worked \d+ ms.{1,3}waited for you 1 min 03 s", told, re.DOTALL), told
