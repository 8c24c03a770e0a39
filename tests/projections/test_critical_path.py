"""What the end of a run waited for: parts that fill its duration without a gap."""

import random
from itertools import pairwise

import pytest

from divebook.events import Event, catalog
from divebook.projections.summary import critical_path

MS = 1000


def log_of(*facts):
    """Return events of (milliseconds, path, payload[, step])."""
    return [
        Event(f"event_{number}", "exec_1", number, moment * MS, data, path, *step)
        for number, (moment, path, data, *step) in enumerate(facts, 1)
    ]


def begins(name, kind="action_execution", item=None):
    return catalog.OperationStarted(name, kind, name=name, iteration_index=item)


def ends(name, kind="action_execution"):
    return catalog.OperationCompleted(name, kind)


def told(log):
    return [(part.spent, part.called, part.took_us // MS) for part in critical_path(log)]


START = (0, "", catalog.ExecutionStarted("w"))
END = catalog.ExecutionCompleted()


def fills(log):
    parts = critical_path(log)
    assert parts[0].started_us == log[0].recorded_at
    assert parts[-1].ended_us == max(event.recorded_at for event in log)
    assert all(one.ended_us == other.started_us for one, other in pairwise(parts))
    return True


def test_calls_one_after_the_other_with_what_lies_between():
    log = log_of(
        START,
        (0, "main", catalog.PathStarted("a")),
        (1, "main", catalog.StepStarted("action"), "a"),
        (2, "main", begins("first"), "a"),
        (10, "main", ends("first"), "a"),
        (12, "main", begins("second", "agent_response"), "a"),
        (20, "main", ends("second", "agent_response"), "a"),
        (21, "", END),
    )
    assert told(log) == [
        ("overhead", "", 2),
        ("actions", "first", 8),
        ("overhead", "", 2),
        ("model", "second", 8),
        ("overhead", "", 1),
    ]
    assert fills(log)


def parallel(left, right):
    """Return a run that splits into two ways of so many milliseconds, and joins them."""
    ways = ({"id": "main-1", "current_step": "l"}, {"id": "main-2", "current_step": "r"})
    both = sorted([(left, "main-1", "l"), (right, "main-2", "r")])
    return log_of(
        START,
        (0, "main", catalog.PathStarted("a")),
        (0, "main", begins("before"), "a"),
        (5, "main", ends("before"), "a"),
        (5, "main", catalog.PathBranched(ways), "a"),
        (5, "main", catalog.PathCompleted("a")),
        *((5, path, catalog.PathStarted(name)) for _, path, name in both),
        *((5, path, begins(name), name) for _, path, name in both),
        *(
            fact
            for took, path, name in both
            for fact in ((5 + took, path, ends(name), name), (5 + took, path, catalog.PathWaiting("j")))
        ),
        (5 + both[1][0], "main-2", catalog.PathCompleted("r")),
        (5 + both[1][0], "main-1", catalog.PathJoined("j", ["main-2"])),
        (5 + both[1][0], "main-1", begins("after"), "j"),
        (8 + both[1][0], "main-1", ends("after"), "j"),
        (8 + both[1][0], "", END),
    )


@pytest.mark.parametrize(("left", "right", "longest"), [(10, 30, "r"), (40, 30, "l")])
def test_at_a_join_it_goes_on_with_the_path_that_came_last(left, right, longest):
    log = parallel(left, right)
    assert told(log) == [("actions", "before", 5), ("actions", longest, max(left, right)), ("actions", "after", 3)]
    assert fills(log)


def test_of_items_side_by_side_the_one_that_ended_last_and_what_it_waited_for():
    log = log_of(
        START,
        (0, "main", catalog.PathStarted("a")),
        (0, "main", begins("i0", item=0), "a"),
        (0, "main", begins("i1", item=1), "a"),
        (4, "main", ends("i0"), "a"),
        (4, "main", begins("i2", item=2), "a"),
        (6, "main", ends("i1"), "a"),
        (9, "main", ends("i2"), "a"),
        (9, "", END),
    )
    assert told(log) == [("actions", "i0", 4), ("actions", "i2", 5)]


def test_people_sleep_and_times_in_which_nothing_ran():
    log = log_of(
        START,
        (0, "main", catalog.PathStarted("a")),
        (0, "main", catalog.StepStarted("interrupt"), "a"),
        (0, "main", catalog.InterruptRaised("ask_1", "clarification", "Which?"), "a"),
        (1000, "main", catalog.InterruptResolved("ask_1", {"text": "this"}), "a"),
        (1000, "main", begins("t", "timer"), "a"),
        (3000, "main", ends("t", "timer"), "a"),
        (3000, "main", begins("s", "script_execution"), "a"),
        (3100, "", catalog.ExecutionPaused("lunch")),
        (9100, "", catalog.ExecutionResumed()),
        (9100, "main", begins("s", "script_execution"), "a"),
        (9200, "main", ends("s", "script_execution"), "a"),
        (9200, "", END),
    )
    assert told(log) == [
        ("people", "clarification", 1000),
        ("asleep", "t", 2000),
        ("scripts", "s", 100),
        ("paused", "", 6000),
        ("scripts", "s", 100),
    ]
    assert fills(log)


def test_a_run_that_goes_on_is_told_up_to_its_last_event():
    log = log_of(
        START, (0, "main", catalog.PathStarted("a")), (2, "main", begins("first"), "a"), (7, "main", begins("x"), "a")
    )
    assert fills(log)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_ran_side_by_side_the_parts_fill_the_duration(seed):
    rng = random.Random(seed)
    facts = []
    for number in range(rng.randint(1, 40)):
        start = rng.randint(0, 200)
        facts += [
            (start, begins(f"c{number}", item=rng.choice([None, 0, 1, 2]))),
            (start + rng.randint(0, 60), ends(f"c{number}")),
        ]
    facts.sort(key=lambda fact: fact[0])
    order = {}
    kept = []
    for moment, data in facts:  # of a call that took no time the end may have come first
        known = order.setdefault(data.operation_id, type(data))
        if known is catalog.OperationStarted:
            kept.append((moment, "main", data, "a"))
    assert fills(log_of(START, (0, "main", catalog.PathStarted("a")), *kept, (300, "", END)))
