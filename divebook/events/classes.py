"""Recorded forms of dataclasses, pydantic models, named tuples and enums, and the registry of allowed classes.

An instance is recorded as the qualified name of its class, ``module.qualname``, and its fields. After ::

    @divebook.allow
    @dataclass
    class Order:
        number: int

``Order(7)`` of the module ``shop`` is recorded as ::

    {"$type": "dataclass", "value": {"class": "shop.Order", "fields": {"number": 7}}}

and `Instance.open` turns that into an ``Order`` again, if the process has allowed a class of the name ``shop.Order``.

A log cannot cause an import or a call: a name in a log is only looked up among the classes that this process passed to
`allow`. Fields get their recorded values. Neither ``__init__`` nor a validator runs again.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import reprlib
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from enum import Enum, Flag
from typing import Any, ClassVar, TypeVar

from divebook import plugins
from divebook.errors import SetupError, UnopenableValueError, UnstorableValueError
from divebook.events.recorded import Normalize, Recorded, opened
from divebook.text.arguments import suggest_arguments

C = TypeVar("C", bound=type)
MISSING = dataclasses.MISSING
_SHOWN = 200
_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = 60
_WITH_CONTENT = (str, bytes, bytearray, int, float, complex, list, tuple, dict, set, frozenset, deque)
"""Classes whose instances have a content besides their attributes."""

# Names in logs are only looked up here. Nothing else leads from a name to a class, so a log that an attacker wrote
# creates instances of users' classes only if this process has allowed them.
_ALLOWED: dict[str, type] = {}
"""Allowed classes by the name that logs use for them."""

_STORED_NAMES = {
    "divebook.definitions.resources.ApprovalRule": "divebook.workflow.approvals.ApprovalRule",
    "divebook.stores.append.Batch": "divebook.store.batches.Batch",
    "divebook.questions.bounds.Bounds": "divebook.bounds.Bounds",
    "divebook.workspaces.workspace.BusMessage": "divebook.workspace.session.BusMessage",
    "divebook.definitions.step.Catch": "divebook.workflow.policies.Catch",
    "divebook.scripting.prelude.Purpose": "divebook.scripting.contexts.Context",
    "divebook.stores.append.ExecutionRecord": "divebook.store.records.ExecutionRecord",
    "divebook.questions.answer.Fitting": "divebook.questions.typed.Fitting",
    "divebook.pipeline.envelope.interrupts.FlowInterrupt": "divebook.pipeline.envelope.interrupt.FlowInterrupt",
    "divebook.pipeline.envelope.interrupts.GoalStatus": "divebook.pipeline.envelope.enums.GoalStatus",
    "divebook.questions.question.InterruptKind": "divebook.questions.kinds.InterruptKind",
    "divebook.pipeline.envelope.interrupts.InterruptRecord": "divebook.pipeline.envelope.service.InterruptRecord",
    "divebook.pipeline.envelope.interrupts.InterruptResponse": "divebook.pipeline.envelope.interrupt.InterruptResponse",
    "divebook.questions.question.InterruptStatus": "divebook.questions.kinds.InterruptStatus",
    "divebook.scripting.prelude.Limits": "divebook.scripting.contexts.Limits",
    "divebook.pipeline.envelope.interrupts.LoopVerdict": "divebook.pipeline.envelope.enums.LoopVerdict",
    "divebook.definitions.dialect.DialectRules": "divebook.dialects.manner.DialectRules",
    "divebook.pipeline.envelope.envelope.MergeStrategy": "divebook.pipeline.envelope.accumulation.MergeStrategy",
    "divebook.pipeline.envelope.interrupts.Origin": "divebook.pipeline.envelope.service.Origin",
    "divebook.workspaces.background.OutputLine": "divebook.workspace.processes.OutputLine",
    "divebook.stores.leases.Owner": "divebook.store.owner.Owner",
    "divebook.pipeline.envelope.envelope.ProcessingRecord": "divebook.pipeline.envelope.contents.ProcessingRecord",
    "divebook.pipeline.envelope.interrupts.ProcessingStatus": "divebook.pipeline.envelope.enums.ProcessingStatus",
    "divebook.pipeline.envelope.interrupts.ReasonClass": "divebook.pipeline.envelope.enums.ReasonClass",
    "divebook.definitions.step.Retry": "divebook.workflow.policies.Retry",
    "divebook.pipeline.envelope.interrupts.RiskApproval": "divebook.pipeline.envelope.enums.RiskApproval",
    "divebook.pipeline.envelope.interrupts.RiskLevel": "divebook.pipeline.envelope.enums.RiskLevel",
    "divebook.definitions.step.Rollback": "divebook.workflow.policies.Rollback",
    "divebook.pipeline.envelope.envelope.SlotNames": "divebook.pipeline.envelope.contents.SlotNames",
    "divebook.pipeline.stages.StageFunctions": "divebook.pipeline.stages.functions.StageFunctions",
    "divebook.pipeline.pipeline.StageOutput": "divebook.pipeline.streaming.StageOutput",
    "divebook.pipeline.stages.StageResult": "divebook.pipeline.stages.functions.StageResult",
    "divebook.pipeline.envelope.interrupts.TerminalReason": "divebook.pipeline.envelope.enums.TerminalReason",
    "divebook.steps.conversations.Thread": "divebook.steps.threads.Thread",
    "divebook.questions.answer.Typed": "divebook.questions.typed.Typed",
    "divebook.definitions.resources.WorkspaceDefinition": "divebook.workflow.workspaces.WorkspaceDefinition",
}
"""Names that logs use for divebook's classes whose module has moved, by present name.

