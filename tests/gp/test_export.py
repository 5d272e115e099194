"""Exported predictions are the predictor's own, where there is no natgrad to import."""

import functools
import operator
import re
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

from natgrad import gp
from natgrad._export.program import ELEMENTWISE, program_of
from natgrad.errors import InputError
from natgrad.gp import SparseGP, kernels, likelihoods, means
from natgrad.gp._export import by_row, model_answers, to_onnx, to_stablehlo
from tests.gp.kernels import CASES, assert_close
from tests.gp.likelihoods import LIKELIHOODS


RNG = np.random.default_rng(5)
INDUCING, X = RNG.normal(size=(3, 3)), RNG.normal(size=(37, 3))
SLOPES = RNG.normal(size=(2, 3))
PAIR = likelihoods.HeteroskedasticGaussian()
SINGLE = jnp.asarray(0.8, jnp.float32)

# As sums, which show an error in any term.
ONE = [name for name in CASES if name.endswith(".one")]
EACH = [name for name in CASES if name not in ONE]


def total(names):
    return functools.reduce(operator.add, (CASES[name].kernel for name in names))


def of_likelihood(name):
    mean = means.Constant(0.1)
    return SparseGP(kernels.RBF(0.9), LIKELIHOODS[name].likelihood, INDUCING, mean=mean)


MODELS = {
    "kernels, each": lambda: SparseGP(total(EACH), likelihoods.Gaussian(0.1), INDUCING),
    "kernels, one": lambda: SparseGP(
        total(ONE),
        likelihoods.Gaussian(0.1),
        INDUCING,
        mean=means.Linear(SLOPES[0], 0.3),
        is_whitened=False,
    ),
    "separate": lambda: SparseGP(
        kernels.Separate([kernels.RBF(0.9), kernels.RBF(2.0)]),
        PAIR,
        INDUCING,
        mean=means.Linear(SLOPES),
    ),
    "separate, of two kinds": lambda: SparseGP(
        kernels.Separate([kernels.RBF(0.9), kernels.Linear(2.0)]), PAIR, INDUCING
    ),
    "float32": lambda: SparseGP(
        kernels.Matern52(SINGLE, SINGLE),
        likelihoods.Bernoulli(),
        jnp.asarray(INDUCING, jnp.float32),
    ),
} | {name: functools.partial(of_likelihood, name) for name in LIKELIHOODS}

# One of each way in which likelihoods are averaged, and all kernels.
COMMON = ["kernels, each", "kernels, one", "separate", "float32"]
COMMON += ["Bernoulli(logit)", "Ordinal", "RobustMax(3)"]
GROUPS = {"common": COMMON, "rest": [name for name in MODELS if name not in COMMON]}
WRITERS = {"stablehlo": to_stablehlo, "onnx": to_onnx}

READERS = {
    "stablehlo": """
import jax
jax.config.update("jax_enable_x64", True)
def read(path):
    return jax.export.deserialize(bytearray(open(path, "rb").read())).call
""",
    "onnx": """
import onnxruntime
sys.modules |= {"jax": None, "onnx": None}
def read(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options)
    names = [output.name for output in session.get_outputs()]
    return lambda x: dict(zip(names, session.run(names, {"x": x})))
""",
}
SCRIPT = """
import sys
import numpy as np
sys.modules |= {"natgrad": None, "equinox": None}
%s
folder, *sizes = sys.argv[1:]
for case in np.load(f"{folder}/cases.npy"):
    predict = read(f"{folder}/{case}.out")
    x = np.load(f"{folder}/{case}.npy")
    for size in map(int, sizes):
        np.savez(f"{folder}/{case}.{size}.npz", **predict(x[:size]))
"""


def predictor_of(model):
    """Of a posterior that is not the prior."""
    q, rng = model.posterior, np.random.default_rng(6)
    root = 0.3 * np.tril(rng.normal(size=q.cov.root.shape)) + 0.5 * np.eye(3)
    new = [jnp.asarray(a, q.mean.dtype) for a in (rng.normal(size=q.mean.shape), root)]
    where = lambda model: (model.posterior.mean, model.posterior.cov.root)
    return gp.predictor(eqx.tree_at(where, model, tuple(new)))


