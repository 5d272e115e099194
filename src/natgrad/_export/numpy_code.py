"""A program as Python code that needs NumPy and nothing else."""

import base64
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from natgrad._export.numpy_tables import ENCODED, encoding_code
from natgrad._export.program import Constant, Program, Step, Value, Variable, refused


ENTRIES = 2**20
"""How many numbers of one array a chunk may need: few enough to stay in a cache."""

WIDTH = 88

BY_ELEMENT: dict[str, str] = {
    "abs": "np.abs({0})",
    "acos": "np.arccos({0})",
    "acosh": "np.arccosh({0})",
    "add": "{0} + {1}",
    "and": "{0} & {1}",
    "asin": "np.arcsin({0})",
    "asinh": "np.arcsinh({0})",
    "atan": "np.arctan({0})",
    "atan2": "np.arctan2({0}, {1})",
    "atanh": "np.arctanh({0})",
    "cbrt": "np.cbrt({0})",
    "ceil": "np.ceil({0})",
    "clamp": "np.minimum(np.maximum({1}, {0}), {2})",
    "cos": "np.cos({0})",
    "cosh": "np.cosh({0})",
    "div": "{0} / {1}",
    "eq": "{0} == {1}",
    "erf": "erf({0})",
    "erfc": "erfc({0})",
    "exp": "np.exp({0})",
    "exp2": "np.exp2({0})",
    "expm1": "np.expm1({0})",
    "floor": "np.floor({0})",
    "ge": "{0} >= {1}",
    "gt": "{0} > {1}",
    "is_finite": "np.isfinite({0})",
    "le": "{0} <= {1}",
    "lgamma": "lgamma({0})",
    "log": "np.log({0})",
    "log1p": "np.log1p({0})",
    "logistic": "1 / (1 + np.exp(-{0}))",
    "lt": "{0} < {1}",
    "max": "np.maximum({0}, {1})",
    "min": "np.minimum({0}, {1})",
    "mul": "{0} * {1}",
    "ne": "{0} != {1}",
    "neg": "-{0}",
    "not": "~{0}",
    "or": "{0} | {1}",
    "pow": "{0} ** {1}",
    "rsqrt": "1 / np.sqrt({0})",
    "sign": "np.sign({0})",
    "sin": "np.sin({0})",
    "sinh": "np.sinh({0})",
    "sqrt": "np.sqrt({0})",
    "square": "np.square({0})",
    "sub": "{0} - {1}",
    "tan": "np.tan({0})",
    "tanh": "np.tanh({0})",
    "xor": "{0} ^ {1}",
}
REDUCTIONS = {"sum": "sum", "prod": "prod", "max": "max", "min": "min"}
REDUCTIONS |= {"and": "all", "or": "any"}
FROM_MATH = ("erf", "erfc", "lgamma")
"""Functions that NumPy lacks and the standard library has, for one number."""

PAGE = '''"""{title}

{text}
"""

import base64
{imports}
import numpy as np

{inputs}
def predict(x):
    """The answers for rows x of {width} inputs, by name."""
{named}    x = np.asarray(x, np.{dtype})
    if x.ndim != 2 or x.shape[1] != {width}:
        shape = list(x.shape)
        raise ValueError(f"x has shape {{shape}}; it should be rows of {width} inputs")
    starts = range(0, max(len(x), 1), {chunk})
    with np.errstate(all="ignore"):
        parts = [_some(x[start : start + {chunk}]) for start in starts]
    return {{name: np.concatenate([part[name] for part in parts]) for name in parts[0]}}


def _some(x):
{body}


def _array(dtype, shape, text):
    return np.frombuffer(base64.b64decode(text), dtype).reshape(shape)

{helpers}
{constants}
'''


NAMED = """    names = list(map(str, getattr(x, "columns", INPUTS)))
    if names != INPUTS:
        raise ValueError(f"x has the columns {names}; it should have {INPUTS}")
"""


def numpy_code(
    program: Program,
    title: str,
    text: str,
    inputs: Sequence[str] = (),
    columns: Sequence[dict[str, Any]] = (),
) -> str:
    """A module with a function `predict`, from rows x to a dict of arrays.

    If the inputs are made of `columns` of a table, `predict` takes that, too.
    """
    writer = _Writer(program)
    lines = writer.lines()
    kinds = {step.operation for step in program.steps}
    borrowed = [name for name in FROM_MATH if name in kinds]
    dtype = program.x.dtype.name
    helpers = [
        f"\n{name} = np.vectorize(math.{name}, otypes=[np.{dtype}])"
        for name in borrowed
    ]
    return PAGE.format(
        title=title,
        text=text,
        width=program.x.shape[1],
        dtype=dtype,
        chunk=max(16, 2 ** int(np.log2(ENTRIES / program.entries))),
        imports="import math\n" if borrowed else "",
        # Names are of any text: as a literal, and not in the words above.
        inputs=(f"\nINPUTS = {ascii(list(inputs))}\n\n" if inputs else "")
        + (encoding_code(columns) if columns else ""),
        named=ENCODED if columns else NAMED if inputs else "",
        body="\n".join("    " + line if line else "" for line in lines),
        helpers="".join(helpers),
        constants="\n".join(writer.definitions()),
    )


