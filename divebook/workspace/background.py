"""Commands of a workspace that go on while others run: a server, a build that watches; with what they print.

They end with the workspace. What is exported of them is how they were started, and not their variables, which may be
secret: after a restart they are listed as gone, and are not started again by themselves.
"""

from __future__ import annotations

import asyncio
import math
import uuid
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple, TypeAlias

from divebook.errors import ProcessIdError, ProcessInputError, WorkspaceError
from divebook.workspace.shell import Shell, ShellResult
from divebook.workspace.workspace import several

KEY = "process_manager"
"""The key of a manager among the resources of a workspace."""
MOST_CHARACTERS = 1 << 20
"""What is held of what a process prints and nobody has read."""
MOST_ENDED = 50
"""How many processes are known after they have ended."""
_LONGEST_LINE = 1 << 16
ProcessStatus: TypeAlias = Literal["running", "ended", "killed", "failed", "gone"]


class OutputLine(NamedTuple):
    """A line that a process has printed."""

    text: str
    is_error: bool
    """Whether it was printed as an error."""


class _Lines:
    """Lines that nobody has read yet, within bounds: the oldest go."""

    def __init__(self) -> None:
        self._lines: deque[OutputLine] = deque()
        self._begun = {"stdout": "", "stderr": ""}
        self._held = 0
        self.dropped = 0
        """Lines that were never read."""

    def feed(self, stream: str, text: str) -> None:
        *whole, rest = (self._begun[stream] + text).split("\n")
        for line in whole:
            self._add(line.removesuffix("\r"), stream)
        while len(rest) > _LONGEST_LINE:
            self._add(rest[:_LONGEST_LINE], stream)
            rest = rest[_LONGEST_LINE:]
        self._begun[stream] = rest

    def finish(self) -> None:
        """Take what no end of a line followed as a line."""
        for stream, rest in self._begun.items():
            if rest:
                self._add(rest, stream)
            self._begun[stream] = ""

    def _add(self, line: str, stream: str) -> None:
        self._lines.append(OutputLine(line, stream == "stderr"))
        self._held += len(line) + 1
        while self._held > MOST_CHARACTERS:
            self._held -= len(self._lines.popleft().text) + 1
            self.dropped += 1

    def __len__(self) -> int:
        return len(self._lines)

    def take(self, most: int | None) -> list[OutputLine]:
        count = len(self._lines) if most is None else min(most, len(self._lines))
        taken = [self._lines.popleft() for _ in range(count)]
        self._held -= sum(len(line.text) + 1 for line in taken)
        return taken


class _Input:
    """What a process can read, which is given to it while it runs."""

    def __init__(self) -> None:
        self._given: asyncio.Queue[bytes | None] = asyncio.Queue()

    def give(self, data: bytes | None) -> None:
        self._given.put_nowait(data)

    async def pieces(self) -> AsyncIterator[bytes]:
        while (piece := await self._given.get()) is not None:
            yield piece


