"""Arguments and results as JSON: bound by a task's signature, checked against its types, refused if JSON would lie.

Dataclasses and msgspec structs are JSON objects by themselves. So is a class that has `model_dump` and
`model_validate_json`, as pydantic's models have: pydantic itself is never imported.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from types import SimpleNamespace
from typing import Any, NamedTuple, get_args, get_type_hints

import msgspec

from mainspring.core.tasks.specs import without_secrets
from mainspring.errors import InvalidInput, NotSerialisable, PayloadTooLarge

if sys.version_info >= (3, 14):
    # From here on Python evaluates annotations when they are read. One may name what its module defines later, or what
    # only a type checker sees: then the plain way to read them raises NameError.
    from annotationlib import Format, get_annotations

    def _shape_of(function: Callable[..., object]) -> inspect.Signature:
        return inspect.signature(function, annotation_format=Format.STRING)

    def _annotations_of(function: Callable[..., object]) -> dict[str, Any]:
        return get_annotations(function, format=Format.FORWARDREF)

else:

    def _shape_of(function: Callable[..., object]) -> inspect.Signature:
        return inspect.signature(function)

    def _annotations_of(function: Callable[..., object]) -> dict[str, Any]:
        return getattr(function, "__annotations__", {})


def _dump(value: object) -> object:
    """What msgspec encodes in place of a value that it does not know."""
    dump = getattr(value, "model_dump", None)
    if dump is None or isinstance(value, type):
        raise TypeError(f"objects of type {type(value).__name__} have no form in JSON")
    return dump(mode="json")


def _load(kind: Any, value: object) -> object:
    """What msgspec takes for a type that it does not know: a model, or the value itself if it is an instance."""
    validate = getattr(kind, "model_validate_json", None)
    return value if validate is None else validate(_encode(value))


_encode = msgspec.json.Encoder(enc_hook=_dump).encode
_JSON_TYPES = (dict, list, str, int, float, bool, type(None))
_UNFIT = (TypeError, ValueError, RecursionError, msgspec.MsgspecError)
"""What binding, encoding and decoding raise when given what they cannot take."""
_REFUSED_KINDS: dict[object, str] = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only",
    inspect.Parameter.VAR_POSITIONAL: "takes values without names",
}


class _Codec(NamedTuple):
    """What a signature compiles to."""

    bind: Callable[..., object]
    """Takes a call's arguments, gives what is encoded: arguments that were left out are left out of it."""
    check: Callable[[bytes], object]
    """Raises if the JSON does not have the annotated types."""
    read: Callable[[str], dict[str, object]]


