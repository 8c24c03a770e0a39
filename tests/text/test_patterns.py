"""Regular expressions of others end within their limits."""

import time
from random import Random

import pytest

from divebook.errors import PatternError
from divebook.text.patterns import MAX_LENGTH, MatchTime, compiled

BACKTRACKING = ["^(a|aa)+$", "^(a+)+$", "^(a*)*$", "^(a|a?)+$", "(a+)+b$", "^(([a-z])+.)+[A-Z]([a-z])+$", "(.*?,){40}P"]
BACKTRACKING += [r"(a+)+\1b$", "(?=(a+)+$)b", "(?:(?:a|aa)+)+$", "(a?){500}a{500}b", "^(?:a{1,100}){1,100}$"]
TOO_LARGE = ["(((a{1000}){1000}){1000})", "a{1000000}", "(?:x{1}){1000000000}", "(?:(?:ab){400}){400}"]
TOO_LARGE += [
    "((?#)a{500}){500}",
    "(?:[a({]{500}){500}",
    r"(?:\({500}){500}",
    "(?:a{ 500 }){500,}",
    "a" * (MAX_LENGTH + 1),
]
REFUSED = [
    "(?R)?a",
    "(a)(?1)",
    "(?P<n>a)(?&n)",
    "(?P<n>a)(?P>n)",
    "(?x)#(\n(a{500}){500}",
    "(?V1)[[a]b]",
    "(",
    "(?<n",
    "a**",
]
REFUSED += ["(" * 2000 + ")" * 2000, "[z-a]", "\\"]


@pytest.mark.parametrize("pattern", TOO_LARGE, ids=lambda pattern: pattern[:20])
def test_a_pattern_that_is_too_large_is_not_compiled(pattern, monkeypatch):
    monkeypatch.setattr("regex.compile", lambda _: pytest.fail("it was compiled"))
    with pytest.raises(PatternError):
        compiled(pattern)


@pytest.mark.parametrize("pattern", REFUSED, ids=lambda pattern: pattern[:20])
def test_a_pattern_that_cannot_be_used_is_refused(pattern):
    with pytest.raises(PatternError, match=r"regular expression|does not support in patterns|nested too deeply"):
        compiled(pattern)


@pytest.mark.parametrize(
    "pattern", ["^[0-9]{4}-[0-9]{2}$", "^.{1,65535}$", "(?<year>[0-9]{4})", r"\p{L}+", r"^\/a\-b$"]
)
def test_ordinary_patterns_and_those_of_other_languages_are_taken(pattern):
    compiled(pattern)


@pytest.mark.parametrize("pattern", BACKTRACKING)
def test_matching_ends_in_time_or_with_the_error_of_its_limit(pattern):
    for text in ("a" * 90 + "!", "a" * 5_000 + "!", "1,2,3," * 3_000):
        try:
            MatchTime(0.02).contains(pattern, text)
        except PatternError as error:
            assert "took longer than 0.02 seconds to match" in str(error)  # noqa: PT017 - or it has matched


def made(random, depth=0):
    """Return a random pattern of repetitions within repetitions."""
    if depth > 3 or random.random() < 0.3:
        return random.choice(["a", "aa", "a?", "[ab]", ".", "b", r"\w"])
    inner = [made(random, depth + 1) for _ in range(random.randint(1, 3))]
    joined = random.choice(["", "|"]).join(inner)
    return f"({joined}){random.choice(['*', '+', '?', '{2,9}', '*?', '{3}', ''])}"


def test_hundreds_of_patterns_share_a_limit():
    random, texts = Random(5), ["a" * 60 + "!", "ab" * 40, "aab" * 30 + "c"]
    ended = {True: 0, False: 0}
    for _ in range(400):
        pattern, shared = f"^{made(random)}$", MatchTime(0.02)
        for text in texts:
            try:
                shared.contains(pattern, text)
            except PatternError:
                ended[False] += 1
                break
        else:
            ended[True] += 1
    assert sum(ended.values()) == 400
    assert min(ended.values()) > 10, ended


def test_time_between_searches_does_not_count(monkeypatch):
    shared = MatchTime(1.0)
    now = iter(range(0, 1_000, 10))
    monkeypatch.setattr(time, "monotonic", lambda: next(now) // 20 * 20.0)
    assert shared.contains("b", "abc")
    assert shared.contains("b", "abc")
