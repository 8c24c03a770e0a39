"""Searches leave out what git ignores: the same files as git itself says, whatever the rules are."""

import asyncio
import random
import shutil
import subprocess

import pytest

from divebook.workspaces import agent_tools
from divebook.workspaces.files import IgnoreRules
from divebook.workspaces.local import LocalWorkspace
from tests.processor_time import processor_time_at_most

FILES = [
    "a",
    "b.log",
    "keep.log",
    "build/a",
    "build/b.log",
    "src/a",
    "src/build/x",
    "src/keep.log",
    "src/[x]",
    "src/a b",
]
FILES += ["src/deep/a.py", "src/deep/build/a", "doc/x/y/z.txt", "doc/!b", "doc/#c", "doc/d ", "node_modules/m/a.py"]


def ignored(rules, paths):
    made = IgnoreRules()
    for folder, text in rules.items():
        made.add(folder.removesuffix("!"), text, is_exclude=folder.endswith("!"))
    return [path for path in paths if made.is_ignored(path)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*.log\n!keep.log\n", ["b.log", "build/b.log"]),
        ("build/\n", ["build/a", "build/b.log", "src/build/x", "src/deep/build/a"]),
        ("/build\n", ["build/a", "build/b.log"]),
        ("build/*\n!build/a\n", ["build/b.log"]),
        ("build\n!build/a\n", ["build/a", "build/b.log", "src/build/x", "src/deep/build/a"]),
        ("doc/**/z.txt", ["doc/x/y/z.txt"]),
        (
            "src/**\n!src/a\n",
            ["src/build/x", "src/keep.log", "src/[x]", "src/a b", "src/deep/a.py", "src/deep/build/a"],
        ),
        ("\\!b\n\\#c\n\\[x\\]\na b\nd\\ \n", ["src/[x]", "src/a b", "doc/!b", "doc/#c", "doc/d "]),
        ("# a\n\n  \n", []),
        ("[a-b].log\r\n", ["b.log", "build/b.log"]),
        ("[!a-b]*.log", ["keep.log", "src/keep.log"]),
        ("[b.log\nx[\\", []),
        ("[b-a]/a\n[a-[]\n", ["a", "build/a", "src/a", "src/deep/build/a"]),
        ("src/deep\n", ["src/deep/a.py", "src/deep/build/a"]),
    ],
)
def test_rules_of_one_file(text, expected):
    assert ignored({"": text}, FILES) == expected


def test_a_nearer_file_overrides_one_further_up_and_every_file_the_excluded_ones():
    rules = {"": "*.log\n", "src": "!keep.log\n", "!": "a\n*.txt\n"}
    found = ignored(rules, FILES)
    assert found == ["a", "b.log", "keep.log", "build/a", "build/b.log", "src/a", "src/deep/build/a", "doc/x/y/z.txt"]
    assert "a" not in ignored({**rules, "": "!a\n"}, FILES)


