"""Dataclasses, pydantic models, named tuples and enums: recorded by name and fields.

A value is made again only if a person allowed its class.

Nothing is imported or called because a log says so: a name in a log finds a class that `allow` was given in this
process, or none. Fields are put back as they were recorded; neither ``__init__`` nor a validator runs again.
"""

from __future__ import annotations

import dataclasses
import reprlib
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import Enum, Flag
from typing import Any, TypeVar

from divebook.errors import SetupError, UnopenableValueError, UnstorableValueError
from divebook.events.recorded import Normalize, Recorded, opened

C = TypeVar("C", bound=type)
MISSING = dataclasses.MISSING
_SHOWN = 200
_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = 60

_ALLOWED: dict[str, type] = {}

_STORED_NAMES = {
    "divebook.workflow.servers.ApprovalRule": "divebook.workflow.approvals.ApprovalRule",
    "divebook.store.append.Batch": "divebook.store.batches.Batch",
    "divebook.questions.bounds.Bounds": "divebook.bounds.Bounds",
    "divebook.workspace.workspace.BusMessage": "divebook.workspace.session.BusMessage",
    "divebook.workflow.step.Catch": "divebook.workflow.policies.Catch",
    "divebook.scripting.prelude.Context": "divebook.scripting.contexts.Context",
    "divebook.store.append.ExecutionRecord": "divebook.store.records.ExecutionRecord",
    "divebook.questions.answer.Fitting": "divebook.questions.typed.Fitting",
    "divebook.pipeline.envelope.interrupts.FlowInterrupt": "divebook.pipeline.envelope.interrupt.FlowInterrupt",
    "divebook.pipeline.envelope.interrupts.GoalStatus": "divebook.pipeline.envelope.enums.GoalStatus",
    "divebook.questions.question.InterruptKind": "divebook.questions.kinds.InterruptKind",
    "divebook.pipeline.envelope.interrupts.InterruptResponse": "divebook.pipeline.envelope.interrupt.InterruptResponse",
    "divebook.questions.question.InterruptStatus": "divebook.questions.kinds.InterruptStatus",
    "divebook.scripting.prelude.Limits": "divebook.scripting.contexts.Limits",
    "divebook.pipeline.envelope.interrupts.LoopVerdict": "divebook.pipeline.envelope.enums.LoopVerdict",
    "divebook.workflow.dialect.DialectRules": "divebook.dialects.manner.DialectRules",
    "divebook.pipeline.envelope.envelope.MergeStrategy": "divebook.pipeline.envelope.accumulation.MergeStrategy",
    "divebook.workspace.background.OutputLine": "divebook.workspace.processes.OutputLine",
    "divebook.store.leases.Owner": "divebook.store.owner.Owner",
    "divebook.pipeline.envelope.envelope.ProcessingRecord": "divebook.pipeline.envelope.contents.ProcessingRecord",
    "divebook.pipeline.envelope.interrupts.ProcessingStatus": "divebook.pipeline.envelope.enums.ProcessingStatus",
    "divebook.pipeline.envelope.interrupts.ReasonClass": "divebook.pipeline.envelope.enums.ReasonClass",
    "divebook.workflow.step.Retry": "divebook.workflow.policies.Retry",
    "divebook.pipeline.envelope.interrupts.RiskApproval": "divebook.pipeline.envelope.enums.RiskApproval",
    "divebook.pipeline.envelope.interrupts.RiskLevel": "divebook.pipeline.envelope.enums.RiskLevel",
    "divebook.workflow.step.Rollback": "divebook.workflow.policies.Rollback",
    "divebook.pipeline.envelope.envelope.SlotNames": "divebook.pipeline.envelope.contents.SlotNames",
    "divebook.pipeline.stages.StageFunctions": "divebook.pipeline.stages.functions.StageFunctions",
    "divebook.pipeline.pipeline.StageOutput": "divebook.pipeline.streaming.StageOutput",
    "divebook.pipeline.stages.StageResult": "divebook.pipeline.stages.functions.StageResult",
    "divebook.pipeline.envelope.interrupts.TerminalReason": "divebook.pipeline.envelope.enums.TerminalReason",
    "divebook.steps.conversations.Thread": "divebook.steps.threads.Thread",
    "divebook.questions.answer.Typed": "divebook.questions.typed.Typed",
    "divebook.workflow.servers.WorkspaceDefinition": "divebook.workflow.workspaces.WorkspaceDefinition",
}
"""Names in logs of divebook's own classes whose module has moved: logs of before the move hold them, and comparisons of
recorded calls must find the same name (test_classes_that_have_moved_keep_their_name_in_logs)."""


