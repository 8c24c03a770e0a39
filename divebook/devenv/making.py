"""Development environments are made: of a template with a profile, whole or not at all."""

from __future__ import annotations

import asyncio
import functools
import getpass
import json
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from divebook.devenv.command_log import JSON, TEXT, CommandLog
from divebook.devenv.configuration import Configuration, check, checked_name
from divebook.devenv.containers import MISSING, DockerIsolation, engine_version
from divebook.devenv.environments import CREATING, ERROR, HALF, RUNNING, Environments
from divebook.devenv.exit_codes import exit_code_of
from divebook.devenv.inheriting import merged
from divebook.devenv.interpolating import filled
from divebook.devenv.isolation import ADVISORY, USUAL, CommandManner, Isolation, State
from divebook.devenv.layout import Layout
from divebook.devenv.locking import WAIT, locked
from divebook.devenv.profiles import DEFAULT, limited, more_limits, profile_of
from divebook.devenv.retrying import Retrying
from divebook.devenv.settings import require_host
from divebook.devenv.templates import Templates
from divebook.devenv.tools import install
from divebook.errors import CommandFailedError, DevEnvError, DivebookError, EngineUnavailableError, LimitExceededError
from divebook.workspace.commands.running import Given, Listen
from divebook.workspace.local import LocalWorkspace
from divebook.workspace.shell import Command, ShellResult

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
        began, told = time.monotonic(), {"exit_code": 0}
        level, ended = "INFO", "done"
        try:
            yield told
        except BaseException as error:
            level, ended = "ERROR", str(error) or type(error).__name__
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