@pytest.fixture(
    scope="module", params=["common", pytest.param("rest", marks=pytest.mark.nightly)]
)
def predictors(request):
    """By name, each with its own answers for all of X."""
    cases = {}
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        for name in GROUPS[request.param]:
            predictor = predictor_of(MODELS[name]())
            answers = dict(
                zip(
                    ["latent_mean", "latent_variance"], predictor.latent(X), strict=True
                )
            )
            for keys, method in {
                ("mean", "variance"): predictor.predict,
                ("probabilities",): lambda x, p=predictor: [p.probabilities(x)],
            }.items():
                try:
                    answers |= dict(zip(keys, method(X), strict=True))
                except NotImplementedError:
                    continue
            cases[name] = predictor, answers
    return cases


@pytest.mark.parametrize("form", WRITERS)
def test_what_is_exported_predicts_as_the_predictor(form, predictors, tmp_path):
    if form == "onnx":
        pytest.importorskip("onnxruntime")
    np.save(tmp_path / "cases.npy", list(predictors))
    for name, (predictor, _) in predictors.items():
        WRITERS[form](predictor, tmp_path / f"{name}.out")
        np.save(tmp_path / f"{name}.npy", X.astype(predictor.weights.dtype))
    script = SCRIPT % READERS[form]
    command = [sys.executable, "-c", script, str(tmp_path), "1", "37"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]
    for name, (predictor, answers) in predictors.items():
        dtype = predictor.weights.dtype
        rtol = 1e-12 if dtype == np.float64 else 1e-5
        for size in (1, 37):
            got = dict(np.load(tmp_path / f"{name}.{size}.npz"))
            assert set(got) == set(answers), name
            for key, value in answers.items():
                assert got[key].dtype == dtype and len(got[key]) == size, (name, key)
                assert_close(got[key], value[:size], rtol)


def test_stablehlo_calls_no_library_and_runs_on_all_platforms(predictors, tmp_path):
    for predictor, _ in predictors.values():
        to_stablehlo(predictor, tmp_path / "model")
        exported = export.deserialize(bytearray((tmp_path / "model").read_bytes()))
        called = re.findall(r"custom_call @(\w+)", exported.mlir_module())
        assert set(called) <= {"shape_assertion"}  # that there are rows
        assert exported.platforms == ("cpu", "cuda", "tpu")


def onnx_predict(program):
    runtime = pytest.importorskip("onnxruntime")
    from natgrad._export.onnx_graph import onnx_model

    model = onnx_model(program, "", "").SerializeToString()
    session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda x: dict(zip(names, session.run(names, {"x": x}), strict=True))


BINARY = {"add": lax.add, "div": lax.div, "max": lax.max, "min": lax.min}
BINARY |= {"mul": lax.mul, "pow": lax.pow, "sub": lax.sub}
COMPARED = {"eq": lax.eq, "ge": lax.ge, "gt": lax.gt, "le": lax.le, "lt": lax.lt}
COMPARED |= {"ne": lax.ne}
LOGICAL = {"and": lax.bitwise_and, "or": lax.bitwise_or, "xor": lax.bitwise_xor}
IN_32_BITS = {"acos", "asin", "cosh", "erf", "sinh"}
NOT_UNARY = {*BINARY, *COMPARED, *LOGICAL, "clamp", "convert_element_type"}
NOT_UNARY |= {"integer_pow", "is_finite", "not", "select_n"}
UNARY = sorted(ELEMENTWISE - NOT_UNARY)


