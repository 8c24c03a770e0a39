"""Servers of the web for tests: on loopback, each in a thread of its own for as long as it is needed."""

import threading
from contextlib import contextmanager
from http.server import ThreadingHTTPServer

import pytest

from divebook.documents import Policy

PROXIES = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


@contextmanager
def serving(handler):
    """Give a server that answers as a handler does and says nothing of it, with its address as `url`.

    It is asked directly, whatever proxies the environment has.
    """
    quiet = type(handler.__name__, (handler,), {"log_message": lambda *_: None})
    with pytest.MonkeyPatch.context() as patch, ThreadingHTTPServer(("127.0.0.1", 0), quiet) as server:
        for name in PROXIES:
            patch.delenv(name, raising=False)
        server.daemon_threads = True
        server.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class OneHost(Policy):
    """Allows one loopback address as if it were public."""

    def address(self, address, name):
        """Refuse all others that are not."""
        if address != "127.0.0.1":
            super().address(address, name)
