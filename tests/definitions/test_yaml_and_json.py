"""Definition texts as YAML and JSON: scalars, anchors, positions, and texts that are neither."""

import pytest

from divebook.definitions.reader import read_definitions, read_workflow
from divebook.definitions.step import Edge
from tests.definitions.texts import lines_of, steps


def test_scalars_follow_yaml_1_2():
    text = "{a: yes, b: 2020-01-01, c: 1_000, d: 0o17, e: 0x1F, f: 1e3, g: ~, h: 'true', i: True, j: !!str 1, k: 007}"
    step = read_workflow(steps(f"  - {{Name: s, Action: a, Parameters: {text}}}")).first_step
    assert step.parameters == {
        "a": "yes",
        "b": "2020-01-01",
        "c": "1_000",
        "d": 15,
        "e": 31,
        "f": 1000.0,
        "g": None,
        "h": "true",
        "i": True,
        "j": "1",
        "k": 7,
    }


def test_texts_may_be_written_as_numbers_and_truth_values():
    step = read_workflow(steps("  - {Name: 1, Script: 42, Next: [{Step: 1, Condition: true}]}")).first_step
    assert (step.name, step.script, step.edges) == ("1", "42", (Edge("1", "true"),))


def test_a_key_without_a_value_counts_as_absent():
    workflow = read_workflow(
        steps("  - {Name: s, Script: '1', Each: , Store: null, Next: }", "  - {Name: t, Script: '1'}")
    )
    assert workflow.first_step.each is None
    assert workflow.first_step.edges == (Edge("t"),)


def test_next_that_is_an_empty_list_ends_the_path():
    workflow = read_workflow(steps("  - {Name: s, Script: '1', Next: []}", "  - {Name: t, Script: '1'}"))
    assert workflow.first_step.edges == ()


def test_anchors_aliases_and_merges_work():
    workflow = read_workflow(
        steps(
            "  - &base {Name: s, Script: '1', Store: x}", "  - <<: *base", "    Name: t", "  - {<<: [*base], Name: u}"
        )
    )
    assert [(step.name, step.store) for step in workflow.steps] == [("s", "x"), ("t", "x"), ("u", "x")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a:\n\tb: 1",
            "cell:2:1: not valid YAML: found character '\\t' that cannot start any token (indent with spaces",
        ),
        ("Name: [1,", "cell:1:10: not valid YAML"),
        ("Name: a: b", "cell:1:8: not valid YAML: mapping values are not allowed"),
        (
            "Description: " + "1" * 500,
            "cell:1:14: the number has more than 400 digits (write it as a string in quotes)",
        ),
        ("Name: \x00", "cell:1:7: not valid YAML: unacceptable character"),
        ("Name: x\nName: y", "cell:2:1: key 'Name' is given twice (first on line 1)"),
        ("Name: x\n---\nName: y", "cell:2:1: only one YAML document is allowed"),
        ("Name: *x", "cell:1:7: alias *x has no complete anchor &x before it"),
        ("Name: &x [*x]", "cell:1:11: alias *x has no complete anchor &x before it"),
        ("1: x", "cell:1:1: keys must be strings, not 1"),
        ("? [a]\n: x", "cell:1:3: keys must be strings, not a list or mapping"),
        ("Name: !!python/object:os.system x", "unknown YAML tag"),
        ("Name: " + "[" * 70, "nested deeper than 64 levels"),
        ("<<: x", "the value of << must be a mapping or a list of mappings"),
        ('Name: "\\ud83d"', "half a character"),
        ("Name: " + "x" * 2_000_001, "characters, more than 2000000 (split it into files)"),
    ],
)
def test_text_that_is_no_yaml_is_located(text, message):
    assert any(message in line for line in lines_of(text)), lines_of(text)


def test_aliases_cannot_unfold_without_bound():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "more than 200000 values after the expansion of all aliases" in lines_of("\n".join(lines))[0]


def test_an_empty_text_defines_nothing():
    assert read_definitions("").name == ""
    assert read_definitions("# only a remark\n").workflows == ()
    assert read_definitions("", format="json").agents == ()


def test_json_has_positions_too():
    text = '{\n\t"Name": "x",\n\t"Agentz": []\n}'
    assert lines_of(text, format="json") == ["cell:3:2: unknown key 'Agentz' (did you mean 'Agents'?)"]


def test_json_keys_match_in_any_case():
    assert read_definitions('{"NAME": "x", "agents": [{"nAmE": "a"}]}', format="json").agents[0].name == "a"


def test_json_of_the_old_system_may_hold_unknown_keys():
    assert read_definitions('{"name": "x", "other": 1, "name": "y"}', format="json", dialect="dive").name == "y"


def test_json_texts_are_whole_characters():
    assert read_definitions('{"Name": "\\ud83d\\ude00"}', format="json").name == "\N{GRINNING FACE}"
    assert read_definitions('Name: "\\ud83d\\ude00"').name == "\N{GRINNING FACE}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"Name": tru}', "cell:1:10: not valid JSON: expected a value, not 't'"),
        ('{"Name": "x",}', "cell:1:14: not valid JSON: expected a key in double quotes"),
        ('{"Name" "x"}', "cell:1:9: not valid JSON: expected ':' after the key"),
        ('{"Name": "x"} x', "cell:1:15: not valid JSON: unexpected text after the JSON value"),
        ('{"Name": "x"', "cell:1:13: not valid JSON: ',' or '}' expected"),
        ("[1 2]", "cell:1:4: not valid JSON: ',' or ']' expected"),
        ("[" * 80, "nested deeper than 64 levels"),
        ('{"Name": "\\udc00"}', "half a character"),
        ('{"Name": ' + "1" * 500 + "}", "the number has more than 400 digits"),
        ('{"Name": "x", "Name": "y"}', "cell:1:15: key 'Name' is given twice (first on line 1)"),
        (
            '{"Agents": [{"Name": "a", "ResponseTimeout": 1e999}]}',
            "ResponseTimeout must be a number of seconds above 0",
        ),
    ],
)
def test_text_that_is_no_json_is_located(text, message):
    assert any(message in line for line in lines_of(text, format="json")), lines_of(text, format="json")
