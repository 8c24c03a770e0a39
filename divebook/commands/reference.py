"""Reference page of all commands, and JSON Schemas of what they print with ``--json``.

``python -m divebook.commands.reference`` writes ``notebooks/COMMANDS.md`` and the files in
``notebooks/reference/schemas/``; the suite compares them with the declarations.
"""

from __future__ import annotations

import json
import sys
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired

from divebook.commands.command import FORMAT, NOTEBOOK, SHELL, Command, Fields, Parameter
from divebook.commands.table import COMMANDS, GROUPS

HEAD = """\
# Commands

All commands, in a terminal (`divebook NAME`) and in a cell (`%dive NAME`). Arguments and options are the same in both,
unless the column *only in* names one of them. Values are YAML: `n=2` is a number, `n="2"` a string.

`--json` prints an object. Its key `divebook` is the version of the format, and its schema is in `reference/schemas/`.
Times are in ISO 8601. The id of a run is `id` in the object of the run, and `run_id` in objects that refer to the run.
The events of `show --events` have the form of the log, as `divebook export` writes them, with the key `execution_id`.

Exit codes: 0 completed, 1 failed, 2 bad input or usage, 3 waiting, 130 cancelled.
"""
# --- the page --------------------------------------------------------------------------------------------------------


def page() -> str:
    """Return the reference page of all commands in Markdown."""
    lines = [HEAD]
    for group in GROUPS:
        lines.append(f"# {group.title}\n")
        for command in COMMANDS.values():
            if command.group is group:
                lines += _section(command)
    return "\n".join(lines).rstrip() + "\n"


def _section(command: Command) -> Iterator[str]:
    is_in_shell = SHELL in command.interfaces
    usages = []
    if is_in_shell:
        # The file is the first word of a command that takes definitions in a shell.
        file = " FILE|FOLDER" if command.file_help else ""
        usages.append(f"divebook {command.name}{file}{command.usage_in(SHELL).removeprefix(command.name)}")
    if NOTEBOOK in command.interfaces:
        usages.append(f"%dive {command.usage_in(NOTEBOOK)}")
    title = f"{'divebook' if is_in_shell else '%dive'} {command.name}"
    texts = (command.help, command.shell_help, command.notebook_help)
    yield from section(title, texts, usages, [*_rows(command)])
    yield f"Example: `{usages[0].partition(' ')[0]} {command.example}`\n"
    yield f"In Python: `{command.python}(...)`\n" if command.python else f"In Python: {command.no_python}\n"


def section(
    title: str, texts: Iterable[str], usages: Iterable[str], rows: Sequence[str], *, last_column: str = "only in"
) -> Iterator[str]:
    """Yield the lines about one command: its title, texts without the empty ones, usages, and the table of its
    parameters.
    """
    yield f"## `{title}`\n"
    yield from (f"{text}\n" for text in texts if text)
    yield "```console"
    yield from usages
    yield "```\n"
    if rows:
        yield f"| argument or option | description | {last_column} |"
        yield "| --- | --- | --- |"
        yield from rows
        yield ""


def _rows(command: Command) -> Iterator[str]:
    """Yield a row of the table for each parameter, with those that the interfaces add."""
    if command.file_help:
        yield row("FILE|FOLDER", command.file_help, "shell")
    for parameter in command.parameters:
        yield row(term(parameter), parameter.help, _interfaces(command, parameter))
    for spelling, text, interface, is_there in (
        (
            "--definitions FILE|FOLDER, -d",
            "File or folder with the definitions of the agents that the run needs.",
            "shell",
            command.needs_definitions,
        ),
        ("--code", "Run the code cells of a notebook that contain definitions in Python.", "shell", _has_file(command)),
        (
            "--actions MODULE|FILE.py, -a",
            "Python module or file that defines actions. May be repeated.",
            "shell",
            _has_file(command),
        ),
        ("--strict", "Fail if the run has to wait for an answer.", "", command.drives),
        (
            "--wait, --no-wait",
            "Wait until a question with a Default expires, or return at once. Default: wait without a terminal.",
            "shell",
            command.waits_for_expiry,
        ),
        ("--quiet, -q", "Do not show progress.", "shell", command.drives),
        ("--background, -b", "Return at once, without waiting for the run.", "notebook", command.drives),
        ("--no-check", "Do not fail the cell if the run fails.", "notebook", command.drives),
        ("--no-data", "Do not save the data of the run in the notebook.", "notebook", command.drives),
        ("--store PATH", "Store: a file or a postgresql:// URL.", "", command.has_store),
        ("--json", "Print JSON.", "shell", command.data is not None),
    ):
        if is_there and (not interface or interface in command.interfaces):
            yield row(spelling, text, interface)


def _has_file(command: Command) -> bool:
    return command.needs_definitions or bool(command.file_help)


