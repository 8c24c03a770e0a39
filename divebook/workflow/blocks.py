"""Content blocks: what a model is shown beside a prompt, as plain data.

``{"type": "text", "text": ...}`` or ``{"type": "image" | "document", "source": {...}}`` with a source of
``{"type": "base64", "media_type": ..., "data": ...}`` or ``{"type": "url", "url": ...}``. A block of type ``dynamic``
holds a script or program that makes blocks when the step runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from divebook.errors import ScriptError

Block = dict[str, Any]

BLOCK_TYPES = ("text", "image", "document")


def text_block(text: str) -> Block:
    """Return a block that shows a text."""
    return {"type": "text", "text": text}


def base64_block(kind: str, media_type: str, data: str) -> Block:
    """Return an image or document block that holds its bytes."""
    return {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": data}}


def blocks_from_script_result(result: Any) -> list[Block]:
    """Return the blocks that a ``Dynamic`` script's result stands for: a text, a block, or a list of blocks.

    Raises
    ------
    ScriptError
        The result is anything else.
    """
    if isinstance(result, str):
        return [text_block(result)]
    items = result if isinstance(result, list | tuple) else [result]
    return [_checked(item) for item in items]


def blocks_from_program_output(output: str) -> list[Block]:
    """Return the blocks that a ``DynamicFrom`` program printed as a JSON list; raises `ScriptError` otherwise."""
    try:
        items = json.loads(output)
    except (ValueError, RecursionError) as error:
        raise ScriptError(f"failed to parse script JSON output: {error}") from error
    if not isinstance(items, list):
        shown = output.strip()[:40]
        raise ScriptError(f"failed to parse script JSON output: a list of blocks was expected, not {shown!r}")
    return [_checked(item) for item in items]


def _checked(item: Any) -> Block:
    if not isinstance(item, Mapping):
        advice = "return a text, a block or a list of blocks"
        raise ScriptError(f"unsupported script result type: {type(item).__name__}; {advice}")
    is_complete = isinstance(item.get("text"), str) if item.get("type") == "text" else _has_source(item)
    if item.get("type") not in BLOCK_TYPES or not is_complete:
        expected = '{"type": "text", "text": ...} or {"type": "image" | "document", "source": {...}}'
        raise ScriptError(f"unsupported script result type: {str(item)[:60]} is not a block; write {expected}")
    return dict(item)


def _has_source(item: Mapping[str, Any]) -> bool:
    source = item.get("source")
    fields = {"base64": ("media_type", "data"), "url": ("url",)}
    if not isinstance(source, Mapping):
        return False
    needed = fields.get(str(source.get("type")), ())
    return bool(needed) and all(isinstance(source.get(name), str) for name in needed)


@dataclass(frozen=True, slots=True)
class ContentFingerprint:
    """What identifies a piece of content without holding it."""

    hash: str
    """SHA-256 in hex; the time is no part of it."""
    source: str
    """Where it came from: a kind of block, or of a file its path, of a page its address."""
    size: int
    """Bytes."""
    modtime: str = ""
    """When a file was last changed, ISO 8601 in UTC; empty for what is not a file."""


def fingerprint_block(block: Mapping[str, Any]) -> ContentFingerprint:
    """Return the fingerprint of one block."""
    kind = str(block.get("type", ""))
    if kind == "text":
        return _fingerprint(str(block.get("text", "")), "text")
    if kind == "dynamic":
        return _fingerprint("".join(str(part.get("text", "")) for part in block.get("content", ())), "dynamic")
    if kind not in BLOCK_TYPES:
        return _fingerprint(kind, "unknown")
    source = block.get("source") or {}
    if source.get("type") == "base64":
        return _fingerprint(str(source.get("data", "")), f"{kind}-base64")
    if source.get("url"):
        return ContentFingerprint(_sha256(source["url"]), f"{kind}-url:{source['url']}", 0)
    return ContentFingerprint(_sha256(""), f"empty-{kind}", 0)


def fingerprint_blocks(blocks: Iterable[Mapping[str, Any]]) -> ContentFingerprint:
    """Return one fingerprint of all blocks in their order."""
    parts = [fingerprint_block(block) for block in blocks]
    return _fingerprint("".join(f"{part.hash}:{part.source}:" for part in parts), "combined")


def _fingerprint(text: str, source: str) -> ContentFingerprint:
    return ContentFingerprint(_sha256(text), source, len(text.encode("utf-8", "surrogatepass")))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
