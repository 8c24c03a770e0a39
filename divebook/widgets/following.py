"""Widgets that send no secrets, and those of them that follow a publisher."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import anywidget

from divebook.errors import SetupError
from divebook.text.redaction import shared
from divebook.widgets.follower import Follower
from divebook.widgets.protocol.views import Bundle, BundleName

HOSTED_VIEW = "application/vnd.divebook.view+json"
"""The form of an output with a view that JupyterLab's extension shows: the view, or once its model is gone another form
of the same output (``widgets/src/lab/host.ts``)."""
STATIC = Path(__file__).parent / "static"


def built(name: str) -> str:
    """Return a file of the browser half."""
    path = STATIC / name
    if not path.exists():
        raise SetupError(f"{path} is missing: build the front end with `python widgets/frontend.py build`")
    return path.read_text(encoding="utf-8")


def bundle_of(view: str, name: BundleName) -> Bundle:
    """Return a part of the front end."""
    return Bundle(type="bundle", view=view, name=name, script=built(f"{name}.js"))


class CleanWidget(anywidget.AnyWidget):
    """A widget that sends no secrets: nothing but our own code gets to the browser another way."""

    def send(self, content: Any, buffers: Any = None) -> None:
        """Send a message to the browser, without secrets."""
        is_code = content["type"] == "bundle"  # a secret that is a word of it would break it
        super().send(content if is_code else shared().value(content), buffers)


class FollowingView(Follower, CleanWidget):
    """A widget that shows what a publisher sends."""

    bundle: ClassVar[str]
    """What its files are called."""

    @property
    def _esm(self) -> str:
        return built(f"{self.bundle}.js")

    @property
    def _css(self) -> str:
        return built(f"{self.bundle}.css")

    def close(self) -> None:
        """Stop following, and take the view off the page."""
        layout = self.layout  # a widget of its own, with a comm of its own
        super().close()
        layout.close()
