"""OAuth of MCP servers: tokens in memory or in a file of their owner, through the SDK's own storage interface.

Tokens are used and renewed here; for a first one a person is asked in the browser (`divebook.tools.mcp.consent`).
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from divebook.documents.policy import Policy
from divebook.documents.references import resolved
from divebook.errors import SetupError, StoreError
from divebook.store.codec import Sealing
from divebook.text.redaction import shared
from divebook.tools.mcp.consent import Consent
from divebook.workflow.servers import FILE, MCPServerDefinition, OAuthDefinition, TokenStoreDefinition

REDIRECT = "http://localhost:8085/oauth/callback"
_TOKENS, _CLIENT = "tokens", "client"


class Tokens:
    """Tokens and the client they were given to, as long as the environment is open."""

    def __init__(self, client: OAuthClientInformationFull | None = None) -> None:
        self._client = client
        self._kept: dict[str, Any] = {}

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens, if there are any."""
        found = self._read().get(_TOKENS)
        if found is None:
            return None
        shared().know_all(found)
        return OAuthToken.model_validate(found)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep new tokens."""
        found = tokens.model_dump(mode="json", exclude_none=True)
        shared().know_all(found)
        self._write({**self._read(), _TOKENS: found})

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the client that the definition names, else that which the server has registered."""
        found = self._read().get(_CLIENT)
        shared().know_all(found)
        return self._client or (None if found is None else OAuthClientInformationFull.model_validate(found))

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep what the server has registered."""
        found = client_info.model_dump(mode="json", exclude_none=True)
        shared().know_all(found)
        self._write({**self._read(), _CLIENT: found})

    def _read(self) -> dict[str, Any]:
        return self._kept

    def _write(self, kept: dict[str, Any]) -> None:
        self._kept = kept


class FileTokens(Tokens):
    """Tokens in a file that only its owner can read; it is replaced in one step.

    Parameters
    ----------
    sealing
        That of the store: where this encrypts, so is the file. One that was not encrypted before can be read.
    """

    def __init__(self, path: Path, sealing: Sealing, client: OAuthClientInformationFull | None = None) -> None:
        super().__init__(client)
        self._path, self._sealing = path, sealing

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self._sealing.open(self._path.read_bytes()))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, StoreError) as error:
            raise SetupError(
                f"the tokens in {self._path} cannot be read ({error}): repair or remove that file"
            ) from error
        return found if isinstance(found, dict) else {}

    def _write(self, kept: dict[str, Any]) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")  # 0600
        with os.fdopen(handle, "wb") as file:
            file.write(self._sealing.seal(json.dumps(kept).encode()))
        Path(draft).replace(self._path)


def provider_of(definition: MCPServerDefinition, policy: Policy, sealing: Sealing) -> OAuthClientProvider | None:
    """Return what adds a server's tokens to requests, and renews them; None if its definition asks for none."""
    asked = definition.oauth
    if asked is None or definition.url is None:
        return None
    redirect = AnyUrl(asked.redirect_uri or REDIRECT)
    metadata = OAuthClientMetadata(
        client_name="divebook", redirect_uris=[redirect], scope=" ".join(asked.scopes) or None
    )

    where, client = asked.token_store or TokenStoreDefinition(), _client(asked, redirect, policy)
    storage = Tokens(client)
    if where.type == FILE and where.path is not None:
        storage = FileTokens(policy.file(Path(where.path).expanduser(), Path()), sealing, client)
    consent = Consent(definition.name, str(redirect))
    return OAuthClientProvider(definition.url, metadata, storage, consent.ask, consent.answer)


def _client(asked: OAuthDefinition, redirect: AnyUrl, policy: Policy) -> OAuthClientInformationFull | None:
    if not asked.client_id:
        return None
    secret = resolved(asked.client_secret, policy)
    if secret:
        shared().know(secret)
    return OAuthClientInformationFull(
        client_id=resolved(asked.client_id, policy), client_secret=secret, redirect_uris=[redirect]
    )
