"""No event changes its fields without a version of its form: logs of before must load, and say what they said."""

import copy
import json

from divebook.events.upcast import CHANGES
from tests.events.forms import FILE, findings, present

RECORDED = json.loads(FILE.read_text())


def test_every_event_looks_as_it_was_recorded():
    wrong, news = findings(RECORDED, present())
    assert not wrong, "make it another form: say in divebook.events.upcast.CHANGES how the old one becomes the new"
    assert not news, "record what is new: python -m tests.events.forms"


def test_every_form_has_the_change_that_leads_to_it():
    for name, forms in RECORDED.items():
        assert list(forms) == [str(version) for version in range(len(CHANGES.get(name, ())) + 1)], name


def changed(change):
    now = copy.deepcopy(RECORDED)
    change(now["step_retried"]["0"])
    return findings(RECORDED, now)


def test_what_changes_is_found():
    assert changed(lambda fields: fields.pop("error")) == (["step_retried.error was str?"], [])
    assert changed(lambda fields: fields.update(attempt="str?")) == (["step_retried.attempt was int?"], [])
    assert changed(lambda fields: fields.update(cause="str")) == (["step_retried.cause is new and must be there"], [])
    assert changed(lambda fields: fields.update(cause="str | None?")) == ([], ["step_retried.cause"])
    gone = {name: forms for name, forms in RECORDED.items() if name != "step_retried"}
    assert findings(RECORDED, gone) == (["step_retried is gone; logs hold it"], [])
    newer = {**RECORDED, "step_retried": {"1": {"error": "str"}}}
    assert findings(RECORDED, newer) == ([], ["step_retried, form 1"])
