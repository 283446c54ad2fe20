"""JSON Schemas from annotations, and arguments back into what the annotations say.

The schemas stay inside the subset that the core checks and every provider accepts: no ``anyOf``, no type lists, no
``$ref``.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union

from . import _turnwheel
from ._errors import ToolError, UsageError

Convert = Callable[[Any], Any]
"""Makes an argument of JSON; only called for values that match the schema."""

_SCALARS: dict[Any, str] = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}


def _same(value: Any) -> Any:
    return value


class Signature:
    """A tool function's parameters: their schema, and how to call it with JSON."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.call_parameter: str | None = None
        self._converts: dict[str, Convert] = {}
        name = getattr(function, "__name__", type(function).__name__)
        target = function if inspect.isroutine(function) else type(function).__call__
        try:
            hints = typing.get_type_hints(target, include_extras=True)
        except NameError as error:
            raise UsageError(f"tool {name!r}: an annotation cannot be resolved: {error}") from error
        properties: dict[str, Any] = {}
        required: list[str] = []
        for parameter in inspect.signature(function).parameters.values():
            place = f"tool {name!r}, parameter {parameter.name!r}"
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise UsageError(f"{place}: a tool takes named parameters only")
            hint = hints.get(parameter.name, parameter.empty)
            if hint is _turnwheel.ToolCall:
                self.call_parameter = parameter.name
                continue
            if hint is parameter.empty:
                raise UsageError(f"{place}: annotate it, or pass parameters=... to describe the arguments yourself")
            schema, convert = describe(hint, place)
            if parameter.default is parameter.empty:
                required.append(parameter.name)
            elif _is_json_scalar(parameter.default):
                schema = {**schema, "default": parameter.default}
            properties[parameter.name] = schema
            if convert is not _same:
                self._converts[parameter.name] = convert
        self.parameters: dict[str, Any] = {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }

    def arguments(self, call: _turnwheel.ToolCall, given: Any) -> dict[str, Any]:
        """The keyword arguments of a call."""
        arguments = dict(given)
        for name, convert in self._converts.items():
            if name in arguments:
                arguments[name] = convert(arguments[name])
        if self.call_parameter is not None:
            arguments[self.call_parameter] = call
        return arguments


def _is_json_scalar(value: Any) -> bool:
    return value is not None and type(value) in (bool, int, float, str) and value == value


