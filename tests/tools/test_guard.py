import os
import signal
import subprocess
import sys

import pytest

from divebook.tools.mcp import guard
from tests.tools.processes import family, none_left

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="groups of processes are of POSIX")
GUARD = [sys.executable, "-I", "-S", guard.__file__]
STUBBORN = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()  # away from the group of its parent
    if os.fork() == 0:
        signal.pause()
        os._exit(0)
print(os.getpid(), flush=True)
while True:
    time.sleep(60)
"""
PARENT = """
import subprocess, sys
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
print(server.pid, server.stdout.readline(), end="", flush=True)
sys.stdin.read()
server.stdin.close()
server.wait()
"""


def guarded(*command, most=1000):
    return subprocess.Popen(
        [*GUARD, str(most), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def python(code):
    return (sys.executable, "-c", code)


def test_input_and_output_pass_unchanged_and_the_end_of_one_is_the_end_of_the_other():
    data = bytes(range(256)) * 300 + b"\n"
    with guarded(*python("import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"), most=10**6) as process:
        out, err = process.communicate(data)
    assert (out, err) == (data, b"")


def test_what_ends_a_server_is_said_with_its_last_words():
    with guarded(*python("import sys; print('x' * 9000, 'no key', file=sys.stderr); sys.exit(3)")) as process:
        _, err = process.communicate()
    assert err.endswith(b"no key\n")
    assert len(err) < 1100
    with guarded(*python("raise SystemExit('no key')")) as process:
        assert process.communicate()[1] == b"it ended with code 1; no key\n"
    with guarded("no-such-program-here") as process:
        assert b"cannot start 'no-such-program-here': No such file" in process.communicate()[1]


def test_an_endless_message_ends_the_server():
    with guarded(*python("while True: print('x' * 600, end='')"), most=100_000) as process:
        out, err = process.communicate()
    assert len(out) < 300_000
    assert b"it sent a message of more than 100000 bytes" in err
    with guarded(*python("for _ in range(9): print('x' * 90_000)"), most=100_000) as process:
        assert len(process.communicate()[0]) == 9 * 90_001  # each of them is short enough


def test_a_server_that_floods_its_errors_goes_on():
    code = "import sys; [print('x' * 999, file=sys.stderr) for _ in range(999)]; print('done')"
    with guarded(*python(code)) as process:
        assert process.communicate()[0] == b"done\n"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("way", ["input ends", "SIGKILL of its client", "SIGKILL of the guard"])
def test_nothing_is_left_of_a_server_that_hears_nothing(way):
    client = subprocess.Popen(
        [*python(PARENT), *GUARD, "1000", *python(STUBBORN)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with client:
        own, _ = map(int, client.stdout.readline().split())
        pids = family(own)
        assert len(pids) >= 3
        if way == "SIGKILL of the guard":
            os.kill(own, signal.SIGKILL)
            left = [pid for pid in pids[2:] if not os.kill(pid, signal.SIGKILL)]  # out of reach of a dead guard
            pids = [*pids[:2], *left]
        elif way == "SIGKILL of its client":
            client.kill()
        client.stdin.close()
        assert none_left(pids)
