"""What a back end has to implement, and what both databases share."""

from divebook.store.base import EventStore

MOST_METHODS = 38


def test_a_back_end_implements_few_methods():
    """A method that follows from others belongs into `EventStore`, once, and not into every back end."""
    required = EventStore.__abstractmethods__
    assert len(required) <= MOST_METHODS, f"derive a new method from one of these instead: {sorted(required)}"
