"""The fingerprint of a workflow: equal exactly when two definitions behave alike.

Texts for people (descriptions), the source text and triggers do not count; every prompt, script, edge, condition,
loop, agent name, piece of content and default does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from divebook.events.codec import encode, parse
from divebook.workflow.content import ContentEntry

SILENT_FIELDS = frozenset({"source", "description", "triggers", "form"})
SILENT_PART_FIELDS = frozenset({"description"})


def fingerprint_of(definition: Mapping[str, Any]) -> str:
    """Return the SHA-256, in hex, of a definition as `Workflow.to_dict` gives it."""
    semantic = {key: value for key, value in definition.items() if key not in SILENT_FIELDS}
    for part in ("inputs", "outputs"):
        semantic[part] = [_without_silent(item) for item in semantic.get(part, ())]
    # Of content what it holds counts, and not when its file was changed.
    if "steps" in semantic:
        semantic["steps"] = [_without_sources(step) for step in semantic["steps"]]
    text = json.dumps(semantic, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _without_sources(step: Mapping[str, Any]) -> Mapping[str, Any]:
    content = step.get("content")
    return {**step, "content": ContentEntry.without_fingerprints(content)} if content else step


def _without_silent(part: Mapping[str, Any]) -> dict[str, Any]:
    semantic = {key: value for key, value in part.items() if key not in SILENT_PART_FIELDS}
    if "default" in semantic:  # it may be a date or another value that JSON lacks
        semantic["default"] = parse(encode(semantic["default"]))
    return semantic
