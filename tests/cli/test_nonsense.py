"""What nobody would type ends a command with an error of one kind, never with a traceback."""

import pytest

from tests.cli.conftest import write

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


NUMBERS = [
    (("runs", "--help"), "--limit N", "[N>=0]"),
    (("recover", "--help"), "--page N", "[N>=1]"),
    (("diff", "--help"), "--since N", "[N>=1]"),
    (("why", "--help"), "--row N", "[N>=0]"),
    (("worker", "--help"), "--patience SECONDS", "[SECONDS>=0]"),
]


@pytest.mark.parametrize(("words", "option", "limit"), NUMBERS, ids=str)
def test_help_shows_the_lower_limit_of_a_number(divebook, words, option, limit):
    text = " ".join(divebook(*words).stdout.split())
    assert limit in text[text.index(option) :].split("  --")[0]


def test_a_number_below_its_limit_is_a_usage_error_that_names_the_range(divebook):
    result = divebook("recover", "--page", "0")
    assert (result.exit_code, "it must be an integer from 1 to" in result.stderr) == (2, True), result.stderr


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


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("run", "helo.yaml"), "hello.yaml"),
        (("run", "flwo.py"), "flow.py"),
        (("run", "foldr/"), "folder"),
        (("run", "hello.yaml", "--actions", "flwo.py"), "flow.py"),
        (("run", "hello.yaml", "--answers", "answer.yaml"), "answers.yaml"),
        (("runs", "--workflow", "helo"), "hello"),
    ],
)
def test_a_misspelt_file_or_workflow_names_the_one_that_was_meant(divebook, hello, folder, words, meant):
    write(folder / "flow.py", "")
    write(folder / "answers.yaml", "a: 1")
    (folder / "folder").mkdir()
    divebook("run", hello, "-v", "who=you")
    result = divebook(*words)
    assert f"did you mean '{meant}'?" in result.stderr + result.stdout
    assert "Errno" not in result.stderr
