"""Laws of the order in which the rows of a table come."""

import numpy as np
from hypothesis import given, settings, strategies as st

from natgrad.data._order import Plan


@st.composite
def plans(draw):
    counts = draw(st.lists(st.integers(0, 20), min_size=1, max_size=30))
    counts = np.array([*counts, draw(st.integers(1, 20))])
    filled = int(np.count_nonzero(counts))
    shards = draw(st.sampled_from([v for v in (1, 2, 3, 4, 8) if v <= filled]))
    most = int(counts.sum()) // shards
    rows = shards * draw(st.integers(1, max(1, min(most, 7))))
    pool, seed = draw(st.integers(1, 5)), draw(st.integers(0, 2**63))
    return Plan(counts, shards, rows, pool, seed)


def shard_rows(plan: Plan, shard: int, number: int) -> list[tuple[int, int]]:
    """The rows of a shard in a pass, (group, row), in the order they are given in."""
    place, end, given_out = number * plan.length, (number + 1) * plan.length, []
    while place < end:
        pool = plan.at(shard, place)
        assert pool.begin == place < pool.end <= end
        assert plan.at(shard, pool.end - 1) == pool
        assert 1 <= len(pool.pieces) <= plan.pool
        rows = [(group, row) for group, a, b in pool.pieces for row in range(a, b)]
        assert len(rows) == pool.size
        order = plan.shuffled(pool)
        np.testing.assert_array_equal(np.sort(order), np.arange(pool.size))
        given_out += [rows[at] for at in order][: pool.end - pool.begin]
        place = pool.end
    return given_out


@given(plans(), st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_no_row_comes_twice_in_a_pass_and_few_are_left_out(plan, number):
    shards = [shard_rows(plan, shard, number) for shard in range(plan.shards)]
    assert {len(rows) for rows in shards} == {plan.batches * plan.cut}
    seen = [row for rows in shards for row in rows]
    assert len(set(seen)) == len(seen)
    assert all(0 <= row < plan.counts[group] for group, row in seen)
    rows = plan.cut * plan.shards
    assert 0 <= plan.total - len(seen) < rows + plan.shards


@given(plans(), st.data())
@settings(max_examples=150, deadline=None)
def test_any_place_is_found_without_those_before_it(plan, data):
    shard = data.draw(st.integers(0, plan.shards - 1))
    place = data.draw(st.integers(0, 5 * plan.length - 1))
    fresh = Plan(plan.counts, plan.shards, plan.cut * plan.shards, plan.pool, plan.seed)
    pool = fresh.at(shard, place)
    assert pool.begin <= place < pool.end
    for number in range(2):
        plan.at(shard, number * plan.length)
    assert plan.at(shard, place) == pool
    np.testing.assert_array_equal(plan.shuffled(pool), fresh.shuffled(pool))


def test_no_row_is_left_out_for_good():
    counts, passes = np.array([7, 1, 12, 5, 3, 9]), 200
    plan = Plan(counts, 4, 8, 2, seed=1)
    seen = {(group, row): 0 for group in range(6) for row in range(counts[group])}
    for number in range(passes):
        for shard in range(4):
            for row in shard_rows(plan, shard, number):
                seen[row] += 1
    share = plan.length * 4 / plan.total
    rates = np.array(list(seen.values())) / passes
    assert abs(rates.mean() - share) < 1e-12
    assert abs(rates - share).max() < 0.15


def test_passes_and_seeds_and_shards_are_shuffled_each_in_their_way():
    counts = np.full(12, 30)
    plan = Plan(counts, 2, 8, 3, seed=1)
    orders = [shard_rows(plan, shard, number) for shard in (0, 1) for number in (0, 1)]
    orders.append(shard_rows(Plan(counts, 2, 8, 3, seed=2), 0, 0))
    assert all(a != b for i, a in enumerate(orders) for b in orders[:i])
    pools = [plan.at(shard, place) for shard, place in ((0, 60), (1, 90))]
    assert {(pool.size, pool.key[2]) for pool in pools} == {(90, 1)}
    assert not (plan.shuffled(pools[0]) == plan.shuffled(pools[1])).all()
