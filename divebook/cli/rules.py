"""``divebook rules``: what people allowed when they approved calls."""

from __future__ import annotations

from typing import Annotated

import typer

from divebook.cli.options import By, Json, Store
from divebook.cli.screen import note, say, write
from divebook.cli.text import as_json, one_line
from divebook.errors import InputError

REVOKE = "revoke"
USAGE = "write divebook rules, or divebook rules revoke ID"


def rules(
    words: Annotated[list[str] | None, typer.Argument(metavar="[revoke ID]", help="The rule to revoke.")] = None,
    *,
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """List rules that people made on approval, or revoke one.

    A rule that is revoked holds for no call that is judged from then on.
    """
    from divebook.cli.project import existing_environment
    from divebook.steps.rules import rule_in_words

    if words and (len(words) != 2 or words[0] != REVOKE):
        raise InputError(f"unexpected {' '.join(words)!r}; {USAGE}")
    environment = existing_environment(store)
    if words:
        environment.revoke(words[1], by)
        note(f"{words[1]} holds no more")
        return
    held = environment.rules()
    if json:
        write(as_json([{"execution": name, **rule._asdict()} for name, rule in held], indent=2))
        return
    for name, rule in held:
        say(f"{rule.rule_id}  {one_line(rule_in_words(rule, name), 400)}")
    if not held:
        note("no rules: every call that asks is asked about")
