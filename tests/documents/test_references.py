"""Values that are named and looked up where they are used."""

import os

import pytest

from divebook.documents.policy import MAX_BYTES, Policy, is_reference, resolved
from divebook.errors import SetupError
from divebook.text.redaction import shared

KEY = "k7-41c9-secret-of-this-test"


@pytest.fixture
def environ(monkeypatch):
    monkeypatch.setenv("DIVEBOOK_TEST_VALUE", KEY)


def test_references_are_resolved_at_any_depth_and_nothing_else(environ):
    given = {"a": ["env://DIVEBOOK_TEST_VALUE", 1], "b": {"c": "Bearer env://DIVEBOOK_TEST_VALUE"}, "d": "see env://X"}
    with pytest.raises(SetupError, match=r"env://X refers to an environment variable that is not set.*set X"):
        resolved(given, Policy("environment"))
    given["d"] = "it is said in env://X"
    found = resolved(given, Policy("environment"))
    assert found == {"a": [KEY, 1], "b": {"c": f"Bearer {KEY}"}, "d": "it is said in env://X"}
    assert given["a"][0] == "env://DIVEBOOK_TEST_VALUE"


def test_what_was_resolved_is_hidden_from_then_on(environ):
    resolved("env://DIVEBOOK_TEST_VALUE", Policy("environment"))
    assert shared().text(f"it was {KEY}, they said") == "it was [redacted], they said"


def test_what_is_written_out_under_the_name_of_a_secret_is_hidden_too():
    assert resolved({"deep": {"api_key": "k7-written-out"}, "query": "owls"}, Policy())["deep"]["api_key"]
    assert shared().without_named("k7-written-out for owls") == "[redacted] for owls"


def test_a_file_gives_its_text_without_the_last_line_break(tmp_path):
    (tmp_path / "key.txt").write_text("of-a-file-8141\n")
    assert resolved("file://key.txt", Policy(), tmp_path) == "of-a-file-8141"
    assert resolved("Token file://./key.txt", Policy(), tmp_path) == "Token of-a-file-8141"


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("file://../other.txt", "outside the definition's folder"),
        ("file:///etc/hostname", "outside the definition's folder"),
        ("file://none.txt", "cannot be read: No such file"),
        ("file://empty.txt", "is empty: write the value into it"),
        ("file://long.txt", "contains more than"),
        ("file://bytes.txt", "not UTF-8 text at byte 0"),
        ("file://pipe", "is not a file"),
        ("file://a\0b", "cannot be the path"),
        ("env://DIVEBOOK_NO_SUCH", "is not set or is empty: set DIVEBOOK_NO_SUCH"),
    ],
)
def test_what_cannot_be_resolved_says_why_and_shows_no_value(tmp_path, reference, says):
    for name, data in {"empty.txt": b" \n", "long.txt": b"x" * (MAX_BYTES + 1), "bytes.txt": b"\xff"}.items():
        (tmp_path / name).write_bytes(data)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SetupError, match=says):
        resolved(reference, Policy("environment"), tmp_path)


def test_a_value_too_short_to_be_known_is_warned_of(monkeypatch, logs):
    monkeypatch.setenv("DIVEBOOK_TEST_VALUE", "abc")
    assert resolved("env://DIVEBOOK_TEST_VALUE", Policy("environment")) == "abc"
    assert ["fewer than 8 characters" in said and "abc" not in said for said in logs()] == [True]


@pytest.mark.parametrize(
    ("value", "is_one"),
    [("env://A", True), ("Bearer env://A", True), ("file:///k", True), ("env:A", False), ("", False), (3, False)],
)
def test_references_are_told_from_texts(value, is_one):
    assert is_reference(value) is is_one
