"""OAuth sign-in to MCP servers: consent in the browser, and storage of the tokens.

`Consent` opens the consent page of the authorization server in the browser and listens on a local port for the
redirect. A redirect is accepted only on the configured address and with the expected ``state`` parameter. The SDK's
`OAuthClientProvider` exchanges the code of the redirect for tokens, with PKCE. `Tokens` and `FileTokens` store the
tokens.
"""

from __future__ import annotations

import asyncio
import json
import webbrowser
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import anyio.to_thread
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from divebook.definitions.servers import FILE, MCPServerDefinition, OAuthDefinition, TokenStoreDefinition
from divebook.documents.policy import Policy, resolved
from divebook.documents.private_files import replace_whole
from divebook.errors import SetupError, StoreError
from divebook.stores.codec import Sealing
from divebook.text.redaction import logger, shared

PATIENCE: Final = 180.0
"""Seconds until the sign-in fails because the browser has not been redirected back."""
_HEADERS = 10.0
"""Seconds that a browser may take to send its request."""
_SHOWN = 200
"""Maximum number of characters of foreign text, such as an address or an error, in an error message."""
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_REPLIES = {
    True: ("200 OK", "divebook received the answer. You can close this page."),
    False: ("404 Not Found", "This page does not exist."),
}
NO_LOCAL_REDIRECT: Final = (
    "to get a new token, the browser must return to this process, which is not possible with the RedirectURI {}; write "
    "an address of this machine with a port, such as http://localhost:8085/oauth/callback, or put a token into the "
    "file of the TokenStore, or set AuthorizationToken"
)
_log = logger(__name__)


