"""Which function undoes a call: its own, whatever others are called, in whichever process that is."""

import functools
import types

import pytest

from divebook.definitions.functions import ROLLBACK_FUNCTIONS, find_rollback, step, workflow
from divebook.errors import DefinitionError, NotFoundError
from tests.runtime.worlds import environment


@pytest.fixture(autouse=True)
def only_these(monkeypatch):
    """Let there be no function but those of one test."""
    known = dict(ROLLBACK_FUNCTIONS)
    ROLLBACK_FUNCTIONS.clear()
    yield
    ROLLBACK_FUNCTIONS.clear()
    ROLLBACK_FUNCTIONS.update(known)


def journey(*calls):
    @workflow
    async def trip(ctx):
        for call in calls:
            await call()
        raise ValueError("late")

    return environment(trip)


def test_each_call_is_undone_by_its_own_function_though_they_have_one_name():
    told = []

    def hotel():
        def cancel(result):
            told.append(f"hotel {result}")

        return step(name="hotel", rollback=cancel)(lambda: "h1")

    def flight():
        def cancel(result):
            told.append(f"flight {result}")

        return step(name="flight", rollback=cancel)(lambda: "f1")

    world = journey(hotel(), flight())
    execution = world.start("trip").wait(20)
    assert (execution.state.is_rolled_back, told) == (True, ["flight f1", "hotel h1"])
    assert world.run_of(execution.id).verify().equal


def test_what_one_def_has_made_twice_is_refused_before_anything_is_done():
    told = []

    def booking(what):
        def cancel(result):
            told.append(f"undo {what}")

        @step(rollback=cancel)
        def book():
            told.append(f"book {what}")

        return book

    execution = journey(booking("hotel"), booking("flight")).start("trip").wait(20)
    assert (execution.status, told) == ("failed", [])
    assert "is therefore ambiguous. Define" in execution.state.error


def test_a_method_of_another_object_is_refused_likewise():
    class Hotel:
        def cancel(self, result):
            del result

    first = step(name="first", rollback=Hotel().cancel)(lambda: 1)
    second = step(name="second", rollback=Hotel().cancel)(lambda: 2)
    assert "is therefore ambiguous. Define" in journey(first, second).start("trip").wait(20).state.error


def test_a_cell_that_is_run_again_takes_the_place_of_the_earlier():
    told = []
    cell = "def cancel(result): told.append({!r})\nbook = step(name='book', rollback=cancel)(lambda: 1)"
    names = {"told": told, "step": step, "__name__": "__main__"}
    exec(cell.format("first"), names)
    book = names["book"]
    exec(cell.format("second"), names)
    assert journey(book).start("trip").wait(20).state.is_rolled_back
    assert told == ["second"]


def in_module(name, qualified="cancel"):
    """Return a function as a module of that name would have it."""

    def cancel(result):
        del result

    copied = types.FunctionType(cancel.__code__.replace(co_firstlineno=1), {})
    copied.__module__, copied.__qualname__ = name, qualified
    step(name="book", rollback=copied)(lambda: 1)
    return copied


def test_a_file_that_is_loaded_under_another_name_has_it_too():
    made = in_module("jobs")
    assert find_rollback("__main__:cancel").function is made


def test_an_older_log_has_the_plain_name():
    made = in_module("jobs", "Hotel.cancel")
    assert find_rollback("cancel").function is made


@pytest.mark.parametrize("place", ["cancel", "elsewhere:cancel"])
def test_where_several_could_be_meant_none_is_taken(place):
    in_module("jobs")
    in_module("flights")
    with pytest.raises(NotFoundError, match="is ambiguous: it can be flights:cancel or jobs:cancel"):
        find_rollback(place)


def test_another_function_of_that_name_is_not_taken():
    in_module("jobs", "Hotel.cancel")
    with pytest.raises(NotFoundError, match="function cancel is not defined in this process"):
        find_rollback("jobs:Flight.cancel")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (lambda result: result, "it has no name by which a later process could find it"),
        (functools.partial(print, "x"), "it has no name by which a later process could find it"),
        ("cancel", "rollback must be a function, not 'cancel' (.*without quotes)"),
        (5, "rollback must be a function, not 5"),
    ],
    ids=["lambda", "partial", "text", "number"],
)
def test_what_cannot_be_found_again_is_refused_where_it_is_given(given, told):
    with pytest.raises(DefinitionError, match=told):
        step(name="book", rollback=given)(lambda: 1)
