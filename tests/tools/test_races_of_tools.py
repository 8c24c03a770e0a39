"""Tools of files while a folder and a link to outside change places: nothing outside is read or changed."""

import threading
from contextlib import suppress

import pytest
from pydantic_ai.exceptions import ToolFailed

from divebook.documents import MemoryDocuments, Policy
from divebook.tools.file_tools import ToolReach, directory_lister, file_reader, file_writer, text_editor
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
        lambda name: read(f"{name}/file"),
        lambda name: write(f"{name}/file", "inside"),
        lambda name: write(f"{name}/new/file", "inside"),
        lambda name: str(listed(name)),
        lambda name: edit("view", f"{name}/file"),
        lambda _: edit("view", "."),
        lambda name: edit("str_replace", f"{name}/file", old_str="inside", new_str="inside"),
    )
    told, steady = [], threading.Lock()
    with exchanging(inside / "a", inside / "swapped", threading.Event(), steady):
        for number in range(TRIES):
            for act in acts:
                with suppress(ToolFailed):
                    told.append(act("a"))
            # How many succeed meanwhile is chance. Without exchanges each succeeds in the folder, whatever its name is.
            with steady:
                names = ("swapped", "a") if (inside / "a").is_symlink() else ("a", "swapped")
                told.append(acts[number % len(acts)](names[0]))
                with pytest.raises(ToolFailed):
                    acts[number % 5](names[1])
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