def allow(*classes: C) -> C:
    """Allow instances of these classes in logs; return the (last) class, so that it serves as a decorator as well.

    Recorded is the qualified name, so that a class defined again, in a cell for example, takes the place of the
    earlier one. A field that a class gained since takes its default; one that it lost is an error. A private
    attribute of a pydantic model that cannot be stored starts anew; a generic model is allowed as ``Box[int]``.

    Parameters
    ----------
    classes
        Dataclasses, pydantic models, named tuples and enums.

    Raises
    ------
    SetupError
        Something else is among them.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @allow
    ... @dataclass
    ... class Order:
    ...     number: int
    """
    if not classes:
        raise SetupError("allow() needs at least one class")
    for cls in classes:
        given: Any = cls  # whatever a caller passes
        if not isinstance(given, type) or kind_of(given) is None:
            raise SetupError(
                f"{cls!r} cannot be allowed: only dataclasses, pydantic models, named tuples and enums can be recorded"
            )
        _ALLOWED[name_of(cls)] = cls
    return classes[-1]


def allowed_classes() -> list[type]:
    """Return the classes that are allowed in this process, each in its newest form."""
    return [cls for name in _ALLOWED if (cls := find(name)) is not None]


def name_of(cls: type) -> str:
    """Return the name under which a class is allowed and recorded."""
    name = f"{cls.__module__}.{cls.__qualname__}"
    return _STORED_NAMES.get(name, name)


def kind_of(cls: type) -> str | None:
    """Return ``dataclass``, ``model``, ``namedtuple`` or ``enum``; None for any other class."""
    if issubclass(cls, Enum):
        return "enum"
    if issubclass(cls, tuple):
        return "namedtuple" if isinstance(getattr(cls, "_fields", None), tuple) else None
    if "__dataclass_fields__" in cls.__dict__:
        return "dataclass"
    return "model" if isinstance(getattr(cls, "__pydantic_fields__", None), dict) else None


def find(name: str) -> type | None:
    """Return the allowed class of that name, in its newest form; None if it is not allowed."""
    cls = _ALLOWED.get(name)
    if cls is None:
        return None
    found: Any = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        found = getattr(found, part, None)
    is_newer = isinstance(found, type) and name_of(found) == name and kind_of(found) is not None
    return found if is_newer else cls


def _required(name: str) -> type:
    cls = find(name)
    if cls is None:
        short = name.rpartition(".")[2]
        raise UnopenableValueError(
            name, f"its class is not allowed in this process; define or import it and call divebook.allow({short})"
        )
    return cls


def record_instance(value: Any, path: str, normalize: Normalize) -> Recorded | None:
    """Return what the log holds of an instance; None if it is of no kind of class that can be recorded.

    Raises
    ------
    UnstorableValueError
        Its class is not allowed, or a field cannot be stored.
    """
    cls = type(value)
    kind = kind_of(cls)
    if kind is None:
        return None
    name = name_of(cls)
    if name not in _ALLOWED:
        raise UnstorableValueError(
            path, f"{name} is not allowed in logs; allow the class with divebook.allow({cls.__qualname__})"
        )
    return _RECORD[kind](name, value, path, normalize)


def _record_enum(name: str, value: Enum, path: str, normalize: Normalize) -> Recorded:
    label = value.name if value.name in type(value).__members__ else ""  # flags that are set together have no member
    try:
        plain = normalize(value.value, path)
    except UnstorableValueError:
        if not label:
            raise
        plain = label
    return Member(name, label, plain)


