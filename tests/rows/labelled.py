"""``python -m tests.rows.labelled [ROWS]``: rows are labelled by a service that refuses every fifth request.

The service says 429 and when to come again. The kernel is killed in the middle, and a new one runs the same cell: all
rows are labelled then, no refusal counts as a row's error, and no more than a second's worth of rows is paid twice.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from jupyter_client.manager import start_new_kernel

SECONDS, PARALLEL = 0.02, 20
A_SECOND = 1.2 * PARALLEL / SECONDS + PARALLEL
CELL = """
import json
import urllib.error
import urllib.request
import pandas as pd
import divebook
from divebook import Retry

class BusyError(Exception):
    def __init__(self, retry_after):
        super().__init__("429: come again")
        self.retry_after = retry_after

def label(text):
    try:
        with urllib.request.urlopen("{url}", json.dumps(text).encode(), timeout=30) as answer:
            return {{"label": json.load(answer)}}
    except urllib.error.HTTPError as error:
        if error.code == 429:
            raise BusyError(float(error.headers["Retry-After"])) from error
        raise

frame = pd.DataFrame({{"text": [f"text {{n}}" for n in range({rows})]}})
labels = divebook.map(frame, label, store="labels", parallel={parallel}, retry=Retry(20, seconds=0.01))
found = labels.wait().frame
print(json.dumps([int((found["label"] == found["text"].str.upper()).sum()), int(found["error"].notna().sum())]))
"""


class Service:
    """Labels texts; counts what it was asked, what it has refused, and what it was paid for."""

    def __init__(self):
        self.asked, self.refused, self.paid = 0, 0, []
        self.lock = threading.Lock()
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                text = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with service.lock:
                    service.asked += 1
                    refuses = service.asked % 5 == 0
                    service.refused += refuses
                    if not refuses:
                        service.paid.append(text)
                time.sleep(0 if refuses else SECONDS)
                body = b"" if refuses else json.dumps(text.upper()).encode()
                self.send_response(429 if refuses else 200)
                self.send_header("Content-Length", str(len(body)))
                if refuses:
                    self.send_header("Retry-After", "0.02")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"


@contextmanager
def service():
    made = Service()
    serving = threading.Thread(target=made.server.serve_forever, daemon=True)
    serving.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        made.server.server_close()


@contextmanager
def kernel(folder):
    manager, client = start_new_kernel(cwd=str(folder))
    try:
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def labelled(folder, rows):
    """Label rows in two kernels; return what the second one found, and the service."""
    with service() as asked:
        cell = CELL.format(url=asked.url, rows=rows, parallel=PARALLEL)
        with kernel(folder) as (manager, client):
            client.execute("%load_ext divebook")
            client.execute(cell)
            until = time.monotonic() + 60
            while len(asked.paid) < rows // 2:
                assert time.monotonic() < until, "nothing is asked for"
                time.sleep(0.01)
            manager.signal_kernel(9)
        printed = []
        with kernel(folder) as (_, client):
            client.execute_interactive("%load_ext divebook", timeout=60)
            reply = client.execute_interactive(cell, timeout=120, output_hook=lambda said: _note(said, printed))
            assert reply["content"]["status"] == "ok", reply["content"]
    return json.loads(printed[-1]), asked


def _note(said, printed):
    if said["msg_type"] == "stream" and said["content"]["name"] == "stdout":
        printed.extend(line for line in said["content"]["text"].splitlines() if line.startswith("["))


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.rows.labelled", description=__doc__)
    rows = parser.add_argument("rows", nargs="?", type=int, default=2000) and parser.parse_args().rows
    with tempfile.TemporaryDirectory(prefix="divebook-labels-") as folder:
        found, asked = labelled(Path(folder), rows)
        twice = len(asked.paid) - len(set(asked.paid))
        told = f"{rows} rows: {found[0]} labelled, {found[1]} errors, {asked.refused} refusals, {twice} paid twice"
        sys.stdout.write(f"{told} (at most {A_SECOND:.0f})\n")
        assert found == [rows, 0]
        assert twice <= A_SECOND


if __name__ == "__main__":
    main()