class Consent:
    """Request for a person's consent in the browser to sign in to one MCP server. The SDK calls `ask` to show the page,
    and `answer` to get the result.

    Parameters
    ----------
    server
        Name of the MCP server, for the message to the person.
    redirect
        Redirect address of the OAuth client. Its host must be this machine, with a port to listen on.
    """

    def __init__(self, server: str, redirect: str) -> None:
        self._server = server
        self._redirect = urlsplit(redirect)
        self._parameters: dict[str, str] = {}

    async def ask(self, address: str) -> None:
        """Open the consent page in the browser, and wait until the browser is redirected back to this machine.

        Raises
        ------
        OAuthFlowError
            The address cannot be redirected to this machine, or the browser was not redirected in time.
        """
        page = urlsplit(address)
        redirect_url = self._redirect
        # A page without encryption is safe only on this machine.
        if page.scheme != "https" and not (page.scheme == "http" and page.hostname in _LOOPBACK):
            raise OAuthFlowError(f"its authorization page does not use https: {address[:_SHOWN]}")
        # The browser must be redirected to this process, so the address must be local and name the port.
        if redirect_url.scheme != "http" or redirect_url.hostname not in _LOOPBACK or redirect_url.port is None:
            raise OAuthFlowError(NO_LOCAL_REDIRECT.format(redirect_url.geturl()))
        redirect: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        handler = partial(self._handle, parse_qs(page.query)["state"][-1], redirect)
        # Listened on before the page opens, because the browser may be redirected at once.
        try:
            listener = await asyncio.start_server(handler, redirect_url.hostname, redirect_url.port)
        except OSError as error:
            raise OAuthFlowError(
                f"port {redirect_url.port} of the RedirectURI cannot be used ({error}); choose a RedirectURI with a "
                "free port that is registered with the server"
            ) from error
        async with listener:
            _log.warning("MCP server %s asks for your permission; if no browser opens, open %s", self._server, address)
            # In a thread, because starting a browser may block. A cancelled sign-in does not wait for it.
            await anyio.to_thread.run_sync(webbrowser.open, address, abandon_on_cancel=True)
            self._parameters = await _in_time(redirect)

    async def authorization_code(self) -> AuthorizationCodeResult:
        """Return the authorization code that the browser was redirected with. Raise `OAuthFlowError` if the person
        refused the sign-in.
        """
        parameters = self._parameters
        if "code" not in parameters:
            raise OAuthFlowError(
                f"permission was not given in the browser: {parameters.get('error', 'no reason given')[:_SHOWN]}"
            )
        # The code can be exchanged for tokens, so it must not appear in logs.
        shared().know(parameters["code"])
        return AuthorizationCodeResult(code=parameters["code"], state=parameters["state"], iss=parameters.get("iss"))

    async def _handle(
        self,
        state: str,
        redirect: asyncio.Future[dict[str, str]],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Answer one HTTP request that arrives on the local port for the redirect. Only the expected redirect is
        accepted, because any program on this machine may send requests.
        """
        try:
            async with asyncio.timeout(_HEADERS):
                # The head of an HTTP request ends with an empty line.
                parameters = self._matching_parameters((await reader.readuntil(b"\r\n\r\n")).decode("latin-1"), state)
                # Only the first redirect counts: a reloaded page sends the same request again.
                if parameters is not None and not redirect.done():
                    redirect.set_result(parameters)
                status, text = _REPLIES[parameters is not None]
                writer.write(
                    f"HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {len(text)}\r\n"
                    f"connection: close\r\n\r\n{text}".encode()
                )
                await writer.drain()
        # Any program on this machine may connect and send anything. The sign-in continues to wait.
        except (TimeoutError, OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            _log.debug("received something other than a browser request: %s", error)
        finally:
            writer.close()

    def _matching_parameters(self, head: str, state: str) -> dict[str, str] | None:
        """Return the query parameters of an HTTP request if it is the redirect that ends this sign-in. Return None for
        any other request.
        """
        method, _, rest = head.partition(" ")
        target = urlsplit(rest.partition(" ")[0])
        parameters = {name: values[0] for name, values in parse_qs(target.query).items()}
        # `state` proves that the redirect answers our own request. Other programs cannot guess it.
        fits = method == "GET" and target.path == self._redirect.path and parameters.get("state") == state
        return parameters if fits else None


async def _in_time(redirect: asyncio.Future[dict[str, str]]) -> dict[str, str]:
    try:
        async with asyncio.timeout(PATIENCE):
            return await redirect
    except TimeoutError as error:
        raise OAuthFlowError(f"permission was not given in the browser within {PATIENCE:g} seconds") from error


REDIRECT = "http://localhost:8085/oauth/callback"
_TOKENS = "tokens"
_CLIENT = "client"


class Tokens:
    """Storage in memory of the OAuth tokens and the registered OAuth client of one MCP server. It lasts until the
    environment is closed.
    """

    def __init__(self, client: OAuthClientInformationFull | None = None) -> None:
        self._client = client
        self._values: dict[str, Any] = {}

    async def get_tokens(self) -> OAuthToken | None:
        """Return the stored OAuth tokens. Return None before the first sign-in."""
        tokens = self._read().get(_TOKENS)
        if tokens is None:
            return None
        shared().know_all(tokens)
        return OAuthToken.model_validate(tokens)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store new OAuth tokens. From now on they are redacted in logs and output."""
        plain = tokens.model_dump(mode="json", exclude_none=True)
        shared().know_all(plain)
        # The registered client in the same file must stay.
        self._write({**self._read(), _TOKENS: plain})

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the OAuth client in the server's definition, or else the client that the server has registered. Return
        None without either.
        """
        registered = self._read().get(_CLIENT)
        shared().know_all(registered)
        # The client of the definition takes precedence over one that an earlier sign-in has registered.
        return self._client or (None if registered is None else OAuthClientInformationFull.model_validate(registered))

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store the OAuth client under which the MCP server has registered divebook."""
        plain = client_info.model_dump(mode="json", exclude_none=True)
        shared().know_all(plain)
        self._write({**self._read(), _CLIENT: plain})

    def _read(self) -> dict[str, Any]:
        return self._values

    def _write(self, values: dict[str, Any]) -> None:
        self._values = values


class FileTokens(Tokens):
    """Storage of OAuth tokens in a file that only its owner can read. The file is replaced atomically.

    Parameters
    ----------
    sealing
        Encryption of the store, which also applies to the file. A file that is not encrypted yet can be read.
    """

    def __init__(self, path: Path, sealing: Sealing, client: OAuthClientInformationFull | None = None) -> None:
        super().__init__(client)
        self._path = path
        self._sealing = sealing

    def _read(self) -> dict[str, Any]:
        try:
            values = json.loads(self._sealing.decrypt(self._path.read_bytes()))
        # Before the first sign-in.
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, StoreError) as error:
            raise SetupError(
                f"the tokens in {self._path} cannot be read ({error}); repair or remove that file"
            ) from error
        return values if isinstance(values, dict) else {}

    def _write(self, values: dict[str, Any]) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_whole(self._path, self._sealing.seal(json.dumps(values).encode()))


def provider_of(definition: MCPServerDefinition, policy: Policy, sealing: Sealing) -> OAuthClientProvider | None:
    """Return the httpx authentication object that adds OAuth tokens to requests and renews them. Return None for a
    server that does not use OAuth.
    """
    oauth = definition.oauth
    if oauth is None or definition.url is None:
        return None
    redirect = AnyUrl(oauth.redirect_uri or REDIRECT)
    metadata = OAuthClientMetadata(
        client_name="divebook", redirect_uris=[redirect], scope=" ".join(oauth.scopes) or None
    )

    token_store = oauth.token_store or TokenStoreDefinition()
    # Without a client id, the SDK registers divebook at the server, and the storage keeps the registered client.
    folder = Path(definition.folder)
    client = _client(oauth, redirect, policy, folder)
    storage = Tokens(client)
    if token_store.type == FILE and token_store.path is not None:
        storage = FileTokens(policy.file(Path(token_store.path).expanduser(), folder), sealing, client)
    consent = Consent(definition.name, str(redirect))
    return OAuthClientProvider(definition.url, metadata, storage, consent.ask, consent.authorization_code)


def _client(
    oauth: OAuthDefinition, redirect: AnyUrl, policy: Policy, folder: Path
) -> OAuthClientInformationFull | None:
    if not oauth.client_id:
        return None
    secret = resolved(oauth.client_secret, policy, folder)
    if secret:
        shared().know(secret)
    return OAuthClientInformationFull(
        client_id=resolved(oauth.client_id, policy, folder), client_secret=secret, redirect_uris=[redirect]
    )
