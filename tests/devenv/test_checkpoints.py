"""Environments are saved and restored: files, what is installed, and what a kill in the middle leaves."""

from __future__ import annotations

import json
import random
import shutil
import zipfile
from pathlib import Path

import pytest

from divebook.devenv.checkpoints import EnvironmentCheckpoints
from divebook.errors import DevEnvError
from tests.devenv.conftest import plain_venv, run
from tests.devenv.kills import KILLED, looks_whole, prepared, tried


@pytest.fixture
def native(dev_env, tmp_path):
    """A native environment; returns its working folder."""
    assert dev_env("create", "a", "native")[0] == 0
    return tmp_path / ".dev_env_state" / "a" / "work"


def tree(folder: Path) -> dict[str, object]:
    return {
        str(path.relative_to(folder)): path.readlink() if path.is_symlink() else path.is_file() and path.read_text()
        for path in folder.rglob("*")
    }


def settings_of(root, **settings):
    path = root / "config" / "dev_env" / "settings.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings))


def names_of(dev_env):
    return [told["name"] for told in json.loads(dev_env("checkpoint", "list", "a")[1])]


def test_files_are_as_they_were_and_those_that_came_since_are_gone(dev_env, native):
    (native / "src").mkdir()
    (native / "src" / "a.py").write_text("one")
    (native / "link").symlink_to("src/a.py")
    before = tree(native)
    code, printed, _ = dev_env("save", "a", "first")
    assert (code, printed) == (0, f"{native.parent}/checkpoints/first/checkpoint.json\n")
    (native / "src" / "a.py").write_text("two")
    (native / "link").unlink()
    (native / "new").write_text("new")
    code, printed, _ = dev_env("restore", "a", "first")
    assert (code, printed) == (0, "Environment 'a' restored to 'first'\n")
    assert tree(native) == before
    assert names_of(dev_env) == ["first"]


def test_what_is_ignored_is_left_alone_also_once_it_is_ignored_no_more(dev_env, native):
    (native / ".devenvignore").write_text("# large\ndata/\n*.log\n")
    (native / "data").mkdir()
    (native / "data" / "d").write_text("d")
    assert dev_env("save", "a", "c")[0] == 0
    (native / "x.log").write_text("x")
    (native / ".devenvignore").unlink()
    assert dev_env("restore", "a", "c")[0] == 0
    assert set(tree(native)) == {".devenvignore", "data", "data/d", "x.log"}


def test_environments_below_the_folder_are_no_part_of_it(tmp_path, dev_env):
    (tmp_path / "f").write_text("one")
    assert dev_env("create", "here", "native", "--set", f"native.working_dir={tmp_path}")[0] == 0
    assert dev_env("save", "here", "c")[0] == 0
    (tmp_path / "f").write_text("two")
    assert dev_env("create", "other", "native")[0] == 0
    assert dev_env("restore", "here", "c")[0] == 0
    assert (tmp_path / "f").read_text() == "one"
    assert dev_env("execute", "other", "true")[0] == 0
    assert dev_env("destroy", "here")[0] == 0
    assert (tmp_path / "f").exists()


CODES = {
    "save, no environment": (["save", "no", "c"], 2, "no environment"),
    "save, name": (["save", "a", "../c"], 1, "is not allowed"),
    "save, taken": (["save", "a", "c"], 1, "--overwrite"),
    "save, replaced": (["save", "--overwrite", "a", "c"], 0, ""),
    "restore, no environment": (["restore", "no", "no"], 2, "no environment"),
    "restore, no checkpoint": (["restore", "a", "no"], 7, "no checkpoint 'no'; existing checkpoints: c"),
    "show, no checkpoint": (["checkpoint", "show", "a", "no"], 7, "no checkpoint"),
    "delete, no checkpoint": (["checkpoint", "delete", "a", "no"], 7, "no checkpoint"),
    "list, tenant": (["--tenant", "t", "checkpoint", "list", "a"], 8, "another tenant"),
    "save, tenant": (["--tenant", "t", "save", "a", "d"], 8, "another tenant"),
    "restore, tenant": (["--tenant", "t", "restore", "a", "c"], 8, "another tenant"),
}


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("root")
    assert run(folder, "create", "a", "native")[0] == run(folder, "save", "a", "c")[0] == 0
    return folder


