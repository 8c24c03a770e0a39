"""Every numeric setting names its key, its place and its range for a value out of range, in YAML and in Python.

The keys come from the tables that read definitions, so that a new key is in this test without a line here.
"""

import json
import math
from decimal import Decimal
from typing import Annotated, get_args, get_origin, get_type_hints

import pytest
import typer

from divebook import Each, Retry, Step, Workflow, tool
from divebook.cli.main import app
from divebook.cli.options import number_option, number_parser
from divebook.commands.command import option as option_of_command
from divebook.definitions import table as kinds
from divebook.definitions.definition import Definitions
from divebook.definitions.functions import step
from divebook.definitions.pipelines import AgentStage, EdgeLimit, PipelineConfig
from divebook.definitions.reader import read_definitions
from divebook.definitions.schema import TABLES
from divebook.definitions.step import Ask
from divebook.definitions.table import Many, One
from divebook.definitions.table import ranges as ranges_of
from divebook.errors import BoundsError, DefinitionError
from divebook.questions import bounds
from divebook.questions.bounds import Bounds
from divebook.steps.actions import Action
from divebook.text import ranges
from divebook.text.arguments import DURATION_FORMS
from divebook.text.ranges import MOST_SECONDS, NumberRange


def _paths():
    """Return each table with the keys that lead to it from the top of a file."""
    top = next(table for table in TABLES.values() if table.definition is Definitions)
    paths, queue = {top.label: ()}, [top]
    for table in queue:
        for key in table.keys:
            if isinstance(key.kind, One | Many) and key.kind.table.label not in paths:
                paths[key.kind.table.label] = (*paths[table.label], key)
                queue.append(key.kind.table)
    return paths


PATHS = _paths()
NUMERIC = [
    (label, key)
    for label in PATHS
    for key in TABLES[label].keys
    if hasattr(key.kind, "range") and not key.ignored  # kinds.Number, kinds.Seconds, kinds.Duration
]


def _written(label, name, value):
    """Return a file in YAML whose only fault is the value of one key."""

    def mapping(table, entry):
        needed = [key for key in table.keys if key.required and key.name != entry[0] and key.example]
        needed = {key.name: json.dumps(key.example) if "$" in key.example else key.example for key in needed} | {
            entry[0]: entry[1]
        }
        return "{" + ", ".join(f"{key}: {text}" for key, text in needed.items()) + "}"

    text = mapping(TABLES[label], (name, value))
    for key in reversed(PATHS[label]):
        holder = next(each for each in TABLES.values() if key in each.keys)
        text = mapping(holder, (key.name, f"[{text}]" if isinstance(key.kind, Many) else text))
    return text


def _id(value):
    return f"{value!r:.12}" if type(value) is not int else "int"


BEYOND = ["1e999999", "-1e999999", ".inf", "-.inf", ".nan", "1e300", "1" + "0" * 400, "true", "[1]", "{a: 1}"]


@pytest.mark.parametrize("value", [*BEYOND, "1" + "0" * 5000], ids=lambda text: text[:12])
@pytest.mark.parametrize(("label", "key"), NUMERIC, ids=lambda part: getattr(part, "name", part))
def test_a_number_in_yaml_that_is_out_of_range_is_an_error_with_its_key_and_range(label, key, value):
    with pytest.raises(DefinitionError) as raised:
        read_definitions(_written(label, key.name, value))
    problems = raised.value.problems
    if len(value) > 4000 and "digits" in str(raised.value):
        assert all(problem.line for problem in problems)
        return
    problem = next(problem for problem in problems if problem.place[-1:] == (key.name,) or problem.key == key.name)
    assert problem.line == 1
    assert key.name in problem.message
    allowed = key.kind.range
    # The error about a value that is not a number names the forms of durations.
    expected = [str(allowed), "template", *([DURATION_FORMS] if allowed.unit else [])]
    assert any(text in f"{problem.message} {problem.hint}" for text in expected)