@pytest.mark.parametrize("piece", ["*a", "**/a", "*[ab]", "*?", "a**"])
@pytest.mark.parametrize("count", [3, 30, 1000])
def test_patterns_of_many_wildcards_are_matched_in_time(piece, count):
    with processor_time_at_most(5):  # expressions of `re` would take years
        assert ignored({"": piece * count + "x"}, ["a" * 250, "a/" * 100 + "a"]) == []


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@pytest.mark.parametrize("most", [1, 8], ids=["by expressions", "of many wildcards"])
@pytest.mark.parametrize("seed", range(12))
def test_the_same_files_are_ignored_as_git_ignores(tmp_path, seed, most):
    """Rules and names of few letters, so that many match; in three files and the excluded ones."""
    chance = random.Random(seed)
    names = ["a", "b", "ab", "a.b", "!a", "#a", "a b", "[a]", "b-a"]
    pieces = [
        "a",
        "b",
        "*",
        "**",
        "?",
        "/",
        "/",
        "[ab]",
        "[!a]",
        "[^b]",
        "[a-b]",
        "[]a]",
        "[[:alpha:]]",
        "\\a",
        "\\*",
        ".",
    ]
    pieces += ["*", "**/", "/**/"] * (most - 1)
    pieces += ["!", "#", " ", "\\ ", "-", "[a", "\\"]
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    paths = {"/".join(chance.choices(names, k=chance.randrange(1, 5))) for _ in range(40)}
    paths = [path for path in sorted(paths) if not any(other.startswith(f"{path}/") for other in paths)]
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
    folders = sorted({path.rpartition("/")[0] for path in paths} - {""})
    for _ in range(15):
        places = {"": ".gitignore", "!": ".git/info/exclude"}
        places |= {folder: f"{folder}/.gitignore" for folder in chance.sample(folders, min(2, len(folders)))}
        rules = {}
        for folder, file in places.items():
            lines = [
                "".join(chance.choices(pieces, k=chance.randrange(1, 5 + most))) for _ in range(chance.randrange(4))
            ]
            lines = [chance.choice(["", "", "!"]) + line + chance.choice(["", "/", " ", "\r"]) for line in lines]
            rules[folder] = "\n".join(lines)
            (tmp_path / file).write_bytes(rules[folder].encode())
        asked = subprocess.run(
            ["git", "-c", "core.excludesFile=/dev/null", "check-ignore", "--no-index", "--stdin", "-z"],
            input="\0".join(paths),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert asked.returncode in (0, 1), asked.stderr
        assert ignored(rules, paths) == [path for path in asked.stdout.split("\0") if path], rules
        for file in places.values():
            (tmp_path / file).unlink()


# --- the tools -------------------------------------------------------------------------------------------------------


def inside(folder, work):
    async def entered():
        async with LocalWorkspace(folder) as made:
            return await work(made.file_operator)

    return asyncio.run(entered())


@pytest.fixture
def project(tmp_path):
    for path in ("app.py", "build/out.py", "src/a.py", "src/gen/b.py", ".git/x.py", "local.py", "node_modules/m/i.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("wanted = 1\n")
    (tmp_path / ".gitignore").write_text("build/\nnode_modules\n")
    (tmp_path / "src" / ".gitignore").write_text("gen/\n")
    (tmp_path / ".git" / "info").mkdir()
    (tmp_path / ".git" / "info" / "exclude").write_text("local.py\n")
    return tmp_path


@pytest.mark.parametrize("is_absolute", [False, True])
def test_glob_leaves_out_what_git_ignores_and_says_so(project, is_absolute):
    begin = f"{project}/" if is_absolute else ""
    found = inside(project, lambda files: agent_tools.glob(files, f"{begin}**/*.py"))
    assert sorted(found["files"]) == [f"{begin}app.py", f"{begin}src/a.py"]
    assert found["gitignore_excluded"]["count"] == 5
    assert "include_ignored" in found["note"]
    every = inside(project, lambda files: agent_tools.glob(files, f"{begin}**/*.py", include_ignored=True))
    assert len(every) == 7
    assert inside(project, lambda files: agent_tools.glob(files, f"{begin}src/a.py")) == [f"{begin}src/a.py"]


def test_a_rule_of_folders_leaves_no_file_of_the_name_out(tmp_path):
    (tmp_path / "build").write_text("a file")
    (tmp_path / "src" / "build").mkdir(parents=True)
    (tmp_path / ".gitignore").write_text("build/\n")
    found = inside(tmp_path, lambda files: agent_tools.glob(files, "**/build"))
    assert (found["files"], found["gitignore_excluded"]["count"]) == (["build"], 1)


def test_grep_searches_nothing_that_git_ignores_unless_it_is_asked_to(project):
    found = inside(project, lambda files: agent_tools.grep(files, "wanted"))
    assert sorted(found) == ["app.py:1", "gitignore", "src/a.py:1"]
    assert found["gitignore"].endswith("excludes not searched: pass include_ignored")
    every = inside(project, lambda files: agent_tools.grep(files, "wanted", include_ignored=True))
    assert len(every) == 7
