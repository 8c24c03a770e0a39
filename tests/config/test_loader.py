"""Definition files and folders."""

import pytest

from divebook.config import load, save
from divebook.definitions.reader import read_definitions
from divebook.errors import DefinitionError

ENVIRONMENT = "Name: test-env\nDescription: Test Environment\n"


def folder(tmp_path, **files):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("test.yaml", ENVIRONMENT),
        ("test.yml", ENVIRONMENT),
        ("TEST.YAML", ENVIRONMENT),
        ("test.json", '{"Name":"test-env","Description":"Test Environment"}'),
        ("test.json", '{"name":"test-env","description":"Test Environment"}'),
        ("marked.yaml", "\ufeff" + ENVIRONMENT),
    ],
)
def test_a_file_is_read_by_its_suffix(tmp_path, name, text):
    found = load(folder(tmp_path, **{name: text}) / name)
    assert (found.name, found.description) == ("test-env", "Test Environment")


@pytest.mark.parametrize("name", ["e.yaml", "."])
def test_content_is_read_from_beside_the_definitions(tmp_path, name):
    step = "{Name: s, Prompt: x, Content: [{Path: a.md}, {Document: d}]}"
    files = {"e.yaml": f"Workflows: [{{Name: w, Steps: [{step}]}}]", "a.md": "hello"}
    content = load(folder(tmp_path, **files) / name).workflows[0].first_step.content
    assert content[0].blocks == ({"type": "text", "text": '<file name="a.md">\nhello\n</file>'},)
    assert content[1].blocks is None


def test_an_unknown_suffix_is_refused(tmp_path):
    with pytest.raises(DefinitionError, match=r"unsupported file extension: \.txt"):
        load(folder(tmp_path, **{"test.txt": "test"}) / "test.txt")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DefinitionError, match=r"failed to read file .*nonexistent\.yaml: No such file"):
        load(tmp_path / "nonexistent.yaml")


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "a.yaml").write_bytes(b"Name: \xff")
    with pytest.raises(DefinitionError, match="not UTF-8 at byte 6"):
        load(tmp_path / "a.yaml")


def test_later_files_of_a_folder_win(tmp_path):
    files = {
        "02-override.yaml": "Name: test-env2\nDescription: Override 1\n",
        "01-base.yaml": "Name: test-env\nDescription: Base Environment\n",
        "03-additional.json": '{"Name":"test-env3","Description":"Override 2"}',
        "notes.txt": "not a definition",
    }
    found = load(folder(tmp_path, **files))
    assert (found.name, found.description) == ("test-env3", "Override 2")


def test_a_folder_without_definitions_is_refused(tmp_path):
    with pytest.raises(DefinitionError, match="no yaml or json files found in directory"):
        load(tmp_path)


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(DefinitionError, match="failed to read directory"):
        load(tmp_path / "nonexistent")


def test_subfolders_are_not_looked_into(tmp_path):
    assert load(folder(tmp_path, **{"a.yaml": "Name: a\n", "sub/b.yaml": "Name: b\n"})).name == "a"


def test_problems_of_all_files_are_told_at_once(tmp_path):
    files = {"a.yaml": "Nam: a\n", "b.yaml": "Name: b\n", "c.json": '{"Agentz": 1}'}
    with pytest.raises(DefinitionError) as caught:
        load(folder(tmp_path, **files))
    assert [problem.message for problem in caught.value.problems] == [
        "a.yaml:1:1: unknown key 'Nam'",
        "c.json:1:2: unknown key 'Agentz'",
    ]


def test_the_problem_of_one_file_stands_in_that_file(tmp_path):
    with pytest.raises(DefinitionError, match=r"a\.yaml:2:1: unknown key 'Nam'"):
        load(folder(tmp_path, **{"a.yaml": "Name: a\nNam: a\n", "b.yaml": "Name: b\n"}))


@pytest.mark.parametrize("name", ["saved.yaml", "saved.yml", "saved.json"])
def test_what_is_saved_loads_as_the_same(tmp_path, name):
    definitions = read_definitions(
        """
Name: e
Config: {Durability: full, Providers: [{Name: openai, RequestHeaders: {H: [a, b]}}]}
Agents:
  - {Name: a, ResponseTimeout: 1500ms, ModelSettings: {Temperature: 0.5}}
Workflows:
  - Name: w
    Inputs: [{Name: a, Default: [1, {b: null}], Description: "yes"}]
    Output: {Name: r, Description: "true"}
    Steps:
      - {Name: s, Prompt: "two\\nlines\\n", Next: [{Step: u, Condition: "$(inputs.a)"}]}
      - {Name: t, Type: wait, Seconds: 2, Next: []}
      - {Name: u, Script: "1", Each: {Items: [1], As: i, Parallel: 2}}
      - {Name: v, Script: "True"}
"""
    )
    save(definitions, tmp_path / name)
    assert load(tmp_path / name) == definitions


def test_what_has_no_effect_yet_is_saved_too(tmp_path):
    text = """
Config: {LogLevel: info}
Agents: [{Name: a, ModelSettings: {Features: [x]}, Tools: [fetch]}]
MCPServers: [{Name: m, Type: http, URL: http://localhost, OAuth: {Scopes: [a]}}]
"""
    definitions = read_definitions(text, dialect="dive")
    save(definitions, tmp_path / "old.yaml")
    assert load(tmp_path / "old.yaml", dialect="dive") == definitions


def test_what_follows_by_itself_is_not_saved(tmp_path):
    definitions = read_definitions(
        "Name: e\nWorkflows: [{Name: w, Steps: [{Name: s, Script: a}, {Name: t, Script: b}]}]"
    )
    save(definitions, tmp_path / "e.yaml")
    assert (tmp_path / "e.yaml").read_text() == (
        "Name: e\nWorkflows:\n  - Name: w\n    Steps:\n      - Name: s\n        Type: script\n        Script: a\n"
        "      - Name: t\n        Type: script\n        Script: b\n"
    )


def test_an_unknown_suffix_cannot_be_saved_to(tmp_path):
    with pytest.raises(DefinitionError, match="unsupported file extension"):
        save(read_definitions(""), tmp_path / "e.toml")
    assert list(tmp_path.iterdir()) == []
