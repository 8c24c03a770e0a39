"""Every command of the shell over a store of hostile texts, with each standard stream closed or broken.

``python -m tests.cli.hostile`` runs all commands with all redirections as processes; the suite runs all of them within
its own process, and some as processes (`tests/cli/test_hostile.py`).
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from divebook import Agent, Environment, ScriptedModel, Step, Workflow
from divebook.cli.main import app
from divebook.commands.command import SHELL
from divebook.commands.table import COMMANDS
from divebook.definitions import WorkspaceDefinition
from divebook.documents import Policy

HOSTILE = "\x1b]0;title\x07\x9b31m\u202ex"
"""Text that sets a terminal's title and colour, and turns its direction."""
REDIRECTIONS = (">&-", "2>&-", "<&-", ">&- 2>&- <&-", "| true", "2>&1 | true", "> /dev/full", "2> /dev/full")
FILE = """
Workflows:
- Name: "{0}"
  Inputs: [{{Name: who, Type: string, Default: "{0}"}}]
  Steps:
  - {{Name: "s{0}", Script: "inputs.who", Store: said}}
  - {{Name: asks, Ask: {{Question: "{0}?", Kind: clarification}}, Store: told}}
""".format(HOSTILE.encode("unicode_escape").decode().replace("\\u202e", "\\u202E"))
WRITES = f"open('e' + chr(27) + ']0;title' + chr(7) + '.txt', 'w').write({'x'!r})"


def built(folder):
    """Make a store, a definition and a log in a folder; return their names and the ids of the runs."""
    store, project = folder / "s.db", folder / "project"
    project.mkdir()
    (folder / f"d{HOSTILE}.yaml").write_text(FILE, "utf-8")
    command = f'{sys.executable} -c "{WRITES}"'
    agent = Agent("a", model=ScriptedModel([HOSTILE] * 3))
    definition = WorkspaceDefinition("app", folder=str(project))
    with Environment(
        store=str(store), agents=[agent], policy=Policy("programs", "files"), workspaces=[definition]
    ) as world:
        shell = Step(f"s{HOSTILE}", action="Workspace.Shell", parameters={"Command": command})
        prompt = Step("p", agent="a", prompt=HOSTILE, store="said")
        done = world.start(Workflow(f"w{HOSTILE}", [shell, prompt], workspace="app")).wait(60)
        failed = world.start(
            Workflow("f", [Step("s", script=f"state.{'x'}['{HOSTILE.encode('unicode_escape').decode()}']")])
        ).wait(60)
        asks = world.start(Workflow("q", [Step("q", ask={"question": HOSTILE, "data": {HOSTILE: HOSTILE}})])).wait(60)
        world.run_of(done.id).annotate(tags=[f"t{HOSTILE}"], note=HOSTILE, labels={HOSTILE: HOSTILE})
        return {
            "store": str(store),
            "file": str(folder / f"d{HOSTILE}.yaml"),
            "done": done.id,
            "failed": failed.id,
            "asks": asks.id,
            "question": asks.open_questions[0].id,
            "folder": str(folder),
        }


