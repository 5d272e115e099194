"""A model is loaded as it was saved, and from a bad file not at all."""

import copy
import dataclasses
import hashlib
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from natgrad import _codec as codec, _container as container, linalg
from natgrad.errors import CorruptFileError, IncompatibleFileError, InputError
from natgrad.families import gaussian
from natgrad.families.gaussian import Canonical, Moments
from natgrad.gp import SparseGP, kernels, likelihoods, means
from natgrad.gp._files import CLASSES, FORMAT, load, save
from natgrad.gp.likelihoods._discrete import AbstractEdges
from natgrad.linalg import Full, Log, Sqrt
from tests import test_container
from tests.gp.kernels import CASES
from tests.gp.likelihoods import LIKELIHOODS, OURS as TESTED
from tests.points import EXTENSIONS
from tests.references.models import make
from tests.test_container import REFUSED, block, sealed
from tests.variants import variants


# A model has no columns of a row, such as trials.
OURS = [name for name in TESTED if not name.startswith("Binomial(9")]
RNG = np.random.default_rng(0)
INDUCING = RNG.normal(size=(4, 3))
STORED = Path(make.__file__).parent
COORDINATES = [(s, m) for s in (Moments, Canonical) for m in (Full, Sqrt, Log)]
CUSTOM = {
    name: kind
    for name, kind in EXTENSIONS.items()
    if isinstance(kind, type) and issubclass(kind, eqx.Module)
}
MEANS = [means.Zero(), means.Constant(0.3), means.Linear([0.1, 0.2, 0.3], 1.0)]


def posterior(latents, side, storage, dtype=float):
    shape = (4,) if latents is None else (latents, 4)
    root = np.tril(RNG.normal(size=(*shape, 4)) / 4)
    value = root + np.swapaxes(root, -1, -2)
    value = {Full: value + 3 * np.eye(4), Sqrt: root + np.eye(4), Log: value}[storage]
    mean = jnp.asarray(RNG.normal(size=shape), dtype)
    return side(mean, storage(jnp.asarray(value, dtype)))


def model(kernel, likelihood, coordinates=COORDINATES[0], mean=None, whitened=True):
    q = posterior(likelihood.latents, *coordinates)
    return SparseGP(kernel, likelihood, INDUCING, q, mean, whitened)


def models(likelihoods_of):
    """Kernels, each in all coordinates, with some of the likelihoods."""
    own = {name: case.kernel for name, case in CASES.items()}
    own["separate"] = kernels.Separate([kernels.RBF(), kernels.Matern12(), own["sum"]])
    for i, (name, kernel) in enumerate(own.items()):
        for j, at in enumerate(COORDINATES):
            names = ["RobustMax(3)"] if name == "separate" else likelihoods_of(i + j)
            for other in names:
                likelihood = LIKELIHOODS[other][0]
                yield model(kernel, likelihood, at, MEANS[i % 3], (i + j) % 2 == 0)


