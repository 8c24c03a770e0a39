"""The value of a field with the name of a secret is hidden, whatever kind of object has the field."""

import base64
import collections
import dataclasses
import json
import re
import zlib
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict
from typer.testing import CliRunner

import divebook
from divebook import Environment, step, workflow
from divebook.cli.main import app
from divebook.events.codec import encode_shown, readable
from divebook.events.values import normalize
from divebook.text.redaction import Redactor, secrets_in

SECRETS = ("q7x", "tapir-one-9", "ibex (deep) 1", 'newt\'s "tuple"')


@divebook.allow
@dataclasses.dataclass
class Login:
    token: Any
    n: Any = 1


@divebook.allow
class Pair(NamedTuple):
    password: Any
    n: Any = 1


@divebook.allow
class Settings(BaseModel):
    api_key: Any
    n: Any = 1


@divebook.allow
class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    n: Any = 1


class Plain:
    """An object that no log can contain. Its text reaches logs in errors."""

    def __init__(self, token):
        self.token = token

    def __repr__(self):
        return f"Plain(token={self.token!r}, n=1)"


SECRET = st.sampled_from(SECRETS)
HOLDERS = (
    Login,
    Pair,
    lambda secret: Settings(api_key=secret),
    lambda secret: Open(token=secret),
    lambda secret: {"token": secret},
    lambda secret: collections.defaultdict(list, {"password": secret}),
    lambda secret: {("a", 1): 1, "token": secret},
    lambda secret: Login({"x": secret}),
    lambda secret: Login(Pair(secret)),
)
"""Functions that return an object of each kind, which has a secret in a field with the name of a secret."""
WRAPPERS = (
    lambda part: [part],
    lambda part: (part, "b"),
    lambda part: {"a": part, "b": 2},
    lambda part: Login(None, part),
    lambda part: Pair(None, [part]),
    lambda part: Settings(api_key=None, n=part),
)
"""Functions that return an object with another one as a part."""
HIDDEN_VALUES = SECRET | st.lists(SECRET, min_size=1, max_size=2) | SECRET.map(lambda secret: {"deep": [secret]})
HOLDING = st.tuples(st.sampled_from(HOLDERS), HIDDEN_VALUES).map(lambda pair: pair[0](pair[1]))
NESTED = st.recursive(
    HOLDING, lambda inner: st.tuples(st.sampled_from(WRAPPERS), inner).map(lambda pair: pair[0](pair[1]))
)


def seen(text):
    """Return the secrets that a text shows, also in the form of a literal."""
    forms = {form for secret in SECRETS for form in (secret, repr(secret)[1:-1], json.dumps(secret)[1:-1])}
    return [form for form in forms if form in text]


@settings(max_examples=300, deadline=None)
@given(value=NESTED)
def test_a_secret_in_a_field_is_hidden_in_data_and_in_texts(value):
    redactor = Redactor()
    recorded = normalize(value)
    clean = redactor.value(recorded)
    assert not seen(readable(clean))
    assert not seen(repr(clean))
    assert {*secrets_in(recorded)} >= {secret for secret in SECRETS if secret in repr(value)}
    for text in (repr(value), str(value), f"KeyError: {value!r}", json.dumps(repr(value))):
        assert not seen(redactor.text(text)), text
    # The short text of a recorded object leaves out names in its middle. Reports learn the secrets of a run, if they
    # are long enough.
    redactor.learn(recorded)
    shown = encode_shown(recorded).decode()
    for text in (shown, json.dumps(shown), repr(recorded)):
        assert {*seen(redactor.text(text))} <= {"q7x"}, text


def test_a_secret_in_the_text_of_an_object_is_hidden():
    for secret in SECRETS:
        assert not seen(Redactor().text(f"ValueError: bad {[Plain(secret)]}"))


VALUE = {
    "a": Login("q7x"),
    "b": [Pair("tapir-one-9")],
    "c": (Settings(api_key="ibex (deep) 1"), {"x": Login(Login("q7x"))}),
}

PLAIN = Plain("q7x")


@step
def make():
    return VALUE


@step
def fail(value: Any):
    raise ValueError(f"bad {value!r} and {PLAIN!r}")


@workflow
async def keeps(ctx, value):
    await make()
    return value


@workflow
async def fails(ctx, value):
    await fail(value)


def unpacked(page):
    """Return a page with its data in plain text. Compressed text could contain three characters by chance. The program
    of the page, which is the same for all runs, is left out.
    """

    def plain(part):
        return "" if part[1] == "viewer" else zlib.decompress(base64.b64decode(part[2])).decode()

    plain_page, parts = re.subn(
        r'<script type="application/vnd.divebook.part" data-name="(\w+)"[^>]*>([^<]*)<', plain, page
    )
    assert parts >= 3
    return plain_page


def test_no_view_file_or_error_shows_a_secret_in_an_object(tmp_path):
    store = str(tmp_path / "runs.db")
    with Environment(store=store) as environment:
        runs = [environment.start(each, {"value": VALUE}).wait(20) for each in (keeps, fails)]
        for run in runs:
            run.to_html(tmp_path / f"{run.id}.html", log=False)
            texts = [str(run), run._repr_html_(), str(run.inspect()), str(run.why("state")), run.error or ""]
            texts += [str(run.compare(run.fork(change={"inputs": {"value": 1}}).wait(20)))]
            texts.append(unpacked((tmp_path / f"{run.id}.html").read_text(encoding="utf-8")))
            for words in (
                ["show"],
                ["show", "--events"],
                ["show", "--json"],
                ["why", "state"],
                ["why", "state", "--json"],
            ):
                printed = CliRunner().invoke(app, [*words, run.id, "--store", store])
                assert printed.exit_code == 0, printed.output
                texts.append(printed.output)
            texts.append(CliRunner().invoke(app, ["runs", "--store", store]).output)
            for text in texts:
                assert not seen(text), text
