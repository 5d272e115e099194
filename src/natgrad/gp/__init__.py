"""Sparse Gaussian processes, a client of the core."""

from natgrad.gp import (
    inducing as inducing,
    kernels as kernels,
    likelihoods as likelihoods,
    means as means,
)
from natgrad.gp.export import (
    to_numpy as to_numpy,
    to_onnx as to_onnx,
    to_stablehlo as to_stablehlo,
)
from natgrad.gp.files import (
    load as load,
    read_metadata as read_metadata,
    save as save,
)
from natgrad.gp.fit import fit as fit, fixed_hyperparameters as fixed_hyperparameters
from natgrad.gp.foreign import as_kernel as as_kernel
from natgrad.gp.paths import Paths as Paths, draw_paths as draw_paths
from natgrad.gp.prediction import Predictor as Predictor, condition as condition
from natgrad.gp.sites import (
    Sites as Sites,
    dual_elbo as dual_elbo,
    sites_of as sites_of,
    with_sites as with_sites,
)
from natgrad.gp.sparse import (
    SparseGP as SparseGP,
    elbo as elbo,
)
from natgrad.gp.start import start as start
from natgrad.gp.steps import (
    alternating as alternating,
)