NEEDED = {
    "step": {"Name": "s", "Script": "1"},
    "MCP server": {"Name": "s", "Type": "stdio", "Command": "run"},
    "content entry": {"Text": "x"},
    "workflow": {"Steps": [{"Name": "s", "Script": "1"}]},
    "pipeline": {"Stages": [{"Name": "a"}]},
}
EMPTY = [
    (label, key, value)
    for label in PATHS
    for key in TABLES[label].keys
    for kind, value in (
        *((kind, 0) for kind in (kinds.Number, kinds.Seconds, kinds.Duration)),
        *((Many, []), (kinds.Texts, []), (kinds.Flag, False)),
    )
    if isinstance(key.kind, kind) and not key.ignored
]


@pytest.mark.parametrize(("label", "key", "value"), EMPTY, ids=lambda part: getattr(part, "name", part))
def test_zero_false_and_an_empty_list_in_a_file_are_values_and_not_the_default(label, key, value):
    table = TABLES[label]
    needed = {each.name: each.example or "x" for each in table.keys if each.required or each.name == "Name"}
    needed |= NEEDED.get(label, {})
    reading = kinds.Reading()
    definition = table.read(kinds.nodes_of({**needed, key.name: value}), (), reading)
    if reading.errors:
        # The value may be refused, such as a workflow without steps. A number is refused only outside of its range.
        assert {problem.key for problem in reading.errors} == {key.name}
        assert not hasattr(key.kind, "range") or not key.kind.range.fits(value)
        return
    field = getattr(definition, key.field)
    assert (list(field) if isinstance(field, tuple) else field) == value


def _limits(allowed):
    outside = [] if allowed.least is None else [allowed.least - 1]
    outside += [allowed.least] if allowed.excludes_least else []
    return [*outside, allowed.most * 2, math.nan, math.inf, -math.inf, True, 10**5000, Decimal("1e999999"), [1]]


@pytest.mark.parametrize("label", [label for label in PATHS if ranges_of(TABLES[label].definition)])
def test_a_number_in_python_that_is_out_of_range_is_an_error_with_its_key_and_range(label):
    definition = TABLES[label].definition
    for name, (key, allowed, _) in ranges_of(definition).items():
        for value in _limits(allowed):
            with pytest.raises(DefinitionError) as raised:
                _made(definition, name, value)
            assert any(key in problem.message for problem in raised.value.problems), (name, value)


TABLES_OF = {table.definition: table for table in TABLES.values()}
KINDS_OF_STEPS = {"seconds": {"type": "wait"}, "timeout": {"script": "1"}}


def _made(definition, name, value):
    """Make a definition with one number, and what checks it where that is not its constructor."""
    if definition is Step:
        return Workflow(
            "w", [Step("a", **({"type": "wait"} if name == "seconds" else {"script": "1"}), **{name: value})]
        )
    if definition is Each:
        return Workflow("w", [Step("a", script="1", each=Each([1], **{name: value}))])
    if definition is AgentStage:
        return PipelineConfig("p", [AgentStage("a", **{name: value})])
    if definition is EdgeLimit:
        return PipelineConfig("p", [AgentStage("a")], edge_limits=[EdgeLimit("a", "a", **{name: value})])
    needed = {Ask: ("Which?",), Retry: (), PipelineConfig: ("p",)}.get(definition)
    if needed is None:
        hints = get_type_hints(definition)
        needed = ("app",) if "name" in hints else ()
    return definition(*needed, **{name: value})


NUMBERS_OF_BOUNDS = [key for key in bounds.KEYS if key not in ("Edges", "OnExhausted")]


@pytest.mark.parametrize("value", BEYOND, ids=lambda text: text[:12])
@pytest.mark.parametrize("key", NUMBERS_OF_BOUNDS)
def test_a_bound_in_yaml_that_is_out_of_range_is_an_error_with_its_key(key, value):
    with pytest.raises(DefinitionError) as raised:
        read_definitions(f"Workflows: [{{Name: w, Bounds: {{{key}: {value}}}, Steps: [{{Name: a, Script: '1'}}]}}]")
    assert any(key in problem.message and problem.line == 1 for problem in raised.value.problems)


AMOUNTS = ["1e999999", "-1", "nan", "inf", "1e16", "1e-999999", "1e-10", math.nan, math.inf, True, 10**5000, -1, 1e16]


