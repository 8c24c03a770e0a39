"""Commands end, print within bounds, and leave nothing behind."""

import asyncio
import math
import os
import random
import resource
import uuid
from datetime import timedelta

import pytest

from divebook.errors import ShellExecutionError, ShellTimeoutError
from divebook.workspaces.shell import LocalShell, ShellResult
from tests.workspace.hostile import (
    HOSTILE,
    SURVIVING,
    WAYS_LEFT,
    alive,
    ended,
    killed,
    new_mark,
    text_of,
    timed_out,
)


@pytest.fixture
def shell(tmp_path):
    made = LocalShell(lambda cwd: str(tmp_path / (cwd or "")), scratch=lambda: str(tmp_path))
    yield made
    made.reapers.close()


def execute(shell, *args, **options):
    return asyncio.run(shell.execute(*args, **options))


def test_what_a_command_prints_and_how_it_ends(shell):
    result = execute(shell, "echo out; echo err >&2; exit 3")
    assert result == (3, "out\n", "err\n")
    code, stdout, stderr = result
    assert (code, stdout, stderr) == (3, "out\n", "err\n")
    assert not result.truncated
    assert isinstance(result, ShellResult)


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("nonexistent_command_xyz", 127, "not found"),
        (["nonexistent_command_xyz"], 127, "not found"),
        (["/etc/passwd"], 126, "denied"),
        ("kill -9 $$", -9, ""),
        ("kill -15 $$", -15, ""),
    ],
)
def test_other_ends(shell, command, code, said):
    result = execute(shell, command)
    assert result.exit_code == code
    assert said in result.stderr


@pytest.mark.parametrize("command", ["", "  \n", []])
def test_no_command_is_an_error(shell, command):
    with pytest.raises(ShellExecutionError, match="the command is empty"):
        execute(shell, command)


@pytest.mark.parametrize(
    ("command", "env", "told"),
    [
        ("echo a\0b", {}, r"the command contains 'echo a\\x00b'; remove NUL"),
        (["echo", "a\0b"], {}, "remove NUL"),
        ("echo \ud800", {}, r"the command contains 'echo \\ud800'; remove NUL"),
        (["", "x"], {}, "must be the name of a program"),
        ("true", {"A=B": "x"}, "invalid name of an environment variable: 'A=B'"),
        ("true", {"": "x"}, "invalid name of an environment variable: ''"),
        ("true", {"A": "my-value\0"}, "value of the environment variable A contains a NUL character"),
    ],
    ids=["nul", "nul-word", "surrogate", "no-program", "equals", "no-name", "nul-value"],
)
def test_what_no_program_can_be_handed_is_said_and_is_no_kill(shell, command, env, told):
    with pytest.raises(ShellExecutionError, match=told) as caught:  # it ended with -9 and without a word
        execute(shell, command, env=env)
    assert "my-value" not in str(caught.value)  # it may be secret


@pytest.mark.parametrize(
    ("command", "env", "told"),
    [
        (3, {}, "a command must be a string or a list of strings, not 3"),
        (b"ls", {}, "not b'ls'"),
        (["head", "-c", 5], {}, "each word of a command must be a string, not 5"),
        ("true", {"PORT": 8080}, "the environment variable 'PORT' of a command must be a string, not a int"),
        ("true", {"TOKEN": None}, "must be a string, not a NoneType"),
    ],
    ids=["number", "bytes", "word", "variable", "none"],
)
def test_other_types_than_texts_are_named(shell, command, env, told):
    with pytest.raises(TypeError, match=told):
        execute(shell, command, env=env)


