"""The fields of every event, by the version of its form, as ``recorded/forms.json`` has them.

``python -m tests.events.forms`` records new event types, new forms, and new fields that may be absent. Whatever else
changes makes another form of the event: `divebook.events.upcast.CHANGES` has to say how the old one becomes the new.
"""

import dataclasses
import json
import sys
from pathlib import Path

from divebook.events.catalog import PAYLOADS, Mutation

FILE = Path(__file__).parent / "recorded" / "forms.json"


def fields_of(kind):
    """Return the type of each field, as it is written, with a question mark after that of one which may be absent."""
    required = getattr(kind, "required", ("type", "key"))
    return {entry.name: entry.type + "?" * (entry.name not in required) for entry in dataclasses.fields(kind)}


def present():
    """Return the forms that this version writes: type to version to fields."""
    found = {name: {str(kind.form): fields_of(kind)} for name, kind in PAYLOADS.items()}
    return {**found, "(mutation)": {"0": fields_of(Mutation)}}


def findings(recorded, now):
    """Return what has changed since it was recorded: what must not, and what is only to be recorded."""
    wrong = [f"{name} is gone; logs hold it" for name in recorded.keys() - now.keys()]
    news = []
    for name, forms in now.items():
        ((form, fields),) = forms.items()
        before = recorded.get(name, {}).get(form)
        if before is None:
            news.append(f"{name}, form {form}")
            continue
        wrong += [f"{name}.{field} was {kind}" for field, kind in before.items() if fields.get(field) != kind]
        added = {field: kind for field, kind in fields.items() if field not in before}
        wrong += [f"{name}.{field} is new and must be there" for field, kind in added.items() if not kind.endswith("?")]
        news += [f"{name}.{field}" for field, kind in added.items() if kind.endswith("?")]
    return sorted(wrong), sorted(news)


def main():
    recorded, now = json.loads(FILE.read_text()) if FILE.exists() else {}, present()
    wrong, news = findings(recorded, now)
    if wrong:
        raise SystemExit("\n".join([*wrong, "write the change in divebook.events.upcast.CHANGES first"]))
    merged = {name: recorded.get(name, {}) | forms for name, forms in now.items()}
    FILE.write_text(json.dumps(merged, indent=1) + "\n")
    sys.stdout.write(f"recorded: {', '.join(news) or 'nothing new'}\n")


if __name__ == "__main__":
    main()
