"""Templates of development environments (their schema, inheritance, placeholders and limits), and the settings and file
layout of a root folder.
"""

from __future__ import annotations

import asyncio
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

from divebook.definitions.step import Retry
from divebook.documents.policy import KINDS, Policy
from divebook.documents.policy import resolved as references_resolved
from divebook.documents.private_files import replace_whole
from divebook.engine.retries import pause_after
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
    nearest,
)
from divebook.text.format import parse_size
from divebook.text.passwords import looks_secret
from divebook.text.redaction import shared
from divebook.workspaces.local import project_name


class Templates:
    """All templates of environments that can be used in a root folder: the built-in ones, and the user's own files.

    Parameters
    ----------
    folder
        Folder of the user's templates, which need not exist.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str) -> Configuration:
        """Return the content of one template, not merged with the templates that it extends. Raise
        `TemplateNotFoundError` if there is none of this name.
        """
        return {**read_configuration(self._require(name), name), "name": name}

    def _require(self, name: str) -> Path:
        path = self._path(checked_name(name, "template"))
        if path is None:
            names = ", ".join(sorted(self._paths()))
            raise TemplateNotFoundError(f"there is no template {name!r}; existing templates: {names}")
        return path

    def resolved(self, name: str) -> tuple[Configuration, list[str]]:
        """Return a template merged with the templates that it extends, and the names of these. Raise `DevEnvError` if
        the result is invalid.
        """
        configuration, inherits = resolved(name, self.read)
        check(configuration, name)
        return configuration, inherits

    def summaries(self, category: str | None = None) -> list[dict[str, Any]]:
        """Return a summary of each template, sorted by name. For an invalid template, the key ``error`` has the
        reason.
        """
        summaries = [self._summary(name, path) for name, path in sorted(self._paths().items())]
        return [template for template in summaries if category in (None, template["category"])]

    def create(self, name: str, text: str, *, force: bool = False, allow_secrets: bool = False) -> str | None:
        """Store a new template of the user, given as JSON text. Raise `DevEnvError` if it is invalid or its name is in
        use.

        A template with a secret is refused unless `allow_secrets`, because templates are files that people share.
        Returns the name in the text, if it differs from `name`.
        """
        checked_name(name, "template")
        if name in _built_in():
            raise EnvironmentDeniedError(
                f"the built-in template {name!r} cannot be replaced; create a template with another name that extends "
                "it"
            )
        path = self._path(name) or self.folder / f"{name}.json"
        # File systems may be case-insensitive, so two templates must not differ in case only.
        names = [existing for existing in self._paths() if existing.lower() == name.lower()]
        if names and not (force and path.is_file()):
            raise DevEnvError(
                f"the template {names[0]!r} already exists; choose another name, or replace it with --force"
            )
        template = self.require_valid(name, text)
        secret = None if allow_secrets else _secret_in(template)
        if secret is not None:
            raise DevEnvError(
                f"{secret} of the template {name!r} looks like a secret; write ${{secret:NAME}} instead, or use "
                "--allow-plain-secrets"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(path, template)
        name_in_text: str = parsed(text, name).get("name", name)
        return name_in_text if name_in_text != name else None

    def require_valid(self, name: str, text: str) -> Configuration:
        """Parse the JSON text of the template `name` and return the template. Raise `DevEnvError` if it is invalid,
        also together with the templates that it extends.
        """
        template = {**parsed(text, name), "name": name}
        configuration, _ = resolved(name, lambda parent: template if parent == name else self.read(parent))
        check(configuration, name)
        return template

    def delete(self, name: str) -> None:
        """Delete a user's template. Environments that were created from it stay unchanged."""
        path = self._require(name)
        if name in _built_in():
            raise EnvironmentDeniedError(f"the built-in template {name!r} cannot be deleted")
        path.unlink()

    def _summary(self, name: str, path: Path) -> dict[str, Any]:
        template: Configuration = {}
        merged_template = template
        fault = {}
        try:
            template = self.read(name)
            merged_template, _ = resolved(name, self.read)
        except DevEnvError as error:  # an invalid template must not hide the others
            fault = {"error": str(error)}
        return {
            **fault,
            "name": name,
            "description": template.get("description", ""),
            "category": template.get("category", self._category(name, path)),
            "isolation_type": merged_template.get("isolation_type"),
            "extends": template.get("extends"),
            "source": "builtin" if name in _built_in() else "user",
            "version": template.get("version"),
            "path": str(path),
        }

    def _category(self, name: str, path: Path) -> str:
        """Return the category of a template that does not name one: its subfolder, or its name up to the first
        hyphen.
        """
        is_below = path.is_relative_to(self.folder) and path.parent != self.folder
        return path.relative_to(self.folder).parts[0] if is_below else name.partition("-")[0]

    def _path(self, name: str) -> Path | None:
        return self._paths().get(name)

    def _paths(self) -> dict[str, Path]:
        # Built-in templates come last: a user's file of the same name does not replace them.
        return {**{path.stem: path for path in self.folder.rglob("*.json")}, **_built_in()}


