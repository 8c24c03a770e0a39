"""Wildcards stand for what an expression that tries everything stands for, in one pass over the text."""

import re
from random import Random

from divebook.text.patterns import OPTIONAL_PAIR, Repeated, WildcardMatcher


def is_any(_):
    return True


def is_b(character):
    return character == "b"


def is_no_slash(character):
    return character != "/"


ITEMS = [("a", ["a"]), ("/", ["/"]), ("b", [is_b]), (".*", [Repeated(is_any)]), ("[^/]*", [Repeated(is_no_slash)])]
ITEMS += [("(?:.*/)?", [OPTIONAL_PAIR, Repeated(is_any), "/"])]


def test_wildcards_are_what_an_expression_is():
    random = Random(3)
    for _ in range(5_000):
        chosen = random.choices(ITEMS, k=random.randint(0, 6))
        text = "".join(random.choices("ab/", k=random.randint(0, 8)))
        matcher = WildcardMatcher([item for _, items in chosen for item in items])
        expression = "".join(part for part, _ in chosen)
        assert matcher.matches(text) == bool(re.fullmatch(expression, text, re.DOTALL)), (expression, text)


def test_each_character_is_looked_at_once():
    seen = []

    class Counted(str):
        __slots__ = ()

        def __iter__(self):
            for character in super().__iter__():
                seen.append(character)
                yield character

    items = [item for _ in range(300) for item in ("a", Repeated(is_any), Repeated(is_no_slash))]
    assert not WildcardMatcher([*items, "b"]).matches(Counted("a" * 5_000))
    assert len(seen) == 5_000
