"""Message classes of Core ML's files, built from a table of fields: no generated code.

Lists the fields that vklab reads, and those that change no result; `unlisted` finds others. The
classes live in a pool of their own, so that coremltools may be imported beside them.

Source: MIL.proto, Model.proto, FeatureTypes.proto and NeuralNetwork.proto of coremltools 9
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from vklab.apps.compare.coreml import network_fields
from vklab.errors import ModelError

PACKAGE = "vklab.coreml"
# Message: its fields as "number name type"; a trailing * repeats, map<T> has keys of text.
MODEL = """
Model: 1 specificationVersion int32, 2 description ModelDescription, 10 isUpdatable bool,
    500 neuralNetwork NeuralNetwork, 502 mlProgram Program,
    303 neuralNetworkRegressor Other, 403 neuralNetworkClassifier Other,
    200 pipelineClassifier Other, 201 pipelineRegressor Other, 202 pipeline Other,
    302 treeEnsembleRegressor Other, 402 treeEnsembleClassifier Other, 555 customModel Other
Other:
ModelDescription: 1 input FeatureDescription*, 10 output FeatureDescription*,
    13 state FeatureDescription*, 20 functions FunctionDescription*, 21 defaultFunctionName string,
    11 predictedFeatureName string, 12 predictedProbabilitiesName string, 50 trainingInput Other*,
    100 metadata Other
FunctionDescription: 1 name string, 2 input FeatureDescription*, 3 output FeatureDescription*,
    4 predictedFeatureName string, 5 predictedProbabilitiesName string, 6 state Other*
FeatureDescription: 1 name string, 2 shortDescription string, 3 type FeatureType
FeatureType: 4 imageType Other, 5 multiArrayType ArrayFeatureType, 1000 isOptional bool
ArrayFeatureType: 1 shape int64*, 2 dataType int32, 21 enumeratedShapes EnumeratedShapes,
    31 shapeRange ShapeRange, 41 intDefaultValue int32, 51 floatDefaultValue float,
    61 doubleDefaultValue double
EnumeratedShapes: 1 shapes ArrayShape*
ArrayShape: 1 shape int64*
ShapeRange: 1 sizeRanges SizeRange*
SizeRange: 1 lowerBound uint64, 2 upperBound int64
Program: 1 version int64, 2 functions map<Function>, 3 docString string, 4 attributes map<Value>
Function: 1 inputs NamedValueType*, 2 opset string, 3 block_specializations map<Block>,
    4 attributes map<Value>
Block: 1 inputs NamedValueType*, 2 outputs string*, 3 operations Operation*,
    4 attributes map<Value>
Operation: 1 type string, 2 inputs map<Argument>, 3 outputs NamedValueType*, 4 blocks Block*,
    5 attributes map<Value>
Argument: 1 arguments Binding*
Binding: 1 name string, 2 value Value
NamedValueType: 1 name string, 2 type ValueType
ValueType: 1 tensorType TensorType, 2 listType Other, 3 tupleType Other, 4 dictionaryType Other,
    5 stateType Other
TensorType: 1 dataType int32, 2 rank int64, 3 dimensions Dimension*, 4 attributes map<Value>
Dimension: 1 constant ConstantDimension, 2 unknown UnknownDimension
ConstantDimension: 1 size uint64
UnknownDimension: 1 variadic bool
Value: 1 docString string, 2 type ValueType, 3 immediateValue ImmediateValue,
    5 blobFileValue BlobFileValue
ImmediateValue: 1 tensor TensorValue, 2 tuple Other, 3 list Other, 4 dictionary Other
BlobFileValue: 1 fileName string, 2 offset uint64
TensorValue: 1 floats Floats, 2 ints Ints, 3 bools Bools, 4 strings Strings, 5 longInts LongInts,
    6 doubles Doubles, 7 bytes Bytes
