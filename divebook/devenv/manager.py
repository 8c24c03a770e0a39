"""Development environments: made of templates, used through workspaces, and found again by their names."""

from __future__ import annotations

import functools
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from divebook.devenv.collecting import Collected, Collection
from divebook.devenv.configuration import checked_name
from divebook.devenv.copying import copy_in, copy_out
from divebook.devenv.environments import ERROR, REMOVING, RUNNING, STATUSES, STOPPED
from divebook.devenv.isolation import CommandManner, Isolation, State
from divebook.devenv.jobs import Jobs
from divebook.devenv.making import EnvironmentMaker
from divebook.devenv.profiles import size_in_bytes
from divebook.devenv.saving import RESTORING, checkpoints_of, delete, finish_restoring, restore, save
from divebook.errors import CommandFailedError, DevEnvError, DivebookError, EnvironmentDeniedError, LimitExceededError
from divebook.workspace.commands.running import Given, Listen
from divebook.workspace.local import LocalWorkspace
from divebook.workspace.shell import Command, ShellResult

_KILLED = 137


@dataclass
class DevEnvManager(EnvironmentMaker):
    r"""The development environments below one root.

    Owner and tenant are labels, no authentication: what must be separate needs a root and an account of its own.

    Parameters
    ----------
    root
        The folder below which everything lies.
    tenant, owner
        Whose environments are made and seen.
    wait
        Seconds that another process's lock is waited for.
    log_format
        ``text`` or ``json``: how lines of ``logs/dev_env.log`` are written.
    warnings, verbose
        Whether warnings are told on stderr, and all other lines of the log.

    Examples
    --------
    >>> import asyncio, tempfile
    >>> async def tried(root):
    ...     manager = DevEnvManager(root)
    ...     await manager.create("app", "native")
    ...     said = await manager.execute("app", "echo hello")
    ...     await manager.destroy("app")
    ...     return said.stdout
    >>> with tempfile.TemporaryDirectory() as root:
    ...     asyncio.run(tried(Path(root)))
    'hello\n'
    """

    # --- using -----------------------------------------------------------------------------------------------------

    async def execute(
        self,
        name: str,
        command: Command,
        *,
        timeout: float = math.inf,  # noqa: ASYNC109 - it is of the command, which is ended when its time is up
        environ: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: str | Given = b"",
        listen: Listen | None = None,
        undecodable: str = "replace",
        start: bool = True,
        user: str | None = None,
        terminal: tuple[int, int] | None = None,
    ) -> ShellResult:
        """Run a command in an environment, which is started if it is stopped and `start` says so.

        Parameters
        ----------
        timeout
            Seconds; the resource profile may allow fewer.
        stdin, listen, undecodable
            What it can read, who hears what it prints, and what of bytes that are no UTF-8, as `Shell.execute` says.
        user
            As whom it runs in a container.
        terminal
            The rows and columns of the terminal that it finds, whose one stream is ``stdout``.

        Raises
        ------
        CommandFailedError
            The environment is broken, or stopped.
        LimitExceededError
            The environment uses more disk than it may, and the command has freed nothing; or the memory limit has ended
            the command. Beyond the disk limit commands run, but cannot write into files.
        """
        shown = command if isinstance(command, str) else " ".join(command)
        with self._logged("execute", name, shown) as told:
            isolation = await self._ready(name, start=start)
            longest = float(isolation.configuration.get("timeout", math.inf))
            before = isolation.disk()
            if before > _disk_limit(isolation):
                self.warn(f"{_over_disk(isolation, before)}: commands can remove files, but not write into them", name)
                command = _without_writes(command)
            manner = CommandManner(user, terminal)
            async with isolation.workspace(manner) as workspace:
                kills = await isolation.memory_kills(workspace)
                result = await self._run(
                    isolation,
                    workspace,
                    command,
                    timeout=min(timeout, longest),
                    environ=environ,
                    cwd=cwd,
                    stdin=stdin,
                    listen=listen,
                    undecodable=undecodable,
                    manner=manner,
                )
                is_out = result.exit_code == _KILLED and await isolation.memory_kills(workspace) > kills
            told["exit_code"] = result.exit_code
            async with self._all.held(name) as folder:
                self._all.write(folder, {**self._all.state(folder), "last_used": self.now()})
            if is_out:
                limit = isolation.configuration["resource_limits"]["memory"]
                raise LimitExceededError(f"the command was ended by the memory limit, {limit}")
            used = isolation.disk()
            if used > _disk_limit(isolation) and used >= before:
                raise LimitExceededError(f"{_over_disk(isolation, used)}: remove files")
            return result

    def detach(
        self,
        name: str,
        command: Command,
        *,
        timeout: float = math.inf,
        environ: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
    ) -> str:
        """Have a command run that goes on after this process; return the id of its job (see `jobs`)."""
        folder = self._all.found(name)
        if self._all.state(folder)["status"] == ERROR:
            raise CommandFailedError(f"the environment {name!r} is broken: restore it, or create it anew")
        who = {"root": str(self.layout.root), "tenant": self.tenant, "owner": self.owner}
        what = {"name": name, "command": command, "environ": environ, "cwd": cwd, "user": user}
        limit = {"timeout": None if math.isinf(timeout) else timeout}
        asked = {**who, "log_format": self.log_format, **what, **limit}
        return self.jobs(name).begin(asked, self.now())

    def jobs(self, name: str) -> Jobs:
        """Return the jobs of an environment."""
        return Jobs(self._all.found(name) / "jobs")

    async def copy_in(self, source: Path, name: str, target: str) -> str:
        """Copy a file or folder of this machine into an environment; return where it is there.

        Where `target` is a folder it gets below that, else that is what it is called.
        """
        with self._logged("cp", name, f"{source} {name}:{target}"):
            isolation = await self._ready(name)
            used = isolation.disk()
            if used > _disk_limit(isolation):
                raise LimitExceededError(f"{_over_disk(isolation, used)}: remove files")
            async with self._plain(name) as run:
                return await copy_in(run, source, target)

    async def copy_out(self, name: str, source: str, target: Path) -> Path:
        """Copy a file or folder of an environment to this machine; return where it is, as `copy_in` says of names."""
        with self._logged("cp", name, f"{name}:{source} {target}"):
            async with self._plain(name) as run:
                return await copy_out(run, source, target)

    @asynccontextmanager
    async def _plain(self, name: str) -> AsyncIterator[Callable[..., Awaitable[ShellResult]]]:
        """Give what runs commands in an environment that have no secrets: what they print is as it is."""
        isolation = await self._ready(name)
        async with isolation.workspace(CommandManner(has_secrets=False)) as workspace:
            yield functools.partial(self._run, isolation, workspace)

    @asynccontextmanager
    async def open(self, name: str) -> AsyncIterator[LocalWorkspace]:
        """Give an environment as a workspace: its files, and a shell with its variables."""
        isolation = await self._ready(name)
        workspace = isolation.workspace()
        async with workspace:
            yield workspace

    async def _ready(self, name: str, *, start: bool = True) -> Isolation:
        """Return an environment that runs; one whose restoring was interrupted is restored."""
        async with self._all.held(name) as folder:
            isolation = await self._whole(folder)
            status = await isolation.status()
            if status == ERROR:
                why = isolation.state.get("error", {}).get("message", "its container is gone")
                raise CommandFailedError(f"the environment {name!r} is broken: {why}; restore it, or create it anew")
            if status == STOPPED and not start:
                raise CommandFailedError(f"the environment {name!r} is stopped: dev_env start {name}")
            if status == STOPPED:
                await isolation.start()
            isolation.state = {**isolation.state, "status": RUNNING, "last_used": self.now()}
            self._all.write(folder, isolation.state)
            return isolation

    async def _whole(self, folder: Path) -> Isolation:
        """Return an environment; a restoring that was interrupted is brought to its end first."""
        state = self._all.state(folder)
        isolation = self._all.isolation(folder, state)
        if state.get("phase") == RESTORING:
            self.warn(f"restoring {state['restoring']!r} was interrupted, and is done again", folder.name)
            await finish_restoring(self._all, isolation)
        return isolation

    async def start(self, name: str) -> None:
        """Start an environment."""
        with self._logged("start", name):
            await self._ready(name)

    async def stop(self, name: str) -> None:
        """Stop an environment, and with it its commands; its next command starts it."""
        with self._logged("stop", name):
            async with self._all.held(name) as folder:
                isolation = await self._whole(folder)
                await isolation.stop()
                self._all.write(folder, {**isolation.state, "status": STOPPED})

    async def destroy(self, name: str, *, force: bool = False, keep_checkpoints: bool = False) -> None:
        """Remove an environment; folders that were there before it stay.

        Parameters
        ----------
        keep_checkpoints
            Whether its checkpoints wait for another environment of that name.
        force
            Forget it where it cannot be removed, as without an engine; what remains is told as a warning.
        """
        with self._logged("destroy", name):
            async with self._all.held(name, phases=(REMOVING,)) as folder:
                state = self._all.state(folder)
                try:
                    await self._all.remove(folder, state, keeps_checkpoints=keep_checkpoints)
                except DivebookError as error:
                    if not force:
                        raise
                    self.warn(f"containers and images labelled dev_env.id={state.get('id')} may remain: {error}", name)
                    self._all.forget(folder, state, keeps_checkpoints=keep_checkpoints)

    async def collect(self, *, idle: float | None = None, dry: bool = False) -> list[Collected]:
        """Remove what nobody needs of this tenant: environments half made or expired, containers left behind.

        Parameters
        ----------
        idle
            Seconds without a command, after which an environment is stopped.
        dry
            Whether it is only told what would be done.
        """
        with self._logged("gc", ""):
            collection = Collection(self._all, idle, dry)
            return [collected async for collected in collection.carried_out()]

    # --- looking ---------------------------------------------------------------------------------------------------

    async def list(
        self,
        status: str | None = None,
        tenant: str | None = None,
        *,
        owner: str | None = None,
        all_tenants: bool = False,
        usage: bool = False,
    ) -> list[State]:
        """Return the states of the tenant's environments, sorted by name, as they are found.

        Parameters
        ----------
        all_tenants
            Those of all tenants, which operators may see.
        usage
            Whether it is measured what each uses, which takes a moment.
        """
        if status not in (None, "all", "", *STATUSES):
            raise DevEnvError(f"there is no status {status!r}: use {', '.join(STATUSES)}, or all")
        is_operator = self.owner in self._all.settings.operators
        if (all_tenants or tenant not in (None, self.tenant)) and not is_operator:
            raise EnvironmentDeniedError(f"the environments of {tenant or 'all tenants'} are not yours to see")
        found = []
        for folder in self._all.folders():
            state = await self._seen(folder, usage=usage)
            is_wanted = all_tenants or state["tenant"] == (tenant or self.tenant)
            if is_wanted and status in (None, "all", "", state["status"]) and owner in (None, state.get("owner")):
                found.append(state)
        return found

    async def _seen(self, folder: Path, *, usage: bool) -> State:
        """Return a state with its status as it is found."""
        state = self._all.state(folder)
        if state["status"] == ERROR:
            return state
        try:
            isolation = self._all.isolation(folder, state)
            state = {**state, "status": await isolation.status()}
            return {**state, "resource_usage": (await isolation.use()).shown()} if usage else state
        except DevEnvError as error:
            return self._all.error_state(state, error)

    async def inspect(self, name: str) -> dict[str, Any]:
        """Return an environment's state with its configuration and the names of its checkpoints."""
        folder = self._all.found(name)
        names = [told["name"] for told in checkpoints_of(folder).listed()]
        state, configuration = await self._seen(folder, usage=False), self._all.configuration(folder)
        return {**state, "checkpoints": names, "config": configuration}

    async def resources(self, name: str) -> dict[str, Any]:
        """Return what an environment uses now, its limits, and how these are kept."""
        folder = self._all.found(name)
        state = self._all.state(folder)
        used = await self._all.isolation(folder, state).use()
        limits = state.get("resource_limits", {})
        return {**used.told(), "limits": limits, "enforcement": state.get("enforcement", {})}

    def events(self, name: str | None = None) -> Iterator[str]:
        """Return what was done for the tenant, in one environment or all, as lines of JSON, the oldest first."""
        return self.log.told(self.tenant, name)

    def logs(self, name: str) -> Iterator[str]:
        """Return the lines of the log about an environment, the oldest first."""
        self._all.found(name)
        return self.log.lines(name)

    # --- checkpoints -----------------------------------------------------------------------------------------------

    async def save(
        self,
        name: str,
        checkpoint: str,
        *,
        overwrite: bool = False,
        with_mounts: bool = False,
        force: bool = False,
        export: bool = False,
    ) -> Path:
        """Take a checkpoint, and return the path of its manifest; what it leaves out is a warning.

        Parameters
        ----------
        with_mounts
            Whether folders of the person's own are saved that a container sees.
        force
            Whether a folder is saved that is too large, or the home folder.
        export
            Whether the image of a container is written into a file beside it, for other machines.
        """
        with self._logged("save", name, checkpoint):
            checked_name(checkpoint, "checkpoint")
            async with self._all.held(name) as folder:
                isolation = await self._whole(folder)
                path, notes = await save(
                    self._all,
                    isolation,
                    checkpoint,
                    overwrite=overwrite,
                    with_mounts=with_mounts,
                    force=force,
                    export=export,
                )
                self._all.write(folder, {**isolation.state, "last_used": self.now()})
            for note in notes:
                self.warn(f"not saved: {note}", name)
            return path

    async def restore(self, name: str, checkpoint: str, *, backup: bool = True) -> None:
        """Have an environment as it was at a checkpoint; with a backup, until that is done."""
        with self._logged("restore", name, checkpoint):
            async with self._all.held(name) as folder:
                isolation = self._all.isolation(folder, self._all.state(folder))
                checkpoints_of(folder).read(checkpoint)
                if backup and await isolation.is_gone():
                    self.warn("its container is gone: there is nothing of which a backup could be taken", name)
                    backup = False
                await restore(self._all, isolation, checkpoint, backup=backup)

    def checkpoints(self, name: str) -> Sequence[dict[str, Any]]:
        """Return what is said of an environment's checkpoints, the oldest first."""
        return checkpoints_of(self._all.found(name)).listed()

    def checkpoint(self, name: str, checkpoint: str) -> dict[str, Any]:
        """Return what is said of a checkpoint; raises `CheckpointNotFoundError`."""
        return checkpoints_of(self._all.found(name)).read(checkpoint)

    async def delete_checkpoint(self, name: str, checkpoint: str) -> None:
        """Delete a checkpoint; raises `CheckpointNotFoundError`."""
        with self._logged("checkpoint delete", name, checkpoint):
            async with self._all.held(name) as folder:
                await delete(self._all.isolation(folder, self._all.state(folder)), checkpoint)


def _disk_limit(isolation: Isolation) -> int:
    return size_in_bytes(isolation.configuration["resource_limits"]["disk"])


def _over_disk(isolation: Isolation, used: int) -> str:
    limit = isolation.configuration["resource_limits"]["disk"]
    return f"the environment uses {used:,} bytes of disk, more than its limit, {limit}"


def _without_writes(command: Command) -> Command:
    """Return a command that runs with a limit of no bytes for each file it writes; a file can be emptied or removed."""
    words = ["/bin/sh", "-c", command] if isinstance(command, str) else command
    return ["/bin/sh", "-c", 'ulimit -f 0 && exec "$@"', "sh", *words]
