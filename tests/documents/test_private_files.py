"""Files that are replaced or created in one step."""

import os

import pytest

from divebook.documents.private_files import FILE, create_whole, replace_whole, replacement


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def write_half(stream, error):
    stream.write(b"half")
    raise error


@pytest.mark.parametrize("content", ["one\r\ntwo\n", b"\xff\x00"], ids=["text", "bytes"])
@pytest.mark.parametrize("is_durable", [False, True])
def test_a_file_is_replaced_for_its_owner_only(tmp_path, content, is_durable):
    path = tmp_path / "a.txt"
    path.write_text("old")
    path.chmod(0o644)
    replace_whole(path, content, is_durable=is_durable)
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert path.stat().st_mode & 0o777 == FILE
    assert names_in(tmp_path) == ["a.txt"]


def test_readers_see_the_old_file_until_the_new_one_is_complete(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with replacement(path) as stream:
        stream.write(b"new")
        stream.flush()
        assert path.read_text() == "old"
        assert all(name == "a.txt" or name.startswith(".a.txt.") for name in names_in(tmp_path))
    assert path.read_text() == "new"


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_write_that_fails_changes_nothing(tmp_path, error):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(error), replacement(path) as stream:
        write_half(stream, error)
    assert path.read_text() == "old"
    assert names_in(tmp_path) == ["a.txt"]


def test_the_content_is_on_disk_before_the_file_gets_its_name_only_if_asked_for(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    names_at_sync = []
    monkeypatch.setattr(os, "fsync", lambda _: names_at_sync.append(path.exists()))
    replace_whole(path, "x")
    assert names_at_sync == []
    path.unlink()
    replace_whole(path, "x", is_durable=True)
    assert names_at_sync == [False]


@pytest.mark.parametrize("name", ["a" * 255, "\N{DIVING MASK}" * 63], ids=["letters", "four bytes each"])
def test_the_longest_names_fit(tmp_path, name):
    replace_whole(tmp_path / name, "x")
    assert names_in(tmp_path) == [name]


def test_a_file_is_created_once(tmp_path):
    path = tmp_path / "key"
    assert create_whole(path, b"first")
    assert not create_whole(path, b"second")
    assert path.read_bytes() == b"first"
    assert path.stat().st_mode & 0o777 == FILE
    assert names_in(tmp_path) == ["key"]