def assert_same(one, other):
    """Bit for bit, and of the same classes."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert a.dtype == b.dtype and not b.weak_type
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.parametrize("kind", variants(["some", "pairs", "all"], ["some"]))
def test_what_is_loaded_is_what_was_saved(kind, tmp_path):
    # Over the kernels, each likelihood is in all coordinates, too.
    likelihoods_of = lambda i: OURS if kind == "all" else [OURS[i % len(OURS)]]
    step = 5 if kind == "some" else 1  # each kernel, with some coordinates
    path = tmp_path / "model"
    for one in itertools.islice(models(likelihoods_of), 0, None, step):
        save(one, path)
        assert_same(one, load(path, custom=CUSTOM))


def test_the_same_model_gives_the_same_bytes(tmp_path):
    one = model(kernels.RBF(), likelihoods.StudentT())
    FORMAT.write(tmp_path / "a", one, {"b": 1, "a": 2})
    FORMAT.write(tmp_path / "b", load(tmp_path / "a"), {"a": 2, "b": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_float32_is_kept_and_float64_needs_64_bits(tmp_path):
    kernel = kernels.RBF(np.float32(0.5), np.float32(2))
    likelihood = likelihoods.Gaussian(np.float32(0.1))
    q = posterior(None, Moments, Sqrt, jnp.float32)
    single = SparseGP(kernel, likelihood, np.float32(INDUCING), q)
    save(single, tmp_path / "single")
    save(model(kernels.RBF(), likelihood), tmp_path / "double")
    with jax.enable_x64(False):
        assert_same(single, load(tmp_path / "single"))
        with pytest.raises(IncompatibleFileError, match="jax_enable_x64"):
            load(tmp_path / "double")


@pytest.mark.parametrize("name", make.models())
def test_stored_files_are_read_and_predict_the_same(name, tmp_path):
    path = STORED / f"{name}.natgrad"
    stored = np.load(STORED / "predictions.npz")
    one = load(path)
    assert_same(make.models()[name], one)
    assert FORMAT.read_metadata(path) == make.METADATA
    with jax.numpy_rank_promotion("allow"):
        answers = make.predictions(one, stored["x"])
    limit = 1e-5 if name.endswith("float32") else 1e-12
    for i, answer in enumerate(answers):
        expected = stored[f"{name}.{i}"]
        np.testing.assert_allclose(answer, expected, rtol=limit, atol=limit)


def test_every_class_is_in_the_list_or_cannot_be_saved():
    bases = (
        kernels.AbstractKernel,
        likelihoods.AbstractLikelihood,
        AbstractEdges,
        means.AbstractMean,
        gaussian.AbstractGaussian,
        linalg.AbstractPositiveDefinite,
    )

    def below(kind):
        return {kind}.union(*(below(sub) for sub in kind.__subclasses__()))

    ours = {k for base in bases for k in below(base) if "natgrad." in k.__module__}
    final = {k for k in ours if not k.__name__.startswith(("Abstract", "_"))}
    left_out = {k.__name__ for k in final - set(CLASSES.values())}
    # Equinox makes a class of the same name while an object is made.
    foreign = {"FromFunction", "FromDistribution"}
    assert left_out - {k.__name__ for k in CLASSES.values()} == foreign
    for kind in CLASSES.values():
        assert codec.hints_of(kind).keys() >= {f.name for f in dataclasses.fields(kind)}


class Own(kernels.AbstractKernel):
    """A user's kernel, of fields of every kind."""

    inner: kernels.AbstractKernel
    weights: jax.Array
    power: Any = eqx.field(static=True)
    name: str = eqx.field(static=True)

    def __call__(self, x, z):
        return self.weights.sum() * self.inner(x, z) ** self.power

    def __check_init__(self):
        if isinstance(self.power, float) and self.power < 0:
            raise RuntimeError("power is negative")


def own(power: Any = 2.0):
    return Own(kernels.RBF(), jnp.asarray([1, 2]), power, "mine")


def test_a_class_of_ones_own_is_loaded_where_it_is_given(tmp_path):
    path = tmp_path / "model"
    one = model(own() + kernels.RBF(), likelihoods.Gaussian())
    save(one, path)
    assert_same(one, load(path, custom={"Own": Own}))
    with pytest.raises(IncompatibleFileError, match="custom={'Own': ...}"):
        load(path)
    with pytest.raises(InputError, match="equinox module"):
        load(path, custom={"Own": int})
    document, arrays = container.read(path)
    for power, message in (
        (-1.0, "is negative"),
        ({"class": "means.Zero"}, "not take"),
    ):
        document["model"]["kernel"]["first"]["power"] = power
        container.write(path, document, arrays)
        with pytest.raises(CorruptFileError, match=message):
            load(path, custom={"Own": Own})


def test_what_cannot_be_saved_is_said(tmp_path, monkeypatch):
    gaussians = likelihoods.Gaussian()
    foreign = kernels.FromFunction(jnp.dot)
    twin = type("Own", (Own,), {"__annotations__": {}, "__module__": __name__})
    both = own() + twin(kernels.RBF(), jnp.ones(2), 1.0, "other")
    keyed = Own(kernels.RBF(), jax.random.key(0), 1.0, "mine")
    good = model(kernels.RBF(), gaussians)
    singular = eqx.tree_at(lambda m: m.posterior.cov.full, good, jnp.zeros((4, 4)))
    lost = eqx.tree_at(lambda m: m.inducing, good, jnp.full((4, 3), jnp.nan))
    prior = dataclasses.replace(good, log_prior=lambda m: m.kernel.variance)
    cases = [
        (prior, r"dataclasses.replace\(model, log_prior=None\)"),
        (model(foreign, gaussians), "AbstractKernel of your own"),
        (model(kernels.RBF(), LIKELIHOODS["FromDistribution"][0]), "of your own"),
        (model(both, gaussians), "both called Own"),
        (model(keyed, gaussians), "not of numbers"),
        (model(own(power=print), gaussians), "the function print, and a function"),
        (singular, "positive definite"),
        (lost, "not finite"),
        (model(kernels.RBF(), gaussians, mean=means.Constant([0, 1])), "one latent"),
    ]
    for one, message in cases:
        with pytest.raises(InputError, match=message):
            save(one, tmp_path / "model")
    with pytest.raises(InputError, match="JSON"):
        FORMAT.write(tmp_path / "model", good, {"a": np.zeros(2)})
    monkeypatch.setattr(codec, "MAX_PARTS", 5)
    with pytest.raises(InputError, match="its model has 6 parts"):
        save(good, tmp_path / "model")
    monkeypatch.undo()
    assert not list(tmp_path.iterdir())
    save(dataclasses.replace(prior, log_prior=None), tmp_path / "model")


