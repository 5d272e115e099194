"""A program as a graph of ONNX, whose number of rows is left open.

Operations are those that onnxruntime computes in 64 bits too; what ONNX lacks is made
of others without loss of digits.
"""

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from natgrad._export.program import ROWS, Program, Step, Value, Variable, refused


OPSET, IR_VERSION = 18, 8
"""Of 2022: a runtime of any later date reads them."""

_CAPITALIZED = (
    "abs add and ceil cos div exp floor log max min mul neg not or pow sign sin sqrt "
    "sub tanh xor"
)
BY_ELEMENT = {name: name.capitalize() for name in _CAPITALIZED.split()}
BY_ELEMENT |= {"lt": "Less", "le": "LessOrEqual", "eq": "Equal"}
BY_ELEMENT |= {"gt": "Greater", "ge": "GreaterOrEqual"}

SINGLE = ("acos", "asin", "cosh", "erf", "sinh")
"""Those that onnxruntime computes in 32 bits alone."""

REDUCTIONS = {
    f"reduce_{name}": f"Reduce{name.capitalize()}"
    for name in ("sum", "prod", "max", "min")
}


def onnx_model(
    program: Program, text: str, version: str, inputs: Sequence[str] = ()
) -> onnx.ModelProto:
    """A checked model with the input "x" and the outputs of the program."""
    graph = _Graph(program).build()
    model = helper.make_model(
        graph,
        producer_name="natgrad",
        producer_version=version,
        doc_string=text,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    if inputs:
        helper.set_model_props(model, {"inputs": json.dumps(list(inputs))})
    onnx.checker.check_model(model)
    return model


class _Graph:
    """Nodes and the names of their results."""

    def __init__(self, program: Program):
        self.program = program
        self.names: dict[Variable, str] = {program.x: "x"}
        self.nodes: list[onnx.NodeProto] = []
        self.arrays: dict[Any, onnx.TensorProto] = {}
        self.shapes: dict[Any, str] = {}
        self.numbers = itertools.count(1)

    def build(self) -> onnx.GraphProto:
        for step in self.program.steps:
            self.names[step.output] = self._write(step)
        infos = []
        for key, value in self.program.outputs.items():
            self.nodes.append(helper.make_node("Identity", [self.read(value)], [key]))
            infos.append(_info(key, value))
        inputs = [_info("x", self.program.x)]
        constants = list(self.arrays.values())
        return helper.make_graph(self.nodes, "predict", inputs, infos, constants)

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        output = f"{kind}_{next(self.numbers)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def constant(self, array: np.ndarray) -> str:
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        key = (array.dtype, array.shape, array.tobytes())
        if key not in self.arrays:
            # Text is stored as objects.
            stored = array.astype(object) if array.dtype.kind == "U" else array
            name = f"constant_{len(self.arrays) + 1}"
            self.arrays[key] = numpy_helper.from_array(stored, name)
        return self.arrays[key].name

    def axes(self, axes: Any) -> str:
        return self.constant(np.asarray(axes, np.int64))

    def read(self, value: Value) -> str:
        is_known = isinstance(value, np.ndarray)
        return self.constant(value) if is_known else self.names[value]

    def shape(self, shape: Any) -> str:
        """A shape as an array, in which the number of rows is looked up."""
        if ROWS not in shape:
            return self.axes(shape)
        if shape not in self.shapes:
            rows = self.add("Shape", "x", start=0, end=1)
            parts = [rows if n == ROWS else self.axes([n]) for n in shape]
            self.shapes[shape] = self.add("Concat", *parts, axis=0)
        return self.shapes[shape]

    def _write(self, step: Step) -> str:
        name, inputs = step.operation, list(map(self.read, step.inputs))
        if name in BY_ELEMENT:
            return self.add(BY_ELEMENT[name], *inputs)
        if name in SINGLE:
            if step.output.dtype != np.float32:
                raise refused(name, "ONNX in 64 bits")
            return self.add(name.capitalize(), *inputs)
        if name in REDUCTIONS:
            axes = self.axes(step.settings["axes"])
            return self.add(REDUCTIONS[name], *inputs, axes, keepdims=0)
        if name not in COMPOSED:
            raise refused(name)
        return COMPOSED[name](self, step, *inputs)


def _info(name: str, value: Value) -> onnx.ValueInfoProto:
    dtype = np.dtype(object) if value.dtype.kind == "U" else value.dtype
    kind = helper.np_dtype_to_tensor_dtype(dtype)
    return helper.make_tensor_value_info(name, kind, list(value.shape))


def _number(graph: _Graph, step: Step, value: int | float) -> str:
    return graph.constant(np.asarray(value, step.output.dtype))


def _log1p(graph: _Graph, step: Step, x: str) -> str:
    """log(u) · (x/(u − 1)) with u = 1 + x: what u is rounded by cancels."""
    one = _number(graph, step, 1)
    u = graph.add("Add", x, one)
    ratio = graph.add("Div", x, graph.add("Sub", u, one))
    value = graph.add("Mul", graph.add("Log", u), ratio)
    value = graph.add("Where", graph.add("Equal", u, one), x, value)
    # Infinity over itself is no number.
    return graph.add("Where", graph.add("Equal", x, u), graph.add("Log", u), value)


def _expm1(graph: _Graph, step: Step, x: str) -> str:
    """(u − 1) · (x/log(u)) with u = exp(x): what u is rounded by cancels."""
    one = _number(graph, step, 1)
    u = graph.add("Exp", x)
    rest = graph.add("Sub", u, one)
    value = graph.add("Mul", rest, graph.add("Div", x, graph.add("Log", u)))
    value = graph.add("Where", graph.add("Equal", u, one), x, value)
    # The quotient is no number where u is zero or infinite.
    far = graph.add("Greater", graph.add("Abs", x), _number(graph, step, 50))
    return graph.add("Where", far, rest, value)


def _atan(graph: _Graph, step: Step, x: str) -> str:
    """8 atan(u), with u = tan of an eighth of the angle, by its power series.

    Each half is tan(a/2) = tan(a)/(1 + √(1 + tan(a)²)). u is below 0.2, and the terms
    left out below 1e-17.
    """
    number = lambda value: _number(graph, step, value)
    if step.output.dtype == np.float32:
        return graph.add("Atan", x)
    # Beyond it the angle is π/2 to all digits, and squares overflow.
    x = graph.add("Max", graph.add("Min", x, number(1e100)), number(-1e100))
    for _ in range(3):
        root = graph.add("Sqrt", graph.add("Add", graph.add("Mul", x, x), number(1)))
        x = graph.add("Div", x, graph.add("Add", root, number(1)))
    square = graph.add("Mul", x, x)
    value = number(1 / 25)
    for odd in range(23, 0, -2):
        product = graph.add("Mul", value, square)
        value = graph.add("Sub", number(1 / odd), product)
    return graph.add("Mul", graph.add("Mul", x, value), number(8))


def _logistic(graph: _Graph, step: Step, x: str) -> str:
    one = _number(graph, step, 1)
    return graph.add(
        "Div", one, graph.add("Add", one, graph.add("Exp", graph.add("Neg", x)))
    )


def _power(graph: _Graph, step: Step, x: str) -> str:
    power, result = step.settings["y"], None
    for digit in reversed(bin(abs(power))[2:]):
        if digit == "1":
            result = x if result is None else graph.add("Mul", result, x)
        x = graph.add("Mul", x, x)
    result = _number(graph, step, 1) if result is None else result
    return result if power > 0 else graph.add("Reciprocal", result)


def _select(graph: _Graph, step: Step, which: str, no: str, *yes: str) -> str:
    if step.inputs[0].dtype != bool or len(yes) != 1:
        raise refused("select_n of more than two cases")
    return graph.add("Where", which, *yes, no)


def _dot(graph: _Graph, step: Step, a: str, b: str) -> str:
    left, right, result = step.settings["sums"]
    if len(right) == 2 and left[-1] == right[0] and result == left[:-1] + right[1]:
        return graph.add("MatMul", a, b)
    return graph.add("Einsum", a, b, equation=f"{left},{right}->{result}")


def _slice(graph: _Graph, step: Step, x: str) -> str:
    limits = (step.settings[key] for key in ("start", "end", "stride"))
    sides = zip(*limits, step.inputs[0].shape, strict=True)
    cut = [
        (axis, low, high, by)
        for axis, (low, high, by, size) in enumerate(sides)
        if (low, high, by) != (0, size, 1)
    ]
    axes, low, high, by = (graph.axes(column) for column in zip(*cut, strict=True))
    return graph.add("Slice", x, low, high, axes, by)


def _stack(graph: _Graph, step: Step, *inputs: str) -> str:
    axis = int(step.settings["axis"])
    parts = [graph.add("Unsqueeze", x, graph.axes([axis])) for x in inputs]
    return graph.add("Concat", *parts, axis=axis)


def _reshape(graph: _Graph, step: Step, x: str) -> str:
    shape = [n if isinstance(n, int) else -1 for n in step.output.shape]
    return graph.add("Reshape", x, graph.axes(shape))


def _take(graph: _Graph, step: Step, x: str, places: str) -> str:
    array = step.inputs[1][..., 0].astype(np.int64)
    return graph.add("Gather", x, graph.constant(array), axis=step.settings["axis"])


def _cast(graph: _Graph, step: Step, x: str) -> str:
    kind = helper.np_dtype_to_tensor_dtype(step.output.dtype)
    return graph.add("Cast", x, to=kind)


def _argmax(graph: _Graph, step: Step, x: str) -> str:
    (axis,) = step.settings["axes"]
    return _cast(graph, step, graph.add("ArgMax", x, axis=axis, keepdims=0))


COMPOSED: dict[str, Callable[..., str]] = {
    "argmax": _argmax,
    "atan": _atan,
    "broadcast": lambda graph, step, x: graph.add(
        "Expand", x, graph.shape(step.output.shape)
    ),
    "clamp": lambda graph, step, low, x, high: graph.add(
        "Min", graph.add("Max", x, low), high
    ),
    "concatenate": lambda graph, step, *inputs: graph.add(
        "Concat", *inputs, axis=int(step.settings["dimension"])
    ),
    "convert_element_type": _cast,
    "cumsum": lambda graph, step, x: graph.add(
        "CumSum", x, graph.constant(np.asarray(step.settings["axis"], np.int64))
    ),
    "dot_general": _dot,
    "expand": lambda graph, step, x: graph.add(
        "Unsqueeze", x, graph.axes(step.settings["axes"])
    ),
    "expm1": _expm1,
    "gather": _take,
    "integer_pow": _power,
    "is_finite": lambda graph, step, x: graph.add(
        "Not", graph.add("Or", graph.add("IsNaN", x), graph.add("IsInf", x))
    ),
    "log1p": _log1p,
    "logistic": _logistic,
    "look_up": lambda graph, step, labels, place: graph.add(
        "Gather", labels, place, axis=0
    ),
    "ne": lambda graph, step, a, b: graph.add("Not", graph.add("Equal", a, b)),
    "reshape": _reshape,
    "rsqrt": lambda graph, step, x: graph.add("Reciprocal", graph.add("Sqrt", x)),
    "select_n": _select,
    "slice": _slice,
    "square": lambda graph, step, x: graph.add("Mul", x, x),
    "squeeze": lambda graph, step, x: graph.add(
        "Squeeze", x, graph.axes(step.settings["axes"])
    ),
    "stack": _stack,
    "tan": lambda graph, step, x: graph.add(
        "Div", graph.add("Sin", x), graph.add("Cos", x)
    ),
    "transpose": lambda graph, step, x: graph.add(
        "Transpose", x, perm=list(map(int, step.settings["permutation"]))
    ),
}
