"""Errors whose causes form a cycle, as `raise error from error` makes one."""

from divebook.errors import FencedError, StoreError
from divebook.runtime.errors import fault_of, frames_of, place_of, trace_of


def test_causes_in_a_cycle_are_followed_once():
    error, other = FencedError("exec_1", 1, 2), StoreError("cannot be written")
    error.__cause__ = error
    other.__cause__, looped = StoreError("again"), StoreError("and again")
    other.__cause__.__cause__ = looped
    looped.__cause__ = other
    for each in (error, other):
        assert place_of(each) is None
        assert frames_of(each) == []
        assert trace_of(each) is None
        assert fault_of(each).message