@pytest.mark.parametrize(("words", "code", "told"), CODES.values(), ids=CODES)
def test_each_refusal_has_its_code(kept, words, code, told):
    ended, _, said = run(kept, *words)
    assert (ended, told in said) == (code, True), said


def test_a_damaged_checkpoint_changes_nothing(dev_env, native):
    (native / "f").write_text("one")
    assert dev_env("save", "a", "c")[0] == 0
    (native / "f").write_text("two")
    contents = native.parent / "checkpoints" / ".contents"
    (content,) = contents.iterdir()
    content.write_text("other")
    code, _, said = dev_env("restore", "a", "c")
    assert (code, f"the file content {content.name[:12]}... of a checkpoint is damaged" in said) == (1, True)
    (native.parent / "checkpoints" / "c" / "files.json").write_text("{}")
    assert "files.json of the checkpoint 'c' is damaged" in dev_env("restore", "a", "c")[2]
    assert (native / "f").read_text() == "two"


@pytest.mark.parametrize(("damaged", "content"), [("checkpoint.json", "{"), ("files.json", None), ("files.json", "[]")])
def test_a_damaged_checkpoint_stands_in_nobodys_way_and_can_be_deleted(dev_env, native, damaged, content):
    (native / "f").write_text("one")
    assert [dev_env("save", "a", name)[0] for name in ("good", "bad")] == [0, 0]
    place = native.parent / "checkpoints" / "bad" / damaged
    place.unlink()
    if content is not None:
        place.write_text(content)
    (native / "f").write_text("two")
    assert dev_env("save", "a", "next")[0] == 0
    assert dev_env("checkpoint", "delete", "a", "next")[0] == 0
    assert dev_env("restore", "a", "bad")[0] == 1
    assert dev_env("checkpoint", "delete", "a", "bad")[0] == 0
    assert dev_env("restore", "a", "good")[0] == 0
    assert (native / "f").read_text() == "one"


def test_the_oldest_checkpoints_go_with_their_contents(dev_env, native, tmp_path):
    settings_of(tmp_path, checkpoints=2)
    for number in "123":
        (native / "f").write_text(number)
        assert dev_env("save", "a", f"c{number}")[0] == 0
    assert names_of(dev_env) == ["c2", "c3"]
    contents = native.parent / "checkpoints" / ".contents"
    assert sorted(path.read_text() for path in contents.iterdir()) == ["2", "3"]
    assert dev_env("checkpoint", "delete", "a", "c2")[1] == "Checkpoint 'c2' deleted\n"
    assert [path.read_text() for path in contents.iterdir()] == ["3"]


def test_a_restore_deletes_no_checkpoint_also_once_fewer_are_allowed(dev_env, native, tmp_path):
    for number in "123":
        (native / "f").write_text(number)
        assert dev_env("save", "a", f"c{number}")[0] == 0
    settings_of(tmp_path, checkpoints=1)
    (native / "f").write_text("4")
    assert dev_env("restore", "a", "c1")[0] == 0
    assert (native / "f").read_text() == "1"
    assert names_of(dev_env) == ["c1", "c2", "c3"]
    contents = native.parent / "checkpoints" / ".contents"
    assert sorted(path.read_text() for path in contents.iterdir()) == ["1", "2", "3"]
    assert dev_env("save", "a", "c5")[0] == 0
    assert names_of(dev_env) == ["c5"]


def test_a_checkpoint_is_not_deleted_by_its_own_save_though_the_clock_went_back(dev_env, native, tmp_path):
    settings_of(tmp_path, checkpoints=1)
    assert dev_env("save", "a", "first")[0] == 0
    manifest = native.parent / "checkpoints" / "first" / "checkpoint.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "created_at": "9999-01-01T00:00:00.000Z"}))
    assert dev_env("save", "a", "second")[0] == 0
    assert names_of(dev_env) == ["second"]


