"""Manager of development environments: creates them from templates, runs commands in them, saves and removes them.

`Cleanup` removes unused environments, and `check_machine` checks whether this machine can have any.
"""

from __future__ import annotations

import asyncio
import functools
import getpass
import json
import math
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from divebook.devenv.checkpoints import (
    BACKUP,
    RESTORING,
    EnvironmentCheckpoints,
    checkpoints_of,
    delete,
    finish_restoring,
    restore,
    save,
)
from divebook.devenv.docker import IMAGE, LABEL, MISSING, DockerIsolation, engine_version
from divebook.devenv.environments import (
    CREATING,
    ERROR,
    REMOVING,
    RUNNING,
    STATUSES,
    STOPPED,
    UNFINISHED,
    WAIT,
    Environments,
    locked,
)
from divebook.devenv.isolation import (
    ADVISORY,
    DEFAULT_OPTIONS,
    CommandOptions,
    Isolation,
    State,
    available_pythons,
    copy_in,
    copy_out,
    install,
)
from divebook.devenv.jobs import JSON, TEXT, ActivityLog, CommandLog, Jobs
from divebook.devenv.templates import (
    DEFAULT,
    Configuration,
    Layout,
    Retrying,
    Templates,
    check,
    checked_name,
    filled,
    limited,
    merged,
    more_limits,
    profile_of,
    require_host,
)
from divebook.errors import (
    CommandFailedError,
    ContainerError,
    DevEnvError,
    DivebookError,
    EngineUnavailableError,
    EnvironmentDeniedError,
    LimitExceededError,
)
from divebook.text.format import json_time, parse_size, size
from divebook.workspaces.docker.engine import PersistentEngine, engine_url
from divebook.workspaces.local import LocalWorkspace
from divebook.workspaces.shell import Command, CommandInput, OutputListener, ShellResult

FALLBACKS = ("docker", "virtualenv", "native")
"""Kinds of isolation in order of preference: if one is not available, `fallback` uses the next."""
_KILLED = 137
"""Exit code of a process that was killed by SIGKILL, for example by the memory limit of its container."""


def _now() -> str:
    return json_time(datetime.now(UTC))


