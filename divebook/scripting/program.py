"""A script made ready to run: checked, rewritten, and knowing which values it needs. Results are cached by text."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from divebook.errors import ScriptSyntaxError
from divebook.scripting.contexts import MAKE_CODE, Context
from divebook.scripting.names import Keys, Scopes, first_lines, key_uses, undefined
from divebook.scripting.prelude import prelude
from divebook.scripting.reference import NOTHING, Reference, reference_of
from divebook.scripting.rewrite import rewrite
from divebook.scripting.structure import Structure, structure_of
from divebook.scripting.syntax import check_expression, check_script, parse_expression, parse_script
from divebook.text.names import normal_name, same_name


@dataclass(frozen=True, slots=True)
class Program:
    """One expression or script."""

    text: str
    """As its author wrote it."""

    code: str
    """What the sandbox runs; line for line the same as the text."""

    prelude: str
    """What a fresh sandbox must run first."""

    uses: Mapping[str, Keys]
    """Every name it takes from outside, with the keys it can reach in it."""

    makes_code: bool
    """Whether it may use names that do not stand in its text, through ``eval`` and the like."""

    lines: Mapping[str, int | None]
    """Where each of these names first occurs, in order."""

    reference: Reference | None
    """What it refers to, where it does nothing else."""

    structure: Structure | None
    """How its value is put together, where it is an expression that does so."""

    def require(self, names: Mapping[str, Any], offered: Collection[str]) -> None:
        """Raise UndefinedVariableError unless every name is a value of `names` or one of `offered`."""
        for name in self.lines:
            if name not in names and name not in offered:
                raise undefined(name, self.lines[name], names, offered)


@lru_cache(maxsize=4096)
def compile_expression(text: str) -> Program:
    """Prepare an expression of a deterministic context."""
    source, tree = parse_expression(text)
    return _compiled(text, source, tree)


@lru_cache(maxsize=512)
def compile_script(text: str) -> Program:
    """Prepare the full script of a script step."""
    source, tree = parse_script(text)
    return _compiled(text, source, tree)


def _compiled(text: str, source: str, tree: ast.Expression | ast.Module) -> Program:
    try:
        scopes = Scopes(source, tree)
        free = scopes.free()
        if isinstance(tree, ast.Expression):
            check_expression(tree)
        else:
            check_script(tree, scopes.shadowed())
        code = rewrite(source, tree, scopes.imported_only())
        makes_code = not free.isdisjoint(MAKE_CODE)
        lines = first_lines(tree, free)
        reference = reference_of(tree)
        structure = structure_of(source, tree) if reference is None and isinstance(tree, ast.Expression) else None
        return Program(text, code, prelude(code), key_uses(tree, free), makes_code, lines, reference, structure)
    except RecursionError as error:
        raise ScriptSyntaxError("nested too deeply; split it into smaller expressions") from error


def look_up(expression: str, names: Mapping[str, Any]) -> Any:
    """Return the value that an expression only refers to, as the log holds it; else `NOTHING`."""
    reference = compile_expression(expression).reference
    return NOTHING if reference is None else reference.found(names, Context.VALUE)


def select(programs: Iterable[Program], names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of `names` that the programs can reach, so that the cost does not grow with a big state."""
    reached: dict[str, set[str | int] | None] = {}
    for program in programs:
        if program.makes_code:
            return {name: _part(value, None) for name, value in names.items()}
        for name, keys in program.uses.items():
            if name in names:
                known = reached.setdefault(name, set())
                reached[name] = None if known is None or keys is None else known | keys
    return {name: _part(names[name], keys) for name, keys in reached.items()}


def _part(value: Any, keys: set[str | int] | None) -> Any:
    if not isinstance(value, Mapping):
        return value
    if keys is None:
        return value if type(value) is dict else dict(value)
    found = ((key, same_name(key, value)) for key in sorted(keys, key=repr))
    known = [(key, name) for key, name in found if name is not None]
    # Rewritten code reads the normal form of a name; what cannot be rewritten reads it as it is written.
    return {spelling: value[name] for key, name in known for spelling in (key, normal_name(key))}
