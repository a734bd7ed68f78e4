"""Success of the baselines that need no training, of planning with the true rule, and the ceiling.

`python examples/baselines.py` prints the table; `--readme` also puts it into the README.
Success is over the exam: 20 start tapes for every rule, one draw of a policy that draws, with 95%
intervals over rules and start tapes. ID are the rules of the split's train side, OOD its held-out
ones. `greedy` and `mpc` know the rule. The ceiling is exact: the share of all start tapes from
which any policy, even one that knows the rule, can reach the goal in time.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tapebench import stats
from tapebench.base import seeding
from tapebench.exam import policy as policies
from tapebench.exam import rollout
from tapebench.physics import exact
from tapebench.tasks import splits
from tapebench.tasks.task import make_task

README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- baselines: begin -->", "<!-- baselines: end -->"
POLICIES = ("random", "flip-ones", "greedy", "mpc")
COLUMNS = ("split", "L = H", "policy", "ID success", "OOD success", "drop")


def rows(split_name: str, length: int) -> list[tuple[str, ...]]:
    """One row for each policy, and one for the exact ceiling."""
    split = splits.load(split_name)
    task = make_task(length=length, horizon=length, rules="all")
    table = []
    for name in POLICIES:
        success = rollout.rollout(policies.make(name, task), task).success.astype(float)
        seen, held_out = (success[list(side)] for side in (split.train, split.test))
        sides = [
            stats.rule_tape_bootstrap(side, seeding.generator(0, "baselines"))
            for side in (seen, held_out)
        ]
        drop = stats.drop_bootstrap(seen, held_out, seeding.generator(0, "baselines"))
        ends = f"{drop.mean:+.3f} [{drop.low:+.3f}, {drop.high:+.3f}]"
        table.append((split_name, str(length), name, *map(str, sides), ends))
    ceilings = exact.shipped_ceilings(length, length)
    id_ceiling, ood_ceiling = (
        sum(ceilings[rule].solvable_excluding_goal for rule in side) / len(side)
        for side in (split.train, split.test)
    )
    exactly = (f"{id_ceiling:.3f}", f"{ood_ceiling:.3f}", f"{id_ceiling - ood_ceiling:+.3f}")
    return [*table, (split_name, str(length), "exact ceiling", *exactly)]


def all_rows() -> list[tuple[str, ...]]:
    """The whole table: the paper's split and ours, small and full size."""
    cases = [(split, length) for split in ("fps30", "matched30") for length in (16, 32)]
    return [row for split, length in cases for row in rows(split, length)]


def markdown(table: list[tuple[str, ...]]) -> str:
    """The table for the README."""
    lines = [COLUMNS, ("---",) * 3 + ("---:",) * 3, *table]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def put_into_readme(text: str) -> None:
    """Replace the text between the markers."""
    before, rest = README.read_text().split(BEGIN)
    after = rest.split(END)[1]
    README.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def main() -> None:
    """Evaluate and print."""
    began = time.perf_counter()
    table = all_rows()
    shown = Table(*COLUMNS, title="Baselines and the exact ceiling")
    for number, row in enumerate(table):
        ends_block = number + 1 < len(table) and table[number + 1][:2] != row[:2]
        shown.add_row(*row, end_section=ends_block)
    Console().print(shown)
    seconds = time.perf_counter() - began
    print(f"{len(POLICIES)} policies x 256 rules x 20 episodes, four times, in {seconds:.1f} s")
    if "--readme" in sys.argv[1:]:
        put_into_readme(markdown(table))


if __name__ == "__main__":
    main()
