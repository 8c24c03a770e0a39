"""The change of a cell's text that lets it await a run."""

import asyncio

import pytest

from divebook.notebook.extension import await_magics, help_for_commands, runs_inside

RUN = "get_ipython().run_line_magic('dive', 'run x')\n"
AWAITED = "await get_ipython().run_line_magic('dive', 'await run x')\n"


def changed(*lines):
    return await_magics(list(lines))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (RUN, AWAITED),
        (f"r = {RUN}", f"r = {AWAITED}"),
        (f"'ü'; r = {RUN}", f"'ü'; r = {AWAITED}"),
        (
            "get_ipython().run_line_magic('dive', 'resume e')",
            "await get_ipython().run_line_magic('dive', 'await resume e')",
        ),
        ("get_ipython().run_line_magic('dive', 'run')", "await get_ipython().run_line_magic('dive', 'await run')"),
    ],
)
def test_a_call_that_takes_long_is_awaited(line, expected):
    assert changed(line) == [expected]


def test_loops_and_conditions_at_the_top_await_too():
    assert changed("for i in range(3):\n", f"    {RUN}", "if True:\n", f"    r = {RUN}") == [
        "for i in range(3):\n",
        f"    {AWAITED}",
        "if True:\n",
        f"    r = {AWAITED}",
    ]


@pytest.mark.parametrize(
    "lines",
    [
        ("get_ipython().run_line_magic('dive', 'runs')\n",),
        ("get_ipython().run_line_magic('dive', 'list')\n",),
        ("get_ipython().run_line_magic('dive', '')\n",),
        ("get_ipython().run_line_magic('time', 'run x')\n",),
        ("def f():\n", f"    {RUN}"),
        ("class A:\n", f"    {RUN}"),
        ("text = '''\n", RUN, "'''\n"),
        ("x = (\n", RUN),
        ("1 + 1\n",),
    ],
)
def test_everything_else_stays_as_it_is(lines):
    assert changed(*lines) == list(lines)


def test_several_calls_in_one_cell_are_awaited():
    assert changed(RUN, f"a = {RUN}", "print(a)\n") == [AWAITED, f"a = {AWAITED}", "print(a)\n"]


def test_the_changed_text_runs_on_a_loop():
    class Shell:
        def run_line_magic(self, name, line):
            async def answer():
                return name, line

            return answer()

    names = {"get_ipython": Shell}
    code = compile("".join(changed(f"r = {RUN}")), "<cell>", "exec", flags=0x2000)  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    asyncio.run(eval(code, names))
    assert names["r"] == ("dive", "await run x")


def test_a_question_mark_behind_a_command_asks_for_help():
    lines = ["%dive run?\n", "  %dive  show ??", "%dive run x?\n", "y?\n", "'%dive run?'\n"]
    assert help_for_commands(lines)[:2] == ["%dive help run", "  %dive  help show"]
    assert help_for_commands(lines)[2:] == lines[2:]


@pytest.mark.parametrize("magic", ["%dive", "%%dive"])
def test_cell_and_line_magic_have_the_same_help(cell, magic):
    (_, told), (_, of_run) = cell("%dive help"), cell("%dive help run")
    for asked in (f"{magic}?", f"{magic}??", f"?{magic}", f"?? {magic}"):
        assert cell(asked)[1] == told
    assert cell(f"{magic} run?")[1] == of_run
    assert cell(f"{magic} run ??")[1] == of_run


def test_code_that_runs_is_found_on_the_stack():
    def outer():
        return inner()

    def inner():
        return runs_inside(outer.__code__)

    assert outer()
    assert not inner()
