"""Looking at a folder while it changes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from divebook.workspaces.paths import Root
from divebook.workspaces.snapshots import take
from divebook.workspaces.snapshots.take import TreeScanner


class _Watch:
    """Names what it was given; a folder goes as soon as another one is watched."""

    is_lost = False

    def __init__(self, at: str, going: Path) -> None:
        self.told: dict[str, set[str]] = {}
        self._at, self._going = at, going

    def drain(self) -> dict[str, set[str]]:
        return self.told

    def sees(self, path: str) -> bool:
        return True

    def add(self, root: str, folder: str) -> None:
        if folder == self._at and self._going.exists():
            shutil.rmtree(self._going)

    def remove(self, path: str) -> None:
        """Nothing is watched."""


def test_a_folder_that_goes_after_its_new_file_was_read_is_gone_in_the_same_look(tmp_path: Path) -> None:
    (tmp_path / "A").mkdir()
    watch = _Watch("A/n", tmp_path / "a" / "c")
    scanner = TreeScanner(Root(tmp_path), lambda path, name: False, 1_000, watch)  # type: ignore[arg-type]
    scanner.scan(everything=False)
    (tmp_path / "a" / "c").mkdir(parents=True)
    (tmp_path / "a" / "c" / "f").write_text("x")
    (tmp_path / "A" / "n").mkdir()
    watch.told = {"": {"a"}, "A": {"n"}, "a": {"c"}}

    scanner.scan(everything=False)

    assert sorted(scanner.entries) == ["A", "A/n", "a"]


@pytest.mark.parametrize("slack", [-1, 1 << 62])
def test_a_folder_is_listed_again_where_names_came_or_went_or_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slack: int
) -> None:
    """What was changed within the slack of the clocks is never taken for old."""
    listed: list[int] = []
    real = os.listdir
    monkeypatch.setattr(take, "SLACK", slack)
    monkeypatch.setattr(take.os, "listdir", lambda opened: listed.append(opened) or real(opened))
    old, other = tmp_path / "old", tmp_path / "other"
    for folder in (old, other):
        folder.mkdir()
        (folder / "f").write_text(folder.name)
    scanner = TreeScanner(Root(tmp_path), lambda path, name: False, 1_000, None)

    def found() -> tuple[list[str], int]:
        listed.clear()
        scanner.scan(everything=False)
        return sorted(scanner.entries), len(listed)

    def after(change: Callable[[], object], *folders: Path) -> tuple[list[str], int]:
        """Look after a change that the clock of files has told from what was before: it ticks every few ms."""
        before = [folder.stat().st_ctime_ns for folder in folders]
        change()
        for folder, earlier in zip(folders, before, strict=True):
            while folder.stat().st_ctime_ns == earlier:
                os.utime(folder)
        return found()

    first, all_three = ["old", "old/f", "other", "other/f"], 3
    assert found() == (first, all_three)
    assert found() == (first, 0 if slack < 0 else all_three)
    grown = after((old / "new").touch, old)
    assert grown == ([*first[:2], "old/new", *first[2:]], 1 if slack < 0 else all_three)
    moved = after(lambda: (old / "new").rename(other / "new"), old, other)
    assert moved == ([*first, "other/new"], 2 if slack < 0 else all_three)
    assert after(lambda: shutil.rmtree(old), tmp_path) == (["other", "other/f", "other/new"], 1 if slack < 0 else 2)
