"""Stored runs sit exams: by name or directory, and again for the episodes that a report shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tapebench.base import files
from tapebench.exam import bundle, seating
from tapebench.exam.evaluate import Entrant, Label, Outcome, Trained
from tapebench.exam.evaluate import evaluate as sit
from tapebench.exam.exam import Exam, from_identity
from tapebench.runs import store, training
from tapebench.runs.results import load_results
from tapebench.runs.tracks import is_setting, track_of
from tapebench.tasks.task import Task


def evaluate(who: Any, exam: Exam | None = None, **options: Any) -> Outcome:
    """Have `who` sit an exam, as `exam.evaluate` does; of a directory, each run sits it once."""
    if isinstance(who, Path) or (isinstance(who, str) and Path(who).is_dir()):
        who = Trained(partial(load_entrants, Path(who)))
    return sit(who, exam, **options)


def load_entrants(path: Path, task: Task) -> list[Entrant]:
    """The policies of stored runs. They draw as in training: its last evaluation is found again."""
    return [
        Entrant(run.policy, 0, Label(run.spec.seed, run.step), run.is_finite)
        for run in training.load_runs(path, task)
    ]


def replay(
    root: Path,
    *,
    tracks: Sequence[str] = (),
    progress: Callable[[str, int, int], Any] = lambda what, done, total: None,
) -> list[str]:
    """Have the first seed of every agent sit its exam again; keep the episodes as bundles.

    Only where there is no bundle of the same result yet, and where `tracks` are named, of theirs
    alone. What could not be replayed is said, not raised: a report without those episodes is still
    a report.
    """
    place, notes = root / "episodes", []
    groups: dict[str, list[Path]] = {}
    for path in load_results(root).paths:
        spec = files.read_object(path / "spec.json")
        is_asked = not tracks or track_of(spec) in tracks
        if is_asked and not is_setting(spec):
            name = path.parent.relative_to(root.resolve()).as_posix()
            groups.setdefault(name, []).append(path)
    first = {
        name: next(filter(store.has_checkpoint, paths), None) for name, paths in groups.items()
    }
    if without := [name for name, path in first.items() if path is None]:
        notes.append(f"no seed keeps a checkpoint to be replayed from: {', '.join(without)}")
    for number, (name, run) in enumerate(first.items(), 1):
        progress("replaying agents", number, len(first))
        target = place / f"{name.replace('/', '-')}.tape"
        if run is None or _is_replayed(run, target):
            continue
        try:
            spec = files.read_object(run / "spec.json")
            exam = from_identity(spec.get("exam"))
            outcome = evaluate(run, exam)
            place.mkdir(exist_ok=True)
            about = {
                "policy": spec["agent"],
                "run": spec["id"],
                "result": store.result_hash(run),
                "sees_rule": outcome.sees_rule,
                "provenance": files.provenance(outcome.seconds),
            }
            bundle.write(target, outcome.runs[0], exam, about, outcome.conditions)
        except OSError as error:
            notes.append(f"{name} cannot be replayed: {error.filename}: {error.strerror}")
        except (ValueError, KeyError, TypeError) as error:
            notes.append(f"{name} cannot be replayed: {error}")
    return notes


def _is_replayed(run: Path, target: Path) -> bool:
    """Whether a bundle holds episodes of what the run came to. Times of files say nothing of it."""
    try:
        found = bundle.verify(target)
    except bundle.BundleError:
        return False
    is_same = found.about.get("result") == store.result_hash(run)
    return is_same and found.conditions.seating == seating.VERSION
