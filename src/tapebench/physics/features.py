"""What is known of each elementary rule: rollout features, type, Wolfram class and relatives.

`table()` reads the shipped `data/rules.json`; `make_table()` computes it again, to the byte.

Features follow the paper's recipe, with the numbers it leaves open fixed here: 256 random tapes
of 32 cells, each rolled out for 64 updates without interventions. Averaged over tapes and time,
*density* is the share of ones, *entropy* the binary entropy (bits) of that share tape by tape,
*activity* the share of cells that one update changes. The rollout length matters: on 32 cells
rule 90 dies out after 16 updates, so 16 updates alone would make it chaotic, and 64 make it
periodic, as the paper has it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources

import numpy as np

from tapebench.base.shapes import Int64
from tapebench.physics import space, starts
from tapebench.physics.families import elementary
from tapebench.physics.families.elementary import WOLFRAM_SOURCE, complement, mirror, wolfram_class

FEATURE_LENGTH = 32
FEATURE_UPDATES = 64
FEATURE_TRIALS = 256
FEATURE_UNIT = 1_000_000
"""Features are kept as integers, in millionths, so that no comparison hangs on a last digit."""

TYPES = ("stable", "periodic", "chaotic")


@dataclass(frozen=True)
class Rule:
    """One row of the rule table. Features are in millionths."""

    rule: int
    type: str
    wolfram_class: int
    mirror: int
    complement: int
    density: int
    entropy: int
    activity: int


STABLE_BELOW = {"activity": 0.06, "entropy": 0.25}
CHAOTIC_ABOVE = {"activity": 0.22, "entropy": 0.55}
"""The paper's thresholds of operational types: both have to hold."""


def classify(entropy: int, activity: int) -> str:
    """The operational type by the paper's thresholds, from features in millionths."""
    by_name = {"activity": activity / FEATURE_UNIT, "entropy": entropy / FEATURE_UNIT}
    if all(by_name[name] < limit for name, limit in STABLE_BELOW.items()):
        return "stable"
    if all(by_name[name] > limit for name, limit in CHAOTIC_ABOVE.items()):
        return "chaotic"
    return "periodic"


def features() -> Int64[np.ndarray, "256 3"]:
    """Density, entropy and activity of every rule in millionths."""
    length, updates = FEATURE_LENGTH, FEATURE_UPDATES
    tapes = starts.feature_tapes(length, FEATURE_TRIALS)
    laws = elementary.law(np.arange(elementary.NUM_RULES)[:, None])
    tape = np.broadcast_to(tapes, (elementary.NUM_RULES, *tapes.shape))
    nothing = np.zeros(tapes.shape[-1], np.uint32)
    ones_at = np.empty((updates, *tape.shape[:-1]), np.int64)
    changed = np.zeros(elementary.NUM_RULES, np.int64)
    for update in range(updates):
        after = elementary.evolve_by(tape, laws, length)
        ones_at[update] = space.hamming(after, nothing)
        changed += space.hamming(after, tape).sum(axis=-1)
        tape = after
    cells = updates * FEATURE_TRIALS * length
    share = np.arange(length + 1) / length
    binary_entropy = np.zeros(length + 1)
    inner = share[1:-1]
    binary_entropy[1:-1] = -inner * np.log2(inner) - (1 - inner) * np.log2(1 - inner)
    density = ones_at.sum(axis=(0, 2)) / cells
    entropy = binary_entropy[ones_at].mean(axis=(0, 2))
    raw = np.stack([density, entropy, changed / cells], axis=-1)
    return np.rint(raw * FEATURE_UNIT).astype(np.int64)


def make_table() -> list[Rule]:
    """Compute the table from scratch. `feature_table` reads the shipped copy of it."""
    rows = []
    for rule, (density, entropy, activity) in enumerate(features().tolist()):
        rows.append(
            Rule(
                rule=rule,
                type=classify(entropy, activity),
                wolfram_class=wolfram_class(rule),
                mirror=mirror(rule),
                complement=complement(rule),
                density=density,
                entropy=entropy,
                activity=activity,
            )
        )
    return rows


def dump_table(rows: list[Rule]) -> str:
    """The table as the text of `data/rules.json`: one rule per line."""
    lines = ",\n".join("    " + json.dumps(asdict(row)) for row in rows)
    head = {
        "length": FEATURE_LENGTH,
        "updates": FEATURE_UPDATES,
        "trials": FEATURE_TRIALS,
        "unit": FEATURE_UNIT,
        "wolfram_source": WOLFRAM_SOURCE,
    }
    opening = json.dumps(head, indent=2).removesuffix("\n}")
    return f'{opening},\n  "rules": [\n{lines}\n  ]\n}}\n'


@cache
def feature_table() -> tuple[Rule, ...]:
    """The shipped rule table, one row per rule, indexed by rule number."""
    text = resources.files("tapebench").joinpath("data/rules.json").read_text()
    return tuple(Rule(**row) for row in json.loads(text)["rules"])
