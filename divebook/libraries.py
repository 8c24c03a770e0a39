"""Errors about missing libraries: which one a part of divebook needs, and the command that installs it.

The default installation has all libraries that divebook is built on. A reduced environment, such as the image of a
worker, may lack most of them. Running a Python workflow needs only anyio, orjson and immutables; every other library
is imported by the part that uses it.

These imports are spread over the code. So that each of them fails with the same helpful error, `explain_missing` adds
a finder at the end of `sys.meta_path`. Python asks it only for modules that no other finder has found. It raises
`MissingLibraryError` if code of divebook imports a library that the metadata of divebook declares. All other failed
imports, also those by other libraries, stay as they are. ``tests/test_reduced_environments.py`` hides each library.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from divebook.errors import MissingLibraryError

_PACKAGE = "divebook"
_DISTRIBUTIONS = {
    "IPython": "ipywidgets",
    "comm": "ipywidgets",
    "dask": "distributed",
    "numpy": "pandas",
    "opentelemetry": "opentelemetry-sdk",
    "pydantic_ai": "pydantic-ai-slim",
    "ruamel": "ruamel.yaml",
    "traitlets": "ipywidgets",
}
"""Modules that have another name than the declared distribution that installs them."""
_REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)(\[[^]]*\])?(?P<versions>[^;]*)(;.*?extra == ['\"](?P<extra>[\w-]+)['\"])?"
)
_FOR_DEVELOPERS = ("docs", "test")
"""Extras that repeat libraries of other extras."""


def install_command(module: str) -> str:
    """Return the command that installs the library of a module, as a person types it in a shell.

    >>> install_command("distributed")
    "pip install 'divebook[dask]'"
    """
    return _declared_command(module) or f"pip install {_distribution_of(module)}"


def explain_missing() -> None:
    """Add the finder that explains failed imports of libraries in code of divebook. Idempotent."""
    if not any(type(each).__name__ == _MissingLibraries.__name__ for each in sys.meta_path):
        sys.meta_path.append(_MissingLibraries())


class _MissingLibraries:
    """Last finder of modules: it finds none, but explains why a library is missing."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        if "." in name:
            return
        importer = _importing_module()
        if importer.partition(".")[0] != _PACKAGE:
            return
        command = _declared_command(name)
        if command:
            part = ".".join(importer.split(".")[:2])
            raise MissingLibraryError(
                f"{part} needs the package {_distribution_of(name)}, which is not installed: {command}", name=name
            )


def _importing_module() -> str:
    """Return the name of the module whose code has the failing import statement; empty if code only asks whether a
    module exists (`importlib.util.find_spec`).
    """
    frame = sys._getframe(2)  # noqa: SLF001 - the only way to see the importing module
    while frame.f_back is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name == "importlib.util":
            return ""
        if name.partition(".")[0] != "importlib":
            return name
        frame = frame.f_back
    return ""


def _distribution_of(module: str) -> str:
    top = module.partition(".")[0]
    return _DISTRIBUTIONS.get(top, top.replace("_", "-"))


def _normal(distribution: str) -> str:
    """Return the normal form of a distribution's name, as package indexes compare names."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _declared_command(module: str) -> str:
    """Return the command that installs a library that divebook declares; empty if it declares none of that name."""
    # Loading importlib.metadata takes 20 ms; only a failed import needs it.
    from importlib.metadata import PackageNotFoundError, requires

    distribution = _distribution_of(module)
    try:
        declared = requires(_PACKAGE) or []
    except PackageNotFoundError:  # a copy of the package on the path, without metadata
        return ""
    for requirement in declared:
        parts: Any = _REQUIREMENT.match(requirement)
        if _normal(parts["name"]) != _normal(distribution) or parts["extra"] in _FOR_DEVELOPERS:
            continue
        if parts["extra"]:
            return f"pip install '{_PACKAGE}[{parts['extra']}]'"
        return f"pip install '{parts['name']}{parts['versions'].strip()}'"
    return ""