def _record_dataclass(name: str, value: Any, path: str, normalize: Normalize) -> Recorded:
    fields = (entry.name for entry in dataclasses.fields(value) if hasattr(value, entry.name))
    return Instance("dataclass", name, {key: normalize(getattr(value, key), f"{path}.{key}") for key in fields})


def _record_namedtuple(name: str, value: Any, path: str, normalize: Normalize) -> Recorded:
    return Instance(
        "namedtuple", name, {key: normalize(item, f"{path}.{key}") for key, item in value._asdict().items()}
    )


def _record_model(name: str, value: Any, path: str, normalize: Normalize) -> Recorded:
    held = vars(value)
    fields = {key: normalize(held[key], f"{path}.{key}") for key in type(value).__pydantic_fields__ if key in held}
    unset = [key for key in fields if key not in value.__pydantic_fields_set__]
    extra = value.__pydantic_extra__
    more = None if extra is None else {key: normalize(item, f"{path}.{key}") for key, item in extra.items()}
    return Instance("model", name, fields, unset, more, private=_private(value, path, normalize))


def _private(value: Any, path: str, normalize: Normalize) -> dict[str, Any]:
    """Return the private attributes of a model that are not at their defaults.

    One that cannot be stored, such as a lock or a connection, starts anew in the instance that is made again.
    """
    private = {}
    for key, held in (value.__pydantic_private__ or {}).items():
        attribute = type(value).__private_attributes__.get(key)
        default = MISSING if attribute is None else attribute.default
        with suppress(UnstorableValueError):
            recorded = normalize(held, f"{path}.{key}")
            if type(held) is not type(default) or recorded != default:
                private[key] = recorded
    return private


_RECORD: dict[str, Callable[[str, Any, str, Normalize], Recorded]] = {
    "enum": _record_enum,
    "dataclass": _record_dataclass,
    "model": _record_model,
    "namedtuple": _record_namedtuple,
}


