"""A trial as text and as HTML that is saved with a notebook: outcomes beside the recorded one, differences marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from divebook.events.catalog import COMPLETED
from divebook.history.marked_html import BADGE, FAINT, RULE, TEXT, piece_of, safe, styled
from divebook.replay.tried import Tried
from divebook.text.cuts import cut
from divebook.text.differences import REMOVED, marked, pieces
from divebook.text.durations import seconds
from divebook.text.redaction import shared
from divebook.text.shown import AS_TEXT, plural, price

LONGEST = 4_000
"""Characters of a text that are shown."""
MOST = 24
"""Tries that are shown."""
_GRID = "display:grid;grid-template-columns:repeat(auto-fit,minmax(min(260px,100%),1fr));gap:8px"
_CARD = f"min-width:0;box-sizing:border-box;border:{RULE};border-radius:4px;padding:6px 10px"
_SAME = "= as recorded"


def as_text(title: str, recorded: Tried, tries: Sequence[Tried]) -> str:
    """Return a trial as lines: what was asked, then each outcome, in one text with the recorded one."""
    lines = [f"{_shown(title)}: {_summary(tries)}"]
    for asked, titles in _prompts(recorded, tries):
        lines += [f"asked {titles}:", *_indented(marked(_shown(recorded.asked), asked))]
    if not _differ(recorded, tries) and recorded.asked:
        lines += ["asked, each time as recorded:", *_indented(_shown(recorded.asked))]
    lines += [f"recorded: {_figures(recorded)}", *_indented(_shown(recorded.text))]
    for tried in tries[:MOST]:
        is_same = _is_same(recorded, tried)
        told = [_SAME] if is_same else _shown(_beside(recorded, tried)).split("\n")
        lines += [f"{tried.title}: {_figures(tried)}", *(f"  {line}" for line in told)]
    return "\n".join(filter(None, [*lines, _left(tries)]))


def as_html(title: str, recorded: Tried, tries: Sequence[Tried]) -> str:
    """Return a trial as a page: cards beside each other as far as they fit, the recorded one first."""
    cards = [_card(recorded, safe(_shown(recorded.text)))]
    cards += [_card(tried, _outcome(recorded, tried)) for tried in tries[:MOST]]
    head = f"<strong>{safe(_shown(title))}</strong> {styled(FAINT, safe(_summary(tries)))}"
    return (
        f'<div class="{AS_TEXT}" style="margin:4px 0"><div style="margin:2px 0 6px;overflow-wrap:anywhere">{head}</div>'
        f"{_asked(recorded, tries)}"
        f'<div style="{_GRID}">{"".join(cards)}</div>{safe(_left(tries))}</div>'
    )


def _left(tries: Sequence[Tried]) -> str:
    return f"and {len(tries) - MOST} more; .frame() has all" if len(tries) > MOST else ""


def _summary(tries: Sequence[Tried]) -> str:
    done = sum(tried.status == COMPLETED for tried in tries)
    told = [plural(len(tries), "try").replace("trys", "tries")]
    if done < len(tries):
        told.append(f"{done} completed")
    tokens, costs = ([getattr(tried, name) for tried in tries] for name in ("tokens", "cost"))
    if any(found is not None for found in tokens):
        told.append(f"{sum(filter(None, tokens)):,} tokens")
    if any(found is not None for found in costs):
        told.append(price(sum(filter(None, costs))))
    return " · ".join(told)


def _figures(tried: Tried) -> str:
    told = [tried.status]
    if tried.model:
        told.append(tried.model)
    if tried.tokens is not None:
        told.append(f"{tried.tokens:,} tokens")
    if tried.cost is not None:
        told.append(price(tried.cost))
    if tried.seconds is not None:
        told.append(seconds(tried.seconds))
    return " · ".join(told)


def _shown(text: str) -> str:
    return cut(shared().text(text), LONGEST)


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in text.split("\n")]


def _is_same(recorded: Tried, tried: Tried) -> bool:
    return (tried.status, tried.text) == (recorded.status, recorded.text)


def _beside(recorded: Tried, tried: Tried) -> str:
    """Return an outcome in one text with the recorded one; of an error there is nothing to compare."""
    both = recorded.error is None and tried.error is None
    return marked(_shown(recorded.text), _shown(tried.text)) if both else tried.text


def _differ(recorded: Tried, tries: Sequence[Tried]) -> bool:
    return any(_is_asked_otherwise(recorded, tried) for tried in tries)


def _is_asked_otherwise(recorded: Tried, tried: Tried) -> bool:
    """Return whether a try was asked something else; one that was stopped before it could ask was asked nothing."""
    return bool(tried.asked) and tried.asked != recorded.asked


def _prompts(recorded: Tried, tries: Sequence[Tried]) -> Iterator[tuple[str, str]]:
    """Yield what was asked otherwise than recorded, each once, and in which tries."""
    titles: dict[str, list[str]] = {}
    for tried in tries:
        if _is_asked_otherwise(recorded, tried):
            titles.setdefault(_shown(tried.asked), []).append(str(tried.number))
    for asked, numbers in titles.items():
        yield asked, "in each try" if len(numbers) == len(tries) else f"in try {', '.join(numbers)}"


# --- HTML ------------------------------------------------------------------------------------------------------------


def _asked(recorded: Tried, tries: Sequence[Tried]) -> str:
    """Return what was asked, with what differs from the recorded text marked in it."""
    if not recorded.asked and not _differ(recorded, tries):
        return ""
    if not _differ(recorded, tries):
        return _box("Asked", "as recorded", safe(_shown(recorded.asked)))
    before = _shown(recorded.asked)
    return "".join(
        _box("Asked", titles, "".join(piece_of(*piece) for piece in pieces(before, asked)))
        for asked, titles in _prompts(recorded, tries)
    )


def _box(title: str, told: str, text: str) -> str:
    return (
        f'<div style="border:{RULE};border-radius:4px;padding:6px 10px;margin:0 0 8px">'
        f'<div>{styled(BADGE, title)}{styled(FAINT, safe(told))}</div><div style="{TEXT}">{text}</div></div>'
    )


def _card(tried: Tried, text: str) -> str:
    head = f"{styled(BADGE, safe(tried.title))}{styled(FAINT, safe(_figures(tried)))}"
    return f'<div style="{_CARD}"><div style="margin:0 0 4px">{head}</div><div style="{TEXT}">{text}</div></div>'


def _outcome(recorded: Tried, tried: Tried) -> str:
    """Return what a try came to; words that are not in the recorded outcome are marked, what it lacks is not shown."""
    if _is_same(recorded, tried):
        return styled(FAINT, _SAME)
    if recorded.error is not None or tried.error is not None:
        return safe(_shown(tried.text))
    told = pieces(_shown(recorded.text), _shown(tried.text))
    return "".join(piece_of(piece.sign, piece.text) for piece in told if piece.sign != REMOVED)
