"""A model's server on the loopback interface, which speaks as those of OpenAI and Anthropic do, whole and streaming."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from divebook.agents.scripted import ScriptedReply
from tests.agents import anthropic_form, openai_form
from tests.agents.openai_form import USAGE

__all__ = ["CALM", "PATIENCE", "PIECES", "TEXT", "USAGE", "ModelServer", "Mood"]

PIECES = ("Roses ", "are ", "red")
TEXT = "".join(PIECES)
PATIENCE = 20


@dataclass(frozen=True)
class Mood:
    """What befalls one request."""

    status: int = 200
    after: float | str | None = None
    """What a Retry-After header says."""
    cut: bool = False
    """Whether the connection ends without an answer."""
    hang: float = 0.0
    """Seconds after which the connection ends without an answer."""
    cut_after: int | None = None
    """How many events of a stream are sent before the connection ends."""
    ends_after: int | None = None
    """How many events of a stream are sent before the body ends in good order, as a proxy ends it that gives up."""
    garbage: bool = False
    """Whether the answer is no JSON."""
    crumbs: bool = False
    """Whether a stream comes byte by byte."""
    edit: Callable[[str], str] = str
    """What becomes of an answer on its way: of its body, or of each event of a stream."""


CALM = Mood()


class ModelServer(ThreadingHTTPServer):
    """Answers every request with the same text, or with what a script says.

    Parameters
    ----------
    refuses
        Whether it refuses to stream.
    cuts
        Whether it ends the connection behind the first piece.
    holds
        Whether it writes no more behind the first piece, and waits for the other side to hang up.
    moods
        What befalls a request, by its number from 0: ``{3: Mood(429, after=0.01)}``; the others are answered.
    slow
        Seconds that every answer takes.
    replies
        What it answers, in the form of a script: the n-th to a request that holds n answers already.
    key
        The only key that it takes.
    """

    daemon_threads = True
    request_queue_size = 64
    """Connections that wait to be taken; with five, the default, many at once are turned away."""

    def __init__(self, *, refuses=False, cuts=False, holds=False, moods=None, slow=0.0, replies=(TEXT,), key=None):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.refuses, self.holds, self.moods = refuses, holds, dict(moods or {})
        self.mood = Mood(cut_after=1) if cuts else CALM
        self.slow, self.key = slow, key
        self.replies = [ScriptedReply.read(reply) for reply in replies]
        self.streamed = []
        self.prompts = []
        self.bodies = []
        self.headers = []
        self.connections = 0
        """How many were ever made."""
        self.open = self.most_open = 0
        self.left_alone = threading.Event()
        """Set while no connection is open."""
        self._counting = threading.Lock()
        self.hung_up = threading.Event()
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.url = f"{self.address}/v1"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def connected(self, change):
        """Count a connection that was made (1) or that ended (-1)."""
        with self._counting:
            self.connections += change > 0
            self.open += change
            self.most_open = max(self.most_open, self.open)
            (self.left_alone.clear if self.open else self.left_alone.set)()

    def mood_for(self, prompt, body):
        """Note a request; return what befalls it."""
        with self._counting:
            self.prompts.append(prompt)
            self.bodies.append(body)
            return self.moods.get(len(self.prompts) - 1, self.mood)

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        """Count the connection."""
        super().setup()
        self.server.connected(1)

    def finish(self):
        """Count it no more."""
        self.server.connected(-1)
        super().finish()

    def log_message(self, *_):
        """Keep quiet."""

    def do_GET(self):
        """Tell a process beside this one what was seen."""
        server = self.server
        self._send(200, {"requests": len(server.prompts), "open": server.open, "most_open": server.most_open})

    def do_POST(self):
        form = anthropic_form if self.path.startswith("/v1/messages") else openai_form
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.streamed.append(bool(body.get("stream")))
        self.server.headers.append(self.headers)
        mood = self.server.mood_for(form.prompt_of(body), body)
        time.sleep(mood.hang or self.server.slow)
        if mood.cut or mood.hang:
            self.close_connection = True
        elif self.server.key is not None and form.key_of(self.headers) != self.server.key:
            self._send(401, form.refusal(f"invalid key: {form.key_of(self.headers)}"))
        elif mood.status != 200:
            self._send(mood.status, form.refusal("not now"), mood.after)
        elif mood.garbage:
            self._send(200, "<html>not what you asked for</html>", as_json=False)
        elif not body.get("stream"):
            self._send(200, mood.edit(json.dumps(form.whole(*self._reply(form, body)))), as_json=False)
        elif self.server.refuses:
            self._send(400, {"error": form.REFUSAL})
        else:
            self._stream(form, body, mood)

    def _reply(self, form, body):
        """Return what is answered, and how many answers came before."""
        number, replies = form.answered(body), self.server.replies
        return replies[min(number, len(replies) - 1)], number

    def _send(self, status, told, after=None, *, as_json=True):
        data = (json.dumps(told) if as_json else told).encode()
        self.send_response(status)
        if after is not None:
            self.send_header("retry-after", str(after))
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, form, body, mood):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        reply, number = self._reply(form, body)
        pieces = PIECES if reply.say == TEXT else [reply.say] if reply.say else []
        last = 1 if self.server.holds else mood.cut_after
        for sent, event in enumerate(form.events(reply, number, pieces, body)):
            if sent == last:
                self._stop()
                return
            if sent == mood.ends_after:
                break
            written = mood.edit(event)
            for part in written if mood.crumbs else [written]:
                self._write(part.encode())
        self.wfile.write(b"0\r\n\r\n")

    def _stop(self):
        self.close_connection = True
        if self.server.holds:
            self.connection.settimeout(PATIENCE)
            if self.connection.recv(1) == b"":
                self.server.hung_up.set()

    def _write(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