def each_operation(arrays, x):
    """All operations there are, of positive numbers in the columns of x."""
    unary = [name for name in UNARY if x.dtype == np.float32 or name not in IN_32_BITS]

    def at(row):
        a, b = row[0], row[1]
        yes, no = a > b, lax.is_finite(b - a)
        domain = {"acos": a / 4, "asin": a / 4}
        answers = {name: getattr(lax, name)(domain.get(name, a)) for name in unary}
        answers |= {name: op(a, b) for name, op in BINARY.items()}
        flags = {name: op(a, b) for name, op in COMPARED.items()}
        flags |= {name: op(yes, no) for name, op in LOGICAL.items()}
        flags |= {"not": ~yes, "is_finite": no}
        shape = {
            "argmax": jnp.argmax(row).astype(x.dtype),
            "clamp": lax.clamp(jnp.asarray(0.5, x.dtype), a, jnp.asarray(1.5, x.dtype)),
            "cumsum": jnp.cumsum(row)[2],
            "filled": jnp.exp(jnp.broadcast_to(a, (4,))).sum(),
            "outer": row[:, None] @ row[None, :],
            "power": a**5 + b**-3,
            "products": jnp.einsum("i,j,k->", row, row, row),
            "reduced": row.max() + row.min() + row.prod(),
            "reshaped": jnp.stack([row, row]).reshape(3, 2)[::2, 1],
            "split": jnp.concatenate(jnp.split(row, 3)[::-1]),
            "taken": row[jnp.asarray([2, 0])],
            "two_numbers": jnp.where(yes, 1.0, 2.0),
        }
        answers |= shape | {key: flag.astype(x.dtype) for key, flag in flags.items()}
        return {f"of_{key}": value for key, value in answers.items()}

    return jax.vmap(at)(x)


@pytest.mark.parametrize("dtype, rtol", [("float64", 1e-13), ("float32", 1e-5)])
def test_every_operation_is_that_of_jax(dtype, rtol):
    x = (np.abs(X) + 0.05).astype(dtype)
    want = jax.jit(lambda x: each_operation((), x))(jnp.asarray(x))
    got = onnx_predict(program_of(each_operation, (), 3, x.dtype))(x)
    assert set(got) == set(want)
    for key in want:
        assert_close(got[key], want[key], rtol)


def test_functions_that_onnx_lacks_keep_their_digits_everywhere():
    powers = np.logspace(-300, 300, 121)
    x = np.concatenate([powers, -powers, [0.0, np.inf, -np.inf, 709.0, -0.5, 50.0]])
    functions = {"log1p": jnp.log1p, "expm1": jnp.expm1, "logistic": jax.nn.sigmoid}
    functions |= {"atan": jnp.arctan}
    of_rows = lambda arrays, x: {k: f(x[:, 0]) for k, f in functions.items()}
    got = onnx_predict(program_of(of_rows, (), 1, x.dtype))(x[:, None])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(got["log1p"], np.log1p(x), rtol=1e-14)
        np.testing.assert_allclose(got["expm1"], np.expm1(x), rtol=1e-14)
        np.testing.assert_allclose(got["atan"], np.arctan(x), rtol=1e-14)
        np.testing.assert_allclose(got["logistic"], 1 / (1 + np.exp(-x)), rtol=1e-14)


def test_an_operation_that_cannot_be_written_is_named(tmp_path):
    def model(function):
        kernel = kernels.FromFunction(lambda a, b: function(a) @ function(b))
        return gp.predictor(SparseGP(kernel, likelihoods.Gaussian(0.1), INDUCING))

    path = tmp_path / "model"
    with pytest.raises(InputError, match="digamma,.* ONNX"):
        to_onnx(model(lambda x: lax.digamma(x**2 + 1)), path)
    with pytest.raises(InputError, match="erf,.* ONNX in 64 bits"):
        to_onnx(model(lax.erf), path)
    assert not path.exists()


def test_no_array_is_of_rows_by_inducing_by_inputs():
    predictor = predictor_of(of_likelihood("Gaussian"))
    answers = lambda _, x: by_row(model_answers)(predictor, x)
    program = program_of(answers, (), INDUCING.shape[1], X.dtype)
    shapes = [step.output.shape for step in program.steps]
    sizes = [[n for n in shape if isinstance(n, int)] for shape in shapes]
    assert max(map(np.prod, sizes)) == len(INDUCING)
