"""Which rows of a table of row groups come when: from their counts alone."""

from typing import NamedTuple

import numpy as np


class Pool(NamedTuple):
    """Some row groups of a shard, whose rows are shuffled together.

    It serves the rows from `begin` to `end` of the shard, counted over all passes;
    `pieces` are row groups, and from which of their rows to which.
    """

    begin: int
    end: int
    pieces: list[tuple[int, int, int]]
    key: tuple[int, int, int]

    @property
    def size(self) -> int:
        """How many rows are read, of which the last pool of a pass leaves some out."""
        return sum(end - begin for _, begin, end in self.pieces)


class Plan:
    """The order of all rows in pass after pass, as a function of `seed`.

    A pass puts the row groups in random order and cuts their rows into `shards` equal
    spans. A shard shuffles `pool` of its groups at a time, and gives equally many rows
    to each batch. So every pass has equally many batches, and no row twice; fewer than
    a batch of rows, and as many again as there are shards, are left out of it.
    """

    def __init__(
        self, counts: np.ndarray, shards: int, rows: int, pool: int, seed: int
    ):
        self.counts, self.shards, self.pool, self.seed = counts, shards, pool, seed
        self.total = int(counts.sum())
        self.cut = rows // shards
        self.batches = self.total // shards // self.cut
        self.length = self.batches * self.cut
        self._orders: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def at(self, shard: int, place: int) -> Pool:
        """The pool of a shard that has its row `place`, counted over all passes."""
        number, offset = divmod(place, self.length)
        order, ends = self._order(number)
        first_row = shard * self.total // self.shards
        last_row = (shard + 1) * self.total // self.shards
        group = lambda row: int(np.searchsorted(ends, row, side="right"))
        first, last = group(first_row), group(last_row - 1) + 1
        # The first pools differ in size, so that shards need new ones at other times.
        head = first - (-self.pool * (shard + 1) // self.shards)
        index = max(0, -(-(group(first_row + offset) + 1 - head) // self.pool))
        end = min(last, head + index * self.pool)
        begin = first if index == 0 else head + (index - 1) * self.pool
        pieces = []
        for at in range(begin, end):
            count = int(self.counts[order[at]])
            start = int(ends[at]) - count
            piece = max(0, first_row - start), min(count, last_row - start)
            if piece[0] < piece[1]:
                pieces.append((int(order[at]), *piece))
        before = max(0, int(ends[begin]) - int(self.counts[order[begin]]) - first_row)
        size = sum(end - begin for _, begin, end in pieces)
        base = number * self.length
        return Pool(
            base + before,
            base + min(before + size, self.length),
            pieces,
            (number, shard, index),
        )

    def shuffled(self, pool: Pool) -> np.ndarray:
        """The rows of a pool in the order they are given in."""
        number, shard, index = pool.key
        return self._generator(number, shard + 1, index).permutation(pool.size)

    def _order(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """The row groups of a pass in order, and how many rows there are up to each."""
        if number not in self._orders:
            kept = {key: self._orders[key] for key in self._orders if key == number - 1}
            order = self._generator(number, 0, 0).permutation(len(self.counts))
            self._orders = {**kept, number: (order, np.cumsum(self.counts[order]))}
        return self._orders[number]

    def _generator(self, number: int, shard: int, index: int) -> np.random.Generator:
        counter = [0, 0, shard, index]
        return np.random.Generator(
            np.random.Philox(key=[self.seed, number], counter=counter)
        )