def test_every_flipped_bit_is_noticed(tmp_path):
    good = (STORED / "regression.natgrad").read_bytes()
    path = tmp_path / "model"
    for bit in np.random.default_rng(1).choice(8 * len(good), 1000, replace=False):
        data = bytearray(good)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        with pytest.raises(REFUSED):
            load(path)


def test_a_hash_from_elsewhere_is_demanded():
    path = STORED / "regression.natgrad"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert isinstance(load(path, expect_sha256=digest), SparseGP)
    with pytest.raises(CorruptFileError, match="its SHA-256 is"):
        load(path, expect_sha256=digest[::-1])


@pytest.mark.parametrize("version", [0, 1, 3, True, 2.0, "2", None])
def test_a_file_of_another_version_is_refused(version, tmp_path):
    path = tmp_path / "model"
    save(model(kernels.RBF(), likelihoods.Gaussian()), path)
    document, arrays = container.read(path)
    container.write(path, document | {"version": version}, arrays)
    with pytest.raises(IncompatibleFileError, match="not a model of version 2"):
        load(path)


# Files with the right hash and a wrong model. Each change is a place and a value.

HOSTILE = {
    "an unknown kernel": ("model.kernel.class", "kernels.Unknown"),
    "a function as a class": ("model.kernel.class", "os.system"),
    "a dunder as a class": ("model.kernel.class", "__class__"),
    "an abstract class": ("model.kernel.class", "kernels.AbstractKernel"),
    "a class that is a list": ("model.kernel.class", ["kernels.Sum"]),
    "a class that is long": ("model.kernel.class", "a" * 10**6),
    "a class no one gave": ("model.kernel.class", "custom.Mine"),
    "a class of another kind": ("model.kernel", {"class": "means.Zero"}),
    "a model that is a kernel": ("model", {"class": "means.Zero"}),
    "no model": ("model", None),
    "a field that is missing": ("model.likelihood", {"class": "likelihoods.StudentT"}),
    "a dunder as a field": ("model.kernel.__class__", "os.system"),
    "a function as the prior": ("model.log_prior", "os.system"),
    "a class as the prior": ("model.log_prior", {"class": "means.Zero"}),
    "a number as a flag": ("model.is_whitened", 1),
    "text as a number": ("model.likelihood.nodes", "20"),
    "a flag as a number": ("model.likelihood.nodes", True),
    "a billion nodes": ("model.likelihood.nodes", 10**9),
    "no nodes": ("model.likelihood.nodes", 0),
    "a negative number": ("model.likelihood.dof", -1.0),
    "a list as a number": ("model.likelihood.dof", [3.0]),
    "an array as a number": ("model.likelihood.dof", {"dtype": "float64", "shape": []}),
    "a number as an array": ("model.likelihood.log_scale", 0.3),
    "columns twice": ("model.kernel.first.columns", [0, 0]),
    "columns beyond": ("model.kernel.first.columns", [0, 3]),
    "columns of a huge number": ("model.kernel.first.columns", [0, 2**60]),
    "columns of lists": ("model.kernel.first.columns", [[0], [1]]),
    "a shape that is not so": ("model.inducing.shape", [2, 6]),
    "a type that is not so": ("model.inducing.dtype", "float32"),
    "a type that is code": ("model.inducing.dtype", "O"),
    "an array under a path": ("model.inducing.name", "../../etc/passwd"),
    "another schema": ("schema", "natgrad.other"),
    "a newer version": ("version", 3),
    "an older version": ("version", 1),
    "version zero": ("version", 0),
    "more than there is": ("hook", "os.system"),
    "metadata that is a list": ("metadata", []),
}
# A name of an array, and another array in its place.
HOSTILE_ARRAYS = {
    "an array too many": ("../../etc/passwd", np.zeros(2)),
    "an array that is missing": ("model.inducing", None),
    "NaN": ("model.inducing", np.full((4, 3), np.nan)),
    "a covariance not definite": ("model.posterior.cov.full", -np.eye(4)),
    "a covariance of zero": ("model.posterior.cov.full", np.zeros((4, 4))),
    "a covariance of 3 by 3": ("model.posterior.cov.full", np.eye(3)),
    "a covariance on a line": ("model.posterior.cov.full", np.ones(16)),
    "a mean of 3": ("model.posterior.mean", np.zeros(3)),
    "a mean of two latents": ("model.posterior.mean", np.zeros((2, 4))),
    "inputs on a line": ("model.inducing", np.zeros(12)),
    "inputs of whole numbers": ("model.inducing", np.arange(12).reshape(4, 3)),
    "a covariance of 16 bits": ("model.posterior.cov.full", np.eye(4, dtype="f2")),
    "inputs of 16 bits": ("model.inducing", np.ones((4, 3), np.float16)),
    "lengthscales for 3 of 2": (
        "model.kernel.first.kernel.log_lengthscale",
        np.ones(3),
    ),
    "a list of variances": ("model.kernel.second.log_variance", np.ones(3)),
    "an infinite lengthscale": (
        "model.kernel.second.log_lengthscale",
        np.asarray(800.0),
    ),
    "a lengthscale of zero": (
        "model.kernel.second.log_lengthscale",
        np.asarray(-800.0),
    ),
    "a slope for 2 of 3": ("model.mean.slope", np.ones(2)),
    "slopes of two latents": ("model.mean.slope", np.ones((2, 3))),
}


