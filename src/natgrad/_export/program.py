"""Programs of array operations, which can be written in languages other than JAX.

A program is a list of steps. Each is one operation of `jax.lax`, and broadcasts as
NumPy does.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from natgrad.errors import InputError


ROWS = "rows"
"""The name of the number of rows in a shape."""

Shape = tuple[int | str, ...]

_ELEMENTWISE = (
    "abs acos acosh add and asin asinh atan atan2 atanh cbrt ceil clamp "
    "convert_element_type cos cosh div eq erf erfc exp exp2 expm1 floor ge gt "
    "integer_pow is_finite le lgamma log log1p logistic lt max min mul ne neg not "
    "or pow rsqrt select_n sign sin sinh sqrt square sub tan tanh xor"
)
ELEMENTWISE = frozenset(_ELEMENTWISE.split())


@dataclass(frozen=True, eq=False)
class Constant:
    """An array that does not depend on the rows."""

    array: np.ndarray
    name: str = ""

    @property
    def shape(self) -> Shape:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype:
        return self.array.dtype


@dataclass(frozen=True, eq=False)
class Variable:
    """An array that depends on the rows."""

    shape: Shape
    dtype: np.dtype


Value = Constant | Variable


@dataclass(frozen=True, eq=False)
class Step:
    """One operation, and the innermost function it is a part of."""

    operation: str
    inputs: tuple[Any, ...]
    settings: dict[str, Any]
    output: Variable
    origin: str


@dataclass(frozen=True)
class Program:
    """All steps from x to the outputs, in order."""

    x: Variable
    steps: list[Step]
    outputs: dict[str, Value]

    @property
    def entries(self) -> int:
        """How many numbers of one array a row may need."""
        shapes = [self.x.shape, *(step.output.shape for step in self.steps)]
        sizes = [[n for n in shape if isinstance(n, int)] for shape in shapes]
        return max(int(np.prod(size)) for size in sizes)


def looked_up(program: Program, name: str, index: str, labels: np.ndarray) -> Program:
    """The program with one more output: the label at an index."""
    place = program.outputs[index]
    label = Variable(place.shape, labels.dtype)
    step = Step("look_up", (Constant(labels, "labels"), place), {}, label, "")
    outputs = program.outputs | {name: label}
    return Program(program.x, [*program.steps, step], outputs)


def shape_of(aval: Any) -> Shape:
    """A shape in which one dimension may be the number of rows."""
    return tuple(int(n) if isinstance(n, int | np.integer) else str(n) for n in aval)


def tidied(
    x: Variable,
    steps: list[Step],
    outputs: dict[str, Any],
    constants: dict[int, Constant],
) -> Program:
    """The program of steps whose inputs that are known are named by their `id`."""
    return _Loosener(x, constants).run(steps, outputs)


@dataclass
class _Loosener:
    """Relies on broadcasting where it can, and drops steps that nothing needs."""

    x: Variable
    constants: dict[int, Constant]
    loose: dict[Variable, Value] = field(default_factory=dict)
    known: dict[Any, Variable] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    def run(self, steps: list[Step], outputs: dict[str, Any]) -> Program:
        self.loose[self.x] = self.x
        for step in steps:
            self.loose[step.output] = self._one(step)
        ends = {key: self._full(self._strict(v)) for key, v in outputs.items()}
        return Program(self.x, _needed(self.steps, list(ends.values())), ends)

    def _strict(self, value: Any) -> Value:
        return value if isinstance(value, Variable) else self.constants[id(value)]

    def _loose(self, value: Value) -> Value:
        if isinstance(value, Variable):
            return self.loose[value]
        array = value.array
        first = array.reshape(-1)[:1]
        is_one_number = array.size and array.tobytes() == first.tobytes() * array.size
        return Constant(first.reshape(())) if is_one_number else value

    def _full(self, value: Value, origin: str = "") -> Value:
        """A value filled to its own shape."""
        loose = self._loose(value)
        if isinstance(value, Constant) and ROWS not in value.shape:
            return value
        if loose.shape == value.shape:
            return loose
        return self._add("broadcast", (loose,), {}, value.shape, origin)

    def _one(self, step: Step) -> Value:
        inputs = tuple(map(self._strict, step.inputs))
        name, settings, shape = step.operation, step.settings, step.output.shape
        if name == "broadcast_in_dim":
            return self._widened(inputs[0], settings, shape, step.origin)
        if name == "convert_element_type" and inputs[0].dtype == step.output.dtype:
            return self._loose(inputs[0])
        if name in ELEMENTWISE:
            inputs = tuple(map(self._loose, inputs))
            shape = _common([value.shape for value in inputs])
        else:
            inputs = tuple(self._full(value, step.origin) for value in inputs)
            settings = _plain(name, settings, inputs)
        dtype = step.output.dtype
        return self._add(name, inputs, settings, shape, step.origin, dtype)

    def _widened(self, value: Value, settings: Any, shape: Shape, origin: str) -> Value:
        loose = self._loose(value)
        if loose.shape == ():
            return loose
        kept = tuple(map(int, settings["broadcast_dimensions"]))
        axes = tuple(axis for axis in range(len(shape)) if axis not in kept)
        if not axes:
            return loose
        sizes = iter(loose.shape)
        wide = tuple(1 if axis in axes else next(sizes) for axis in range(len(shape)))
        return self._add("expand", (loose,), {"axes": axes}, wide, origin)

    def _add(
        self,
        name: str,
        inputs: tuple[Value, ...],
        settings: dict[str, Any],
        shape: Shape,
        origin: str,
        dtype: np.dtype | None = None,
    ) -> Variable:
        key = (name, tuple(map(_key, inputs)), str(settings), shape, dtype)
        if key not in self.known:
            output = Variable(shape, inputs[0].dtype if dtype is None else dtype)
            self.known[key] = output
            self.steps.append(Step(name, inputs, settings, output, origin))
        return self.known[key]


def _key(value: Value) -> Any:
    # Single numbers are made anew each time they are used.
    if isinstance(value, Constant) and value.shape == ():
        return value.dtype, value.array.tobytes()
    return value


def _common(shapes: Sequence[Shape]) -> Shape:
    rank = max(map(len, shapes))
    columns = zip(*(shape or (1,) * rank for shape in shapes), strict=True)
    return tuple(next((n for n in column if n != 1), 1) for column in columns)


def _needed(steps: list[Step], ends: list[Value]) -> list[Step]:
    needed, kept = set(ends), []
    for step in reversed(steps):
        if step.output in needed:
            needed |= set(step.inputs)
            kept.append(step)
    return kept[::-1]


def _plain(name: str, settings: dict[str, Any], inputs: tuple[Value, ...]) -> dict:
    """The settings of a step, as plain numbers."""
    if name.startswith("reduce_") or name in ("squeeze", "argmax"):
        axes = settings["dimensions" if name == "squeeze" else "axes"]
        return {"axes": tuple(map(int, axes))}
    if name == "dot_general":
        (left, right), (left_batch, right_batch) = settings["dimension_numbers"]
        return {"sums": _letters(inputs, left, right, left_batch, right_batch)}
    if name == "slice":
        strides = settings["strides"] or (1,) * len(inputs[0].shape)
        limits = shape_of(settings["limit_indices"])
        return {"start": settings["start_indices"], "end": limits, "stride": strides}
    if name == "gather":
        return {"axis": _gathered_axis(settings, inputs)}
    if name == "cumsum":
        if settings["reverse"]:
            raise refused("cumsum with reverse=True", "NumPy or ONNX")
        return {"axis": int(settings["axis"])}
    names = ("permutation", "dimension", "axis", "dimensions")
    return {key: settings[key] for key in names if key in settings}


def _letters(inputs: Any, left: Any, right: Any, left_batch: Any, right_batch: Any):
    """The subscripts of a sum of products, those of its operands and its result."""
    alphabet = iter("abcdefghijklmnopqrstuvwxyz")
    one, other = ([""] * len(value.shape) for value in inputs)
    for i, j in [*zip(left_batch, right_batch), *zip(left, right)]:  # noqa: B905
        one[i] = other[j] = next(alphabet)
    one = [letter or next(alphabet) for letter in one]
    other = [letter or next(alphabet) for letter in other]
    batch = [one[i] for i in left_batch]
    free = [letter for letter in [*one, *other] if (letter in one) != (letter in other)]
    return "".join(one), "".join(other), "".join([*batch, *free])


def _gathered_axis(settings: dict[str, Any], inputs: tuple[Value, ...]) -> int:
    """The axis along which elements are taken, if that is all that is done."""
    numbers, (operand, places) = settings["dimension_numbers"], inputs
    collapsed = tuple(map(int, numbers.collapsed_slice_dims))
    rank, count = len(operand.shape), len(places.shape) - 1
    if len(collapsed) == 1 and isinstance(places, Constant) and places.shape[-1] == 1:
        (axis,) = collapsed
        sizes = list(operand.shape)
        sizes[axis] = 1
        before, after = range(axis), range(axis + count, rank - 1 + count)
        length = operand.shape[axis]
        is_inside = isinstance(length, int) and bool(
            ((places.array >= 0) & (places.array < length)).all()
        )
        if (
            is_inside
            and shape_of(settings["slice_sizes"]) == tuple(sizes)
            and tuple(map(int, numbers.start_index_map)) == collapsed
            and tuple(map(int, numbers.offset_dims)) == (*before, *after)
            and not numbers.operand_batching_dims
        ):
            return axis
    raise refused("gather along several axes", "NumPy or ONNX")


def refused(operation: str, form: str) -> InputError:
    """The error for an operation with no equivalent."""
    return InputError(
        f"the predictions use jax.lax.{operation}, which has no equivalent in {form}; "
        "use to_stablehlo, or a kernel, mean and likelihood that do not need it"
    )
