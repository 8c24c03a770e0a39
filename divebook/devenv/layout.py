"""Where the files of development environments lie below their root."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from divebook.devenv.configuration import checked_name
from divebook.errors import EnvironmentDeniedError


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
