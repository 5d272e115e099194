"""Forty mistakes that a person could make in natgrad, over all of its layers.

They were chosen by reading the library and not its tests, about one for every 550
lines, and each changes something that a user would notice sooner or later.
"""

from typing import NamedTuple


class Mutation(NamedTuple):
    """A text of a file that is there once, what is put in its place, and the harm.

    The `tests` are where it should be noticed, and are run first.
    """

    file: str
    old: str
    new: str
    harm: str
    tests: tuple[str, ...]


MUTATIONS = (
    # From the lowest layers to natural gradients
    Mutation(
        "envelope.py",
        """            file.flush()
            os.fsync(file.fileno())
            if fcntl is None:  # an open file cannot be renamed there
                file.close()
            os.replace(temporary, target)
""",
        """            file.flush()
            if fcntl is None:  # an open file cannot be renamed there
                file.close()
            os.replace(temporary, target)
            os.fsync(file.fileno())
""",
        "a file takes its name before the disk has it: a crash leaves it empty",
        ("tests/test_envelope.py",),
    ),
    Mutation(
        "distributed.py",
        "if not 0 <= found.process < found.processes:",
        "if not 0 <= found.process <= found.processes:",
        "process 2 of 2 is let in, and waits for ever",
        ("tests/test_distributed.py",),
    ),
    Mutation(
        "triangular.py",
        "below = transposed(a[..., k:, :k]) @ b[..., k:, :k]",
        "below = transposed(a[..., k:, k:]) @ b[..., k:, :k]",
        "a wrong block in products of triangular matrices above 256 rows",
        ("tests/test_triangular.py",),
    ),
    Mutation(
        "linalg.py",
        "return 2 * jnp.log(jnp.abs(diagonal)).sum(-1)",
        "return 2 * jnp.log(diagonal).sum(-1)",
        "NaN once a step has turned a column of a Cholesky factor over",
        ("tests/families/test_laws.py",),
    ),
    Mutation(
        "families/wishart.py",
        "bartlett = jnp.tril(noise, -1) + chi",
        "bartlett = jnp.triu(noise, 1) + chi",
        "draws of a Wishart distribution have another mean",
        ("tests/families/test_laws.py",),
    ),
    Mutation(
        "families/categorical.py",
        "return self.at_natural(jnp.log(eta) - log_rest - jnp.log1p(-change))",
        "return self.at_natural(jnp.log(eta) - log_rest - jnp.log1p(change))",
        "right where it stands, but with a wrong derivative",
        ("tests/families/test_laws.py",),
    ),
    Mutation(
        "natural.py",
        "return ~jax.tree.map(jnp.add, q, scaled(size)).is_inside().all()",
        "return ~jax.tree.map(jnp.add, q, scaled(size)).is_inside().any()",
        "of a batch of distributions all but one may leave the family",
        ("tests/test_natural.py",),
    ),
    Mutation(
        "optim.py",
        "return moves, optax.ScaleByScheduleState(state.count + 1)",
        "return moves, optax.ScaleByScheduleState(state.count)",
        "a schedule of step sizes stays at its beginning",
        ("tests/test_natural.py",),
    ),
    Mutation(
        "guarded.py",
        "lambda there: (evaluate(there), _divergence(start, there)),",
        "lambda there: (evaluate(there), _divergence(there, start)),",
        "a step is tested against the divergence in the wrong direction",
        ("tests/test_guarded.py",),
    ),
    # Data
    Mutation(
        "data/plan.py",
        "np.random.Philox(key=[self.seed, number], counter=counter)",
        "np.random.Philox(key=[self.seed, 0], counter=counter)",
        "every pass over a lake has the rows in the same order",
        ("tests/data/test_plan.py", "tests/data/test_stream.py"),
    ),
    Mutation(
        "data/stream.py",
        """        if ahead is not None and ahead[0] != place:
            ahead[1].cancel()
            ahead = None
""",
        "",
        "a batch that does not follow the last has the rows of another",
        ("tests/data/test_stream.py",),
    ),
    Mutation(
        "data/scan.py",
        "order = {text: place for place, text in enumerate(sorted(values[at]))}",
        "order = {text: place for place, text in enumerate(texts)}",
        "the sample of a lake has its strings mixed up, unless they came in order",
        ("tests/data/test_scan.py",),
    ),
    Mutation(
        "data/source.py",
        "        weight[size:] = 0\n",
        "",
        "the last row of a short batch counts many times",
        ("tests/data/test_source.py",),
    ),
    # Training
    Mutation(
        "train/checkpoint.py",
        "kept.add(max(self._scores, key=lambda s: (_rank(self._scores[s]), s)))",
        "kept.add(min(self._scores, key=lambda s: (_rank(self._scores[s]), s)))",
        "the best checkpoint is deleted, and the worst kept",
        ("tests/train/test_checkpoint.py",),
    ),
    Mutation(
        "train/state.py",
        "key=across.key(jax.random.fold_in(key, state.step)),",
        "key=across.key(jax.random.fold_in(key, place)),",
        "keys repeat from call to call, and a run depends on the machine's speed",
        ("tests/train/test_loop.py",),
    ),
    Mutation(
        "train/mesh.py",
        "return batch._replace(weight=self.number * weight), Across(self.number, True)",
        "return batch._replace(weight=weight), Across(self.number, True)",
        "on several devices the rows of a weighted batch count too little",
        ("tests/train/test_mesh.py",),
    ),
    Mutation(
        "train/history.py",
        "self.records = [record for record in kept if record.step <= step]",
        "self.records = [record for record in kept if record.step < step]",
        "a resumed run loses the record of the step it goes on from",
        ("tests/train/test_loop.py", "tests/train/test_progress.py"),
    ),
    # Gaussian processes
    Mutation(
        "gp/kernels.py",
        "return self.kernel.diag(self._some(x))",
        "return self.kernel.diag(x)",
        "variances of a kernel on some columns are those of all columns",
        ("tests/gp/test_kernels.py",),
    ),
    Mutation(
        "gp/likelihoods/discrete.py",
        "ratio = jnp.expm1(var) + self.dispersion * jnp.exp(var)",
        "ratio = jnp.expm1(var) + self.dispersion",
        "the predicted variance of counts is too small",
        ("tests/gp/test_likelihoods.py",),
    ),
    Mutation(
        "gp/likelihoods/continuous.py",
        "return jax.random.gamma(key, shape, (), f.dtype) / shape * jnp.exp(f)",
        "return jax.random.gamma(key, shape, (), f.dtype) * jnp.exp(f)",
        "draws of positive targets have another mean unless the shape is 1",
        ("tests/gp/test_likelihoods.py",),
    ),
    Mutation(
        "gp/sparse.py",
        "total, number = weight @ fit, weight.sum()",
        "total, number = weight @ fit, fit.size",
        "the bound of a batch counts its rows, and not their weights",
        ("tests/gp/test_sparse.py",),
    ),
    Mutation(
        "gp/prediction.py",
        "u = (predictor.whitening @ u[..., None])[..., 0]",
        "u = (predictor.whitening.mT @ u[..., None])[..., 0]",
        "joint draws of a model that is not whitened have another covariance",
        ("tests/gp/test_sparse.py", "tests/gp/test_paths.py"),
    ),
    Mutation(
        "gp/fit.py",
        "return lax.map(block, rows).sum() / counts.sum()",
        "return lax.map(block, rows).sum() / total",
        "the score of held-out rows with weights is no mean",
        ("tests/gp/test_fit.py",),
    ),
    Mutation(
        "gp/files.py",
        "document, arrays = envelope.read(path, max_bytes, expect_sha256)",
        "document, arrays = envelope.read(path, max_bytes)",
        "a model is loaded whatever its hash is",
        ("tests/gp/test_files.py",),
    ),
    Mutation(
        "gp/numpy_code.py",
        'return f"np.where({names[0]}, {names[2]}, {names[1]})"',
        'return f"np.where({names[0]}, {names[1]}, {names[2]})"',
        "exported code takes the wrong branch of every choice",
        ("tests/gp/test_export.py",),
    ),
    Mutation(
        "gp/paths.py",
        "scale = jnp.sqrt(draws / alpha)",
        "scale = jnp.sqrt(alpha / draws)",
        "functions drawn of a rational quadratic kernel have another covariance",
        ("tests/gp/test_paths.py",),
    ),
    Mutation(
        "gp/steps.py",
        "grads = _hyperparameter_gradient(loss, moved, rows, pull_back)",
        "grads = _hyperparameter_gradient(loss, model, rows, pull_back)",
        "hyperparameters move by the gradient at the q before its step",
        ("tests/gp/test_steps.py",),
    ),
    # Estimators, data sets and runs
    Mutation(
        "sklearn/base.py",
        "return max(found, key=lambda pair: pair[1].history[-1].objective)",
        "return max(found, key=lambda pair: pair[1].history[0].objective)",
        "the noise is chosen by how a short run begins, not by how it ends",
        ("tests/sklearn/test_choices.py", "tests/sklearn/test_estimators.py"),
    ),
    Mutation(
        "sklearn/rows.py",
        "np.bincount(places.reshape(-1), weights=weight, minlength=len(distinct))",
        "np.bincount(places.reshape(-1), minlength=len(distinct)).astype(float)",
        "sample weights of small tables are lost",
        ("tests/sklearn/test_estimators.py", "tests/sklearn/test_contract.py"),
    ),
    Mutation(
        "datasets/fetch.py",
        """            get(draft)
            _, x, y = read(draft)
            check(known, where, x, y)
        except FAILURES as error:
            said = _said(where, error)
            raise InputError(f"{said}; {by_hand(known, file)}") from error
        draft.replace(file)
""",
        """            get(draft)
            draft.replace(file)
            _, x, y = read(file)
            check(known, where, x, y)
        except FAILURES as error:
            said = _said(where, error)
            raise InputError(f"{said}; {by_hand(known, file)}") from error
""",
        "a download that is not the data set stays in its place",
        ("tests/test_fetch.py",),
    ),
    Mutation(
        "runs.py",
        'if "data" in given or "://" in run.data or not is_path:',
        'if "://" in run.data or not is_path:',
        "a table that is given is looked for beside the file of the run",
        ("tests/test_runs.py",),
    ),
    # Quality, pictures and the paper
    Mutation(
        "metrics.py",
        '"calibration_error": float(gaps @ bins.rows / len(y)),',
        '"calibration_error": float(gaps.mean()),',
        "a bin of one row counts as much as one of thousands",
        ("tests/test_metrics.py",),
    ),
    Mutation(
        "plot/insides.py",
        'shift = -math.log(getattr(estimator, "y_scale_", 1.0))',
        'shift = math.log(getattr(estimator, "y_scale_", 1.0))',
        "the picture of the bound is not in the user's units",
        ("tests/test_plot.py",),
    ),
    Mutation(
        "reproduce/curves.py",
        "is_kept = bound.iloc[-1] > max(bound.iloc[0], bound.max() - 0.5)",
        "is_kept = bound.iloc[-1] > min(bound.iloc[0], bound.max() - 0.5)",
        "a rate at which Adam falls far from its best counts as stable",
        ("tests/test_reproduce.py",),
    ),
    Mutation(
        "reproduce/stochastic.py",
        "return bounds.sum() + (len(bounds) - 1) * model.prior_kl()",
        "return bounds.sum() + len(bounds) * model.prior_kl()",
        "the bound of all rows lacks its divergence from the prior",
        ("tests/test_reproduce.py",),
    ),
    Mutation(
        "reproduce/claims/batches.py",
        """        bounds = at(table, iteration)
        wins = (bounds.NGD > bounds.GD) & (bounds.Adam < bounds.NGD)
""",
        """        bounds = at(table, iteration)
        wins = (bounds.NGD > bounds.GD) | (bounds.Adam < bounds.NGD)
""",
        "a claim of the paper holds if one of two rivals is beaten",
        ("tests/test_claims.py",),
    ),
    # Commands
    Mutation(
        "cli/targets.py",
        "kurtosis = float(np.mean(centred**4)) - 3",
        "kurtosis = float(np.mean(centred**4))",
        "targets with normal tails are guessed to have heavy ones",
        ("tests/cli/test_targets.py",),
    ),
    Mutation(
        "cli/use.py",
        "places = np.cumsum(is_whole) - 1",
        "places = np.cumsum(is_whole)",
        "after a row with a null, predictions stand beside other rows",
        ("tests/cli/test_commands.py",),
    ),
    Mutation(
        "cli/training.py",
        """    if (out / CHECKPOINT).is_dir():
        return BEGUN
    return ENDED if (out / MODEL).is_file() else NOTHING
""",
        """    if (out / MODEL).is_file():
        return ENDED
    return BEGUN if (out / CHECKPOINT).is_dir() else NOTHING
""",
        "a run that was interrupted and has a model is not resumed",
        ("tests/cli/test_commands.py", "tests/cli/test_interruptions.py"),
    ),
    Mutation(
        "ray.py",
        "        if end.code:\n",
        "        if end.code == distributed.LOST:\n",
        "a command that failed is a success to Ray, and not started again",
        ("tests/test_ray.py",),
    ),
)
