"""Workspaces in workflow functions, and their definitions."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import assert_type

from divebook import Context, Environment, workflow
from divebook.definitions import WorkspaceDefinition
from divebook.workspaces import LocalWorkspace, ShellResult


@workflow(workspace="app")
async def edits(ctx: Context, text: str) -> int:
    app = ctx.workspace()
    await app.write("a.txt", text)
    assert_type(await app.read("a.txt"), str)
    names: Sequence[str] = await app.list()
    found: Sequence[str] = await app.glob("*.txt")
    result: ShellResult = await app.shell("cat a.txt", timeout="10 s", check=False)
    applied: Mapping[str, Sequence[str]] = await ctx.workspace("app").apply(["a.txt"], ask=False)
    await app.delete("a.txt")
    assert result.exit_code == 0, result.stderr
    return len(result.stdout) + len(names) - len(found) + len(applied["written"])


async def outside(folder: Path) -> str:
    async with LocalWorkspace(folder) as workspace:
        done = await workspace.shell.execute("echo hi")
        return done.stdout


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        app = WorkspaceDefinition("app", folder=folder, shell=True, environ={"LANG": "C"}, timeout="1 min")
        with Environment(store="memory:", workspaces=[app]) as environment:
            run = environment.start(edits, {"text": "hello"})
            assert run.result() == 6, run.result()
            files = run.files("app")
            changed: list[str] = [change.path for change in files.changes()]
            content: bytes = files.read("a.txt", files.changed_at[0])
            assert content == b"hello" and changed == []
