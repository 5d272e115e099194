"""Traces a function of rows to a program.

Calls are inlined, and all that does not depend on the rows is computed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax import export
from jax.extend import core

from natgrad._export.program import (
    ROWS,
    Constant,
    Program,
    Step,
    Variable,
    refused,
    shape_of,
    tidied,
)


CALLS = ("jit", "pjit", "closed_call", "core_call", "remat", "checkpoint")
CUSTOM = ("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")
SAME = ("stop_gradient", "copy", "copy_p", "optimization_barrier")


def program_of(
    function: Callable[[Any, jax.Array], dict[str, jax.Array]],
    arrays: Any,
    width: int,
    dtype: np.dtype,
) -> Program:
    """The program of a function of a tree of arrays, which is known, and rows x.

    The function should be mapped over rows, so that no row sees another.
    """
    rows = jax.ShapeDtypeStruct((*export.symbolic_shape(ROWS), width), dtype)
    jaxpr, shapes = jax.make_jaxpr(function, return_shape=True)(arrays, rows)
    leaves, names = _named_leaves(arrays)
    x = Variable((ROWS, width), np.dtype(dtype))
    flattener = _Flattener()

    def known(leaves: list[jax.Array]) -> list[Any]:
        flattener.names = dict(zip(map(id, leaves), names, strict=True))
        flattener.outputs = flattener.run(jaxpr.jaxpr, jaxpr.consts, [*leaves, x], "")
        return flattener.constants()

    # All known arrays are computed at once: one by one, compiling would take long.
    arrays = list(map(np.asarray, jax.jit(known)(leaves)))
    outputs = dict(zip(shapes, flattener.outputs, strict=True))
    constants = flattener.constants_by_key(arrays)
    return tidied(x, flattener.steps, outputs, constants)


def _named_leaves(arrays: Any) -> tuple[list[jax.Array], list[str]]:
    pairs, _ = jax.tree_util.tree_flatten_with_path(arrays)
    names = [str(getattr(path[-1], "name", "")) for path, _ in pairs]
    return [leaf for _, leaf in pairs], names


def _scanned(params: Any) -> tuple[int, int]:
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
    names: dict[int, str] = field(default_factory=dict)
    held: dict[int, Any] = field(default_factory=dict)

    def constants(self) -> list[Any]:
        inputs = [value for step in self.steps for value in step.inputs]
        for value in [*inputs, *self.outputs]:
            if not isinstance(value, Variable):
                self.held[id(value)] = value
        return list(self.held.values())

    def constants_by_key(self, arrays: list[np.ndarray]) -> dict[int, Constant]:
        distinct: dict[Any, Constant] = {}
        keys = {}
        for key, array in zip(self.held, arrays, strict=True):
            content = (array.dtype, array.shape, array.tobytes())
            constant = Constant(array, self.names.get(key, ""))
            keys[key] = distinct.setdefault(content, constant)
        return keys

    def run(
        self, jaxpr: Any, consts: Sequence[Any], args: Sequence[Any], origin: str
    ) -> list[Any]:
        values = dict(zip(jaxpr.constvars, consts, strict=True))
        values |= dict(zip(jaxpr.invars, args, strict=True))

        def read(atom: Any) -> Any:
            if isinstance(atom, core.Literal):
                aval: Any = atom.aval
                return np.asarray(atom.val, aval.dtype)
            return values[atom]

        for eqn in jaxpr.eqns:
            outputs = self._equation(eqn, list(map(read, eqn.invars)), origin)
            values |= dict(zip(eqn.outvars, outputs, strict=True))
        return list(map(read, jaxpr.outvars))

    def _equation(self, eqn: Any, inputs: list[Any], origin: str) -> Sequence[Any]:
        name, params = eqn.primitive.name, eqn.params
        if name in SAME:
            return inputs
        if name in CALLS or name in CUSTOM:
            return self._call(params, inputs, origin)
        shapes = [shape_of(var.aval.shape) for var in eqn.outvars]
        is_known = not any(isinstance(value, Variable) for value in inputs)
        if is_known and not any(ROWS in str(shape) for shape in shapes):
            output = eqn.primitive.bind(*inputs, **params)
            return output if eqn.primitive.multiple_results else [output]
        if name == "scan" and not _scanned(params)[1]:
            return self._mapped(eqn, inputs, origin)
        if name == "split":
            return list(self._split(eqn, inputs, origin))
        if name == "unstack":
            return list(self._unstacked(eqn, inputs, origin))
        if len(shapes) > 1:
            raise refused(name, "NumPy or ONNX")
        return [self._step(name, inputs, params, eqn.outvars[0].aval, origin)]

    def _call(self, params: Any, inputs: list[Any], origin: str) -> list[Any]:
        bodies = ("jaxpr", "call_jaxpr", "fun_jaxpr")
        body = next(params[key] for key in bodies if key in params)
        name = str(params.get("name", "_"))
        origin = origin if name.startswith(("_", "<")) else name
        consts = getattr(body, "consts", ())
        return self.run(getattr(body, "jaxpr", body), consts, inputs, origin)

    def _mapped(self, eqn: Any, inputs: list[Any], origin: str) -> list[Any]:
        """A loop whose turns do not depend on one another, as one array operation."""
        shared, _ = _scanned(eqn.params)
        axes = (None,) * shared + (0,) * (len(inputs) - shared)
        turn = jax.vmap(
            core.jaxpr_as_fun(eqn.params["jaxpr"]), axes, axis_size=eqn.params["length"]
        )
        avals = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars]
        jaxpr = jax.make_jaxpr(turn)(*avals)
        return self.run(jaxpr.jaxpr, jaxpr.consts, inputs, origin)

    def _split(self, eqn: Any, inputs: list[Any], origin: str) -> Iterator[Variable]:
        axis, start = eqn.params["axis"], 0
        whole = eqn.invars[0].aval.shape
        for size, var in zip(eqn.params["sizes"], eqn.outvars, strict=True):
            low, high = [0] * len(whole), list(whole)
            low[axis], high[axis] = start, start + size
            limits = {"start_indices": low, "limit_indices": high, "strides": None}
            yield self._step("slice", inputs, limits, var.aval, origin)
            start += size

    def _unstacked(self, eqn: Any, inputs: list[Any], origin: str) -> Iterator[Any]:
        """The parts of an array along an axis; newer versions of JAX have it."""
        axis, whole = eqn.params["axis"], eqn.invars[0].aval
        for place, var in enumerate(eqn.outvars):
            low, high = [0] * len(whole.shape), list(whole.shape)
            low[axis], high[axis] = place, place + 1
            limits = {"start_indices": low, "limit_indices": high, "strides": None}
            thin = list(whole.shape)
            thin[axis] = 1
            aval = jax.ShapeDtypeStruct(tuple(thin), whole.dtype)
            part = self._step("slice", inputs, limits, aval, origin)
            yield self._step(
                "squeeze", [part], {"dimensions": (axis,)}, var.aval, origin
            )

    def _step(
        self, name: str, inputs: list[Any], params: Any, aval: Any, origin: str
    ) -> Variable:
        output = Variable(shape_of(aval.shape), np.dtype(aval.dtype))
        self.steps.append(Step(name, tuple(inputs), dict(params), output, origin))
        return output
