"""Rules drawn from a family that is too large to list, each with its exact counts.

`make data` draws and searches them, `data/pools/` keeps them, and universes are taken out of them
by horizon.

Rules are drawn by the number of ones in their tables, so many for each number: drawn bit by bit
nearly all tables would be about half ones, and that is chaos. The table of candidate k with s ones
has them at the s entries whose hashes of "pool", family, s, k and entry are lowest, and the rule
is the lowest of those that are the same task seen otherwise. What cannot be solved from every tape
within `HORIZON` steps is counted and not kept.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from tapebench.base import seeding
from tapebench.physics import exact, families
from tapebench.physics.family import Family
from tapebench.physics.quotient import Quotient
from tapebench.physics.space import Space

SPACES = {"ring2": Space((16,)), "life": Space((5, 5))}
"""Where the rules of each pool are solved."""

HORIZON = 16
CANDIDATES = 1024
"""Tables looked at for each number of ones, at most."""

KEPT = 192
"""Rules kept for each number of ones: enough for a universe of 4 steps."""


@dataclass(frozen=True)
class Pool:
    """Rules of one family that can be solved from every tape, in the order drawn."""

    family: Family
    space: Space
    searched: Mapping[int, int]
    """How many rules were searched, by the number of ones in their tables."""
    counts: Mapping[int, exact.Reach]
    """What the exact search found for each rule that was kept."""

    def within(self, horizon: int) -> dict[int, list[int]]:
        """The rules whose worst case is at most so many steps, by the number of ones."""
        by_ones: dict[int, list[int]] = {ones: [] for ones in self.searched}
        for rule, reach in self.counts.items():
            if reach.max_steps <= horizon:
                by_ones[rule.bit_count()].append(rule)
        return by_ones


def draw(name: str, progress: Callable[[int], Any] = lambda ones: None) -> Pool:
    """Draw and search the pool of a family: seconds for `ring2`, minutes for `life`."""
    search = Quotient(families.get(name), SPACES[name])
    searched: dict[int, int] = {}
    counts: dict[int, exact.Reach] = {}
    for ones in range(1, search.family.entries):
        searched[ones], solved = draw_stratum(search, ones)
        counts |= solved
        progress(ones)
    return Pool(search.family, search.space, searched, counts)


def draw_stratum(search: Quotient, ones: int) -> tuple[int, dict[int, exact.Reach]]:
    """How many rules with so many ones were searched, and the counts of those to keep."""
    kept: dict[int, exact.Reach] = {}
    searched = 0
    for rule in _candidates(search.family, ones):
        searched += 1
        reach = search.reach(rule, HORIZON)
        if reach.solvable == 1:
            kept[rule] = reach
        if len(kept) == KEPT:
            break
    return searched, kept


def _candidates(family: Family, ones: int) -> Iterator[int]:
    """Rules with so many ones in the order drawn, one of those that are the same task."""
    entries, seen = np.arange(family.entries, dtype=np.uint32), set()
    names = (zlib.crc32(b"pool"), zlib.crc32(family.name.encode()))
    for candidate in range(CANDIDATES):
        priority = seeding.hash32(*names, ones, candidate, entries)
        chosen = np.argsort(priority, kind="stable")[:ones].tolist()
        rule = family.twins(sum(1 << entry for entry in chosen))[0]
        if rule not in seen:
            seen.add(rule)
            yield rule


def dump(pool: Pool) -> str:
    """A pool as the text of a file under `data/pools/`: one rule per line."""
    head = {
        "family": pool.family.name,
        "version": pool.family.version,
        "shape": list(pool.space.shape),
        "horizon": HORIZON,
        "goal": "zeros",
        "searched": {str(ones): num for ones, num in pool.searched.items()},
    }
    fields = "".join(f"  {json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items())
    lines = ",\n".join(
        f'    "{rule}": {json.dumps(list(reach.histogram))}' for rule, reach in pool.counts.items()
    )
    return f'{{\n{fields}  "histograms": {{\n{lines}\n  }}\n}}\n'


@cache
def load(name: str) -> Pool:
    """The shipped pool of a family."""
    if name not in SPACES:
        raise ValueError(f"no rules have been drawn of {name}: use one of {', '.join(SPACES)}")
    document = json.loads(
        resources.files("tapebench").joinpath(f"data/pools/{name}.json").read_text()
    )
    where = Space(tuple(document["shape"]))
    histograms = {int(rule): tuple(found) for rule, found in document["histograms"].items()}
    return Pool(
        family=families.get(name),
        space=where,
        searched={int(ones): num for ones, num in document["searched"].items()},
        counts={rule: exact.Reach(rule, where.size, h) for rule, h in histograms.items()},
    )
