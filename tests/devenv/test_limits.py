"""Limits, quotas, tenants and owners, locks between processes, retries, the log."""

from __future__ import annotations

import asyncio
import json

import pytest

from divebook.devenv import DevEnvManager
from divebook.devenv.environments import locked
from divebook.devenv.templates import Retrying
from divebook.errors import ContainerError, DevEnvError, EngineUnavailableError, ShellExecutionError
from tests.devenv.conftest import template


def settings(root, **said):
    path = root / "config" / "dev_env" / "settings.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(said))


OVER = {
    "host": (["--set", "resource_limits.memory=9999999g"], "more than this machine has"),
    "strict": (["--strict-limits"], "cannot be enforced with native"),
    "environments": ([], "may have at most 1 environments"),
    "cpu": ([], "may use a total cpu of 1.5, but with this environment they would use 2"),
}


@pytest.mark.parametrize("what", OVER)
def test_what_is_over_a_limit_is_refused(dev_env, tmp_path, what):
    quotas = {"environments": {"environments": 1}, "cpu": {"cpu": "1.5"}}
    settings(tmp_path, quotas={"default": quotas.get(what, {})})
    assert dev_env("create", "a", "native")[0] == 0
    words, told = OVER[what]
    code, printed, said = dev_env("create", "b", "native", *words)
    assert (code, printed, told in said) == (4, "", True), said
    assert dev_env("--tenant", "t", "create", "c", "native")[0] == 0


def test_a_named_profile_wins_over_the_template_and_the_default_fills_gaps(dev_env, tmp_path):
    template(dev_env, "t", {"extends": "native", "resource_limits": {"cpu": "0.7"}})
    own = tmp_path / "config" / "dev_env" / "resources" / "small.json"
    own.parent.mkdir(parents=True)
    own.write_text('{"name": "small", "resource_limits": {"cpu": "0.1"}, "timeout": 0.2}')
    found = [json.loads(dev_env("create", "a", "t", *words, "--dry-run")[1]) for words in ([], ["minimal"], ["small"])]
    assert [said["resource_limits"]["cpu"] for said in found] == ["0.7", "0.5", "0.1"]
    assert found[0]["resource_limits"]["disk"] == "10g"
    assert dev_env("create", "a", "t", "small")[0] == 0
    assert dev_env("execute", "a", "exec tail -f /dev/null")[0] == 6


def test_more_disk_than_the_limit_is_over_it(dev_env):
    assert dev_env("create", "a", "native", "--set", "resource_limits.disk=1k")[0] == 0
    code, _, said = dev_env("execute", "a", "head -c 2000 /dev/zero > f")
    assert (code, "but its limit is 1k" in said) == (4, True)
    told = json.loads(dev_env("resources", "a")[1])
    assert (told["disk"], told["disk_bytes"], told["enforcement"]["disk"]) == ("2.0 kB", 2000, "checked")


@pytest.mark.parametrize(
    ("command", "code", "printed"),
    [
        ("rm f && echo done", 0, "done\n"),
        (": > f", 0, ""),
        ("rm g", 0, ""),  # still over the limit, but it has freed something
        ("cat g", 4, "small\n"),
        ("echo more > h", 4, ""),
        ("cp f h", 4, ""),
        ("ulimit -f unlimited; mkdir d", 4, ""),
    ],
)
def test_over_the_disk_limit_commands_can_free_space_and_write_nothing(dev_env, command, code, printed):
    assert dev_env("create", "a", "native", "--set", "resource_limits.disk=1k")[0] == 0
    assert dev_env("execute", "a", "echo small > g; head -c 2000 /dev/zero > f")[0] == 4
    found, said, told = dev_env("execute", "a", command)
    assert (found, said) == (code, printed), told
    used = json.loads(dev_env("resources", "a")[1])["disk_bytes"]
    assert used <= 2006
    assert dev_env("execute", "a", "rm -f f g h; echo again > f; cat f")[:2] == (0, "again\n") or used > 1024
    assert dev_env("execute", "a", "echo again > f; cat f")[:2] == (0, "again\n")


def test_over_the_disk_limit_nothing_is_copied_in(dev_env, tmp_path):
    (tmp_path / "x").write_text("x")
    assert dev_env("create", "a", "native", "--set", "resource_limits.disk=1k")[0] == 0
    assert dev_env("execute", "a", "head -c 2000 /dev/zero > f")[0] == 4
    code, _, said = dev_env("cp", str(tmp_path / "x"), "a:x")
    assert (code, "delete files" in said) == (4, True)
    assert dev_env("cp", "a:f", str(tmp_path / "f"))[0] == 0


def test_what_runs_is_measured_and_ended_with_its_environment(tmp_path):
    async def used():
        manager = DevEnvManager(tmp_path)
        await manager.create("a", "native")
        running = asyncio.create_task(manager.execute("a", "while :; do :; done"))
        found = await manager.resources("a")
        while not found["memory_bytes"]:
            assert not running.done()
            found = await manager.resources("a")
        await manager.stop("a")
        return found, await running, (await manager.list("stopped"))[0]["name"]

    found, ended, name = asyncio.run(used())
    assert (found["cpu"], ended.exit_code, name) == (f"{found['cpu_percent']:.1f}%", -9, "a")


