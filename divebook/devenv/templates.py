"""Templates of environments: those that are built in, and the person's own."""

from __future__ import annotations

import asyncio
import difflib
import json
import os
import random
import re
import stat
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Self, TypeVar

from divebook.documents.policy import KINDS, Policy
from divebook.documents.policy import resolved as references_resolved
from divebook.errors import (
    ContainerError,
    DevEnvError,
    DivebookError,
    EngineUnavailableError,
    EnvironmentDeniedError,
    LimitExceededError,
    SetupError,
    ShellExecutionError,
    TemplateNotFoundError,
)
from divebook.text.passwords import looks_secret
from divebook.text.redaction import shared

# Names in a configuration's texts, ``${HOME}``, which are filled in when an environment is made.


_NAMED = re.compile(r"\$(?:\$|\{([^}]*)\})")
_DEFERRED = re.compile(r"\$\{(secret|env):([A-Za-z_][A-Za-z0-9_]*)\}")


def filled(value: Any, names: Mapping[str, str], *, place: tuple[str, ...] = ()) -> Any:
    """Return a configuration with ``${PWD}`` and the like filled in; raises `DevEnvError` for an unknown name.

    ``${secret:NAME}`` and ``${env:NAME}`` stay: they are resolved when a command runs, and are stored nowhere. The
    commands of ``init`` stay too, since they are text for a shell.
    """
    if isinstance(value, dict):
        return {key: filled(item, names, place=(*place, key)) for key, item in value.items()}
    if place[-1:] == ("init",) or not isinstance(value, list | str):
        return value
    if isinstance(value, list):
        return [filled(item, names, place=(*place, str(index))) for index, item in enumerate(value)]

    def one(match: re.Match[str]) -> str:
        if match.group() == "$$" or _DEFERRED.fullmatch(match.group()):
            return match.group()  # `at_start` takes one dollar of two away, once nothing is left to fill in
        if match[1] not in names:
            known = ", ".join(f"${{{name}}}" for name in (*sorted(names), "env:NAME", "secret:NAME"))
            raise DevEnvError(
                f"{'.'.join(place)}: ${{{match[1]}}} is not known; known are {known}, and $$ for a dollar"
            )
        return names[match[1]].replace("$", "$$")

    return _NAMED.sub(one, value)


def is_secret(text: str) -> bool:
    """Return whether a text names a secret."""
    return any(match[1] == "secret" for match in _DEFERRED.finditer(text))


def at_start(text: str, secrets: Path) -> str:
    """Return a text as a command gets it; raises `DevEnvError` for a variable or secret that is not there.

    Parameters
    ----------
    secrets
        The folder with a file for each secret; one that has none is looked for among the variables of this process.
        Both are hidden from then on in what is printed.
    """

    def one(match: re.Match[str]) -> str:
        if match.group() == "$$":
            return "$"
        found = _DEFERRED.fullmatch(match.group())
        if found is None:  # it was filled in when the environment was made
            return match.group()
        file = secrets / found[2]
        is_file = found[1] == "secret" and file.is_file()
        try:
            value: str = references_resolved(f"file://{file}" if is_file else f"env://{found[2]}", Policy(*KINDS))
        except SetupError as error:
            way = f", or write it into {file}" if found[1] == "secret" else ""
            raise DevEnvError(f"{match.group()}: {error}{way}") from error
        return value

    return _NAMED.sub(one, text)


# What a template may say: the schema, and the problems of one that does not keep to it.


