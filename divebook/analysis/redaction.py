"""The former place of `divebook.text.redaction`, for code that imports it from here."""

from divebook.text.redaction import Redactor
from divebook.text.secret_names import looks_secret

__all__ = ["Redactor", "looks_secret"]