class _Bare(str):
    """A postponed annotation, shown without the quotes that its author did not write."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Signature:
    """The parameters and the result of a task's function.

    Annotations are resolved at first use, since they may name what their module defines later. One that cannot be
    resolved, or that JSON cannot be checked against, counts as absent.
    """

    def __init__(self, task: str, function: Callable[..., object]) -> None:
        self.task = task
        self._function = function
        self._shape = _shape_of(function)
        self._named = {name: each for name, each in self._shape.parameters.items() if each.kind is not each.VAR_KEYWORD}
        self._required = [name for name, each in self._named.items() if each.default is each.empty]
        self._rest = next((name for name in self._shape.parameters if name not in self._named), None)
        """The name of `**kwargs`, if there is one: such a task takes arguments of any name."""
        for name, parameter in self._named.items():
            problem = "begins with two underscores" if name.startswith("__") else _REFUSED_KINDS.get(parameter.kind)
            if problem:
                remedy = "arguments are stored by name: use named parameters, or **kwargs"
                raise InvalidInput(f"task {task}", name, problem, remedy)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its parameters."""
        return tuple(self._named)

    @property
    def required(self) -> tuple[str, ...]:
        """The names of arguments without a default."""
        return tuple(self._required)

    @property
    def takes_rest(self) -> bool:
        """Whether the function takes arguments of any name."""
        return self._rest is not None

    def __str__(self) -> str:
        shape = self._shape
        parameters = [each.replace(annotation=_bare(each.annotation)) for each in shape.parameters.values()]
        return f"{self.task}{shape.replace(parameters=parameters, return_annotation=_bare(shape.return_annotation))}"

    def encode(self, args: Sequence[object], kwargs: Mapping[str, object], limit: int) -> str:
        """The arguments of one call as JSON, in the order of the parameters.

        InvalidInput names the argument that does not fit the signature, its annotation, or JSON.
        """
        if not args and kwargs == {} and not self._required:
            return "{}"  # what many tasks are given
        codec = self._codec
        try:
            text = _encode(codec.bind(*args, **kwargs))
            codec.check(text)
        except _UNFIT:
            revealed = _reveal(args, kwargs)
            if revealed is None:
                raise self._explain(args, kwargs) from None
            self.encode(*revealed, limit)  # What would be found in their place fits, or that is said.
            text = _encode(codec.bind(*args, **kwargs))
        if b"null" in text:  # It may stand for not-a-number: msgspec writes that so.
            for name, value in self._arguments(args, kwargs).items():
                _check_value(name, value)
        if len(text) > limit:
            raise _too_large("args", len(text), limit)
        return text.decode()

    def decode(self, text: str) -> dict[str, object]:
        """Stored arguments, typed by the annotations, for a call by name."""
        if text == "{}" and not self._required:
            return {}  # what many tasks are given
        try:
            return self._codec.read(text)
        except _UNFIT as error:
            remedy = "the task has changed since: submit the run anew"
            raise InvalidInput("args", text, f"does not fit {self}: {error}", remedy) from None

    def decode_result(self, text: str) -> Any:
        """A stored result, typed by the return annotation."""
        try:
            return self._result.decode(text)
        except _UNFIT as error:
            problem = f"is not what {self} says that it returns: {error}"
            raise InvalidInput("result", text, problem, "correct the annotation, or the task") from None

    def check_names(self, given: Mapping[str, object]) -> None:
        """Refuse arguments that are unknown, missing, or beyond JSON. Types need `encode`, once all is defined."""
        for name, value in self._arguments((), given).items():
            _check_value(name, value)

    def check_types(self) -> None:
        """Refuse annotations that no argument or result could ever satisfy.

        A parameter with a default may have any type, since callers can leave it out. An annotation that names something
        defined later is checked at the first submission.
        """
        for name, hint in _resolve(self._function):
            self._check_hint(name, hint)

    def _check_hint(self, name: str, hint: Any) -> None:
        problem = _problem_of(hint)
        if problem and (name == "return" or name in self._required):
            remedy = "annotate a dataclass, a pydantic model or a msgspec struct, or pass an id and load it in the task"
            raise InvalidInput(f"task {self.task}", "its result" if name == "return" else name, problem, remedy)

    def _arguments(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
        """What each parameter is given; InvalidInput names the one that is wrong."""
        if not isinstance(kwargs, Mapping):
            raise InvalidInput("args", kwargs, "is not a dict of arguments", "write {name: value, ...}")
        positional = [name for name, each in self._named.items() if each.kind is each.POSITIONAL_OR_KEYWORD]
        if len(args) > len(positional):
            raise InvalidInput("args", tuple(args), f"has too many values for {self}", "leave some out")
        given = dict(zip(positional, args, strict=False))
        for name, value in kwargs.items():
            if name in given:
                raise InvalidInput(name, value, f"is given twice to {self}", "give it by position or by name")
        given |= kwargs
        for error in self._misnamed(given):
            raise error
        return given

    def _misnamed(self, given: Mapping[str, object]) -> Iterator[InvalidInput]:
        """Arguments that are unknown, then those that are missing."""
        for name, value in given.items():
            if name not in self._named and self._rest is None:
                near = get_close_matches(str(name), self._named, n=1)
                remedy = f"did you mean {near[0]}?" if near else "leave it out"
                yield InvalidInput(str(name), value, f"is not an argument of {self}", remedy)
        for name, parameter in self._named.items():
            if parameter.default is parameter.empty and name not in given:
                yield InvalidInput(name, given, f"lacks this argument of {self}", "add it")

    def faults(self, given: Mapping[str, object]) -> list[InvalidInput]:
        """All that is wrong with arguments given by name, not only the first that `encode` refuses."""
        found = list(self._misnamed(given))
        for name in [name for name in given if name in self._named or self._rest is not None]:
            try:
                self._check_type(name, given[name], _check_value(name, given[name]))
            except InvalidInput as error:
                found.append(error)
        return found

    def _explain(self, args: Sequence[object], kwargs: Mapping[str, object]) -> InvalidInput:
        """Which argument does not fit, and why: slow, and only for those that do not."""
        try:
            for name, value in self._arguments(args, kwargs).items():
                self._check_type(name, value, _check_value(name, value))
        except InvalidInput as error:
            return error
        return InvalidInput("args", kwargs, f"does not fit {self}", "call it as it is declared")

    def _check_type(self, name: str, value: object, text: bytes) -> None:
        try:
            _decoder(self._type_of(name)).decode(text)
        except _UNFIT as error:
            problem = f"is not what {self} takes: {error}"
            raise InvalidInput(name, value, problem, "pass the annotated type") from None

    @cached_property
    def _hints(self) -> dict[str, Any]:
        hints = dict(_resolve(self._function))
        for name, hint in hints.items():
            self._check_hint(name, hint)
        return {name: _usable(hint) for name, hint in hints.items()}

    def _type_of(self, name: str) -> Any:
        if name not in self._named:
            return self._hints.get(self._rest or name, Any)
        hint = self._hints.get(name, Any)
        return hint | None if self._named[name].default is None else hint

    @cached_property
    def _result(self) -> msgspec.json.Decoder[Any]:
        return _decoder(self._hints.get("return", Any))

    @cached_property
    def _codec(self) -> _Codec:
        struct = self._struct()
        decode = _decoder(struct).decode
        if self._rest is None:
            return _Codec(struct, decode, lambda text: _given(decode(text)))

        def bind(*args: object, **kwargs: object) -> dict[str, object]:
            named = {name: kwargs.pop(name) for name in self._named if name in kwargs}
            return _given(struct(*args, **named)) | kwargs

        decode_rest = _decoder(self._hints.get(self._rest, Any)).decode

        def read(text: str | bytes) -> dict[str, object]:
            rest = {name: raw for name, raw in _raw_fields.decode(text).items() if name not in self._named}
            return _given(decode(text)) | {name: decode_rest(raw) for name, raw in rest.items()}

        return _Codec(bind, read, read)

    def _struct(self) -> type[msgspec.Struct]:
        """A struct that takes the arguments of a call just as the function does."""
        plain: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        keyword: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        for name, parameter in self._named.items():
            hint, required = self._type_of(name), parameter.default is parameter.empty
            field = (name, hint) if required else (name, hint | msgspec.UnsetType, msgspec.UNSET)
            (keyword if parameter.kind is parameter.KEYWORD_ONLY else plain).append(field)
        strict = self._rest is None
        positional = msgspec.defstruct("Arguments", plain, forbid_unknown_fields=strict)
        return msgspec.defstruct("Arguments", keyword, bases=(positional,), kw_only=True, forbid_unknown_fields=strict)


_raw_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def encode_result(value: object, limit: int) -> str:
    """What a task returned, as JSON."""
    if value is None:
        return "null"  # what most tasks return
    text = _check_value("result", value)
    if len(text) > limit:
        raise _too_large("result", len(text), limit)
    return text.decode()


def _bare(annotation: object) -> object:
    return _Bare(annotation) if isinstance(annotation, str) else annotation


def _given(struct: msgspec.Struct) -> dict[str, object]:
    names = struct.__struct_fields__
    return {name: value for name in names if (value := getattr(struct, name)) is not msgspec.UNSET}


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, dec_hook=_load)