def _secret_in(value: Any, key_path: tuple[str, ...] = ()) -> str | None:
    """Return the key, such as ``docker.env.TOKEN``, of the first value in a template that looks like a secret. Return
    None if no value does.
    """
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        key_paths = (_secret_in(part, (*key_path, str(key))) for key, part in items)
        return next((path for path in key_paths if path is not None), None)
    # A value with a placeholder is not a secret itself.
    if not isinstance(value, str) or not value or "${" in value:
        return None
    # The name of a variable, or a value that the redaction of logs recognizes.
    is_suspicious = ("env" in key_path and looks_secret(key_path[-1])) or shared().text(value) != value
    return ".".join(key_path) if is_suspicious else None


def _built_in() -> dict[str, Path]:
    folder = Path(str(files(__package__) / "builtin"))
    return {path.stem: path for path in folder.glob("*.json")}


# --- names in configurations, such as ``${HOME}`` ---


# Matches "$$" and "${NAME}". A single dollar sign is text.
_PLACEHOLDER = re.compile(r"\$(?:\$|\{([^}]*)\})")
_LATE_PLACEHOLDER = re.compile(r"\$\{(secret|env):([A-Za-z_][A-Za-z0-9_]*)\}")


def filled(value: Any, names: Mapping[str, str], *, key_path: tuple[str, ...] = ()) -> Any:
    """Return a configuration with its placeholders, such as ``${PWD}``, replaced by the values in `names`. Raise
    `DevEnvError` for an unknown placeholder.

    ``${secret:NAME}`` and ``${env:NAME}`` stay: they are resolved when a command runs, and are never stored. The
    commands of ``init`` stay too, since they are text for a shell.
    """
    if isinstance(value, dict):
        return {key: filled(item, names, key_path=(*key_path, key)) for key, item in value.items()}
    if key_path[-1:] == ("init",) or not isinstance(value, list | str):
        return value
    if isinstance(value, list):
        return [filled(item, names, key_path=(*key_path, str(index))) for index, item in enumerate(value)]

    def value_of(match: re.Match[str]) -> str:
        if match.group() == "$$" or _LATE_PLACEHOLDER.fullmatch(match.group()):
            return match.group()  # `at_start` turns two dollars into one, as the last step
        if match[1] not in names:
            allowed = ", ".join(f"${{{name}}}" for name in (*sorted(names), "env:NAME", "secret:NAME"))
            raise DevEnvError(
                f"{'.'.join(key_path)}: unknown variable ${{{match[1]}}}; use one of {allowed}, or write $$ for a "
                "dollar sign"
            )
        # `at_start` later turns "$$" into "$", so that a dollar sign in the value stays one.
        return names[match[1]].replace("$", "$$")

    return _PLACEHOLDER.sub(value_of, value)


def is_secret(text: str) -> bool:
    """Return True if a text of a configuration contains the placeholder of a secret, ``${secret:NAME}``."""
    return any(match[1] == "secret" for match in _LATE_PLACEHOLDER.finditer(text))