class _Writer:
    """Names, and lines of code.

    A name is used again once its value is not needed any more, which frees memory.
    """

    def __init__(self, program: Program):
        self.program = program
        self.names: dict[Variable, str] = {program.x: "x"}
        self.constants: dict[Constant, str] = {}
        self.uses = Counter(v for step in program.steps for v in step.inputs)
        self.ends = {value: key for key, value in reversed(program.outputs.items())}
        self.inlined: dict[Variable, str] = {}
        self.free: list[str] = []
        self.fresh = _letters()

    def lines(self) -> list[str]:
        steps, lines, origin = self.program.steps, [], ""
        dying: list[str] = []
        for step, after in itertools.zip_longest(steps, steps[1:]):
            right = self._expression(step)
            for value in step.inputs:
                self.uses[value] -= 1
                if self._is_spent(value):
                    dying.append(self.names.pop(value))
            if self._fits_in(step, after, right):
                self.inlined[step.output] = right
                continue
            if step.origin != origin:
                origin = step.origin
                lines += ["", f"# {origin}"] if origin else [""]
            self.free += [name for name in dying if name != "x"]
            dying = []
            self.names[step.output] = name = self._name(step.output)
            lines.append(f"{name} = {right}")
        if any(re.search(r"\brows\b", line) for line in lines):
            lines.insert(0, "rows = len(x)")
        outputs = self.program.outputs.items()
        answers = [f'    "{key}": {self._read(value)},' for key, value in outputs]
        return [*lines, "", "return {", *answers, "}"]

    def definitions(self) -> Iterator[str]:
        for constant, name in self.constants.items():
            array = np.ascontiguousarray(constant.array)
            kind = array.dtype.newbyteorder("<")
            text = base64.b64encode(array.astype(kind).tobytes()).decode()
            yield f'{name} = _array("{kind.str}", {array.shape}, "{text}")'

    def _is_spent(self, value: Value) -> bool:
        is_named = isinstance(value, Variable) and value in self.names
        return is_named and not self.uses[value] and value not in self.ends

    def _fits_in(self, step: Step, after: Step | None, right: str) -> bool:
        """Whether it is short, and used once, right after."""
        output = step.output
        is_next = after is not None and after.inputs.count(output) == 1
        is_short = len(right) <= WIDTH // 2 and after and after.operation in BY_ELEMENT
        is_alone = self.uses[output] == 1 and output not in self.ends
        return bool(is_next and is_short and is_alone)

    def _name(self, output: Variable) -> str:
        if output in self.ends:
            return self.ends[output]
        return self.free.pop() if self.free else next(self.fresh)

    def _expression(self, step: Step) -> str:
        if step.operation in BY_ELEMENT:
            form = BY_ELEMENT[step.operation]
            is_call = form.startswith("np.")
            names = [self._read(value, is_call) for value in step.inputs]
            return form.format(*names)
        names = list(map(self._read, step.inputs))
        if step.operation.startswith("reduce_"):
            return _reduction(step, names)
        if step.operation not in STRUCTURAL:
            raise refused(step.operation, "NumPy code")
        return STRUCTURAL[step.operation](step, names)

    def _read(self, value: Value, is_argument: bool = False) -> str:
        if isinstance(value, Variable):
            if value not in self.inlined:
                return self.names[value]
            right = self.inlined.pop(value)
            is_whole = re.fullmatch(r"[\w.]+(\([^()]*\)|\[[^][]*\])", right)
            return right if is_argument or is_whole else f"({right})"
        if value.shape == ():
            return _literal(value.array)
        if value not in self.constants:
            taken = {*self.constants.values(), *self.program.outputs}
            number = sum(not constant.name for constant in self.constants)
            base = value.name or f"constant_{number + 1}"
            more = (f"{base}_{i}" for i in itertools.count(2))
            choices = itertools.chain([base], more)
            self.constants[value] = next(c for c in choices if c not in taken)
        return self.constants[value]


def _letters() -> Iterator[str]:
    letters = "abcdefghijkmnpqrstuvwyz"
    return iter([*letters, *(f"{x}{i}" for i in range(1, 100) for x in letters)])


def _literal(array: np.ndarray) -> str:
    if np.isnan(array) if array.dtype.kind == "f" else False:
        return "np.nan"
    text = repr(array.item()) if array.dtype != np.float32 else str(array[()])
    return text.replace("inf", "np.inf")


def _typed(value: Value, name: str) -> str:
    """A number of its own type where it would else be of NumPy's default."""
    return f"np.{value.dtype.name}({name})" if value.shape == () else name


def _sizes(shape: Any) -> str:
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"


