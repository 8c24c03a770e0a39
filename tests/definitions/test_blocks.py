"""Content blocks: what scripts may return, and fingerprints."""

import pytest

from divebook.definitions.step import (
    base64_block,
    blocks_from_program_output,
    blocks_from_script_result,
    fingerprint_block,
    fingerprint_blocks,
    text_block,
)
from divebook.errors import ScriptError

TEXT = {"type": "text", "text": "Hello from script"}


def test_a_text_becomes_one_block():
    assert blocks_from_script_result("Hello, World!") == [{"type": "text", "text": "Hello, World!"}]


def test_a_block_and_a_list_of_blocks_are_taken_as_they_are():
    assert blocks_from_script_result(TEXT) == [TEXT]
    assert (
        blocks_from_script_result(
            [TEXT, {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}]
        )[1]["type"]
        == "image"
    )
    assert blocks_from_script_result([]) == []


@pytest.mark.parametrize(
    "result",
    [
        42,
        None,
        True,
        ["text"],
        [[TEXT]],
        {},
        {"type": "text"},
        {"type": "song", "text": "x"},
        {"type": "image"},
        {"type": "image", "source": {"type": "base64", "data": "AA"}},
        {"type": "document", "source": {"type": "url"}},
        {"type": ["text"], "text": "x"},
        {"type": "image", "source": {"type": []}},
    ],
)
def test_anything_else_is_refused(result):
    with pytest.raises(ScriptError, match="unsupported script result type"):
        blocks_from_script_result(result)


def test_a_program_prints_a_json_list_of_blocks():
    output = '[{"type": "text", "text": "Hello from shell script"}]'
    assert blocks_from_program_output(output) == [text_block("Hello from shell script")]


@pytest.mark.parametrize("output", ["", "hello", '{"type": "text", "text": "x"}', "[" * 100_000])
def test_a_program_that_prints_anything_else_fails(output):
    with pytest.raises(ScriptError, match="failed to parse script JSON output"):
        blocks_from_program_output(output)


@pytest.mark.parametrize(
    ("block", "digest", "source", "size"),
    [
        (text_block("Hello, world!"), "315f5bdb76d078c43b8ac0064e4a0164612b1fce77c869345bfc94c75894edd3", "text", 13),
        (text_block("First content"), "836e2b28f5521489cc2b489882b969827ca3b7a149b7b45b067bf379bee2c029", "text", 13),
        (text_block("Second content"), "37fcbcfd275c3e89f82dbf3a6bd176b78a199dcf69ac6c8f8a8c0a61349738b9", "text", 14),
        (
            base64_block("image", "image/png", "AAAA"),
            "63c1dd951ffedf6f7fd968ad4efa39b8ed584f162f46e715114ee184f8de9201",
            "image-base64",
            4,
        ),
        (
            {"type": "document", "source": {"type": "url", "url": "https://example.com/document.pdf"}},
            "b02bb79120077c995f8956063d290d1b281ace7fd610e300c4d078bb3e9c323c",
            "document-url:https://example.com/document.pdf",
            0,
        ),
    ],
)
def test_the_fingerprint_of_a_block(block, digest, source, size):
    found = fingerprint_block(block)
    assert (found.hash, found.source, found.size) == (digest, source, size)


@pytest.mark.parametrize(
    ("block", "source"),
    [
        ({"type": "image"}, "empty-image"),
        ({"type": "document", "source": {}}, "empty-document"),
        ({"type": "song"}, "unknown"),
        ({"type": "dynamic", "content": [text_block("a"), text_block("b")]}, "dynamic"),
    ],
)
def test_the_fingerprint_of_an_unusual_block(block, source):
    assert fingerprint_block(block).source == source


def test_blocks_together_have_one_fingerprint():
    found = fingerprint_blocks([text_block("Test content for snapshot")])
    assert found.hash == "bbbe3ba07337cea1eb9a9e3f50040dee1725f4d8fba23ba820124c217e061144"
    assert (found.source, found.size) == ("combined", 70)
    two = [text_block("Deterministic content"), text_block("More content")]
    assert {fingerprint_blocks(two).hash for _ in range(5)} == {
        "dbe2a7230b62244436a00b2606d17938c7667cdf61ead3aa3016cb5b30488a78"
    }


def test_different_content_has_different_fingerprints():
    assert fingerprint_blocks([text_block("Content A")]) != fingerprint_blocks([text_block("Content B")])
