"""Persistent mappings: immutables, and the one in Python that replaces it where it has no wheel."""

import copy
import pickle
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divebook.engine.maps import Map, PersistentMap

ROOT = Path(__file__).parents[2]
KINDS = [Map, PersistentMap]


class Same:
    """Keys with equal hashes."""

    def __init__(self, name):
        self.name = name

    def __hash__(self):
        return 7

    def __eq__(self, other):
        return isinstance(other, Same) and self.name == other.name

    def __repr__(self):
        return f"Same({self.name})"


KEYS = st.one_of(st.integers(-3, 200), st.text(max_size=2), st.none(), st.builds(Same, st.integers(0, 60)))
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, st.integers()),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.just("update"), st.dictionaries(KEYS, st.integers(), max_size=50)),
    ),
    max_size=40,
)


def is_equal(mapping, model):
    assert len(mapping) == len(model)
    assert dict(mapping.items()) == model
    assert set(mapping) == set(mapping.keys()) == set(model)
    assert sorted(mapping.values()) == sorted(model.values())
    for key, value in model.items():
        assert key in mapping
        assert mapping[key] == mapping.get(key) == value
    return True


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(start=st.dictionaries(KEYS, st.integers(), max_size=120), changes=CHANGES)
def test_changes_give_the_entries_of_a_dict_and_leave_the_former_mapping_as_it_was(kind, start, changes):
    mapping, model = kind(start), dict(start)
    former = []
    for change, *arguments in changes:
        former.append((mapping, dict(model)))
        if change == "set":
            mapping = mapping.set(*arguments)
            model[arguments[0]] = arguments[1]
        elif change == "update":
            mapping = mapping.update(*arguments)
            model.update(*arguments)
        elif arguments[0] in model:
            mapping = mapping.delete(*arguments)
            del model[arguments[0]]
        else:
            with pytest.raises(KeyError):
                mapping.delete(*arguments)
    assert is_equal(mapping, model)
    assert all(is_equal(*each) for each in former)
    assert mapping == kind(model)
    assert hash(mapping) == hash(kind(model))


@pytest.mark.parametrize("kind", KINDS)
def test_a_mapping_grows_to_thousands_and_shrinks_to_none(kind):
    mapping = kind()
    for number in range(5000):
        mapping = mapping.set(number * 64, number)  # multiples, so that the lowest bits are equal
    assert is_equal(mapping, {number * 64: number for number in range(5000)})
    for number in range(5000):
        mapping = mapping.delete(number * 64)
    assert (len(mapping), bool(mapping), mapping == kind()) == (0, False, True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mapping_is_made_of_names_pairs_and_other_mappings(kind):
    assert kind(a=1) == kind({"a": 1}) == kind([("a", 1)]) == kind(kind(a=1))
    assert kind(a=1).update({"b": 2}, c=3) == kind(a=1, b=2, c=3)
    assert kind(a=1).update([("b", 2)]) == kind(a=1, b=2)
    assert kind(a=1) != {"a": 1}
    assert kind(a=1) != kind(a=2)
    assert isinstance(kind(), Mapping)
    assert kind(a=1).get("b") is None
    assert kind(a=1).get("b", 5) == 5
    with pytest.raises(KeyError):
        kind(a=1)["b"]


@pytest.mark.parametrize("kind", KINDS)
def test_setting_the_same_object_returns_the_same_mapping(kind):
    value = object()
    mapping = kind(a=value)
    assert mapping.set("a", value) is mapping
    assert mapping.set("a", object()) is not mapping


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [2, 200])
def test_a_mapping_is_pickled_and_copied(kind, size):
    mapping = kind({str(number): number for number in range(size)})
    assert pickle.loads(pickle.dumps(mapping)) == copy.deepcopy(mapping) == mapping


def test_a_key_with_an_unusable_hash_is_refused():
    for kind in KINDS:
        with pytest.raises(TypeError, match="unhashable"):
            kind().set([], 1)


def test_a_large_mapping_shares_its_structure():
    mapping = PersistentMap({number: number for number in range(10_000)})
    changed = mapping.set(5, "five")
    assert sum(one is not other for one, other in zip(mapping._root, changed._root, strict=True)) == 1


HIDDEN = """
import sys
sys.modules["immutables"] = None  # importing it raises ImportError, as where it is not installed
import pytest
from divebook.engine.maps import Map, PersistentMap
assert Map is PersistentMap
sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *sys.argv[1:]]))
"""


@pytest.mark.timeout(400)
def test_the_engine_works_without_immutables():
    """Folds, checkpoints, forks and executions of the suite, in a process in which immutables is missing."""
    files = [
        *("tests/engine/test_evolve.py", "tests/engine/test_checkpoint.py", "tests/engine/test_forked.py"),
        "tests/runtime/test_forks.py",
    ]
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN, *files], cwd=ROOT, capture_output=True, text=True, timeout=380, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]


def test_immutables_is_required_only_where_it_has_wheels():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [each for each in project["dependencies"] if each.startswith("immutables")] == [
        "immutables>=0.21; python_version < '3.14'"
    ]
