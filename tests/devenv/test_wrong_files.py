"""Files and numbers that make no sense are said with the file, the value and what it takes, and by no traceback."""

import json

import pytest

from tests.devenv.conftest import run, template

TEMPLATES = {
    "bytes": (b"\xff\xfe{}", "cannot be read from"),
    "nested": (b"[" * 100_000, "nested too deeply"),
    "number": (b'{"extends": 3}', "must be the name of one template, not 3"),
    "list": (b'{"extends": ["native"]}', "must be the name of one template, not ['native']"),
}
SETTINGS = [
    ({"quotas": 3}, "quotas must be an object with environments, cpu, memory and disk for each tenant, not 3"),
    ({"quotas": {"default": {"environments": "x"}}}, "quotas must be"),
    ({"quotas": {"default": {"disks": "5g"}}}, "quotas must be"),
    ({"operators": "alice"}, 'operators must be a list of names, not "alice"'),  # "a" was one, too
    ({"hide_foreign": "no"}, 'hide_foreign must be true or false, not "no"'),
    ({"checkpoints": -1}, "checkpoints must be a number above 0, not -1"),
]


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_that_is_none_is_said_and_hides_no_other(dev_env, tmp_path, name):
    content, told = TEMPLATES[name]
    template(dev_env, "mine", {"extends": "native"})
    place = tmp_path / "config/dev_env/templates" / f"{name}.json"
    place.write_bytes(content)
    code, printed, said = dev_env("create", "a", name)
    assert (code, printed) == (1, "")
    assert told in said
    listed = {found["name"]: found for found in json.loads(dev_env("template", "list")[1])}
    assert told in listed[name]["error"]
    assert listed["mine"]["isolation_type"] == "native"
    assert "error" not in listed["mine"]
    assert dev_env("template", "delete", name)[0] == 0
    assert not place.exists()


def test_a_template_with_a_mark_of_its_encoding_is_read(dev_env, tmp_path):
    template(dev_env, "mine", {"extends": "native"})
    (tmp_path / "config/dev_env/templates/marked.json").write_bytes(b'\xef\xbb\xbf{"extends": "mine"}')
    assert dev_env("template", "show", "marked")[0] == 0


@pytest.mark.parametrize(("said", "told"), SETTINGS, ids=[json.dumps(said) for said, _ in SETTINGS])
def test_settings_of_another_form_are_refused(dev_env, tmp_path, said, told):
    place = tmp_path / "config/dev_env/settings.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(said))
    code, _, complaint = dev_env("create", "a", "native")
    assert code == 1
    assert f"{place}: {told}" in complaint


@pytest.mark.parametrize(
    "words",
    [
        ["execute", "a", "--timeout", "-1", "true"],
        ["execute", "a", "--timeout", "nan", "true"],
        ["create", "a", "native", "--timeout", "0"],
        ["create", "a", "native", "--expires", "-5"],
        ["gc", "--idle", "nan"],
        ["--wait", "-1", "list"],
    ],
    ids=" ".join,
)
def test_a_time_that_is_none_is_a_usage_error(dev_env, words):
    code, printed, said = dev_env(*words)
    assert (code, printed) == (1, "")
    assert "it must be a number of seconds" in said


@pytest.mark.parametrize("limits", [{"cpu": "0"}, {"memory": "0"}], ids=["cpu", "memory"])
def test_no_limit_is_no_way_round_a_quota(dev_env, limits):
    template(dev_env, "mine", {"extends": "native", "resource_limits": limits})
    code, _, said = dev_env("create", "a", "mine")
    assert code == 4
    assert " limit must be above 0, not " in said


def test_a_profile_with_a_time_that_is_none_is_refused(dev_env, tmp_path):
    place = tmp_path / "config/dev_env/resources/p.json"
    place.parent.mkdir(parents=True)
    place.write_text('{"resource_limits": {}, "timeout": -1}')
    code, _, said = dev_env("create", "a", "native", "p")
    assert code == 1
    assert "timeout must be above 0, not -1" in said


def test_a_root_that_is_a_file_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    code, _, said = run(tmp_path / "file", "create", "a", "native")
    assert code == 1
    assert f"{tmp_path / 'file'}" in said


def test_a_form_of_the_log_that_there_is_not_is_refused(dev_env):
    code, printed, said = dev_env("--log-format", "nope", "list")
    assert (code, printed) == (1, "")
    assert "log_format must be text or json, not 'nope'" in said


def test_the_log_says_the_code_that_the_shell_gets(dev_env, tmp_path):
    dev_env("create", "a", "native")
    code, _, _ = dev_env("execute", "a", "")
    last = (tmp_path / "logs/dev_env.log").read_text().splitlines()[-1]
    assert f"(exit code {code}," in last
    assert code == 6