@dataclass
class DevEnvManager:
    r"""Manager of the development environments below one root folder: it creates and removes them, runs commands in
    them and saves checkpoints.

    Owner and tenant are labels, not authentication. To separate users, give each user a separate root folder and system
    account.

    Parameters
    ----------
    root
        Folder that contains all files of the manager.
    tenant, owner
        Labels of new environments. Only environments of this tenant are visible.
    wait
        Seconds to wait for the lock of another process.
    log_format
        ``text`` or ``json``: the format of ``logs/dev_env.log``.
    warnings, verbose
        True to print warnings, or all other lines of the log, on stderr as well.
    now
        Function that returns the current time in ISO 8601.
    retrying
        Object that retries function calls after temporary errors, such as network errors.

    Examples
    --------
    >>> import asyncio, tempfile
    >>> async def tried(root):
    ...     manager = DevEnvManager(root)
    ...     await manager.create("app", "native")
    ...     result = await manager.execute("app", "echo hello")
    ...     await manager.destroy("app")
    ...     return result.stdout
    >>> with tempfile.TemporaryDirectory() as root:
    ...     asyncio.run(tried(Path(root)))
    'hello\n'
    """

    root: Path = field(default_factory=Path.cwd)
    tenant: str = "default"
    owner: str = field(default_factory=getpass.getuser)
    wait: float = WAIT
    log_format: str = TEXT
    warnings: bool = False
    verbose: bool = False
    now: Callable[[], str] = _now
    retrying: Retrying = field(default_factory=Retrying)

    def __post_init__(self) -> None:
        checked_name(self.tenant, "tenant")
        if self.log_format not in (TEXT, JSON):
            raise DevEnvError(f"log_format must be {TEXT} or {JSON}, not {self.log_format!r}")
        self.layout = Layout(Path(self.root).resolve())
        self.templates = Templates(self.layout.templates)
        self.log = CommandLog(self.layout.log, self.layout.events, self.log_format, self.warnings, self.verbose)
        self._activity = ActivityLog(self.log, self.tenant, self.owner, self.now)
        self.retrying.notify = self._activity.warn
        self._environments = Environments(self.layout, self.tenant, self.owner, self.wait, self.now, self.retrying)

    def warn(self, message: str, environment: str = "") -> None:
        """Log a warning about an environment. It is also printed on stderr if the manager was created with
        `warnings`.
        """
        self._activity.warn(message, environment)

    # --- creation --------------------------------------------------------------------------------------------------

    def configured(
        self,
        name: str,
        template: str,
        profile: str | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Configuration:
        """Return the configuration that an environment created by `create` with the same arguments would get. Nothing
        is created.

        The configuration is built from these parts, of which later ones override earlier ones: the template with its
        parents, the profile, `settings`, `environ`. Placeholders such as ``${ENV_NAME}`` are filled in at the end, so
        that all parts may contain them.
        """
        folder = self.layout.environment(name)
        configuration, inherits = self.templates.resolved(template)
        limits = profile_of(profile or DEFAULT, self.layout.profiles)
        configuration = limited(configuration, limits, is_named=profile is not None)
        for key, text in (settings or {}).items():
            # Merged with nothing, so that ``$replace`` and null have the same effect in a setting as in a template.
            configuration = merged({}, _with(configuration, key.split("."), text))
        if environ:
            # All kinds get the variables, because `fallback` may replace one kind by another.
            for kind in FALLBACKS:
                if kind in configuration:
                    configuration = _with(configuration, [kind, "env"], environ)
        check(configuration, template)
        complete = {**configuration, **more_limits(limits), "name": template}
        names = template_names(name, folder, self.tenant, self.owner)
        result: Configuration = filled(complete, names)
        return {**result, "inherits": inherits}

    async def create(
        self,
        name: str,
        template: str,
        profile: str | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        init: bool = True,
        exist_ok: bool = False,
        keep_failed: bool = False,
        strict_limits: bool = False,
        pull: str = MISSING,
        timeout: float = math.inf,  # noqa: ASYNC109 - it limits the commands that create it, which are ended
        expires: float | None = None,
        fallback: bool = False,
        install_tools: bool = False,
    ) -> Path:
        """Create an environment and return its folder. If a step of the creation fails, everything that was created is
        removed.

        Parameters
        ----------
        profile
            Name of resource limits that override those of the template. With None, the limits of ``default`` apply
            where the template has none.
        settings
            Values that replace those of the template, by dotted key: ``{"docker.image": "busybox"}``.
        environ
            Environment variables in addition to those of the template.
        init
            True to run the commands of ``init``.
        exist_ok
            True to return an existing environment with the same name, template and profile.
        keep_failed
            True to keep an environment that could not be created, for inspection.
        strict_limits
            True to raise `LimitExceededError` if a limit cannot be enforced.
        pull
            When to fetch an image: ``never``, ``missing`` or ``always``.
        timeout
            Maximum number of seconds for the creation, including the ``init`` commands.
        expires
            Seconds after which `collect` removes the environment.
        fallback
            True to use another section of the template if no container engine responds.
        install_tools
            True to install the tools of the template. A tool without a known package causes a warning.
        """
        # Order: record the environment as "creating" first, then build it. A process that is killed in between leaves
        # a record by which the next `create`, `destroy` or `collect` finds and removes the rest.
        with self._activity.operation("create", name):
            configuration = self.configured(name, template, profile, settings=settings, environ=environ)
            if fallback:
                configuration = await self._with_available_kind(name, configuration)
            folder = self.layout.environment(name)
            self.layout.environments.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Files that a killed removal has left behind.
            self._environments.tidy()
            async with self._environments.lock(name):
                if await self._exists(name, template, profile or DEFAULT, exist_ok=exist_ok):
                    return folder
                state = self._new_state(name, template, profile or DEFAULT, configuration)
                if expires is not None:
                    state["expires_at"] = _later(state["created_at"], expires)
                isolation = self._environments.isolation(folder, state, configuration)
                if isinstance(isolation, DockerIsolation):
                    isolation.pull = pull
                # The plan is recorded before anything is built, so that the removal of an unfinished environment knows
                # about it.
                state |= {"enforcement": dict(isolation.enforcement)} | isolation.plan()
                if strict_limits:
                    _require_enforced(isolation)
                await self._reserve(folder, state, configuration)
                creation = _Creation(self._environments, self._activity, isolation, folder, state)
                try:
                    await creation.build(timeout, init=init, install_tools=install_tools)
                except BaseException as error:
                    await creation.undo(error, keep=keep_failed)
                    raise
                # Complete only from here on. Until then the phase marks the environment as unfinished.
                state.pop("phase")
                self._environments.write(folder, {**state, "status": RUNNING, "last_used": self.now()})
                self._environments.adopt_checkpoints(folder)
                if isolation.warning is not None:
                    self.warn(isolation.warning, name)
            return folder

    async def _exists(self, name: str, template: str, profile: str, *, exist_ok: bool) -> bool:
        """Return True if an environment of this name exists and `exist_ok` allows to use it. Return False if the name
        is free. Raise `DevEnvError` if the name is used by another environment.

        An unfinished environment, whose creator was killed, is removed first. Names are compared without case, because
        file systems may be case-insensitive.
        """
        for folder in self._environments.folders():
            if folder.name.lower() != name.lower():
                continue
            state = self._environments.state(folder)
            # `exist_ok` must not return an environment that was created from something else.
            is_same = (state.get("template"), state.get("profile")) == (template, profile)
            if state.get("phase") in UNFINISHED or not (folder / "state.json").exists():
                await self._environments.remove(folder, state)
            elif exist_ok and is_same:
                self._environments.folder_of(name)
                return True
            else:
                raise DevEnvError(
                    f"the environment {folder.name!r} already exists; choose another name, or destroy it first"
                )
        return False

    def _new_state(self, name: str, template: str, profile: str, configuration: Configuration) -> State:
        now = self.now()
        return {
            "schema_version": 1,
            "id": f"env-{secrets.token_hex(6)}",
            "name": name,
            # The status of an environment whose creation is killed before it is complete.
            "status": ERROR,
            "phase": CREATING,
            "isolation_type": configuration["isolation_type"],
            "created_at": now,
            "last_used": now,
            "owner": self.owner,
            "tenant": self.tenant,
            "template": template,
            "profile": profile,
            "resource_limits": configuration["resource_limits"],
        }

    async def _reserve(self, folder: Path, state: State, configuration: Configuration) -> None:
        """Create the folder of a new environment. Raise an error first if its resource limits exceed this machine or
        the quota of its tenant.
        """
        defaults = profile_of(DEFAULT, self.layout.profiles)["resource_limits"].items()
        # Default limits that nobody asked for must not be a reason to refuse a small machine.
        require_host(dict(state["resource_limits"].items() - defaults), self.layout.environments)
        # The lock of the root: two creations at once must not both use the last place of a quota.
        async with locked(self.layout.environments / ".lock", "the root folder", wait=self.wait):
            states = [self._environments.state(path) for path in self._environments.folders()]
            limits = [each.get("resource_limits", {}) for each in states if each["tenant"] == self.tenant]
            self._environments.settings.require_quota(self.tenant, state["resource_limits"], limits)
            self._environments.create_folder(folder, configuration, state)

    async def _with_available_kind(self, name: str, configuration: Configuration) -> Configuration:
        """Return a configuration that can be used on this machine. If it needs a container but no container engine
        answers, switch it to another kind of isolation that it configures, if there is one.
        """
        # The first kind needs an engine; the others can replace it.
        kinds = [kind for kind in FALLBACKS[1:] if kind in configuration]
        if configuration["isolation_type"] != FALLBACKS[0] or not kinds:
            return configuration
        try:
            await engine_version()
        except EngineUnavailableError as error:
            self.warn(f"{kinds[0]} is used instead of a container: {error}", name)
            return {**configuration, "isolation_type": kinds[0]}
        return configuration

    # --- use -------------------------------------------------------------------------------------------------------

    async def execute(
        self,
        name: str,
        command: Command,
        *,
        timeout: float = math.inf,  # noqa: ASYNC109 - it is of the command, which is ended when its time is up
        environ: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: str | CommandInput = b"",
        listen: OutputListener | None = None,
        undecodable: str = "replace",
        start: bool = True,
        user: str | None = None,
        terminal: tuple[int, int] | None = None,
    ) -> ShellResult:
        """Run a command in an environment. A stopped environment is started first, if `start` is true.

        Parameters
        ----------
        timeout
            Time limit of the command in seconds; the resource profile may set a lower limit.
        stdin, listen, undecodable
            Input, callback for output, and treatment of bytes that are not UTF-8, as in `Shell.execute`.
        user
            User of the command in a container.
        terminal
            Rows and columns of the command's terminal. Its single stream is ``stdout``. None: no terminal.

        Raises
        ------
        CommandFailedError
            The environment is broken, or is stopped and `start` is false.
        LimitExceededError
            The environment uses more disk than its limit and the command has freed nothing, or the memory limit ended
            the command. Above the disk limit, commands run but cannot write into files.
        """
        command_text = command if isinstance(command, str) else " ".join(command)
        with self._activity.operation("execute", name, command_text) as outcome:
            isolation = await self._ready(name, start=start)
            longest = float(isolation.configuration.get("timeout", math.inf))
            # The limit of the disk is checked before and after: an environment over its limit must still be able to
            # delete.
            before = isolation.disk()
            if before > _disk_limit(isolation):
                self.warn(f"{_over_disk(isolation, before)}; commands can delete files, but not write files", name)
                command = _without_writes(command)
            command_options = CommandOptions(user, terminal)
            async with isolation.workspace(command_options) as workspace:
                # Any program may have sent SIGKILL. Only a higher count of the memory limit shows that the limit was
                # the reason.
                kills = await isolation.memory_kills(workspace)
                result = await run_command(
                    isolation,
                    workspace,
                    command,
                    timeout=min(timeout, longest),
                    environ=environ,
                    cwd=cwd,
                    stdin=stdin,
                    on_output=listen,
                    undecodable=undecodable,
                    command_options=command_options,
                )
                is_out = result.exit_code == _KILLED and await isolation.memory_kills(workspace) > kills
            outcome["exit_code"] = result.exit_code
            # The state is read again, since other processes may have changed it while the command ran.
            async with self._environments.hold(name) as folder:
                self._environments.write(folder, {**self._environments.state(folder), "last_used": self.now()})
            if is_out:
                limit = isolation.configuration["resource_limits"]["memory"]
                raise LimitExceededError(f"the command was ended, because it reached the memory limit of {limit}")
            used = isolation.disk()
            # A command that has freed something succeeds, even if the environment still is above its limit.
            if used > _disk_limit(isolation) and used >= before:
                raise LimitExceededError(f"{_over_disk(isolation, used)}; delete files")
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
        """Start a command in an environment as a background job, which continues after this process has ended. Return
        the id of the job.
        """
        # Fail at once for a broken environment: later errors only appear in the output of the job.
        folder = self._environments.folder_of(name)
        if self._environments.state(folder)["status"] == ERROR:
            raise CommandFailedError(
                f"the environment {name!r} is broken; restore a checkpoint, or destroy and create it again"
            )
        identity = {"root": str(self.layout.root), "tenant": self.tenant, "owner": self.owner}
        call = {"name": name, "command": command, "environ": environ, "cwd": cwd, "user": user}
        limits = {"timeout": None if math.isinf(timeout) else timeout}
        request = {**identity, "log_format": self.log_format, **call, **limits}
        return self.jobs(name).start_job(request, self.now())

    def jobs(self, name: str) -> Jobs:
        """Return the background jobs of an environment: an object that lists, reads and ends them."""
        return Jobs(self._environments.folder_of(name) / "jobs")

    async def copy_in(self, source: Path, name: str, target: str) -> str:
        """Copy a file or folder of this machine into an environment; return the path of the copy there.

        If `target` is an existing folder, the copy is placed inside it. Otherwise, `target` is the path of the copy.
        """
        with self._activity.operation("cp", name, f"{source} {name}:{target}"):
            isolation = await self._ready(name)
            used = isolation.disk()
            if used > _disk_limit(isolation):
                raise LimitExceededError(f"{_over_disk(isolation, used)}; delete files")
            async with self._without_secrets(name) as run:
                return await copy_in(run, source, target)

    async def copy_out(self, name: str, source: str, target: Path) -> Path:
        """Copy a file or folder of an environment to this machine. Return the path of the copy.

        `target` is treated as in `copy_in`.
        """
        with self._activity.operation("cp", name, f"{name}:{source} {target}"):
            async with self._without_secrets(name) as run:
                return await copy_out(run, source, target)

    @asynccontextmanager
    async def _without_secrets(self, name: str) -> AsyncIterator[Callable[..., Awaitable[ShellResult]]]:
        """Yield a function that runs commands in an environment without its secrets. Output that contains no secrets
        need not be redacted, so that files can be copied through it unchanged.
        """
        isolation = await self._ready(name)
        async with isolation.workspace(CommandOptions(has_secrets=False)) as workspace:
            yield functools.partial(run_command, isolation, workspace)

    @asynccontextmanager
    async def open(self, name: str) -> AsyncIterator[LocalWorkspace]:
        """Yield an entered workspace with the files of an environment, and a shell with its environment variables."""
        isolation = await self._ready(name)
        workspace = isolation.workspace()
        async with workspace:
            yield workspace

    async def _ready(self, name: str, *, start: bool = True) -> Isolation:
        """Prepare an environment for commands, and return its `Isolation` object. A stopped environment is started,
        unless `start` is false. An interrupted restore is completed first.
        """
        async with self._environments.hold(name) as folder:
            isolation = await self._without_interrupted_restore(folder)
            status = await isolation.status()
            if status == ERROR:
                cause = isolation.state.get("error", {}).get("message", "its container no longer exists")
                raise CommandFailedError(
                    f"the environment {name!r} is broken: {cause}; restore a checkpoint, or destroy and create it again"
                )
            if status == STOPPED and not start:
                raise CommandFailedError(f"the environment {name!r} is stopped; run `dev_env start {name}`")
            if status == STOPPED:
                await isolation.start_container()
            isolation.state = {**isolation.state, "status": RUNNING, "last_used": self.now()}
            self._environments.write(folder, isolation.state)
            return isolation

    async def _without_interrupted_restore(self, folder: Path) -> Isolation:
        """Return the `Isolation` object of an environment. If a restore of a checkpoint was interrupted, for example by
        a kill, repeat the restore first.
        """
        state = self._environments.state(folder)
        isolation = self._environments.isolation(folder, state)
        if state.get("phase") == RESTORING:
            self.warn(f"the restore of {state['restoring']!r} was interrupted, and is repeated now", folder.name)
            await finish_restoring(self._environments, isolation)
        return isolation

    async def start(self, name: str) -> None:
        """Start an environment that was stopped. If it is running, nothing happens."""
        with self._activity.operation("start", name):
            await self._ready(name)

    async def stop(self, name: str) -> None:
        """Stop an environment and all commands in it. The next command that is run in the environment starts it
        again.
        """
        with self._activity.operation("stop", name):
            async with self._environments.hold(name) as folder:
                isolation = await self._without_interrupted_restore(folder)
                await isolation.stop()
                self._environments.write(folder, {**isolation.state, "status": STOPPED})

    async def destroy(self, name: str, *, force: bool = False, keep_checkpoints: bool = False) -> None:
        """Remove an environment. Folders of the user that existed before the environment was created are kept.

        Parameters
        ----------
        keep_checkpoints
            True to keep the checkpoints for the next environment with the same name.
        force
            True to remove the record of an environment that cannot be removed itself, for example because no container
            engine responds. A warning names the parts that may remain.
        """
        with self._activity.operation("destroy", name):
            # An environment whose removal was interrupted is found too, so that the removal can be completed.
            async with self._environments.hold(name, phases=(REMOVING,)) as folder:
                state = self._environments.state(folder)
                try:
                    await self._environments.remove(folder, state, keeps_checkpoints=keep_checkpoints)
                except DivebookError as error:
                    if not force:
                        raise
                    self.warn(f"containers and images labelled dev_env.id={state.get('id')} may remain: {error}", name)
                    self._environments.forget(folder, state, keeps_checkpoints=keep_checkpoints)

    async def collect(self, *, idle: float | None = None, dry: bool = False) -> list[CleanupResult]:
        """Remove unfinished and expired environments of this tenant, and containers whose environment does not exist.
        Return what was removed.

        Parameters
        ----------
        idle
            Seconds without a command after which an environment is stopped.
        dry
            True to only report what would be done.
        """
        with self._activity.operation("gc", ""):
            cleanup = Cleanup(self._environments, idle, dry)
            return [result async for result in cleanup.run()]

    # --- inspection ------------------------------------------------------------------------------------------------

    async def list(
        self,
        status: str | None = None,
        tenant: str | None = None,
        *,
        owner: str | None = None,
        all_tenants: bool = False,
        usage: bool = False,
    ) -> list[State]:
        """Return the states of the tenant's environments with their current status, sorted by name.

        Parameters
        ----------
        all_tenants
            True to list the environments of all tenants. Only operators are allowed to do this.
        usage
            True to measure the resource usage of each environment, which takes a moment.
        """
        if status not in (None, "all", "", *STATUSES):
            raise DevEnvError(f"unknown status {status!r}; use one of {', '.join(STATUSES)}, all")
        # Filters by tenant need a permission, but a filter by owner does not: owners of a tenant see each other.
        is_operator = self.owner in self._environments.settings.operators
        if (all_tenants or tenant not in (None, self.tenant)) and not is_operator:
            raise EnvironmentDeniedError(f"only operators can list the environments of {tenant or 'all tenants'}")
        states = []
        for folder in self._environments.folders():
            state = await self._with_current_status(folder, usage=usage)
            is_visible = all_tenants or state["tenant"] == (tenant or self.tenant)
            if is_visible and status in (None, "all", "", state["status"]) and owner in (None, state.get("owner")):
                states.append(state)
        return states

    async def _with_current_status(self, folder: Path, *, usage: bool) -> State:
        """Return the recorded state of an environment, updated with its current status. With `usage`, its resource
        usage is added.
        """
        state = self._environments.state(folder)
        # An error stays recorded until a restore removes it, whatever the container does.
        if state["status"] == ERROR:
            return state
        try:
            isolation = self._environments.isolation(folder, state)
            state = {**state, "status": await isolation.status()}
            return {**state, "resource_usage": (await isolation.use()).shown()} if usage else state
        except DevEnvError as error:
            return self._environments.error_state(state, error)

    async def inspect(self, name: str) -> dict[str, Any]:
        """Return the state of an environment, with its configuration and the names of its checkpoints."""
        folder = self._environments.folder_of(name)
        names = [record["name"] for record in checkpoints_of(folder).manifests()]
        state = await self._with_current_status(folder, usage=False)
        configuration = self._environments.configuration(folder)
        return {**state, "checkpoints": names, "config": configuration}

    async def resources(self, name: str) -> dict[str, Any]:
        """Return the resource usage of an environment, its limits, and how strictly each limit is enforced."""
        folder = self._environments.folder_of(name)
        state = self._environments.state(folder)
        usage = await self._environments.isolation(folder, state).use()
        limits = state.get("resource_limits", {})
        return {**usage.as_json(), "limits": limits, "enforcement": state.get("enforcement", {})}

    def events(self, name: str | None = None) -> Iterator[str]:
        """Return the log of operations as JSON lines, oldest first. Without `name`, it contains the operations on all
        environments of this tenant.
        """
        return self.log.json_lines(self.tenant, name)

    def logs(self, name: str) -> Iterator[str]:
        """Return the lines about one environment in the log for people, oldest first."""
        self._environments.folder_of(name)
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
        """Save a checkpoint of an environment; return the path of its manifest.

        A warning names each file or folder that the checkpoint leaves out.

        Parameters
        ----------
        with_mounts
            True to save the user's folders that a container mounts.
        force
            True to save even the home folder, or a folder that is too large.
        export
            True to write the image of a container into a file of the checkpoint, for use on other machines.
        """
        with self._activity.operation("save", name, checkpoint):
            checked_name(checkpoint, "checkpoint")
            # A restore would replace it, and delete it when it is complete.
            if checkpoint == BACKUP:
                raise DevEnvError(f"the name {BACKUP!r} is reserved for the backup of a restore; choose another name")
            async with self._environments.hold(name) as folder:
                isolation = await self._without_interrupted_restore(folder)
                path, notes = await save(
                    self._environments,
                    isolation,
                    checkpoint,
                    overwrite=overwrite,
                    with_mounts=with_mounts,
                    force=force,
                    export=export,
                )
                self._environments.write(folder, {**isolation.state, "last_used": self.now()})
            for note in notes:
                self.warn(f"not saved: {note}", name)
            return path

    async def restore(self, name: str, checkpoint: str, *, backup: bool = True) -> None:
        """Restore an environment from a checkpoint: its files, and its container or installed packages.

        With `backup`, a checkpoint of the current state is saved first, and deleted when the restore has succeeded.
        """
        with self._activity.operation("restore", name, checkpoint):
            async with self._environments.hold(name) as folder:
                # An interrupted restore is not completed first: this restore replaces it.
                isolation = self._environments.isolation(folder, self._environments.state(folder))
                # An unknown checkpoint is reported before a backup is saved.
                checkpoints_of(folder).read(checkpoint)
                if backup and await isolation.is_gone():
                    self.warn("the container of the environment no longer exists, so no backup is saved", name)
                    backup = False
                await restore(self._environments, isolation, checkpoint, backup=backup)

    def checkpoints(self, name: str) -> Sequence[dict[str, Any]]:
        """Return the manifests (descriptions) of all checkpoints of an environment, oldest first."""
        return checkpoints_of(self._environments.folder_of(name)).manifests()

    def checkpoint(self, name: str, checkpoint: str) -> dict[str, Any]:
        """Return the manifest (description) of a checkpoint. Raise `CheckpointNotFoundError` if the checkpoint does not
        exist.
        """
        return checkpoints_of(self._environments.folder_of(name)).read(checkpoint)

    async def delete_checkpoint(self, name: str, checkpoint: str) -> None:
        """Delete a checkpoint of an environment. Raise `CheckpointNotFoundError` if it does not exist."""
        with self._activity.operation("checkpoint delete", name, checkpoint):
            async with self._environments.hold(name) as folder:
                # An interrupted restore still needs its checkpoint.
                isolation = await self._without_interrupted_restore(folder)
                await delete(isolation, checkpoint)


@dataclass(frozen=True)
class _Creation:
    """Creation of one environment: the steps that build it, and the removal of all of it if a step fails."""

    environments: Environments
    activity: ActivityLog
    isolation: Isolation
    folder: Path
    state: State
    """Recorded state of the environment. `build` adds the fields that the isolation returns."""

    async def build(self, limit: float, *, init: bool, install_tools: bool) -> None:
        """Create the container or other isolation of the environment, install its tools and run its ``init`` commands.
        Raise an error if this takes more than `limit` seconds.
        """
        try:
            # The time limit covers all three steps together.
            async with asyncio.timeout(None if math.isinf(limit) else limit):
                self.state.update(await self.isolation.build())
                if install_tools:
                    await self._install_tools()
                if init:
                    await self._run_init()
        except TimeoutError as error:
            raise CommandFailedError(
                f"the environment {self.state['name']!r} was not created within {limit:g} s"
            ) from error

    async def _install_tools(self) -> None:
        """Install the tools that the environment's template names. A warning is logged for each tool that cannot be
        installed.
        """
        for problem in await install(self.isolation, functools.partial(run_command, self.isolation)):
            self.activity.warn(problem, self.isolation.state["name"])

    async def _run_init(self) -> None:
        """Run the ``init`` commands of the environment's configuration in order. Raise an error at the first command
        that fails.

        The commands get the names that templates may contain, such as ``ENV_NAME``, as environment variables.
        """
        isolation = self.isolation
        name = isolation.state["name"]
        names = template_names(name, isolation.folder, self.environments.tenant, self.environments.owner)
        # PWD and HOME are those of this process. The environment has its own.
        environ = {key: text for key, text in names.items() if key not in ("PWD", "HOME")}
        async with isolation.workspace() as workspace:
            for command in isolation.section.get("init", ()):
                result = await run_command(isolation, workspace, command, environ=environ)
                if result.exit_code:
                    output = (result.stderr.strip() or result.stdout.strip())[-2000:]
                    raise CommandFailedError(
                        f"the init command {command!r} failed with exit code {result.exit_code}: {output}"
                    )

    async def undo(self, error: BaseException, *, keep: bool) -> None:
        """Remove an environment whose creation failed with `error`. If `keep` is true, do not remove it, but record
        `error` in its state.

        An error of the removal is a warning, because it must not hide `error`.
        """
        # The phase is removed, so that the environment counts as finished and can be inspected.
        if keep:
            cause = error if isinstance(error, DevEnvError) else DevEnvError(str(error))
            self.state.pop("phase", None)
            self.environments.write(self.folder, self.environments.error_state(self.state, cause))
            return
        try:
            await self.environments.remove(self.folder, self.state)
        except (DivebookError, OSError) as failure:
            label = f"dev_env.id={self.state['id']}"
            self.activity.warn(
                f"the removal failed: {failure}; containers and images with the label {label} may still exist",
                self.state["name"],
            )
            self.environments.forget(self.folder, self.state)


async def run_command(
    isolation: Isolation,
    workspace: LocalWorkspace,
    command: Command,
    *,
    timeout: float = math.inf,  # noqa: ASYNC109 - as of `execute`
    environ: Mapping[str, str] | None = None,
    cwd: str | None = None,
    stdin: str | CommandInput = b"",
    on_output: OutputListener | None = None,
    undecodable: str = "replace",
    command_options: CommandOptions = DEFAULT_OPTIONS,
) -> ShellResult:
    """Run a command in the entered workspace of an environment, with the environment's variables, and return its
    result. Parameters as in `Shell.execute`.
    """
    # The later variables win: the caller over the configuration, the configuration over this machine.
    return await workspace.shell.execute(
        isolation.command_for(command, command_options),
        timeout=timeout,
        env={**isolation.host_variables(), **isolation.variables(), **(environ or {})},
        cwd=cwd,
        inherit_env=isolation.inherits,
        stdin=stdin,
        on_output=on_output,
        undecodable=undecodable,
    )


def template_names(name: str, folder: Path, tenant: str, owner: str) -> dict[str, str]:
    """Return the values of the placeholders that templates may contain, such as ``ENV_NAME`` for ``${ENV_NAME}``."""
    return {
        "PWD": str(Path.cwd()),
        "HOME": str(Path.home()),
        "ENV_NAME": name,
        "ENV_DIR": str(folder),
        "TENANT": tenant,
        "OWNER": owner,
    }


def _with(configuration: Configuration, keys: list[str], value: Any) -> Configuration:
    """Return a copy of a configuration in which the key with the path `keys` (nested keys, outermost first) has the
    given value.

    A mapping is merged into the existing one. A string that is a JSON list, object or boolean is parsed. Other strings
    such as ``"1"`` stay strings, since versions and limits are strings.
    """
    key, *rest = keys
    if rest:
        return {**configuration, key: _with(configuration.get(key, {}), rest, value)}
    if isinstance(value, Mapping):
        return {**configuration, key: {**configuration.get(key, {}), **value}}
    try:
        parsed_value = json.loads(value)
    except ValueError:
        parsed_value = value
    return {**configuration, key: parsed_value if isinstance(parsed_value, list | dict | bool) else value}


def _require_enforced(isolation: Isolation) -> None:
    """Raise `LimitExceededError` if the environment's kind of isolation cannot enforce all resource limits."""
    advisory = [key for key, how in isolation.enforcement.items() if how == ADVISORY]
    if advisory:
        raise LimitExceededError(f"{', '.join(advisory)} cannot be enforced with {isolation.state['isolation_type']}")


def _later(time: str, seconds: float) -> str:
    return json_time(datetime.fromisoformat(time) + timedelta(seconds=seconds))


def _disk_limit(isolation: Isolation) -> int:
    return parse_size(isolation.configuration["resource_limits"]["disk"])


def _over_disk(isolation: Isolation, used: int) -> str:
    limit = isolation.configuration["resource_limits"]["disk"]
    return f"the environment uses {used:,} bytes of disk space, but its limit is {limit}"


def _without_writes(command: Command) -> Command:
    """Return a command that runs with a maximum file size of 0 bytes, for an environment that is over its disk limit:
    it can delete or empty files, but not write.
    """
    words = ["/bin/sh", "-c", command] if isinstance(command, str) else command
    return ["/bin/sh", "-c", 'ulimit -f 0 && exec "$@"', "sh", *words]


# --- maintenance: removal of unused environments, checks of the machine -----------------------------------------------

# Maintenance of environments: removal of unused ones (``gc``), and checks of this machine (``doctor``).


# --- removal of unused environments (``gc``) ---


class CleanupResult(NamedTuple):
    """An environment, container, image or network that a cleanup has removed or stopped, with the reason."""

    kind: str
    """One of ``environment``, ``container``, ``image`` and ``network``."""
    name: str
    reason: str
    """One of ``half made`` (creation or removal was interrupted), ``expired``, ``idle`` and ``left behind``."""
    done: str
    """Either ``removed`` or ``stopped``."""


@dataclass(frozen=True)
class Cleanup:
    """One cleanup of all environments of a tenant, and of their containers, images and networks.

    Removed are unfinished and expired environments, and containers, images and networks without an environment. Idle
    environments are stopped. An environment that another process has locked is skipped.
    """

    environments: Environments
    idle: float | None
    """Seconds without a command after which an environment is stopped; None to stop none."""
    is_dry: bool
    """True to report only, without removing or stopping anything."""

    async def run(self) -> AsyncIterator[CleanupResult]:
        """Remove or stop everything of the tenant that is unused. Yield a result for each removed or stopped object."""
        async for result in self._environments():
            yield result
        if not self.is_dry:
            self.environments.tidy()
        engine = PersistentEngine()
        try:
            async for result in self._of_engine(engine):
                yield result
        except EngineUnavailableError:  # there is nothing to remove without an engine
            return
        finally:
            await engine.close()

    async def _environments(self) -> AsyncIterator[CleanupResult]:
        for folder in self.environments.folders():
            if self.environments.state(folder)["tenant"] != self.environments.tenant:
                continue
            # No waiting for the lock: an environment that is in use is not idle, and its creation is not unfinished.
            with suppress(DevEnvError):  # another process works on it
                async with self.environments.lock(folder.name, wait=0):
                    # Read again under the lock: another process may have changed or removed the environment meanwhile.
                    state = self.environments.state(folder)
                    reason = await self._reason(state, folder.name) if folder.exists() else None
                    if reason is None:
                        continue
                    done = "stopped" if reason == "idle" else "removed"
                    # Idle environments are only stopped: the next command starts them again.
                    if not self.is_dry and reason == "idle":
                        await self.environments.isolation(folder, state).stop()
                        self.environments.write(folder, {**state, "status": STOPPED})
                    elif not self.is_dry:
                        await self.environments.remove(folder, state)
                    yield CleanupResult("environment", folder.name, reason, done)

    async def _reason(self, state: State, name: str) -> str | None:
        """Return the reason why an environment must be removed or stopped. Return None if it must be kept as it is."""
        # The order matters: an unfinished environment has no complete state that the later checks could read.
        now = datetime.fromisoformat(self.environments.now())
        if state.get("phase") in UNFINISHED or not (self.environments.layout.environment(name) / "state.json").exists():
            return "half made"
        if "expires_at" in state and datetime.fromisoformat(state["expires_at"]) <= now:
            return "expired"
        if self.idle is None or state["status"] != RUNNING:
            return None
        unused = (now - datetime.fromisoformat(state["last_used"])).total_seconds()
        isolation = self.environments.isolation(self.environments.layout.environment(name), state)
        is_idle = unused >= self.idle and await isolation.status() == RUNNING and not await isolation.is_busy()
        return "idle" if is_idle else None

    # --- what is left in the engine --------------------------------------------------------------------------------

    async def _of_engine(self, engine: PersistentEngine) -> AsyncIterator[CleanupResult]:
        """Remove the tenant's containers, images and networks that belong to environments that no longer exist. Yield a
        result for each.
        """
        labels = {f"{LABEL}.root": str(self.environments.layout.root), f"{LABEL}.tenant": self.environments.tenant}
        # The engine is listed before the environments. A container that is created between the two already has the
        # record of its environment, and so is not removed by mistake.
        containers = await engine.labelled(labels)
        images = await engine.labelled_images(labels)
        states = [self.environments.state(folder) for folder in self.environments.folders()]
        ids = {state.get("id") for state in states}
        for container, labels_of in containers.items():
            if labels_of.get(f"{LABEL}.id") not in ids:
                if not self.is_dry:
                    await engine.remove(container)
                yield CleanupResult("container", container[:12], "left behind", "removed")
        images_of_checkpoints = self._checkpoint_images()
        for image, labels_of in images.items():
            # Kept checkpoints of a destroyed environment have images whose environment does not exist.
            if labels_of.get(f"{LABEL}.id") not in ids and image.removeprefix("sha256:") not in images_of_checkpoints:
                if not self.is_dry:
                    with suppress(ContainerError):
                        await engine.remove_image(image)
                yield CleanupResult("image", image[:19], "left behind", "removed")
        # The network is shared by all containers of the tenant.
        if any(state.get("isolation_type", "docker") == "docker" for state in states):
            return
        for network in await engine.labelled_networks(labels):
            if not self.is_dry:
                await engine.remove_network(network)
            yield CleanupResult("network", network, "left behind", "removed")

    def _checkpoint_images(self) -> set[str]:
        """Return the digests of the container images that checkpoints of any tenant contain. Checkpoints kept from
        destroyed environments are included.
        """
        existing = [folder / "checkpoints" for folder in self.environments.folders()]
        folders = [*existing, *self.environments.layout.destroyed_checkpoints.glob("*/*")]
        checkpoints = [manifest for folder in folders for manifest in EnvironmentCheckpoints(folder).manifests()]
        artefacts = (artefact for checkpoint in checkpoints for artefact in checkpoint["artefacts"])
        return {artefact["sha256"] for artefact in artefacts if artefact["kind"] == IMAGE}


# --- checks of this machine (``doctor``) ---


_MIN_FREE_SPACE = 1 << 30
"""Free disk space in bytes below which the check of the disk fails."""


async def check_machine(layout: Layout) -> list[dict[str, Any]]:
    """Check whether this machine meets the requirements of environments: a private root folder, disk space, a container
    engine, Python versions and uv.

    Returns a dict for each check: name, ok, detail, and required (whether nothing works without it).
    """
    return [
        _check_root(layout),
        _check_permissions(layout),
        _check_disk(layout),
        await _check_engine(),
        _check_pythons(),
        _check_uv(),
    ]


def _check_result(name: str, detail: str, *, ok: bool, required: bool = False) -> dict[str, Any]:
    return {"name": name, "ok": ok, "required": required, "detail": detail}


def _check_root(layout: Layout) -> dict[str, Any]:
    is_there = layout.root.is_dir()
    is_open = os.access(layout.root, os.W_OK | os.X_OK)
    detail = f"{layout.root}" if is_there and is_open else f"{layout.root} is not a folder in which you can write"
    return _check_result("root", detail, ok=is_there and is_open, required=True)


def _check_permissions(layout: Layout) -> dict[str, Any]:
    try:
        layout.require_own()
    except EnvironmentDeniedError as error:
        return _check_result("permissions", str(error), ok=False, required=True)
    return _check_result("permissions", "only you can change the files of your environments", ok=True, required=True)


def _check_disk(layout: Layout) -> dict[str, Any]:
    if not layout.root.is_dir():
        return _check_result("disk", "the root folder does not exist", ok=False, required=True)
    usage = shutil.disk_usage(layout.root)
    return _check_result(
        "disk", f"{size(usage.free)} free of {size(usage.total)}", ok=usage.free >= _MIN_FREE_SPACE, required=True
    )


async def _check_engine() -> dict[str, Any]:
    try:
        return _check_result("engine", f"{await engine_version()} at {engine_url()}", ok=True)
    except EngineUnavailableError as error:
        return _check_result("engine", str(error), ok=False)


def _check_pythons() -> dict[str, Any]:
    versions = available_pythons()
    return _check_result("python", ", ".join(versions) or "none on the PATH", ok=bool(versions))


def _check_uv() -> dict[str, Any]:
    path = shutil.which("uv")
    return _check_result("uv", path or "not on the PATH; venv and pip are used instead", ok=path is not None)
