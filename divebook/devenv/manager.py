"""Development environments: made of templates, used through workspaces, and found again by their names."""

from __future__ import annotations

import asyncio
import functools
import getpass
import json
import math
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from divebook.devenv.checkpoints import (
    CREATING,
    ERROR,
    HALF,
    REMOVING,
    RESTORING,
    RUNNING,
    STATUSES,
    STOPPED,
    WAIT,
    Environments,
    checkpoints_of,
    delete,
    finish_restoring,
    locked,
    restore,
    save,
)
from divebook.devenv.docker import MISSING, DockerIsolation, engine_version
from divebook.devenv.isolation import ADVISORY, USUAL, CommandManner, Isolation, State, copy_in, copy_out, install
from divebook.devenv.jobs import JSON, TEXT, Collected, Collection, CommandLog, Jobs, exit_code_of
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
    size_in_bytes,
)
from divebook.errors import (
    CommandFailedError,
    DevEnvError,
    DivebookError,
    EngineUnavailableError,
    EnvironmentDeniedError,
    LimitExceededError,
)
from divebook.workspace.local import LocalWorkspace
from divebook.workspace.shell import Command, Given, Listen, ShellResult

# Development environments are made: of a template with a profile, whole or not at all.


FALLBACKS = ("docker", "virtualenv", "native")
"""The kinds of isolation, in the order in which one takes the place of another."""


def _now() -> str:
    return _shown(datetime.now(UTC))


