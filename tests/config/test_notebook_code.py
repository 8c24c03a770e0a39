"""Which code cells of a notebook define something, and which of the others those need."""

import pytest

from divebook.config.loader import cells_to_run, defining_cells

STEP = "@step\ndef double(n):\n    return n * FACTOR"


def run_of(*cells):
    return cells_to_run(dict(enumerate(cells, 1)))


@pytest.mark.parametrize(
    "source",
    [
        STEP,
        "@divebook.workflow(name='w')\nasync def w(ctx): ...",
        "class Steps:\n    x = 1\n@action\ndef pay(): ...",
        "flow = Workflow('w', steps)",
        "if True:\n    environment = divebook.Environment(store='memory:')",
        "double = step(len)",
        "%%time\nagent = Agent('a')",
        "runs = %dive runs\nflow = Workflow('w', steps)",
        "Workflow?\n!pip list\nflow = Workflow('w', steps)",
    ],
)
def test_what_makes_workflows_agents_and_calls_defines(source):
    assert defining_cells({1: source}) == [1]


@pytest.mark.parametrize(
    "source",
    [
        "",
        "workflow = 1",
        "%%dive workflow w\nSteps: []",
        "%%bash\nWorkflow()",
        "def later():\n    return Workflow('w', [])",
        "run = %dive run w",
        "print('@workflow')",
        "Workflow('w'",
        "x = 'a' 'b' c",
    ],
)
def test_other_cells_do_not_define(source):
    assert defining_cells({1: source}) == []
    assert run_of(source) == []


def test_cells_that_give_names_are_needed_by_those_that_use_them():
    assert run_of("import math", "print(1)", "FACTOR = math.pi", "rest = 1 / 0", STEP) == [1, 3, 5]


def test_a_name_that_is_bound_twice_needs_both_cells():
    assert run_of("FACTOR = 1", STEP, "FACTOR = 2") == [1, 2, 3]


def test_a_star_import_may_give_any_name():
    assert run_of("from math import *", "1 / 0", STEP) == [1, 3]


def test_extensions_are_loaded_where_magics_are_used():
    assert run_of("%load_ext divebook", STEP) == [2]
    assert run_of("%load_ext sql", "FACTOR = %sql select 1", STEP) == [1, 2, 3]


def test_cells_that_need_each_other_are_chosen_once():
    assert run_of("a = b", "b = a", "flow = Workflow('w', a)") == [1, 2, 3]