def test_a_secret_that_is_printed_in_two_pieces_is_heard_by_nobody(tmp_path):
    secret, heard, begun = "zq81-tied-to-nothing", [], asyncio.Event()
    shell = LocalShell(lambda cwd: str(tmp_path / (cwd or "")), secrets=lambda: {"KEY": secret})
    pause = f"printf '{secret[:8]}'; read go; printf '{secret[8:]}!\\nzq81'"

    async def pieces():
        await begun.wait()
        yield b"go\n"

    def hear(_stream, text):
        heard.append(text)
        begun.set()

    result = execute(shell, f"printf 'begun '; {pause}", stdin=pieces(), on_output=hear)
    shell.reapers.close()
    assert (
        "".join(heard) == result.stdout == "begun [redacted]!\nzq81"
    )  # what is no secret after all is told at the end
    assert not any(secret[:8] in text or secret[8:] in text for text in heard)


@pytest.mark.parametrize("timeout", [0, -1, math.nan, "3"])
def test_a_time_that_is_none_is_an_error(shell, timeout):
    with pytest.raises(ValueError, match="timeout must be"):
        execute(shell, "true", timeout=timeout)
    assert execute(shell, "true", timeout="5 min").exit_code == 0


def test_an_argument_list_is_no_text_for_a_shell(shell):
    assert execute(shell, ["echo", "$HOME; ls"]).stdout == "$HOME; ls\n"


def test_a_command_reads_what_it_is_given_and_else_nothing(shell):
    assert execute(shell, "cat").stdout == ""
    assert execute(shell, "cat", stdin="given").stdout == "given"
    assert execute(shell, "true", stdin="x" * 1_000_000).exit_code == 0
    assert len(execute(shell, "cat", stdin="x" * 300_000).stdout) == 300_000

    async def pieces():
        for piece in ("é", b"!"):
            yield piece

    assert execute(shell, "cat", stdin=pieces()).stdout == "é!"


def test_variables_are_added_and_secret_ones_are_not_handed_on(shell, monkeypatch):
    monkeypatch.setenv("WS_PROBE", "1")
    monkeypatch.setenv("SOME_API_KEY", "abc")
    assert execute(shell, "echo $WS_PROBE-$FOO-$SOME_API_KEY", env={"FOO": "bar"}).stdout == "1-bar-\n"
    assert execute(shell, "echo $WS_PROBE-$FOO", env={"FOO": "bar"}, inherit_env=False).stdout == "-bar\n"


def test_secrets_are_there_and_hidden_in_what_is_printed(tmp_path):
    shell = LocalShell(lambda _: str(tmp_path), secrets=lambda: {"TOKEN": "very-secret-4711"})
    heard = []
    result = execute(
        shell, 'echo "$TOKEN"; test "$TOKEN" = very-secret-4711', on_output=lambda *told: heard.append(told)
    )
    shell.reapers.close()
    assert result == (0, "[redacted]\n", "")
    assert heard == [("stdout", "[redacted]\n")]


def test_a_folder_that_is_not_there_is_said(shell):
    with pytest.raises(ShellExecutionError, match=r"cannot run in .*: No such file"):
        execute(shell, "true", cwd="missing")


def test_a_time_limit_ends_it_and_tells_what_it_said(shell):
    execute(shell, "true")  # the helper takes its time to begin, on a busy machine too much of the limit
    with pytest.raises(ShellTimeoutError, match=r"1\.5") as caught:
        execute(shell, "echo before; echo problem >&2; sleep 10", timeout=1.5)
    assert (caught.value.stdout, caught.value.stderr, caught.value.timeout) == (
        "before\n",
        "problem\n",
        timedelta(seconds=1.5),
    )


def test_long_output_is_cut_in_the_middle_and_whole_in_a_file(tmp_path):
    shell = LocalShell(lambda _: str(tmp_path), scratch=lambda: str(tmp_path), output_limit=1000)
    result = execute(shell, "seq 1 1000; echo short >&2")
    shell.reapers.close()
    assert result.truncated
    assert result.stdout.startswith("1\n2\n")
    assert result.stdout.endswith("999\n1000\n")
    assert f"{result.left_out:,} bytes left out" in result.stdout
    with open(result.stdout_file, encoding="utf-8") as file:
        assert file.read().split() == [str(number) for number in range(1, 1001)]
    assert (result.stderr, result.stderr_file) == ("short\n", None)


