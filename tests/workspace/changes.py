"""Random changes of files, such as programs make: by Python and by a shell."""

import mmap
import os
import shutil
import subprocess
from contextlib import suppress


def change(folder, chance):
    """Make one change below a folder, perhaps a hostile one."""
    pick = chance.choice(CHANGES)
    with suppress(OSError):
        pick(_Place(folder, chance))


class _Place:
    def __init__(self, folder, chance):
        self.folder, self.chance = str(folder), chance
        self.below = os.path.join(self.any_folder() or self.folder, f"n{chance.randrange(40)}")

    def any_folder(self):
        return self._any(lambda folders, _: folders)

    def any_file(self):
        return self._any(lambda _, files: files)

    def _any(self, which):
        found = sorted(os.path.join(at, name) for at, *names in os.walk(self.folder) for name in which(*names))
        return self.chance.choice(found) if found else None

    def plain_file(self):
        found = self.any_file()
        if found is None or os.path.islink(found):
            raise FileNotFoundError
        return found


def _sh(script, *arguments):
    subprocess.run(["sh", "-c", script, "sh", *arguments], capture_output=True, check=False)


def _new_file(at):
    with open(at.below, "wb") as file:
        file.write(at.chance.randbytes(at.chance.randrange(2000)))


def _same_size_and_time(at):
    path = at.plain_file()
    before = os.lstat(path)
    with open(path, "r+b") as file:
        file.write(at.chance.randbytes(min(10, before.st_size)))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _file_gone(at):
    os.unlink(at.any_file() or at.below)


def _folder_gone(at):
    shutil.rmtree(at.any_folder() or at.below)


def _folder_renamed(at):
    os.rename(at.any_folder() or at.below, at.below)


def _mode_of_file(at):
    os.chmod(at.plain_file(), at.chance.choice([0o600, 0o755, 0o644]))


def _mode_of_folder(at):
    os.chmod(at.any_folder() or at.below, at.chance.choice([0o700, 0o755]))


def _link(at):
    os.symlink(at.chance.choice(["..", "/etc/passwd", "gone"]), at.below)


def _deep(at):
    _sh('mkdir -p "$1/a/b/c" && echo "$2" > "$1/a/b/c/f" && mkdir "$1/a/empty"', at.below, str(at.chance.random()))


def _namesake(at):
    _sh('mv "$1" "$1.old" && mkdir "$1" && echo x > "$1/x" && rm -rf "$1.old"', at.any_folder() or at.below)


def _folder_for_file(at):
    path = at.any_file() or at.below
    os.unlink(path)
    os.mkdir(path)
    with open(os.path.join(path, "in"), "w", encoding="utf-8") as file:
        file.write("1")


def _mapped(at):
    path = at.plain_file()
    if os.path.getsize(path):
        with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            mapped[0] = at.chance.randrange(256)


def _hard_link(at):
    # Below a link the new name may lie outside, where the kernel reports no changes by it.
    if not os.path.realpath(at.below).startswith(os.path.realpath(at.folder)):
        raise FileNotFoundError
    os.link(at.plain_file(), at.below)


def _through_hard_link(at):
    _hard_link(at)
    with open(at.below, "ab") as file:
        file.write(b"more")


def _nested_git(at):
    script = 'git init -q "$1" && cd "$1" && echo "$2" > t && git add t'
    _sh(script, at.below, str(at.chance.random()))


CHANGES = (
    _new_file,
    _same_size_and_time,
    _file_gone,
    _folder_gone,
    _folder_renamed,
    _mode_of_file,
    _mode_of_folder,
    _link,
    _deep,
    _namesake,
    _folder_for_file,
    _mapped,
    _hard_link,
    _through_hard_link,
    _nested_git,
)
