"""The wire reader against the encoding's own examples and a real runtime, and against rubbish."""

from __future__ import annotations

import struct

import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

from collectors import protobuf


def test_the_examples_of_the_encodings_description_are_read() -> None:
    assert list(protobuf.fields(bytes.fromhex("089601"))) == [(1, protobuf.VARINT, 150)]
    assert list(protobuf.fields(bytes.fromhex("120774657374696e67"))) == [(2, protobuf.BYTES, b"testing")]
    assert list(protobuf.fields(bytes.fromhex("1a03089601"))) == [(3, protobuf.BYTES, bytes.fromhex("089601"))]
    packed = list(protobuf.fields(bytes.fromhex("3206038e029ea705")))
    assert [list(protobuf.varints(wire, value)) for _, wire, value in packed] == [[3, 270, 86942]]


@pytest.mark.parametrize(("encoded", "value"), [("01", 1), ("feffffffffffffffff01", -2), ("ffffffffffffffffff01", -1)])
def test_signed_numbers_are_two_s_complement(encoded: str, value: int) -> None:
    [(_, _, found)] = protobuf.fields(b"\x08" + bytes.fromhex(encoded))
    assert isinstance(found, int)
    assert protobuf.signed(found) == value


def test_repeated_doubles_come_packed_or_one_by_one() -> None:
    two = struct.pack("<2d", 1.5, -2.0)
    assert list(protobuf.doubles(protobuf.BYTES, two)) == [1.5, -2.0]
    assert list(protobuf.doubles(protobuf.FIXED64, two[:8])) == [1.5]


@given(st.text(max_size=300), st.integers(1, 2**20))
def test_a_string_field_is_what_the_runtime_writes(value: str, number: int) -> None:
    value = value.encode("utf-8", "ignore").decode()
    message = descriptor_pb2.FileDescriptorProto(name=value)
    assert protobuf.string_field(1, value) == message.SerializeToString()
    [(found, wire, data)] = protobuf.fields(protobuf.string_field(number, value))
    assert (found, wire, data) == (number, protobuf.BYTES, value.encode())


@pytest.mark.parametrize(
    "data",
    ["08", "0880", "08ffffffffffffffffffff01", "0a05616263", "0900", "0b", "0c", "0f", "00", "0d0000"],
    ids=["no value", "half a number", "too long a number", "short bytes", "short double", "group", "end of group",
         "wire type 7", "field 0", "short float"],
)  # fmt: skip
def test_what_is_no_message_is_refused(data: str) -> None:
    with pytest.raises(protobuf.Malformed):
        list(protobuf.fields(bytes.fromhex(data)))


@given(st.binary(max_size=200))
def test_rubbish_raises_nothing_else(data: bytes) -> None:
    try:
        for _, wire, value in protobuf.fields(data):
            list(protobuf.varints(wire, value))
            list(protobuf.doubles(wire, value))
    except protobuf.Malformed:
        return
    assert sum(1 for _ in protobuf.fields(data)) <= len(data)
