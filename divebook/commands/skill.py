"""Skill for coding assistants (``SKILL.md``), and the list of the site's pages for them (``llms.txt``).

``python -m divebook.commands.skill`` writes both; the suite compares them with what is here. The skill is the template
`skill.md`, filled with the tables of commands and keys. It is in the package, where tools for skills of libraries look
for it: ``divebook/.agents/skills/divebook/SKILL.md``. `llms.txt` is in `notebooks/`, from which the site is built.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from divebook.commands.command import SHELL
from divebook.commands.table import COMMANDS, GROUPS

PACKAGE = Path(__file__).parents[1]
SKILL = PACKAGE / ".agents" / "skills" / "divebook" / "SKILL.md"
_TEMPLATE = Path(__file__).with_name("skill.md")
PARTS = ("Definition", "workflow", "input", "output", "step", "Next entry", "Each", "Ask", "Retry", "Catch", "agent")
"""Parts of a definition whose keys the skill lists."""

HEAD = """\
# divebook

> Durable workflows of agents, actions and scripts, defined in notebook cells, YAML or Python. An engine records every \
call in an event log, so that a run continues after a crash, an error or an answer, and nothing is paid twice.

The package has a skill for coding assistants, `divebook/.agents/skills/divebook/SKILL.md`: how to define, run, \
answer, inspect, fix and resume by shell and files.
"""
SECTIONS = {
    "start": "Start",
    "": "Learn",
    "how-to": "How to",
    "explain": "Explanations",
    "reference": "Reference",
    "project": "Project",
}
"""Titles of the folders of pages, in the order of the site."""
_REFERENCE_AT_TOP = ("KEYS.md", "COMMANDS.md", "DEV_ENV.md")
LONGEST = 200
"""Maximum length of the description of a page."""


def skill() -> str:
    """Return the text of ``SKILL.md``."""
    from divebook.definitions.schema import TABLES

    other_parts = ", ".join(f"`{label}`" for label in TABLES if label not in PARTS)
    text = _TEMPLATE.read_text(encoding="utf-8")
    filled = {"COMMANDS": "\n".join(_command_lines()), "OTHER_PARTS": other_parts, "KEYS": "\n".join(_key_lines())}
    text = re.sub(r"^(COMMANDS|KEYS)$|\b(OTHER_PARTS)\b", lambda match: filled[match[0]], text, flags=re.MULTILINE)
    return text.rstrip() + "\n"


def _command_lines() -> Iterator[str]:
    for group in GROUPS:
        commands = [each for each in COMMANDS.values() if each.group is group and SHELL in each.interfaces]
        yield f"{group.title}:\n"
        for command in commands:
            file = " FILE" if command.file_help else ""
            usage = f"{command.name}{file}{command.usage_in(SHELL).removeprefix(command.name)}"
            yield f"- `divebook {usage}`: {command.summary}"
        yield ""


def _key_lines() -> Iterator[str]:
    from divebook.definitions.schema import reference

    for part in PARTS:
        label, lines = reference(part)
        yield f"### {label}\n"
        for line in lines:
            # Keys that exist to explain an error. Notes about the legacy dialect are left out.
            if line.notes.startswith("refused"):
                continue
            required = " (required)" if line.notes.startswith("required") else ""
            yield f"- `{line.key}`, {line.holds}: {line.means}{required}"
        yield ""


# --- llms.txt --------------------------------------------------------------------------------------------------------


def llms(pages: Path) -> str:
    """Return the text of ``llms.txt`` for the pages in a folder: a list of links with titles and descriptions."""
    links_of: dict[str, list[str]] = {folder: [] for folder in SECTIONS}
    for path in sorted([*pages.rglob("*.md"), *pages.rglob("*.ipynb")]):
        place = path.relative_to(pages)
        if path.name == "README.md" or place.parts[0] not in {*SECTIONS, place.name}:
            continue
        folder = "reference" if place.name in _REFERENCE_AT_TOP else "/".join(place.parts[:-1])
        title, description = _title_and_description(path)
        link = place.with_suffix(".html").as_posix()
        if title and folder in links_of:
            links_of[folder].append(f"- [{title}]({link})" + (f": {description}" if description else ""))
    sections = (f"## {SECTIONS[folder]}\n\n" + "\n".join(lines) + "\n" for folder, lines in links_of.items() if lines)
    return "\n".join([HEAD, *sections])


def _title_and_description(path: Path) -> tuple[str, str]:
    """Return the first heading of a page, and the first sentence of its first paragraph; empty if it has none."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    if title is None:
        return "", ""
    for paragraph in re.split(r"\n\s*\n", text[title.end() :].strip()):
        # Directives, tables, code, lists and headings describe nothing.
        if not re.match(r"[:|`#<!\-*>\s]|from |import ", paragraph):
            plain = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", " ".join(paragraph.split()))
            sentence = re.split(r"(?<=[.:?]) ", plain)[0].rstrip(":")
            return title[1], sentence if len(sentence) <= LONGEST else f"{sentence[: LONGEST - 3]}..."
    return title[1], ""


def main() -> None:
    """Write both files of a copy of the repository, or only name the skill's path where there is none."""
    pages = PACKAGE.parent / "notebooks"
    if not pages.is_dir():
        sys.stdout.write(f"{SKILL}\n")
        return
    SKILL.parent.mkdir(parents=True, exist_ok=True)
    for path, text in ((SKILL, skill()), (pages / "llms.txt", llms(pages))):
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"written: {path.relative_to(PACKAGE.parent)}\n")


if __name__ == "__main__":
    main()
