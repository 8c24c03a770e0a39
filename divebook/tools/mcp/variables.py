"""Permission check for the variables and files that the definition of a server names; loads no library."""

from __future__ import annotations

from divebook.documents.policy import Policy
from divebook.documents.references import require_allowed, require_expandable
from divebook.workflow.servers import MCPServerDefinition


def require_variables(server: MCPServerDefinition, policy: Policy) -> None:
    """Raise `SetupError` unless a policy allows every ``$NAME``, ``env://NAME`` and ``file://PATH`` of a server."""
    texts = [*server.args, *server.env.values(), *server.headers.values(), server.authorization_token or ""]
    for text in texts:
        require_expandable(text, policy)
    client = [] if server.oauth is None else [server.oauth.client_id, server.oauth.client_secret]
    require_allowed([*texts, *client], policy)