Logs from before the move hold the stored name, and comparisons of recorded calls must find the same name
(test_classes_that_have_moved_keep_their_name_in_logs).
"""

_MOVED_PACKAGES = {
    "divebook.definitions.": "divebook.workflow.",
    "divebook.environments.": "divebook.environment.",
    "divebook.queues.": "divebook.workers.",
    "divebook.stores.": "divebook.store.",
    "divebook.workspaces.": "divebook.workspace.",
}
"""Names that logs use for packages that have moved as a whole, by present name. They hold for their other classes."""


@suggest_arguments
def allow(*classes: C) -> C:
    """Allow logs to contain instances of the given classes. Return the last given class, so that `allow` also works
    as a class decorator.

    The log contains the qualified name of the class. A class that is defined again, for example in a cell, therefore
    replaces the earlier class. A field that was added to the class later gets its default; a removed field is an error.
    If a private attribute of a pydantic model cannot be stored, the restored instance has its default. Allow a generic
    model with its parameters: ``Box[int]``.

    Parameters
    ----------
    classes
        Dataclasses, pydantic models, named tuples and enums.

    Raises
    ------
    SetupError
        An argument is not such a class, or there are no arguments.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @allow
    ... @dataclass
    ... class Order:
    ...     number: int
    """
    if not classes:
        raise SetupError("allow() needs at least one Python class")
    for cls in classes:
        argument: Any = cls  # the type hint does not bind callers
        if not isinstance(argument, type) or kind_of(argument) is None:
            raise SetupError(
                f"{cls!r} cannot be allowed: only dataclasses, pydantic models, named tuples and enums can be recorded"
            )
        _ALLOWED[name_of(cls)] = cls
    return classes[-1]


def allowed_classes() -> list[type]:
    """Return the classes that this process allows in logs, each in its newest definition."""
    return [cls for name in _ALLOWED if (cls := find(name)) is not None]


def name_of(cls: type) -> str:
    """Return the name by which logs identify a class: ``module.qualname``, or for a class that was moved, its former
    name.
    """
    name = f"{cls.__module__}.{cls.__qualname__}"
    if (stored_name := _STORED_NAMES.get(name)) is not None:
        return stored_name
    package = ".".join(name.split(".", 2)[:2]) + "."
    stored_package = _MOVED_PACKAGES.get(package)
    return name if stored_package is None else stored_package + name.removeprefix(package)


def kind_of(cls: type) -> str | None:
    """Return the kind of a class: ``dataclass``, ``model``, ``namedtuple`` or ``enum``; None for any other class."""
    # Enums come first: an enum may derive from a dataclass or a named tuple.
    if issubclass(cls, Enum):
        return "enum"
    if issubclass(cls, tuple):
        return "namedtuple" if isinstance(getattr(cls, "_fields", None), tuple) else None
    # Only the class itself: a plain subclass of a dataclass inherits the attribute, and may have further state.
    if "__dataclass_fields__" in cls.__dict__:
        return "dataclass"
    return "model" if isinstance(getattr(cls, "__pydantic_fields__", None), dict) else None


def find(name: str) -> type | None:
    """Return the class with a name, if logs may contain its instances, in its newest definition; None if no such class
    is allowed.

    The newest definition is the class that the module has under this name now. It differs from the class passed to
    `allow` if the class was defined again since.
    """
    cls = _ALLOWED.get(name)
    if cls is None:
        return None
    # `sys.modules` only, without an import. "Outer.Inner" is found part by part; "f.<locals>.Inner" is not found, and
    # then the class that was allowed counts.
    current: Any = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        current = getattr(current, part, None)
    is_definition = isinstance(current, type) and name_of(current) == name and kind_of(current) is not None
    return current if is_definition else cls


def _required(name: str) -> type:
    cls = find(name)
    if cls is None:
        short = name.rpartition(".")[2]
        raise UnopenableValueError(
            name, f"its class is not allowed in this process; define or import it and call divebook.allow({short})"
        )
    return cls


def record_instance(value: Any, path: str, normalize: Normalize) -> Recorded | None:
    """Return the recorded form of a dataclass, pydantic model, named tuple or enum member; None for an instance of any
    other kind of class.

    Raises
    ------
    UnstorableValueError
        The class is not allowed, or a field cannot be stored.
    """
    cls = type(value)
    kind = kind_of(cls)
    if kind is None:
        return None
    name = name_of(cls)
    if name not in _ALLOWED:
        recorded = record_by_plugin(value, path, normalize)
        if recorded is not None:
            return recorded
        raise UnstorableValueError(
            path, f"{name} is not allowed in logs; allow the class with divebook.allow({cls.__qualname__})"
        )
    return _RECORD[kind](name, value, path, normalize)


def _record_enum(name: str, value: Enum, path: str, normalize: Normalize) -> Recorded:
    label = value.name if value.name in type(value).__members__ else ""  # a combination of flags is not a member
    # A member is looked up by its name, so its value need not be storable.
    try:
        plain = normalize(value.value, path)
    except UnstorableValueError:
        if not label:
            raise
        plain = label
    return Member(name, label, plain)


def _record_dataclass(name: str, value: Any, path: str, normalize: Normalize) -> Recorded:
    if isinstance(value, _WITH_CONTENT):
        base = next(base for base in type(value).__mro__ if base in _WITH_CONTENT)
        raise UnstorableValueError(
            path,
            f"{name} is also a {base.__name__}, whose content is not in a field and would be lost; store it "
            "in a field of the class",
        )
    # A field with ``init=False`` may not be set yet.
    fields = [entry.name for entry in dataclasses.fields(value) if hasattr(value, entry.name)]
    _require_no_more(value, fields, path)
    return Instance("dataclass", name, {key: normalize(getattr(value, key), f"{path}.{key}") for key in fields})


def _require_no_more(value: Any, fields: Collection[str], path: str) -> None:
    """Raise `UnstorableValueError` if an instance has attributes besides its fields, which would be lost. Attributes
    that begin with an underscore, and values of a cached property, may be lost.
    """
    attributes = getattr(value, "__dict__", {})
    if len(attributes) <= len(fields) and attributes.keys() <= {*fields}:
        return
    for key in attributes:
        is_cached = isinstance(inspect.getattr_static(type(value), key, None), functools.cached_property)
        if key not in fields and not key.startswith("_") and not is_cached:
            name = type(value).__qualname__
            raise UnstorableValueError(
                f"{path}.{key}", f"it is not a field of {name} and would be lost; declare it as a field"
            )


def _record_namedtuple(name: str, value: Any, path: str, normalize: Normalize) -> Recorded:
    _require_no_more(value, (), path)
    return Instance(
        "namedtuple", name, {key: normalize(item, f"{path}.{key}") for key, item in value._asdict().items()}
    )


def _record_model(name: str, value: Any, path: str, normalize: Normalize) -> Recorded:
    # The attributes are read from the instance's dict, so that no property or validator of the class runs.
    values = vars(value)
    fields = {key: normalize(values[key], f"{path}.{key}") for key in type(value).__pydantic_fields__ if key in values}
    unset = [key for key in fields if key not in value.__pydantic_fields_set__]
    extra = value.__pydantic_extra__
    recorded_extra = None if extra is None else {key: normalize(item, f"{path}.{key}") for key, item in extra.items()}
    return Instance("model", name, fields, unset, recorded_extra, private=_private(value, path, normalize))


def _private(value: Any, path: str, normalize: Normalize) -> dict[str, Any]:
    """Return the private attributes of a pydantic model whose values differ from the defaults, in recorded form. Values
    that a log cannot contain are left out.

    An attribute that cannot be stored, such as a lock or a connection, has its default when the instance is opened.
    """
    private = {}
    for key, item in (value.__pydantic_private__ or {}).items():
        attribute = type(value).__private_attributes__.get(key)
        default = MISSING if attribute is None else attribute.default
        with suppress(UnstorableValueError):
            recorded = normalize(item, f"{path}.{key}")
            # The types are compared first, since 1 equals True and 1.0.
            if type(item) is not type(default) or recorded != default:
                private[key] = recorded
    return private


_RECORD: dict[str, Callable[[str, Any, str, Normalize], Recorded]] = {
    "enum": _record_enum,
    "dataclass": _record_dataclass,
    "model": _record_model,
    "namedtuple": _record_namedtuple,
}


def record_by_plugin(value: Any, path: str, normalize: Normalize) -> PluginValue | None:
    """Return the recorded form that a plugin has for the class of a value; None if no plugin has the class.

    Raises
    ------
    UnstorableValueError
        The plugin is broken, or its function for plain data raises an error or returns what cannot be stored.
    """
    name = name_of(type(value))
    try:
        pair = plugins.find(plugins.VALUES, name)
    except SetupError as error:
        raise UnstorableValueError(path, str(error)) from error
    if pair is None:
        return None
    to_plain, _ = pair
    try:
        plain = to_plain(value)
    except Exception as error:
        raise UnstorableValueError(path, f"the plugin for {name} raised {type(error).__name__}: {error}") from error
    return PluginValue(name, normalize(plain, path), plugins.distribution_of(plugins.VALUES, name) or "")


class PluginValue(Recorded):
    """Recorded form of an instance of a class for which a plugin has functions to and from plain data.

    Parameters
    ----------
    cls
        Name of the class, which is the name of the plugin.
    content
        Plain data of the instance, in recorded form.
    distribution
        Name and version of the package that recorded it, for people who lack the plugin.
    """

    __slots__ = ("cls", "content", "distribution")
    tag: ClassVar[str] = "plugin"

    def __init__(self, cls: str, content: Any, distribution: str) -> None:
        self.cls = cls
        self.content = content
        self.distribution = distribution

    def data(self) -> Any:
        """Return the class, the plain data and the package."""
        return {"class": self.cls, "content": self.content, "distribution": self.distribution}

    def to_python(self) -> Any:
        """Build the instance with the function of the plugin.

        Raises
        ------
        UnopenableValueError
            The plugin is missing or broken, or its function raises an error.
        """
        try:
            pair = plugins.find(plugins.VALUES, self.cls)
        except SetupError as error:
            raise UnopenableValueError(self.cls, str(error)) from error
        if pair is None:
            raise UnopenableValueError(self.cls, f"its plugin is missing; install {self.distribution}")
        _, from_plain = pair
        try:
            return from_plain(opened(self.content))
        except Exception as error:
            message = f"its plugin cannot read it: {type(error).__name__}: {error}"
            raise UnopenableValueError(self.cls, message) from error

    def plain(self) -> Any:
        """Return the plain data of the instance. This works without the plugin."""
        return self.content

    def summary(self) -> str:
        """Return the plain data with the class; without the plugin, also the package that has it."""
        text = f"{self.cls.rpartition('.')[2]} {_BRIEF.repr(self.content)}"
        if plugins.distribution_of(plugins.VALUES, self.cls) is None:
            return f"{text} (plugin missing: {self.distribution})"
        return text

    def inside(self) -> Any:
        """Return the plain data of the instance, as a list of one item."""
        return [self.content]

    def parts(self, change: Callable[[Any], Any]) -> PluginValue:
        """Return a copy in which the plain data are replaced by the result of `change`."""
        return PluginValue(self.cls, change(self.content), self.distribution)


class Instance(Recorded):
    """Recorded form of a dataclass, pydantic model or named tuple.

    Parameters
    ----------
    tag
        ``dataclass``, ``model`` or ``namedtuple``.
    cls
        Stored name of the class.
    fields
        Recorded values of the fields, by name.
    unset
        Of a model: names of the fields that were left to their defaults.
    extra
        Of a model: values that are not declared fields; None if the model does not allow them.
    private
        Of a model: private attributes that differ from their defaults.
    """

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
        """Return the class name and the fields of the instance as plain data; for a pydantic model also the names of
        unset fields, private attributes and extra values, if any.
        """
        data: dict[str, Any] = {"class": self.cls, "fields": self.fields}
        if self.unset:
            data["unset"] = self.unset
        if self.private:
            data["private"] = self.private
        return data if self.extra is None else {**data, "extra": self.extra}

    def to_python(self) -> Any:
        """Build the instance from its recorded form, without running its constructor or validators.

        Raises
        ------
        UnopenableValueError
            The class is not allowed here, is of another kind now, lost a field, or gained one without a default.
        """
        cls = _required(self.cls)
        if kind_of(cls) != self.tag:
            raise UnopenableValueError(
                self.cls,
                f"the class was a {self.tag} when the value was recorded, but is not now; make it a {self.tag} again",
            )
        makers = {"model": self._model, "dataclass": self._dataclass, "namedtuple": self._namedtuple}
        return makers[self.tag](cls)

    def _dataclass(self, cls: Any) -> Any:
        defaults = {entry.name: _dataclass_default(entry) for entry in dataclasses.fields(cls)}
        values = self._values(defaults)
        # `object.__setattr__` also sets the fields of a frozen dataclass.
        instance = cls.__new__(cls)
        for name, value in values.items():
            object.__setattr__(instance, name, value)
        return instance

    def _namedtuple(self, cls: Any) -> Any:
        declared = cls._field_defaults
        defaults = {name: (lambda value=declared[name]: value) if name in declared else None for name in cls._fields}
        return tuple.__new__(cls, self._values(defaults).values())

    def _model(self, cls: Any) -> Any:
        fields = cls.__pydantic_fields__
        # As pickle restores a model: `__setstate__` sets all four attributes without validation.
        values = self._values({name: _model_default(field) for name, field in fields.items()})
        instance = cls.__new__(cls)
        state = {
            "__dict__": values,
            "__pydantic_extra__": None if self.extra is None else opened(self.extra),
            "__pydantic_fields_set__": {name for name in self.plain() if name not in self.unset},
            "__pydantic_private__": None,
        }
        instance.__setstate__(state)
        if cls.__private_attributes__:
            instance.model_post_init(None)  # sets the private attributes to their defaults
            for name, value in self.private.items():
                if name in cls.__private_attributes__:
                    instance.__pydantic_private__[name] = opened(value)
        return instance

    def _values(self, defaults: Mapping[str, Callable[[], Any] | None]) -> dict[str, Any]:
        """Return a value for each field that the class has now: the recorded value, or the default if the field was
        added after the recording.

        `defaults` has a function that returns the default of each field, or None for a field without one.
        """
        # A recorded value must not be lost without notice. A new field is harmless if it has a default.
        removed = [name for name in self.fields if name not in defaults]
        if removed:
            raise UnopenableValueError(
                self.cls,
                f"the class no longer has the field {removed[0]!r}; add the field again, or open the value's `fields`",
            )
        return {name: self._value(name, default) for name, default in defaults.items()}

    def _value(self, name: str, default: Callable[[], Any] | None) -> Any:
        if name in self.fields:
            return opened(self.fields[name])
        if default is None:
            raise UnopenableValueError(self.cls, f"the class has the new field {name!r}; give the field a default")
        return default()

    def plain(self) -> Any:
        """Return the recorded fields as a mapping. This works even if the class is not allowed in this process."""
        return {**self.fields, **(self.extra or {})}

    def summary(self) -> str:
        """Return the name of the class with the instance's fields, shortened; for a class that is not allowed, a note
        instead of the fields.
        """
        short = self.cls.rpartition(".")[2]
        if find(self.cls) is None:
            return f"<{short}: not allowed in this process>"
        text = ", ".join(f"{name}={_BRIEF.repr(value)}" for name, value in self.plain().items())
        return f"{short}({text if len(text) <= _SHOWN else f'{text[:_SHOWN]}...'})"

    def inside(self) -> Any:
        """Return the values of the recorded fields by field name, in recorded form."""
        return self.plain()

    def parts(self, change: Callable[[Any], Any]) -> Recorded:
        """Return a copy of the recorded instance in which each field and private attribute is replaced by the result of
        `change`.
        """
        fields = {name: change(value) for name, value in self.fields.items()}
        private = {name: change(value) for name, value in self.private.items()}
        return Instance(self.tag, self.cls, fields, self.unset, self.extra, private=private)

    def with_named_parts(self, change: Callable[[str, Any], Any]) -> Recorded:
        """Return a copy of the recorded instance. The name of a value is that of its field or private attribute."""
        fields = {name: change(name, value) for name, value in self.fields.items()}
        private = {name: change(name, value) for name, value in self.private.items()}
        extra = None if self.extra is None else {name: change(name, value) for name, value in self.extra.items()}
        return Instance(self.tag, self.cls, fields, self.unset, extra, private=private)

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError for attributes of the original instance. The message says that this is a recorded form,
        or why its class is not available.
        """
        # Protocols such as copying and pickling look for special methods, and need a plain AttributeError.
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            _required(self.cls)
        except UnopenableValueError as error:
            raise AttributeError(str(error)) from None
        raise AttributeError(f"this is the recorded form of a {self.cls}; its to_python() returns the instance")