def test_a_checkpoint_is_deleted_only_after_its_interrupted_restore_is_complete(dev_env, native):
    (native / "f").write_text("one")
    assert dev_env("save", "a", "c")[0] == 0
    (native / "f").write_text("two")
    state = native.parent / "state.json"
    state.write_text(json.dumps({**json.loads(state.read_text()), "phase": "restoring", "restoring": "c"}))
    code, _, said = dev_env("checkpoint", "delete", "a", "c")
    assert (code, "the restore of 'c' was interrupted, and is repeated" in said) == (0, True), said
    assert (native / "f").read_text() == "one"
    assert names_of(dev_env) == []
    assert dev_env("execute", "a", "true")[0] == 0


class Killed(BaseException):
    """Stands for a kill: nothing cleans up after it."""


def written(checkpoints, created_at):
    """Write a checkpoint ``c`` up to its last step; return its temporary folder and fields."""
    folder = checkpoints.begin("c", overwrite=True)
    (folder / "files.json").write_text("{}")
    return folder, {"created_at": created_at, "artefacts": []}


@pytest.mark.parametrize("kill", ["rename old", "rename new", "rename old away", "delete old"])
def test_a_kill_while_a_checkpoint_is_replaced_leaves_a_complete_one(tmp_path, monkeypatch, kill):
    checkpoints = EnvironmentCheckpoints(tmp_path)
    old, fields = written(checkpoints, "2026-01-01")
    checkpoints.finish(old, "c", fields)
    new, fields = written(checkpoints, "2026-01-02")
    (tmp_path / "c" / "more.json").write_text("{}")
    renames = []
    rename = Path.rename

    def counted(path, target):
        if kill == ("rename old", "rename new", "rename old away")[len(renames)]:
            raise Killed
        renames.append(path.name)
        return rename(path, target)

    def half(folder, **options):
        if kill == "delete old":
            for path in Path(folder).iterdir():
                if path.name != "checkpoint.json":
                    path.unlink()
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", counted)
        patched.setattr(shutil, "rmtree", half)
        with pytest.raises(Killed):
            checkpoints.finish(new, "c", fields)
        if kill not in ("rename old", "rename new"):
            assert checkpoints.read("c")["created_at"] == "2026-01-02"
    checkpoints.repair()
    assert checkpoints.read("c")["created_at"] == ("2026-01-01" if kill == "rename old" else "2026-01-02")
    assert checkpoints.trees("c") == {}
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_a_kill_while_a_failed_save_is_deleted_leaves_no_damaged_checkpoint(tmp_path, monkeypatch):
    checkpoints = EnvironmentCheckpoints(tmp_path)
    folder, fields = written(checkpoints, "2026-01-01")
    (folder / "checkpoint.json").write_text(json.dumps({"name": "c", **fields}))

    def half(folder, **options):
        (Path(folder) / "files.json").unlink()
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", half)
        with pytest.raises(Killed):
            checkpoints.drop(folder)
    checkpoints.repair()
    assert list(tmp_path.iterdir()) == []


def failing_put_back(monkeypatch, error):
    """Make each restore write a file of its own, and then fail in the middle."""
    put_back = EnvironmentCheckpoints.put_back

    def incomplete(checkpoints, tree, folder):
        put_back(checkpoints, tree, folder)
        (folder.path / "half").write_text("half")
        raise error

    monkeypatch.setattr(EnvironmentCheckpoints, "put_back", incomplete)


def interrupt_restore(dev_env, monkeypatch, name):
    with monkeypatch.context() as patched:
        failing_put_back(patched, Killed())
        with pytest.raises(Killed):
            dev_env("restore", "a", name)


@pytest.mark.parametrize("seed", range(6))
def test_a_backup_is_replaced_only_after_its_restore_is_complete(dev_env, native, monkeypatch, seed):
    for name in ("one", "two"):
        (native / "f").write_text(name)
        assert dev_env("save", "a", name)[0] == 0
    (native / "f").write_text("only copy")
    before = tree(native)
    generator = random.Random(seed)
    for number in range(4):
        error = generator.choice([Killed(), DevEnvError("the disk is gone")])
        # The backup itself may be the checkpoint whose restore does not end.
        name = generator.choice(["one", "two"] if number == 0 else ["one", "two", "pre-restore"])
        with monkeypatch.context() as patched:
            failing_put_back(patched, error)
            if isinstance(error, Killed):
                with pytest.raises(Killed):
                    dev_env("restore", "a", name)
            else:
                code, _, message = dev_env("restore", "a", name)
                assert (code, "the disk is gone" in message) == (1, True)
                assert ("restore the checkpoint 'pre-restore'" in message) == (name != "pre-restore")
        assert "half" in tree(native)
        assert names_of(dev_env) == ["one", "two", "pre-restore"]
    assert dev_env("restore", "a", "pre-restore")[0] == 0
    assert tree(native) == before
    # The restore is complete, so that the next one saves a new backup.
    (native / "f").write_text("new copy")
    interrupt_restore(dev_env, monkeypatch, "one")
    assert dev_env("restore", "a", "pre-restore")[0] == 0
    assert (native / "f").read_text() == "new copy"


