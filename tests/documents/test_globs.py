"""Which paths a pattern stands for."""

import pytest

from divebook.documents.globs import matches
from divebook.errors import SetupError


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