def at_start(text: str, secrets: Path) -> str:
    """Return a text of a configuration with ``${secret:NAME}``, ``${env:NAME}`` and ``$$`` replaced. Called just before
    a command starts, so that the values are never stored.

    Raises `DevEnvError` for a missing variable or secret.

    Parameters
    ----------
    secrets
        Folder with a file for each secret. A secret without a file is looked up in the variables of this process. All
        values are redacted in output from then on.
    """

    def value_of(match: re.Match[str]) -> str:
        if match.group() == "$$":
            return "$"
        deferred = _LATE_PLACEHOLDER.fullmatch(match.group())
        if deferred is None:  # it was filled in when the environment was made
            return match.group()
        file = secrets / deferred[2]
        is_file = deferred[1] == "secret" and file.is_file()
        try:
            value: str = references_resolved(f"file://{file}" if is_file else f"env://{deferred[2]}", Policy(*KINDS))
        except SetupError as error:
            advice = f", or write the secret into {file}" if deferred[1] == "secret" else ""
            raise DevEnvError(f"{match.group()}: {error}{advice}") from error
        return value

    return _PLACEHOLDER.sub(value_of, text)


# --- schema ---


Configuration = dict[str, Any]
"""Parsed JSON object of a template, alone or merged with the templates that it extends."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def checked_name(name: str, subject: str) -> str:
    """Return `name` if it is safe as the name of a file. Otherwise raise `DevEnvError`. `subject`, such as "template",
    says in the error what the name is for.
    """
    if _NAME.fullmatch(name) is None or ".." in name:
        raise DevEnvError(
            f"the {subject} name {name!r} is not allowed; use 1 to 63 letters, digits, dots, underscores and hyphens, "
            "start with a letter or digit, and do not use two dots in a row"
        )
    return name


@cache
def _validator() -> Any:
    # It takes a second to import, and most commands need none.
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads((files(__package__) / "config.schema.json").read_text("utf-8")))


def check(configuration: Configuration, name: str) -> None:
    """Validate a configuration, merged from its templates, against the JSON schema. Raise `DevEnvError` with all
    problems if it is invalid.
    """
    # Sorted, so that the same template always gives the same message.
    errors = sorted(_validator().iter_errors(configuration), key=lambda error: [str(part) for part in error.path])
    if errors:
        text = "\n".join(f"  {_place(error)}: {error.message}{_hint(error)}" for error in errors)
        raise DevEnvError(f"the template {name!r} is not valid:\n{text}")


def _place(error: Any) -> str:
    return ".".join(str(part) for part in error.absolute_path) or "(the template)"


def _hint(error: Any) -> str:
    """Return a text "did you mean ..." for a validation error about unknown keys: it names the allowed key that is
    similar to each of them. Return an empty string if no key is similar.
    """
    if error.validator != "additionalProperties" or not isinstance(error.schema.get("properties"), dict):
        return ""
    allowed = error.schema["properties"]
    matches = {key: nearest(key, allowed) for key in error.instance if key not in allowed}
    return "".join(f" (did you mean {match!r} for {key!r}?)" for key, match in matches.items() if match)


def read_configuration(path: Path, name: str) -> Configuration:
    """Read a template from a JSON file and return it. Raise `DevEnvError` if the file cannot be read or parsed."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DevEnvError(f"the template {name!r} cannot be read from {path}: {error}") from error
    return parsed(text, name)


