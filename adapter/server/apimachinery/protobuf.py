"""Protobuf encoding of API documents, byte for byte as Kubernetes writes it.

Pure. The protobuf library encodes messages whose descriptors are made of `protobuf_messages`;
this module converts the JSON form of an object to the fields of its message. Like Go, it sends
strings, numbers and messages that are empty, unless Go keeps them in pointers.

https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto
from google.protobuf.message import Message

from adapter.server.apimachinery.protobuf_messages import KINDS, MESSAGES
from rules import quantity

_MAGIC = b"k8s\x00"
_PACKAGE = "k8s"
_FIELD = re.compile(r"(\d+) (\w+) ?(map)? ?([\w.]*)([?*]?)")
_EMPTY: Mapping[str, Any] = {"": "", "int32": 0, "int64": 0, "bool": False, "bytes": b""}
_TYPES = {
    "": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
}
_ONE_BYTE = 128
"""Lengths below take one byte."""
_Converter = Callable[[Any], Any]
"""Returns what the constructor of a message takes for a field's value in JSON."""


def encode(document: Mapping[str, Any]) -> bytes:
    """Encode an object of one of `KINDS`. Raises UnicodeEncodeError for lone surrogates."""
    api_version, kind = document.get("apiVersion", ""), document["kind"]
    name = KINDS[api_version, kind]
    raw = _kubernetes_classes()[name](**_converter(name)(document)).SerializeToString()
    envelope = _kubernetes_classes()["Unknown"](
        typeMeta={"apiVersion": api_version, "kind": kind},
        raw=raw,
        contentEncoding="",
        contentType="",
    )
    return _MAGIC + envelope.SerializeToString()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    number: int
    name: str
    type: str
    """A key of `_TYPES` or `MESSAGES`."""
    is_map: bool
    repeated: bool
    always_sent: bool
    """Whether Go keeps the value itself in the struct, not a pointer, a list or a map."""


def _fields(text: str) -> list[_Field]:
    return [
        _Field(
            number=int(number),
            name=name,
            type=type_name,
            is_map=bool(is_map),
            repeated=mark == "*",
            always_sent=not (mark or is_map),
        )
        for number, name, is_map, type_name, mark in _FIELD.findall(text)
    ]


@functools.cache
def _kubernetes_classes() -> Mapping[str, type[Message]]:
    """Return the classes of `MESSAGES`, made at first use."""
    return classes(MESSAGES)


def classes(messages: Mapping[str, str]) -> Mapping[str, type[Message]]:
    """Return classes of messages, whose fields are written as in `protobuf_messages`."""
    file = descriptor_pb2.FileDescriptorProto(name="k8s.proto", package=_PACKAGE, syntax="proto2")
    for message, text in messages.items():
        descriptor = file.message_type.add(name=_identifier(message))
        for field in _fields(text):
            _describe(descriptor, field)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        message: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"{_PACKAGE}.{_identifier(message)}")
        )
        for message in messages
    }


def _describe(message: DescriptorProto, field: _Field) -> None:
    added = message.field.add(
        name=field.name, number=field.number, label=FieldDescriptorProto.LABEL_OPTIONAL
    )
    if field.repeated or field.is_map:
        added.label = FieldDescriptorProto.LABEL_REPEATED
    if field.is_map:
        # Encoded like a map. The library would sort `yes` before `y`, Go does not.
        entry = message.nested_type.add(name=f"{field.name.title()}Entry")
        _set_type(entry.field.add(name="key", number=1, label=added.LABEL_OPTIONAL), "")
        _set_type(entry.field.add(name="value", number=2, label=added.LABEL_OPTIONAL), field.type)
        added.type = FieldDescriptorProto.TYPE_MESSAGE
        added.type_name = f".{_PACKAGE}.{message.name}.{entry.name}"
    else:
        _set_type(added, field.type)


def _set_type(field: FieldDescriptorProto, name: str) -> None:
    if name in _TYPES:
        field.type = _TYPES[name]
    elif name in _ENCODERS:
        field.type = FieldDescriptorProto.TYPE_BYTES
    else:
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{_identifier(name)}"


def _identifier(message: str) -> str:
    return message.replace(".", "_")


@functools.cache
def _converter(message: str) -> _Converter:
    """Return the converter of a message: from its JSON form, or null, to its fields."""
    if message in _TYPES:
        return lambda value: value
    if message in _ENCODERS:
        return _ENCODERS[message]
    fields = _fields(MESSAGES[message])
    empty = {
        field.name: _EMPTY[field.type]
        for field in fields
        if field.always_sent and field.type in _EMPTY
    }
    nested = [
        (field.name, _field_converter(field), field.always_sent)
        for field in fields
        if field.type not in _TYPES or field.is_map
    ]
    is_object = message in KINDS.values()
    if not nested:
        return lambda document: {**empty, **(document or {})}

    def convert(document: Mapping[str, Any] | None) -> dict[str, Any]:
        converted = {**empty, **(document or {})}
        if is_object:
            # The envelope has them; the items of a list have none.
            converted.pop("kind", None)
            converted.pop("apiVersion", None)
        for name, convert_field, always_sent in nested:
            value = converted.get(name)
            if value is not None or always_sent:
                converted[name] = convert_field(value)
        return converted

    return convert


def _field_converter(field: _Field) -> _Converter:
    convert = _converter(field.type)
    if field.repeated:
        return lambda values: [convert(each) for each in values]
    if field.is_map:
        return lambda values: [
            {"key": key, "value": convert(each)} for key, each in sorted(values.items())
        ]
    return convert


@functools.lru_cache(maxsize=256)
def _time(text: str | None) -> bytes:
    """Encode RFC 3339; the zero time, null in JSON, is a message without fields."""
    if not text:
        return b""
    seconds = int(datetime.fromisoformat(text).timestamp())
    return _kubernetes_classes()["Time"](seconds=seconds, nanos=0).SerializeToString()


@functools.lru_cache(maxsize=256)
def _duration(text: str | None) -> bytes:
    nanoseconds = quantity.go_duration(text or "0")
    return _kubernetes_classes()["Duration"](duration=nanoseconds).SerializeToString()


def _quantity(text: str | None) -> bytes:
    text = text or ""
    if len(text) < _ONE_BYTE:
        # What the library writes, in a quarter of the time: the tag, the length, the string.
        return b"\n%c%b" % (len(text), text.encode())
    return _kubernetes_classes()["Quantity"](string=text).SerializeToString()


def _verbs(verbs: Sequence[str]) -> bytes:
    return _kubernetes_classes()["Verbs"](items=verbs).SerializeToString()


_ENCODERS: Mapping[str, Callable[[Any], bytes]] = {
    "Time": _time,
    "Duration": _duration,
    "Quantity": _quantity,
    "Verbs": _verbs,
}
"""Messages that are not objects in JSON. Fields of their types are declared as bytes, which have
the same encoding."""
