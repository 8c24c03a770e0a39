"""Resources that are made when somebody asks for them: never twice, and never for ever."""

import asyncio

import pytest

from divebook.workspaces.resources import ResourceRegistry


class Held:
    def __init__(self, *parts):
        self.parts = parts

    def close(self):
        return None


def registry(needs):
    """Return resources each of which is made of others, by key."""
    made = ResourceRegistry()
    made.bind(object())

    def factory(key):
        async def make(_workspace):
            return Held(*await asyncio.gather(*(made.get_or_create(other) for other in needs[key])))

        return make

    for key in needs:
        made.register_factory(key, factory(key))
    return made


async def asked(made, *keys):
    return await asyncio.wait_for(asyncio.gather(*map(made.get_or_create, keys)), 5)


def test_what_several_are_made_of_is_made_once():
    made = registry({"page": ["browser"], "other": ["page", "browser"], "browser": []})
    page, other = asyncio.run(asked(made, "page", "other"))
    assert other.parts == (page, *page.parts)


@pytest.mark.parametrize(
    ("needs", "keys"),
    [
        ({"a": ["a"]}, ["a"]),
        ({"a": ["b"], "b": ["a"]}, ["a"]),
        ({"a": ["b"], "b": ["a"]}, ["a", "b"]),
        ({"a": ["x", "b"], "x": [], "b": ["c"], "c": ["a"]}, ["c", "b"]),
    ],
    ids=["its own", "each other", "each other at once", "three"],
)
def test_factories_that_wait_for_each_other_are_refused(needs, keys):
    with pytest.raises(RuntimeError, match=r"wait for each other \('.' -> .*'\); remove one of these dependencies"):
        asyncio.run(asked(registry(needs), *keys))


def test_a_factory_that_was_refused_works_once_it_asks_no_more():
    needs = {"a": ["a"]}
    made = registry(needs)

    async def twice():
        with pytest.raises(RuntimeError, match="'a' -> 'a'"):
            await asked(made, "a")
        needs["a"] = []
        return await asked(made, "a")

    assert isinstance(asyncio.run(twice())[0], Held)


@pytest.mark.parametrize("saved", [3, {"entries": [1]}, {"entries": {"a": "count"}}], ids=str)
def test_a_saved_state_of_another_form_is_refused(saved):
    with pytest.raises(TypeError, match=r"pass the result of export_state\(\)"):
        ResourceRegistry().pend(saved)