Configuration = dict[str, Any]
"""A template as its file says it, or what came of it and those it extends."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def checked_name(name: str, what: str) -> str:
    """Return a name that may be one of a file; raises `DevEnvError` for another."""
    if _NAME.fullmatch(name) is None or ".." in name:
        raise DevEnvError(
            f"the {what} name {name!r} is not allowed: use 1 to 63 letters, digits, dots, underscores and hyphens, "
            "with a letter or digit first and no two dots in a row"
        )
    return name


@cache
def _validator() -> Any:
    # It takes a second to import, and most commands need none.
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads((files(__package__) / "config.schema.json").read_text("utf-8")))


def check(configuration: Configuration, name: str) -> None:
    """Check a configuration after inheritance; raises `DevEnvError` with every problem and its place."""
    found = sorted(_validator().iter_errors(configuration), key=lambda error: [str(part) for part in error.path])
    if found:
        told = "\n".join(f"  {_place(error)}: {error.message}{_hint(error)}" for error in found)
        raise DevEnvError(f"the template {name!r} is not valid:\n{told}")


def _place(error: Any) -> str:
    return ".".join(str(part) for part in error.absolute_path) or "(the template)"


def _hint(error: Any) -> str:
    """Return the known key that an unknown one is close to."""
    if error.validator != "additionalProperties" or not isinstance(error.schema.get("properties"), dict):
        return ""
    known = error.schema["properties"]
    near = {key: difflib.get_close_matches(key, known, 1) for key in error.instance if key not in known}
    return "".join(f" (did you mean {match[0]!r} for {key!r}?)" for key, match in near.items() if match)


def read_configuration(path: Path, name: str) -> Configuration:
    """Return the configuration of a file; raises `DevEnvError` where it cannot be read, and as `parsed`."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DevEnvError(f"the template {name!r} cannot be read from {path}: {error}") from error
    return parsed(text, name)


