"""Tools of agents: lines are counted as elsewhere, nothing is lost unasked, and errors name the cause."""

import asyncio

import pytest

from divebook.errors import FileOperationError, WorkspaceNotEnteredError
from divebook.workspaces import LocalWorkspace, agent_tools


def inside(folder, work):
    async def entered():
        async with LocalWorkspace(folder) as workspace:
            return await work(workspace.file_operator)

    return asyncio.run(entered())


def test_a_line_ends_where_other_programs_end_it(tmp_path):
    (tmp_path / "a.py").write_bytes(b"one\x0c\ntwo \xe2\x80\xa8 \x0b two\nthree\r\nfour\r\n")

    async def work(files):
        found = await agent_tools.grep(files, "three$")
        assert {path: told["matching_line"] for path, told in found.items()} == {"a.py:3": "three"}
        part = await agent_tools.view(files, "a.py", 2, 1)
        assert (part["content"], part["metadata"]["total_lines"]) == ("three\r\n", 4)
        assert "@@ -2,3 +2,3 @@" in await agent_tools.edit(files, "a.py", "four", "4")

    inside(tmp_path, work)


def test_a_long_file_is_seen_whole_by_going_on_where_the_last_look_ended(tmp_path):
    text = "".join(f"{number} {'x' * 990}\n" for number in range(150))
    (tmp_path / "long").write_text(text)

    async def work(files):
        seen, at = "", 0
        while at < 150:
            told = await agent_tools.view(files, "long", at)
            seen += told["content"]
            at += told["metadata"]["lines"]  # it said 150, and two thirds of them were not shown
        assert seen == text

    inside(tmp_path, work)


@pytest.mark.parametrize("act", [agent_tools.move, agent_tools.copy], ids=["move", "copy"])
def test_a_file_in_a_folder_is_not_written_over_unless_it_is_asked_for(tmp_path, act):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/a.txt").write_text("precious")
    (tmp_path / "a.txt").write_text("new")

    async def work(files):
        pairs = [{"src": "a.txt", "dst": "kept/"}]
        told = (await act(files, pairs))[0]
        assert told["message"] == "kept/a.txt already exists: set overwrite to replace it"
        assert (tmp_path / "kept/a.txt").read_text() == "precious"
        assert (await act(files, pairs, overwrite=True))[0]["success"]
        assert (await act(files, [{"source": "a.txt"}]))[0]["message"] == "a pair needs both src and dst"

    inside(tmp_path, work)
    assert (tmp_path / "kept/a.txt").read_text() == "new"


def test_of_two_paths_the_one_is_named_that_is_not_there(tmp_path):
    (tmp_path / "a").write_text("x")
    (tmp_path / "d").mkdir()

    async def work(files):
        for act, source in ((files.move, "a"), (files.copy, "a"), (files.copy, "d")):
            with pytest.raises(FileOperationError, match="the parent directory of 'no/x' was not found"):
                await act(source, "no/x")
            with pytest.raises(FileOperationError, match="source not found"):
                await act("gone", "no/x")
        for act in (files.write_file, files.append_file):
            with pytest.raises(
                FileOperationError, match=r"Failed to (write|append) 'no/x': parent directory not found"
            ):
                await act("no/x", "text")

    inside(tmp_path, work)


def test_files_and_shell_that_somebody_has_kept_say_that_the_workspace_was_left(tmp_path):
    (tmp_path / "a").write_text("x")

    async def kept():
        async with LocalWorkspace(tmp_path) as workspace:
            files, shell = workspace.file_operator, workspace.shell
        for asked in (files.exists("a"), files.glob("*"), files.read_file("a"), shell.execute("true")):
            with pytest.raises(WorkspaceNotEnteredError, match="was left: enter it again"):
                await asked  # it said that there is no file, and ran the command

    asyncio.run(kept())


def test_an_expression_that_takes_for_ever_ends_and_holds_nothing_up(tmp_path):
    (tmp_path / "a.txt").write_text("begun\n" + "a" * 60 + "!\n")

    async def work(files):
        search = asyncio.ensure_future(agent_tools.grep(files, "(a|aa)+$"))
        turns = 0
        while not search.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 100  # the loop went on meanwhile
        found = await search
        assert list(found) == [agent_tools.LIMITED]
        assert "stopped at a.txt: '(a|aa)+$' took longer than 1 seconds to match" in found[agent_tools.LIMITED]
        assert "a.txt:1" in await agent_tools.grep(files, "^b.gun$")

    inside(tmp_path, work)