@pytest.mark.parametrize(
    "value",
    [*AMOUNTS, Decimal("1e-999999"), Decimal("sNaN"), [1]],
    ids=_id,
)
@pytest.mark.parametrize("key", NUMBERS_OF_BOUNDS)
def test_a_bound_in_python_that_is_out_of_range_is_an_error_with_its_key(key, value):
    with pytest.raises(BoundsError, match=key):
        Bounds.read({key: value})


def test_costs_within_the_range_are_exact():
    for cost in ("0", "0.000000001", "1000000000000000", "2.50"):
        assert Bounds.read({"max_cost": cost}).max_cost == Decimal(cost)
    assert Bounds.read({"edges": {"a->b": 2**63 - 1}}).edges == {"a->b": 2**63 - 1}
    with pytest.raises(BoundsError, match="a->b"):
        Bounds.read({"edges": {"a->b": 2**63}})


PYTHON_OPTIONS = {
    "the timeout of an action": lambda value: Action("a", print, timeout=value),
    "the timeout of a function": lambda value: step("wait", timeout=value)(lambda: None),
    "the timeout of a tool": lambda value: tool(timeout=value)(_nothing),
    "most of a tool": lambda value: tool(most=value)(_nothing),
    "limit of a tool": lambda value: tool(limit=value)(_nothing),
    "concurrency of a tool": lambda value: tool(concurrency=value)(_nothing),
}


def _nothing():
    """Do nothing."""


@pytest.mark.parametrize(
    "value",
    ["soon", True, False, math.nan, math.inf, -1, [1], {"s": 1}, b"1", 1j, 10**5000, 1e300],
    ids=_id,
)
@pytest.mark.parametrize("option", PYTHON_OPTIONS)
def test_an_option_of_a_function_that_is_out_of_range_is_an_error(option, value):
    with pytest.raises(DefinitionError, match=r"must be (a number of seconds|an integer)"):
        PYTHON_OPTIONS[option](value)


def test_limits_of_the_ranges_themselves_are_taken():
    assert Retry(seconds=MOST_SECONDS, max_seconds=0, factor=1e9, attempts=2**63 - 1).delay(10**6) == 0
    assert Retry(seconds=1, max_seconds=60, factor=1e9).delay(1000) == 60
    assert Ask("Which?", expires_in="36525d").expires_in == MOST_SECONDS
    assert [ranges.COUNT.fits(value) for value in (0, 1, 1.0, 2.5, "2")] == [False, True, False, False, False]
    assert ranges.SECONDS.fits(0)
    assert not ranges.SOME_SECONDS.fits(0)


def _numeric_options(commands, prefix=""):
    """Return all options of commands that take numbers, with their command."""
    for command in commands.registered_commands:
        for name, hint in get_type_hints(command.callback, include_extras=True).items():
            declared, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
            if {declared, *get_args(declared)} & {int, float} and name != "return":
                yield f"{prefix}{command.name} --{name}", notes
    for group in commands.registered_groups:
        yield from _numeric_options(group.typer_instance, f"{prefix}{group.typer_instance.info.name} ")


def test_every_numeric_option_of_a_command_has_a_range():
    from divebook.cli.dev_env import app as dev_env

    options = dict([*_numeric_options(app), *_numeric_options(dev_env)])
    assert len(options) > 20
    checks = {
        number_option("--n", allowed=NumberRange(), help="A number.").callback.__code__,
        number_parser(option_of_command("--n", allowed=NumberRange(), help="A number.")).__code__,
    }
    for option, notes in options.items():
        functions = [getattr(notes[0], name, None) for name in ("callback", "parser")] if notes else []
        assert checks & {getattr(function, "__code__", None) for function in functions}, option


@pytest.mark.parametrize("value", [10**30, math.nan, math.inf, -1, 1e300])
def test_an_option_out_of_range_is_a_usage_error(value):
    with pytest.raises(typer.BadParameter, match="it must be a number of seconds from 0 to 3,155,760,000, not"):
        number_option("--seconds", allowed=ranges.SECONDS, help="A time.").callback(value)


def test_every_kind_of_number_has_a_range():
    assert {type(key.kind) for _, key in NUMERIC} == {kinds.Number, kinds.Seconds, kinds.Duration}
