"""Whatever is typed, the reader says what is wrong with it or reads it; what it reads, it can write."""

import json
import string
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from divebook.definitions.definition import Definitions, InputDefinition, Workflow
from divebook.definitions.graph import is_name
from divebook.definitions.reader import (
    definitions_from,
    definitions_to_text,
    read_definitions,
    read_workflow,
    workflow_to_mapping,
)
from divebook.definitions.step import Each, Edge, Step
from divebook.errors import DefinitionError

BODIES = st.sampled_from(["file", "workflow", "agent"])
DIALECTS = st.sampled_from(["divebook", "dive"])
KEYS = st.sampled_from(
    [
        "Name",
        "name",
        "Steps",
        "Agents",
        "Workflows",
        "Each",
        "Next",
        "Prompt",
        "Script",
        "Seconds",
        "Config",
        "Context",
        "Items",
        "Parallel",
        "Step",
        "Output",
        "Outputs",
        "Inputs",
        "Default",
        "ModelSettings",
        "MCPServers",
        "Content",
        "ResponseTimeout",
        "Text",
        "Tools",
        "Type",
        "OAuth",
        "Parameters",
        "Provider",
        "End",
        "Condition",
        "RequestHeaders",
        "Env",
        "Store",
        "Join",
    ]
)
ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.sampled_from(["${a}", "$(b)", "wait", "script", "30s", "a"]),
)
DATA = st.recursive(
    ATOMS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=25
)
PARTS = st.lists(st.dictionaries(KEYS, DATA, max_size=5), max_size=3)
FRAMED = st.fixed_dictionaries(
    {},
    optional={
        "Name": st.just("w"),
        "Steps": PARTS,
        "Agents": PARTS,
        "Inputs": PARTS,
        "Output": DATA,
        "MCPServers": PARTS,
    }
    | {"Workflows": st.lists(st.fixed_dictionaries({"Name": st.just("w"), "Steps": PARTS}), max_size=2)},
)
YAML_PIECES = st.sampled_from(
    [
        *string.printable,
        *("\x00", "\x85", "\ufeff", "\ud800", "é", "- ", ": ", "&a ", "*a", "<<: ", "!!str ", "!x ", "? ", "\\u"),
        *("%YAML 1.1\n", "---\n", "...\n", "|\n  ", ">-\n", "'", '"', "{", "}", "[", "]", "Name: ", "Steps:\n  - "),
    ]
)


def calmly(examples):
    """The same examples each time, however slow the machine."""
    slow = [HealthCheck.too_slow]
    return settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=slow)


def reads_or_refuses(text, **options):
    with suppress(DefinitionError):
        read_definitions(text, **options)


@calmly(300)
@given(st.text() | st.lists(YAML_PIECES, max_size=40).map("".join), BODIES, DIALECTS)
@example("%YAML 9\n---\n", "file", "divebook")
@example('"\\U00110000"', "file", "divebook")
@example("%TAG ! x\n---\n", "file", "divebook")
@example("a: !<x> 1", "file", "divebook")
@example("? ", "file", "divebook")
def test_any_text_is_read_or_refused(text, body, dialect):
    reads_or_refuses(text, body=body, dialect=dialect)


@calmly(150)
@given(st.text(alphabet='{}[]",:\\u0 19eE+-.truefalsn\n\tNameStp') | DATA.map(json.dumps), BODIES, DIALECTS)
def test_any_text_is_read_or_refused_as_json(text, body, dialect):
    reads_or_refuses(text, body=body, dialect=dialect, format="json")


@calmly(300)
@given(FRAMED | st.dictionaries(KEYS, DATA, max_size=6), BODIES, DIALECTS)
def test_any_data_is_read_or_refused(data, body, dialect):
    with suppress(DefinitionError):
        definitions_from(data, body=body, dialect=dialect)


NAMES = st.text(alphabet=string.ascii_letters + "äß- _.1:#", min_size=1, max_size=8).filter(str.strip)
TEXTS = st.text(
    alphabet=st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]) | st.just("\n"), min_size=1, max_size=20
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
VARIABLES = st.from_regex(r"[a-zé_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(is_name)
LOOPS = st.none() | st.builds(
    Each, st.lists(JSON, max_size=3) | st.just("$(state.x)"), as_=st.none() | VARIABLES, parallel=st.integers(1, 9)
)


@st.composite
def workflows(draw):
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    edges = st.lists(st.builds(Edge, st.sampled_from(names), st.none() | TEXTS), max_size=3)
    kinds = st.one_of(
        st.fixed_dictionaries({"prompt": TEXTS}, optional={"agent": NAMES, "content": st.lists(TEXTS, max_size=2)}),
        st.fixed_dictionaries({"script": TEXTS}),
        st.fixed_dictionaries({"action": NAMES}, optional={"parameters": st.dictionaries(NAMES, JSON, max_size=3)}),
        st.fixed_dictionaries({"seconds": st.floats(0, 1e9) | st.integers(0, 9) | st.just("${inputs.x}")}),
    )
    common = st.fixed_dictionaries(
        {}, optional={"store": VARIABLES, "each": LOOPS, "join": st.booleans(), "next": edges}
    )
    steps = [Step(name, **draw(kinds), **draw(common)) for name in names]
    inputs = draw(
        st.lists(st.builds(InputDefinition, VARIABLES, default=JSON), max_size=2, unique_by=lambda entry: entry.name)
    )
    return Workflow(draw(NAMES), steps, inputs=inputs, description=draw(TEXTS), continue_on_failure=draw(st.booleans()))


@calmly(150)
@given(workflows())
def test_storing_and_loading_changes_nothing(workflow):
    back = Workflow.from_dict(json.loads(json.dumps(workflow.to_dict())))
    assert back == workflow
    assert back.fingerprint == workflow.fingerprint


@calmly(100)
@given(workflows())
def test_writing_and_reading_changes_nothing(workflow):
    mapping = workflow_to_mapping(workflow)
    assert read_workflow(mapping) == workflow
    assert read_workflow(json.loads(json.dumps(mapping))).fingerprint == workflow.fingerprint


@pytest.mark.parametrize("format", ["yaml", "json"])
@calmly(60)
@given(workflow=workflows())
def test_a_written_text_reads_as_the_same(format, workflow):
    definitions = Definitions(name="e", workflows=(workflow,))
    text = definitions_to_text(definitions, format)
    assert read_definitions(text, format=format) == definitions
