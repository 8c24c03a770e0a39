"""Content entries to content blocks: files, addresses and documents are read here, once, before anything runs.

`resolve_content` does so for a whole set of definitions; the blocks then stand in the definition itself, are part of
its fingerprint and are stored with each execution. Dynamic entries stay as they are until their step runs.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import urlsplit

from divebook.documents.fetch import Page, check_address, fetch
from divebook.documents.policy import Policy
from divebook.documents.repository import DocumentRepository, alternatives, has_wildcards, matches
from divebook.errors import PatternError, SetupError
from divebook.workflow.definition import Definitions, Workflow
from divebook.workflow.resources import AgentDefinition
from divebook.workflow.step import Block, ContentEntry, ContentFingerprint, base64_block, text_block
from divebook.workflow.yaml_text import yaml_of

# Files that content entries name, alone or by a pattern.


_FOLDERS = "**"
"""The part of a pattern that stands for any number of folders."""


def named_files(path: str, base_path: Path, policy: Policy) -> list[Path]:
    """Return the file that `path` names, or those that match if it is a pattern: sorted, maybe none.

    Raises
    ------
    SetupError
        One of them is not where the policy allows it, or cannot be looked for.
    """
    if not has_wildcards(path):
        policy.file(path, base_path)
        return [base_path / path]
    found = {file for pattern in alternatives(path) for file in _matching(pattern, base_path, policy)}
    root = base_path.resolve()
    visible = {file for file in found if not policy.why_protected(file.resolve(), root)}  # as a shell's ``*``
    for file in visible:
        policy.file(file, base_path)
    return sorted(visible)


def _matching(pattern: str, base_path: Path, policy: Policy) -> list[Path]:
    """Return the files that match; what a pattern begins with is checked before anything is looked for."""
    plain = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    policy.file(plain or ".", base_path)
    anchor = Path(pattern).anchor
    try:
        return list(_files_below(Path(anchor) if anchor else base_path, _segments(pattern[len(anchor) :])))
    except PatternError as error:
        raise SetupError(f"pattern {pattern!r} is not valid: {error}") from error
    except (OSError, RecursionError) as error:  # a folder that may not be read, or vanishes meanwhile
        raise SetupError(f"pattern {pattern!r} cannot be looked for: {error}; name a narrower one") from error


def _segments(pattern: str) -> list[str]:
    """Return the parts of a pattern, with one ``**`` for several in a row."""
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if not parts:
        raise PatternError("it is empty")
    if any("**" in part != "**" for part in parts):
        raise PatternError("'**' can only be an entire path component")
    return [part for at, part in enumerate(parts) if part != _FOLDERS or parts[at - 1 : at] != [_FOLDERS]]


def _files_below(start: Path, parts: list[str]) -> Iterator[Path]:
    """Yield the files that match, each once.

    `Path.glob` visits a folder once for each way in which several ``**`` lead to it. This visits it once, with all the
    parts that may come next (test_many_wildcards_over_folders_visit_each_folder_once).
    """
    waiting = [(start, frozenset({0}))] if start.is_dir() else []
    while waiting:
        folder, reached = waiting.pop()
        reached |= {at + 1 for at in reached if parts[at : at + 1] == [_FOLDERS]}
        next_parts = [at for at in reached if at < len(parts)]
        plain = {parts[at] for at in next_parts if not has_wildcards(parts[at])}
        names = plain if len(plain) == len(next_parts) else plain | _names_in(folder)
        for name in sorted(names):
            path = folder / name
            passed = frozenset(at + 1 for at in next_parts if parts[at] != _FOLDERS and matches(parts[at], name))
            if len(parts) in passed and path.is_file():
                yield path
            if path.is_dir():
                stays = () if path.is_symlink() else (at for at in next_parts if parts[at] == _FOLDERS)
                below = (passed | frozenset(stays)) - {len(parts)}
                waiting += [(path, below)] if below else []


def _names_in(folder: Path) -> set[str]:
    """Return the names in a folder; none in one that this user may not list, as a shell does."""
    try:
        return {path.name for path in folder.iterdir()}
    except (PermissionError, NotADirectoryError):
        return set()


MEDIA_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
    ".pdf": "application/pdf",
}
IMAGE_SUFFIXES = tuple(suffix for suffix, media_type in MEDIA_TYPES.items() if media_type.startswith("image/"))
TEXT_SUFFIXES = (".txt", ".md", ".markdown", ".csv", ".json")
PDF_SUFFIX = ".pdf"
UNTOLD = ("application/octet-stream", "binary/octet-stream")
"""Media types that say nothing."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where content comes from."""

    base_path: Path = Path()
    """Folder that paths are relative to."""
    read_document: Callable[[str], str] | None = None
    """Returns a document's text; without it `resolve_content` leaves documents to the step that shows them."""
    fetch: Callable[[str, Policy], Page] = fetch
    """Fetches the page at an address."""
    policy: Policy = field(default_factory=Policy.given)
    """What may be reached; by default what the variable ``DIVEBOOK_ALLOW`` says."""