def _reduction(step: Step, names: list[str]) -> str:
    kind = REDUCTIONS.get(step.operation.removeprefix("reduce_"))
    if kind is None:
        raise refused(step.operation, "NumPy code")
    axes = step.settings["axes"]
    axis = axes[0] if len(axes) == 1 else axes
    return f"{names[0]}.{kind}({axis})"


def _dot(step: Step, names: list[str]) -> str:
    """A product of matrices wherever it is one: a sum of products takes far longer."""
    left, right, result = step.settings["sums"]
    a, b = names
    batch = [x for x in left if x in right and x in result]
    summed = [x for x in left if x in right and x not in result]
    if not batch and len(summed) == 1 and len(right) <= 2:
        (k,) = summed
        if len(left) <= 2 or left[-1] == k:
            a = a if left[-1] == k else f"{a}.T"
            return f"{a} @ {b}" if right[0] == k else f"{a} @ {b}.T"
    if not batch:
        axes = [[letters.index(k) for k in summed] for letters in (left, right)]
        return f"np.tensordot({a}, {b}, {axes})"
    rows = [x for x in left if x not in right]
    columns = [x for x in right if x not in left]
    if len(rows) == len(summed) == len(columns) == 1:
        a = _moved(a, left, [*batch, *rows, *summed])
        b = _moved(b, right, [*batch, *summed, *columns])
        return f"{a} @ {b}"
    return f'np.einsum("{left},{right}->{result}", {a}, {b})'


def _moved(name: str, letters: str, order: list[str]) -> str:
    axes = tuple(map(letters.index, order))
    return name if axes == tuple(sorted(axes)) else f"{name}.transpose{axes}"


def _expand(step: Step, names: list[str]) -> str:
    axes, rank = step.settings["axes"], len(step.output.shape)
    places = ["None" if axis in axes else ":" for axis in range(rank)]
    return f"{names[0]}[{', '.join(places)}]"


def _broadcast(step: Step, names: list[str]) -> str:
    name = _typed(step.inputs[0], names[0])
    return f"np.broadcast_to({name}, {_sizes(step.output.shape)})"


def _reshape(step: Step, names: list[str]) -> str:
    shape = [n if isinstance(n, int) else -1 for n in step.output.shape]
    return f"{names[0]}.reshape({_sizes(shape)})"


def _select(step: Step, names: list[str]) -> str:
    which, *cases = step.inputs
    if which.dtype != bool or len(cases) != 2:
        raise refused("select_n of more than two cases", "NumPy code")
    if all(case.shape == () for case in cases):
        names = [names[0], *map(_typed, cases, names[1:])]
    return f"np.where({names[0]}, {names[2]}, {names[1]})"


def _slice(step: Step, names: list[str]) -> str:
    limits = zip(
        step.settings["start"],
        step.settings["end"],
        step.settings["stride"],
        step.inputs[0].shape,
        strict=True,
    )
    parts = [
        ":" if (low, high, by) == (0, size, 1) else f"{low}:{high}:{by}"
        for low, high, by, size in limits
    ]
    return f"{names[0]}[{', '.join(part.removesuffix(':1') for part in parts)}]"


def _squeeze(step: Step, names: list[str]) -> str:
    axes, rank = step.settings["axes"], len(step.inputs[0].shape)
    places = ["0" if axis in axes else ":" for axis in range(rank)]
    return f"{names[0]}[{', '.join(places)}]"


def _take(step: Step, names: list[str]) -> str:
    return f"np.take({names[0]}, {names[1]}[..., 0], {step.settings['axis']})"


def _power(step: Step, names: list[str]) -> str:
    return f"{names[0]} ** {step.settings['y']}"


STRUCTURAL: dict[str, Callable[[Step, list[str]], str]] = {
    "argmax": lambda step, names: f"np.argmax({names[0]}, {step.settings['axes'][0]})",
    "broadcast": _broadcast,
    "concatenate": lambda step, names: (
        f"np.concatenate([{', '.join(names)}], {step.settings['dimension']})"
    ),
    "convert_element_type": lambda step, names: (
        f"{names[0]}.astype(np.{step.output.dtype.name})"
    ),
    "cumsum": lambda step, names: f"np.cumsum({names[0]}, {step.settings['axis']})",
    "dot_general": _dot,
    "expand": _expand,
    "gather": _take,
    "integer_pow": _power,
    "look_up": lambda step, names: f"{names[0]}[{names[1]}]",
    "reshape": _reshape,
    "rev": lambda step, names: f"np.flip({names[0]}, {step.settings['dimensions']})",
    "select_n": _select,
    "slice": _slice,
    "squeeze": _squeeze,
    "stack": lambda step, names: (
        f"np.stack([{', '.join(names)}], {step.settings['axis']})"
    ),
    "transpose": lambda step, names: (
        f"{names[0]}.transpose({_sizes(step.settings['permutation'])})"
    ),
}
