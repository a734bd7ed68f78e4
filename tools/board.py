"""The references as rows of a leaderboard, and the list of what we ran ourselves.

    python tools/board.py board/references          # bundles of the references on core
    python tools/board.py board/ours --list FILE... # and list these bundles of trained agents

Each reference plays once, as it is the same whatever is held out, and that is written as one bundle
for each fold. `src/tapebench/data/board.json` lists results by a hash of exam and actions: by that
`tape board` knows what was run by us, whatever a bundle says. Others can make these bundles again,
and no other bundle can claim to be one of them.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import tapebench
from tapebench.base import files
from tapebench.exam import bundle
from tapebench.exam.evaluate import evaluate
from tapebench.runs.tracks import get_track

REFERENCES = ("random", "flip-ones", "memoryless", "bayes-optimal", "mpc", "optimal")
LIST = Path(tapebench.__file__).parent / "data" / "board.json"


def write_references(place: Path) -> list[Path]:
    """The bundles of every reference on every fold of `core`."""
    place.mkdir(parents=True, exist_ok=True)
    track = get_track("core")
    written = []
    for name in REFERENCES:
        outcome = evaluate(name, track.exam(), name=name)
        for split in track.splits:
            exam = track.exam(split=split)
            assert exam.task == outcome.exam.task, "references are asked the same in every fold"
            written.append(place / f"{name}-{split}.tape")
            replace(outcome, exam=exam).write_bundle(written[-1])
    return written


def list_results(paths: list[Path], is_reference: bool) -> None:
    """Add bundles that we made to the list of what we ran."""
    document = files.read_object(LIST)
    for path in paths:
        replayed = bundle.verify(path)
        document["results"][replayed.result] = {
            "name": replayed.about["policy"],
            "sees_rule": replayed.about["sees_rule"],
            "is_reference": is_reference,
        }
    by_name = sorted(document["results"].items(), key=lambda item: (item[1]["name"], item[0]))
    lines = ",\n".join(f'    "{key}": {json.dumps(about)}' for key, about in by_name)
    files.write_text(LIST, f'{{\n  "results": {{\n{lines}\n  }}\n}}\n')


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("place", type=Path, metavar="DIR", help="where the references' bundles go")
    parser.add_argument("--list", nargs="+", type=Path, default=[], metavar="FILE")
    arguments = parser.parse_args()
    list_results(write_references(arguments.place), is_reference=True)
    list_results(arguments.list, is_reference=False)


if __name__ == "__main__":
    main()
