"""Templates: the schema, what they inherit, and the names that are filled in."""

from __future__ import annotations

from pathlib import Path

import pytest

from divebook.devenv.templates import at_start, check, checked_name, filled, merged, parsed, resolved
from divebook.errors import DevEnvError, TemplateNotFoundError

NATIVE = {"name": "a", "isolation_type": "native", "native": {"working_dir": "."}}


@pytest.mark.parametrize("name", ["", ".a", "a..b", "a/b", "a b", "a;b", "x" * 64, "a\n"])
def test_a_name_that_could_lead_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(DevEnvError, match="is not allowed"):
        checked_name(name, "environment")


def test_what_the_schema_does_not_know_is_told_with_its_place_and_the_nearest_key() -> None:
    with pytest.raises(DevEnvError, match=r"native: .*'working_dirr'.*did you mean 'working_dir'"):
        check({**NATIVE, "native": {"working_dir": ".", "working_dirr": "."}}, "a")


def test_a_section_that_the_isolation_needs_must_be_there() -> None:
    with pytest.raises(DevEnvError, match="'docker' is a required property"):
        check({**NATIVE, "isolation_type": "docker"}, "a")


def test_a_text_that_is_no_json_is_refused_with_line_and_column() -> None:
    with pytest.raises(DevEnvError, match="line 2, column 1"):
        parsed("{\n", "a")


FIELDS = {
    "description is the child's own": ({"description": "p"}, {}, {}),
    "isolation_type is inherited": ({"isolation_type": "native"}, {}, {"isolation_type": "native"}),
    "env per key, null takes away": (
        {"docker": {"env": {"A": "1", "B": "2"}}},
        {"docker": {"env": {"A": None, "C": "3"}}},
        {"docker": {"env": {"B": "2", "C": "3"}}},
    ),
    "ports by the container's": (
        {"docker": {"ports": ["8080:80", "9000:90/udp"]}},
        {"docker": {"ports": ["127.0.0.1:8081:80/tcp", "9001:90"]}},
        {"docker": {"ports": ["127.0.0.1:8081:80/tcp", "9000:90/udp", "9001:90"]}},
    ),
    "volumes by target": (
        {"docker": {"volumes": ["/a:/work:ro"]}},
        {"docker": {"volumes": ["/b:/work", "/c:/d"]}},
        {"docker": {"volumes": ["/b:/work", "/c:/d"]}},
    ),
    "packages by project": (
        {"virtualenv": {"packages": ["My_Pkg>=1", "b"]}},
        {"virtualenv": {"packages": ["my-pkg==2"]}},
        {"virtualenv": {"packages": ["my-pkg==2", "b"]}},
    ),
    "init of the parent first": (
        {"native": {"init": ["a"]}},
        {"native": {"init": ["b"]}},
        {"native": {"init": ["a", "b"]}},
    ),
    "command is replaced": (
        {"docker": {"command": ["a"]}},
        {"docker": {"command": ["b"]}},
        {"docker": {"command": ["b"]}},
    ),
    "tags are a union": ({"tags": ["a", "b"]}, {"tags": ["b", "c"]}, {"tags": ["a", "b", "c"]}),
    "tools are a union": (
        {"tools": {"editors": ["a"]}},
        {"tools": {"editors": ["b"]}},
        {"tools": {"editors": ["a", "b"]}},
    ),
    "limits per key": (
        {"resource_limits": {"cpu": "1", "disk": "1g"}},
        {"resource_limits": {"cpu": "2"}},
        {"resource_limits": {"cpu": "2", "disk": "1g"}},
    ),
    "$replace drops what was inherited": (
        {"native": {"init": ["a"]}},
        {"native": {"init": {"$replace": ["b"]}}},
        {"native": {"init": ["b"]}},
    ),
}


@pytest.mark.parametrize(("parent", "child", "expected"), FIELDS.values(), ids=FIELDS)
def test_each_field_is_inherited_by_its_rule(parent: dict, child: dict, expected: dict) -> None:
    assert merged(parent, child) == expected


def _find(templates: dict) -> object:
    def find(name: str) -> dict:
        if name not in templates:
            raise TemplateNotFoundError(name)
        return templates[name]

    return find


def test_a_chain_merges_from_its_root_down_and_names_its_parents() -> None:
    templates = {
        "c": {"name": "c", "extends": "b", "native": {"init": ["3"]}},
        "b": {"name": "b", "extends": "a", "native": {"init": ["2"]}},
        "a": {"name": "a", "isolation_type": "native", "native": {"working_dir": ".", "init": ["1"]}},
    }
    found, inherits = resolved("c", _find(templates))
    assert (found["name"], found["native"]["init"], inherits) == ("c", ["1", "2", "3"], ["b", "a"])


@pytest.mark.parametrize("names", ["a", "ab", "abc"])
def test_a_circle_is_told_as_a_chain(names: str) -> None:
    templates = {
        name: {"name": name, "extends": after} for name, after in zip(names, names[1:] + names[0], strict=True)
    }
    with pytest.raises(DevEnvError, match=" -> ".join([*names, "a"])):
        resolved("a", _find(templates))


def test_a_chain_of_more_than_ten_is_refused() -> None:
    templates = {f"t{n}": {"name": f"t{n}", **({"extends": f"t{n + 1}"} if n < 10 else {})} for n in range(11)}
    with pytest.raises(DevEnvError, match="at most 10 templates"):
        resolved("t0", _find(templates))
    assert len(resolved("t1", _find(templates))[1]) == 9


def test_a_parent_that_is_not_there_is_a_template_that_is_not_found() -> None:
    with pytest.raises(TemplateNotFoundError):
        resolved("a", _find({"a": {"name": "a", "extends": "b"}}))


def test_names_are_filled_in_but_for_init_and_what_is_secret(tmp_path: Path) -> None:
    said = {"native": {"env": {"A": "${HOME}/x", "B": "${secret:S}", "C": "$${HOME}"}, "init": ["echo ${HOME}"]}}
    found = filled(said, {"HOME": "/h$"})["native"]
    assert found == {"env": {"A": "/h$$/x", "B": "${secret:S}", "C": "$${HOME}"}, "init": ["echo ${HOME}"]}
    (tmp_path / "S").write_text("kept-5a1b9c\n")
    assert [at_start(text, tmp_path) for text in found["env"].values()] == ["/h$/x", "kept-5a1b9c", "${HOME}"]


def test_an_unknown_name_is_refused_with_its_place() -> None:
    with pytest.raises(DevEnvError, match=r"native\.working_dir: unknown variable \$\{HOMER\}; use one of \$\{HOME\}"):
        filled({"native": {"working_dir": "${HOMER}"}}, {"HOME": "/h"})


@pytest.mark.parametrize(("text", "told"), [("${env:N_}", "set N_"), ("${secret:N_}", "or write the secret into .*N_")])
def test_what_is_not_set_is_refused_when_a_command_runs(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(DevEnvError, match=told):
        at_start(text, tmp_path)
