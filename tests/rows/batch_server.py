"""A loopback server with OpenAI's files and batches: what it was sent, and answers after so many looks at a batch."""

import json
import threading
import time
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_):
        """Say nothing of who was killed before the answer came."""


class BatchServer:
    """Answers each prompt with its capitals; one with ``fail`` in it fails once, the first time that it is sent.

    Parameters
    ----------
    looks
        How often a batch is looked at before it has ended.
    seconds
        How long it takes before and after a batch is made: who is killed meanwhile does not know whether it was.
    """

    def __init__(self, looks=1, seconds=0.0):
        self.looks, self.seconds = looks, seconds
        self.files, self.batches, self.requests = {}, {}, []
        self.refusals = []
        """Statuses with which the next submissions end, each after the batch was made if it is at least 500."""
        self.spoil = lambda lines: lines
        """Makes of the answers of a batch what its file has: lines as data, or as text."""
        self.instead = lambda method, path: None
        """Returns the status and the answer with which a request ends in place of its own, if one does."""
        self._numbers, self._failed = count(1), set()
        self._lock = threading.Lock()
        self.server = _Server(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    @property
    def submitted(self):
        """How often each prompt is in a batch that was made."""
        lines = [line for batch in self.batches.values() for line in self.files[batch["input_file_id"]]]
        return Counter(_prompt(line) for line in lines)

    def take(self, method, path, body):
        """Return the status and the answer to a request."""
        with self._lock:
            self.requests.append((method, path))
        instead = self.instead(method, path.removeprefix("/v1/").split("?")[0])
        if instead is not None:
            return instead
        kind, name = [*path.removeprefix("/v1/").split("?")[0].split("/"), ""][:2]
        if (method, kind) == ("POST", "files"):
            lines = body.replace(b"\r\n", b"\n").split(b"\n")
            return 200, self._file([json.loads(line) for line in lines if line.startswith(b'{"custom_id"')])
        if path.endswith("/cancel"):
            return 200, self.batches[name].update(status="cancelled") or self.batches[name]
        if (method, kind) == ("POST", "batches"):
            return self._submitted(json.loads(body))
        if kind == "files":
            return 200, "\n".join(map(_compact, self.files[name])) if method == "GET" else {"id": name, "deleted": True}
        if name:
            return 200, self._looked_at(self.batches[name])
        return 200, {"object": "list", "data": [*self.batches.values()][::-1], "has_more": False}

    def _file(self, lines):
        name = f"file-{next(self._numbers)}"
        self.files[name] = lines
        return {"id": name, "object": "file", "bytes": 1, "created_at": 1, "filename": "x", "purpose": "batch"}

    def _submitted(self, asked):
        time.sleep(self.seconds)
        status = self.refusals.pop(0) if self.refusals else 200
        made = {
            "id": f"batch_{next(self._numbers)}",
            "object": "batch",
            "endpoint": asked["endpoint"],
            "input_file_id": asked["input_file_id"],
            "completion_window": "24h",
            "status": "in_progress",
            "created_at": int(time.time()),
            "looks": 0,
        }
        if status == 200 or status >= 500:
            self.batches[made["id"]] = made
        time.sleep(self.seconds)
        return (200, made) if status == 200 else (status, {"error": {"message": "come again"}})

    def _looked_at(self, batch):
        batch["looks"] += 1
        if batch["looks"] >= self.looks and batch["status"] == "in_progress":
            lines = self.files[batch["input_file_id"]]
            batch["output_file_id"] = self._file(self.spoil(list(map(self._answered, lines))))["id"]
            batch["status"] = "completed"
        return batch

    def _answered(self, line):
        prompt = _prompt(line)
        fails = "fail" in prompt and prompt not in self._failed
        self._failed.add(prompt)
        body = {"error": {"message": "not now", "code": "server_error"}} if fails else _response(prompt.upper(), line)
        return {"custom_id": line["custom_id"], "response": {"status_code": 500 if fails else 200, "body": body}}


def _compact(line):
    return line if isinstance(line, str) else json.dumps(line, separators=(",", ":"))


def _prompt(line):
    content = line["body"]["input"][-1]["content"]
    return content if isinstance(content, str) else content[-1]["text"]


def _response(text, line):
    tools = line["body"].get("tools")
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }
    call = {
        "id": "fc_1",
        "type": "function_call",
        "call_id": "call_1",
        "name": tools[0]["name"] if tools else "",
        "arguments": json.dumps({"label": text}),
        "status": "completed",
    }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5-mini",
        "status": "completed",
        "output": [call if tools else message],
        "usage": {
            "input_tokens": 1000,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 100,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 1100,
        },
    }


def _handler(server):
    class Handler(BaseHTTPRequestHandler):
        protocol_version, wbufsize = "HTTP/1.1", -1

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, told = server.take(self.command, self.path, body)
            sent = (told if isinstance(told, str) else json.dumps(told)).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            if status == 429:
                self.send_header("Retry-After-Ms", "10")
            self.end_headers()
            self.wfile.write(sent)

        def do_GET(self):
            self.do_POST()

        def do_DELETE(self):
            self.do_POST()

        def log_message(self, *_):
            """Say nothing."""

    return Handler


@contextmanager
def batch_server(**options):
    made = BatchServer(**options)
    threading.Thread(target=made.server.serve_forever, daemon=True).start()
    try:
        yield made
    finally:
        made.server.shutdown()
        made.server.server_close()