def build_content(entries: Iterable[ContentEntry], sources: Sources | None = None) -> list[Block]:
    """Return the blocks of all entries in their order; a dynamic entry gives one block of type ``dynamic``."""
    places = sources or Sources()
    return [block for entry in entries for block in _blocks(ContentEntry.of(entry), places)]


def resolve_content(definitions: Definitions, sources: Sources | None = None) -> Definitions:
    """Return the definitions with the blocks of every agent's context and every step's content in them."""
    places = sources or Sources()
    return replace(
        definitions,
        agents=tuple(_resolved_agent(agent, places) for agent in definitions.agents),
        workflows=tuple(_resolved_workflow(workflow, places) for workflow in definitions.workflows),
    )


def with_documents(
    definitions: Definitions, folder: Path, documents: DocumentRepository, policy: Policy | None = None
) -> Definitions:
    """Return the definitions with their content in them, that of documents too, which are registered."""
    for document in definitions.documents:
        if document.path:
            documents.register(document.name, document.path)
    places = Sources(folder, lambda name: documents.get(name).content)
    return resolve_content(definitions, places if policy is None else replace(places, policy=policy))


def _resolved_agent(agent: AgentDefinition, sources: Sources) -> AgentDefinition:
    if isinstance(agent.script, str):
        agent = replace(agent, script=_script(agent.script, sources))
    return replace(agent, context=_resolved(agent.context, sources)) if agent.context else agent


def _script(path: str, sources: Sources) -> object:
    """Return what a file of replies holds."""
    sources.policy.file(path, sources.base_path)
    where = sources.base_path / path
    return yaml_of(_text(where, _read_file(where)[0]), path)


def _resolved_workflow(workflow: Workflow, sources: Sources) -> Workflow:
    if not any(step.content for step in workflow.steps):
        return workflow
    steps = tuple(replace(step, content=_resolved(step.content, sources)) for step in workflow.steps)
    return replace(workflow, steps=steps)


def _resolved(entries: Iterable[ContentEntry], sources: Sources) -> tuple[ContentEntry, ...]:
    return tuple(_resolved_entry(entry, sources) for entry in entries)


def _resolved_entry(entry: ContentEntry, sources: Sources) -> ContentEntry:
    if entry.dynamic_from is not None:
        return replace(entry, dynamic_from=str(_absolute(entry.dynamic_from, sources)))
    if entry.dynamic is not None or (entry.document is not None and sources.read_document is None):
        return entry
    parts = _parts(entry, sources)
    return replace(
        entry,
        blocks=tuple(part.block for part in parts),
        fingerprints=tuple(asdict(part.fingerprint) for part in parts if part.fingerprint is not None) or None,
    )


class _Part(NamedTuple):
    """A block, and the fingerprint of the file, page or document that it was made of."""

    block: Block
    fingerprint: ContentFingerprint | None = None


def _blocks(entry: ContentEntry, sources: Sources) -> list[Block]:
    return [part.block for part in _parts(entry, sources)]


