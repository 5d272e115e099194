"""Several processes, on one host or many, as one."""

import os
from typing import NamedTuple

from natgrad.errors import InputError


class Place(NamedTuple):
    """Which of how many processes this is."""

    process: int
    processes: int


def place() -> Place:
    """Which of how many processes this is, by what its launcher says.

    That is NATGRAD_PROCESS_ID and NATGRAD_NUM_PROCESSES, of which the first may be the
    index of a Kubernetes job, or what Slurm and Open MPI tell their tasks.
    """
    if "NATGRAD_NUM_PROCESSES" in os.environ:
        index = os.environ.get("JOB_COMPLETION_INDEX", "0")
        process = os.environ.get("NATGRAD_PROCESS_ID", index)
        return _checked(process, os.environ["NATGRAD_NUM_PROCESSES"])
    # Of a step of Slurm: the script of a batch is a process by itself.
    for process, processes in (
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ):
        if process in os.environ and processes in os.environ:
            return _checked(os.environ[process], os.environ[processes])
    return Place(0, 1)


def _checked(process: str, processes: str) -> Place:
    try:
        found = Place(int(process), int(processes))
    except ValueError:
        found = Place(-1, 0)
    if not 0 <= found.process < found.processes:
        raise InputError(
            f"this is process {process} of {processes}, by the environment; they are "
            "counted from 0: set NATGRAD_PROCESS_ID and NATGRAD_NUM_PROCESSES"
        )
    return found