class BackgroundProcess:
    """A command that goes on beside others.

    Parameters
    ----------
    process_id
        What it is called in the workspace.
    command
        The program and its arguments.
    cwd
        The folder in which it runs; None for that of the workspace.
    status
        As what it is known before it runs.
    takes_input
        Whether it is given what it can read while it runs; else it finds the end of it.
    """

    def __init__(
        self,
        process_id: str,
        command: Sequence[str],
        cwd: str | None,
        status: ProcessStatus,
        *,
        takes_input: bool = False,
    ) -> None:
        self.process_id = process_id
        self.command = tuple(command)
        self.cwd = cwd
        self._input = _Input() if takes_input else None
        self.status: ProcessStatus = status
        self.pid: int | None = None
        """The number that the system of its workspace gives it."""
        self.error: str | None = None
        """Why it could not be run."""
        self.result: ShellResult | None = None
        """How it ended, where it ended by itself, and the files with output that was long."""
        self._lines = _Lines()
        self._has_last = False
        self._task: asyncio.Task[None] | None = None
        self._has_begun = asyncio.Event()
        self._has_news = asyncio.Event()

    @property
    def is_running(self) -> bool:
        """Whether it runs."""
        return self.status == "running"

    @property
    def exit_code(self) -> int | None:
        """Its exit code, if it ended by itself."""
        return None if self.result is None else self.result.exit_code

    @property
    def dropped_lines(self) -> int:
        """How many lines were printed and are no longer held, because nobody has read them."""
        return self._lines.dropped

    async def wait(self) -> BackgroundProcess:
        """Wait until it has ended; return it."""
        if self._task is not None:
            await asyncio.wait([self._task])
        return self

    async def start(self, shell: Shell, env: Mapping[str, str] | None) -> None:
        """Begin in a shell, with further variables, and return when it runs; raises what the shell raises."""
        self._task = asyncio.create_task(self._run(shell, env))
        begun = asyncio.create_task(self._has_begun.wait())
        try:
            await asyncio.wait([self._task, begun], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.kill()
            raise
        finally:
            begun.cancel()
        if self._task.done() and not self._task.cancelled():
            self._task.result()

    async def _run(self, shell: Shell, env: Mapping[str, str] | None) -> None:
        def begin(pid: int) -> None:
            self.pid = pid
            self._has_begun.set()

        def hear(stream: str, text: str) -> None:
            self._lines.feed(stream, text)
            self._has_news.set()

        try:
            self.result = await shell.execute(
                self.command,
                timeout=math.inf,
                env=env,
                cwd=self.cwd,
                stdin=b"" if self._input is None else self._input.pieces(),
                on_output=hear,
                on_start=begin,
            )
            self.status = "ended"
        except asyncio.CancelledError:
            self.status = "killed"
            raise
        except WorkspaceError as error:
            self.status = "failed"
            self.error = str(error)
            raise
        finally:
            if self.is_running:  # what was asked for makes no sense
                self.status = "failed"
            self._lines.finish()
            self._has_news.set()

    def read_output(self, max_lines: int | None = None) -> list[OutputLine]:
        """Return the lines that it has printed and nobody has read, the oldest first; they are read then."""
        return self._lines.take(max_lines)

    async def next_output(self, seconds: float, max_lines: int | None = None) -> list[OutputLine]:
        """Return lines as `read_output`; where there are none, wait for one or for the end of the process."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                while self.is_running and not self._lines:
                    self._has_news.clear()
                    await self._has_news.wait()
        return self.read_output(max_lines)

    def write_input(self, text: str, *, is_last: bool = False) -> None:
        """Give it something to read, and with `is_last` the end of it.

        Raises
        ------
        ProcessInputError
            It does not run any more, was started without input, or was given the end of it.
        """
        if self._input is None:
            raise ProcessInputError(f"the process {self.process_id!r} takes no input: start it with takes_input")
        if not self.is_running:
            raise ProcessInputError(
                f"the process {self.process_id!r} reads no more, it is {self.status}: start it again"
            )
        if self._has_last:
            raise ProcessInputError(f"the process {self.process_id!r} was given the end of its input: start it again")
        if text:
            self._input.give(text.encode())
        if is_last:
            self._has_last = True
            self._input.give(None)

    async def kill(self) -> bool:
        """End it with all that it has started; return whether it was running."""
        if self._task is None or self._task.done():
            return False
        self._task.cancel()
        await asyncio.wait([self._task])
        return True


class ProcessManager:
    """Starts commands that go on, reads what they print, and ends them.

    It is a resource: registered with a workspace, it ends its processes when that is left.

    Parameters
    ----------
    workspace
        Where they run; anything that has a `shell`.

    Examples
    --------
    ::

        async with LocalWorkspace("project") as workspace:
            manager = process_manager(workspace)
            server = await manager.spawn("python", ["-m", "http.server"])
            ...
            manager.read_output(server.process_id)
    """

    def __init__(self, workspace: Any) -> None:
        self._workspace = workspace
        self._processes: dict[str, BackgroundProcess] = {}

    async def spawn(
        self,
        command: str,
        args: Sequence[str] = (),
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        process_id: str | None = None,
        takes_input: bool = False,
    ) -> BackgroundProcess:
        """Start a program, and return when it runs.

        Parameters
        ----------
        cwd
            Where it runs, a folder of the workspace.
        env
            Variables added to those of the workspace.
        process_id
            What it is to be called; by default ``proc-`` and eight digits.
        takes_input
            Whether it is given what it can read while it runs (`BackgroundProcess.write_input`).

        Raises
        ------
        ProcessIdError
            Another one that runs has this id.
        PathNotAllowedError
            It may not run there.
        ShellExecutionError
            It cannot be run there.
        """
        named = process_id or f"proc-{uuid.uuid4().hex[:8]}"
        known = self._processes.get(named)
        if known is not None and known.is_running:
            raise ProcessIdError(f"the process {named!r} is still running: kill it first, or give another id")
        shell: Shell = self._workspace.shell
        process = BackgroundProcess(named, [command, *several(args, "args")], cwd, "running", takes_input=takes_input)
        self._processes.pop(named, None)
        self._processes[named] = process
        try:
            await process.start(shell, env)
        finally:
            if process.status == "failed":
                del self._processes[named]
        self._forget()
        return process

    def _forget(self) -> None:
        """Forget those that ended first, if there are many."""
        ended = [each.process_id for each in self._processes.values() if not each.is_running]
        for process_id in ended[: max(0, len(ended) - MOST_ENDED)]:
            del self._processes[process_id]

    def list(self) -> list[BackgroundProcess]:
        """Return all processes that are known, in the order in which they were started."""
        return [*self._processes.values()]

    def get(self, process_id: str) -> BackgroundProcess | None:
        """Return a process; None for one that is not known."""
        return self._processes.get(process_id)

    def read_output(self, process_id: str, max_lines: int | None = None) -> Sequence[OutputLine]:
        """Return the lines that a process has printed and nobody has read, the oldest first; they are read then.

        Raises
        ------
        ProcessIdError
            No such process is known.
        """
        return self.require(process_id).read_output(max_lines)

    def require(self, process_id: str) -> BackgroundProcess:
        """Return a process; raises `ProcessIdError` for one that is not known."""
        process = self._processes.get(process_id)
        if process is None:
            known = ", ".join(self._processes) or "none"
            raise ProcessIdError(f"no process {process_id!r} is known; known: {known}")
        return process

    async def kill(self, process_id: str) -> bool:
        """End a process with all that it has started; return whether it was running."""
        process = self._processes.get(process_id)
        return process is not None and await process.kill()

    async def kill_all(self) -> int:
        """End all processes, side by side; return how many were running."""
        return sum(await asyncio.gather(*(process.kill() for process in self._processes.values())))

    # --- as a resource ---------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End all processes."""
        await self.kill_all()

    async def export_state(self) -> dict[str, Any]:
        """Return how those were started that run; not their variables, which may be secret."""
        return {
            "processes": [
                {"process_id": each.process_id, "command": [*each.command], "cwd": each.cwd}
                for each in self._processes.values()
                if each.is_running
            ]
        }

    async def restore_state(self, state: Mapping[str, Any]) -> None:
        """List those that ran as gone."""
        for told in state.get("processes", ()):
            process = BackgroundProcess(told["process_id"], told["command"], told["cwd"], "gone")
            self._processes.setdefault(process.process_id, process)

    async def get_context_instructions(self) -> str | None:
        """Return what agents are told of the processes; None if there are none."""
        lines = [f"{each.process_id} ({each.status}): {' '.join(each.command)}" for each in self._processes.values()]
        return "\n".join(lines) or None


def process_manager(workspace: Any) -> ProcessManager:
    """Return the manager of a workspace, which is made with the first question for it."""
    found: ProcessManager | None = workspace.resources.get_typed(KEY, ProcessManager)
    if found is None:
        found = ProcessManager(workspace)
        workspace.resources.set(KEY, found)
    return found