class Instance(Recorded):
    """The recorded fields of a dataclass, pydantic model or named tuple."""

    __slots__ = ("cls", "extra", "fields", "private", "tag", "unset")

    def __init__(
        self,
        tag: str,
        cls: str,
        fields: Mapping[str, Any],
        unset: Iterable[str] = (),
        extra: Mapping[str, Any] | None = None,
        *,
        private: Mapping[str, Any] | None = None,
    ) -> None:
        self.tag = tag  # type: ignore[misc]
        self.cls = cls
        self.fields = dict(fields)
        self.unset = list(unset)
        self.extra = extra
        self.private = dict(private or {})

    def data(self) -> Any:
        """Return class and fields, and of a model which fields were left to their defaults and what came on top."""
        data: dict[str, Any] = {"class": self.cls, "fields": self.fields}
        if self.unset:
            data["unset"] = self.unset
        if self.private:
            data["private"] = self.private
        return data if self.extra is None else {**data, "extra": self.extra}

    def open(self) -> Any:
        """Make the instance again, without running its constructor."""
        cls = _required(self.cls)
        if kind_of(cls) != self.tag:
            raise UnopenableValueError(
                self.cls, f"it was a {self.tag} when it was recorded and is not one now; make it one again"
            )
        makers = {"model": self._model, "dataclass": self._dataclass, "namedtuple": self._namedtuple}
        return makers[self.tag](cls)

    def _dataclass(self, cls: Any) -> Any:
        known = {entry.name: entry for entry in dataclasses.fields(cls)}
        values = self._values({name: _dataclass_default(entry) for name, entry in known.items()})
        made = cls.__new__(cls)
        for name, value in values.items():
            object.__setattr__(made, name, value)
        return made

    def _namedtuple(self, cls: Any) -> Any:
        defaults = cls._field_defaults
        known = {name: (lambda value=defaults[name]: value) if name in defaults else None for name in cls._fields}
        return tuple.__new__(cls, self._values(known).values())

    def _model(self, cls: Any) -> Any:
        known = cls.__pydantic_fields__
        values = self._values({name: _model_default(field) for name, field in known.items()})
        made = cls.__new__(cls)
        state = {
            "__dict__": values,
            "__pydantic_extra__": None if self.extra is None else opened(self.extra),
            "__pydantic_fields_set__": {name for name in self.plain() if name not in self.unset},
            "__pydantic_private__": None,
        }
        made.__setstate__(state)
        if cls.__private_attributes__:
            made.model_post_init(None)
            for name, value in self.private.items():
                if name in cls.__private_attributes__:
                    made.__pydantic_private__[name] = opened(value)
        return made

    def _values(self, known: Mapping[str, Callable[[], Any] | None]) -> dict[str, Any]:
        """Return the fields' values: those recorded, and defaults for fields that the class did not have then."""
        lost = [name for name in self.fields if name not in known]
        if lost:
            raise UnopenableValueError(
                self.cls, f"the class no longer has the field {lost[0]!r}; give it back, or open the value's `fields`"
            )
        return {name: self._value(name, default) for name, default in known.items()}

    def _value(self, name: str, default: Callable[[], Any] | None) -> Any:
        if name in self.fields:
            return opened(self.fields[name])
        if default is None:
            raise UnopenableValueError(self.cls, f"the class has the new field {name!r}; give the field a default")
        return default()

    def plain(self) -> Any:
        """Return the fields as a mapping, which needs no class."""
        return {**self.fields, **(self.extra or {})}

    def summary(self) -> str:
        """Return the class and its fields, shortened, or that the class is not allowed."""
        short = self.cls.rpartition(".")[2]
        if find(self.cls) is None:
            return f"<{short}: not allowed in this process>"
        text = ", ".join(f"{name}={_BRIEF.repr(value)}" for name, value in self.plain().items())
        return f"{short}({text if len(text) <= _SHOWN else f'{text[:_SHOWN]}...'})"

    def inside(self) -> Any:
        """Return the fields by name."""
        return self.plain()

    def parts(self, change: Callable[[Any], Any]) -> Recorded:
        """Return itself with its fields changed one by one."""
        fields = {name: change(value) for name, value in self.fields.items()}
        private = {name: change(value) for name, value in self.private.items()}
        return Instance(self.tag, self.cls, fields, self.unset, self.extra, private=private)

    def __getattr__(self, name: str) -> Any:
        """Say why there is no such attribute, where code meets the recorded form instead of the instance."""
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            _required(self.cls)
        except UnopenableValueError as error:
            raise AttributeError(str(error)) from None
        raise AttributeError(f"this is the recorded form of a {self.cls}; its open() returns the instance")


def _dataclass_default(entry: dataclasses.Field[Any]) -> Callable[[], Any] | None:
    if entry.default_factory is not MISSING:
        return entry.default_factory
    return None if entry.default is MISSING else lambda: entry.default


def _model_default(field: Any) -> Callable[[], Any] | None:
    return None if field.is_required() else lambda: field.get_default(call_default_factory=True, validated_data={})


class Member(Recorded):
    """A member of an enum, by its name; flags that are set together by their value."""

    __slots__ = ("cls", "name", "value")
    tag = "enum"

    def __init__(self, cls: str, name: str, value: Any) -> None:
        self.cls = cls
        self.name = name
        self.value = value

    def data(self) -> Any:
        """Return class, name and value."""
        return {"class": self.cls, "name": self.name, "value": self.value}

    def open(self) -> Any:
        """Return the member."""
        cls: Any = _required(self.cls)
        if self.name in getattr(cls, "__members__", ()):
            return cls.__members__[self.name]
        if not self.name and issubclass(cls, Flag):
            try:
                return cls(opened(self.value))
            except (TypeError, ValueError) as error:
                raise UnopenableValueError(self.cls, f"it no longer has such a value: {error}") from error
        raise UnopenableValueError(self.cls, f"the enum no longer has the member {self.name!r}; give it back")

    def plain(self) -> Any:
        """Return the member's value."""
        return self.value

    def summary(self) -> str:
        """Return class and name, or that the class is not allowed."""
        short = self.cls.rpartition(".")[2]
        return f"{short}.{self.name or self.value}" if find(self.cls) else f"<{short}: not allowed in this process>"