def base():
    inner = kernels.OnInputs(kernels.Matern52([0.7, 1.9]), (2, 0))
    return model(inner + kernels.RBF(), likelihoods.StudentT(), mean=MEANS[2])


def described(node, where, arrays):
    """The document made to agree with its arrays, to see what comes after."""
    if isinstance(node, dict) and "class" not in node and where in arrays:
        array = arrays[where]
        return {"dtype": array.dtype.name, "shape": list(array.shape)}
    if isinstance(node, dict):
        return {k: described(v, f"{where}.{k}", arrays) for k, v in node.items()}
    return node


def write_hostile(folder):
    save(base(), folder / "good")
    document, arrays = container.read(folder / "good")
    arrays_of_good = safetensors.numpy.save(arrays)
    for name, (place, value) in HOSTILE.items():
        changed = copy.deepcopy(document)
        *outer, last = place.split(".")
        node = changed
        for key in outer:
            node = node[key]
        node[last] = value
        (folder / name).write_bytes(sealed(changed, arrays_of_good))
    for name, (place, value) in HOSTILE_ARRAYS.items():
        others = {k: v for k, v in arrays.items() if k != place}
        others |= {} if value is None else {place: value}
        model = described(document["model"], "model", others)
        container.write(folder / name, document | {"model": model}, others)
    for name, data in test_container.HOSTILE.items():
        (folder / name).write_bytes(data)
    (folder / "no arrays of a model").write_bytes(sealed(document, block(b"{}")))


CHILD = """
import json, sys, time
from pathlib import Path
import jax
jax.config.update("jax_enable_x64", True)
from natgrad.gp._files import load

def memory(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(key))

folder = Path(sys.argv[1])
load(folder / "good")
modules, found = set(sys.modules), {}
for path in sorted(folder.iterdir()):
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before, start = memory("VmRSS"), time.process_time()
    try:
        error = type(load(path)).__name__
        message = ""
    except Exception as e:
        error, message = type(e).__name__, str(e)
    took = time.process_time() - start
    found[path.name] = error, message, took, memory("VmHWM") - before
print(json.dumps([found, sorted(set(sys.modules) - modules)]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_hostile_files_are_refused_at_once_and_run_nothing(tmp_path):
    write_hostile(tmp_path)
    run = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path)], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-2000:]
    found, modules = json.loads(run.stdout)
    assert found.pop("good")[0] == "SparseGP"
    assert len(found) >= 60 and not modules
    for name, (error, message, seconds, megabytes) in found.items():
        assert error in ("CorruptFileError", "IncompatibleFileError"), (name, error)
        assert message.startswith(str(tmp_path)) and len(message) < 600, message
        assert seconds < 1 and megabytes < 100, (name, seconds, megabytes)
    assert not Path(test_container.MARK).exists()
