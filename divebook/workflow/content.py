"""A piece of content for an agent's context or a prompt step: where it comes from, not yet what it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

from divebook.errors import DefinitionError, Problem
from divebook.workflow.stored_form import Definition, as_definition
from divebook.workflow.table import Key

SOURCES = {
    "text": "Text",
    "path": "Path",
    "url": "URL",
    "document": "Document",
    "dynamic": "Dynamic",
    "dynamic_from": "DynamicFrom",
}
EXACTLY_ONE = f"context entry must specify exactly one of {', '.join(SOURCES.values())}"


@dataclass(frozen=True, slots=True)
class ContentEntry(Definition):
    """Exactly one source of content.

    Examples
    --------
    >>> ContentEntry(path="notes/*.md").source
    'path'
    """

    short = (str,)
    text: Annotated[str | None, Key("A text.", example="Answer in French.")] = None
    path: Annotated[
        str | None,
        Key("A file, or files by a pattern such as `**/*.md`, below the definition's folder.", example="notes/*.md"),
    ] = None
    url: Annotated[
        str | None,
        Key("The page at an address, fetched when the definition is read.", example="https://example.org/guide.html"),
    ] = None
    document: Annotated[str | None, Key("A document by name.", example="style-guide")] = None
    dynamic: Annotated[
        str | None,
        Key("A script that gives the content when the step runs.", example="f'There are {len(state.rows)} rows'"),
    ] = None
    dynamic_from: Annotated[
        str | None,
        Key(
            "A program that prints the content, as a JSON list of blocks, when the step runs.",
            example="tools/context.sh",
        ),
    ] = None
    blocks: tuple[Mapping[str, Any], ...] | None = None
    """What the source held when the definitions were made ready; None as long as it is not read."""
    fingerprints: tuple[Mapping[str, Any], ...] | None = field(default=None, compare=False)
    """What the blocks were made of: ``hash``, ``source``, ``size`` and ``modtime`` of each file, page or document.

    They tell of the source only: two entries with the same blocks are equal, and workflows with them have one
    fingerprint.
    """

    @classmethod
    def of(cls, value: Any) -> Self:
        """Return what a person wrote as an entry; more or less than one source is an error."""
        entry = as_definition(cls, value)
        if not entry.is_complete:
            raise DefinitionError([Problem(EXACTLY_ONE)])
        return entry

    @staticmethod
    def without_fingerprints(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return stored entries without the fingerprints of their sources."""
        return [{key: value for key, value in entry.items() if key != "fingerprints"} for entry in entries]

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the sources that are filled in."""
        return tuple(name for name in SOURCES if getattr(self, name) is not None)

    @property
    def is_complete(self) -> bool:
        """Whether exactly one source is given."""
        return len(self.given) == 1

    @property
    def source(self) -> str:
        """Which source this entry has: ``text``, ``path``, ``url``, ``document``, ``dynamic`` or ``dynamic_from``."""
        return self.given[0]
