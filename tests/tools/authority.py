"""An authorization server on loopback, and the MCP server that it guards: registration, consent, PKCE and tokens."""

import hashlib
import json
from base64 import urlsafe_b64encode
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.tools.test_mcp_http import Plain

TOKENS = {"access_token": "at-9876543210", "token_type": "Bearer", "refresh_token": "rt-9876543210", "expires_in": 3600}


class Authority(Plain):
    """Asks for a token at ``/mcp``; `server.refuses` is what its page answers in place of a code."""

    @property
    def base(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def do_POST(self):  # noqa: N802 - what the standard library calls
        if self.path == "/register":
            asked = json.loads(self.body())
            return self.answer(201, json.dumps({**asked, "client_id": "c-1"}).encode())
        if self.path == "/token":
            return self.give(parse_qs(self.body().decode()))
        if self.headers.get("authorization") != f"Bearer {TOKENS['access_token']}":
            self.body()
            return self.answer(401, b"")
        return super().do_POST()

    def do_GET(self):  # noqa: N802 - what the standard library calls
        asked = urlsplit(self.path)
        if asked.path == "/authorize":
            return self.consent({name: values[0] for name, values in parse_qs(asked.query).items()})
        if asked.path.startswith("/.well-known/oauth-protected-resource"):
            found = {"resource": f"{self.base}/mcp", "authorization_servers": [self.server.authority or self.base]}
            return self.answer(200, json.dumps(found).encode())
        if asked.path.startswith("/.well-known/"):
            places = {f"{name}_endpoint": f"{self.base}/{path}" for name, path in ENDPOINTS.items()}
            found = {"issuer": self.base, "code_challenge_methods_supported": ["S256"], **places}
            return self.answer(200, json.dumps({**found, "response_types_supported": ["code"]}).encode())
        return super().do_GET()

    def consent(self, asked):
        self.server.consents.append(asked)
        came = {"error": self.server.refuses} if self.server.refuses else {"code": "code-0123456789"}
        self.send_response(302)
        self.send_header("location", f"{asked['redirect_uri']}?{urlencode({**came, 'state': asked['state']})}")
        self.send_header("content-length", "0")
        self.end_headers()

    def give(self, asked):
        digest = hashlib.sha256(asked["code_verifier"][0].encode()).digest()
        challenge = urlsafe_b64encode(digest).decode().rstrip("=")
        fits = asked["code"] == ["code-0123456789"] and challenge == self.server.consents[-1]["code_challenge"]
        self.answer(200 if fits else 400, json.dumps(TOKENS if fits else {"error": "invalid_grant"}).encode())

    def body(self):
        return self.rfile.read(int(self.headers["content-length"]))


ENDPOINTS = {"authorization": "authorize", "token": "token", "registration": "register"}
