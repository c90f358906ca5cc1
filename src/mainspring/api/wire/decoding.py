"""Bodies and queries: read with bounds, decoded by ourselves, and refused with every fault named at once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec

from mainspring.api.problems import MOST_FAULTS, Problem, Wrong, nothing_wrong

Receive = Callable[[], Awaitable[Any]]
Given = dict[str, Any]
"""The fields that a request gave, by name."""
T = TypeVar("T", bound=msgspec.Struct)

_REFUSAL = re.compile(r"Expected `([^`]+)`(?: (of length )?([<>]=) ([^ ,]+))?(?:, got `([^`]+)`)?")
"""What msgspec says of a value of another type, length or size."""
_TYPES = {
    "array": "an array",
    "bool": "a boolean",
    "float": "a number",
    "int": "a whole number",
    "null": "null",
    "object": "an object",
    "str": "a text",
}

MOST_QUERY_FIELDS = 50
SMALL = 4_096


async def read_body(receive: Receive, declared: str | None, limit: int, timeout_s: float) -> bytes:
    """The whole body; 413 once it is larger than allowed, 408 if it takes longer than that to arrive."""
    if declared is not None and declared.isascii() and declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    try:
        async with asyncio.timeout(timeout_s):
            return await _gather(receive, limit)
    except TimeoutError:
        remedy = "send the body without pauses"
        close = {"Connection": "close"}
        raise Problem(
            "slow-body", f"the body was not there after {timeout_s:g} s", remedy=remedy, headers=close
        ) from None


async def _gather(receive: Receive, limit: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Problem("bad-request", "the connection was closed before the body was complete")
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks) if len(chunks) > 1 else chunk


def _too_large(limit: int) -> Problem:
    remedy = "send less at once, or raise the setting body_limit"
    close = {"Connection": "close"}
    return Problem("too-large", f"the body has more than {limit} bytes", remedy=remedy, headers=close)


MOST_DEPTH = 500
"""Python 3.11 reads about a thousand levels, 3.13 many more: a worker of either must be able to read what is stored."""
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_TEXTS_AND_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


@cache
def _decoder(shape: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(shape)


def decode(body: bytes, shape: type[msgspec.Struct]) -> tuple[Given, Wrong]:
    """The fields that a body gives, and what is wrong with the others: types here, meaning where they are used."""
    check_depth(body)
    wrong = nothing_wrong()
    try:
        struct = _decoder(shape).decode(body)
        if len(body) <= SMALL:
            # Most of many fields are not given: collecting the given ones is faster than testing each.
            names = _attributes(shape)
            return {name: getattr(struct, names[name]) for name in msgspec.json.decode(body)}, wrong
        return given_of(struct), wrong
    except (msgspec.ValidationError, RecursionError):
        pass  # Once more, slowly, to name all that is wrong.
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _malformed(error) from None
    raw = decode_any(body)
    if not isinstance(raw, dict):
        wrong.add("body", f"is not an object but {_kind(raw)}", "send a JSON object")
        wrong.settle()
    return _walk(raw, shape, "", wrong), wrong


@cache
def _attributes(shape: type[msgspec.Struct]) -> dict[str, str]:
    return dict(zip(shape.__struct_encode_fields__, shape.__struct_fields__, strict=True))


def decode_any(body: bytes) -> Any:
    """The JSON value of a body."""
    try:
        return msgspec.json.decode(body)
    except RecursionError:
        raise Problem("malformed-body", "the body is nested too deep", remedy="send flatter data") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _malformed(error) from None


def check_depth(body: bytes) -> None:
    """Refuse JSON that is nested deeper than every version of Python can read and write."""
    if len(body) <= MOST_DEPTH:
        return
    left = body.translate(None, _NO_BRACKETS)
    for _ in range(MOST_DEPTH):
        # Each pass takes the innermost level away; of an ordinary body nothing is left after a few.
        shorter = left.replace(b"[]", b"").replace(b"{}", b"")
        if not shorter:
            return
        if len(shorter) == len(left):
            break
        left = shorter
    # Too deep, not JSON, or with brackets in its texts: look more closely.
    depth = 0
    for found in _TEXTS_AND_BRACKETS.finditer(body):
        depth += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(found[0], 0)
        if depth > MOST_DEPTH:
            raise Problem("malformed-body", "the body is nested too deep", remedy="send flatter data")


def _malformed(error: Exception) -> Problem:
    detail = "it is not valid UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
    return Problem("malformed-body", f"the body cannot be read: {detail}", remedy="send JSON in UTF-8")


def given_of(struct: msgspec.Struct) -> Given:
    """The fields that are set."""
    names = zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True)
    values = ((written, getattr(struct, name)) for written, name in names)
    return {written: value for written, value in values if value is not msgspec.UNSET}


@cache
def _fields(shape: type[msgspec.Struct]) -> dict[str, Any]:
    """The fields of a type by name. Cached, since finding them resolves annotations, which is too slow for each item of
    a large body."""
    return {field.encode_name: field for field in msgspec.structs.fields(shape)}


def convert(raw: Mapping[str, Any], shape: type[msgspec.Struct]) -> tuple[Given, Wrong]:
    """As `decode`, for a body that is decoded already."""
    wrong = nothing_wrong()
    return _walk(dict(raw), shape, "", wrong), wrong


def _walk(raw: Given, shape: type[msgspec.Struct], path: str, wrong: Wrong) -> Given:
    given: Given = {}
    known = _fields(shape)
    for name in raw:
        if name not in known and len(wrong.faults) < MOST_FAULTS:
            wrong.add(f"{path}{name[:200]}", "is not a field of this request", _nearest(name, known))
    for name, field in known.items():
        if name not in raw:
            if field.required:
                wrong.add(f"{path}{name}", "is missing", _hint(field.type, "add it"))
            continue
        value = _convert(raw[name], field.type, f"{path}{name}", wrong)
        if value is not msgspec.UNSET:
            given[name] = value
    return given


def _convert(value: Any, kind: Any, path: str, wrong: Wrong) -> Any:
    """The typed value; UNSET, and the fault noted, if it is of another type."""
    if len(wrong.faults) >= MOST_FAULTS:
        return msgspec.UNSET
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        refusal = str(error)
    if isinstance(value, float) and value.is_integer():  # To JSON, 2.0 is a whole number.
        with suppress(msgspec.ValidationError):
            return msgspec.convert(int(value), kind)
    before = len(wrong.faults)
    inner = _struct_in(kind)
    found: Any = msgspec.UNSET
    if inner is not None and isinstance(value, dict):
        found = _walk(value, inner, f"{path}.", wrong)
    elif inner is not None and isinstance(value, list) and _is_list(kind):
        found = [_convert(each, inner, f"{path}[{index}]", wrong) for index, each in enumerate(value)]
    if len(wrong.faults) == before and found is not msgspec.UNSET:
        with suppress(msgspec.ValidationError):
            return msgspec.convert(msgspec.to_builtins(found), kind)
    if len(wrong.faults) == before:
        fault, _, place = refusal.partition(" - at `$")
        wrong.add(f"{path}{place.removesuffix('`')}", *_explain(fault, kind))
    return msgspec.UNSET


def _members(kind: Any) -> list[Any]:
    if get_origin(kind) is Annotated:
        return _members(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return [member for each in get_args(kind) for member in _members(each)]
    return [kind]


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:
    for member in _members(kind):
        target = get_args(member)[0] if get_origin(member) is list else member
        if isinstance(target, type) and issubclass(target, msgspec.Struct):
            return target
    return None


def _is_list(kind: Any) -> bool:
    return any(get_origin(member) is list for member in _members(kind))


def _explain(refusal: str, kind: Any) -> tuple[str, str]:
    """The fault and its remedy. The remedy of a word that is not known is the words that are."""
    words = _words(kind) if refusal.startswith("Invalid enum value") else []
    return _in_words(refusal), f"choose one of {', '.join(words)}" if words else _hint(kind)


def _in_words(refusal: str) -> str:
    """A fault that msgspec found, without the names of types in Python."""
    found = _REFUSAL.fullmatch(refusal)
    if "matching regex" in refusal:
        return "is not of the form that is expected"
    if found is None:
        return refusal[:1].lower() + refusal[1:]
    kinds, length, sign, bound, got = found.groups()
    if got:
        wanted = [each for each in kinds.split(" | ") if each != "null"] or ["null"]
        expected = " or ".join(_TYPES.get(each, each) for each in wanted)
        return f"is {_TYPES.get(got, got)}, not {expected}"
    if not length:
        return f"is {'below' if sign == '>=' else 'above'} {bound}"
    if (sign, bound) == (">=", "1"):
        return "is empty"
    units = "characters" if "str" in kinds else "elements"
    return f"has {'fewer' if sign == '>=' else 'more'} than {bound} {units}"


def _words(kind: Any) -> list[str]:
    if get_origin(kind) is Literal:
        return [str(word) for word in get_args(kind)]
    return [word for each in get_args(kind) for word in _words(each)]


def _hint(kind: Any, otherwise: str = "/openapi.json shows what is expected") -> str:
    """What the field means, as a remedy."""
    for each in (kind, *get_args(kind)):
        for meta in getattr(each, "__metadata__", ()):
            if isinstance(meta, msgspec.Meta) and meta.description:
                return meta.description
    if tags := _tags(kind):
        return f"each is an object whose {tags[0][0]} is one of {', '.join(tag for _, tag in tags)}"
    return otherwise


def _tags(kind: Any) -> list[tuple[str, str]]:
    """The field that distinguishes structs, and the word of each."""
    config = getattr(kind, "__struct_config__", None)
    if config is not None:
        return [] if config.tag is None else [(config.tag_field, str(config.tag))]
    return [tag for each in get_args(kind) for tag in _tags(each)]


def _nearest(name: str, known: Mapping[str, object]) -> str:
    near = get_close_matches(name[:100], known, n=1)
    return f"did you mean {near[0]}?" if near else "leave it out"


def _kind(value: object) -> str:
    names = {list: "array", str: "str", bool: "bool", type(None): "null"}
    return _TYPES[names.get(type(value), "float")]


def read_query(text: bytes, shape: type[msgspec.Struct]) -> Given:
    """The parameters of a query. A list may be repeated or separated by commas; unknown ones are refused."""
    if not text and not any(field.required for field in _fields(shape).values()):
        return {}
    try:
        pairs = parse_qsl(
            text.decode("ascii"), keep_blank_values=True, max_num_fields=MOST_QUERY_FIELDS, errors="strict"
        )
    except ValueError:
        raise Problem("bad-request", "the query cannot be read", remedy="encode it as UTF-8, percent-escaped") from None
    wrong = nothing_wrong()
    raw: Given = {}
    lists = {name for name, field in _fields(shape).items() if _is_list(field.type)}
    for name, value in pairs:
        if not value.isprintable():
            wrong.add(name[:200], "has characters that cannot be printed", "leave them out")
        elif name in lists:
            raw.setdefault(name, []).extend(value.split(","))
        elif name in raw:
            wrong.add(name[:200], "is given twice", "give it once")
        else:
            raw[name] = value
    return _settled(raw, shape, wrong)


def _settled(raw: Given, shape: type[msgspec.Struct], wrong: Wrong) -> Given:
    given: Given = {}
    known = _fields(shape)
    for name, value in raw.items():
        if name not in known:
            wrong.add(name[:200], "is not a parameter of this request", _nearest(name, known))
            continue
        try:
            given[name] = msgspec.convert(value, known[name].type, strict=False)
        except msgspec.ValidationError as error:
            wrong.add(name, *_explain(str(error).partition(" - at `$")[0], known[name].type))
    for name, field in known.items():
        if field.required and name not in raw:
            wrong.add(name, "is missing", _hint(field.type))
    wrong.settle()
    return given
