"""Operation ids as the old system made them: what its logs and cases are compared by."""

import hashlib
from collections.abc import Mapping
from typing import Any


def legacy_operation_id(operation_type: str, step: str, path: str, parameters: Mapping[str, Any] | None) -> str:
    """Return the operation id of the old system.

    It concatenates type, step, path and the parameters without separators, so that different operations can have
    one id; new operations are identified by `Place`.
    """
    digest = hashlib.sha256(f"{operation_type}{step}{path}".encode())
    for key in sorted(parameters or {}):
        digest.update(f"{key}{_go_text((parameters or {})[key])}".encode())
    return f"op_{digest.hexdigest()[:32]}"


def _go_text(value: Any) -> str:
    """Return a value as Go's default formatting prints it."""
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _go_float(value)
    if isinstance(value, Mapping):
        return f"map[{' '.join(f'{key}:{_go_text(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list | tuple):
        return f"[{' '.join(_go_text(item) for item in value)}]"
    return str(value)


def _go_float(value: float) -> str:
    text = repr(value)
    if "e" not in text and abs(value) < 1e21:
        return text.removesuffix(".0")
    mantissa, _, exponent = f"{value:e}".partition("e") if "e" not in text else text.partition("e")
    sign, digits = exponent[0], exponent[1:]
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{sign}{digits.zfill(2)}"
