"""Background processes of a workspace (such as servers or builds that watch files), with their output.

Background processes end with the workspace. Their exported state is how they were started, without their variables,
which may be secret. After a restart they are listed as gone and are not started again automatically.
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
from divebook.workspaces.shell import Shell, ShellResult
from divebook.workspaces.workspace import several

KEY = "process_manager"
"""Key under which the process manager is registered as a resource of a workspace."""
MOST_CHARACTERS = 1 << 20
"""Maximum number of characters of unread output per process. The oldest lines are dropped first."""
MOST_ENDED = 50
"""Maximum number of ended processes in the list of processes."""
_LONGEST_LINE = 1 << 16
ProcessStatus: TypeAlias = Literal["running", "ended", "killed", "failed", "gone"]


class OutputLine(NamedTuple):
    """A line of output of a background process."""

    text: str
    is_error: bool
    """True if the process wrote the line to stderr."""


class _Lines:
    """Buffer of the output lines of a background process that were not read yet. When the buffer is full, the oldest
    lines are dropped.
    """

    def __init__(self) -> None:
        self._lines: deque[OutputLine] = deque()
        # Text after the last line break of each stream: the beginning of its next line.
        self._open_line = {"stdout": "", "stderr": ""}
        self._size = 0
        self.dropped = 0
        """Number of lines that were dropped unread."""

    def feed(self, stream: str, text: str) -> None:
        *complete, rest = (self._open_line[stream] + text).split("\n")
        for line in complete:
            self._add(line.removesuffix("\r"), stream)
        # Output without line breaks is split. Otherwise it would grow without limit, unread.
        while len(rest) > _LONGEST_LINE:
            self._add(rest[:_LONGEST_LINE], stream)
            rest = rest[_LONGEST_LINE:]
        self._open_line[stream] = rest

    def finish(self) -> None:
        """Add the rest of the output after the last line break as a line. Call this when the output has ended."""
        for stream, rest in self._open_line.items():
            if rest:
                self._add(rest, stream)
            self._open_line[stream] = ""

    def _add(self, line: str, stream: str) -> None:
        self._lines.append(OutputLine(line, stream == "stderr"))
        # One more for the line break, so that empty lines count too.
        self._size += len(line) + 1
        while self._size > MOST_CHARACTERS:
            self._size -= len(self._lines.popleft().text) + 1
            self.dropped += 1

    def __len__(self) -> int:
        return len(self._lines)

    def take(self, most: int | None) -> list[OutputLine]:
        count = len(self._lines) if most is None else min(most, len(self._lines))
        lines = [self._lines.popleft() for _ in range(count)]
        self._size -= sum(len(line.text) + 1 for line in lines)
        return lines


class _Input:
    """Queue for the input of a background process. Input can be written to it at any time, and the process gets it in
    order.
    """

    def __init__(self) -> None:
        # None ends the input.
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()

    def write(self, data: bytes | None) -> None:
        self._queue.put_nowait(data)

    async def pieces(self) -> AsyncIterator[bytes]:
        while (piece := await self._queue.get()) is not None:
            yield piece


class BackgroundProcess:
    """A command that runs in the background of a workspace, with its unread output.

    Parameters
    ----------
    process_id
        Id of the process in the workspace.
    command
        The program with its arguments.
    cwd
        Working folder; None for the folder of the workspace.
    status
        Initial status.
    takes_input
        True to allow input while the process runs. Otherwise the input is empty.
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
        """Process id in the system where the workspace runs its commands; None before the start."""
        self.error: str | None = None
        """Reason why the process could not be started; None if it could."""
        self.result: ShellResult | None = None
        """Result of the command with the files of long output; None while it runs, or if it was killed."""
        self._lines = _Lines()
        self._is_input_closed = False
        self._task: asyncio.Task[None] | None = None
        self._has_started = asyncio.Event()
        # Set when output arrives and when the process ends.
        self._has_news = asyncio.Event()

    @property
    def is_running(self) -> bool:
        """True while the process runs."""
        return self.status == "running"

    @property
    def exit_code(self) -> int | None:
        """Exit code of the process; None while it runs, or if it was killed."""
        return None if self.result is None else self.result.exit_code

    @property
    def dropped_lines(self) -> int:
        """Number of output lines that were dropped before anyone read them, because the buffer was full."""
        return self._lines.dropped

    async def wait(self) -> BackgroundProcess:
        """Wait until the process has ended; return this object."""
        if self._task is not None:
            await asyncio.wait([self._task])
        return self

    async def start_process(self, shell: Shell, env: Mapping[str, str] | None) -> None:
        """Start the process in the shell of a workspace; return as soon as it runs. Raises the errors of
        `Shell.execute`.
        """
        self._task = asyncio.create_task(self._run(shell, env))
        # The command may also fail before it starts. Whichever comes first ends the wait.
        started = asyncio.create_task(self._has_started.wait())
        try:
            await asyncio.wait([self._task, started], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.kill()
            raise
        finally:
            started.cancel()
        # The command failed before it ran, or has already ended. In the first case its error is raised.
        if self._task.done() and not self._task.cancelled():
            self._task.result()

    async def _run(self, shell: Shell, env: Mapping[str, str] | None) -> None:
        def on_start(pid: int) -> None:
            self.pid = pid
            self._has_started.set()

        def on_output(stream: str, text: str) -> None:
            self._lines.feed(stream, text)
            self._has_news.set()

        try:
            self.result = await shell.execute(
                self.command,
                timeout=math.inf,
                env=env,
                cwd=self.cwd,
                stdin=b"" if self._input is None else self._input.pieces(),
                on_output=on_output,
                on_start=on_start,
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
            if self.is_running:  # the shell refused the arguments
                self.status = "failed"
            # The output has ended: a last line without a line feed becomes readable.
            self._lines.finish()
            self._has_news.set()

    def read_output(self, max_lines: int | None = None) -> list[OutputLine]:
        """Return the unread output lines of the process, oldest first, and mark them as read."""
        return self._lines.take(max_lines)

    async def next_output(self, seconds: float, max_lines: int | None = None) -> list[OutputLine]:
        """Return the unread output lines. If there are none, wait up to `seconds` for a line or the end of the
        process.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                # Cleared before the wait: an event that was set for lines already read must not end it.
                while self.is_running and not self._lines:
                    self._has_news.clear()
                    await self._has_news.wait()
        return self.read_output(max_lines)

    def write_input(self, text: str, *, is_last: bool = False) -> None:
        """Write text to the input of the process. With `is_last`, close the input afterwards.

        Raises
        ------
        ProcessInputError
            The process has ended, was started without input, or its input is closed.
        """
        if self._input is None:
            raise ProcessInputError(
                f"process {self.process_id!r} accepts no input; start it again with takes_input=True"
            )
        if not self.is_running:
            raise ProcessInputError(
                f"process {self.process_id!r} cannot read input, because its status is {self.status}; start it again"
            )
        if self._is_input_closed:
            raise ProcessInputError(f"the input of process {self.process_id!r} is already closed; start it again")
        if text:
            self._input.write(text.encode())
        if is_last:
            self._is_input_closed = True
            self._input.write(None)

    async def kill(self) -> bool:
        """End the process with all its descendants; return False if it had already ended."""
        if self._task is None or self._task.done():
            return False
        # The shell ends all processes of a cancelled command before its task ends.
        self._task.cancel()
        await asyncio.wait([self._task])
        return True


class ProcessManager:
    """Manager of the background processes of one workspace. It starts processes, reads their output, and ends them with
    the workspace.

    The manager is a resource of the workspace. The workspace closes its resources on exit, which ends the processes.

    Parameters
    ----------
    workspace
        Workspace of the processes; any object with a `shell`.

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
        """Start a program in the background of the workspace; return as soon as it runs.

        Parameters
        ----------
        cwd
            Working folder, in the workspace.
        env
            Variables in addition to those of the workspace.
        process_id
            Name of the process; by default ``proc-`` and eight digits.
        takes_input
            True to allow input while the process runs (`BackgroundProcess.write_input`).

        Raises
        ------
        ProcessIdError
            A running process has this id.
        PathNotAllowedError
            The program may not run in `cwd`.
        ShellExecutionError
            The program cannot be run.
        """
        name = process_id or f"proc-{uuid.uuid4().hex[:8]}"
        existing = self._processes.get(name)
        # The id of an ended process can be used again.
        if existing is not None and existing.is_running:
            raise ProcessIdError(f"process {name!r} is still running; kill it first, or choose another id")
        shell: Shell = self._workspace.shell
        process = BackgroundProcess(name, [command, *several(args, "args")], cwd, "running", takes_input=takes_input)
        # Removed first, so that a reused id moves to the end of the list.
        self._processes.pop(name, None)
        self._processes[name] = process
        try:
            await process.start_process(shell, env)
        # A command that never ran has raised an error and is not listed.
        finally:
            if process.status == "failed":
                del self._processes[name]
        self._forget()
        return process

    def _forget(self) -> None:
        """Remove the oldest ended processes from the list, so that it has at most `MOST_ENDED` ended processes."""
        # The dict is in the order of the starts, so that the oldest come first.
        ended = [each.process_id for each in self._processes.values() if not each.is_running]
        for process_id in ended[: max(0, len(ended) - MOST_ENDED)]:
            del self._processes[process_id]

    def list(self) -> list[BackgroundProcess]:
        """Return all processes that the manager knows, running and ended ones, in order of their start."""
        return [*self._processes.values()]

    def get(self, process_id: str) -> BackgroundProcess | None:
        """Return the background process with this id. Return None for an unknown id."""
        return self._processes.get(process_id)

    def read_output(self, process_id: str, max_lines: int | None = None) -> Sequence[OutputLine]:
        """Return the unread output lines of a process, oldest first, and mark them as read.

        Raises
        ------
        ProcessIdError
            The id is unknown.
        """
        return self.require(process_id).read_output(max_lines)

    def require(self, process_id: str) -> BackgroundProcess:
        """Return the background process with this id. Raise `ProcessIdError` for an unknown id."""
        process = self._processes.get(process_id)
        if process is None:
            names = ", ".join(self._processes) or "none"
            raise ProcessIdError(f"unknown process {process_id!r}; existing processes: {names}")
        return process

    async def kill(self, process_id: str) -> bool:
        """End a process with all its descendants; return False if it had already ended or the id is unknown."""
        process = self._processes.get(process_id)
        return process is not None and await process.kill()

    async def kill_all(self) -> int:
        """End all processes concurrently; return how many of them were running."""
        return sum(await asyncio.gather(*(process.kill() for process in self._processes.values())))

    # --- as a resource ---------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End all processes. Called when the workspace is left."""
        await self.kill_all()

    async def export_state(self) -> dict[str, Any]:
        """Return id, command and working folder of each running process, to be stored with the run. Environment
        variables are left out, because they may be secret.
        """
        return {
            "processes": [
                {"process_id": each.process_id, "command": [*each.command], "cwd": each.cwd}
                for each in self._processes.values()
                if each.is_running
            ]
        }

    async def restore_state(self, state: Mapping[str, Any]) -> None:
        """Add the processes that `export_state` returned in an earlier Python process to the list, with the status
        ``gone``. They are not started again.
        """
        for entry in state.get("processes", ()):
            process = BackgroundProcess(entry["process_id"], entry["command"], entry["cwd"], "gone")
            # A process that was started since then keeps the id.
            self._processes.setdefault(process.process_id, process)

    async def get_context_instructions(self) -> str | None:
        """Return a string for agents that lists the background processes. Return None if there are none."""
        lines = [f"{each.process_id} ({each.status}): {' '.join(each.command)}" for each in self._processes.values()]
        return "\n".join(lines) or None


def process_manager(workspace: Any) -> ProcessManager:
    """Return the manager of the background processes of a workspace. The first call creates the manager."""
    manager: ProcessManager | None = workspace.resources.get_typed(KEY, ProcessManager)
    if manager is None:
        manager = ProcessManager(workspace)
        workspace.resources.set(KEY, manager)
    return manager
