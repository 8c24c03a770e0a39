"""Scripts that set and delete variables: recorded as mutations, once, and only where the script succeeds."""

import pytest

from divebook import Each, Environment, Step, Workflow
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment


def run(*scripts, **settings):
    steps = [Step(f"s{number}", script=script) for number, script in enumerate(scripts)]
    return environment(Workflow("w", steps), **settings).start("w").wait(20)


def mutations(execution):
    return [m.to_data() for e in execution.history() if e.event_type == "state_mutated" for m in e.data.mutations]


def test_what_a_script_sets_and_deletes_is_in_the_log_and_seen_by_later_steps():
    execution = run(
        "state.set('a', 1)\nstate.set( 'b', [state.a, 2])", "state.delete('a')\nstate.set('c', state.get('b'))"
    )
    assert execution.variables == {"b": [1, 2], "c": [1, 2]}
    assert mutations(execution) == [
        {"type": "set", "key": "a", "value": 1},
        {"type": "set", "key": "b", "value": [1, 2]},
        {"type": "delete", "key": "a"},
        {"type": "set", "key": "c", "value": [1, 2]},
    ]


@pytest.mark.parametrize(
    ("script", "variables"),
    [
        ("for n in range(3):\n    state.set(f'v{n}', n)", {"v0": 0, "v1": 1, "v2": 2}),
        ("state.set('s', {'k': 1}); state.s['k'] + 1", {"s": {"k": 1}}),
        ("state.set('t', (1, 2))\nf'{state.get(\"t\")}'", {"t": [1, 2]}),
        ("f\"{state.set('u', 1)}\"", {"u": 1}),
        ("state.delete('missing')", {}),
        ("state.set ('w',\n 1)", {"w": 1}),
        ("state.set(value=2, key='x')", {"x": 2}),
    ],
)
def test_calls_may_stand_anywhere(script, variables):
    execution = run(script)
    assert (execution.error, execution.variables) == (None, variables)


def test_a_script_that_fails_changes_nothing():
    execution = run("state.set('a', 1)\n1 // 0")
    assert (execution.status, execution.variables, mutations(execution)) == ("failed", {}, [])


def test_changes_are_made_once_wherever_the_process_stopped():
    execution = run("state.set('n', state.get('n', 0) + 1)", "state.set('n', state.n + 1)")
    assert execution.variables == {"n": 2}
    for length in range(2, execution.state.last_sequence):
        again = Environment(store=cut(execution.store, execution, length)).run_of(execution.id).resume().wait(20)
        assert (again.status, again.variables) == ("completed", {"n": 2})


def test_items_side_by_side_set_variables_of_their_own():
    made = Workflow("w", [Step("s", script="state.set(f'v{n}', n)", each=Each([1, 2, 3], as_="n", parallel=3))])
    assert environment(made).start("w").wait(20).variables == {"v1": 1, "v2": 2, "v3": 3}


def test_a_variable_needs_a_name_and_a_value_that_a_log_can_hold():
    assert "needs the name of a variable" in run("state.set(1, 2)").error
    assert "cannot store state.a[1]: an integer of more than" in run("state.set('a', {1: 10**5000})").error
    execution = run("state.set('a', {1: 2})")
    assert (execution.error, execution.variables) == (None, {"a": {1: 2}})


def test_conditions_and_templates_cannot_change_anything():
    execution = environment(
        Workflow("w", [Step("s", script="1", next=[("t", "state.set('a', 1)")]), Step("t", script="2")])
    )
    assert execution.start("w").wait(20).variables == {}
