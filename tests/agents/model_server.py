"""A model's server on the loopback interface, which speaks the chat completions of OpenAI, whole and streaming."""

import json
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PIECES = ("Roses ", "are ", "red")
USAGE = {"prompt_tokens": 11, "completion_tokens": 6, "total_tokens": 17, "prompt_tokens_details": {"cached_tokens": 3}}
REFUSAL = {"message": "Your organization must be verified to stream this model.", "param": "stream", "code": "x"}
BASE = {"id": "answer-1", "created": 1_700_000_000, "model": "gpt-4o-mini"}
PATIENCE = 20


@dataclass(frozen=True)
class Mood:
    """What befalls one request."""

    status: int = 200
    after: float | None = None
    """Seconds of a Retry-After header."""
    cut: bool = False
    """Whether the connection ends without an answer."""
    hang: float = 0.0
    """Seconds after which the connection ends without an answer."""


CALM = Mood()


class ModelServer(ThreadingHTTPServer):
    """Answers every request with the same text.

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
    """

    daemon_threads = True
    request_queue_size = 64
    """Connections that wait to be taken; with five, the default, many at once are turned away."""

    def __init__(self, *, refuses=False, cuts=False, holds=False, moods=None, slow=0.0):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.refuses, self.cuts, self.holds, self.moods = refuses, cuts, holds, dict(moods or {})
        self.slow = slow
        self.streamed = []
        self.prompts = []
        self.connections = 0
        """How many were ever made."""
        self.open = self.most_open = 0
        self.left_alone = threading.Event()
        """Set while no connection is open."""
        self._counting = threading.Lock()
        self.hung_up = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}/v1"

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

    def mood_for(self, prompt):
        """Note a request; return what befalls it."""
        with self._counting:
            self.prompts.append(prompt)
            return self.moods.get(len(self.prompts) - 1, CALM)

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
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.streamed.append(bool(body.get("stream")))
        mood = self.server.mood_for(str(body["messages"][-1]["content"]))
        time.sleep(mood.hang or self.server.slow)
        if mood.cut or mood.hang:
            self.close_connection = True
        elif mood.status != 200:
            self._send(mood.status, {"error": {"message": "not now"}}, mood.after)
        elif not body.get("stream"):
            self._send(200, _completion())
        elif self.server.refuses:
            self._send(400, {"error": REFUSAL})
        else:
            self._stream(body["stream_options"]["include_usage"])

    def _send(self, status, told, after=None):
        data = json.dumps(told).encode()
        self.send_response(status)
        if after is not None:
            self.send_header("retry-after", str(after))
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, with_usage):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self._say(_chunk({"role": "assistant", "content": PIECES[0]}))
        if self.server.cuts or self.server.holds:
            self._stop()
            return
        for piece in PIECES[1:]:
            self._say(_chunk({"content": piece}))
        self._say(_chunk({}, "stop"))
        if with_usage:
            self._say({**_chunk({}), "choices": [], "usage": USAGE})
        self._write(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _stop(self):
        self.close_connection = True
        if self.server.holds:
            self.connection.settimeout(PATIENCE)
            if self.connection.recv(1) == b"":
                self.server.hung_up.set()

    def _say(self, told):
        self._write(b"data: " + json.dumps(told).encode() + b"\n\n")

    def _write(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))


def _completion():
    message = {"role": "assistant", "content": "".join(PIECES)}
    choices = [{"index": 0, "finish_reason": "stop", "message": message}]
    return {**BASE, "object": "chat.completion", "choices": choices, "usage": USAGE}


def _chunk(delta, finish_reason=None):
    choices = [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
    return {**BASE, "object": "chat.completion.chunk", "choices": choices}
