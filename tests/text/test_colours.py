"""One table of colours: it can be read in both themes, and there is no colour beside it."""

import re
from itertools import product
from pathlib import Path

import pytest

from divebook.text.colours import COLOURS

ROOT = Path(__file__).parents[2]
TABLES = {"divebook/text/colours.py", "widgets/src/shared/colours.css"}
PAPERS = {"light": (COLOURS["paper"].light, "#ffffff"), "dark": (COLOURS["paper"].dark, "#111111", "#212121")}
"""The ground of a page: our own, and those of JupyterLab's themes."""
RAISED, HOVER = 0.04, 0.08
"""How much of the shade is mixed into the paper of what is raised, or pointed at."""
CARDS = ("bad", "warn", "added", "removed")
"""What has a wash of its own to stand on, beside the paper."""
LITERAL = re.compile(
    r"(?<![\w.&])#(?:[\da-f]{3,4}|[\da-f]{6}|[\da-f]{8})\b(?!\()|\b(?:rgb|hsl)a?\(\s*\d", re.IGNORECASE
)
NAMED = re.compile(r":[^;{]*\b(?:white|black|gr[ae]y|red|green|blue|yellow|orange|purple)\b[^;{]*;")


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def mixed(share, one, other):
    parts = [(int(one[at : at + 2], 16), int(other[at : at + 2], 16)) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in parts)


def test_contrast_is_what_the_standard_says():
    assert round(contrast("#000000", "#ffffff"), 1) == 21
    assert round(contrast("#767676", "#ffffff"), 2) == 4.54


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_can_be_read_on_what_they_stand_on(theme):
    colours = {name: getattr(colour, theme) for name, colour in COLOURS.items()}
    grounds = [mixed(share, colours["shade"], paper) for paper, share in product(PAPERS[theme], (0, RAISED, HOVER))]
    texts = list(product(("ink", "soft", "accent", *CARDS), grounds))
    texts += [(name, colours[f"{card}-wash"]) for card in CARDS for name in ("ink", "soft", "accent", card)]
    code = [name for name in colours if name.startswith("code-")]
    texts += product(code, [*grounds, colours["added-wash"], colours["removed-wash"]])
    texts += [(name, colours[name.removesuffix("-text")]) for name in colours if name.endswith("-text")]
    low = {(name, on): ratio for name, on in texts if (ratio := contrast(colours[name], on)) < 4.5}
    edges = product(("edge", "focus"), PAPERS[theme])
    low |= {(name, on): ratio for name, on in edges if (ratio := contrast(colours[name], on)) < 3}
    assert low == {}


def shown_by():
    """Yield the files that say how something looks."""
    for folder, kinds in (("divebook", ("*.py",)), ("widgets/src", ("*.ts", "*.css"))):
        for kind in kinds:
            yield from (ROOT / folder).rglob(kind)


def literals(path):
    text = path.read_text(encoding="utf-8")
    found = LITERAL.findall(text) if path.suffix != ".ts" else re.findall(r"[\"'`]#[\da-fA-F]{3,8}[\"'`]", text)
    return [*found, *(NAMED.findall(text) if path.suffix == ".css" else [])]


def test_no_colour_is_written_anywhere_else():
    files = {path.relative_to(ROOT).as_posix(): path for path in shown_by()}
    assert set(files) >= TABLES
    assert all(literals(files[name]) for name in TABLES)
    assert {name: found for name, path in files.items() if name not in TABLES and (found := literals(path))} == {}


@pytest.mark.parametrize("text", ["a { color: #fff; }", "a { color: rgba(1, 2, 3); }", "a { border: 1px solid grey; }"])
def test_a_colour_is_known_when_it_is_seen(text, tmp_path):
    path = tmp_path / "some.css"
    path.write_text(text)
    assert len(literals(path)) == 1


def test_every_colour_is_used():
    tables = {"colours.py", "colours.css", "constants.ts"}
    used = "".join(path.read_text(encoding="utf-8") for path in shown_by() if path.name not in tables)
    fills = [name for name in COLOURS if f"{name}-text" in COLOURS or name.endswith("-text")]
    others = [name for name in COLOURS if name not in fills]
    assert [name for name in others if re.search(rf"--db-{name}\b|[\"']{name}[\"']", used) is None] == []
