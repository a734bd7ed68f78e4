"""Tune an agent: a small random search, never on held-out rules.

    python tools/tune.py dqn

Trains on the training side of the split `tuning` and judges by success on its validation side,
which has no rule that is held out in `fps30` or `matched30`. Trial 0 is the agent's defaults; the
others are drawn from its `SPACE`. `--then` is a further search around the best of those before it,
which is its trial 0, with what is in `LATER`. Runs are kept and resumed; the result is written to
`docs/tuning/AGENT-NETWORK.json`, or to `AGENT-NETWORK-sizes.json` and the like.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tapebench import agents
from tapebench.base import files, seeding
from tapebench.runs import sweep
from tapebench.runs.training import RunSpec

PLACE = Path(__file__).parents[1] / "docs" / "tuning"

SPACE: dict[str, dict[str, tuple[Any, ...]]] = {
    "dqn": {
        "learning_rate": (2.5e-4, 5e-4, 1e-3),
        "discount": (0.9, 0.98, 1.0),
        "target_every": (250, 1000),
        "batch": (128, 256),
        "replay_size": (50_000, 200_000),
        "epsilon_end": (0.05, 0.2),
        "dueling": (True, False),
    },
    "rad": {"max_shift": (1, 4), "flip_probability": (0.01, 0.03, 0.1)},
    "curl": {"curl_weight": (0.01, 0.1, 1.0), "momentum": (0.95, 0.99)},
    "pearl": {"context": (4, 8), "latent_size": (4, 8), "kl_weight": (1e-4, 1e-3, 1e-2)},
    "ppo": {
        "learning_rate": (5e-4, 1e-3, 2e-3),
        "discount": (0.9, 0.98, 1.0),
        "trace": (0.5, 0.8, 0.95),
        "entropy_weight": (0.003, 0.01, 0.03),
        "value_weight": (0.1, 0.5),
        "epochs": (4, 10),
        "minibatches": (4, 8),
    },
    "ppo-dr": {"noise_high": (0.0, 0.001, 0.005), "horizon_high": (1.0, 1.5)},
    "rppo": {
        "memory_size": (16, 32, 64),
        "encoder_width": (32, 64),
        "epochs": (4, 10),
        "minibatches": (4, 8),
    },
    "dreamer": {
        "learning_rate": (5e-4, 1e-3, 2e-3),
        "actor_rate": (5e-4, 1e-3, 2e-3),
        "discount": (0.9, 0.95, 0.98),
        "trace": (0.5, 0.8, 0.95),
        "imagination": (5, 10, 15),
        "entropy_weight": (0.001, 0.003, 0.01),
    },
    "automata": {"learning_rate": (1e-3, 3e-3), "features": (4, 8), "saturation": (2.0, 8.0)},
}
"""What is searched. The settings of a family are searched on its plain member, and a variant only
searches what it adds: so what it gains or loses is due to that and not to luckier settings. What
`rppo` adds changes what a round of learning is, hence `epochs` and `minibatches`."""

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

TRIALS = {"dqn": 10, "ppo": 10}
"""How many in the first search; of the others half as many, and of further searches too."""


def main() -> None:
    """Run the search and write what it found."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("agent", choices=agents.NAMES)
    parser.add_argument("--network", help="by default that of the agent")
    parser.add_argument("--then", choices=LATER, help="a further search, around the best so far")
    parser.add_argument("--trials", type=int)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--results", type=Path, default=Path("runs/tuning"))
    options = parser.parse_args()
    options.network = options.network or agents.configure(options.agent).network
    name = f"{options.agent}-{options.network}"
    space = LATER[options.then].get(name) if options.then else SPACE[options.agent]
    if space is None:
        known = ", ".join(LATER[options.then])
        parser.error(f"--then {options.then} is for {known}: variants have what these have")
    trials_wanted = options.trials or (5 if options.then else TRIALS.get(options.agent, 5))
    fixed = {"network": options.network}
    if options.then:
        fixed |= best_before(name, options.then)
    defaults = asdict(agents.configure(options.agent, **fixed))
    trials = [fixed | trial for trial in draw(space, defaults, trials_wanted)]
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
    found: list[dict[str, Any]] = []
    for number, trial in enumerate(trials):
        ours = [spec for spec in specs if spec.experiment == f"{label}-{number}"]
        done = [path for spec in ours if (path := place(spec, options.results)).is_file()]
        scores = [files.read_json(path)["ood"]["success"] for path in done]
        seen = [files.read_json(path)["id"]["success"] for path in done]
        row: dict[str, Any] = {
            "trial": number,
            "options": trial,
            "validation": scores,
            "training": seen,
        }
        found.append(row | {"mean_validation": float(np.mean(scores)) if scores else None})
    found.sort(key=lambda row: -(row["mean_validation"] or 0.0))
    document = {
        "agent": options.agent,
        "network": options.network,
        "then": options.then,
        "steps": options.steps,
        "seeds": options.seeds,
        "defaults": defaults,
        "space": space,
        "trials": found,
    }
    PLACE.mkdir(exist_ok=True)
    files.write_text(PLACE / f"{options.agent}-{label}.json", json.dumps(document, indent=1) + "\n")
    for row in found:
        print(row["mean_validation"], row["options"])


def best_before(name: str, search: str) -> dict[str, Any]:
    """The best options that the searches before this one found."""
    found: dict[str, Any] = {}
    for earlier in ["", *LATER][: 1 + list(LATER).index(search)]:
        file = PLACE / f"{name}{earlier and '-'}{earlier}.json"
        if file.is_file():
            document = files.read_json(file)
            found = document["defaults"] | document["trials"][0]["options"]
    found.pop("total_steps", None)  # which follows the steps
    if not found:
        raise SystemExit(f"--then is around the best of {name}: make that search first")
    return found


def draw(
    space: dict[str, tuple[Any, ...]], defaults: dict[str, Any], trials: int
) -> list[dict[str, Any]]:
    """What each trial sets: the first nothing, the others no combination twice."""
    known = {name: defaults[name] for name in space}
    seen: list[dict[str, Any]] = [known]
    found: list[dict[str, Any]] = [{}]
    number = 0
    most = math.prod(len({*values, known[name]}) for name, values in space.items())
    while len(found) < trials and len(seen) < most:
        number += 1
        trial = {
            name: values[int(seeding.generator(number, "tune", name).integers(len(values)))]
            for name, values in space.items()
        }
        if trial not in seen:
            seen.append(trial)
            found.append(trial)
    return found


def place(spec: RunSpec, root: Path) -> Path:
    """Where a run's summary is."""
    return root / str(spec.id) / "summary.json"


def show(event: dict[str, Any]) -> None:
    """A line whenever a run ends."""
    if event["step"] >= event["steps"]:
        print(f"{event['run']}: {event.get('ood', 0):.3f}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
