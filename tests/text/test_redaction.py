"""Secrets are left out of what is saved: by name, by value, by form; ordinary words and counts stay."""

import re
from base64 import b64encode, urlsafe_b64encode

import pytest

from divebook.events.codec import readable
from divebook.events.values import normalize
from divebook.text import redaction
from divebook.text.passwords import REDACTED as HIDDEN
from divebook.text.passwords import looks_secret
from divebook.text.redaction import MARKED, Redactor, _everywhere, cut, one_line
from tests.text.shapes import shapes


@pytest.mark.parametrize(
    "name",
    ["api_key", "OPENAI_API_KEY", "apiKey", "password", "client_secret", "X-Auth-Token", "Authorization", "db.passwd"],
)
def test_names_of_secrets_are_known(name):
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name", ["input_tokens", "max_tokens", "key", "keyboard", "primary_key", "tokenizer", "author"]
)
def test_names_of_other_things_are_not(name):
    assert not looks_secret(name)


def test_what_stands_under_the_name_of_a_secret_is_hidden_whatever_it_is():
    given = {"headers": {"Authorization": "x", "Accept": "y"}, "credentials": {"user": "u"}, "password": None}
    assert Redactor().value(given) == {
        "headers": {"Authorization": HIDDEN, "Accept": "y"},
        "credentials": HIDDEN,
        "password": None,
    }


def test_pairs_of_name_and_value_count_as_names():
    given = [["cookie", "a=b"], {"type": "set", "key": "api_key", "value": "x"}, {"name": "token", "value": [1]}]
    hidden = [
        ["cookie", HIDDEN],
        {"type": "set", "key": "api_key", "value": HIDDEN},
        {"name": "token", "value": HIDDEN},
    ]
    assert Redactor().value(given) == hidden


def test_counts_stay():
    assert Redactor().value({"token": 3, "usage": {"input_tokens": 5}}) == {"token": 3, "usage": {"input_tokens": 5}}


def test_a_secret_that_was_seen_under_its_name_is_hidden_everywhere():
    redactor = Redactor()
    redactor.learn({"inputs": {"api_key": "hunter2hunter2"}})
    assert redactor.text("sent hunter2hunter2 twice: hunter2hunter2") == f"sent {HIDDEN} twice: {HIDDEN}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ", "plain "),
        ("say zq81-tied", "say "),
        ("say zq81-tied-to-nothing", "say zq81-tied-to-nothing"),
        ("say zq81-tied-to-nothing 9", "say zq81-tied-to-nothing 9"),
        ("say knot-17-zq81", "say "),  # whole, and its end may begin another one
    ],
)
def test_what_may_be_the_beginning_of_a_named_secret_waits(text, shown):
    redactor = Redactor()
    redactor.know("zq81-tied-to-nothing")
    redactor.know("knot-17-zq81")
    assert text[: redactor.settled_of_named(text)] == shown


def test_a_short_value_is_not_taken_for_a_secret_elsewhere():
    redactor = Redactor()
    redactor.learn({"password": "the"})
    assert redactor.text("the text") == "the text"


def test_secrets_of_the_environment_are_hidden(monkeypatch):
    monkeypatch.setenv("SOME_SERVICE_TOKEN", "tok-from-the-environment")
    assert Redactor().value(["tok-from-the-environment"]) == [HIDDEN]


@pytest.mark.parametrize(
    "path",
    [
        "/tmp/journeys/nb6/data.csv",
        "/home/ann/.aws/creds-9f8a7b.json",
        "~/keys/id_rsa.9f8a7b",
        "../secrets/db.yaml",
        "/srv/one9:/srv/two9",
        "FILE:/tmp/krb5cc_1000",
        "C:\\Users\\ann\\key9f8a.pem",
        "\\\\server9\\share\\key.pem",
        "/Users/ann/My Files/token 2.txt",
    ],
)
def test_a_path_is_no_secret_under_whatever_name_it_stands(monkeypatch, path):
    monkeypatch.setenv("PWD", path)
    monkeypatch.setenv("SERVICE_CREDENTIALS", path)
    redactor = Redactor()
    redactor.learn({"password": path})
    redactor.know(path)
    shown = {"PWD": path, "secret": path, "text": f"read {path}/more, and password='{path}'"}
    assert redactor.value(shown) == shown


