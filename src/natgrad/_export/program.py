"""Traces a function of rows to a program: a list of array operations.

Each is one operation of `jax.lax`, and broadcasts as NumPy does. Calls are inlined, and
all that does not depend on the rows is computed.
"""

import itertools
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax import export
from jax.extend import core
from jaxtyping import PyTree

from natgrad.errors import InputError


ROWS = "rows"
"""The name of the number of rows in a shape."""

Shape = tuple[int | str, ...]

_ELEMENTWISE = (
    "abs acos add and asin atan ceil clamp convert_element_type cos cosh div eq erf "
    "exp expm1 floor ge gt integer_pow is_finite le log log1p logistic lt max min mul "
    "ne neg not or pow rsqrt select_n sign sin sinh sqrt square sub tan tanh xor"
)
ELEMENTWISE = frozenset(_ELEMENTWISE.split())

CALLS = ("jit", "pjit", "closed_call", "core_call", "remat", "checkpoint")
CUSTOM = ("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")
SAME = ("stop_gradient", "copy", "copy_p", "optimization_barrier")


@dataclass(frozen=True, eq=False)
class Variable:
    """An array that depends on the rows."""

    shape: Shape
    dtype: np.dtype


Value = np.ndarray | Variable


@dataclass(frozen=True, eq=False)
class Step:
    """One operation."""

    operation: str
    inputs: tuple[Any, ...]
    settings: dict[str, Any]
    output: Variable


@dataclass(frozen=True)
class Program:
    """All steps from x to the outputs, in order."""

    x: Variable
    steps: list[Step]
    outputs: dict[str, Value]


def program_of(
    function: Callable[[Any, jax.Array], dict[str, jax.Array]],
    arrays: PyTree,
    width: int,
    dtype: np.dtype,
) -> Program:
    """The program of a function of a tree of arrays, which is known, and rows x.

    The function should be mapped over rows, so that no row sees another.
    """
    rows = jax.ShapeDtypeStruct((*export.symbolic_shape(ROWS), width), dtype)
    jaxpr, shapes = jax.make_jaxpr(function, return_shape=True)(arrays, rows)
    x = Variable((ROWS, width), np.dtype(dtype))
    flattener = _Flattener()

    def known(leaves: list[jax.Array]) -> list[Any]:
        flattener.outputs = flattener.run(jaxpr.jaxpr, jaxpr.consts, [*leaves, x])
        return flattener.constants()

    # All known arrays are computed at once: one by one, compiling would take long.
    found = map(np.asarray, jax.jit(known)(jax.tree.leaves(arrays)))
    constants = dict(zip(flattener.held, found, strict=True))
    outputs = dict(zip(shapes, flattener.outputs, strict=True))
    return _Loosener(x, constants).run(flattener.steps, outputs)


def looked_up(program: Program, name: str, index: str, labels: np.ndarray) -> Program:
    """The program with one more output: the label at an index."""
    place = program.outputs[index]
    label = Variable(place.shape, labels.dtype)
    step = Step("look_up", (labels, place), {}, label)
    outputs = program.outputs | {name: label}
    return Program(program.x, [*program.steps, step], outputs)


def refused(operation: str, form: str = "ONNX") -> InputError:
    """The error for an operation with no equivalent."""
    return InputError(
        f"the predictions use jax.lax.{operation}, which has no equivalent in {form}; "
        "use to_stablehlo, or a kernel, mean and likelihood that do not need it"
    )


def _shape_of(aval: Sequence[object]) -> Shape:
    """A shape in which one dimension may be the number of rows."""
    return tuple(int(n) if isinstance(n, int | np.integer) else str(n) for n in aval)


def _scanned(params: dict[str, Any]) -> tuple[int, int]:
    """How many inputs of a scan are the same in all its turns, and how many carried."""
    if "num_carry" in params:
        return params["num_consts"], params["num_carry"]
    shared, carried, _ = params["ft_in"].unpack()  # newer versions of JAX
    return len(shared), len(carried)


