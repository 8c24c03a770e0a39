"""Which paths a pattern stands for."""

import re
from itertools import pairwise
from random import Random

import pytest

from divebook.documents.repository import matches
from divebook.errors import PatternError, SetupError


@pytest.mark.parametrize(
    ("pattern", "path", "met"),
    [
        ("/a/*.txt", "/a/b.txt", True),
        ("/a/*.txt", "/a/b/c.txt", False),
        ("/a/*", "/a/.hidden", True),
        ("/a/**", "/a/b/c", True),
        ("/a/**", "/a", False),
        ("/a/**/c", "/a/c", True),
        ("/a/**/c", "/a/b/b/c", True),
        ("/a/**/c", "/a/bc", False),
        ("**/c", "c", True),
        ("/a/?", "/a/b", True),
        ("/a/?", "/a//", False),
        ("/a/[bc].txt", "/a/b.txt", True),
        ("/a/[!bc].txt", "/a/b.txt", False),
        ("/a/[!b]x", "/a//x", False),
        ("/a/[a-c]", "/a/b", True),
        ("/a/[]]", "/a/]", True),
        ("/a/[b", "/a/[b", True),
        ("/a/{b,c/d}.txt", "/a/c/d.txt", True),
        ("/a/{b,c}.txt", "/a/{b,c}.txt", False),
        ("/a/b.txt", "/a/bxtxt", False),
        ("/a/b", "/a/b\n", False),
        ("/A", "/a", False),
    ],
)
def test_a_pattern_meets_whole_paths(pattern, path, met):
    assert matches(pattern, path) is met


def test_a_pattern_that_is_none_is_refused():
    with pytest.raises(SetupError, match=r"pattern '/a/\[z-a\]' is not valid"):
        matches("/a/[z-a]", "/a/b")


def plain(parts):
    """Return an expression of parts of a pattern as one would write it, which tries everything."""
    told = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]", "[!a]": "(?!/)[^a]"}
    return "".join(told.get(part, part) for part in parts)


def test_patterns_stand_for_what_a_plain_expression_does():
    random = Random(1)
    for _ in range(5_000):
        parts = [random.choice(["a", "b", "/", "*", "**", "**/", "?", "[!a]"]) for _ in range(random.randint(1, 7))]
        pattern = "".join(parts)
        path = "".join(random.choice("aab/") for _ in range(random.randint(0, 9)))
        # What is read as other parts than it was made of shows nothing.
        if not any((one, other) == ("**", "/") or one + other[:1] in ("**", "***") for one, other in pairwise(parts)):
            assert matches(pattern, path) == bool(re.fullmatch(plain(parts), path)), (pattern, path)


@pytest.mark.parametrize(
    "pattern",
    [
        "*a" * 20 + "*b",
        "**a" * 20 + "**b",
        "**/*a*a*a*a*a*a*b",
        "**/a/" * 12 + "b",
        "a**/" * 40 + "b",
        "*a**/" * 40 + "b",
        "{a**/,a/**/}" * 6 + "b",
    ],
)
def test_many_wildcards_take_no_time(pattern):
    assert not matches(pattern, "a" * 250)
    assert not matches(pattern, "a/" * 125)


@pytest.mark.parametrize("pattern", ["a" * 5_000, "{a,b}" * 12, "{a**/b,b**/a}" * 9, "[z-a]"])
def test_patterns_beyond_all_measure_are_refused(pattern):
    with pytest.raises(PatternError, match=r"too long|expands to more than|too many alternatives|not valid"):
        matches(pattern, "a")
