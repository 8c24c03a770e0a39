"""Tools of agents in the form that models and providers accept: functions, their results, and tool names.

`library_tool` converts a function to a tool of pydantic-ai, `plain_result` its result to plain data for the log,
`shortened` the result for the model, and `ToolNames` replaces tool names that a provider does not accept.

`output_type` is the type that pydantic-ai makes the model produce, for agents with structured output.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import re
import typing
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from types import CodeType
from typing import Annotated, Any, TypeVar
from weakref import WeakKeyDictionary

from pydantic import AfterValidator, BaseModel, GetCoreSchemaHandler, TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic_ai import StructuredDict, Tool
from pydantic_ai.durable_exec import ModelRequestParams
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import BinaryContent, FileUrl, ModelMessage, ModelResponse, ToolReturn, UploadedFile
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings

from divebook.definitions.answer_types import hints_of, with_union_rule
from divebook.definitions.functions import IDEMPOTENCY_KEY, signature_of, takes_of
from divebook.definitions.json_schemas import complaint, require_schema
from divebook.definitions.tools import ToolFunction
from divebook.engine.operations import Write, arguments_part
from divebook.errors import DefinitionError, Problem, SetupError
from divebook.events.codec import json_form, storable
from divebook.text.format import as_unicode
from divebook.text.redaction import head_and_tail

Call = Callable[[ToolFunction, Mapping[str, Any]], Awaitable[Any]]


def library_tool(tool: ToolFunction, call: Call) -> Tool[Any]:
    """Convert a divebook tool function to a tool of pydantic-ai. When the model calls the tool, `call` gets the tool
    function and the arguments by name.

    Parameters that the engine supplies (``idempotency_key``) are hidden from the model.

    Raises
    ------
    DefinitionError
        A parameter has a type that has no JSON schema.
    """

    async def call_tool(**arguments: Any) -> Any:
        return await call(tool, arguments)

    if tool.schema is not None:
        schema_tool = Tool.from_schema(call_tool, tool.name, tool.description, dict(tool.schema), takes_ctx=False)
        if tool.result_schema is not None:
            schema_tool.function_schema.return_schema = dict(tool.result_schema)
            schema_tool.function_schema.validator = _filling(tool.schema)
        return schema_tool
    _copy_signature(call_tool, tool.function)
    code = getattr(inspect.unwrap(tool.function), "__code__", None)
    shape = _shape(call_tool)
    # The code object alone is not enough: default values and types may differ between two functions of one code.
    cached_shape, cached_schema = _SCHEMAS.get(code, (None, None)) if code is not None else (None, None)
    schema = replace(cached_schema, function=call_tool) if cached_schema is not None and cached_shape == shape else None
    try:
        function_tool = Tool(
            call_tool, takes_ctx=False, name=tool.name, description=_explicit_description(tool), function_schema=schema
        )
    except (UserError, PydanticUserError, NameError) as error:
        message = f"the parameters of {tool.kind_and_name} cannot be described to a model: {error}"
        hint = "annotate the parameters with types that can be converted to JSON and are defined in the same module"
        raise DefinitionError([Problem(message, hint=hint)]) from error
    if schema is None and code is not None and shape is not None:
        # The cached schema must not keep the tool's function alive, so it refers to another function.
        _SCHEMAS[code] = (shape, replace(function_tool.function_schema, function=_shape))
    return function_tool


_SCHEMAS: WeakKeyDictionary[CodeType, tuple[Hashable, Any]] = WeakKeyDictionary()
"""Cache of pydantic-ai's function schemas with their inputs. Creating one takes longer than recording a request.