@dataclass
class _Flattener:
    """Inlines calls, while JAX traces the operations on known arrays."""

    steps: list[Step] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    held: dict[int, Any] = field(default_factory=dict)

    def constants(self) -> list[Any]:
        inputs = [value for step in self.steps for value in step.inputs]
        for value in [*inputs, *self.outputs]:
            if not isinstance(value, Variable):
                self.held[id(value)] = value
        return list(self.held.values())

    def run(self, jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
        values = dict(zip(jaxpr.constvars, consts, strict=True))
        values |= dict(zip(jaxpr.invars, args, strict=True))

        def read(atom: Any) -> Any:
            if isinstance(atom, core.Literal):
                aval: Any = atom.aval
                return np.asarray(atom.val, aval.dtype)
            return values[atom]

        for eqn in jaxpr.eqns:
            outputs = self._equation(eqn, list(map(read, eqn.invars)))
            values |= dict(zip(eqn.outvars, outputs, strict=True))
        return list(map(read, jaxpr.outvars))

    def _equation(self, eqn: Any, inputs: list[Any]) -> Sequence[Any]:
        name, params = eqn.primitive.name, eqn.params
        if name in SAME:
            return inputs
        if name in CALLS or name in CUSTOM:
            bodies = ("jaxpr", "call_jaxpr", "fun_jaxpr")
            body = next(params[key] for key in bodies if key in params)
            consts = getattr(body, "consts", ())
            return self.run(getattr(body, "jaxpr", body), consts, inputs)
        shapes = [_shape_of(var.aval.shape) for var in eqn.outvars]
        is_known = not any(isinstance(value, Variable) for value in inputs)
        if is_known and not any(ROWS in str(shape) for shape in shapes):
            output = eqn.primitive.bind(*inputs, **params)
            return output if eqn.primitive.multiple_results else [output]
        if name == "scan" and not _scanned(params)[1]:
            return self._mapped(eqn, inputs)
        if name == "scan" and len(inputs) == sum(_scanned(params)):
            return self._repeated(eqn, inputs)
        if name == "split":
            sizes = [*map(int, params["sizes"])]
            pairs = zip(itertools.accumulate(sizes), sizes, strict=True)
            return [self._cut(eqn, inputs, end - size, size) for end, size in pairs]
        if name == "unstack":  # of newer versions of JAX
            axes = {"dimensions": (params["axis"],)}
            cut = lambda place: [self._cut(eqn, inputs, place, 1)]
            one = lambda place, var: self._step("squeeze", cut(place), axes, var.aval)
            return [one(*pair) for pair in enumerate(eqn.outvars)]
        if len(shapes) > 1:
            raise refused(name)
        return [self._step(name, inputs, params, eqn.outvars[0].aval)]

    def _mapped(self, eqn: Any, inputs: list[Any]) -> list[Any]:
        """A loop whose turns do not depend on one another, as one array operation."""
        shared, _ = _scanned(eqn.params)
        axes = (None,) * shared + (0,) * (len(inputs) - shared)
        turn = jax.vmap(
            core.jaxpr_as_fun(eqn.params["jaxpr"]), axes, axis_size=eqn.params["length"]
        )
        avals = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars]
        jaxpr = jax.make_jaxpr(turn)(*avals)
        return self.run(jaxpr.jaxpr, jaxpr.consts, inputs)

    def _repeated(self, eqn: Any, inputs: list[Any]) -> list[Any]:
        """A loop without inputs of its turns and outputs of them, turn by turn."""
        shared, carried = inputs[: (known := _scanned(eqn.params)[0])], inputs[known:]
        body = eqn.params["jaxpr"]
        for _ in range(eqn.params["length"]):
            carried = self.run(body.jaxpr, body.consts, [*shared, *carried])
        return carried

    def _cut(self, eqn: Any, inputs: list[Any], start: int, size: int) -> Variable:
        """Some of an array along the axis of an equation."""
        axis, whole = eqn.params["axis"], eqn.invars[0].aval
        low, high, shape = [0] * whole.ndim, list(whole.shape), list(whole.shape)
        low[axis], high[axis], shape[axis] = start, start + size, size
        limits = {"start_indices": low, "limit_indices": high, "strides": None}
        aval = jax.ShapeDtypeStruct(tuple(shape), whole.dtype)
        return self._step("slice", inputs, limits, aval)

    def _step(self, name: str, inputs: list[Any], params: Any, aval: Any) -> Variable:
        output = Variable(_shape_of(aval.shape), np.dtype(aval.dtype))
        self.steps.append(Step(name, tuple(inputs), dict(params), output))
        return output