def parsed(text: str, name: str) -> Configuration:
    """Parse the JSON text of a template and return the template. Raise `DevEnvError` with line and column if it is not
    a JSON object.
    """
    try:
        configuration = json.loads(text.removeprefix("\ufeff"))
    except RecursionError as error:
        raise DevEnvError(f"the template {name!r} has lists or objects nested too deeply: use fewer levels") from error
    except json.JSONDecodeError as error:
        raise DevEnvError(
            f"the template {name!r} is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from error
    if not isinstance(configuration, dict):
        raise DevEnvError(f"the template {name!r} must be a JSON object, not a {type(configuration).__name__}")
    return configuration


# --- inheritance ---


DEEPEST = 10
"""Maximum length of a chain of templates that extend each other."""

# Keys that describe a template itself.
_NOT_INHERITED = ("name", "description", "category", "version", "extends")
_TOOLS = ("editors", "languages", "testing", "debugging")


def resolved(name: str, find: Callable[[str], Configuration]) -> tuple[Configuration, list[str]]:
    """Merge a template with the templates that it extends, directly and indirectly.

    Returns the merged configuration and the names of the parents, nearest first. Raises `DevEnvError` for a cycle or a
    chain that is too long. Errors of `find` for a missing template pass through.
    """
    # Follow the parents upwards, then merge downwards, so that the nearest template decides last.
    chain = [find(name)]
    names = [name]
    parent = chain[0].get("extends")
    while parent is not None:
        if not isinstance(parent, str):
            raise DevEnvError(
                f"the key extends of the template {names[-1]!r} must be the name of one template, not {parent!r}"
            )
        if parent in names:
            raise DevEnvError(f"templates extend each other in a circle: {' -> '.join([*names, parent])}")
        names.append(parent)
        if len(names) > DEEPEST:
            raise DevEnvError(
                f"a chain of templates that extend each other can have at most {DEEPEST} templates: "
                f"{' -> '.join(names)}"
            )
        chain.append(find(parent))
        parent = chain[-1].get("extends")
    result: Configuration = {}
    for template in reversed(chain):
        result = merged(result, template)
    return result, names[1:]


def merged(parent: Configuration, child: Configuration) -> Configuration:
    """Merge a template (`child`) into the template that it extends (`parent`). Return the result, which the caller must
    validate.

    Objects are merged key by key, other values replaced. ``{"$replace": value}`` replaces an object as a whole. Lists:
    commands of ``init`` are appended; ports, volumes, packages, tags and tools are united by a key, so that the child's
    item replaces the parent's with the same container port, path or project; other lists are replaced. A variable with
    the value null is removed.
    """
    inherited = {key: value for key, value in parent.items() if key not in _NOT_INHERITED}
    return _mapping(inherited, child, ())


def _mapping(parent: Mapping[str, Any], child: Mapping[str, Any], key_path: tuple[str, ...]) -> dict[str, Any]:
    result = dict(parent)
    for key, value in child.items():
        result[key] = _value(result.get(key), value, (*key_path, key))
    if key_path[-1:] == ("env",):  # null takes away what was inherited
        return {key: value for key, value in result.items() if value is not None}
    return result


def _value(parent: Any, child: Any, key_path: tuple[str, ...]) -> Any:
    # Mappings are merged by key, unless the child replaces them explicitly. Other values of the child win, except
    # lists: `init` is appended to the parent's, and lists whose items have keys are merged by key.
    if isinstance(child, Mapping):
        if set(child) == {"$replace"}:
            return child["$replace"]
        return _mapping(parent if isinstance(parent, Mapping) else {}, child, key_path)
    if not isinstance(child, list) or not isinstance(parent, list):
        return child
    if key_path[-1] == "init":
        return [*parent, *child]
    key = _key_of(key_path)
    if key is None:
        return child
    # An item of the child takes the position of the parent's item with the same key: ["8080:80"] and ["9090:80", "443"]
    # -> ["9090:80", "443"].
    items = {key(item): item for item in parent}
    items.update({key(item): item for item in child})
    return list(items.values())


def _key_of(key_path: tuple[str, ...]) -> Callable[[Any], Hashable] | None:
    """Return a function that computes a key for each item of a list in a template. An item of the child template
    replaces the item of its parent with the same key. Return None if the child's whole list replaces the parent's.
    """
    if key_path == ("tags",) or (key_path[0] == "tools" and key_path[-1] in _TOOLS):
        return str
    return {"ports": _port, "volumes": _target, "packages": _package}.get(key_path[-1])


def _port(text: Any) -> tuple[str, str]:
    """Return the port in the container and its protocol for a configured port such as ``127.0.0.1:8080:80/tcp``."""
    ports, _, protocol = str(text).partition("/")
    return ports.rpartition(":")[2], protocol or "tcp"


def _target(text: Any) -> str:
    """Return the path in the container for a configured volume such as ``source:target:ro``."""
    parts = re.sub(r":(ro|rw)$", "", str(text)).rpartition(":")
    return parts[2].rstrip("/") or "/"


def _package(text: Any) -> str:
    # Templates are merged before they are validated, so that an item may be any JSON value.
    return project_name(str(text))


# --- resource profiles: named sets of limits ---


DEFAULT = "default"
_BUILT_IN: Mapping[str, Mapping[str, Any]] = {
    "minimal": {"resource_limits": {"cpu": "0.5", "memory": "256m", "disk": "1g"}},
    DEFAULT: {"resource_limits": {"cpu": "1.0", "memory": "1024m", "disk": "10g"}},
    "standard": {"resource_limits": {"cpu": "1.0", "memory": "1024m", "disk": "10g"}},
    "high-resource": {"resource_limits": {"cpu": "4.0", "memory": "8192m", "disk": "50g"}},
}
_LIMITS = ("cpu", "memory", "disk")
_MORE = ("pids", "timeout")


def profile_of(name: str, folder: Path) -> Mapping[str, Any]:
    """Return the resource profile (a named set of limits) called `name`, from a file in `folder` or else a built-in
    one.

    A profile has ``resource_limits``, and optionally ``pids`` (maximum number of processes in a container) and
    ``timeout`` (time limit of a command in seconds). Raises `DevEnvError` if the profile is missing or invalid.
    """
    path = folder / f"{checked_name(name, 'profile')}.json"
    # A user's file replaces the built-in profile of the same name.
    if path.is_file():
        return _read(path)
    if name not in _BUILT_IN:
        raise DevEnvError(
            f"there is no resource profile {name!r}; existing profiles: {', '.join(profile_names(folder))}"
        )
    return _BUILT_IN[name]


def profile_names(folder: Path) -> list[str]:
    """Return the names of all resource profiles, the user's and the built-in ones, sorted."""
    return sorted({*_BUILT_IN, *(path.stem for path in folder.glob("*.json"))})


def _read(path: Path) -> Mapping[str, Any]:
    """Read a resource profile (a named set of limits) from a file and return it. Raise `DevEnvError` if the file is
    invalid.
    """
    try:
        settings = json.loads(path.read_text("utf-8"))
        limits = {str(key): str(value) for key, value in settings["resource_limits"].items()}
        unknown = {*(set(limits) - set(_LIMITS)), *(set(settings) - {"name", "description", "resource_limits", *_MORE})}
        if unknown:
            raise ValueError(f"unknown keys {', '.join(sorted(unknown))}")  # noqa: TRY301 - told below with the file
        # Parsed here only to report wrong limits with the name of the file. The texts are kept.
        for key, text in limits.items():
            _require_some(key, float(text) if key == "cpu" else parse_size(text))
        more = {key: _require_some(key, float(settings[key])) for key in _MORE if key in settings}
        return {"resource_limits": limits, **more}  # noqa: TRY300 - what is read is returned
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise DevEnvError(
            f"{path} is not a valid resource profile ({error}); write an object 'resource_limits' with the keys cpu, "
            "memory and disk"
        ) from error


def _require_some(key: str, number: float) -> float:
    if not number > 0:
        raise ValueError(f"{key} must be above 0, not {number:g}")
    return number


def limited(configuration: Configuration, profile: Mapping[str, Any], *, is_named: bool) -> Configuration:
    """Add the limits of a resource profile (a named set of limits) to an environment's configuration, and return the
    new configuration.

    With `is_named` the profile overrides the template; otherwise it only sets missing limits.
    """
    template_limits = configuration.get("resource_limits", {})
    limits = profile["resource_limits"]
    defaults = _BUILT_IN[DEFAULT]["resource_limits"]
    # The later a mapping stands, the more it decides.
    order = [defaults, template_limits, limits] if is_named else [defaults, limits, template_limits]
    return {**configuration, "resource_limits": {key: text for each in order for key, text in each.items()}}


def more_limits(profile: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits ``pids`` and ``timeout`` of a resource profile, which are not part of an environment's
    configuration because templates cannot set them.
    """
    return {key: profile[key] for key in _MORE if key in profile}


# --- settings of a root ---


_AMOUNT_PARSERS: Mapping[str, Callable[[str], float]] = {"cpu": float, "memory": parse_size, "disk": parse_size}
_ENVIRONMENT_COUNT = "environments"


def _is_quota(quota: object) -> bool:
    return isinstance(quota, dict) and all(_is_amount(name, str(amount)) for name, amount in quota.items())


def _is_amount(name: str, amount: str) -> bool:
    try:
        return (int if name == _ENVIRONMENT_COUNT else _AMOUNT_PARSERS[name])(amount) >= 0
    except (KeyError, ValueError, IndexError):
        return False


# A test and its description for each setting. ``type(value) is int`` excludes true and false.
_FORMS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "hide_foreign": (lambda value: isinstance(value, bool), "true or false"),
    "owner_only": (lambda value: isinstance(value, bool), "true or false"),
    "operators": (
        lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
        "a list of names",
    ),
    "checkpoints": (lambda value: type(value) is int and value > 0, "a number above 0"),
    "quotas": (
        lambda value: isinstance(value, dict) and all(map(_is_quota, value.values())),
        "an object with environments, cpu, memory and disk for each tenant",
    ),
}


@dataclass(frozen=True)
class RootSettings:
    """Settings that apply to all environments and tenants of a root folder, from the file
    ``config/dev_env/settings.json``.
    """

    hide_foreign: bool = False
    """True if the environments of other tenants are reported as missing, and not as forbidden."""
    owner_only: bool = False
    """True if each environment can be used by its owner only."""
    operators: tuple[str, ...] = ()
    """Names of the owners who may list the environments of all tenants."""
    checkpoints: int = 10
    """Maximum number of checkpoints per environment. Older checkpoints are deleted."""
    quotas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Limits of the totals over all environments of a tenant, by tenant: environments, cpu, memory, disk."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the settings of a root folder from a file. Return the defaults if the file is missing; raise
        `DevEnvError` if it is invalid.
        """
        if not path.exists():
            return cls()
        try:
            settings = json.loads(path.read_text("utf-8"))
            unknown = set(settings) - {names.name for names in fields(cls)}
        except (OSError, ValueError, TypeError) as error:
            raise DevEnvError(f"{path} cannot be read as a JSON object: {error}") from error
        if unknown:
            names = ", ".join(setting.name for setting in fields(cls))
            raise DevEnvError(f"{path} has unknown keys: {', '.join(sorted(unknown))}; valid keys: {names}")
        for name, (fits, expectation) in _FORMS.items():
            if name in settings and not fits(settings[name]):
                raise DevEnvError(f"{path}: {name} must be {expectation}, not {json.dumps(settings[name])}")
        return cls(**settings)

    def require_quota(self, tenant: str, limits: Mapping[str, str], environments: Iterable[Mapping[str, str]]) -> None:
        """Raise `LimitExceededError` if a new environment with these limits would exceed the quota of its tenant.

        `environments` are the limits of the existing environments.
        """
        quota = self.quotas.get(tenant, {})
        existing = list(environments)
        if _ENVIRONMENT_COUNT in quota and len(existing) >= int(quota[_ENVIRONMENT_COUNT]):
            raise LimitExceededError(
                f"the tenant {tenant!r} may have at most {quota[_ENVIRONMENT_COUNT]} environments; destroy one first"
            )
        for name, number in _AMOUNT_PARSERS.items():
            if name not in quota:
                continue
            total = sum(number(each[name]) for each in (*existing, limits) if name in each)
            if total > number(str(quota[name])):
                raise LimitExceededError(
                    f"the environments of tenant {tenant!r} may use a total {name} of {quota[name]}, but with this "
                    f"environment they would use {total:g}; choose a smaller resource profile, or destroy an "
                    "environment"
                )


def require_host(limits: Mapping[str, str], root: Path) -> None:
    """Raise `LimitExceededError` if a resource limit (CPU, memory or disk) is 0 or is higher than the capacity of this
    machine.
    """
    import os
    import shutil

    import psutil

    capacity = {
        "cpu": os.cpu_count() or 1,
        "memory": psutil.virtual_memory().total,
        "disk": shutil.disk_usage(root).total,
    }
    for name, limit in limits.items():
        if not _AMOUNT_PARSERS[name](limit) > 0:  # an engine takes 0 for no limit
            raise LimitExceededError(f"the {name} limit must be above 0, not {limit}")
        if _AMOUNT_PARSERS[name](limit) > capacity[name]:
            raise LimitExceededError(
                f"the {name} limit {limit} is more than this machine has ({capacity[name]:,}); lower the limit"
            )


# --- retries of network errors ---


T = TypeVar("T")
UNREACHABLE = Retry(attempts=3, seconds=0.25, jitter=2.0)
"""Attempts after a network error. The pauses are 0.25 to 0.75 seconds, and then 0.5 to 1.5 seconds: random, so that
waiting processes spread out.
"""
# Parts of messages of engines and package installers about the network.
_TEMPORARY_SIGNS = (
    "connection",
    "timed out",
    "timeout",
    "temporary failure",
    "name resolution",
    "network is unreachable",
)
_PERMANENT_CAUSES = (FileNotFoundError, PermissionError)


def is_temporary(error: DivebookError) -> bool:
    """Return True if the same operation may succeed after this error if it is tried again, for example after a network
    error.
    """
    if isinstance(error, EngineUnavailableError):
        # A missing socket, or one without permission, does not appear by waiting.
        return not isinstance(error.__cause__, _PERMANENT_CAUSES)
    if isinstance(error, ShellExecutionError | ContainerError):
        return any(sign in str(error).lower() for sign in _TEMPORARY_SIGNS)
    return False


@dataclass
class Retrying:
    """Retry helper: calls a function again after temporary errors, with the retry policy `UNREACHABLE`."""

    notify: Callable[[str], None] = lambda _: None
    """Callback that gets a message before each retry."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random

    async def __call__(self, work: Callable[[], Awaitable[T]]) -> T:
        """Call `work` until it succeeds, and return its result. Raise an error that is not temporary, and the error of
        the last attempt.
        """
        failures = 0
        while True:
            try:
                return await work()
            except DivebookError as error:
                failures += 1
                if failures == UNREACHABLE.attempts or not is_temporary(error):
                    raise
                self.notify(f"attempt {failures} of {UNREACHABLE.attempts} failed: {error}")
            await self.sleep(pause_after(UNREACHABLE, failures, self.chance()))


# --- files below a root ---


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths of all files and folders that development environments use below a root folder."""

    root: Path

    @property
    def environments(self) -> Path:
        """Folder with a subfolder for each environment."""
        return self.root / ".dev_env_state"

    @property
    def templates(self) -> Path:
        """Folder with the user's templates."""
        return self.root / "config" / "dev_env" / "templates"

    @property
    def profiles(self) -> Path:
        """Folder with the user's resource profiles."""
        return self.root / "config" / "dev_env" / "resources"

    @property
    def secrets(self) -> Path:
        """Folder with one file for each secret."""
        return self.root / "config" / "dev_env" / "secrets"

    @property
    def settings(self) -> Path:
        """File with the settings for all tenants."""
        return self.root / "config" / "dev_env" / "settings.json"

    @property
    def locks(self) -> Path:
        """Folder with a lock file for each environment name.

        It is not in the folder of the environment, which may be removed while a process waits for the lock.
        """
        return self.environments / ".locks"

    @property
    def log(self) -> Path:
        """Log file of all operations, for people."""
        return self.root / "logs" / "dev_env.log"

    @property
    def events(self) -> Path:
        """Log file of all operations with one JSON object per line, for programs."""
        return self.root / "logs" / "events.jsonl"

    @property
    def destroyed_checkpoints(self) -> Path:
        """Folder with the checkpoints of destroyed environments, by tenant and name."""
        return self.environments / ".kept"

    def make(self) -> None:
        """Create all folders of the layout that do not exist yet."""
        for folder in (self.environments, self.templates, self.profiles, self.secrets, self.log.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def require_own(self) -> None:
        """Raise `EnvironmentDeniedError` if another user of this machine could change the files of environments."""
        try:
            status = self.environments.stat()
        except FileNotFoundError:
            return
        # Another user who can write there could make divebook remove folders or run commands.
        if status.st_uid != os.getuid() or status.st_mode & stat.S_IWOTH:
            reason = "belongs to another user" if status.st_uid != os.getuid() else "can be changed by every user"
            raise EnvironmentDeniedError(
                f"{self.environments} {reason}; use another root, or run `chmod 700 {self.environments}`"
            )

    def environment(self, name: str) -> Path:
        """Return the folder of the environment with this name, which need not exist. Raise `DevEnvError` for an invalid
        name.
        """
        return self.environments / checked_name(name, "environment")


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file that only its owner can read. The file is replaced in one step, also at a power cut."""
    replace_whole(path, f"{json.dumps(value, indent=2, ensure_ascii=False)}\n", is_durable=True)