def commands(names):
    """Return the arguments of each command, by its name; each is there at least once."""
    at, folder = ["--store", names["store"]], names["folder"]
    done, failed, asks, file = names["done"], names["failed"], names["asks"], names["file"]
    # A command that needs no words is called without any, unless it has an entry below.
    plain = {
        name: [[name, *at]]
        for name, command in COMMANDS.items()
        if SHELL in command.interfaces
        and command.has_store
        and not any(each.is_required for each in command.parameters)
    }
    return plain | {
        "run": [["run", file, *at, "--no-input"], ["run", file, *at, f"-v{HOSTILE}=1"], ["run", f"no{HOSTILE}", *at]],
        "resume": [["resume", done, "-d", file, *at], ["resume", asks, "-d", file, *at, "--no-input"]],
        "fork": [["fork", done, "--at", "3", *at], ["fork", done, "--at", "3", "--set", f"x={HOSTILE}", *at]],
        "try": [["try", f"s{HOSTILE}", done, *at], ["try", "p", done, "-d", file, *at]],
        "what-if": [["what-if", done, "--input", f"who={HOSTILE}", "--plan", *at]],
        "runs": [["runs", *at], ["runs", "--json", *at], ["runs", "--tag", f"t{HOSTILE}", *at]],
        "show": [["show", done, "--events", *at], ["show", done, "--json", *at], ["show", failed, *at]],
        "why": [["why", "said", done, *at], ["why", HOSTILE, failed, *at]],
        "compare": [["compare", done, failed, *at], ["compare", done, done, *at]],
        "inspect": [["inspect", done, *at], ["inspect", asks, *at]],
        "files": [["files", done, *at], ["files", done, "--json", *at]],
        "diff": [["diff", done, *at], ["diff", done, HOSTILE, *at]],
        "apply": [["apply", done, "--to", f"{folder}/to", *at], ["apply", done, HOSTILE, *at]],
        "restore": [["restore", done, "--to", f"{folder}/re{HOSTILE}", *at]],
        "verify": [["verify", done, "-d", file, *at]],
        "to-test": [
            ["to-test", done, "-d", file, "--to", f"{folder}/test_{HOSTILE}.py", *at],
            ["to-test", done, "-d", file, *at],
        ],
        "open": [["open", f"{folder}/no{HOSTILE}.html"]],
        "inbox": [["inbox", *at], ["inbox", "--json", *at]],
        "rules": [["rules", *at], ["rules", "--revoke", HOSTILE, *at]],
        "answer": [["answer", names["question"], "", *at], ["answer", HOSTILE, HOSTILE, *at]],
        "signal": [["signal", asks, HOSTILE, *at], ["signal", asks, "x", HOSTILE, *at]],
        "cancel": [["cancel", HOSTILE, *at]],
        "tag": [["tag", done, *at], ["tag", done, HOSTILE, *at]],
        "annotate": [["annotate", done, *at], ["annotate", done, "--note", HOSTILE, "--label", f"{HOSTILE}=1", *at]],
        "check": [["check", *at], ["check", "--store", f"{folder}/no{HOSTILE}"]],
        "doctor": [["doctor", file]],
        "convert": [
            ["convert", file, "--dialect", "divebook"],
            ["convert", file, "-o", f"{folder}/v{HOSTILE}.yaml"],
            ["convert", f"no{HOSTILE}.yaml"],
        ],
        "keys": [["keys", HOSTILE], ["keys", "Step"]],
        "mcp": [["mcp", f"no{HOSTILE}.yaml", *at]],
        "schedule": [["schedule", file, *at], ["schedule", HOSTILE]],
        "enqueue": [["enqueue", file, *at, "--queue", f"q{HOSTILE}"], ["enqueue", file, *at, "-v", HOSTILE]],
        "worker": [["worker", f"no{HOSTILE}.yaml", *at]],
        "backup": [["backup", f"{folder}/b{HOSTILE}.db", *at]],
        "copy": [["copy", names["store"], f"{folder}/c{HOSTILE}.db"]],
        "gc": [["gc", "--older-than", "30d", "--dry-run", *at], ["gc", "--older-than", HOSTILE, *at]],
        "export": [["export", done, "-", *at], ["export", done, f"{folder}/x{HOSTILE}.jsonl", *at]],
        "import": [["import", f"{folder}/no{HOSTILE}.jsonl", *at]],
        "help": [["help"], ["help", HOSTILE]],
        "version": [["version"]],
        "tutorial": [["tutorial", f"{folder}/tutorial", "--no-open"]],
    }


def names_of_commands():
    """Return the names of all commands."""
    named = (command.name or command.callback.__name__ for command in app.registered_commands)
    return {*named, *(group.name for group in app.registered_groups)}


def as_process(arguments, redirection, folder):
    """Run a command in a shell with a stream redirected; return what it wrote to the streams that are left."""
    quoted = " ".join(f"'{argument}'" for argument in arguments)
    return subprocess.run(
        ["sh", "-c", f"'{sys.executable}' -m divebook {quoted} {redirection}"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def faults(done):
    """Return what is wrong with a process that has ended."""
    written = done.stdout + done.stderr
    return [word for word in ("Traceback", "Exception ignored", "\x1b]", "\x9b", "\u202e") if word in written]


def main():
    """Run all commands with all redirections."""
    count = 0
    wrong = []
    with tempfile.TemporaryDirectory() as place:
        names = built(Path(place))
        for name, several in commands(names).items():
            for redirection in REDIRECTIONS:
                count += 1
                done = as_process(several[0], redirection, place)
                wrong += [(name, redirection, fault, (done.stdout + done.stderr)[-300:]) for fault in faults(done)]
    for line in wrong:
        print(*map(repr, line))
    print(f"{count} processes, {len(wrong)} faults")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
