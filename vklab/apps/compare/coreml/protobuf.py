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

from vklab.errors import ModelError

# Every layer type by field number, so that an unsupported one is refused by its name; parameters
# that vklab does not read are `Other`.
LAYERS = (
    "100 convolution Convolution, 120 pooling Pooling, 130 activation Activation, "
    "140 innerProduct InnerProduct, 150 embedding Other, 160 batchnorm Batchnorm, "
    "165 mvn MeanVariance, 170 l2normalize Other, 175 softmax Other, 180 lrn Other, "
    "190 crop Other, 200 padding Other, 210 upsample Other, 211 resizeBilinear Other, "
    "212 cropResize Other, 220 unary Unary, 230 add Add, 231 multiply Multiply, "
    "240 average Other, 245 scale Scale, 250 bias Other, 260 max Other, 261 min Other, "
    "270 dot Other, 280 reduce Other, 290 loadConstant Other, 300 reshape Other, "
    "301 flatten Other, 310 permute Other, 320 concat Other, 330 split Other, "
    "340 sequenceRepeat Other, 345 reorganizeData Other, 350 slice Other, "
    "400 simpleRecurrent Other, 410 gru Other, 420 uniDirectionalLSTM Other, "
    "430 biDirectionalLSTM Other, 500 custom Other, 600 copy Other, 605 branch Other, "
    "615 loop Other, 620 loopBreak Other, 625 loopContinue Other, 635 rangeStatic Other, "
    "640 rangeDynamic Other, 660 clip Other, 665 ceil Other, 670 floor Other, "
    "680 sign Other, 685 round Other, 700 exp2 Other, 710 sin Other, 715 cos Other, "
    "720 tan Other, 730 asin Other, 735 acos Other, 740 atan Other, 750 sinh Other, "
    "755 cosh Other, 760 tanh Other, 770 asinh Other, 775 acosh Other, 780 atanh Other, "
    "790 erf Other, 795 gelu Gelu, 815 equal Other, 820 notEqual Other, 825 lessThan Other, "
    "827 lessEqual Other, 830 greaterThan Other, 832 greaterEqual Other, "
    "840 logicalOr Other, 845 logicalXor Other, 850 logicalNot Other, 855 logicalAnd Other, "
    "865 modBroadcastable Other, 870 minBroadcastable Other, 875 maxBroadcastable Other, "
    "880 addBroadcastable Other, 885 powBroadcastable Other, 890 divideBroadcastable Other, "
    "895 floorDivBroadcastable Other, 900 multiplyBroadcastable Other, "
    "905 subtractBroadcastable Other, 920 tile Other, 925 stack Other, 930 gather Other, "
    "935 scatter Other, 940 gatherND Other, 945 scatterND Other, 950 softmaxND SoftmaxND, "
    "952 gatherAlongAxis Other, 954 scatterAlongAxis Other, 960 reverse Other, "
    "965 reverseSeq Other, 975 splitND SplitND, 980 concatND ConcatND, "
    "985 transpose Transpose, 995 sliceStatic SliceStatic, 1000 sliceDynamic Other, "
    "1005 slidingWindows Other, 1015 topK Other, 1020 argMin Other, 1025 argMax Other, "
    "1040 embeddingND EmbeddingND, 1045 batchedMatmul BatchedMatmul, 1065 getShape Other, "
    "1070 loadConstantND LoadConstantND, 1080 fillLike Other, 1085 fillStatic Other, "
    "1090 fillDynamic Other, 1100 broadcastToLike Other, 1105 broadcastToStatic Other, "
    "1110 broadcastToDynamic Other, 1120 squeeze Squeeze, 1125 expandDims Axes, "
    "1130 flattenTo2D Other, 1135 reshapeLike Other, 1140 reshapeStatic ReshapeStatic, "
    "1145 reshapeDynamic Other, 1150 rankPreservingReshape Other, 1155 constantPad Other, "
    "1170 randomNormalLike Other, 1175 randomNormalStatic Other, "
    "1180 randomNormalDynamic Other, 1190 randomUniformLike Other, "
    "1195 randomUniformStatic Other, 1200 randomUniformDynamic Other, "
    "1210 randomBernoulliLike Other, 1215 randomBernoulliStatic Other, "
    "1220 randomBernoulliDynamic Other, 1230 categoricalDistribution Other, "
    "1250 reduceL1 Other, 1255 reduceL2 Other, 1260 reduceMax Other, 1265 reduceMin Other, "
    "1270 reduceSum Reduce, 1275 reduceProd Other, 1280 reduceMean Reduce, "
    "1285 reduceLogSum Other, 1290 reduceSumSquare Other, 1295 reduceLogSumExp Other, "
    "1313 whereNonZero Other, 1315 matrixBandPart Other, 1320 lowerTriangular Other, "
    "1325 upperTriangular Other, 1330 whereBroadcastable Other, "
    "1350 layerNormalization LayerNorm, 1400 NonMaximumSuppression Other, 1450 oneHot Other, "
    "1455 cumSum Other, 1460 clampedReLU Other, 1461 argSort Other, 1465 pooling3d Other, "
    "1466 globalPooling3d Other, 1470 sliceBySize Other, 1471 convolution3d Other"
)
ACTIVATIONS = (
    "5 linear AlphaBeta, 10 ReLU Other, 15 leakyReLU Alpha, 20 thresholdedReLU Alpha, "
    "25 PReLU Other, 30 tanh Other, 31 scaledTanh AlphaBeta, 40 sigmoid Other, "
    "41 sigmoidHard AlphaBeta, 50 ELU Alpha, 60 softsign Other, 70 softplus Other, "
    "71 parametricSoftplus Other"
)
NETWORK = f"""
NeuralNetwork: 1 layers Layer*, 2 preprocessing Other*, 5 arrayInputShapeMapping int32,
    6 imageInputShapeMapping int32, 10 updateParams Other
Layer: 1 name string, 2 input string*, 3 output string*, 4 inputTensor Other*,
    5 outputTensor Other*, 10 isUpdatable bool, {LAYERS}
Weights: 1 floatValue float*, 2 float16Value bytes, 30 rawValue bytes, 31 int8RawValue bytes,
    40 quantization Quantization, 50 isUpdatable bool
Quantization: 1 numberOfBits uint64, 101 linearQuantization LinearQuantization,
    102 lookupTableQuantization TableQuantization
LinearQuantization: 1 scale float*, 2 bias float*
TableQuantization: 1 floatValue float*
Convolution: 1 outputChannels uint64, 2 kernelChannels uint64, 10 nGroups uint64,
    20 kernelSize uint64*, 30 stride uint64*, 40 dilationFactor uint64*, 50 valid ValidPadding,
    51 same SamePadding, 60 isDeconvolution bool, 70 hasBias bool, 90 weights Weights,
    91 bias Weights, 100 outputShape uint64*
ValidPadding: 1 paddingAmounts BorderAmounts
BorderAmounts: 10 borderAmounts EdgeSizes*
EdgeSizes: 1 startEdgeSize uint64, 2 endEdgeSize uint64
SamePadding: 1 asymmetryMode int32
Pooling: 1 type int32, 10 kernelSize uint64*, 20 stride uint64*, 30 valid ValidPadding,
    31 same SamePadding, 32 includeLastPixel Other, 50 avgPoolExcludePadding bool,
    60 globalPooling bool
Activation: {ACTIVATIONS}
Alpha: 1 alpha float
AlphaBeta: 1 alpha float, 2 beta float
InnerProduct: 1 inputChannels uint64, 2 outputChannels uint64, 10 hasBias bool,
    20 weights Weights, 21 bias Weights, 22 int8DynamicQuantize bool
Unary: 1 type int32, 2 alpha float, 3 epsilon float, 4 shift float, 5 scale float
Add: 1 alpha float
Multiply: 1 alpha float
Scale: 1 shapeScale uint64*, 2 scale Weights, 3 hasBias bool, 4 shapeBias uint64*, 5 bias Weights
Batchnorm: 1 channels uint64, 5 computeMeanVar bool, 6 instanceNormalization bool,
    10 epsilon float, 15 gamma Weights, 16 beta Weights, 17 mean Weights, 18 variance Weights
MeanVariance: 1 acrossChannels bool, 2 normalizeVariance bool, 3 epsilon float
Gelu: 1 mode int32
SoftmaxND: 1 axis int64
SplitND: 1 axis int64, 2 numSplits uint64, 3 splitSizes uint64*
ConcatND: 1 axis int64, 2 interleave bool
Transpose: 1 axes uint64*
SliceStatic: 1 beginIds int64*, 2 beginMasks bool*, 3 endIds int64*, 4 endMasks bool*,
    5 strides int64*, 6 squeezeMasks bool*
EmbeddingND: 1 vocabSize uint64, 2 embeddingSize uint64, 3 hasBias bool, 20 weights Weights,
    21 bias Weights
BatchedMatmul: 1 transposeA bool, 2 transposeB bool, 5 weightMatrixFirstDimension uint64,
    6 weightMatrixSecondDimension uint64, 7 hasBias bool, 8 weights Weights, 9 bias Weights,
    10 int8DynamicQuantize bool
LoadConstantND: 1 shape uint64*, 2 data Weights
Axes: 1 axes int64*
Squeeze: 1 axes int64*, 2 squeezeAll bool
ReshapeStatic: 1 targetShape int64*
Reduce: 1 axes int64*, 2 keepDims bool, 3 reduceAll bool
LayerNorm: 1 normalizedShape int64*, 2 eps float, 3 gamma Weights, 4 beta Weights
"""

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
# Fields of these messages from a number on exclude each other, so that `WhichOneof("kind")` names
# the one present.
CHOICES = {"Model": 200, "Value": 3, "ValueType": 1, "ImmediateValue": 1, "TensorValue": 1,
           "Dimension": 1, "Binding": 1, "Layer": 100, "Activation": 1,
           "Quantization": 101}  # fmt: skip
_pool = descriptor_pool.DescriptorPool()


def _file(table: str) -> descriptor_pb2.FileDescriptorProto:
    """Return the descriptor of a file with the messages of a table."""
    file = descriptor_pb2.FileDescriptorProto(
        name="vklab_coreml.proto", package=PACKAGE, syntax="proto3"
    )
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


_pool.Add(_file(MODEL + NETWORK.strip()))


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
        raise ModelError(
            f"{label}: no Core ML model, as it has no specification version or no description"
        )
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
