"""The former place of `divebook.text.redaction`, for code that imports it from here."""

from divebook.text.passwords import looks_secret
from divebook.text.redaction import Redactor

__all__ = ["Redactor", "looks_secret"]
