"""What the end of a run waited for: parts that fill its duration without a gap."""

import heapq
import random
from datetime import timedelta
from itertools import pairwise

import pytest

from divebook import Step, Workflow
from divebook.engine.decide import decide_end, decide_joins, decide_path, decide_start
from divebook.engine.evolve import evolve
from divebook.engine.instructions import EvaluateConditions, Fact, RecordFacts, RunStep
from divebook.engine.state import JOINING, ExecutionState
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
    return [(part.spent, part.called, part.duration // timedelta(milliseconds=1)) for part in critical_path(log)]


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


def test_a_path_that_waits_at_two_joins_continues_at_each_with_the_path_that_came_last():
    begun = [
        fact
        for number in (1, 2, 3)
        for fact in (
            (0, f"main-{number}", catalog.PathStarted(f"s{number}")),
            (0, f"main-{number}", begins(f"c{number}"), f"s{number}"),
        )
    ]
    log = log_of(
        START,
        (0, "main", catalog.PathStarted("a")),
        (0, "main", catalog.PathBranched([{"id": f"main-{n}", "current_step": f"s{n}"} for n in (1, 2, 3)]), "a"),
        (0, "main", catalog.PathCompleted("a")),
        *begun,
        (1, "main-1", ends("c1"), "s1"),
        (1, "main-1", catalog.PathWaiting("j")),
        (7, "main-2", ends("c2"), "s2"),
        (7, "main-2", catalog.PathWaiting("j")),
        (7, "main-2", catalog.PathCompleted("s2")),
        (7, "main-1", catalog.PathJoined("j", ["main-2"])),
        (8, "main-3", ends("c3"), "s3"),
        (8, "main-3", catalog.PathWaiting("k")),
        (7, "main-1", begins("between"), "j"),
        (12, "main-1", ends("between"), "j"),
        (12, "main-1", catalog.PathWaiting("k")),
        (12, "main-3", catalog.PathCompleted("s3")),
        (12, "main-1", catalog.PathJoined("k", ["main-3"])),
        (12, "main-1", begins("after"), "k"),
        (13, "main-1", ends("after"), "k"),
        (13, "", END),
    )
    assert told(log) == [("actions", "c2", 7), ("actions", "between", 5), ("actions", "after", 1)]
    assert fills(log)


def test_a_rollback_waited_for_the_path_that_failed():
    log = log_of(
        START,
        (0, "main", catalog.PathStarted("a")),
        (0, "main", catalog.PathBranched([{"id": f"main-{n}", "current_step": f"s{n}"} for n in (1, 2)]), "a"),
        (0, "main", catalog.PathCompleted("a")),
        (0, "main-1", catalog.PathStarted("s1")),
        (0, "main-1", begins("fails"), "s1"),
        (0, "main-2", catalog.PathStarted("s2")),
        (0, "main-2", begins("is broken off"), "s2"),
        (4, "main-1", catalog.OperationFailed("fails", "action_execution", error="no"), "s1"),
        (4, "main-1", catalog.PathFailed("no")),
        (4, "main-2", catalog.PathCancelled("path main-1 failed")),
        (4, "", catalog.RollbackStarted("no")),
        (4, "rollback-1", catalog.PathStarted("a", 1)),
        (4, "rollback-1", begins("undoes"), "a"),
        (9, "rollback-1", ends("undoes"), "a"),
        (9, "rollback-1", catalog.PathCompleted("a")),
        (9, "", catalog.ExecutionFailed("no")),
    )
    assert told(log) == [("actions", "fails", 4), ("actions", "undoes", 5)]
    assert fills(log)


def test_the_search_ends_in_a_log_whose_paths_split_into_each_other():
    log = log_of(
        START,
        (0, "main", catalog.PathStarted("a")),
        (1, "main", catalog.PathBranched([{"id": "main", "current_step": "a"}, {"id": "b", "current_step": "b"}]), "a"),
        (2, "b", catalog.PathStarted("b")),
        (3, "b", catalog.PathBranched([{"id": "main", "current_step": "a"}, {"id": "b", "current_step": "b"}]), "b"),
        (4, "main", catalog.PathCompleted("a")),
        (4, "main", catalog.PathStarted("a")),
        (5, "b", catalog.PathCompleted("b")),
    )
    assert told(log) == [("overhead", "", 5)]


def test_a_failed_run_waited_for_the_path_that_failed():
    log = log_of(
        START,
        (0, "main", catalog.PathStarted("a")),
        (0, "main", catalog.PathBranched([{"id": f"main-{n}", "current_step": f"s{n}"} for n in (1, 2)]), "a"),
        (0, "main", catalog.PathCompleted("a")),
        (0, "main-1", catalog.PathStarted("s1")),
        (0, "main-1", begins("fails"), "s1"),
        (0, "main-2", catalog.PathStarted("s2")),
        (0, "main-2", begins("is broken off"), "s2"),
        (4, "main-1", catalog.OperationFailed("fails", "action_execution", error="no"), "s1"),
        (4, "main-1", catalog.PathFailed("no")),
        (4, "main-2", catalog.PathCancelled("path main-1 failed")),
        (4, "", catalog.ExecutionFailed("no")),
    )
    assert told(log) == [("actions", "fails", 4)]


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


# --- runs with random branches and joins ---


def random_workflow(rng):
    names = [f"s{number}" for number in range(rng.randint(4, 8))]
    steps = []
    for number, name in enumerate(names):
        later = names[number + 1 :]
        targets = rng.sample(later, min(len(later), rng.choice([1, 1, 2, 2, 3])))
        edges = [(target, rng.choice([None, None, "$(inputs.x)"])) for target in targets]
        steps.append(Step(name, script="1", next=edges, end=not targets, join=number > 0 and rng.random() < 0.5))
    return Workflow("random", steps)


class Simulation:
    """Runs a workflow by the rules of the engine, with one call of random length in each step."""

    def __init__(self, rng):
        self.rng, self.definition = rng, random_workflow(rng)
        self.state, self.log = ExecutionState("exec_1"), []
        self.moment, self.running, self.arrives = 0, [], False
        self.latest = None
        """The call that ended last. All that happens until the next one ends waited for it."""
        self.waited_for = {}

    def record(self, *facts):
        for fact in facts:
            number = len(self.log) + 1
            event = Event(f"event_{number}", "exec_1", number, self.moment, fact.data, fact.path, fact.step)
            self.log.append(event)
            self.state = evolve(self.state, event)

    def carry_out(self, instruction):
        match instruction:
            case RecordFacts(facts):
                self.record(*facts)
                self.arrives |= isinstance(facts[-1].data, catalog.PathWaiting | catalog.PathCompleted)
            case EvaluateConditions(path, step, conditions):
                for text, target in conditions:
                    self.record(Fact(catalog.ConditionEvaluated(text, target, self.rng.random() < 0.6), path, step))
            case RunStep(path, step, visit, first=first):
                call = f"{path}/{step}/{visit}"
                self.waited_for[call] = self.latest
                heapq.heappush(self.running, (self.moment + self.rng.randint(1, 10**9), path, step, call))
                self.record(*first, Fact(catalog.StepStarted("script", None, visit), path, step))
                self.record(Fact(begins(call), path, step))

    def run(self):
        self.record(Fact(START[2]), decide_start(self.definition))
        while not self.state.is_over:
            busy = {path for _, path, _, _ in self.running}
            idle = [path.id for path in self.state.active_paths() if path.id not in busy and path.phase != JOINING]
            if idle:
                self.carry_out(decide_path(self.definition, self.state, idle[0]))
            elif self.arrives:
                self.arrives = False
                self.record(*(fact for joined in decide_joins(self.definition, self.state) for fact in joined.facts))
            elif self.running:
                self.moment, path, step, self.latest = heapq.heappop(self.running)
                self.record(Fact(ends(self.latest), path, step), Fact(catalog.StepCompleted("1"), path, step))
            else:
                self.record(*decide_end(self.definition, self.state).facts)
        return self.log

    def calls(self):
        """Return the calls that the end waited for. Each begins at the moment at which the one before it ends."""
        calls = [self.latest]
        while self.waited_for[calls[0]] is not None:
            calls.insert(0, self.waited_for[calls[0]])
        return calls


@pytest.mark.parametrize("seed", range(60))
def test_at_every_join_it_goes_on_with_the_path_that_released_it(seed):
    simulation = Simulation(random.Random(seed))
    log = simulation.run()
    assert [part.operation_id for part in critical_path(log)] == simulation.calls()
    assert fills(log)