def _check_value(name: str, value: object) -> bytes:
    """The value as JSON; NotSerialisable names it if JSON cannot carry it or would change it silently."""
    remedy = "pass texts, numbers, lists, dicts, dates, dataclasses, models or structs; of anything else, its id"
    try:
        text = _encode(value)
    except RecursionError:
        # Not the value itself: showing it would recurse as well.
        raise NotSerialisable(name, type(value).__name__, "contains itself, or is nested too deep", remedy) from None
    except _UNFIT as error:
        raise NotSerialisable(name, value, f"cannot be written as JSON: {error}", remedy) from None
    if b"null" in text and not _is_finite(msgspec.to_builtins(value, enc_hook=_dump)):
        problem = "has a number that JSON does not know (nan, inf)"
        raise NotSerialisable(name, value, problem, "pass None or a text instead")
    return text


def _is_finite(value: object) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case dict():
            return all(map(_is_finite, value.values()))
        case list() | tuple():
            return all(map(_is_finite, value))
    return True


def _reveal(args: Sequence[object], kwargs: object) -> tuple[list[object], dict[str, object]] | None:
    """The arguments of a call with a text in place of each secret; None if they refer to none."""
    if not isinstance(kwargs, Mapping):
        return None
    try:
        positional, named = [without_secrets(each) for each in args], without_secrets(dict(kwargs))
    except RecursionError:
        return None
    return None if positional == list(args) and named == dict(kwargs) else (positional, named)