def _shown(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass
class EnvironmentMaker:
    """Makes environments, and logs what is done with them; `DevEnvManager` says what its fields are."""

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
            raise DevEnvError(f"log_format is {TEXT} or {JSON}, not {self.log_format!r}")
        self.layout = Layout(Path(self.root).resolve())
        self.templates = Templates(self.layout.templates)
        self.log = CommandLog(self.layout.log, self.layout.events, self.log_format, self.warnings, self.verbose)
        self.retrying.told = self.warn
        self._all = Environments(self.layout, self.tenant, self.owner, self.wait, self.now, self.retrying)

    def warn(self, message: str, environment: str = "") -> None:
        """Log a warning, which is told on stderr if that is wanted."""
        self.log.write("WARNING", self.now(), message, environment=environment, tenant=self.tenant)

    def configured(
        self,
        name: str,
        template: str,
        profile: str | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Configuration:
        """Return with what an environment would be made; as `create`, which makes it."""
        folder = self.layout.environment(name)
        configuration, inherits = self.templates.resolved(template)
        wanted = profile_of(profile or DEFAULT, self.layout.profiles)
        configuration = limited(configuration, wanted, is_named=profile is not None)
        for key, text in (settings or {}).items():
            configuration = merged({}, _with(configuration, key.split("."), text))
        for kind in FALLBACKS if environ else ():  # also of those that it may fall back to
            if kind in configuration:
                configuration = _with(configuration, [kind, "env"], environ)
        check(configuration, template)
        told = {**configuration, **more_limits(wanted), "name": template}
        filled_in: Configuration = filled(told, self._names(name, folder))
        return {**filled_in, "inherits": inherits}

    def _names(self, name: str, folder: Path) -> dict[str, str]:
        told = {"PWD": Path.cwd(), "HOME": Path.home(), "ENV_NAME": name, "ENV_DIR": folder, "TENANT": self.tenant}
        return {**{key: str(value) for key, value in told.items()}, "OWNER": self.owner}

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
        timeout: float = math.inf,  # noqa: ASYNC109 - it is of the commands that make it, which are ended
        expires: float | None = None,
        fallback: bool = False,
        install_tools: bool = False,
    ) -> Path:
        """Make an environment and return its folder; what was made goes again if something fails.

        Parameters
        ----------
        profile
            Limits by name, which win over those of the template; None has the limits of ``default`` fill its gaps.
        settings
            What is configured otherwise than in the template, by dotted key: ``{"docker.image": "busybox"}``.
        environ
            Variables besides those of the template.
        init
            Whether commands of ``init`` run.
        exist_ok
            Whether an environment of that name, of the same template and profile, is as good as a new one.
        keep_failed
            Whether one that could not be made stays to be looked at.
        strict_limits
            Whether it is refused where a limit cannot be enforced.
        pull
            When an image is fetched: ``never``, ``missing`` or ``always``.
        timeout
            Seconds that it may take to make it, its ``init`` commands included.
        expires
            Seconds after which `collect` removes it.
        fallback
            Whether another section of the template is used where no engine answers for containers.
        install_tools
            Whether the template's tools are installed, as far as it is known how; others are a warning.
        """
        with self._logged("create", name):
            configuration = self.configured(name, template, profile, settings=settings, environ=environ)
            if fallback:
                configuration = await self._with_what_is_there(name, configuration)
            folder = self.layout.environment(name)
            self.layout.environments.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._all.tidy()
            async with self._all.lock(name):
                if await self._is_there(name, template, profile or DEFAULT, exist_ok=exist_ok):
                    return folder
                state = self._new_state(name, template, profile or DEFAULT, configuration)
                if expires is not None:
                    state["expires_at"] = _later(state["created_at"], expires)
                isolation = self._all.isolation(folder, state, configuration)
                if isinstance(isolation, DockerIsolation):
                    isolation.pull = pull
                state |= {"enforcement": dict(isolation.enforcement)} | isolation.planned()
                if strict_limits and ADVISORY in isolation.enforcement.values():
                    loose = ", ".join(key for key, how in isolation.enforcement.items() if how == ADVISORY)
                    raise LimitExceededError(f"{loose} cannot be enforced with {state['isolation_type']}")
                await self._reserve(folder, state, configuration)
                steps = [*([self._install_tools] if install_tools else []), *([self._run_init] if init else [])]
                try:
                    await self._build(isolation, state, steps, timeout)
                except BaseException as error:
                    await self._undo(folder, state, error, keep=keep_failed)
                    raise
                state.pop("phase")
                self._all.write(folder, {**state, "status": RUNNING, "last_used": self.now()})
                self._all.adopt(folder)
                if isolation.warning is not None:
                    self.warn(isolation.warning, name)
            return folder

    async def _is_there(self, name: str, template: str, profile: str, *, exist_ok: bool) -> bool:
        """Refuse a name that is taken, unless it is wanted so; what a process that was killed left half made goes."""
        for folder in self._all.folders():
            if folder.name.lower() != name.lower():
                continue
            state = self._all.state(folder)
            if state.get("phase") in HALF or not (folder / "state.json").exists():
                await self._all.remove(folder, state)
            elif exist_ok and (state.get("template"), state.get("profile")) == (template, profile):
                self._all.found(name)
                return True
            else:
                raise DevEnvError(f"there is an environment {folder.name!r}: choose another name, or destroy it first")
        return False

    def _new_state(self, name: str, template: str, profile: str, configuration: Configuration) -> State:
        now = self.now()
        return {
            "schema_version": 1,
            "id": f"env-{secrets.token_hex(6)}",
            "name": name,
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
        """Have a folder under the name, if the host and the tenant have room for it."""
        gaps = profile_of(DEFAULT, self.layout.profiles)["resource_limits"].items()
        # What nobody has asked for is no reason to refuse it on a small machine.
        require_host(dict(state["resource_limits"].items() - gaps), self.layout.environments)
        async with locked(self.layout.environments / ".lock", "the root", wait=self.wait):
            others = [found for found in map(self._all.state, self._all.folders()) if found["tenant"] == self.tenant]
            limits = [found.get("resource_limits", {}) for found in others]
            self._all.settings.require_quota(self.tenant, state["resource_limits"], limits)
            self._all.begin(folder, configuration, state)

    async def _with_what_is_there(self, name: str, configuration: Configuration) -> Configuration:
        """Return a configuration for another kind than containers, if no engine answers and there is a section."""
        others = [kind for kind in FALLBACKS[1:] if kind in configuration]
        if configuration["isolation_type"] != FALLBACKS[0] or not others:
            return configuration
        try:
            await engine_version()
        except EngineUnavailableError as error:
            self.warn(f"{others[0]} in place of a container: {error}", name)
            return {**configuration, "isolation_type": others[0]}
        return configuration

    async def _build(
        self, isolation: Isolation, state: State, steps: Sequence[Callable[[Isolation], Awaitable[None]]], limit: float
    ) -> None:
        """Make what keeps an environment apart, and run what belongs to its making; `state` gets what is recorded."""
        try:
            async with asyncio.timeout(None if math.isinf(limit) else limit):
                state |= await isolation.build()
                for step in steps:
                    await step(isolation)
        except TimeoutError as error:
            raise CommandFailedError(f"the environment {state['name']!r} was not made within {limit:g} s") from error

    async def _install_tools(self, isolation: Isolation) -> None:
        """Install the tools of a configuration; those of which it is not known how are a warning."""
        for problem in await install(isolation, functools.partial(self._run, isolation)):
            self.warn(problem, isolation.state["name"])

    async def _run_init(self, isolation: Isolation) -> None:
        """Run the ``init`` commands up to the first that fails; its names are their variables."""
        names = self._names(isolation.state["name"], isolation.folder)
        async with isolation.workspace() as workspace:
            for command in isolation.section.get("init", ()):
                environ = {key: text for key, text in names.items() if key not in ("PWD", "HOME")}
                ended = await self._run(isolation, workspace, command, environ=environ)
                if ended.exit_code:
                    told = (ended.stderr.strip() or ended.stdout.strip())[-2000:]
                    raise CommandFailedError(f"the init command {command!r} ended with {ended.exit_code}: {told}")

    async def _undo(self, folder: Path, state: State, error: BaseException, *, keep: bool) -> None:
        """Remove what was made of an environment; what fails then does not hide why."""
        if keep:
            told = error if isinstance(error, DevEnvError) else DevEnvError(str(error))
            state.pop("phase", None)
            self._all.write(folder, self._all.error_state(state, told))
            return
        try:
            await self._all.remove(folder, state)
        except (DivebookError, OSError) as left:
            self.warn(f"what may have been made, labelled dev_env.id={state['id']}, stays: {left}", state["name"])
            self._all.forget(folder, state)

    async def _run(
        self,
        isolation: Isolation,
        workspace: LocalWorkspace,
        command: Command,
        *,
        timeout: float = math.inf,  # noqa: ASYNC109 - as of `execute`
        environ: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: str | Given = b"",
        listen: Listen | None = None,
        undecodable: str = "replace",
        manner: CommandManner = USUAL,
    ) -> ShellResult:
        return await workspace.shell.execute(
            isolation.asked(command, manner),
            timeout=timeout,
            env={**isolation.host_variables(), **isolation.variables(), **(environ or {})},
            cwd=cwd,
            inherit_env=isolation.inherits,
            stdin=stdin,
            on_output=listen,
            undecodable=undecodable,
        )

    @contextmanager
    def _logged(self, command: str, name: str, detail: str = "") -> Iterator[dict[str, Any]]:
        """Have a line in the log when something is done, or has failed."""
        began = time.monotonic()
        told = {"exit_code": 0}
        level = "INFO"
        ended = "done"
        try:
            yield told
        except BaseException as error:
            level = "ERROR"
            ended = str(error) or type(error).__name__
            told["exit_code"] = exit_code_of(error)
            raise
        finally:
            seconds = round(time.monotonic() - began, 3)
            told_of = {"command": command, "environment": name, "tenant": self.tenant, "owner": self.owner}
            text = f"{command} {detail}".rstrip()
            message = f"{text}: {ended} (exit code {told['exit_code']}, {seconds} s)"
            self.log.write(level, self.now(), message, **told_of, duration=seconds, exit_code=told["exit_code"])


def _later(time: str, seconds: float) -> str:
    return _shown(datetime.fromisoformat(time) + timedelta(seconds=seconds))


def _with(configuration: Configuration, keys: list[str], value: Any) -> Configuration:
    """Return a configuration with something else at a place; a text that is JSON is what it says."""
    key, *rest = keys
    if rest:
        return {**configuration, key: _with(configuration.get(key, {}), rest, value)}
    if isinstance(value, Mapping):
        return {**configuration, key: {**configuration.get(key, {}), **value}}
    try:
        said = json.loads(value)
    except ValueError:
        said = value
    return {**configuration, key: said if isinstance(said, list | dict | bool) else value}


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
        state = await self._seen(folder, usage=False)
        configuration = self._all.configuration(folder)
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