def _parts(entry: ContentEntry, sources: Sources) -> list[_Part]:
    if entry.text is not None:
        return [_Part(text_block(entry.text.strip()))]
    if entry.path is not None:
        found = named_files(entry.path, sources.base_path, sources.policy)
        return [_file_part(path, sources.base_path) for path in found]
    if entry.url is not None:
        return [_url_part(entry.url, sources)]
    if entry.document is not None:
        text = _document(entry.document, sources)
        return [_Part(text_block(text), _fingerprint(text.encode("utf-8", "surrogatepass"), entry.document))]
    if entry.dynamic is not None:
        return [_Part({"type": "dynamic", "script": entry.dynamic})]
    return [_Part({"type": "dynamic", "program": str(_absolute(entry.dynamic_from or "", sources))})]


def _fingerprint(data: bytes, source: str, modified: float | None = None) -> ContentFingerprint:
    modtime = ""
    if modified is not None:
        with suppress(ValueError, OverflowError, OSError):  # a disk may hold times that no calendar has
            modtime = datetime.fromtimestamp(modified, UTC).isoformat(timespec="seconds")
    return ContentFingerprint(hashlib.sha256(data).hexdigest(), source, len(data), modtime)


def _document(name: str, sources: Sources) -> str:
    if sources.read_document is None:
        raise SetupError(
            f"content names the document {name!r}, but there is no document repository; read it in an environment"
        )
    return sources.read_document(name)


def _absolute(path: str, sources: Sources) -> Path:
    """Return where a program is, in the definition's folder unless more is allowed; links are not followed yet."""
    sources.policy.file(path, sources.base_path)
    return (sources.base_path / path).absolute()


def _file_part(path: Path, base_path: Path) -> _Part:
    if path.suffix.lower() not in (*IMAGE_SUFFIXES, *TEXT_SUFFIXES, PDF_SUFFIX):
        known = ", ".join((*TEXT_SUFFIXES, *IMAGE_SUFFIXES, PDF_SUFFIX))
        raise SetupError(f"unsupported local file extension: {path.suffix.lower() or path.name} (known: {known})")
    data, modified = _read_file(path)
    shown = path.relative_to(base_path) if path.is_relative_to(base_path) else path
    return _Part(_file_block(path, data), _fingerprint(data, shown.as_posix(), modified))


def _file_block(path: Path, data: bytes) -> Block:
    suffix = path.suffix.lower()
    if suffix in TEXT_SUFFIXES:
        return text_block(f'<file name="{path.name}">\n{_text(path, data)}\n</file>')
    encoded = base64.b64encode(data).decode("ascii")
    kind = "document" if suffix == PDF_SUFFIX else "image"
    return base64_block(kind, MEDIA_TYPES[suffix], encoded)


def _read_file(path: Path) -> tuple[bytes, float]:
    """Return what a file holds, and when it was last changed, in seconds since 1970."""
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise SetupError(f"unable to read file {path}: it is not a file; name a text, an image or a PDF")
        with path.open("rb") as file:
            return file.read(), os.fstat(file.fileno()).st_mtime
    except OSError as error:
        raise SetupError(f"unable to read file {path}: {error.strerror}") from error


def _text(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SetupError(f"unable to read file {path}: not UTF-8 at byte {error.start}") from error


def _url_part(url: str, sources: Sources) -> _Part:
    check_address(url, sources.policy)
    page = sources.fetch(url, sources.policy)
    return _Part(_page_block(url, page), _fingerprint(page.body, url))


def _page_block(url: str, page: Page) -> Block:
    """Return the page at an address as the type its response names; its suffix counts where that names none."""
    media_type = page.media_type
    if media_type in UNTOLD:
        media_type = MEDIA_TYPES.get(PurePosixPath(urlsplit(url).path).suffix.lower(), media_type)
    if media_type.startswith("image/") and not media_type.endswith("+xml"):
        return base64_block("image", media_type, base64.b64encode(page.body).decode("ascii"))
    if media_type == "application/pdf":
        return base64_block("document", media_type, base64.b64encode(page.body).decode("ascii"))
    return text_block(f'<file url="{url}">\n{page.text(url)}\n</file>')
