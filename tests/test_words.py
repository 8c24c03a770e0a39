"""The vocabulary of the texts that users read: messages of the package, texts of the front end, pages, notebooks."""

import re

import pytest

from tests.user_texts import UserText, user_texts

BANNED = {
    "nobody, nobody that is there": (r"nobody", "no running worker, or name who is meant"),
    "somebody, whoever, anybody": (r"somebody|whoever|anybody", "name who is meant: a person, another process"),
    "comes to, came of": (r"comes? to|came to|came of", "results in, evaluates to"),
    "becomes of": (r"becomes? of|became of", "the status of, the result of"),
    "goes on": (r"go on|goes on|going on|gone on|went on", "continues"),
    "take up": (r"takes? up|taken up|took up", "resumes, continues"),
    "begin anew, made anew": (r"anew", "again, new"),
    "is told": (r"(is|are|was|were|be) told", "you get a warning; an error names"),
    "X is no Y": (r"(?<!there )(is|are|was|were|be) no (?!longer|more|other)", "X is not a Y; expected Y"),
    "otherwise than": (r"otherwise than|(do|does|did) otherwise", "differently, differs"),
    "a whole number": (r"whole numbers?", "an integer"),
    "a truth": (r"a truth", "a boolean"),
    "a text": (r"a text(?! (file|cell|editor|field))", "a string"),
    "mended": (r"mend(s|ed|ing)?", "fix, fixed"),
    "the old system": (r"old system", "the legacy Dive dialect"),
    "what was paid for": (r"what (was|were|is|you have) paid( for)?", "calls you already paid for"),
    "what has completed": (r"what has completed", "completed steps"),
    "a picture (of a run)": (r"(a|the|this) picture( of (it|one|a run|an execution))?", "a read-only snapshot"),
    "served": (r"served (?!at|on|by|over|under|here)", "replayed from the log"),
}
"""Phrases that texts for users do not contain: name, pattern, and what to write instead."""

PATTERNS = {name: re.compile(rf"(?i)\b({pattern})\b") for name, (pattern, _) in BANNED.items()}

EXEMPT = {
    ("notebooks/project/history.md", ""): "entries of former versions, as they were published",
    ("divebook/replay/sameness.py", ""): "the wording of older versions, in which their logs are compared",
    ("divebook/agents/running_turn.py", "goes on"): "sent to models: a recorded request is compared with it",
    ("divebook/tools/file_tools.py", "X is no Y"): "sent to models: a recorded request is compared with it",
    ("divebook/workspaces/local.py", "X is no Y"): "sent to models: a recorded request is compared with it",
    ("divebook/questions/question.py", "begin anew, made anew"): "`anew` is the answer of a question",
    ("divebook/questions/wording.py", "begin anew, made anew"): "`anew` is the answer of a question",
}
"""Files and phrases, or "" for all phrases, that keep their wording, and why."""

LIMITS = {
    "README.md": 0,
    "commands and their help": 0,
    "keys of definitions": 0,
    "messages": 0,
    "notebooks": 0,
}
"""The most places with banned phrases that each group may have today. They are lowered, never raised; the goal is 0."""


def group_of(text: UserText) -> str:
    """Return which of the groups with a number of their own a text belongs to: pages, keys, help, or messages."""
    if text.of == "page":
        return "README.md" if text.file == "README.md" else "notebooks"
    if text.of == "Key":
        return "keys of definitions"
    if text.file.startswith(("divebook/cli/", "divebook/commands/")):
        return "commands and their help"
    return "messages"


def banned_places() -> dict[str, list[str]]:
    """Return the places with banned phrases, by group."""
    places: dict[str, list[str]] = {name: [] for name in LIMITS}
    for text in user_texts():
        for name, pattern in PATTERNS.items():
            if pattern.search(text.text) and not {(text.file, name), (text.file, "")} & EXEMPT.keys():
                places[group_of(text)].append(f"{text}\n    {name!r}: write {BANNED[name][1]!r}")
    return places


@pytest.fixture(scope="module")
def places():
    return banned_places()


@pytest.mark.parametrize("group", LIMITS)
def test_texts_that_users_read_have_no_banned_phrases(places, group):
    listed = "\n".join(places[group])
    assert len(places[group]) <= LIMITS[group], f"{group}: {len(places[group])}\n{listed}"


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("run 3 goes on as a new one", "goes on"),
        ("the path must be a text", "a text"),
        ("'x' is no name", "X is no Y"),
        ("there is no step 'x'", None),
        ("it is no longer there; name a text file", None),
    ],
)
def test_banned_phrases_are_recognized(text, phrase):
    assert [name for name, pattern in PATTERNS.items() if pattern.search(text)] == ([phrase] if phrase else [])
