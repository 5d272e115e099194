"""Which of how many processes this is, and how long one waits for another."""

import pytest

from natgrad import distributed
from natgrad.errors import InputError, PeerError


NAMES = (
    *("NATGRAD_NUM_PROCESSES", "NATGRAD_PROCESS_ID", "NATGRAD_COORDINATOR"),
    *("JOB_COMPLETION_INDEX", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
)


@pytest.fixture
def environment(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    return lambda **values: [monkeypatch.setenv(*pair) for pair in values.items()]


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({}, (0, 1)),
        ({"NATGRAD_NUM_PROCESSES": "4", "NATGRAD_PROCESS_ID": "3"}, (3, 4)),
        ({"NATGRAD_NUM_PROCESSES": "4", "JOB_COMPLETION_INDEX": "2"}, (2, 4)),
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}, (1, 2)),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "8"}, (0, 8)),
        # The script of a batch is no task, though it knows how many there will be.
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, (0, 1)),
    ],
)
def test_a_process_knows_its_place(environment, values, place):
    environment(**values)
    assert distributed.place() == place


@pytest.mark.parametrize(
    ("process", "processes"), [("2", "2"), ("-1", "2"), ("one", "2"), ("0", "0")]
)
def test_a_place_that_is_none_is_refused(environment, process, processes):
    environment(NATGRAD_PROCESS_ID=process, NATGRAD_NUM_PROCESSES=processes)
    with pytest.raises(InputError, match="NATGRAD_PROCESS_ID"):
        distributed.place()


def test_a_place_must_be_told_apart_from_others(environment):
    environment(NATGRAD_NUM_PROCESSES="4")
    with pytest.raises(InputError, match="NATGRAD_PROCESS_ID"):
        distributed.place()
    environment(NATGRAD_NUM_PROCESSES="1")
    assert distributed.place() == (0, 1)


def test_where_the_first_one_is_must_be_known(environment):
    environment(NATGRAD_PROCESS_ID="1", NATGRAD_NUM_PROCESSES="2")
    with pytest.raises(InputError, match="NATGRAD_COORDINATOR"):
        distributed.initialize()


def test_a_single_process_is_left_as_it_is(environment):
    assert distributed.initialize() == (0, 1)
    assert not distributed.is_started()
    assert distributed.exchange(b"said") == [b"said"]
    distributed.leave(3)  # and it is still here


def test_limits_are_set_by_the_environment(monkeypatch):
    assert distributed.limit("HEARTBEAT") == distributed.LIMITS["HEARTBEAT"]
    monkeypatch.setenv("NATGRAD_HEARTBEAT_SECONDS", "2.5")
    assert distributed.limit("HEARTBEAT") == 2.5
    for wrong in ("0", "-1", "soon", "nan"):
        monkeypatch.setenv("NATGRAD_HEARTBEAT_SECONDS", wrong)
        with pytest.raises(InputError, match="above 0"):
            distributed.limit("HEARTBEAT")


def test_only_the_loss_of_another_process_is_told_as_such(monkeypatch):
    monkeypatch.setattr(distributed, "is_started", lambda: True)
    told = pytest.raises(PeerError, match="restart all ")
    with told, distributed.lost_peers():
        raise RuntimeError("Gloo all-reduce failed: Connection reset by peer")
    for error in (RuntimeError("out of memory"), InputError("Connection")):
        with pytest.raises(type(error)) as raised, distributed.lost_peers():
            raise error
        assert raised.value is error