def test_output_is_heard_as_it_comes(shell):
    heard = []
    execute(shell, "echo one; echo two >&2", on_output=lambda *told: heard.append(told))
    assert sorted(heard) == [("stderr", "two\n"), ("stdout", "one\n")]


def test_what_is_no_text_is_replaced(shell):
    assert execute(shell, r"printf '\377x'").stdout == "\ufffdx"


def test_a_child_in_the_background_keeps_nobody_waiting(shell):
    mark = uuid.uuid4().hex
    result = execute(shell, f"sh -c 'sleep 30 # {mark}' & echo started", timeout=20)
    assert result.stdout == "started\n"
    assert result.duration < timedelta(seconds=10)


@pytest.mark.parametrize("kind", HOSTILE)
def test_nothing_survives_its_time_limit(shell, kind):
    """More of them, also cancelled and with the kernel killed: `python -m tests.workspace.hostile`."""
    mark = f"{random.Random(kind).randrange(10**9):09}{os.getpid()}"
    with pytest.raises(ShellTimeoutError):
        execute(shell, text_of(kind, mark), timeout=0.15)
    assert ended(mark), alive(mark)


def test_nothing_survives_a_cancellation(shell):
    mark = f"{os.getpid()}55"

    async def cancelled():
        task = asyncio.create_task(shell.execute(text_of("own session", mark)))
        while not alive(mark):  # noqa: ASYNC110 - other processes set no event
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert ended(mark), alive(mark)


def test_a_helper_that_somebody_has_ended_is_started_again(shell):
    assert execute(shell, "true").exit_code == 0
    shell.reapers._process.kill()
    shell.reapers._process.wait()
    assert execute(shell, "echo again").stdout == "again\n"


def test_nothing_survives_the_process_that_ran_it(tmp_path):
    mark = f"{os.getpid()}66"
    killed(text_of("cleared variables", mark), str(tmp_path))
    assert ended(mark), alive(mark)


def test_a_flood_is_held_within_bounds(tmp_path):
    """A hundred megabytes here; a gigabyte takes no more memory (`benchmarks.workspaces`)."""
    shell = LocalShell(lambda _: str(tmp_path))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = execute(shell, "head -c 100000000 /dev/zero", timeout=60)
    shell.reapers.close()
    assert result.left_out > 98_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000


@pytest.mark.parametrize("number", range(3))
def test_nothing_survives_a_reader_that_goes(tmp_path, number):
    """A flood ends of itself when its output is closed, and would leave behind what it has sent away."""
    mark = f"{os.getpid()}77{number}"
    timed_out(text_of("double fork and flood", mark), str(tmp_path))
    assert ended(mark), alive(mark)


@pytest.mark.parametrize("way", WAYS_LEFT)
@pytest.mark.parametrize("kind", SURVIVING)
def test_nothing_in_the_background_survives_its_workspace(tmp_path, kind, way):
    """More of them: `python -m tests.workspace.hostile`."""
    mark = new_mark(f"{kind}{way.__name__}")
    way(text_of(kind, mark), str(tmp_path))
    assert ended(mark), alive(mark)


def test_what_an_ended_command_left_in_the_background_is_there_for_the_next_one(shell):
    mark = new_mark("next")
    execute(shell, f"nohup sleep 98.{mark} >/dev/null 2>&1 &")
    assert execute(shell, f"pgrep -f 'sleep 98.{mark}' | wc -l").stdout.strip() != "0"
    assert alive(mark)
    shell.reapers.close()
    assert ended(mark, seconds=0)


def test_what_a_command_sends_away_lives_on_where_it_ends_by_itself(shell):
    mark = f"{os.getpid()}88"
    assert execute(shell, f"setsid sleep 96.{mark} & sleep 0.05").exit_code == 0
    left = alive(mark)
    assert not ended(mark, seconds=0)
    assert left
