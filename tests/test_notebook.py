"""The stop button of a notebook keeps the fit so far, in a real kernel."""

import queue
import time

import pytest


manager = pytest.importorskip("jupyter_client.manager")  # of the extra "docs"

START = """
import numpy as np
from natgrad import gp

rng = np.random.default_rng(0)
x = rng.uniform(-3, 3, (2000, 2))
y = np.sin(2 * x[:, 0]) + 0.1 * rng.standard_t(3, 2000)
model = gp.initialize(x, gp.likelihoods.StudentT(0.3), num_inducing=10)
"""

FIT = """
fitted = gp.fit(
    model, (x, y), batch_size=64, steps=10**7, log_every=20, progress=False,
    callbacks=[lambda record, params: print("step", record.step, flush=True)],
)
"""

AFTER = """
import signal
assert fitted.history.reason == "interrupted", fitted.history.reason
assert fitted.history[-1].step > 0
assert np.isfinite(gp.predictor(fitted.params).predict(x[:3])[0]).all()
assert signal.getsignal(signal.SIGINT) is before
print("kept step", fitted.history[-1].step)
"""


def run(client, code, until=None):
    """What a cell prints; `until` is a text, and what to do once it is printed."""
    asked, printed, end = client.execute(code), "", time.monotonic() + 300
    while time.monotonic() < end:
        try:
            message = client.get_iopub_msg(timeout=1)
        except queue.Empty:
            continue
        if message["parent_header"].get("msg_id") != asked:
            continue
        content = message["content"]
        if message["msg_type"] == "error":
            pytest.fail("\n".join(content["traceback"]))
        if message["msg_type"] == "stream" and content["name"] == "stdout":
            printed += content["text"]
            if until is not None and until[0] in printed:
                until[1]()
                until = None
        if message["msg_type"] == "status" and content["execution_state"] == "idle":
            return printed
    pytest.fail(f"the cell did not end; it printed {printed[-300:]}")


def test_the_stop_button_keeps_the_fit_so_far():
    kernel, client = manager.start_new_kernel(startup_timeout=120)
    try:
        run(client, START)
        run(client, "import signal; before = signal.getsignal(signal.SIGINT)")
        run(client, FIT, until=("step", kernel.interrupt_kernel))
        assert "kept step" in run(client, AFTER)
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