@dataclass
class _Loosener:
    """Relies on broadcasting where it can, and drops steps that nothing needs."""

    x: Variable
    constants: dict[int, np.ndarray]
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
        first = value.reshape(-1)[:1]
        is_one_number = value.size and value.tobytes() == first.tobytes() * value.size
        return first.reshape(()) if is_one_number else value

    def _full(self, value: Value) -> Value:
        """A value filled to its own shape."""
        if isinstance(value, np.ndarray):
            return value
        loose = self.loose[value]
        if loose.shape == value.shape:
            return loose
        return self._add("broadcast", (loose,), {}, value.shape)

    def _one(self, step: Step) -> Value:
        inputs = tuple(map(self._strict, step.inputs))
        name, settings, shape = step.operation, step.settings, step.output.shape
        if name == "broadcast_in_dim":
            return self._widened(inputs[0], settings, shape)
        if name == "convert_element_type" and inputs[0].dtype == step.output.dtype:
            return self._loose(inputs[0])
        if name in ELEMENTWISE:
            inputs = tuple(map(self._loose, inputs))
            shape = _common([value.shape for value in inputs])
        else:
            inputs = tuple(self._full(value) for value in inputs)
            settings = _plain(name, settings, inputs)
        return self._add(name, inputs, settings, shape, step.output.dtype)

    def _widened(self, value: Value, settings: dict[str, Any], shape: Shape) -> Value:
        loose = self._loose(value)
        if loose.shape == ():
            return loose
        kept = tuple(map(int, settings["broadcast_dimensions"]))
        axes = tuple(axis for axis in range(len(shape)) if axis not in kept)
        if not axes:
            return loose
        sizes = iter(loose.shape)
        wide = tuple(1 if axis in axes else next(sizes) for axis in range(len(shape)))
        return self._add("expand", (loose,), {"axes": axes}, wide)

    def _add(
        self,
        name: str,
        inputs: tuple[Value, ...],
        settings: dict[str, Any],
        shape: Shape,
        dtype: np.dtype | None = None,
    ) -> Variable:
        key = (name, tuple(map(_key, inputs)), str(settings), shape, dtype)
        if key not in self.known:
            output = Variable(shape, inputs[0].dtype if dtype is None else dtype)
            self.known[key] = output
            self.steps.append(Step(name, inputs, settings, output))
        return self.known[key]


def _key(value: Value) -> Any:
    if isinstance(value, Variable):
        return value
    return value.dtype, value.shape, value.tobytes()


def _common(shapes: Sequence[Shape]) -> Shape:
    rank = max(map(len, shapes))
    columns = zip(*(shape or (1,) * rank for shape in shapes), strict=True)
    return tuple(next((n for n in column if n != 1), 1) for column in columns)


def _needed(steps: list[Step], ends: list[Value]) -> list[Step]:
    needed, kept = {value for value in ends if isinstance(value, Variable)}, []
    for step in reversed(steps):
        if step.output in needed:
            needed |= {value for value in step.inputs if isinstance(value, Variable)}
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
        limits = _shape_of(settings["limit_indices"])
        return {"start": settings["start_indices"], "end": limits, "stride": strides}
    if name == "gather":
        return {"axis": _gathered_axis(settings, inputs)}
    if name == "cumsum":
        if settings["reverse"]:
            raise refused("cumsum with reverse=True")
        return {"axis": int(settings["axis"])}
    names = ("permutation", "dimension", "axis")
    return {key: settings[key] for key in names if key in settings}


def _letters(inputs: Any, left: Any, right: Any, left_batch: Any, right_batch: Any):
    """The subscripts of a sum of products, those of its operands and its result."""
    alphabet = iter(string.ascii_lowercase)
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
    if len(collapsed) == 1 and isinstance(places, np.ndarray) and places.shape[-1] == 1:
        (axis,) = collapsed
        sizes = list(operand.shape)
        sizes[axis] = 1
        before, after = range(axis), range(axis + count, rank - 1 + count)
        length = operand.shape[axis]
        is_inside = isinstance(length, int) and bool(
            ((places >= 0) & (places < length)).all()
        )
        if (
            is_inside
            and _shape_of(settings["slice_sizes"]) == tuple(sizes)
            and tuple(map(int, numbers.start_index_map)) == collapsed
            and tuple(map(int, numbers.offset_dims)) == (*before, *after)
            and not numbers.operand_batching_dims
        ):
            return axis
    raise refused("gather along several axes")
