"""What holds for all tenants of a root: who sees what, how much each tenant may have, how many checkpoints are kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from divebook.devenv.profiles import size_in_bytes
from divebook.errors import DevEnvError, LimitExceededError

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
        quota, taken = self.quotas.get(tenant, {}), list(others)
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
