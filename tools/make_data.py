"""Compute the shipped data again: rules, splits, ceilings up to 24 cells, what flipping ones
reaches, pools of the larger families, lines, the Bayesian filter, tracks.

`make data` runs it: about fifteen minutes, most of them for the 24-cell ceilings, the filter and
the pool of `life`. The answers at 32 cells are hours of work and made by `tools/solve32.py`. Tests
compare.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tapebench.base import files
from tapebench.exam import baselines
from tapebench.exam.exam import make_exam
from tapebench.experiments import filters
from tapebench.physics import exact, features, pools, strata
from tapebench.runs import tracks
from tapebench.tasks import splits

DATA = Path(__file__).parents[1] / "src" / "tapebench" / "data"


def main() -> None:
    """Write the files in the order in which they depend on each other."""
    write("rules.json", features.dump_table(features.make_table()))
    for length in (16, 20, 24):
        solved = exact.reach_all(range(256), length, length, progress=Progress(length))
        write(f"exact/L{length}-H{length}.json", exact.dump_ceilings(solved, length, length))
    chances = exact.chances(16, 16)
    write("exact/chances-L16-H16.json", exact.dump_chances(chances, 16, 16))
    for name in pools.SPACES:
        write(f"pools/{name}.json", pools.dump(pools.draw(name)))
    sample = strata.sample_flip_ones(range(256))
    size = f"L{strata.SAMPLED_LENGTH}-H{strata.SAMPLED_HORIZON}"
    write(f"exact/flip-ones-{size}.json", strata.dump_sample(sample))
    for length, horizon in baselines.SHIPPED:
        exam = make_exam(length=length, horizon=horizon)
        write(
            f"lines/L{length}-H{horizon}.json",
            baselines.dump(exam, baselines.run_baselines(exam)),
        )
    for name in splits.names():
        write(f"splits/{name}.json", splits.dump(splits.make(name)))
    write(filters.FILE, filters.dump_shipped())
    write("tracks.json", tracks.dump_tracks(tracks.make_tracks()))


class Progress:
    """One line on standard error that counts the rules solved and estimates the rest."""

    def __init__(self, length: int) -> None:
        self.length, self.done, self.began = length, 0, time.monotonic()

    def __call__(self, rule: int) -> None:
        self.done += 1
        left = (time.monotonic() - self.began) / self.done * (256 - self.done)
        end = "\n" if self.done == 256 else ""
        text = f"\rexact L = {self.length}: {self.done}/256 rules, about {left:.0f} s left "
        print(text, end=end, file=sys.stderr, flush=True)


def write(name: str, text: str) -> None:
    """Write a file of the package's data."""
    files.write_text(DATA / name, text)
    print(f"wrote {name}", file=sys.stderr)


if __name__ == "__main__":
    main()