def _dataclass_default(entry: dataclasses.Field[Any]) -> Callable[[], Any] | None:
    if entry.default_factory is not MISSING:
        return entry.default_factory
    return None if entry.default is MISSING else lambda: entry.default


def _model_default(field: Any) -> Callable[[], Any] | None:
    return None if field.is_required() else lambda: field.get_default(call_default_factory=True, validated_data={})


class Member(Recorded):
    """Recorded form of an enum member or a combination of flags.

    A member is recorded by its name. A combination of flags has no name and is recorded by its value.

    ``Color.RED`` of the module ``shop``, with the value 1, is recorded as
    ``{"$type": "enum", "value": {"class": "shop.Color", "name": "RED", "value": 1}}``.
    """

    __slots__ = ("cls", "name", "value")
    tag = "enum"

    def __init__(self, cls: str, name: str, value: Any) -> None:
        self.cls = cls
        self.name = name
        self.value = value

    def data(self) -> Any:
        """Return the class name, the name and the value of the enum member. The name is empty for a combination of
        flags.
        """
        return {"class": self.cls, "name": self.name, "value": self.value}

    def to_python(self) -> Any:
        """Return the enum member, or the combination of flags, from its recorded form."""
        cls: Any = _required(self.cls)
        # The name counts, not the value: a member may have another value by now.
        if self.name in getattr(cls, "__members__", ()):
            return cls.__members__[self.name]
        if not self.name and issubclass(cls, Flag):
            try:
                return cls(opened(self.value))
            except (TypeError, ValueError) as error:
                raise UnopenableValueError(self.cls, f"it no longer has such a value: {error}") from error
        raise UnopenableValueError(self.cls, f"the enum no longer has the member {self.name!r}; add the member again")

    def plain(self) -> Any:
        """Return the recorded value of the member."""
        return self.value

    def summary(self) -> str:
        """Return the name of the enum class and of the member, such as ``Color.RED``; a note if the class is not
        allowed.
        """
        short = self.cls.rpartition(".")[2]
        return f"{short}.{self.name or self.value}" if find(self.cls) else f"<{short}: not allowed in this process>"
