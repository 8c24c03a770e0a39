"""The root as a whole: begun, looked after and cleaned up; how environments are made besides, and go."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.devenv.conftest import template

NOBODY = "unix:///nothing/nobody.sock"


def test_a_root_is_begun_with_its_folders(dev_env, tmp_path: Path) -> None:
    for _ in range(2):
        assert dev_env("init")[:2] == (0, f"{tmp_path}\n")
    assert (tmp_path / "config" / "dev_env" / "templates").is_dir()
    assert (tmp_path / ".dev_env_state").stat().st_mode & 0o777 == 0o700


def test_a_root_that_others_can_change_is_refused(dev_env, tmp_path: Path) -> None:
    assert dev_env("create", "a", "native")[0] == 0
    code, printed, _ = dev_env("doctor")
    assert (code, json.loads(printed)["ok"]) == (0, True)
    (tmp_path / ".dev_env_state").chmod(0o777)
    for words in (["execute", "a", "true"], ["list"], ["create", "b", "native"], ["destroy", "a"]):
        code, printed, told = dev_env(*words)
        assert (code, printed, "can be changed by every user" in told) == (8, "", True), words
    code, printed, _ = dev_env("doctor")
    found = {check["name"]: check for check in json.loads(printed)["checks"]}
    assert (code, found["permissions"]["ok"]) == (1, False)
    assert set(found) == {"root", "permissions", "disk", "engine", "python", "uv"}


def test_a_missing_engine_is_told_and_nothing_to_mend(dev_env, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", NOBODY)
    code, printed, _ = dev_env("doctor")
    (engine,) = [check for check in json.loads(printed)["checks"] if check["name"] == "engine"]
    assert (code, engine["ok"], engine["required"], NOBODY in engine["detail"]) == (0, False, False, True)


def test_what_nobody_needs_is_removed(dev_env, tmp_path: Path) -> None:
    assert dev_env("create", "a", "native")[0] == 0
    assert dev_env("create", "b", "native", "--expires", "0")[0] == 0
    assert dev_env("--tenant", "t", "create", "c", "native", "--expires", "0")[0] == 0
    (tmp_path / ".dev_env_state" / "half").mkdir()
    wanted = [["b", "expired", "removed"], ["half", "half made", "removed"]]
    for words in (["--dry-run"], []):
        code, printed, _ = dev_env("gc", *words)
        found = [told for told in json.loads(printed) if told["kind"] == "environment"]
        assert (code, [[told[key] for key in ("name", "reason", "done")] for told in found]) == (0, wanted)
    found = json.loads(dev_env("gc", "--idle", "0")[1])
    assert [told["name"] for told in found if told["reason"] == "idle"] == ["a"]
    assert [(state["name"], state["status"]) for state in json.loads(dev_env("list")[1])] == [("a", "stopped")]
    assert dev_env("gc", "--idle", "100000")[1] == "[]\n"
    assert dev_env("--tenant", "t", "execute", "c", "true")[0] == 0


def test_a_destroy_that_was_killed_is_finished_by_whoever_comes_next(dev_env, tmp_path: Path) -> None:
    for words in (["destroy", "a"], ["create", "a", "native"], ["gc"]):
        assert dev_env("create", "a", "native", "--exist-ok")[0] == 0
        state = tmp_path / ".dev_env_state" / "a" / "state.json"
        state.write_text(json.dumps({**json.loads(state.read_text()), "phase": "removing"}))
        assert dev_env("execute", "a", "true")[0] == 2
        assert dev_env(*words)[0] == 0
        assert "phase" not in (json.loads(state.read_text()) if state.exists() else {})


def test_what_was_done_is_told_as_json_to_its_tenant(dev_env) -> None:
    _, _, told = dev_env("--verbose", "create", "a", "native")
    assert " - a: create: done (exit code 0, " in told
    dev_env("execute", "a", "exit 3")
    code, printed, _ = dev_env("events", "a")
    events = [json.loads(line) for line in printed.splitlines()]
    assert (code, [told.get("command") for told in events]) == (0, [None, "create", "execute"])
    assert {key: events[-1][key] for key in ("level", "environment", "tenant", "exit_code")} == {
        "level": "INFO",
        "environment": "a",
        "tenant": "default",
        "exit_code": 3,
    }
    assert dev_env("events")[1] == printed
    assert dev_env("--tenant", "t", "events")[1] == ""


def test_what_takes_too_long_to_be_made_is_ended_and_gone(dev_env, tmp_path: Path) -> None:
    hangs = 'native.init=["echo $$ > ../pid; exec tail -f /dev/null"]'
    (tmp_path / "w").mkdir()
    words = ["--set", f"native.working_dir={tmp_path}/w", "--set", hangs]
    code, printed, told = dev_env("create", "a", "native", "--timeout", "0.3", *words)
    assert (code, printed, "was not created within 0.3 s" in told) == (6, "", True)
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()
    assert dev_env("execute", "a", "true")[0] == 2


def test_what_is_set_wins_over_a_named_profile(dev_env) -> None:
    words = ["create", "a", "native", "minimal", "--set", "resource_limits.cpu=0.2", "--dry-run"]
    limits = json.loads(dev_env(*words)[1])["resource_limits"]
    assert (limits["cpu"], limits["memory"]) == ("0.2", "256m")


def test_checkpoints_wait_for_another_environment_of_the_name(dev_env, tmp_path: Path) -> None:
    work = tmp_path / ".dev_env_state" / "a" / "work"
    assert dev_env("create", "a", "native")[0] == 0
    (work / "f").write_text("kept")
    assert dev_env("save", "a", "c")[0] == 0
    assert dev_env("destroy", "a", "--keep-checkpoints")[0] == 0
    assert json.loads(dev_env("list")[1]) == []
    assert dev_env("gc")[1] == "[]\n"
    assert dev_env("--tenant", "t", "create", "a", "native")[0] == 0
    assert dev_env("--tenant", "t", "checkpoint", "list", "a")[1] == "[]\n"  # they are not this tenant's
    assert dev_env("--tenant", "t", "destroy", "a")[0] == 0
    assert dev_env("create", "a", "native", "--set", 'native.init=["exit 1"]')[0] == 6
    assert dev_env("create", "a", "native")[0] == 0
    assert dev_env("restore", "a", "c")[0] == 0
    assert (work / "f").read_text() == "kept"
    assert dev_env("destroy", "a")[0] == dev_env("create", "a", "native")[0] == 0
    assert dev_env("checkpoint", "list", "a")[1] == "[]\n"


def test_all_environments_of_the_tenant_are_destroyed(dev_env) -> None:
    for words in (["create", "a"], ["create", "b"], ["--tenant", "t", "create", "c"]):
        assert dev_env(*words, "native")[0] == 0
    assert dev_env("destroy")[0] == dev_env("destroy", "a", "--all")[0] == 1
    code, printed, _ = dev_env("--json", "destroy", "--all")
    assert (code, json.loads(printed)) == (0, [{"message": f"Environment '{name}' destroyed"} for name in "ab"])
    assert dev_env("destroy", "--all")[:2] == (0, "")
    assert dev_env("--tenant", "t", "destroy", "--all")[1] == "Environment 'c' destroyed\n"


def test_without_an_engine_another_section_is_used_if_that_is_asked_for(
    dev_env, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", NOBODY)
    both = {"docker": {"image": "x"}, "native": {"working_dir": "${ENV_DIR}/work"}}
    template(dev_env, "both", {"isolation_type": "docker", **both})
    assert dev_env("create", "a", "both")[0] == 5
    code, _, told = dev_env("create", "a", "both", "--fallback", "--env", "A=1")
    assert (code, "native is used instead of a container: no container engine answers" in told) == (0, True)
    assert dev_env("execute", "a", "echo $A")[1] == "1\n"
    assert json.loads(dev_env("inspect", "a")[1])["isolation_type"] == "native"
    assert dev_env("create", "b", "python-docker", "--fallback")[0] == 5


def test_tools_that_nobody_knows_how_to_install_are_a_warning(dev_env) -> None:
    template(dev_env, "t", {"extends": "native", "tools": {"editors": ["no-such-editor"], "languages": ["sh"]}})
    code, _, told = dev_env("create", "a", "t", "--install-tools")
    assert (code, "the tool 'no-such-editor' is not installed" in told, "'sh'" in told) == (0, True, False)


def test_a_python_that_is_not_here_is_refused_with_those_that_are(dev_env, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None if name == "uv" or "3.99" in name else f"/bin/{name}")
    template(dev_env, "t", {"isolation_type": "virtualenv", "virtualenv": {"python_version": "3.99"}})
    code, _, told = dev_env("create", "a", "t")
    assert (code, "Python 3.99 is not installed (installed: 3." in told) == (1, True)
    assert dev_env("execute", "a", "true")[0] == 2


def test_a_template_is_of_the_category_of_its_folder_and_keeps_the_name_that_was_given(dev_env, tmp_path: Path) -> None:
    said = json.dumps({"name": "other", "extends": "native"})
    code, printed, told = dev_env("template", "create", "own-one", "-", stdin=said)
    assert (code, printed) == (0, "Template 'own-one' created\n")
    assert "the file contains the name 'other', but the template is created as 'own-one'" in told
    folder = tmp_path / "config" / "dev_env" / "templates"
    (folder / "teams").mkdir()
    (folder / "teams" / "web.json").write_text('{"extends": "own-one"}')
    found = {told["name"]: told["category"] for told in json.loads(dev_env("template", "list")[1])}
    assert (found["web"], found["own-one"]) == ("teams", "own")
    assert [told["name"] for told in json.loads(dev_env("template", "list", "teams")[1])] == ["web"]
    assert dev_env("template", "delete", "web")[0] == 0
    assert not (folder / "teams" / "web.json").exists()
