"""Who looks at a widget."""

from divebook.widgets.publisher import SILENCE, Audience


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_views_are_there_until_they_leave():
    audience = Audience(Clock())
    assert not audience
    assert audience.record_view("one")
    assert not audience.record_view("one")
    audience.record_view("two")
    audience.leave("one")
    assert audience
    audience.leave("two")
    audience.leave("never there")
    assert not audience


def test_views_that_are_silent_for_long_are_forgotten():
    clock = Clock()
    audience = Audience(clock)
    audience.record_view("silent")
    clock.now += SILENCE / 2
    audience.record_view("there")
    audience.expire()
    clock.now += SILENCE / 2 + 1
    audience.expire()
    assert audience.record_view("silent")
    assert not audience.record_view("there")
