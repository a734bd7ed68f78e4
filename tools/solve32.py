"""Solve the standard size exactly, rule by rule, into `src/tapebench/data/exact/L32-H32/`.

    python tools/solve32.py [--threads N] [--rules 30,110]

Needs the extra `exact`, 6 GiB and about a minute a rule on two cores (up to nine for rules whose
worst tapes are 32 steps away). A rule whose file exists is passed over, so the script may be
stopped at any time and started again. Mirror images are solved together.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from tapebench.physics import exhaustive
from tapebench.physics.families import elementary

PLACE = Path(__file__).parents[1] / "src" / "tapebench" / "data" / "exact" / "L32-H32"


def main() -> None:
    """Solve what is missing; one line on standard error for each rule."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rules", default=",".join(map(str, range(256))))
    options = parser.parse_args()
    exhaustive.set_threads(options.threads)
    orbits = {min(elementary.mirror_orbit(int(rule))) for rule in options.rules.split(",")}
    missing = [rule for rule in sorted(orbits) if not file_of(rule).exists()]
    print(f"{len(orbits) - len(missing)} of {len(orbits)} orbits are solved", file=sys.stderr)
    search = exhaustive.Search(32)
    for number, rule in enumerate(missing):
        began = time.monotonic()
        # The rule's own file, whose presence is looked for, is written last.
        for record in reversed(exhaustive.solve_for_exam(search, rule, 32)):
            write(record)
        solvable = sum(record["histogram"]) / 2**32
        spent = time.monotonic() - began
        left = len(missing) - number - 1
        text = f"rule {rule}: solvable {solvable:.6f}, {spent:.0f} s; {left} orbits left"
        print(text, file=sys.stderr, flush=True)


def file_of(rule: int) -> Path:
    """Where a rule's answer belongs."""
    return PLACE / f"{rule:03d}.json"


def write(record: dict[str, object]) -> None:
    """Write aside, then rename."""
    path = file_of(int(str(record["rule"])))
    aside = path.with_name(path.name + ".partial")
    aside.write_text(json.dumps(record) + "\n")
    aside.replace(path)


if __name__ == "__main__":
    main()
