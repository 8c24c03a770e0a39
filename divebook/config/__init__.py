"""Definition files and folders: reading, merging, writing, and loading of the content that they refer to."""

from __future__ import annotations

from divebook.config.content import Sources, build_content, resolve_content, with_documents
from divebook.config.loader import load, save
from divebook.definitions.definition import merge, merge_all

__all__ = ["Sources", "build_content", "load", "merge", "merge_all", "resolve_content", "save", "with_documents"]
