"""BLAS has one thread while natgrad computes, and what it had before after that."""

import threading

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from threadpoolctl import threadpool_info, threadpool_limits

from natgrad._runtime.threads import LARGE, few_threads, largest


assert scipy.linalg  # its BLAS is the one that JAX uses


def counts():
    return [pool["num_threads"] for pool in threadpool_info() if is_blas(pool)]


def is_blas(pool):
    return pool["user_api"] == "blas"


@pytest.fixture(autouse=True)
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        yield


def test_small_matrices_have_one_thread_and_large_ones_what_there_is():
    assert set(counts()) == {2}
    with few_threads(100):
        assert set(counts()) == {1}
    assert set(counts()) == {2}
    with few_threads(LARGE):
        assert set(counts()) == {2}


def test_the_number_is_restored_after_an_error():
    with pytest.raises(ZeroDivisionError), few_threads(10):
        1 / 0  # noqa: B018
    assert set(counts()) == {2}


def test_the_last_to_leave_restores_it():
    with few_threads(10):
        with few_threads(20):
            pass
        assert set(counts()) == {1}  # the outer one still computes
    assert set(counts()) == {2}


def test_threads_that_come_and_go_leave_it_as_it_was():
    def use():
        for _ in range(20):
            with few_threads(10):
                pass

    others = [threading.Thread(target=use) for _ in range(8)]
    for other in others:
        other.start()
    with few_threads(10):
        for other in others:
            other.join()
    assert set(counts()) == {2}


def test_the_largest_square_matrix_of_a_tree_counts():
    tree = {"a": jnp.zeros((3, 7, 7)), "b": np.zeros((900, 4)), "c": 1.0}
    assert largest(tree) == 7