def test_what_only_begins_as_a_path_does_is_hidden():
    secrets = ["/9j4AAQSkZJRgABAQEAYABgAAD", "/wJalr7UtnFEMI/K7MDENG/bPxRfiCYzKEY9", "~correct9horse", "./x9Kd+8Lq/2=="]
    assert [Redactor().value({"secret": secret})["secret"] for secret in secrets] == [HIDDEN] * 4


def test_places_on_the_disk_that_the_environment_names_are_no_secrets(monkeypatch, tmp_path):
    key_file = tmp_path / "credentials-of-the-service.json"
    key_file.touch()
    monkeypatch.setenv("PWD", str(tmp_path))
    monkeypatch.setenv("OLDPWD", "/a/folder/that/was/deleted")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key_file))
    monkeypatch.setenv("SERVICE_TOKEN", "/9j4AAQSkZJRgABAQEAYABgAAD")
    shown = [str(key_file), "/a/folder/that/was/deleted/main.yaml", "/9j4AAQSkZJRgABAQEAYABgAAD"]
    assert Redactor().value(shown) == [*shown[:2], HIDDEN]


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Authorization: Bearer abcdefghijkl", f"Authorization: Bearer {HIDDEN}"),
        ("use sk-abcdefghijklmnopqrst now", f"use {HIDDEN} now"),
        ("https://me:pass@host/x", f"https://me:{HIDDEN}@host/x"),
        ('{"api_key": "abcdef123"}', f'{{"api_key": "{HIDDEN}"}}'),
        ('{\\"password\\": \\"abcdef123\\"}', f'{{\\"password\\": \\"{HIDDEN}\\"}}'),
        ("API_KEY=abcdef123", f"API_KEY={HIDDEN}"),
        ("export my-service_access_key : abcdef123", f"export my-service_access_key : {HIDDEN}"),
        ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", f"jwt {HIDDEN}"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", HIDDEN),
        ("max_tokens=100000", "max_tokens=100000"),
        ("the password is kept elsewhere", "the password is kept elsewhere"),
    ],
)
def test_what_looks_like_a_credential_is_hidden_in_texts(text, clean):
    assert Redactor().text(text) == clean


@pytest.mark.parametrize(
    "word",
    [
        "x",
        "a-",
        "token-",
        "token \n",
        "eyJaaaaaaaa-",
        "eyJaaaaaaaa.a.",
        "a://b:",
        "-----BEGIN AAA ",
        "bearer ",
        "sk_a ",
        "token=$",
    ],
)
def test_long_texts_of_near_misses_are_read_once(word):
    text = word * 200_000  # a pattern that looks back over what it has passed would take hours
    assert Redactor().text(text) == text


def test_no_rule_that_is_tried_meets_where_no_sign_does():
    texts = [text for _, text, _ in shapes()]
    texts += [text[1:] for text in texts] + [f"x{text}é{text}" for text in texts]
    passed_over = [
        (rule.pattern.pattern, text)
        for text in texts
        for rule in redaction._rules()
        if any(hint in text.lower() for hint in rule.hints)
        and rule.pattern.search(text)
        and not redaction._signs().search("\n" + text)
    ]
    assert passed_over == []


def test_every_mark_is_a_sign():
    for marks, follows, least in MARKED:
        for mark in marks.split():
            credential = mark + "".join(char for char in "a0A1" * 200 if re.fullmatch(follows, char))[:least]
            assert redaction._signs().search(f"({credential}"), mark


def test_most_texts_are_searched_once(monkeypatch):
    """All rules together have one pattern: each of a hundred, or its hints, took 70 microseconds a text."""
    tried = []
    redaction._signs()  # made of the rules
    monkeypatch.setattr(redaction, "_rules", lambda: tried.append(1) or ())
    prose = "Label 17, 2026-11-21T23:41:48.966143Z, exec_01m807p5m4eksvfav1p508q8m3: (a-b) re_run {s.x} 50%"
    assert Redactor().text(prose) == prose
    assert tried == []


# --- what is named ---------------------------------------------------------------------------------------------------


