"""Pages are fetched from where the policy allows it: looked up once, each redirection checked, within time and size."""

import contextlib
import gzip
import socket
import threading
from http.server import BaseHTTPRequestHandler

import pytest

from divebook.documents import Policy
from divebook.documents.fetch import Page, PageLimits, fetch
from divebook.errors import SetupError
from tests.websites import OneHost, serving

OPEN = Policy("addresses")


class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        status, headers, body = self.server.answers[self.path]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server():
    with serving(Answers) as server:
        server.asked, server.answers = [], {"/": (200, {"Content-Type": "text/plain; charset=latin-1"}, b"caf\xe9")}
        yield server


def test_a_page_comes_with_what_the_response_says_of_it(server):
    assert fetch(server.url + "/", OPEN) == Page("text/plain", b"caf\xe9", "latin-1", server.url + "/")


def test_this_machine_is_not_asked_unless_that_is_allowed(server):
    with pytest.raises(SetupError, match=r"'127\.0\.0\.1' is an address of this machine .* --allow addresses"):
        fetch(server.url + "/", Policy())
    assert server.asked == []


def test_a_name_that_leads_to_this_machine_is_not_connected_to(server, monkeypatch):
    lookups = []

    def lookup(host, port, **_):
        lookups.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    with pytest.raises(SetupError, match=r"'rebound\.example' is an address of this machine"):
        fetch(f"http://rebound.example:{server.server_port}/", Policy())
    assert (server.asked, lookups) == ([], ["rebound.example"])


@pytest.mark.parametrize(
    "target",
    ["http://127.0.0.2:{port}/", "http://localhost:{port}/", "file:///etc/passwd", "ftp://127.0.0.1/", "http://[::1]/"],
)
def test_each_redirection_is_checked(server, target):
    server.answers["/away"] = (302, {"Location": target.format(port=server.server_port)}, b"")
    with pytest.raises(SetupError):
        fetch(server.url + "/away", OneHost())
    assert server.asked == ["/away"]


def test_a_redirection_within_what_is_allowed_is_followed(server):
    server.answers["/away"] = (302, {"Location": "/"}, b"")
    found = fetch(server.url + "/away", OneHost())
    assert (found.body, found.address) == (b"caf\xe9", server.url + "/")


@pytest.mark.parametrize(("most", "is_followed"), [(3, True), (2, False)])
def test_only_so_many_redirections_are_followed(server, most, is_followed):
    for number in range(3):
        server.answers[f"/{number}"] = (302, {"Location": f"/{number - 1}" if number else "/"}, b"")
    with contextlib.nullcontext() if is_followed else pytest.raises(SetupError, match="failed to fetch"):
        fetch(server.url + "/2", OneHost(), PageLimits(redirections=most))
    assert ("/" in server.asked) is is_followed


def test_what_is_too_long_is_given_up(server):
    server.answers["/big"] = (200, {}, b"x" * 50_000)
    with pytest.raises(SetupError, match="more than 40000 bytes"):
        fetch(server.url + "/big", OPEN, PageLimits(bytes=40_000))


@pytest.mark.parametrize(
    "begins", [b"", b"HTTP/1.1 200 OK\r\nX-A: b\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"]
)
def test_a_server_that_never_comes_to_its_end_is_left(begins):
    left = threading.Event()

    def serve():
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):  # an end with something unread in it is a reset
            connection.sendall(begins)
            while connection.recv(4096):
                pass  # until the other side has ended it
        left.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(SetupError, match=r"it took more than 0\.05 s"):
            fetch(f"http://127.0.0.1:{listener.getsockname()[1]}/", OPEN, PageLimits(silence=600.0, seconds=0.05))
        thread.join()
    assert left.is_set()


MANY = b"".join(b"X-%d: y\r\n" % number for number in range(200))
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (OK + b"Content-Length: 9\r\n\r\nab", "ended 7 bytes too early: fetch it again"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n9\r\nab", "failed to fetch"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n-9\r\nab", "failed to fetch"),
        (OK + b"X: " + b"y" * 70_000 + b"\r\n\r\nab", "failed to fetch"),
        (OK + MANY + b"\r\nab", "failed to fetch"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 3 + b"garbage\r\n", "failed to fetch"),
        (b"HTTP/1.1 302 Found\r\nLocation: //127.0.0.2/\r\n\r\n", "private network"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1@127.0.0.2/\r\n\r\n", "private network"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://0x7f.2/\r\n\r\n", "private network"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://[::ffff:127.0.0.2]/\r\n\r\n", "private network"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://2130706434\\@public.example/\r\n\r\n", "failed to fetch"),
        (b"HTTP/1.1 302 Found\r\nLocation: data:text/plain,x\r\n\r\n", "is not allowed"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://[\r\n\r\n", "failed to fetch"),
    ],
)
def test_a_server_that_lies_is_refused_in_words(answer, says):
    def serve():
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.recv(4096)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(SetupError, match=says):
            fetch(f"http://127.0.0.1:{listener.getsockname()[1]}/", OneHost())
        thread.join()


@pytest.mark.parametrize("charset", ["undefined", "no-such", "zlib", "utf-8", "punycode"])
def test_what_is_not_the_text_it_says_is_refused_in_words(charset):
    with pytest.raises(SetupError, match=f"is not {charset} text"):
        Page("text/plain", b"\x80\x81z\xff", charset).text("https://x.example")


def test_what_is_packed_is_not_unpacked(server):
    packed = gzip.compress(b"x" * 10_000_000)
    server.answers["/bomb"] = (200, {"Content-Type": "text/plain", "Content-Encoding": "gzip"}, packed)
    assert fetch(server.url + "/bomb", OPEN).body == packed


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "127.1", "[::ffff:7f00:1]", "[::127.0.0.1]", "a@127.0.0.1"])
def test_no_way_to_write_this_machine_leads_there_not_even_by_a_proxy(server, monkeypatch, host):
    for proxy in ("", server.url):
        monkeypatch.setenv("http_proxy", proxy)
        with pytest.raises(SetupError, match="private network"):
            fetch(f"http://{host}:{server.server_port}/", Policy())
    assert server.asked == []


@pytest.mark.parametrize(
    "url", ["http://", "https:///x", "gopher://x", "http://a b/", "http://x\0/", "http://[::", "http://a:99999/"]
)
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(SetupError):
        fetch(url, Policy())
