"""What nobody would type ends a command with an error of one kind, never with a traceback."""

import pytest

NONSENSE = [
    "",
    "\x00",
    "a\x00b",
    "\ud800",
    "-",
    "x" * 5000,
    "9" * 5000,
    "[" * 3000,
    '{"a":' * 3000,
    "9" * 400 + "d",
    "~nobody/x",
]
DOORS = [("run",), ("show",), ("answer", "ask_0"), ("recover", "-d"), ("run", "hello.yaml", "--answers")]
DOORS += [("import",), ("export", "exec_0"), ("backup",), ("check", "--store")]
DOORS += [("gc", "--older-than"), ("runs", "--store"), ("run", "hello.yaml", "-v"), ("run", "hello.yaml", "--bounds")]


@pytest.mark.parametrize("door", DOORS, ids=" ".join)
def test_nonsense_ends_without_a_traceback(divebook, hello, door):
    for nonsense in NONSENSE:
        result = divebook(*door, nonsense)
        assert result.exit_code in (1, 2), nonsense[:40]
        assert isinstance(result.exception, SystemExit), (nonsense[:40], result.exception)


def test_a_store_behind_links_in_a_circle_is_refused(divebook, hello, folder):
    (folder / "a.db").symlink_to(folder / "b.db")
    (folder / "b.db").symlink_to(folder / "a.db")
    result = divebook("run", hello, "--store", "a.db")
    assert (result.exit_code, "cannot be the path of a store" in result.stderr) == (2, True), result.stderr


def test_answers_that_are_no_text_are_refused(divebook, hello, folder):
    (folder / "answers.yaml").write_bytes(b"\xff\xfe")
    result = divebook("run", hello, "--answers", "answers.yaml")
    assert (result.exit_code, "is not UTF-8 text" in result.stderr) == (2, True)
