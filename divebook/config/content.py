"""Conversion of content entries of definitions (references to files, web pages and documents) into content blocks,
before a run.

`resolve_content` does this for a whole set of definitions. The blocks are then part of the definition: they count for
its fingerprint and are stored with each execution. Dynamic entries stay unchanged until their step runs.
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

from divebook.definitions.definition import Definitions, Workflow
from divebook.definitions.resources import AgentDefinition
from divebook.definitions.step import Block, ContentEntry, ContentFingerprint, base64_block, text_block
from divebook.definitions.yaml_text import yaml_of
from divebook.documents.fetch import Page, check_address, fetch
from divebook.documents.policy import Policy
from divebook.documents.repository import DocumentRepository, alternatives, has_wildcards, matches
from divebook.errors import PatternError, SetupError

_FOLDERS = "**"
"""Part of a pattern that matches any number of folders."""
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
UNSPECIFIC_TYPES = ("application/octet-stream", "binary/octet-stream")
"""Media types that do not describe the content. The suffix of the address determines the type instead."""


def files_at(path: str, base_path: Path, policy: Policy) -> list[Path]:
    """Return the file at a path. If the path is a pattern, return the files that match it, sorted; there may be none.

    Raises
    ------
    SetupError
        The policy does not allow a file, or a folder cannot be searched.
    """
    if not has_wildcards(path):
        policy.file(path, base_path)
        return [base_path / path]
    matching = {file for pattern in alternatives(path) for file in _matching(pattern, base_path, policy)}
    root = base_path.resolve()
    visible = {file for file in matching if not policy.why_protected(file.resolve(), root)}  # like ``*`` in a shell
    # A link may lead out of the folder.
    for file in visible:
        policy.file(file, base_path)
    return sorted(visible)


def _matching(pattern: str, base_path: Path, policy: Policy) -> list[Path]:
    """Return the files that match a pattern. Raise SetupError if the access policy forbids the path before the first
    wildcard.
    """
    # The plain part ends before the first wildcard: "notes/2024-*/a.md" -> "notes/2024-"
    plain = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    policy.file(plain or ".", base_path)
    # "/data/*.md" -> "/"; relative patterns have no anchor.
    anchor = Path(pattern).anchor
    try:
        return list(_files_below(Path(anchor) if anchor else base_path, _segments(pattern[len(anchor) :])))
    except PatternError as error:
        raise SetupError(f"pattern {pattern!r} is not valid: {error}") from error
    except (OSError, RecursionError) as error:  # a folder without permission, or one that is deleted meanwhile
        raise SetupError(
            f"files that match {pattern!r} cannot be searched: {error}; write a narrower pattern"
        ) from error


def _segments(pattern: str) -> list[str]:
    """Split a path pattern at its slashes. Raise PatternError if it is empty, or if a part has ``**`` and more."""
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if not parts:
        raise PatternError("the pattern is empty")
    if any("**" in part != "**" for part in parts):
        raise PatternError("'**' can only be an entire path component")
    # Consecutive ``**`` match the same folders as a single one.
    return [part for at, part in enumerate(parts) if part != _FOLDERS or parts[at - 1 : at] != [_FOLDERS]]


def _files_below(start: Path, parts: list[str]) -> Iterator[Path]:
    """Yield each file below a folder that matches a path pattern, given as its `parts`, exactly once.

    `Path.glob` visits a folder once for each way in which several ``**`` lead to it. This function visits each folder
    once, with the set of positions in the pattern that can come next, like a nondeterministic automaton
    (test_many_wildcards_over_folders_visit_each_folder_once). For ``["**", "a", "*.md"]`` the start has the positions 0
    and 1, since ``**`` may match no folder. Its folder ``a`` matches position 1, so it has the positions 0, 1 and 2: in
    it, ``*.md`` is tried, and the search for further folders ``a`` continues.
    """
    pending = [(start, frozenset({0}))] if start.is_dir() else []
    while pending:
        folder, positions = pending.pop()
        positions |= {at + 1 for at in positions if parts[at : at + 1] == [_FOLDERS]}
        # A position after the last part has nothing left to match.
        next_positions = [at for at in positions if at < len(parts)]
        plain_names = {parts[at] for at in next_positions if not has_wildcards(parts[at])}
        # The folder is listed only if a position has wildcards.
        names = plain_names if len(plain_names) == len(next_positions) else plain_names | _names_in(folder)
        for name in sorted(names):
            path = folder / name
            matched = {at + 1 for at in next_positions if parts[at] != _FOLDERS and matches(parts[at], name)}
            if len(parts) in matched and path.is_file():
                yield path
            if path.is_dir():
                positions_below = matched - {len(parts)}
                if not path.is_symlink():  # ``**`` does not follow links
                    positions_below |= {at for at in next_positions if parts[at] == _FOLDERS}
                if positions_below:
                    pending.append((path, frozenset(positions_below)))


def _names_in(folder: Path) -> set[str]:
    """Return the names of the files and folders in a folder; an empty set if this user may not list it, or if it is not
    a folder.
    """
    try:
        return {path.name for path in folder.iterdir()}
    except (PermissionError, NotADirectoryError):
        return set()


@dataclass(frozen=True, slots=True)
class Sources:
    """Sources from which the content of definitions is read: a folder, documents and the web, limited by an access
    policy.
    """

    base_path: Path = Path()
    """Folder to which relative paths refer."""
    read_document: Callable[[str], str] | None = None
    """Function that returns the text of a document, or None to leave documents to the step that uses them."""
    fetch: Callable[[str, Policy], Page] = fetch
    """Function that fetches a web page from an address that a policy allows."""
    policy: Policy = field(default_factory=Policy.given)
    """Policy that states which files and addresses may be read; by default from the variable ``DIVEBOOK_ALLOW``."""


def build_content(entries: Iterable[ContentEntry], sources: Sources | None = None) -> list[Block]:
    """Load content entries from their sources, and return them as content blocks in the same order.

    A dynamic entry results in one block of type ``dynamic``.
    """
    places = sources or Sources()
    return [block for entry in entries for block in _blocks(ContentEntry.of(entry), places)]


def resolve_content(definitions: Definitions, sources: Sources | None = None) -> Definitions:
    """Return definitions in which the content entries of agents and steps are replaced by loaded content blocks.

    MCP servers are given the folder to which their relative paths refer, such as the path of their `TokenStore`. These
    paths are not resolved now, but at each connection, because the file of the tokens need not exist yet.
    """
    places = sources or Sources()
    folder = str(Path.cwd() / places.base_path)
    return replace(
        definitions,
        agents=tuple(_resolved_agent(agent, places) for agent in definitions.agents),
        workflows=tuple(_resolved_workflow(workflow, places) for workflow in definitions.workflows),
        mcp_servers=tuple(server.like(folder=server.folder or folder) for server in definitions.mcp_servers),
    )


def with_documents(
    definitions: Definitions, folder: Path, documents: DocumentRepository, policy: Policy | None = None
) -> Definitions:
    """Register the documents that the definitions declare in the repository `documents`. Then load the content of all
    agents and steps, which may refer to these documents, and return definitions with the loaded content.
    """
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
    """Read the YAML file with the replies of a scripted model (a stand-in for a real model), and return its data."""
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
        # The path must be absolute, since the program runs later, perhaps in another working directory.
        return replace(entry, dynamic_from=str(_absolute(entry.dynamic_from, sources)))
    # These are loaded when their step runs.
    if entry.dynamic is not None or (entry.document is not None and sources.read_document is None):
        return entry
    parts = _parts(entry, sources)
    return replace(
        entry,
        blocks=tuple(part.block for part in parts),
        fingerprints=tuple(asdict(part.fingerprint) for part in parts if part.fingerprint is not None) or None,
    )


class _Part(NamedTuple):
    """Content block, and the fingerprint of the file, page or document from which it was read, if any."""

    block: Block
    fingerprint: ContentFingerprint | None = None


def _blocks(entry: ContentEntry, sources: Sources) -> list[Block]:
    return [part.block for part in _parts(entry, sources)]


def _parts(entry: ContentEntry, sources: Sources) -> list[_Part]:
    if entry.text is not None:
        # Text that is part of the definition needs no fingerprint of its own.
        return [_Part(text_block(entry.text.strip()))]
    if entry.path is not None:
        files = files_at(entry.path, sources.base_path, sources.policy)
        return [_file_part(path, sources.base_path) for path in files]
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
        with suppress(ValueError, OverflowError, OSError):  # a disk may store times beyond the range of datetime
            modtime = datetime.fromtimestamp(modified, UTC).isoformat(timespec="seconds")
    return ContentFingerprint(hashlib.sha256(data).hexdigest(), source, len(data), modtime)


def _document(name: str, sources: Sources) -> str:
    if sources.read_document is None:
        raise SetupError(
            f"content names the document {name!r}, but there is no document repository; load the definition in an "
            "environment"
        )
    return sources.read_document(name)


def _absolute(path: str, sources: Sources) -> Path:
    """Return the absolute path of a program without resolving links. Raise `SetupError` if the access policy forbids
    the path.
    """
    sources.policy.file(path, sources.base_path)
    return (sources.base_path / path).absolute()


def _file_part(path: Path, base_path: Path) -> _Part:
    if path.suffix.lower() not in (*IMAGE_SUFFIXES, *TEXT_SUFFIXES, PDF_SUFFIX):
        supported = ", ".join((*TEXT_SUFFIXES, *IMAGE_SUFFIXES, PDF_SUFFIX))
        raise SetupError(f"unsupported local file extension: {path.suffix.lower() or path.name} (known: {supported})")
    data, modified = _read_file(path)
    source = path.relative_to(base_path) if path.is_relative_to(base_path) else path
    return _Part(_file_block(path, data), _fingerprint(data, source.as_posix(), modified))


def _file_block(path: Path, data: bytes) -> Block:
    suffix = path.suffix.lower()
    if suffix in TEXT_SUFFIXES:
        return text_block(f'<file name="{path.name}">\n{_text(path, data)}\n</file>')
    encoded = base64.b64encode(data).decode("ascii")
    kind = "document" if suffix == PDF_SUFFIX else "image"
    return base64_block(kind, MEDIA_TYPES[suffix], encoded)


def _read_file(path: Path) -> tuple[bytes, float]:
    """Return the content of a file, and the time of its last modification in seconds since 1970."""
    try:
        if path.exists() and not path.is_file():  # reading a pipe would block
            raise SetupError(f"unable to read file {path}: it is not a file; name a text file, an image or a PDF")
        with path.open("rb") as file:
            # The time is that of the open file, so that it belongs to the content that was read.
            return file.read(), os.fstat(file.fileno()).st_mtime
    except OSError as error:
        raise SetupError(f"unable to read file {path}: {error.strerror}") from error


def _text(path: Path, data: bytes) -> str:
    try:
        # "utf-8-sig" removes a byte order mark.
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SetupError(f"unable to read file {path}: not UTF-8 at byte {error.start}") from error


def _url_part(url: str, sources: Sources) -> _Part:
    check_address(url, sources.policy)
    page = sources.fetch(url, sources.policy)
    return _Part(_page_block(url, page), _fingerprint(page.body, url))


def _page_block(url: str, page: Page) -> Block:
    """Return a web page as a content block: an image, a PDF or text, according to the media type of the response.

    The suffix of the address is used if the media type is unspecific.
    """
    media_type = page.media_type
    if media_type in UNSPECIFIC_TYPES:
        media_type = MEDIA_TYPES.get(PurePosixPath(urlsplit(url).path).suffix.lower(), media_type)
    # SVG (image/svg+xml) is passed on as text.
    if media_type.startswith("image/") and not media_type.endswith("+xml"):
        return base64_block("image", media_type, base64.b64encode(page.body).decode("ascii"))
    if media_type == "application/pdf":
        return base64_block("document", media_type, base64.b64encode(page.body).decode("ascii"))
    return text_block(f'<file url="{url}">\n{page.text(url)}\n</file>')
