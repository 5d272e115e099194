"""Forty mistakes that a person could make in natgrad, over all of its layers.

They were chosen by reading the library and not its tests, about one for every 550
lines, and each changes something that a user would notice sooner or later.
"""

from typing import NamedTuple


class Mutation(NamedTuple):
    """A text of a file that is there once, what is put in its place, and the harm.

    The file of `tests` is where it should be noticed, and those of these `words` first.
    """

    file: str
    old: str
    new: str
    harm: str
    tests: str
    words: str = ""


MUTATIONS = (
    # From the lowest layers to natural gradients
    Mutation(
        "_atomic.py",
        """                os.fsync(file.fileno())
                if fcntl is None:  # an open file cannot be renamed there
                    file.close()
                os.replace(draft, target)
""",
        """                if fcntl is None:  # an open file cannot be renamed there
                    file.close()
                os.replace(draft, target)
                os.fsync(file.fileno())
""",
        "a file takes its name before the disk has it: a crash leaves it empty",
        "test_container.py",
    ),
    Mutation(
        "distributed.py",
        "if not 0 <= found.process < found.processes:",
        "if not 0 <= found.process <= found.processes:",
        "process 2 of 2 is let in, and waits for ever",
        "test_distributed.py",
    ),
    Mutation(
        "linalg/_triangular.py",
        "below = transposed(a[..., k:, :k]) @ b[..., k:, :k]",
        "below = transposed(a[..., k:, k:]) @ b[..., k:, :k]",
        "a wrong block in products of triangular matrices above 256 rows",
        "test_triangular.py",
        "skip_only_zeros and 300",
    ),
    Mutation(
        "linalg/_storage.py",
        "return 2 * jnp.log(jnp.abs(diagonal)).sum(-1)",
        "return 2 * jnp.log(diagonal).sum(-1)",
        "NaN once a step has turned a column of a Cholesky factor over",
        "families/test_laws.py",
        "divergence_is and turned",
    ),
    Mutation(
        "families/wishart.py",
        "bartlett = jnp.tril(noise, -1) + chi",
        "bartlett = jnp.triu(noise, 1) + chi",
        "draws of a Wishart distribution have another mean",
        "families/test_laws.py",
        "statistics_of_samples and wishart",
    ),
    Mutation(
        "families/categorical.py",
        "return self.at_natural(jnp.log(eta) - log_rest - jnp.log1p(-change))",
        "return self.at_natural(jnp.log(eta) - log_rest - jnp.log1p(change))",
        "right where it stands, but with a wrong derivative",
        "families/test_laws.py",
        "vjp_and_a_jvp and categorical",
    ),
    Mutation(
        "_natural.py",
        "return ~jax.tree.map(jnp.add, q, scaled(size)).is_inside().all()",
        "return ~jax.tree.map(jnp.add, q, scaled(size)).is_inside().any()",
        "of a batch of distributions all but one may leave the family",
        "test_natural.py",
        "stay_inside",
    ),
    Mutation(
        "_optim.py",
        "return moves, NaturalState(state.steps + 1, lost)",
        "return moves, NaturalState(state.steps, lost)",
        "a schedule of step sizes stays at its beginning",
        "test_natural.py",
        "schedule",
    ),
    Mutation(
        "_guarded.py",
        "(gain >= SHARE / size * backward - slack)",
        "(gain >= SHARE / size * forward - slack)",
        "a step is tested against the divergence in the wrong direction",
        "test_guarded.py",
        "exactly_where or from_start_to_end",
    ),
    # Data
    Mutation(
        "data/_order.py",
        "np.random.Philox(key=[self.seed, number], counter=counter)",
        "np.random.Philox(key=[self.seed, 0], counter=counter)",
        "every pass over a data set has the rows in the same order",
        "data/test_order.py",
    ),
    Mutation(
        "data/_parquet.py",
        """        if ahead is not None and ahead[0] != place:
            ahead[1].cancel()
            ahead = None
""",
        "",
        "a batch that does not follow the last has the rows of another",
        "data/test_parquet.py",
        "batch_of_a_step",
    ),
    Mutation(
        "data/_scan.py",
        "order = {text: place for place, text in enumerate(sorted(values[at]))}",
        "order = {text: place for place, text in enumerate(texts)}",
        "the sample of a data set has its strings mixed up, unless they came in order",
        "data/test_scan.py",
    ),
    Mutation(
        "data/_batches.py",
        "filled.weight * is_row.astype(filled.weight.dtype)",
        "filled.weight",
        "the last row of a short batch counts many times",
        "data/test_batches.py",
        "short_batch",
    ),
    # Training
    Mutation(
        "train/_checkpoint.py",
        "{*self._valid()[: self._keep]}",
        "{*self._valid()[-self._keep :]}",
        "the newest checkpoint is deleted, and the oldest kept",
        "train/test_checkpoint.py",
        "newest_are_kept",
    ),
    Mutation(
        "train/_compiled.py",
        "key=across.key(jax.random.fold_in(key, state.step)),",
        "key=across.key(jax.random.fold_in(key, place)),",
        "keys repeat from call to call, and a run depends on the machine's speed",
        "train/test_loop.py",
        "may_be_random",
    ),
    Mutation(
        "train/_devices.py",
        "return batch._replace(weight=self.number * weight), Across(self.number, True)",
        "return batch._replace(weight=weight), Across(self.number, True)",
        "on several devices the rows of a weighted batch count too little",
        "train/test_mesh.py",
        "rows_of_a_part",
    ),
    Mutation(
        "train/_history.py",
        "self.records = [record for record in kept if record.step <= step]",
        "self.records = [record for record in kept if record.step < step]",
        "a resumed run loses the record of the step it goes on from",
        "train/test_loop.py",
        "history or resumed",
    ),
    # Gaussian processes
    Mutation(
        "gp/kernels/_base.py",
        "return self.kernel.diag(self._some(x))",
        "return self.kernel.diag(x)",
        "variances of a kernel on some columns are those of all columns",
        "gp/test_pathwise.py",
        "features and line",
    ),
    Mutation(
        "gp/likelihoods/_discrete.py",
        "ratio = jnp.expm1(var) + self.dispersion * jnp.exp(var)",
        "ratio = jnp.expm1(var) + self.dispersion",
        "the predicted variance of counts is too small",
        "gp/test_likelihoods.py",
        "closed_forms and Negative",
    ),
    Mutation(
        "gp/likelihoods/_positive.py",
        "return jax.random.gamma(key, shape, (), f.dtype) / shape * jnp.exp(f)",
        "return jax.random.gamma(key, shape, (), f.dtype) * jnp.exp(f)",
        "draws of positive targets have another mean unless the shape is 1",
        "gp/test_likelihoods.py",
        "moments and Gamma",
    ),
    Mutation(
        "gp/_sparse.py",
        "total, number = weight @ fit, weight.sum()",
        "total, number = weight @ fit, fit.size",
        "the bound of a batch counts its rows, and not their weights",
        "gp/test_sparse.py",
        "weight_two or unbiased",
    ),
    Mutation(
        "gp/_prediction.py",
        "u = (predictor.whitening @ u[..., None])[..., 0]",
        "u = (predictor.whitening.mT @ u[..., None])[..., 0]",
        "joint draws of a model that is not whitened have another covariance",
        "gp/test_sparse.py",
        "joint_draws",
    ),
    Mutation(
        "gp/_fit.py",
        "return lax.map(block, rows).sum() / np.asarray(scored.weight).sum()",
        "return lax.map(block, rows).sum() / len(held_out.x)",
        "the score of held-out rows with weights is no mean",
        "gp/test_fit.py",
        "held_out",
    ),
    Mutation(
        "_codec.py",
        "container.read(path, max_bytes, expect_sha256)",
        "container.read(path, max_bytes)",
        "a model is loaded whatever its hash is",
        "gp/test_files.py",
        "elsewhere",
    ),
    Mutation(
        "_export/onnx_graph.py",
        'return graph.add("Where", which, *yes, no)',
        'return graph.add("Where", which, no, *yes)',
        "exported code takes the wrong branch of every choice",
        "gp/test_export.py",
        "every_operation",
    ),
    Mutation(
        "gp/kernels/_stationary.py",
        "jnp.sqrt(jax.random.gamma(key, alpha, (num,), dtype) / alpha)",
        "jnp.sqrt(alpha / jax.random.gamma(key, alpha, (num,), dtype))",
        "functions drawn of a rational quadratic kernel have another covariance",
        "gp/test_pathwise.py",
        "features and rational",
    ),
    Mutation(
        "gp/_steps.py",
        "grads = hyperparameter_gradient(loss, moved, rows, pull_back)",
        "grads = hyperparameter_gradient(loss, model, rows, pull_back)",
        "hyperparameters move by the gradient at the q before its step",
        "gp/test_steps.py",
        "ordinary",
    ),
    # Estimators, data sets and runs
    Mutation(
        "gp/exact.py",
        "objective = lambda run: run.history[-1].objective",
        "objective = lambda run: run.history[0].objective",
        "the start is chosen by how a short run begins, not by how it ends",
        "gp/test_exact.py",
        "several_starts",
    ),
    Mutation(
        "sklearn/_targets.py",
        "np.bincount(places.reshape(-1), weights=weight, minlength=len(distinct))",
        "np.bincount(places.reshape(-1), minlength=len(distinct)).astype(float)",
        "sample weights of small tables are lost",
        "sklearn/test_estimators.py",
        "weight",
    ),
    Mutation(
        "datasets/_files.py",
        "            verified(known, draft, known.source)\n",
        """            draft.replace(file)
            verified(known, file, known.source)
            file.replace(draft)
""",
        "a download that is not the data set stays in its place",
        "test_fetch.py",
        "marks",
    ),
    Mutation(
        "_config.py",
        'if "data" in given or "://" in run.data or not is_path:',
        'if "://" in run.data or not is_path:',
        "a table that is given is looked for in the folder of the run file",
        "test_config.py",
    ),
    # Quality, pictures and the paper
    Mutation(
        "metrics.py",
        '"calibration_error": float(gaps @ bins.rows / len(y)),',
        '"calibration_error": float(gaps.mean()),',
        "a bin of one row counts as much as one of thousands",
        "test_metrics.py",
        "classifiers or calibrated",
    ),
    Mutation(
        "plot/_insides.py",
        'shift = -float(np.log(getattr(estimator, "y_scale_", 1.0)).sum())',
        'shift = float(np.log(getattr(estimator, "y_scale_", 1.0)).sum())',
        "the picture of the bound is not in the user's units",
        "test_plot.py",
        "units",
    ),
    Mutation(
        "../../paper/curves.py",
        "is_kept = bound.iloc[-1] > max(bound.iloc[0], bound.max() - 0.5)",
        "is_kept = bound.iloc[-1] > min(bound.iloc[0], bound.max() - 0.5)",
        "a rate at which Adam falls far from its best counts as stable",
        "paper/test_experiments.py",
        "stable",
    ),
    Mutation(
        "../../paper/stochastic.py",
        "return bounds.sum() + (len(bounds) - 1) * model.prior_kl()",
        "return bounds.sum() + len(bounds) * model.prior_kl()",
        "the bound of all rows lacks its divergence from the prior",
        "paper/test_experiments.py",
        "chunks",
    ),
    Mutation(
        "../../paper/claims/batches.py",
        """        bounds = at(table, iteration)
        wins = (bounds.NGD > bounds.GD) & (bounds.Adam < bounds.NGD)
""",
        """        bounds = at(table, iteration)
        wins = (bounds.NGD > bounds.GD) | (bounds.Adam < bounds.NGD)
""",
        "a claim of the paper holds if one of two rivals is beaten",
        "paper/test_claims.py",
    ),
    # Commands
    Mutation(
        "_registry.py",
        "variance > 1.5 * mean",
        "variance > 0.15 * mean",
        "counts are guessed to have a variance above their mean",
        "data/test_prepare.py",
        "guessed",
    ),
    Mutation(
        "_cli/models.py",
        "places = np.maximum(np.cumsum(is_complete) - 1, 0)",
        "places = np.minimum(np.cumsum(is_complete), len(values) - 1)",
        "after a row with a null, predictions are those of other rows",
        "cli/test_predicting.py",
        "parts_in_a_row",
    ),
    Mutation(
        "_cli/folder.py",
        """    if (place / CHECKPOINT).is_dir():
        return BEGUN
    return ENDED if (place / MODEL).is_file() else NOTHING
""",
        """    if (place / MODEL).is_file():
        return ENDED
    return BEGUN if (place / CHECKPOINT).is_dir() else NOTHING
""",
        "a run that was interrupted and has a model is not resumed",
        "cli/test_folder.py",
    ),
    Mutation(
        "ray.py",
        "        if end.code:\n",
        "        if end.code == distributed.LOST:\n",
        "a command that failed is a success to Ray, and not started again",
        "test_ray.py",
        "fails_its_worker",
    ),
)
