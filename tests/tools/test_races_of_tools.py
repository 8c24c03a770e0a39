"""Tools of files while a folder and a link to outside change places: nothing outside is read or changed."""

import threading
from contextlib import suppress

import pytest
from pydantic_ai.exceptions import ToolFailed

from divebook.documents import MemoryDocuments, Policy
from divebook.tools.editor import text_editor
from divebook.tools.files import directory_lister, file_reader, file_writer
from divebook.tools.reach import ToolReach
from tests.workspace.races import exchanging

TRIES = 300


@pytest.fixture
def places(tmp_path):
    inside, outside = tmp_path / "root", tmp_path / "outside"
    for place, content in ((inside / "a", "inside"), (outside, "outside")):
        place.mkdir(parents=True)
        (place / "file").write_text(content)
        (place / content).touch()
    (inside / "swapped").symlink_to("../outside")
    return inside, outside


def test_what_is_opened_is_within_the_folder_whatever_becomes_of_it_meanwhile(places):
    inside, outside = places
    reach = ToolReach(MemoryDocuments(), Policy(), inside)
    read, write, listed, edit = (
        made.function for made in (file_reader(reach), file_writer(reach), directory_lister(reach), text_editor(reach))
    )
    acts = (
        lambda: read("a/file"),
        lambda: write("a/file", "inside"),
        lambda: write("a/new/file", "inside"),
        lambda: str(listed("a")),
        lambda: edit("view", "a/file"),
        lambda: edit("view", "."),
        lambda: edit("str_replace", "a/file", old_str="inside", new_str="inside"),
    )
    told = []
    with exchanging(inside / "a", inside / "swapped", threading.Event()):
        for number in range(TRIES * len(acts)):
            with suppress(ToolFailed):
                told.append(acts[number % len(acts)]())
    assert len(told) > TRIES
    assert [one for one in told if "outside" in one] == []
    assert sorted(path.name for path in outside.iterdir()) == ["file", "outside"]
    assert (outside / "file").read_text() == "outside"


def test_a_refusal_says_which_rule(places):
    inside, outside = places
    read = file_reader(ToolReach(MemoryDocuments(), Policy(), inside)).function
    with pytest.raises(ToolFailed, match="outside the definition's folder"):
        read("swapped/file")
    read = file_reader(ToolReach(MemoryDocuments(), Policy("files"), inside)).function
    assert read("swapped/file") == read(str(outside / "file")) == "outside"
