"""What runs in an environment: its streams are the person's own, in a terminal or a pipe; jobs, and files that come."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import termios
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from divebook.devenv import jobs
from tests.devenv.conftest import PROGRAM, run


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with the environment ``a``, a folder."""
    folder = tmp_path_factory.mktemp("root")
    assert run(folder, "create", "a", "native")[0] == 0
    return folder


def work(root: Path) -> Path:
    return root / ".dev_env_state" / "a" / "work"


def test_what_is_piped_in_comes_while_it_runs_and_bytes_stay_as_they_are(root: Path) -> None:
    words = [*PROGRAM, "--root", str(root), "execute", "a", "read x; echo $x; cat; printf '\\303'"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write(b"one\n")
        running.stdin.flush()
        assert running.stdout.readline() == b"one\n"  # and its input is not at an end
        running.stdin.write(b"\xff\x00two")
        running.stdin.close()
        assert running.stdout.read() == b"\xff\x00two\xc3"
    assert running.returncode == 0


def test_a_command_that_reads_nothing_ends_though_its_input_stays_open(root: Path) -> None:
    words = [*PROGRAM, "--root", str(root), "execute", "a", "echo done"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.read() == b"done\n"
        assert running.wait() == 0


def test_a_command_whose_output_is_read_no_more_ends_as_in_a_pipe(root: Path) -> None:
    words = [*PROGRAM, "--root", str(root), "execute", "a", "yes"]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline() == b"y\n"
        running.stdout.close()
        assert (running.wait(), running.stderr.read()) == (128 + signal.SIGPIPE, b"")


def test_a_command_has_a_terminal_if_that_is_asked_for(root: Path) -> None:
    assert run(root, "execute", "--tty", "a", "test -t 0 && test -t 1 && stty size; exit 4")[:2] == (6, "24 80\n")
    code, printed, told = run(root, "execute", "--tty", "--passthrough", "a", "nothing-like-this")
    assert (code, "not found" in printed, "status 127" in told) == (127, True, True)
    assert run(root, "execute", "--tty", "--passthrough", "a", "kill -9 $$")[0] == 137
    assert run(root, "execute", "a", "test -t 0")[0] == 6


def test_a_command_that_took_too_long_is_told_as_json_with_what_it_printed(root: Path) -> None:
    words = ["execute", "--json", "--timeout", "0.3", "a", "echo begun; exec tail -f /dev/null"]
    code, printed, told = run(root, *words)
    said = {"exit_code": -9, "stdout": "begun\n", "stderr": "", "duration_ms": 300, "timed_out": True}
    assert (code, json.loads(printed), "timed out" in told) == (6, {**said, "truncated": False}, True)


def test_a_shell_in_a_terminal_leaves_it_as_it_was(root: Path) -> None:
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    words = [*PROGRAM, "--root", str(root), "shell", "a"]
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, start_new_session=True) as typed:
        os.write(ours, b"echo $((6*7)); exit 3\n")
        assert typed.wait(60) == 6
        seen = os.read(ours, 1 << 16)
        assert typed.stderr is not None
        assert b"status 3" in typed.stderr.read()
    assert b"42" in seen
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


def test_what_is_piped_into_a_shell_is_a_script(root: Path) -> None:
    code, printed, told = run(root, "shell", "a", stdin="echo one\nexit 3\n")
    assert (code, printed, "status 3" in told) == (6, "one\n", True)


def begun(root: Path, command: str) -> tuple[str, int]:
    """Begin a job; return its id and the number of its process."""
    code, printed, told = run(root, "execute", "--detach", "a", command)
    assert (code, told) == (0, "")
    job = printed.strip()
    return job, json.loads((work(root).parent / "jobs" / job / "job.json").read_text())["pid"]


def test_a_job_goes_on_and_its_output_is_kept(root: Path) -> None:
    job, pid = begun(root, "echo out; printf '\\377'; echo err >&2; exit 5")
    with suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(60)
    (told,) = [told for told in json.loads(run(root, "job", "list", "a")[1]) if told["id"] == job]
    assert [told[key] for key in ("status", "exit_code", "error")] == ["ended", 5, None]
    out, err = (work(root).parent / "jobs" / job / name for name in ("stdout", "stderr"))
    assert (out.read_bytes(), err.read_bytes()) == (b"out\n\xff", b"err\n")
    assert run(root, "job", "output", "a", job)[2] == "err\n"
    assert run(root, "job", "kill", "a", job)[:2] == (0, f"Job '{job}' had already ended\n")


def test_a_job_is_killed_with_its_command_and_one_that_is_busy_is_not_idle(root: Path) -> None:
    begins = work(root) / "begins"
    os.mkfifo(begins)
    job, _ = begun(root, "echo $$ > begins; exec tail -f /dev/null")
    command = int(begins.read_text())
    assert json.loads(run(root, "gc", "--idle", "0")[1]) == []
    assert json.loads(run(root, "job", "list", "a")[1])[-1]["status"] == "running"
    assert run(root, "job", "kill", "a", job)[:2] == (0, f"Job '{job}' killed\n")
    assert not Path(f"/proc/{command}").exists()
    assert json.loads(run(root, "job", "list", "a")[1])[-1]["error"] == "the job was killed"


def test_a_job_that_ends_while_it_is_looked_at_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "job-1"
    folder.mkdir()
    process = {"pid": 1, "began": 1.0}
    (folder / jobs.STARTED).write_text(json.dumps({"id": "job-1", "command": "true", "started_at": "now", **process}))

    def ends(process: Mapping[str, Any]) -> bool:
        (folder / jobs.ENDED).write_text(json.dumps({"exit_code": 0, "error": None, "ended_at": "now"}))
        return False

    monkeypatch.setattr(jobs, "_is_alive", ends)
    record = jobs.Jobs(tmp_path).record("job-1")
    assert (record["status"], record["exit_code"]) == ("ended", 0)


def test_a_job_that_ends_before_it_is_killed_had_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "job-1"
    folder.mkdir()
    with subprocess.Popen(["true"]) as process:
        process.wait()
    (folder / jobs.STARTED).write_text(json.dumps({"id": "job-1", "pid": process.pid, "began": 1.0}))
    monkeypatch.setattr(jobs, "_is_alive", lambda process: True)  # as it was a moment ago
    assert jobs.Jobs(tmp_path).kill("job-1") is False


HERE = jobs.process_fields(os.getpid())
PROCESSES = {
    "this one": (HERE, "running"),
    "after the clock was set": ({**HERE, "began": 1.0}, "running"),
    "a later one of the same number": ({**HERE, "ticks": HERE["ticks"] - 1}, "killed"),
    "before the machine was started": ({**HERE, "boot": "another"}, "killed"),
    "of an older version": ({key: HERE[key] for key in ("pid", "began")}, "running"),
    "a later one, of an older version": ({"pid": HERE["pid"], "began": 1.0}, "killed"),
    "one that ended before it was recorded": ({**HERE, "began": 0.0, "ticks": 0}, "killed"),
}


@pytest.mark.parametrize("name", PROCESSES)
def test_a_job_runs_as_long_as_its_own_process(tmp_path: Path, name: str) -> None:
    process, status = PROCESSES[name]
    (tmp_path / "job-1").mkdir()
    told = {"id": "job-1", "command": "true", "started_at": "now"}
    (tmp_path / "job-1" / jobs.STARTED).write_text(json.dumps({**told, **process}))
    assert jobs.Jobs(tmp_path).record("job-1") == {**told, "status": status, "exit_code": None}


REFUSED = {
    "job": (["job", "kill", "a", "job-0"], 1, "there is no job 'job-0'"),
    "job, environment": (["job", "list", "no"], 2, "no environment"),
    "job, tenant": (["--tenant", "t", "job", "output", "a", "job-0"], 8, "another tenant"),
    "detach, environment": (["execute", "--detach", "no", "true"], 2, "no environment"),
    "detach, terminal": (["execute", "--detach", "--tty", "a", "true"], 1, "--detach cannot be combined with"),
    "shell, environment": (["shell", "no"], 2, "no environment"),
    "user": (
        ["execute", "--user", "nobody", "a", "true"],
        1,
        "native environments, because their commands run with your user account",
    ),
    "cp, here": (["cp", "x", "y"], 1, "one path must be ENVIRONMENT:PATH"),
    "cp, both": (["cp", "a:x", "a:y"], 1, "one path must be ENVIRONMENT:PATH"),
    "cp, environment": (["cp", "no:x", "y"], 2, "no environment"),
    "cp, tenant": (["--tenant", "t", "cp", "a:x", "y"], 8, "another tenant"),
    "cp, nothing inside": (["cp", "a:nothing", "y"], 1, "cannot be copied"),
    "cp, nothing here": (["cp", "/nothing/x", "a:x"], 1, "cannot be read"),
    "cp, no folder here": (["cp", "a:.", "/nothing/x"], 1, "there is no folder /nothing"),
}


@pytest.mark.parametrize(("words", "code", "told"), REFUSED.values(), ids=REFUSED)
def test_each_refusal_has_its_code(root: Path, words: list[str], code: int, told: str) -> None:
    ended, printed, said = run(root, *words)
    assert (ended, printed, told in said) == (code, "", True), said


def test_files_are_copied_in_and_out_with_their_modes_and_links(root: Path, tmp_path: Path) -> None:
    (tmp_path / "x" / "y").mkdir(parents=True)
    (tmp_path / "x" / "y" / "f").write_bytes(b"\xff\x00" * 40_000)
    (tmp_path / "x" / "y" / "f").chmod(0o750)
    (tmp_path / "x" / "l").symlink_to("y/f")
    assert run(root, "cp", tmp_path / "x", "a:in")[:2] == (0, "a:in\n")
    assert run(root, "cp", tmp_path / "x", "a:in")[:2] == (0, "a:in/x\n")  # since that is a folder now
    assert run(root, "cp", "a:in/x", tmp_path / "out")[:2] == (0, f"{tmp_path}/out\n")
    found = tmp_path / "out" / "y" / "f"
    assert (found.read_bytes(), found.stat().st_mode & 0o777) == (b"\xff\x00" * 40_000, 0o750)
    assert (tmp_path / "out" / "l").readlink() == Path("y/f")
    assert run(root, "cp", "a:in/x/l", tmp_path)[1] == f"{tmp_path}/l\n"
    assert run(root, "cp", "a:in", tmp_path / "out")[1] == f"{tmp_path}/out/in\n"


def test_a_link_that_leads_out_is_not_brought_out(root: Path, tmp_path: Path) -> None:
    (work(root) / "out").symlink_to("/etc")
    code, _, told = run(root, "cp", "a:out", tmp_path / "x")
    assert (code, "cannot be written" in told) == (1, True)
    assert list(tmp_path.iterdir()) == []