def describe(hint: Any, place: str) -> tuple[dict[str, Any], Convert]:
    """The schema of an annotation, and what makes such a value of JSON."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in (None, Any, object):
        return ({"type": "null"} if hint is None else {}), _same
    if hint in _SCALARS:
        return {"type": _SCALARS[hint]}, (float if hint is float else _same)
    if origin is typing.Annotated:
        return _annotated(hint, arguments[0], arguments[1:], place)
    if origin in (typing.Required, typing.NotRequired):
        return describe(arguments[0], place)
    if origin is Literal:
        return _literal(list(arguments), place), _same
    if origin in (Union, types.UnionType):
        return _union([describe(arm, place) for arm in arguments])
    if hint is list or origin in (list, Sequence):
        return _list(arguments, place)
    if hint is dict or origin in (dict, Mapping):
        if arguments and arguments[0] is not str:
            raise UsageError(f"{place}: the keys of a JSON object are strings, so dict[{arguments[0]}, ...] cannot be")
        return {"type": "object"}, _same
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _literal([member.value for member in hint], place), hint
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _dataclass(hint, place)
    if typing.is_typeddict(hint):
        return _typed_dict(hint, place)
    if isinstance(hint, type) and hasattr(hint, "model_fields") and hasattr(hint, "model_validate"):
        return _pydantic(hint, place)
    raise UsageError(
        f"{place}: {hint!r} has no JSON Schema here; use int, float, str, bool, None, list, dict[str, ...], Literal, "
        "an Enum, a union, a dataclass, a TypedDict or a Pydantic model, or pass parameters=..."
    )


def _is_field(extra: Any) -> bool:
    """Whether it is a Pydantic ``Field(...)``; Pydantic need not be installed."""
    return type(extra).__name__ == "FieldInfo" and hasattr(extra, "description")


_LIMITS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern")


def _field_text(field: Any) -> str:
    """What the model is told of a field: its description, and limits, which schemas of every provider cannot say."""
    limits = [
        f"{name} {limit}"
        for item in field.metadata
        for name in _LIMITS
        if (limit := getattr(item, name, None)) is not None
    ]
    told = [field.description] if field.description else []
    return " ".join([*told, f"({', '.join(limits)})"] if limits else told)


def _annotated(hint: Any, inner: Any, extras: tuple[Any, ...], place: str) -> tuple[dict[str, Any], Convert]:
    schema, convert = describe(inner, place)
    fields = [extra for extra in extras if _is_field(extra)]
    texts = [extra for extra in extras if isinstance(extra, str)] + [_field_text(field) for field in fields]
    text = " ".join(text for text in texts if text)
    if any(field.metadata for field in fields):
        import pydantic

        convert = _checking(pydantic.TypeAdapter(hint).validate_python)
    return ({**schema, "description": text} if text else schema), convert


def _checking(validate: Convert) -> Convert:
    """Pydantic's own checks: what they find is the model's answer, as every wrong argument is."""

    def convert(value: Any) -> Any:
        try:
            return validate(value)
        except ValueError as error:
            raise ToolError(f"invalid arguments: {error}", code="INVALID_ARGS") from error

    return convert


def _pydantic(kind: Any, place: str) -> tuple[dict[str, Any], Convert]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, field in kind.model_fields.items():
        shown = field.alias or name
        schema, _ = describe(field.annotation, f"{place}.{name}")
        text = _field_text(field)
        properties[shown] = {**schema, "description": text} if text else schema
        if field.is_required():
            required.append(shown)
        elif _is_json_scalar(field.default):
            properties[shown] = {**properties[shown], "default": field.default}
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return schema, _checking(kind.model_validate)


def _literal(values: list[Any], place: str) -> dict[str, Any]:
    kinds = {_SCALARS.get(type(value)) for value in values}
    if None in kinds:
        raise UsageError(f"{place}: a choice lists str, int, float, bool or None values, not {values!r}")
    kind = kinds.pop() if len(kinds) == 1 else None
    return {"type": kind, "enum": values} if kind else {"enum": values}


def _union(arms: list[tuple[dict[str, Any], Convert]]) -> tuple[dict[str, Any], Convert]:
    branches = [schema for schema, _ in arms]
    kinds = {branch.get("type") for branch in branches}
    # An int matches both "integer" and "number", and one branch must match alone.
    if {"integer", "number"} <= kinds:
        branches = [branch for branch in branches if branch.get("type") != "integer"]
    if len(branches) == 1:
        return branches[0], arms[0][1]

    def convert(value: Any) -> Any:
        for schema, convert in arms:
            if convert is not _same and _fits(schema, value):
                return convert(value)
        return value

    is_plain = all(convert is _same or convert is float for _, convert in arms)
    return {"oneOf": branches}, (_same if is_plain else convert)


def _fits(schema: dict[str, Any], value: Any) -> bool:
    if "enum" in schema:
        return value in schema["enum"]
    if schema.get("type") == "object":
        return isinstance(value, dict) and set(schema.get("required", ())) <= value.keys()
    if schema.get("type") == "array":
        return isinstance(value, list)
    return False


def _list(arguments: tuple[Any, ...], place: str) -> tuple[dict[str, Any], Convert]:
    if not arguments:
        return {"type": "array"}, _same
    items, convert = describe(arguments[0], f"{place}[]")
    schema = {"type": "array", "items": items} if items else {"type": "array"}
    return schema, (_same if convert is _same else lambda value: [convert(item) for item in value])


def _members(fields: dict[str, Any], required: list[str], place: str) -> tuple[dict[str, Any], dict[str, Convert]]:
    described = {name: describe(hint, f"{place}.{name}") for name, hint in fields.items()}
    properties = {name: schema for name, (schema, _) in described.items()}
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return schema, {name: convert for name, (_, convert) in described.items() if convert is not _same}


def _converted(value: Any, converts: dict[str, Convert]) -> dict[str, Any]:
    return {name: converts.get(name, _same)(member) for name, member in value.items()}


def _dataclass(kind: type, place: str) -> tuple[dict[str, Any], Convert]:
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = [field for field in dataclasses.fields(kind) if field.init]
    missing = dataclasses.MISSING
    required = [field.name for field in fields if field.default is missing and field.default_factory is missing]
    schema, converts = _members({field.name: hints[field.name] for field in fields}, required, place)
    return schema, lambda value: kind(**_converted(value, converts))


def _typed_dict(kind: Any, place: str) -> tuple[dict[str, Any], Convert]:
    hints = typing.get_type_hints(kind, include_extras=True)
    # `__required_keys__` misses `Required[...]` in a module with postponed annotations.
    marks = {name: typing.get_origin(hint) for name, hint in hints.items()}
    marked = {typing.Required: True, typing.NotRequired: False}
    required = [name for name in hints if marked.get(marks[name], name in kind.__required_keys__)]
    schema, converts = _members(hints, required, place)
    return schema, (lambda value: _converted(value, converts)) if converts else _same