def parsed(text: str, name: str) -> Configuration:
    """Return the configuration of a text; raises `DevEnvError` with line and column where it is no JSON object."""
    try:
        found = json.loads(text.removeprefix("\ufeff"))
    except RecursionError as error:
        raise DevEnvError(f"the template {name!r} has lists or objects nested too deeply: write it flatter") from error
    except json.JSONDecodeError as error:
        raise DevEnvError(
            f"the template {name!r} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from error
    if not isinstance(found, dict):
        raise DevEnvError(f"the template {name!r} is a {type(found).__name__}: it must be a JSON object")
    return found


# What a template has of those that it extends: each field has its rule.


DEEPEST = 10
"""Templates in one chain."""

_OWN = ("name", "description", "category", "version", "extends")
_TOOLS = ("editors", "languages", "testing", "debugging")


def resolved(name: str, find: Callable[[str], Configuration]) -> tuple[Configuration, list[str]]:
    """Return what a template says with all that it inherits, and the names of its parents, nearest first.

    Raises `DevEnvError` for a circle or a chain that is too long; what `find` raises for a template that is not there.
    """
    chain = [find(name)]
    names = [name]
    while (parent := chain[-1].get("extends")) is not None:
        if not isinstance(parent, str):
            raise DevEnvError(f"the template {names[-1]!r}: extends must name one template, not {parent!r}")
        if parent in names:
            raise DevEnvError(f"templates extend each other in a circle: {' -> '.join([*names, parent])}")
        names.append(parent)
        if len(names) > DEEPEST:
            raise DevEnvError(f"more than {DEEPEST} templates extend each other: {' -> '.join(names)}")
        chain.append(find(parent))
    found: Configuration = {}
    for template in reversed(chain):
        found = merged(found, template)
    return found, names[1:]


def merged(parent: Configuration, child: Configuration) -> Configuration:
    """Return what a child says with what it inherits; the schema is checked on the result, not here."""
    inherited = {key: value for key, value in parent.items() if key not in _OWN}
    return _mapping(inherited, child, ())


def _mapping(parent: Mapping[str, Any], child: Mapping[str, Any], place: tuple[str, ...]) -> dict[str, Any]:
    found = dict(parent)
    for key, value in child.items():
        found[key] = _value(found.get(key), value, (*place, key))
    if place[-1:] == ("env",):  # null takes away what was inherited
        return {key: value for key, value in found.items() if value is not None}
    return found


def _value(parent: Any, child: Any, place: tuple[str, ...]) -> Any:
    if isinstance(child, Mapping):
        if set(child) == {"$replace"}:
            return child["$replace"]
        return _mapping(parent if isinstance(parent, Mapping) else {}, child, place)
    if not isinstance(child, list) or not isinstance(parent, list):
        return child
    if place[-1] == "init":
        return [*parent, *child]
    key = _key_of(place)
    return (
        child if key is None else list({**{key(item): item for item in parent}, **{key(x): x for x in child}}.values())
    )


def _key_of(place: tuple[str, ...]) -> Callable[[Any], Hashable] | None:
    """Return by what the items of a list are the same; None if the child's list replaces the parent's."""
    if place == ("tags",) or (place[0] == "tools" and place[-1] in _TOOLS):
        return str
    return {"ports": _port, "volumes": _target, "packages": _project}.get(place[-1])


def _port(text: Any) -> tuple[str, str]:
    """Return the container's port and protocol of ``127.0.0.1:8080:80/tcp``."""
    ports, _, protocol = str(text).partition("/")
    return ports.rpartition(":")[2], protocol or "tcp"


def _target(text: Any) -> str:
    """Return the container's path of ``source:target:ro``."""
    parts = re.sub(r":(ro|rw)$", "", str(text)).rpartition(":")
    return parts[2].rstrip("/") or "/"


def _project(text: Any) -> str:
    """Return the normalised project name of a requirement."""
    name = re.match(r"[A-Za-z0-9._-]+", str(text).strip())
    return re.sub(r"[-_.]+", "-", name.group()).lower() if name else str(text)


# Limits of resources: sets of them by name, and what a template's own limits come to with one.


DEFAULT = "default"
_BUILT_IN: Mapping[str, Mapping[str, Any]] = {
    "minimal": {"resource_limits": {"cpu": "0.5", "memory": "256m", "disk": "1g"}},
    DEFAULT: {"resource_limits": {"cpu": "1.0", "memory": "1024m", "disk": "10g"}},
    "standard": {"resource_limits": {"cpu": "1.0", "memory": "1024m", "disk": "10g"}},
    "high-resource": {"resource_limits": {"cpu": "4.0", "memory": "8192m", "disk": "50g"}},
}
_LIMITS = ("cpu", "memory", "disk")
_MORE = ("pids", "timeout")
_POWERS = {"b": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def profile_of(name: str, folder: Path) -> Mapping[str, Any]:
    """Return a profile, a file of the folder before one that is built in.

    It has ``resource_limits`` and perhaps ``pids``, the most processes in a container, and ``timeout``, the most
    seconds of a command. Raises `DevEnvError` for a profile that is not there, or whose file is no profile.
    """
    path = folder / f"{checked_name(name, 'profile')}.json"
    if path.is_file():
        return _read(path)
    if name not in _BUILT_IN:
        raise DevEnvError(f"there is no resource profile {name!r}; known are {', '.join(profile_names(folder))}")
    return _BUILT_IN[name]


def profile_names(folder: Path) -> list[str]:
    """Return the names of all profiles, sorted."""
    return sorted({*_BUILT_IN, *(found.stem for found in folder.glob("*.json"))})


def _read(path: Path) -> Mapping[str, Any]:
    try:
        said = json.loads(path.read_text("utf-8"))
        limits = {str(key): str(value) for key, value in said["resource_limits"].items()}
        unknown = {*(set(limits) - set(_LIMITS)), *(set(said) - {"name", "description", "resource_limits", *_MORE})}
        if unknown:
            raise ValueError(f"unknown keys {', '.join(sorted(unknown))}")  # noqa: TRY301 - told below with the file
        for key, text in limits.items():
            _require_some(key, float(text) if key == "cpu" else size_in_bytes(text))
        more = {key: _require_some(key, float(said[key])) for key in _MORE if key in said}
        return {"resource_limits": limits, **more}  # noqa: TRY300 - what is read is returned
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise DevEnvError(
            f"{path} is no profile: it needs an object 'resource_limits' of cpu, memory and disk ({error})"
        ) from error


def _require_some(key: str, number: float) -> float:
    if not number > 0:
        raise ValueError(f"{key} must be above 0, not {number:g}")
    return number


def limited(configuration: Configuration, profile: Mapping[str, Any], *, is_named: bool) -> Configuration:
    """Return a configuration with a profile's limits: a named one wins over the template's, others fill gaps."""
    own = configuration.get("resource_limits", {})
    limits = profile["resource_limits"]
    gaps = _BUILT_IN[DEFAULT]["resource_limits"]
    return {**configuration, "resource_limits": {**gaps, **own, **limits} if is_named else {**gaps, **limits, **own}}


def more_limits(profile: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits of a profile that no template has: ``pids`` and ``timeout``."""
    return {key: profile[key] for key in _MORE if key in profile}


def size_in_bytes(text: str) -> int:
    """Return the bytes of ``256m``: powers of 1024, and bytes where there is no letter."""
    letter = text[-1].lower()
    number, power = (text[:-1], _POWERS[letter]) if letter in _POWERS else (text, 0)
    return int(float(number) * 1024**power)


# What holds for all tenants of a root: who sees what, how much each tenant may have, how many checkpoints are kept.


_SUMMED: Mapping[str, Callable[[str], float]] = {"cpu": float, "memory": size_in_bytes, "disk": size_in_bytes}
_COUNTED = "environments"


def _is_quota(quota: object) -> bool:
    return isinstance(quota, dict) and all(_is_amount(name, str(amount)) for name, amount in quota.items())


def _is_amount(name: str, amount: str) -> bool:
    try:
        return (int if name == _COUNTED else _SUMMED[name])(amount) >= 0
    except (KeyError, ValueError, IndexError):
        return False


_FORMS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "hide_foreign": (lambda said: isinstance(said, bool), "true or false"),
    "owner_only": (lambda said: isinstance(said, bool), "true or false"),
    "operators": (lambda said: isinstance(said, list) and all(isinstance(one, str) for one in said), "a list of names"),
    "checkpoints": (lambda said: type(said) is int and said > 0, "a number above 0"),
    "quotas": (
        lambda said: isinstance(said, dict) and all(map(_is_quota, said.values())),
        "by tenant an object of environments, cpu, memory and disk",
    ),
}


@dataclass(frozen=True)
class RootSettings:
    """The settings of a root, from ``config/dev_env/settings.json``."""

    hide_foreign: bool = False
    """Whether environments of other tenants are told as not found."""
    owner_only: bool = False
    """Whether an environment may be used by its owner only."""
    operators: tuple[str, ...] = ()
    """Owners who may list the environments of all tenants."""
    checkpoints: int = 10
    """How many are kept of an environment; the oldest go."""
    quotas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By tenant what all its environments together may have: environments, cpu, memory, disk."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the settings of a file, which need not be there; raises `DevEnvError` for one that is none."""
        if not path.exists():
            return cls()
        try:
            said = json.loads(path.read_text("utf-8"))
            unknown = set(said) - {known.name for known in fields(cls)}
        except (OSError, ValueError, TypeError) as error:
            raise DevEnvError(f"{path} cannot be read as a JSON object: {error}") from error
        if unknown:
            known = ", ".join(found.name for found in fields(cls))
            raise DevEnvError(f"{path} has the unknown keys {', '.join(sorted(unknown))}; known are {known}")
        for name, (fits, told) in _FORMS.items():
            if name in said and not fits(said[name]):
                raise DevEnvError(f"{path}: {name} must be {told}, not {json.dumps(said[name])}")
        return cls(**said)

    def require_quota(self, tenant: str, limits: Mapping[str, str], others: Iterable[Mapping[str, str]]) -> None:
        """Raise `LimitExceededError` if a tenant has no room for one more environment beside others."""
        quota = self.quotas.get(tenant, {})
        taken = list(others)
        if _COUNTED in quota and len(taken) >= int(quota[_COUNTED]):
            raise LimitExceededError(f"the tenant {tenant!r} may have {quota[_COUNTED]} environments: destroy one")
        for name, number in _SUMMED.items():
            if name not in quota:
                continue
            wanted = sum(number(found[name]) for found in (*taken, limits) if name in found)
            if wanted > number(str(quota[name])):
                raise LimitExceededError(
                    f"the tenant {tenant!r} may have {name} {quota[name]} in all, and would have {wanted:g}: choose a "
                    "smaller resource profile, or destroy an environment"
                )


def require_host(limits: Mapping[str, str], root: Path) -> None:
    """Raise `LimitExceededError` if this machine has less than is asked for."""
    import os
    import shutil

    import psutil

    there = {
        "cpu": os.cpu_count() or 1,
        "memory": psutil.virtual_memory().total,
        "disk": shutil.disk_usage(root).total,
    }
    for name, limit in limits.items():
        if not _SUMMED[name](limit) > 0:  # an engine takes 0 for no limit
            raise LimitExceededError(f"{name} {limit} is no limit: ask for more than 0")
        if _SUMMED[name](limit) > there[name]:
            raise LimitExceededError(f"{name} {limit} is more than this machine has ({there[name]:,}): ask for less")


# Tries again what fails because somebody far away does not answer: the engine, an index of packages, a registry.


T = TypeVar("T")
ATTEMPTS, FIRST = 3, 0.5
"""Tries in all, and seconds before the second; each next wait is twice as long."""
_PASSING = ("connection", "timed out", "timeout", "temporary failure", "name resolution", "network is unreachable")
_LASTING = (FileNotFoundError, PermissionError)


def is_passing(error: DivebookError) -> bool:
    """Return whether another try may help: not where the engine is not there, or knows no such image or package."""
    if isinstance(error, EngineUnavailableError):
        return not isinstance(error.__cause__, _LASTING)
    if isinstance(error, ShellExecutionError | ContainerError):
        return any(sign in str(error).lower() for sign in _PASSING)
    return False


@dataclass
class Retrying:
    """Tries again, a little later each time."""

    told: Callable[[str], None] = lambda _: None
    """Hears why something is tried again."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random

    async def __call__(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return what some work comes to; raises what its last try did."""
        wait = FIRST
        for attempt in range(1, ATTEMPTS):
            try:
                return await work()
            except DivebookError as error:
                if not is_passing(error):
                    raise
                self.told(f"attempt {attempt} of {ATTEMPTS} failed: {error}")
            await self.sleep(wait * (0.5 + self.chance()))  # not all at once, where many wait
            wait *= 2
        return await work()


# Where the files of development environments lie below their root.


@dataclass(frozen=True, slots=True)
class Layout:
    """The folders below a root."""

    root: Path

    @property
    def environments(self) -> Path:
        """The folder of all environments."""
        return self.root / ".dev_env_state"

    @property
    def templates(self) -> Path:
        """The folder of the person's own templates."""
        return self.root / "config" / "dev_env" / "templates"

    @property
    def profiles(self) -> Path:
        """The folder of the person's own resource profiles."""
        return self.root / "config" / "dev_env" / "resources"

    @property
    def secrets(self) -> Path:
        """The folder with a file for each secret."""
        return self.root / "config" / "dev_env" / "secrets"

    @property
    def settings(self) -> Path:
        """What holds for all tenants of the root."""
        return self.root / "config" / "dev_env" / "settings.json"

    @property
    def locks(self) -> Path:
        """The folder with a lock for each name, apart from the environments, which may go while one waits."""
        return self.environments / ".locks"

    @property
    def log(self) -> Path:
        """The log of all commands."""
        return self.root / "logs" / "dev_env.log"

    @property
    def events(self) -> Path:
        """What was done, a JSON object a line."""
        return self.root / "logs" / "events.jsonl"

    @property
    def kept(self) -> Path:
        """The folder of checkpoints whose environments are gone, by tenant and name."""
        return self.environments / ".kept"

    def make(self) -> None:
        """Make the folders."""
        for folder in (self.environments, self.templates, self.profiles, self.secrets, self.log.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def require_own(self) -> None:
        """Raise `EnvironmentDeniedError` if others may change what is recorded of environments."""
        try:
            found = self.environments.stat()
        except FileNotFoundError:
            return
        if found.st_uid != os.getuid() or found.st_mode & stat.S_IWOTH:
            told = "belongs to another user" if found.st_uid != os.getuid() else "can be changed by every user"
            raise EnvironmentDeniedError(
                f"{self.environments} {told}: use another root, or chmod 700 {self.environments}"
            )

    def environment(self, name: str) -> Path:
        """Return the folder of an environment; raises `DevEnvError` for a name that is not allowed."""
        return self.environments / checked_name(name, "environment")


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a file that only its owner reads, whole or not at all."""
    passing = path.with_name(f".{path.name}.{os.getpid()}")
    opened = os.open(passing, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(opened, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    passing.replace(path)


class Templates:
    """The templates of a root.

    Parameters
    ----------
    folder
        Where the person's own lie; it need not be there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str) -> Configuration:
        """Return a template as its file says it; raises `TemplateNotFoundError`."""
        return {**read_configuration(self._require(name), name), "name": name}

    def _require(self, name: str) -> Path:
        path = self._path(checked_name(name, "template"))
        if path is None:
            known = ", ".join(sorted(self._paths()))
            raise TemplateNotFoundError(f"there is no template {name!r}; known are {known}")
        return path

    def resolved(self, name: str) -> tuple[Configuration, list[str]]:
        """Return a valid template with what it inherits, and its parents; raises `DevEnvError` for one that is not."""
        found, inherits = resolved(name, self.read)
        check(found, name)
        return found, inherits

    def listed(self, category: str | None = None) -> list[dict[str, Any]]:
        """Return what `template list` tells of each, sorted by name; of one that is none, ``error`` says why."""
        told = [self._told(name, path) for name, path in sorted(self._paths().items())]
        return [template for template in told if category in (None, template["category"])]

    def create(self, name: str, text: str, *, force: bool = False, allow_secrets: bool = False) -> str | None:
        """Keep a template of the person's own; raises `DevEnvError` if it is not valid or its name is taken.

        One that holds a secret is refused, unless that is allowed: templates are files that people pass on. Returns the
        name that its file says, if that is another one.
        """
        checked_name(name, "template")
        if name in _built_in():
            raise EnvironmentDeniedError(f"the template {name!r} is built in: choose another name, and extend it")
        path = self._path(name) or self.folder / f"{name}.json"
        taken = [known for known in self._paths() if known.lower() == name.lower()]
        if taken and not (force and path.is_file()):
            raise DevEnvError(f"there is a template {taken[0]!r}: choose another name, or replace it with --force")
        said = self.require_valid(name, text)
        secret = None if allow_secrets else _secret_in(said)
        if secret is not None:
            raise DevEnvError(
                f"{secret} of the template {name!r} looks like a secret: write ${{secret:NAME}} in its place, "
                "or --allow-plain-secrets"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(path, said)
        return own if (own := parsed(text, name).get("name", name)) != name else None

    def require_valid(self, name: str, text: str) -> Configuration:
        """Return what a text says as a template of some name; raises `DevEnvError` if it is none."""
        said = {**parsed(text, name), "name": name}
        found, _ = resolved(name, lambda wanted: said if wanted == name else self.read(wanted))
        check(found, name)
        return said

    def delete(self, name: str) -> None:
        """Delete a template of the person's own; environments made of it stay as they are."""
        path = self._require(name)
        if name in _built_in():
            raise EnvironmentDeniedError(f"the template {name!r} is built in: it cannot be deleted")
        path.unlink()

    def _told(self, name: str, path: Path) -> dict[str, Any]:
        own: Configuration = {}
        found = own
        fault = {}
        try:
            own = self.read(name)
            found, _ = resolved(name, self.read)
        except DevEnvError as error:  # the others are to be seen all the same
            fault = {"error": str(error)}
        return {
            **fault,
            "name": name,
            "description": own.get("description", ""),
            "category": own.get("category", self._category(name, path)),
            "isolation_type": found.get("isolation_type"),
            "extends": own.get("extends"),
            "source": "builtin" if name in _built_in() else "user",
            "version": own.get("version"),
            "path": str(path),
        }

    def _category(self, name: str, path: Path) -> str:
        """Return the folder in which a template lies, or what its name begins with."""
        is_below = path.is_relative_to(self.folder) and path.parent != self.folder
        return path.relative_to(self.folder).parts[0] if is_below else name.partition("-")[0]

    def _path(self, name: str) -> Path | None:
        return self._paths().get(name)

    def _paths(self) -> dict[str, Path]:
        return {**{path.stem: path for path in self.folder.rglob("*.json")}, **_built_in()}


def _secret_in(value: Any, place: tuple[str, ...] = ()) -> str | None:
    """Return the place of the first text that looks like a secret; None if there is none."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        found = (_secret_in(part, (*place, str(key))) for key, part in items)
        return next((told for told in found if told is not None), None)
    if not isinstance(value, str) or not value or "${" in value:
        return None
    looks = ("env" in place and looks_secret(place[-1])) or shared().text(value) != value
    return ".".join(place) if looks else None


def _built_in() -> dict[str, Path]:
    folder = Path(str(files(__package__) / "builtin"))
    return {path.stem: path for path in folder.glob("*.json")}
