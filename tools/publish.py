"""Put finished runs into the package, as the results that come with it.

    python tools/publish.py runs full            # every agent of `tape bench --track full`
    python tools/publish.py runs lite@2          # and every run of lite@2, its experiments' too

Takes the groups of runs whose experiment begins with the name given, and writes each as a piece
(see `tapebench.runs.published`) into `src/tapebench/data/results`. A group is taken if it has all
the seeds that its experiment asks for; `--seeds` asks for fewer. The command that a piece names is
looked up among the tracks and experiments, so it is one that makes these very runs.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tapebench import experiments
from tapebench.base import files
from tapebench.experiments.api import Scale
from tapebench.runs import published, tracks
from tapebench.runs.results import load_results

SPLITS = ("fps30", "matched30")
"""Splits that whole tracks are run on; experiments may bring others."""

FOLDER = Path(__file__).parents[1] / "src" / "tapebench" / "data" / "results"


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the pieces, and say what was left out."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("results", type=Path, help="a results directory, such as runs")
    parser.add_argument("experiment", help="a track, such as full")
    parser.add_argument("--seeds", type=int, help="publish groups with fewer seeds than asked for")
    parser.add_argument(
        "--policies", type=int, default=0, help="seeds of a track's runs to take policies of along"
    )
    options = parser.parse_args(arguments)
    makers = commands(options.experiment)
    groups = defaultdict(list)
    for path in load_results(options.results).paths:
        spec = files.read_json(path / "spec.json")
        groups[spec["id"].rsplit("/", 1)[0]].append((spec["seed"], key(spec), path))
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, runs in sorted(groups.items()):
        if re.split("[-+]", name.split("/")[0])[0] != tracks.get_track(options.experiment).name:
            continue
        runs.sort()
        command, expected = makers.get(runs[0][1], (None, 0))
        if command is None:
            print(f"{name}: nothing makes these runs today, left out", file=sys.stderr)
        elif len(runs) < (options.seeds or expected):
            print(f"{name}: {len(runs)} of {expected} seeds, left out", file=sys.stderr)
        else:
            paths = [path for _, _, path in runs]
            full_command = f"{command} --seeds {len(runs)}"
            # Settings of experiments have been measured; what they learned is of no further use.
            is_setting = tracks.is_setting(files.read_json(paths[0] / "spec.json"))
            written = published.pack_runs(
                paths, full_command, FOLDER, 0 if is_setting else options.policies
            )
            size = sum(file.stat().st_size for file in FOLDER.glob(f"{written.stem}.*"))
            print(f"{name}: {len(runs)} seeds, {size / 1000:.0f} kB")


def commands(track: str) -> dict[str, tuple[str, int]]:
    """What makes each group of runs, and with how many seeds; by `key`."""
    makers: dict[str, tuple[str, int]] = {}
    chosen = tracks.get_track(track)
    for split in SPLITS:
        flags = f" --split {split}" if split != chosen.split else ""
        for agent in chosen.agents:
            spec = chosen.spec(agent, experiment=chosen.name, split=split)
            command = f"tape bench --track {track} --agents {agent}{flags}"
            makers.setdefault(key(spec.as_dict()), (command, chosen.seeds))
        for name, experiment in experiments.every().items():
            scale = Scale(chosen, split=split if flags else None)
            for group in experiment.settings(scale).values():
                command = f"tape reproduce {name} --track {track}{flags}"
                makers.setdefault(key(group[0].as_dict()), (command, len(group)))
    return makers


def key(spec: Mapping[str, Any]) -> str:
    """What was asked of a run, whatever its seed and the hash in its name, as text."""
    asked = {k: v for k, v in spec.items() if k not in ("id", "seed")}
    return json.dumps(asked | {"experiment": spec["experiment"].partition("+")[0]}, sort_keys=True)


if __name__ == "__main__":
    main()
