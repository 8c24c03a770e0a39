"""Whether a value is what a rule says: stars, exact values, and the ways in which a value could be meant."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from divebook.engine.approvals import exactly, is_allowed_by, is_met_by


def test_a_value_with_a_star_stands_for_itself_where_it_is_said_exactly() -> None:
    for value in ("*.py", "**", {"equals": 1}, {"equals": "*"}, "a", 1, True, None, ["*"], {"path": "*"}):
        assert is_allowed_by(exactly(value), value)
        for other in ("a.py", 1.0, "1", False, 0, ["a"], {"path": "a"}, "", {}):
            assert is_allowed_by(exactly(value), other) is (type(value) is type(other) and value == other)
        assert is_met_by(exactly(value), value)


def plainly_globbed(pattern: str, text: str) -> bool:
    """Return whether a text is what a pattern says, in the plainest way."""
    if not pattern:
        return not text
    if pattern.startswith("**"):
        return any(plainly_globbed(pattern[2:], text[at:]) for at in range(len(text) + 1))
    if pattern[0] == "*":
        most = text.index("/") if "/" in text else len(text)
        return any(plainly_globbed(pattern[1:], text[at:]) for at in range(most + 1))
    return text[:1] == pattern[0] and plainly_globbed(pattern[1:], text[1:])


@given(st.text("ab/*", max_size=7), st.text("ab/", max_size=8))
def test_stars_mean_what_they_say(pattern: str, text: str) -> None:
    assert is_allowed_by(pattern, text) is plainly_globbed(pattern, text)
    if plainly_globbed(pattern, text):
        assert is_met_by(pattern, text), "a rule that denies is never narrower than one that allows"


@given(st.text(max_size=12), st.text(max_size=12))
def test_a_rule_that_denies_is_never_narrower(wanted: str, value: str) -> None:
    for pattern in (wanted, f"{wanted}*", f"**{wanted}"):
        for text in (value, wanted, wanted + value):
            assert is_met_by(pattern, text) or not is_allowed_by(pattern, text)


def test_a_pattern_with_many_stars_is_quick() -> None:
    assert not is_allowed_by("*a" * 40, "a" * 2_000 + "b")
    assert not is_met_by("*a" * 40 + "c", "a" * 2_000 + "b")


def test_an_address_is_denied_however_its_host_is_written() -> None:
    for address in (
        "https://evil.com/a/b",
        "HTTPS://EVIL.com/a",
        "https://user:word@evil.com/a",
        "https://evil.com:443/a",
        "https://evil.com./a",
        "https:\\\\evil.com\\a",
        "https://evil%2ecom/a",
        " https://evil.com/x/../a ",
    ):
        assert is_met_by("https://evil.com/**", address), address
    assert not is_met_by("https://evil.com/**", "https://good.com/https://evil.com/")


def test_a_rule_that_denies_takes_values_as_they_could_be_meant() -> None:
    met = ((5, "5"), ("5", 5.0), (True, "Yes"), (False, 0), ({"force": True}, {"force": True, "more": 1}))
    for wanted, value in (*met, ("/etc/*", ["a", "/etc/b"]), (["a"], ["b", "a"]), (None, None), ("rm *", "RM\t-rf")):
        assert is_met_by(wanted, value), (wanted, value)
    for wanted, value in ((True, "never"), (None, ""), ("a", None), ({"force": True}, {}), ("rm *", "farm x")):
        assert not is_met_by(wanted, value), (wanted, value)
