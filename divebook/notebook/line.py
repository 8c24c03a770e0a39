"""What the page around a notebook hears of its kernel: JupyterLab tells of questions wherever a person looks."""

from __future__ import annotations

import sys
from collections.abc import Callable

from divebook.environment import Environment
from divebook.notebook.frontend import shows_widgets


def open_line(environment: Environment) -> Callable[[], None]:
    """Let pages of JupyterLab follow the questions and the runs of an environment; return what ends that.

    Nothing is opened but in a kernel with a front end that shows widgets.
    """
    if not _has_page():
        return lambda: None
    from divebook.notebook.lasting import PAGES
    from divebook.widgets.inbox import inbox_publisher_of
    from divebook.widgets.inbox_line import InboxLine
    from divebook.widgets.intents import Handlers
    from divebook.widgets.runs import RunsFeed
    from divebook.widgets.runs_line import RunsLine

    questions = InboxLine(inbox_publisher_of(environment), Handlers(environment.answer))
    questions.when_hosted(PAGES.learn)
    runs = RunsLine(RunsFeed(environment))

    def close() -> None:
        questions.close()
        runs.close()

    return close


def _has_page() -> bool:
    if "IPython" not in sys.modules:
        return False
    from IPython.core.getipython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None and shows_widgets()
