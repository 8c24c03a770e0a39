"""Forty secrets of forty shapes, made up from parts: those of issuers, and those that nothing but their value tells."""

import json
import re
import sqlite3
import zlib
from base64 import b64encode

from tests.text.shapes import shapes

ISSUED = (
    *("OpenAI project", "Anthropic", "AWS key id", "GitHub", "GitHub OAuth", "GitHub fine", "GitLab", "Slack bot"),
    *("Stripe", "Google API", "Google OAuth", "npm", "PyPI", "Hugging Face", "Twilio", "SendGrid", "Docker"),
    *("Azure storage", "Azure shared access", "Azure client secret", "Slack webhook", "Telegram bot", "JWT"),
    *("PEM RSA ", "PEM in JSON", "Authorization: Bearer", "Authorization: Basic", "Cookie", "Set-Cookie"),
    *("postgres address", "token as user", "AWS presigned", "query token", "form body", "keyword", "escaped twice"),
)
"""Names in `tests.text.shapes`: thirty-six that their form, or the text around them, gives away."""
PEM = "\n".join(
    ["-----BEGIN EC PRIVATE" + " KEY-----", *("kd8" * 21 for _ in range(3)), "-----END EC PRIVATE KEY-----"]
)
ACCOUNT = json.dumps({"type": "service_account", "client_email": "a@b.example", "private_key": f"{PEM}\n"}, indent=1)
UNTOLD = {
    "words": "tulips in the window box",
    "signs": "p\"ss'w\\rd <&> ü+/ß %20 {x}",
    "a placeholder by its looks": "{your-key-41c9}",
    "a file of credentials": ACCOUNT,
}
"""Four that are known by their value only."""


def told():
    """Return by name: a text, and what of it must not be seen."""
    found = {what: (text, secret) for what, text, secret in shapes() if what in ISSUED}
    assert len(found) == len(ISSUED) == 36
    return found


def values():
    """Return all forty by name, as somebody would put them into a variable or a file."""
    found = {what: secret for what, (_, secret) in told().items()}
    return found | UNTOLD


def traces(secret):
    """Return texts of which none may be left of a secret: as it is, escaped, in base64, and any longer piece of it."""
    yield from {secret, json.dumps(secret)[1:-1], repr(secret)[1:-1]}
    yield b64encode(secret.encode()).decode().rstrip("=")[:-1]
    key = json.loads(secret)["private_key"] if secret.startswith(('{"', "{\n")) else secret
    for line in re.split(r"\\n|\n", key):
        if len(line) >= 24 and "KEY-----" not in line:
            yield from (line[begin : begin + 20] for begin in range(0, len(line) - 19, 4))


def contents(path):
    """Return what a file holds, its rows unpacked if it is a database."""
    data = path.read_bytes()
    text = data.decode("utf-8", "replace")
    if not data.startswith(b"SQLite format 3"):
        return text + unpacked(data)
    with sqlite3.connect(path) as db:
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in db.execute(f'SELECT * FROM "{table}"'):
                text += "".join(unpacked(cell) for cell in row)
    return text


def unpacked(cell):
    if not isinstance(cell, bytes):
        return str(cell)
    for begin in range(min(len(cell), 16)):
        try:
            return zlib.decompress(cell[begin:]).decode("utf-8", "replace")
        except zlib.error:
            continue
    return cell.decode("utf-8", "replace")