def _too_large(field: str, size: int, limit: int) -> PayloadTooLarge:
    remedy = "keep the data elsewhere and pass where it is, or raise the setting payload_limit"
    return PayloadTooLarge(field, size, f"bytes are more than the {limit} of payload_limit", remedy)


def _resolve(function: Callable[..., object]) -> Iterator[tuple[str, Any]]:
    """The annotations that can be resolved: one that only a type checker can see does not spoil the others."""
    target = inspect.unwrap(function)
    for name, hint in _annotations_of(target).items():
        alone = SimpleNamespace(__annotations__={name: hint})
        try:
            yield name, get_type_hints(alone, getattr(target, "__globals__", {}), include_extras=True)[name]
        except Exception:
            continue  # Whatever evaluating a stranger's annotation raises: it cannot be resolved.


def _problem_of(hint: Any) -> str:
    """Why no JSON value can satisfy an annotation; empty if one can."""
    try:
        kind = msgspec.inspect.type_info(hint)
    except Exception:  # A union that is ambiguous in JSON, or a foreign type.
        return "is an ambiguous union of models in JSON" if any(map(_is_model, _parts(hint))) else ""
    return next((f"is a {each.__qualname__}, which JSON cannot carry" for each in _strangers(kind, set())), "")


def _strangers(kind: object, seen: set[int]) -> Iterator[type]:
    """The classes within a type that nothing read from JSON is an instance of."""
    if id(kind) in seen:
        return
    seen.add(id(kind))
    if isinstance(kind, msgspec.inspect.CustomType):
        if not _is_model(kind.cls) and not _is_abstract(kind.cls):
            yield kind.cls
        return
    for name in getattr(kind, "__struct_fields__", ()):
        value = getattr(kind, name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, msgspec.inspect.Type | msgspec.inspect.Field):
                yield from _strangers(part, seen)


def _is_model(kind: object) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_validate_json") and hasattr(kind, "model_dump")


def _is_abstract(kind: type) -> bool:
    """Whether values that JSON knows may be instances of a class: `object`, `Iterable`, protocols."""
    try:
        return getattr(kind, "_is_protocol", False) or any(issubclass(each, kind) for each in _JSON_TYPES)
    except TypeError:
        return True


def _parts(hint: Any) -> Iterator[Any]:
    yield hint
    for each in get_args(hint):
        yield from _parts(each)


def _usable(hint: Any) -> Any:
    """The type, if JSON can be checked against it."""
    try:
        _decoder(hint).decode(b"0")
    except msgspec.ValidationError:
        return hint
    except Exception:
        return Any  # E.g. a protocol, or a union that is ambiguous in JSON.
    return hint
