"""Rich output: the display of an object that a log cannot contain, such as a figure, as an image or as HTML.

A step that returns a figure of matplotlib, an image of Pillow or any other object that notebooks display as an image
or as HTML has a `RichOutput` as its result. It is made when the result is recorded, so code gets the same object
whether the call ran now or was replayed. Only results are converted: as an input, an argument or an answer such an
object is refused, because code that receives the value needs the object and not its display.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from divebook.errors import UnstorableValueError
from divebook.events.classes import Instance, allow
from divebook.events.codec import storable
from divebook.events.values import MAX_DEPTH

HTML = "text/html"
_SIGNATURES = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
}
_METHODS = {
    "image/png": "_repr_png_",
    "image/jpeg": "_repr_jpeg_",
    "image/svg+xml": "_repr_svg_",
    HTML: "_repr_html_",
}
"""Methods by which objects display themselves in notebooks, the preferred one first."""


@allow
@dataclass(frozen=True, repr=False)
class RichOutput:
    """Display of an object as an image or as HTML. As the last value of a cell it shows what the object would show.

    Parameters
    ----------
    media_type
        ``image/png``, ``image/jpeg``, ``image/svg+xml`` or ``text/html``.
    content
        The image or the HTML, encoded in UTF-8 if it is text.
    name
        Name of the class of the object.
    """

    media_type: str
    content: bytes
    name: str

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        is_text = self.media_type not in _SIGNATURES
        shown = self.content.decode() if is_text else base64.b64encode(self.content).decode()
        return {"text/plain": repr(self), self.media_type: shown}, {}

    def __repr__(self) -> str:
        return f"{self.name}: {self.media_type}, {len(self.content):,} bytes"

    def __getattr__(self, name: str) -> NoReturn:
        """Raise an error that names the original class, for code that expects the original object."""
        raise AttributeError(
            f"{name}: the log contains only the display ({self.__dict__.get('media_type')}) of "
            f"{self.__dict__.get('name')}; use the object inside the step that creates it"
        )


def with_displays(value: Any) -> Any:
    """Return a value with a `RichOutput` in place of each part that only notebooks can display: the value itself, or an
    item of a list, tuple or dict. Returns the value itself if it has no such part.
    """
    try:
        return _with_displays(value, 0)
    # A class may raise anything when it is read or displayed, as `divebook.events.values.normalize` describes.
    except BaseException:  # noqa: BLE001 - the caller reports why the value cannot be stored
        return value


def _with_displays(value: Any, depth: int) -> Any:
    """Replace parts of a value as `with_displays` does. Containers at the `depth` of `MAX_DEPTH` are not searched."""
    if type(value) in (list, tuple, dict) and depth < MAX_DEPTH:
        items = list(value.values()) if type(value) is dict else value
        displayed = [_with_displays(item, depth + 1) for item in items]
        if all(new is old for new, old in zip(displayed, items, strict=True)):
            return value
        return dict(zip(value, displayed, strict=True)) if type(value) is dict else type(value)(displayed)
    try:
        storable(value, "result")
    except UnstorableValueError:
        # Frames display themselves as well, but the log can contain them as they are.
        output = rich_output_of(value)
        return value if output is None else output
    return value


def rich_output_of(value: Any) -> RichOutput | None:
    """Return the display of an object; None if notebooks display it as text."""
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    if type(value).__module__.partition(".")[0] == "matplotlib" and callable(getattr(value, "savefig", None)):
        # Notebooks display figures by a function of the notebook, and not by a method of the figure.
        file = io.BytesIO()
        value.savefig(file, format="png", bbox_inches="tight")
        return RichOutput("image/png", file.getvalue(), name)
    for media_type, method in _METHODS.items():
        content = _content_of(getattr(type(value), method, None), value, media_type)
        if content is not None:
            return RichOutput(media_type, content, name)
    return None


def _content_of(display: Callable[[Any], Any] | None, value: Any, media_type: str) -> bytes | None:
    """Call the method for one media type. Methods may return None, metadata besides the content, or raise an error."""
    shown: Any = None
    if callable(display):
        with suppress(Exception):
            shown = display(value)
    if isinstance(shown, tuple) and shown:
        shown = shown[0]
    if isinstance(shown, str):
        return shown.encode() if media_type not in _SIGNATURES else None
    if isinstance(shown, bytes) and shown.startswith(_SIGNATURES.get(media_type, b"")):
        return shown
    return None


def recorded_output(value: object) -> tuple[str, bytes] | None:
    """Return the media type and content of a rich output in recorded form; None for any other value."""
    if not isinstance(value, Instance) or value.cls != f"{__name__}.{RichOutput.__name__}":
        return None
    media_type, content = (value.fields.get(name) for name in ("media_type", "content"))
    return (media_type, content) if isinstance(media_type, str) and isinstance(content, bytes) else None


def image_uri(value: object, most: int) -> str | None:
    """Return a rich output in recorded form as a data URI of at most `most` characters, to show it as an image; None
    for any other value.

    Only media types of images are returned. A page that shows an SVG as an image runs no scripts of it.
    """
    output = recorded_output(value)
    if output is None or output[0] not in _METHODS or output[0] == HTML:
        return None
    uri = f"data:{output[0]};base64,{base64.b64encode(output[1]).decode()}"
    return uri if len(uri) <= most else None