def row(*cells: str) -> str:
    """Return a row of the table of parameters: spellings, meaning, and the cell of the last column."""
    first, text, last = (cell.replace("|", "\\|") for cell in cells)
    return f"| `{first}` | {text} | {last} |"


def term(parameter: Parameter) -> str:
    """Return a parameter as usage lines show it, with its other spellings."""
    return ", ".join([parameter.usage, *parameter.spellings[1:]])


def _interfaces(command: Command, parameter: Parameter) -> str:
    """Return the interface of a parameter that is not in all interfaces of its command; else an empty text."""
    names = [name for name in (SHELL, NOTEBOOK) if name in command.interfaces]
    present = [name for name in names if name in parameter.interfaces]
    return "" if present == names else ", ".join(present)


# --- JSON Schemas ----------------------------------------------------------------------------------------------------


_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def schema(command: Command) -> dict[str, Any]:
    """Return the JSON Schema of what a command prints with ``--json``. It is built from the return type of the function
    that returns the data.
    """
    data = command.data
    if data is None:
        raise TypeError(f"command {command.name} prints no data")
    # Other annotations of the function may name modules that are loaded late.
    result = eval(data.__annotations__["return"], data.__globals__)  # noqa: S307 - an annotation of this package
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"divebook {command.name} --json",
        "type": "object",
        "required": ["divebook"],
        "properties": {"divebook": {"const": FORMAT}},
        **_schema_of(result, is_top=True),
    }


def _schema_of(kind: Any, *, is_top: bool = False) -> dict[str, Any]:
    """Return the JSON Schema of a type: a TypedDict, list, dict, union, literal or plain type."""
    # Only types that occur in the results of commands; another one is a mistake in a declaration.
    origin = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if origin is Annotated:
        (fields,) = kind.__metadata__
        return _schema_of_fields(fields)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    if kind is Any:
        return {}
    if kind in _TYPES:
        return {"type": _TYPES[kind]}
    if typing.is_typeddict(kind):
        return _schema_of_keys(kind, is_top=is_top)
    if origin in (typing.Union, UnionType):
        return {"anyOf": [_schema_of(part, is_top=is_top) for part in arguments]}
    if origin is Literal:
        return {"enum": list(arguments)}
    return _schema_of_collection(kind)


def _schema_of_collection(kind: Any) -> dict[str, Any]:
    origin = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if origin is tuple and arguments[-1] is not Ellipsis:
        items = [_schema_of(part) for part in arguments]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if origin in (list, tuple, Sequence):
        return {"type": "array", "items": _schema_of(arguments[0])}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _schema_of(arguments[1])}
    raise TypeError(f"{kind} has no JSON Schema")


def _schema_of_keys(kind: Any, *, is_top: bool) -> dict[str, Any]:
    hints = typing.get_type_hints(kind, include_extras=True)
    properties: dict[str, Any] = {"divebook": {"const": FORMAT}} if is_top else {}
    required = ["divebook"] if is_top else []
    for name, hint in hints.items():
        if typing.get_origin(hint) is NotRequired:
            (hint,) = typing.get_args(hint)  # noqa: PLW2901 - the type inside
        else:
            required.append(name)
        properties[name] = _schema_of(hint)
        # Keys that end with "_at" are times in ISO 8601.
        if name.endswith("_at") and hint in (str, str | None):
            properties[name]["description"] = "Time in ISO 8601."
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _schema_of_fields(fields: Fields) -> dict[str, Any]:
    """Return the JSON Schema of a mapping with the fields of a class. All of them are always there."""
    module, _, name = fields.of.partition(":")
    hints = typing.get_type_hints(getattr(import_module(module), name))
    properties: dict[str, Any] = {}
    for field, hint in hints.items():
        # `with_times` turns microseconds into times, and durations into seconds.
        if field.endswith("_us"):
            text = _schema_of(str | None if hint == int | None else str)
            properties[f"{field.removesuffix('_us')}_at"] = {**text, "description": "Time in ISO 8601."}
        elif hint in (timedelta, timedelta | None):
            key = "seconds" if field == "duration" else field
            properties[key] = {**_schema_of(float if hint == timedelta else float | None), "description": "Seconds."}
        else:
            properties[field] = _schema_of(hint)
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def schemas() -> dict[str, str]:
    """Return the text of each schema file by name of the file."""
    return {
        f"{command.name}.json": json.dumps(schema(command), indent=2) + "\n"
        for command in COMMANDS.values()
        if command.data is not None
    }


def main(root: Path) -> None:
    """Write the page and the schemas into the folder ``notebooks`` of the project."""
    (root / "COMMANDS.md").write_text(page(), encoding="utf-8")
    folder = root / "reference" / "schemas"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in schemas().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(*sys.argv[1:2] or ["notebooks"]))