Floats: 1 values float*
Doubles: 1 values double*
Ints: 1 values int32*
LongInts: 1 values int64*
Bools: 1 values bool*
Strings: 1 values string*
Bytes: 1 values bytes
"""
_Field = descriptor_pb2.FieldDescriptorProto
KINDS = {"double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "bool": 8, "string": 9,
         "bytes": 12, "uint32": 13}  # fmt: skip
# Fields of these messages exclude each other, so that `WhichOneof("kind")` names the one present.
CHOICES = {"Model": 200, "Value": 3, "ValueType": 1, "ImmediateValue": 1, "TensorValue": 1,
           "Dimension": 1, "Binding": 1, **network_fields.CHOICES}  # fmt: skip


def _file(table: str) -> descriptor_pb2.FileDescriptorProto:
    """Return the descriptor of a file with the messages of a table."""
    file = descriptor_pb2.FileDescriptorProto(name="vklab_coreml.proto", package=PACKAGE,
                                              syntax="proto3")  # fmt: skip
    entries = table.strip().replace("\n    ", " ").splitlines()
    for entry in entries:
        name, _, fields = entry.partition(":")
        message = file.message_type.add(name=name)
        if name in CHOICES:
            message.oneof_decl.add(name="kind")
        for field in filter(None, map(str.strip, fields.split(","))):
            number, label, kind = field.split()
            _add_field(message, int(number), label, kind)
    return file


def _add_field(message: Any, number: int, name: str, kind: str) -> None:
    """Add one field to a message; a map is a repeated message of key and value."""
    is_map = kind.startswith("map<")
    repeats = is_map or kind.endswith("*")
    kind = kind.removeprefix("map<").rstrip(">*")
    field = message.field.add(name=name, number=number, label=3 if repeats else 1)
    if is_map:
        title = "".join(part.capitalize() for part in name.split("_")) + "Entry"
        entry = message.nested_type.add(name=title)
        entry.options.map_entry = True
        _add_field(entry, 1, "key", "string")
        _add_field(entry, 2, "value", kind)
        kind = f"{message.name}.{title}"
    if kind in KINDS:
        field.type = KINDS[kind]
    else:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
    if message.name in CHOICES and not repeats and number >= CHOICES[message.name]:
        field.oneof_index = 0


_pool = descriptor_pool.DescriptorPool()
_pool.Add(_file(MODEL + network_fields.NETWORK.strip()))


def message_class(name: str) -> Any:
    """Return the class of a message of the table."""
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))


def parse(data: bytes, label: str) -> Any:
    """Return the Model message in `data`; ModelError names the label if there is none."""
    try:
        model = message_class("Model").FromString(data)
    except DecodeError as error:
        raise ModelError(f"{label}: no Core ML model, or one that is cut off: {error}") from error
    # Nearly any bytes parse as protobuf; a Core ML model also has a version and a description.
    if model.specificationVersion < 1 or not model.HasField("description"):
        raise ModelError(f"{label}: no Core ML model, as it has no specification version or no "
                         "description")  # fmt: skip
    return model


def unlisted(message: Any) -> list[str]:
    """Return the fields of a message, and of messages in it, that the table does not list.

    An operation's attributes are read of constants alone; of others they count as not listed.
    """
    found: set[str] = set()
    stack = [message]
    while stack:
        each = stack.pop()
        if each.DESCRIPTOR.name == "Other":
            continue
        found |= {f"{each.DESCRIPTOR.name}.{field.field_number}" for field in UnknownFieldSet(each)}
        if each.DESCRIPTOR.name == "Operation" and not each.type.startswith("constexpr_"):
            known = {"name", "val"} if each.type == "const" else {"name"}
            found |= {f"{each.type}.{name}" for name in {*each.attributes} - known}
        for field, value in each.ListFields():
            if field.message_type is not None:
                values = value.values() if isinstance(value, Mapping) else value
                stack += values if field.is_repeated else [value]
    return sorted(found)
