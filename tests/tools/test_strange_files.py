"""Whatever a model writes for a path, and whatever lies in a folder: it is told, and the rest of the disk is safe."""

import contextlib
import os
import socket

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic_ai.exceptions import ToolFailed

from divebook.documents import FileDocuments, Policy
from divebook.events.codec import storable
from divebook.tools.builtin import offered
from divebook.tools.file_tools import ToolReach

SECRET = "what nobody may read"


@pytest.fixture(scope="module")
def disk(tmp_path_factory):
    """Return a folder with all that is strange, beside one that must not be reached."""
    top = tmp_path_factory.mktemp("disk").resolve()
    inside, outside = top / "inside", top / "outside"
    for folder in (inside, outside, inside / "deep"):
        folder.mkdir()
    (outside / "secret.txt").write_text(SECRET)
    (inside / "plain.txt").write_text("plain")
    (inside / "binary").write_bytes(b"\0\xff\xfe" * 50)
    (inside / "two\nlines.txt").write_text("x")
    (inside / "old.txt").write_text("x")
    os.utime(inside / "old.txt", (10**14, 10**14))
    (inside / "ring").symlink_to("ring")
    (inside / "out").symlink_to(outside)
    (inside / "deep" / "secret").symlink_to("../../outside/secret.txt")
    (inside / "gone").symlink_to("nowhere")
    os.mkfifo(inside / "pipe")
    with socket.socket(socket.AF_UNIX) as waiting, contextlib.suppress(OSError):
        waiting.bind(str(inside / "door"))
    with (inside / "huge").open("wb") as file:
        file.truncate(50_000_000)
    with contextlib.suppress(OSError):  # some disks take no such name
        (inside / os.fsdecode(b"not \xff utf-8")).write_text("x")
    return inside, outside


def calls(path):
    """Return what each tool is asked to do with a path; one that is no UTF-8 is refused before any is asked."""
    yield from ((name, {"path": path}) for name in ("read_file", "list_directory", "read_document"))
    yield from ((name, {"path": path, "content": "new"}) for name in ("write_file", "write_document"))
    yield "list_documents", {"folder": path}
    yield "search_documents", {"words": "x", "folder": path}
    yield "text_editor", {"command": "view", "path": path}
    yield "text_editor", {"command": "create", "path": path, "file_text": "new"}
    yield "text_editor", {"command": "str_replace", "path": path, "old_str": "x", "new_str": "y"}
    yield "text_editor", {"command": "insert", "path": path, "insert_line": 0, "new_str": "y"}


def use(folder, name, arguments):
    """Return what the model is told; anything else is an error of the tool."""
    reach = ToolReach(FileDocuments(folder), Policy(), folder)
    try:
        return storable(offered(name, reach, {}).function(**arguments), "result")
    except ToolFailed as told:
        return storable(str(told), "result")


def check(disk, path):
    inside, outside = disk
    for name, arguments in calls(path):
        assert SECRET not in str(use(inside, name, arguments)), name
        assert [(entry.name, entry.read_text()) for entry in outside.iterdir()] == [("secret.txt", SECRET)], name
    assert [entry for entry in inside.rglob(".*.????????") if entry.is_file()] == []


PLACES = ["ring", "out", "out/secret.txt", "deep/secret", "gone", "pipe", "door", "huge", "binary", "old.txt", "", "."]
PLACES += ["../outside/secret.txt", "deep/../../outside/secret.txt", "/etc/passwd", "/dev/zero", "/proc/self/environ"]
PLACES += [
    "two\nlines.txt",
    "a\0b",
    "x" * 300,
    "d/" * 1990 + "x",
    "plain.txt/below",
    "~/x",
]
PLACES += [
    "C:\\x",
    "..\\outside\\secret.txt",
    "file:///etc/passwd",
    "//etc/passwd",
    "new\nfile",
    "%2e%2e/outside",
    "...",
]


@pytest.mark.parametrize("path", PLACES, ids=lambda path: ascii(path[:30]))
def test_a_strange_path_is_answered_and_leads_nowhere_else(disk, path):
    check(disk, path)


PIECES = st.sampled_from(
    ["..", ".", "out", "deep", "secret", "secret.txt", "outside", "~", "", "*", "\\", "ring", "gone"]
)
NAMES = st.text(min_size=1, max_size=8)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.lists(PIECES | NAMES, min_size=1, max_size=6).map("/".join))
def test_any_path_is_answered_and_leads_nowhere_else(disk, path):
    check(disk, path)


def test_what_could_not_be_written_leaves_nothing_behind(disk):
    inside, _ = disk
    before = set(inside.iterdir())
    for name in ("write_file", "write_document"):
        told = use(inside, name, {"path": "half.txt", "content": "half of a character: \ud800"})
        assert "cannot be written" in told
    assert set(inside.iterdir()) == before
