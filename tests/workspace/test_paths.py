"""What is opened below a folder cannot lead out of it, by the kernel's way and by ours."""

import os
import stat
import threading
from contextlib import suppress

import pytest

from divebook.errors import PathNotAllowedError
from divebook.workspaces.paths import Root, has_openat2
from tests.workspace import attacks
from tests.workspace.races import Arena, exchanging

OPENERS = [pytest.param(True, id="kernel"), pytest.param(False, id="walk")]
PATH_ONLY = os.O_PATH


@pytest.fixture(params=OPENERS)
def root(request, tmp_path, require):
    if request.param:
        require("openat2", has_openat2())
    inside = tmp_path / "root"
    (inside / "a" / "b").mkdir(parents=True)
    (inside / "a" / "file").write_text("in a")
    (inside / "file").write_text("inside")
    (tmp_path / "secret").write_text("outside")
    (tmp_path / "root-sibling").mkdir()
    (tmp_path / "root-sibling" / "file").write_text("outside")
    made = Root(inside, openat2=request.param)
    yield made
    made.close()


def read(root, path, flags=os.O_RDONLY):
    with open(root.open_file(path, flags)) as file:
        return file.read()


def link(root, name, target):
    os.symlink(target, os.path.join(root.path, name))


@pytest.mark.parametrize(
    "path",
    ["file", "./file", "a/../file", "a/b/../../file", "a//../file", "{root}/file", "{root}/a/../file"],
)
def test_paths_inside_are_opened(root, path):
    assert read(root, path.format(root=root.path)) == "inside"


@pytest.mark.parametrize(
    "path", ["../secret", "a/../../secret", "/etc/passwd", "{root}-sibling/file", "{root}/../secret", "a/b/../../.."]
)
def test_paths_that_lead_out_are_refused(root, path):
    with pytest.raises(PathNotAllowedError):
        root.open_file(path.format(root=root.path))


@pytest.mark.parametrize("target", ["a/file", "{root}/a/file", "a/../a/file", "other"])
def test_links_to_inside_are_followed(root, target):
    link(root, "other", "a/file")
    link(root, "link", target.format(root=root.path))
    assert read(root, "link") == "in a"
    assert root.real("link") == f"{root.path}/a/file"


@pytest.mark.parametrize("target", ["../secret", "/etc/passwd", "a/../../secret", "{root}-sibling/file", "hop"])
def test_links_that_lead_out_are_refused(root, target):
    link(root, "hop", "../secret")
    link(root, "link", target.format(root=root.path))
    with pytest.raises(PathNotAllowedError):
        root.open_file("link")
    with pytest.raises(PathNotAllowedError):
        root.real("link")


def test_dot_dot_behind_a_link_climbs_from_where_it_leads(root):
    link(root, "deep", "a/b")
    assert read(root, "deep/../file") == "in a"


def test_links_in_a_circle_are_an_error_and_no_end(root):
    link(root, "one", "two")
    link(root, "two", "one")
    for act in (root.open_file, root.real):
        with pytest.raises(OSError, match="symbolic links"):
            act("one")


def test_a_link_itself_is_opened_and_not_followed(root):
    link(root, "link", "../secret")
    found = root.open_file("link", PATH_ONLY | os.O_NOFOLLOW)
    try:
        assert stat.S_ISLNK(os.fstat(found).st_mode)
    finally:
        os.close(found)
    with pytest.raises(OSError, match="symbolic links"):
        root.open_file("link", os.O_RDONLY | os.O_NOFOLLOW)


def test_files_are_made_inside_only(root, tmp_path):
    os.close(root.open_file("a/new", os.O_WRONLY | os.O_CREAT))
    link(root, "dangling", "a/later")
    os.close(root.open_file("dangling", os.O_WRONLY | os.O_CREAT))
    assert os.path.exists(f"{root.path}/a/later")
    link(root, "out", "../made")
    with pytest.raises(PathNotAllowedError):
        root.open_file("out", os.O_WRONLY | os.O_CREAT)
    assert not (tmp_path / "made").exists()
    with pytest.raises(FileExistsError):
        root.open_file("file", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with pytest.raises(FileExistsError):
        root.open_file("dangling", os.O_WRONLY | os.O_CREAT | os.O_EXCL)


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("a\0b", "NUL"),
        ("x" * 256, "name too long"),
        ("y/" * 2100, "name too long"),
        ("\ud800", "characters that file names cannot have"),
    ],
)
def test_a_refusal_says_which_rule(root, path, rule):
    with pytest.raises(PathNotAllowedError, match=rule) as caught:
        root.open_file(path)
    assert rule in caught.value.rule


def test_errors_of_the_disk_stay_what_they_are(root):
    for path, error in [("nothing", FileNotFoundError), ("file/x", NotADirectoryError), ("file/", NotADirectoryError)]:
        with pytest.raises(error):
            root.open_file(path)
    with pytest.raises(IsADirectoryError):
        root.open_regular("a")


def test_what_is_no_file_is_not_read(root):
    os.mkfifo(f"{root.path}/pipe")
    with pytest.raises(PathNotAllowedError, match="not a regular file"):
        root.open_regular("pipe")
    with pytest.raises(PathNotAllowedError, match="not a regular file"):
        root.open_regular("pipe", os.O_WRONLY)


def test_what_acts_on_a_name_gets_its_folder(root):
    link(root, "link", "../secret")
    with root.parent("link") as (folder, name):
        os.unlink(name, dir_fd=folder)
    assert not os.path.lexists(f"{root.path}/link")
    for path in (".", "a/..", "a/.", "/", root.path):
        with pytest.raises(PathNotAllowedError), root.parent(path):
            pass


def test_links_of_a_container_are_read_by_its_names(tmp_path):
    (tmp_path / "file").write_text("inside")
    os.symlink("/workspace/file", tmp_path / "link")
    root = Root(tmp_path, name="/workspace")
    assert read(root, "link") == read(root, "/workspace/file") == "inside"
    with pytest.raises(PathNotAllowedError):
        root.open_file(str(tmp_path / "file"))
    root.close()


def test_nothing_is_left_open(root):
    before = len(os.listdir("/proc/self/fd"))
    link(root, "link", "../secret")
    for path in ("link", "nothing", "../x", "a", "file/x", "a/b/../../file"):
        with suppress(OSError):
            os.close(root.open_file(path))
    assert len(os.listdir("/proc/self/fd")) == before


def test_no_path_leads_out_whatever_it_is_made_of():
    """More of them: `python -m tests.workspace.attacks`."""
    assert attacks.main(100) == []


@pytest.mark.parametrize("openat2", OPENERS)
def test_a_race_with_links_is_never_won(tmp_path, openat2):
    """More tries: `python -m tests.workspace.races`."""
    arena = Arena(tmp_path, openat2=openat2)
    done = arena.attack(700)
    arena.close()
    assert arena.escaped() is None
    assert set(done) == {act.__name__ for act in Arena.ACTS}


def test_what_a_race_reads_is_inside(root, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("outside")
    os.symlink("../outside", f"{root.path}/swapped")
    done = threading.Event()
    with exchanging(f"{root.path}/a", f"{root.path}/swapped", done):
        for _ in range(300):
            with suppress(PathNotAllowedError, FileNotFoundError, NotADirectoryError):
                assert read(root, "a/file") == "in a"