def test_a_restore_that_replaces_an_interrupted_one_deletes_the_backup_when_it_is_complete(
    dev_env, native, monkeypatch
):
    assert dev_env("save", "a", "c")[0] == 0
    interrupt_restore(dev_env, monkeypatch, "c")
    assert dev_env("restore", "a", "c")[0] == 0
    assert tree(native) == {}
    assert names_of(dev_env) == ["c"]


def test_the_backup_of_a_destroyed_environment_is_not_replaced(dev_env, native, monkeypatch):
    assert dev_env("save", "a", "c")[0] == 0
    (native / "f").write_text("only copy")
    interrupt_restore(dev_env, monkeypatch, "c")
    assert dev_env("destroy", "a", "--keep-checkpoints")[0] == 0
    assert dev_env("create", "a", "native")[0] == 0
    code, _, message = dev_env("restore", "a", "c")
    assert (code, "is the backup of a destroyed environment" in message) == (1, True), message
    assert dev_env("restore", "a", "pre-restore")[0] == 0
    assert (native / "f").read_text() == "only copy"
    assert dev_env("checkpoint", "delete", "a", "pre-restore")[0] == 0
    assert dev_env("restore", "a", "c")[0] == 0
    assert tree(native) == {}


@pytest.mark.parametrize("what", ["save", "restore"])
def test_a_kill_in_the_middle_leaves_nothing_half_made(tmp_path, what):
    """A sample of ``python -m tests.devenv.kills``, which tries each moment."""
    for moment in random.Random(what).sample(range(1, 12), 2):
        root = prepared(tmp_path / f"{moment}")
        assert tried(root, what, moment) == KILLED
        looks_whole(root, what)


INSTALLERS = {"pip": "python -m pip uninstall -qy tiny"}
"""What installs packages, with the command that removes one: pip alone, and uv as well where this machine has it."""
if shutil.which("uv"):
    INSTALLERS["uv"] = "uv pip uninstall -q tiny"


@pytest.mark.parametrize("installer", INSTALLERS)
def test_a_virtual_environment_has_again_what_its_lock_file_says(dev_env, tmp_path, monkeypatch, installer):
    if installer == "pip":
        which = shutil.which
        monkeypatch.setattr("shutil.which", lambda name, *more: None if name == "uv" else which(name, *more))
    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny.py", "")
        archive.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny-1.0.dist-info/RECORD", "")
    folder = plain_venv(dev_env, packages=[str(wheel)])
    assert dev_env("execute", "v", "command -v python; echo $VIRTUAL_ENV; python -c 'import tiny'")[:2] == (
        0,
        f"{folder}/venv/bin/python\n{folder}/venv\n",
    )
    assert dev_env("save", "v", "c")[0] == 0
    assert "tiny" in (folder / "checkpoints" / "c" / "requirements.txt").read_text()
    assert dev_env("execute", "v", f"echo > f; {INSTALLERS[installer]}")[0] == 0
    assert dev_env("execute", "v", "python -c 'import tiny'")[0] != 0
    assert dev_env("restore", "v", "c", "--no-backup")[0] == 0
    assert dev_env("execute", "v", "python -c 'import tiny'; ls")[:2] == (0, "")


def test_no_checkpoint_has_the_name_of_the_backup(dev_env, native):
    (native / "f").write_text("only copy")
    for more in ((), ("--overwrite",)):
        code, _, message = dev_env("save", "a", "pre-restore", *more)
        assert (code, "the name 'pre-restore' is reserved for the backup of a restore" in message) == (1, True), message
    assert names_of(dev_env) == []
