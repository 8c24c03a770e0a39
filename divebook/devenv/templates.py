"""Templates of environments: those that are built in, and the person's own."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from divebook.devenv.configuration import Configuration, check, checked_name, parsed, read_configuration
from divebook.devenv.inheriting import resolved
from divebook.devenv.layout import write_json
from divebook.errors import DevEnvError, EnvironmentDeniedError, TemplateNotFoundError
from divebook.text.redaction import shared
from divebook.text.secret_names import looks_secret


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
        found, fault = own, {}
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