TENANTS = {
    "execute": ["execute", "a", "true"],
    "destroy": ["destroy", "a"],
    "inspect": ["inspect", "a"],
    "resources": ["resources", "a"],
    "logs": ["logs", "a"],
    "start": ["start", "a"],
    "stop": ["stop", "a"],
}


def test_who_may_use_an_environment_is_set_for_the_root(dev_env, tmp_path):
    assert dev_env("--owner", "ann", "create", "a", "native")[0] == 0
    foreign = [dev_env("--tenant", "t", *words)[0] for words in TENANTS.values()]
    assert foreign == [8] * len(TENANTS)
    assert dev_env("--owner", "bob", "execute", "a", "true")[0] == 0
    settings(tmp_path, hide_foreign=True, owner_only=True, operators=["eve"])
    assert [dev_env("--tenant", "t", *words)[0] for words in TENANTS.values()] == [2] * len(TENANTS)
    assert dev_env("--owner", "bob", "execute", "a", "true")[0] == 8
    assert dev_env("--owner", "bob", "list", "--all-tenants")[0] == 8
    seen = json.loads(dev_env("--tenant", "t", "--owner", "eve", "list", "--all-tenants")[1])
    assert [state["name"] for state in seen] == ["a"]
    settings(tmp_path, unknown=1)
    assert dev_env("execute", "a", "true")[0] == 1


def test_an_environment_that_another_process_holds_is_busy(dev_env, tmp_path):
    assert dev_env("create", "a", "native")[0] == 0

    async def held():
        async with locked(tmp_path / ".dev_env_state" / ".locks" / "a", "a"):
            return await asyncio.to_thread(dev_env, "--wait", "0.05", "destroy", "a")

    code, _, said = asyncio.run(held())
    assert (code, "is in use by another process" in said) == (1, True)
    assert dev_env("destroy", "a")[0] == 0


def test_a_damaged_state_is_an_error_and_others_are_unaffected(dev_env, tmp_path):
    assert dev_env("create", "a", "native")[0] == dev_env("create", "b", "native")[0] == 0
    (tmp_path / ".dev_env_state" / "a" / "state.json").write_text("{")
    assert [state["status"] for state in json.loads(dev_env("list")[1])] == ["error", "running"]
    assert dev_env("execute", "a", "true")[0] == 6
    assert dev_env("execute", "b", "true")[0] == 0
    assert dev_env("destroy", "a")[0] == 0


PASSING = {
    "engine": (lambda: EngineUnavailableError("it does not answer"), 3),
    "no engine": (lambda: _caused(EngineUnavailableError("none"), FileNotFoundError()), 1),
    "index": (lambda: ShellExecutionError("pip", "Connection refused"), 3),
    "no package": (lambda: ShellExecutionError("pip", "no matching distribution"), 1),
    "no image": (lambda: ContainerError("image a not found"), 1),
    "own": (lambda: DevEnvError("connection"), 1),
}


def _caused(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("what", PASSING)
def test_only_what_passes_is_tried_again(what):
    make, tries = PASSING[what]
    waits, told, count = [], [], []

    async def sleep(seconds):
        waits.append(seconds)

    async def work():
        count.append(1)
        raise make()

    with pytest.raises(type(make())):
        asyncio.run(Retrying(told.append, sleep, lambda: 0.5)(work))
    assert (len(count), waits, len(told)) == (tries, [0.5, 1.0][: tries - 1], tries - 1)


def test_the_log_has_a_line_for_each_command_without_secrets(dev_env, tmp_path):
    assert dev_env("create", "a", "native")[0] == 0
    dev_env("execute", "a", "echo password=hunter2x9z; exit 3")
    dev_env("--log-format", "json", "execute", "a", "exit 4")
    _, printed, _ = dev_env("logs", "a")
    *_, text, line = printed.splitlines()
    assert text.startswith("[INFO] 20")
    assert "a: execute echo password=" in text
    assert "exit code 3" in text
    assert "hunter2x9z" not in (tmp_path / "logs" / "dev_env.log").read_text()
    told = json.loads(line)
    assert [told[key] for key in ("level", "command", "environment", "exit_code")] == ["INFO", "execute", "a", 4]
    assert dev_env("--root", "x", "logs", "no")[0] == 2


def test_a_template_with_a_secret_is_refused(dev_env):
    said = json.dumps({"extends": "native", "native": {"env": {"API_TOKEN": "abc"}}})
    code, _, told = dev_env("template", "create", "t", "-", stdin=said)
    assert (code, "native.env.API_TOKEN of the template 't' looks like a secret" in told) == (1, True)
    assert dev_env("template", "create", "--allow-plain-secrets", "t", "-", stdin=said)[0] == 0
    assert dev_env("template", "validate", "-", stdin='{"extends": "nope"}')[0] == 3


def test_an_environment_is_a_workspace_with_its_variables(dev_env, tmp_path):
    template(dev_env, "t", {"extends": "native", "native": {"env": {"A": "of ${ENV_NAME}", "S": "${secret:S}"}}})
    secrets = tmp_path / "config" / "dev_env" / "secrets"
    secrets.mkdir()
    (secrets / "S").write_text("kept-77a1b2c3")
    assert dev_env("create", "a", "t")[0] == 0

    async def used():
        async with DevEnvManager(tmp_path).open("a") as workspace:
            await workspace.file_operator.write_file("f", "text")
            return (await workspace.shell.execute("cat f; echo; echo $A $S")).stdout

    assert asyncio.run(used()) == "text\nof a [redacted]\n"
