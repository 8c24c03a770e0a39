"""Resources of MCP servers as documents, which nobody writes, and their prompts; all of it plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mcp import Client
from mcp.types import BlobResourceContents, InputRequiredResult, TextResourceContents

from divebook.documents import Document
from divebook.tools.mcp.calling import part_of, text_of
from divebook.tools.mcp.connection import RefusedError
from divebook.tools.mcp.discovery import listed
from divebook.workflow.tool_servers import SCHEME


@dataclass(frozen=True, slots=True)
class ServedResource(Document):
    """A resource of a server; its path is the resource's address."""

    id: str = ""
    """``mcp://server/address``: what it is asked for by."""
    media_type: str = "text/plain"

    @property
    def content_type(self) -> str:
        """Media type, as the server says."""
        return self.media_type


def id_of(server: str, address: str) -> str:
    """Return what a resource of a server is asked for by."""
    return f"{SCHEME}{server}/{address}"


def document_of(server: str, parts: list[TextResourceContents | BlobResourceContents]) -> ServedResource:
    """Return the parts of a resource as a document; binary ones are described."""
    first = parts[0]
    return ServedResource(
        first.uri, "\n".join(map(text_of, parts)), id_of(server, first.uri), first.mime_type or "text/plain"
    )


async def read(client: Client, server: str, address: str) -> ServedResource:
    """Return a resource as a document."""
    result = await client.session.read_resource(address, allow_input_required=True)
    if isinstance(result, InputRequiredResult):
        raise RefusedError("it asks a person something first, and nobody can be asked while a document is read")
    if not result.contents:
        raise RefusedError(f"not found: resource {address} is empty")
    return document_of(server, result.contents)


async def resources(client: Client, server: str) -> list[dict[str, Any]]:
    """Return what a server has to read: id, name, description and media type of each."""
    return [
        {
            "id": id_of(server, found.uri),
            "name": found.name,
            "description": found.description or "",
            "media_type": found.mime_type or "",
        }
        async for found in listed(client.list_resources, "resources")
    ]


async def prompts(client: Client) -> list[dict[str, Any]]:
    """Return the prompts that a server has: name, description and arguments of each."""
    return [
        {
            "name": found.name,
            "description": found.description or "",
            "arguments": [argument.name for argument in found.arguments or ()],
        }
        async for found in listed(client.list_prompts, "prompts")
    ]


async def prompt(client: Client, name: str, arguments: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the messages of a prompt: role and content of each."""
    result = await client.session.get_prompt(name, dict(arguments), allow_input_required=True)
    if isinstance(result, InputRequiredResult):
        raise RefusedError("it asks a person something first; prompts are only read here")
    return [{"role": message.role, "content": part_of(message.content)} for message in result.messages]
