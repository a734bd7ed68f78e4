"""Tune an agent: a small random search, never on held-out rules.

    python tools/tune.py dqn

Trains on the training side of the split `tuning` and judges by success on its validation side,
which has no rule that is held out in `fps30` or `matched30`. Trial 0 is the agent's defaults; the
others are drawn from `Config.SEARCH` in the agent's file. The settings of a family are searched on
its plain member, and a variant only searches what it adds: so what it gains or loses is due to that
and not to luckier settings. `--then` is a further search around the best of those before it, which
is its trial 0, with what is in `LATER`. Interrupted runs resume; the result is written to
`docs/tuning/AGENT-NETWORK.json`, or to `AGENT-NETWORK-sizes.json` and the like.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tapebench import agents
from tapebench.base import files, seeding
from tapebench.runs import sweep
from tapebench.runs.training import RunSpec

FOLDER = Path(__file__).parents[1] / "docs" / "tuning"

LATER: dict[str, dict[str, dict[str, tuple[Any, ...]]]] = {
    "sizes": {
        "dqn-mlp": {"width": (32, 64), "batch": (256, 512), "steps_per_update": (2, 4)},
        "dqn-conv": {"kernel": (3, 5), "depth": (2, 3)},
        "ppo-mlp": {"width": (64, 128, 256), "depth": (2, 3), "num_envs": (40, 80)},
    },
    "returns": {
        "dqn-mlp": {"n_step": (1, 2), "final_rate": (0.1, 0.3, 1.0)},
        "dqn-conv": {"n_step": (1, 4, 8, 16), "final_rate": (0.1, 1.0)},
        "pearl-mlp": {"n_step": (1, 2), "final_rate": (0.1, 0.3, 1.0)},
        "rppo-cells": {
            "discount": (0.9, 0.98),
            "trace": (0.5, 0.8, 0.95),
            "entropy_weight": (0.003, 0.01),
            "kernel": (3, 5),
        },
    },
}
"""Further searches, by agent and network. `sizes`: how large things are and how often they learn,
which is what costs time; `returns`: how far targets look ahead, and what goes with that. Those of
`rppo-cells` are searched again, since its values may know the rule; none was better."""

MANY = 7
"""Options from which on a first search has ten trials; all other searches have five."""


def main() -> None:
    """Run the search and write what it found."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("agent", help="a name, or package.module of any agent")
    parser.add_argument("--network", help="by default that of the agent")
    parser.add_argument("--then", choices=LATER, help="a further search, around the best so far")
    parser.add_argument("--trials", type=int)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--results", type=Path, default=Path("runs/tuning"))
    options = parser.parse_args()
    options.network = options.network or agents.configure(options.agent).network
    name = f"{options.agent}-{options.network}"
    if options.then and name not in LATER[options.then]:
        searched = ", ".join(LATER[options.then])
        parser.error(f"--then {options.then} is for {searched}: variants have what these have")
    space = LATER[options.then][name] if options.then else search_space(options.agent)
    num_trials = options.trials or (10 if len(space) >= MANY and not options.then else 5)
    fixed = {"network": options.network}
    if options.then:
        fixed |= best_before(name, options.then)
    defaults = asdict(agents.configure(options.agent, **fixed))
    trials = [fixed | trial for trial in draw(space, defaults, num_trials)]
    label = f"{options.network}-{options.then}" if options.then else options.network
    specs = [
        RunSpec(
            agent=options.agent,
            seed=seed,
            experiment=f"{label}-{number}",
            split="tuning",
            options=trial,
            steps=options.steps,
            evaluate_every=options.steps // 10,
            episodes=10,
            last=3,
        )
        for number, trial in enumerate(trials)
        for seed in range(options.seeds)
    ]
    failures = sweep.run_all(sweep.missing(specs, options.results), options.results, report=show)
    for failure in failures:
        print(f"{failure.run}: {failure.reason}", file=sys.stderr)
    rows: list[dict[str, Any]] = []
    for number, trial in enumerate(trials):
        ours = [spec for spec in specs if spec.experiment == f"{label}-{number}"]
        done = [path for spec in ours if (path := summary_path(spec, options.results)).is_file()]
        scores = [files.read_json(path)["ood"]["success"] for path in done]
        on_training_rules = [files.read_json(path)["id"]["success"] for path in done]
        row: dict[str, Any] = {
            "trial": number,
            "options": trial,
            "validation": scores,
            "training": on_training_rules,
        }
        rows.append(row | {"mean_validation": float(np.mean(scores)) if scores else None})
    rows.sort(key=lambda row: -(row["mean_validation"] or 0.0))
    document = {
        "agent": options.agent,
        "network": options.network,
        "then": options.then,
        "steps": options.steps,
        "seeds": options.seeds,
        "defaults": defaults,
        "space": dict(space),
        "trials": rows,
    }
    FOLDER.mkdir(exist_ok=True)
    files.write_text(
        FOLDER / f"{options.agent}-{label}.json", json.dumps(document, indent=1) + "\n"
    )
    for row in rows:
        print(row["mean_validation"], row["options"])


def search_space(agent: str) -> Mapping[str, tuple[Any, ...]]:
    """The values that an agent's `Config` lists for its search."""
    space: Mapping[str, tuple[Any, ...]] = getattr(agents.load(agent)[0], "SEARCH", {})
    if not space:
        raise SystemExit(f"the Config of {agent} has no SEARCH: name the values to search there")
    return space


def best_before(name: str, search: str) -> dict[str, Any]:
    """The best options that the searches before this one found."""
    best: dict[str, Any] = {}
    for earlier in ["", *LATER][: 1 + list(LATER).index(search)]:
        file = FOLDER / f"{name}{earlier and '-'}{earlier}.json"
        if file.is_file():
            document = files.read_json(file)
            best = document["defaults"] | document["trials"][0]["options"]
    best.pop("total_steps", None)  # which follows the steps
    if not best:
        raise SystemExit(f"--then is around the best of {name}: make that search first")
    return best


def draw(
    space: Mapping[str, tuple[Any, ...]], defaults: dict[str, Any], trials: int
) -> list[dict[str, Any]]:
    """What each trial sets: the first nothing, the others no combination twice."""
    first = {name: defaults[name] for name in space}
    drawn: list[dict[str, Any]] = [first]
    trials_to_make: list[dict[str, Any]] = [{}]
    number = 0
    most = math.prod(len({*values, first[name]}) for name, values in space.items())
    while len(trials_to_make) < trials and len(drawn) < most:
        number += 1
        trial = {
            name: values[int(seeding.generator(number, "tune", name).integers(len(values)))]
            for name, values in space.items()
        }
        if trial not in drawn:
            drawn.append(trial)
            trials_to_make.append(trial)
    return trials_to_make


def summary_path(spec: RunSpec, root: Path) -> Path:
    """Where a run's summary is."""
    return root / str(spec.id) / "summary.json"


def show(event: dict[str, Any]) -> None:
    """A line whenever a run ends."""
    if event["step"] >= event["steps"]:
        print(f"{event['run']}: {event.get('ood', 0):.3f}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
