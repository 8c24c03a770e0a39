"""Who asked for what, and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(slots=True)
class Identity:
    """Names and origin of one request."""

    envelope_id: str
    request_id: str
    session_id: str
    created_at: datetime
    received_at: datetime
    user_id: str = "anonymous"
    raw_input: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
