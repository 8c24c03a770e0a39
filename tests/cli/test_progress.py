import io

import pytest
from rich.console import Console

from divebook import Environment, Step, Workflow
from divebook.cli.progress import MAX_FINISHED, Board, LineProgress, LiveProgress, Progress
from divebook.projections.spans import Steps
from divebook.runtime.loop import ENGINE
from tests.runtime.worlds import held_up

STEPS = [
    Step("list", script="[1, 2, 3]", store="xs"),
    Step("double", each="$(state.xs)", script="2"),
    Step("odd \x1b[2J", script="1 / 0"),
]


class Fed(Board):
    """A board that hears of steps as progress does."""

    def __init__(self):
        super().__init__()
        self.steps = Steps()

    def see(self, event):
        span = self.steps.see(event)
        if span is not None:
            self.update(span)


@pytest.fixture(scope="module")
def log():
    environment = Environment(store="memory:", workflows=[Workflow("w", STEPS)])
    return environment.start("w").wait().history()


@pytest.fixture
def board(log):
    board = Fed()
    for event in log:
        board.see(event)
    return board


def test_a_board_has_a_row_for_each_step(board):
    assert [(row.step, row.status, row.items) for row in board.latest(10)] == [
        ("list", "completed", 0),
        ("double", "completed", 3),
        ("odd \x1b[2J", "failed", 0),
    ]


def test_a_row_tells_how_long_its_step_took(log, board):
    started = next(event for event in log if event.event_type == "step_started")
    ended = next(event for event in log if event.event_type == "step_completed")
    assert board.latest(10)[0].duration_us == ended.recorded_at - started.recorded_at


def test_running_steps_come_before_finished_ones_where_room_is_short(log):
    board = Fed()
    for event in log:
        board.see(event)
        if event.event_type == "iteration_started":
            break
    assert [row.step for row in board.latest(1)] == ["double"]
    assert [row.step for row in board.latest(2)] == ["list", "double"]


def test_a_step_that_waits_for_a_timer_says_so():
    workflow = Workflow("w", [Step("rest", seconds=0)])
    board, seen = Fed(), []
    for event in Environment(store="memory:").start(workflow).wait().history():
        board.see(event)
        seen += [row.shown_status for row in board.running.values()]
    assert "waiting" in seen
    assert board.latest(1)[0].status == "completed"


def test_a_board_forgets_old_steps_and_still_counts_them():
    workflow = Workflow(
        "w", [Step("s", script="state.get('n', 0) + 1", store="n", next=[("s", f"state.n < {MAX_FINISHED + 5}")])]
    )
    board = Fed()
    for event in Environment(store="memory:").start(workflow).wait().history():
        board.see(event)
    assert (board.count, len(board.finished)) == (MAX_FINISHED + 5, MAX_FINISHED)


def test_executions_that_run_side_by_side_do_not_hide_each_other():
    environment, board = Environment(store="memory:"), Fed()
    runs = [environment.start(Workflow(name, [Step(name, script="1")])).wait() for name in ("one", "other")]
    for both in zip(*(run.history() for run in runs), strict=True):
        for event in both:
            board.see(event)
    assert sorted((row.step, row.status) for row in board.latest(10)) == [("one", "completed"), ("other", "completed")]


def shown(progress_class, **options):
    stream = io.StringIO()
    environment = Environment(store="memory:", workflows=[Workflow("w", STEPS)])
    with progress_class(Console(file=stream, width=100, markup=False, highlight=False, **options)) as progress:
        progress.watch(environment.store)
        environment.start("w").wait()
        progress.print("said \x1b]0;title\x07")
    return stream.getvalue()


def test_lines_tell_begin_and_end_of_each_step():
    lines = [line for line in shown(LineProgress).splitlines() if not line.startswith("said")]
    assert [line.split("  ")[:3] for line in lines] == [
        ["running", "main", "list"],
        ["completed", "main", "list"],
        ["running", "main", "double"],
        ["completed", "main", "double"],
        ["running", "main", r"odd \x1b[2J"],
        ["failed", "main", r"odd \x1b[2J"],
    ]


def test_a_live_list_ends_with_every_step_and_is_safe():
    text = shown(LiveProgress, force_terminal=True, color_system=None)
    last = text.rsplit("said", 1)[1]
    assert "completed  main  list" in last
    assert r"odd \x1b[2J" in last
    assert "\x1b[2J" not in text
    assert "\x1b]0;" not in text


def test_a_live_list_says_what_holds_the_runs_up():
    stream = io.StringIO()
    with held_up() as execution, LiveProgress(Console(file=stream, width=100, force_terminal=True)) as progress:
        progress.watch(execution.store)
        progress.print("drawn")
    assert "waiting for the disk since 0 s: the disk is full" in stream.getvalue()
    assert ENGINE.held_up(execution.store) is None


def test_no_progress_still_prints_what_the_workflow_prints():
    assert shown(Progress) == "said \\x1b]0;title\\x07\n"


def test_nothing_listens_once_progress_has_ended():
    environment = Environment(store="memory:", workflows=[Workflow("w", [Step("s", script="1")])])
    stream = io.StringIO()
    with LineProgress(Console(file=stream)) as progress:
        progress.watch(environment.store)
    environment.start("w").wait()
    assert stream.getvalue() == ""