The key is the function's code object, which is shared by functions that are created anew for each turn. An entry lives
as long as the code object.
"""


def _filling(schema: Mapping[str, Any]) -> Any:
    """Return a validator of tool arguments that adds the default value of each missing argument, as declared in a JSON
    schema.
    """
    properties = schema.get("properties", {}).items()
    defaults = {
        name: property_schema["default"] for name, property_schema in properties if "default" in property_schema
    }
    filled = AfterValidator(lambda arguments: {**defaults, **arguments})
    return TypeAdapter(Annotated[dict[str, Any], filled]).validator


def _shape(wrapper: Any) -> Hashable:
    """Return a key for caching the JSON schema of a function: functions with the same schema have equal keys. Return
    None if a part of the function cannot be hashed, such as a default value.

    A string annotation may refer to another class after a notebook cell has run again, so the resolved type is part of
    it.
    """
    signature: inspect.Signature = wrapper.__signature__
    kinds = tuple(type(parameter.default) for parameter in signature.parameters.values())
    try:
        hints = tuple(typing.get_type_hints(wrapper, include_extras=True).items())
        shape = (wrapper.__qualname__, wrapper.__doc__, signature, kinds, hints)
        hash(shape)
    except (TypeError, NameError):  # an unhashable default, or an unresolvable annotation
        return None
    return shape


def _explicit_description(tool: ToolFunction) -> str | None:
    """Return the description of a tool if it differs from the docstring of its function. Otherwise return None, so that
    pydantic-ai uses the docstring.
    """
    return tool.description if tool.description != (inspect.getdoc(tool.function) or "") else None


def _copy_signature(wrapper: Any, function: Callable[..., Any]) -> None:
    """Copy the signature and metadata of a function to a wrapper of it. The parameters that the engine supplies,
    ``idempotency_key`` and the one with the annotation ``ToolContext``, are left out.
    """
    signature = signature_of(function)
    takes = takes_of(function)
    supplied = {IDEMPOTENCY_KEY, takes.context} if takes.is_context_annotated else {IDEMPOTENCY_KEY}
    parameters = [parameter for name, parameter in signature.parameters.items() if name not in supplied]
    wrapper.__signature__ = signature.replace(parameters=parameters)
    functools.update_wrapper(wrapper, inspect.unwrap(function))
    # A class that is imported for type checkers only cannot be resolved, as pydantic-ai does with all annotations.
    resolved = hints_of(function)
    wrapper.__annotations__ = {
        name: hint if name == "return" else _with_union_rule(hint, resolved.get(name))
        for name, hint in wrapper.__annotations__.items()
        if name not in supplied
    }


def _with_union_rule(hint: Any, resolved: Any) -> Any:
    """Return the annotation of a parameter, with the rule of inputs for its unions. An annotation without a union stays
    as it is. `resolved` is the type that the annotation names.
    """
    changed = with_union_rule(resolved)
    return hint if changed is resolved or changed == resolved else changed


# --- results as data ------------------------------------------------------------------------------------------------
# Any result becomes data that the log can hold and a model can read.


_ANY = TypeAdapter[Any](Any, config={"ser_json_inf_nan": "constants"})


_DEEPEST = 50


def plain_result(result: Any) -> Any:
    r"""Convert the result of a tool to plain data that can be recorded. Files and `ToolReturn` objects keep their
    class.

    Values that JSON lacks are converted by `divebook.events.codec.json_form`: NaN, NaT and infinities become null,
    dates ISO 8601, numbers of numpy and pandas numbers, a frame a list of records. Bytes become text if they are UTF-8,
    else base64. An inconvertible part becomes a string that begins with its type: the call has been made, and must not
    be repeated because of its result.

    Examples
    --------
    >>> plain_result({"when": range(3), "rate": float("nan"), "raw": b"\xff", "kind": object})
    {'when': [0, 1, 2], 'rate': None, 'raw': '/w==', 'kind': "type: <class 'object'>"}
    """
    # `isinstance` reads `__class__` of a value that is not an instance, which raises for a dead `weakref.proxy`.
    if issubclass(type(result), ToolReturn):
        result.return_value = plain_result(result.return_value)
        result.metadata = plain_data(result.metadata)
        return result
    return result if _is_content(result) else plain_data(result)


def is_readable(result: Any) -> bool:
    """Return True if the class of a tool's result can be inspected. Return False if inspection raises an error, as for
    a dead `weakref.proxy`.
    """
    try:
        isinstance(result, dict)
    except BaseException:  # noqa: BLE001 - see above
        return False
    return True


def _is_content(result: Any) -> bool:
    """Return True if pydantic-ai sends the result of a tool to the model as content: a file, or a list that contains
    files. Return False for plain data.
    """
    try:
        parts = result if isinstance(result, list) else [result]
        return any(isinstance(part, BinaryContent | FileUrl | UploadedFile | ToolReturn) for part in parts)
    except BaseException:  # noqa: BLE001 - a user's class may raise anything when it is inspected
        return False


def plain_data(value: Any, above: tuple[int, ...] = ()) -> Any:
    """Convert a value to plain JSON data. If this fails for the value as a whole, its items or fields are converted one
    by one.
    """
    # The usual result. The log holds an ASCII text of this length as it is.
    if type(value) is str and len(value) < MOST_BYTES and value.isascii():
        return value
    try:
        data = _ANY.dump_python(value, mode="json", fallback=_converted)
        json.dumps(data, allow_nan=False)  # raises for a number that is not finite
        # Nested as in the messages of a conversation, because the depth of data in the log is limited.
        storable([{"parts": [{"content": data}]}], "result")
    except BaseException:  # noqa: BLE001 - a user's class may raise anything while it is converted
        return _in_parts(value, above)
    return data


def _in_parts(value: Any, above: tuple[int, ...]) -> Any:
    # The value contains itself, or is too deep for the log.
    if id(value) in above or len(above) == _DEEPEST:
        return _described(value)
    try:
        return _each_part(value, above)
    except BaseException:  # noqa: BLE001 - see above
        return _described(value)


def _each_part(value: Any, above: tuple[int, ...]) -> Any:
    inside = (*above, id(value))
    if isinstance(value, BaseModel):
        value = dict(value)
    elif is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {_plain_key(key): plain_data(part, inside) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_data(part, inside) for part in value]
    return _converted(value)


def _converted(value: Any) -> Any:
    """Return the JSON form of a value. If the value has none, return a string with its type and its string form."""
    try:
        data = json_form(value)
        storable(data, "result")
    except BaseException:  # noqa: BLE001 - see above
        return _described(value)
    return data


def _plain_key(key: Any) -> str:
    return as_unicode(key) if isinstance(key, str) else _described(key)


def _described(value: object) -> str:
    if issubclass(type(value), str):
        return as_unicode(str.__str__(value))  # its own `__str__` may raise
    kind = type(value).__name__
    try:
        return as_unicode(f"{kind}: {value}")
    except BaseException as error:  # noqa: BLE001 - see above
        return f"{kind}, whose message cannot be read: {type(error).__name__}"


# --- shortened results ----------------------------------------------------------------------------------------------
# The model gets the head and tail of a long result. The log has the whole.


MOST_BYTES = 1_000_000
"""Maximum size of an image or file for a model."""


_ANY_VALUE = TypeAdapter[Any](Any)


def shortened(result: Any, most: int) -> Any:
    r"""Return the result of a tool as the model gets it. A text of more than `most` characters is cut to its beginning
    and end; a file that is too large is replaced by a description.

    Examples
    --------
    >>> shortened("a" * 50 + "z" * 50, 20)
    'aaaaaaaaaa\n... 80 characters left out; the whole is in the log ...\nzzzzzzzzzz'
    """
    if isinstance(result, ToolReturn):
        result.return_value = shortened(result.return_value, most)
        return result
    if isinstance(result, BinaryContent):
        size = len(result.data)
        return result if size <= MOST_BYTES else f"a file of {size:,} bytes ({result.media_type}), which is in the log"
    # Shorten texts and files separately, because they cannot be measured together.
    if isinstance(result, list) and any(isinstance(part, BinaryContent) for part in result):
        return [shortened(part, most) for part in result]
    text = result if isinstance(result, str) else _written(result)
    return result if len(text) <= most else head_and_tail(text, most)


def _written(value: Any) -> str:
    return _ANY_VALUE.dump_json(value, fallback=str).decode() if isinstance(value, dict | list | tuple) else ""


# --- tool names ------------------------------------------------------------------------------------------------------
#
# Translation of tool names that model providers do not accept.
#
# Providers accept letters, digits, ``_`` and ``-``, at most 64 characters, and no leading digit. An MCP server may name
# a tool ``files.read`` or ``2fa_code``. Such a name is replaced in the request to the model and restored in the
# response. The log, approval rules, questions and frames contain the real name. In the replacement, each character that
# is not accepted becomes ``_``. If the result collides with another name, a digest of the real name is appended. The
# replacement is therefore deterministic, independent of the order of tools, and unique within a request.


M = TypeVar("M", bound=ModelMessage)


LONGEST = 64


_SAFE = re.compile(rf"[A-Za-z_][A-Za-z0-9_-]{{0,{LONGEST - 1}}}")


_REFUSED = re.compile(r"[^A-Za-z0-9_-]")


_DIGEST = 8
"""Minimum number of digest characters."""


# The kind of a stream part that has arguments: "arguments" of "arguments:search:call_7".
_ARGUMENTS = arguments_part("", "").partition(":")[0]


class ToolNames:
    """Translation of the tool names in one model request, because providers do not accept every name. Each name that is
    not accepted gets a replacement.
    """

    def __init__(self, safe: Mapping[str, str]) -> None:
        self._safe = safe
        self._real = {sent: name for name, sent in safe.items()}

    @classmethod
    def of(cls, parameters: ModelRequestParameters, called_tools: Iterable[str]) -> ToolNames | None:
        """Return the translation for all tools and tool calls in a model request. Return None if the provider accepts
        all their names.

        `called_tools` are the names of the tools that the messages of the request call. Earlier messages may contain
        calls of tools that the request no longer offers.
        """
        names = {tool.name for tool in (*parameters.function_tools, *parameters.output_tools)}
        safe = _safe_names(frozenset(names.union(called_tools)))
        return cls(safe) if safe else None

    def sent(self, params: ModelRequestParams) -> ModelRequestParams:
        """Return a copy of a model request with each real tool name replaced by the name that the provider accepts."""
        return ModelRequestParams(
            params.model_id,
            messages=[_renamed(message, self._safe) for message in params.messages],
            model_settings=self._settings(params.model_settings),
            model_request_parameters=self._parameters(params.model_request_parameters),
            run_context=params.run_context,
        )

    def _settings(self, settings: ModelSettings | None) -> ModelSettings | None:
        # A list names the tools of which the model must call one; a string is a mode such as "required".
        choice = (settings or {}).get("tool_choice")
        if not isinstance(choice, list):
            return settings
        chosen: Any = [self._safe.get(name, name) for name in choice]
        return ModelSettings(**{**(settings or {}), "tool_choice": chosen})

    def _parameters(self, parameters: ModelRequestParameters) -> ModelRequestParameters:
        changed: dict[str, Any] = {
            field: frozenset(self._safe.get(name, name) for name in names)
            for field in ("revealed_tool_names", "introduced_tool_names")
            if (names := getattr(parameters, field))
        }
        changed |= {
            field: [replace(tool, name=self._safe.get(tool.name, tool.name)) for tool in getattr(parameters, field)]
            for field in ("function_tools", "output_tools")
        }
        return replace(parameters, **changed)

    def answered(self, response: ModelResponse) -> ModelResponse:
        """Return a copy of a model response with the replaced tool names changed back to the real ones."""
        return _renamed(response, self._real)

    def written(self, write: Write) -> Write:
        """Wrap a function that receives the text of a streamed response. The wrapper changes replaced tool names back
        to the real ones before it calls the function.
        """

        def renamed(text: str, part: str) -> None:
            # "arguments:files_read:call_7" -> "arguments", "files_read", "call_7"
            kind, _, name_and_call = part.partition(":")
            name, _, call = name_and_call.partition(":")
            write(text, arguments_part(self._real[name], call) if kind == _ARGUMENTS and name in self._real else part)

        return lambda text, part="": renamed(text, part) if part else write(text)


def safe_names(names: Iterable[str]) -> dict[str, str]:
    """Return a dict from each tool name that providers do not accept to its unique replacement. Accepted names are not
    in the dict.

    Examples
    --------
    >>> safe_names(["files.read", "plain", "2fa_code"])
    {'2fa_code': '_2fa_code', 'files.read': 'files_read'}
    """
    return dict(_safe_names(frozenset(names)))


@functools.lru_cache(maxsize=256)
def _safe_names(all_names: frozenset[str]) -> Mapping[str, str]:
    # Cached, because the requests of a turn have the same tools.
    accepted = {name for name in all_names if _SAFE.fullmatch(name)}
    # {"a.b": "a_b", "a/b": "a_b"}: names with the same candidate all get a digest, so that the order does not matter.
    candidates = {name: _cleaned(name) for name in sorted(all_names - accepted)}
    counts = Counter(candidates.values())
    replacements: dict[str, str] = {}
    for name, cleaned in candidates.items():
        # A long name is cut, and needs a digest to stay unique.
        is_usable = cleaned not in accepted and counts[cleaned] == 1 and len(name) < LONGEST
        replacements[name] = (
            cleaned if is_usable else _with_digest(name, cleaned, accepted | counts.keys() | set(replacements.values()))
        )
    return replacements


def _cleaned(name: str) -> str:
    cleaned = _REFUSED.sub("_", name)
    return cleaned if _SAFE.match(cleaned) else f"_{cleaned}"


def _with_digest(name: str, cleaned: str, used_names: set[str]) -> str:
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    # Another tool may have the shorter candidate as its real name.
    for length in range(_DIGEST, LONGEST - 1):
        candidate = f"{cleaned[: LONGEST - 1 - length]}_{digest[:length]}"
        if candidate not in used_names:
            return candidate
    raise AssertionError(name)  # only if all 55 digest prefixes are names of tools


def tool_name_of(part: Any) -> str | None:
    """Return the tool name in a message part that is a tool call or a tool result. Return None for other parts."""
    name = getattr(part, "tool_name", None)
    return name if isinstance(name, str) else None


def _renamed(message: M, names: Mapping[str, str]) -> M:
    """Return a copy of a message in which the tool names of calls and results are replaced according to `names`. Other
    names stay.
    """
    parts: list[Any] = [*message.parts]
    for number, part in enumerate(parts):
        if (name := names.get(tool_name_of(part) or "")) is not None:
            parts[number] = replace(part, tool_name=name)
    changed: Any = {"parts": parts}
    return replace(message, **changed)


# --- structured output ------------------------------------------------------------------------------------------------

# Structured output of agents: data of a Python type, or data that match a JSON schema.
#
# pydantic-ai makes the model produce and correct the data.


ITEM = "response"
"""Key that wraps an answer that is not a JSON object, because providers require an object."""


def output_type(declared: Any) -> Any:
    """Convert the declared output of an agent to an output type of pydantic-ai. A Python type stays unchanged, a JSON
    schema becomes a class that validates data, and None becomes `str`.

    Raises
    ------
    SetupError
        The schema refers to itself.
    DefinitionError
        The declared output is not a usable JSON schema. No request is made.
    """
    if not isinstance(declared, Mapping):
        return str if declared is None else declared
    require_schema(declared, "Output")
    try:
        # Providers accept only objects as arguments of an output tool, so other values are wrapped.
        if declared.get("type") == "object":
            return _validating_type(dict(declared), declared, None)
        return _validating_type(_as_object(declared), declared, ITEM)
    except UserError as error:
        raise SetupError(f"this Output cannot be requested from a model: {error}") from error


def _as_object(schema: Mapping[str, Any]) -> dict[str, Any]:
    # References in a schema start at its root (`#/$defs/...`), so the definitions stay there.
    value_schema = {name: value for name, value in schema.items() if name != "$defs"}
    wrapper = {"type": "object", "properties": {ITEM: value_schema}, "required": [ITEM], "additionalProperties": False}
    return {**wrapper, "$defs": schema["$defs"]} if "$defs" in schema else wrapper


def _validating_type(object_schema: dict[str, Any], schema: Mapping[str, Any], item: str | None) -> Any:
    # `StructuredDict` shows the schema to the model, but does not validate the answer.
    def validate(value: dict[str, Any]) -> Any:
        answer = value if item is None else value.get(item)
        problem = complaint(schema, answer)
        if problem is not None:
            raise ValueError(problem)
        return answer

    base_type = StructuredDict(object_schema, name=None if "title" in object_schema else "output")
    return type("Output", (base_type,), {"__get_pydantic_core_schema__": classmethod(_core_schema_with(validate))})


def _core_schema_with(validate: Callable[[dict[str, Any]], Any]) -> Callable[..., Any]:
    def core_schema(_cls: type, _source: Any, handler: GetCoreSchemaHandler) -> Any:
        return handler.generate_schema(Annotated[dict[str, Any], AfterValidator(validate)])

    return core_schema


def text_of_output(value: Any) -> str:
    """Return the output of an agent as text for the output of a step: strings unchanged, data as compact JSON."""
    return value if isinstance(value, str) else TypeAdapter(Any).dump_json(value, fallback=str).decode()