def test_what_was_named_is_hidden_whatever_it_looks_like():
    redactor = Redactor()
    held = ["{your-key-41c9}", "tulips in the window box", "$ecret-99", '{"private_key": "k7d0-99-a1b2", "type": "x"}']
    for secret in held:
        redactor.know(secret)
    for secret in [*held, "k7d0-99-a1b2"]:
        assert redactor.text(f"it is {secret} now") == f"it is {HIDDEN} now"
        assert redactor.without_named([{secret: secret}]) == [{HIDDEN: HIDDEN}]


@pytest.mark.parametrize("before", ["", "a", "ab", "ann:", "somebody:"])
def test_what_was_named_is_hidden_inside_base64_wherever_it_stands_there(before):
    redactor = Redactor()
    redactor.know("k7-41c9-of-this-test")
    for encode in (b64encode, urlsafe_b64encode):
        coded = encode(f"{before}k7-41c9-of-this-test{before}".encode()).decode()
        assert HIDDEN in redactor.without_named(f"it sent {coded}")


def test_a_word_that_says_something_about_secrets_is_none():
    redactor = Redactor()
    redactor.know("disabled")
    assert redactor.text("it is disabled") == "it is disabled"


def test_words_of_the_environment_stay_in_what_is_stored(monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "postgres")
    monkeypatch.setenv("SERVICE_TOKEN", "k7-41c9-of-this-test")
    stored = Redactor().without_named(["FROM postgres:16", "k7-41c9-of-this-test"])
    assert stored == ["FROM postgres:16", HIDDEN]
    assert Redactor().text("FROM postgres:16") == f"FROM {HIDDEN}:16"


def test_what_is_stored_does_not_depend_on_what_was_shown():
    redactor = Redactor()
    redactor.learn({"token": "continue-with-this"})
    assert redactor.text("continue-with-this") == HIDDEN
    assert redactor.without_named("continue-with-this") == "continue-with-this"
    assert redactor.fresh().text("continue-with-this") == "continue-with-this"


def test_what_is_named_is_known_however_many_secrets_were_shown_before():
    redactor = Redactor()
    for number in range(3_000):
        redactor.learn({"token": f"t-{number}-of-this-test"})
    redactor.know("k7-41c9-of-this-test")
    assert redactor.fresh().text("k7-41c9-of-this-test") == HIDDEN


@pytest.mark.parametrize("width", range(1, 60, 3))
def test_no_half_of_a_secret_is_left_where_a_text_is_cut(width):
    # One of its own: a secret that another test has made known, and that this one begins with, would leave its end.
    text = f"it is sk{'-proj-'}{'Zq8' * 20} and more words than fit into a line, " * 20
    for shown in (one_line(text, width), cut(text, width)):
        assert "Zq8" not in shown
        assert len(shown) <= width + 30


def test_secrets_in_recorded_tuples_mappings_and_instances_are_known_and_hidden():
    redactor = Redactor()
    recorded = normalize({"a": ({"password": "correct horse battery"},), "b": {1: ("api_key", "k7d0-99-a1b2-c3")}})
    redactor.learn(recorded)
    clean = redactor.value(recorded)
    assert "correct horse battery" not in readable(clean)
    assert "k7d0-99-a1b2-c3" not in readable(clean)
    assert "correct horse battery" not in redactor.text("it is correct horse battery")


def test_data_without_secrets_are_returned_and_others_as_each_text_of_them_would_be():
    """A single search in all texts decides whether each of them is searched."""
    redactor = Redactor(["k7-41c9-of-this-test"])
    redactor.know("k7-41c9-of-this-test")
    texts = [
        "a word",
        "",
        "k7-41c9-of-this-test",
        f"ghp_{'a' * 36}",
        "sk",
        "A" * 300,
        "x\nghp",
        "k7-41c9",
        "-of-this-test",
    ]
    values = [*texts, 1, None, True, 0.5, texts, {text: text for text in texts}, [{"a": [{"b": texts}]}], {1: texts}]
    values += [[value] for value in texts] + [{"content": value} for value in texts] + [(texts[2],), {"a": {3}}]
    for value in values:
        for hide, change in (
            (redactor.without_named, redactor._named.hidden),
            (redactor.without_certain, redactor._certain),
        ):
            expected = _everywhere(value, change)
            assert hide(value) == expected
    clean = [{"a": ["word", 1, None, True]}]
    assert redactor.without_certain(clean) is clean
