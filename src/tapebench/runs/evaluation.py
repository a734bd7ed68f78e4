"""Evaluate stored runs: on any exam, or again for the episodes that a report shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tapebench.base import files
from tapebench.base.names import one_of
from tapebench.exam import bundle, lesion, seating
from tapebench.exam.evaluate import Entrant, Label, Outcome, Trained
from tapebench.exam.evaluate import evaluate as sit
from tapebench.exam.exam import Exam, from_identity
from tapebench.runs import published, store, training
from tapebench.runs.results import load_results
from tapebench.runs.tracks import get_track, is_setting, track_of
from tapebench.tasks import folds
from tapebench.tasks.task import Task

PUBLISHED = "published/"
"""How the names of the runs begin that come with the package."""


def evaluate(
    agent: Any, exam: Exam | None = None, *, track: str | None = None, **options: Any
) -> Outcome:
    """Evaluate an agent as `exam.evaluate` does; a directory stands for each of its runs.

    `published/full/rppo/fps30` stands for those of the package's own runs that keep their weights.
    The exam may be that of a `track`, by its name, with another `split` of the track if one is
    given: `evaluate(agent, track="core", split="folds-2")`.
    """
    if track is not None:
        if exam is not None:
            raise ValueError("give an exam or a track, not both")
        exam = exam_of(track, options.pop("split", None))
    if isinstance(agent, Path) or (isinstance(agent, str) and Path(agent).is_dir()):
        agent = Trained(partial(load_entrants, Path(agent)))
    elif isinstance(agent, str) and agent.startswith(PUBLISHED):
        agent = Trained(partial(load_published, agent.removeprefix(PUBLISHED)))
    return sit(agent, exam, **options)


def exam_of(track: str, split: str | None = None, **changes: Any) -> Exam:
    """The exam of a track, by its name; `split` is one that it trains with, by default the first.

    `changes` are options of `make_exam` that leave the task as it is, such as a fresh exam.
    """
    registered = get_track(track)
    if split is not None:
        one_of(f"split of the track {track}", split, registered.splits)
        changes["split"] = split
    return registered.exam(**changes)


def load_entrants(path: Path, task: Task) -> list[Entrant]:
    """The policies of stored runs, seeded as in training: the last evaluation is reproduced."""
    return [_entrant(run) for run in training.load_runs(path, task)]


def load_published(name: str, task: Task) -> list[Entrant]:
    """The policies of published runs, by directory; only the first seeds keep their weights."""
    path = published.directory() / name
    if not path.is_dir():
        raise ValueError(f"there are no published runs {name!r}: name some like full/rppo/fps30")
    with_weights = [run for run in load_results(path).paths if store.has_checkpoint(run)]
    if not with_weights:
        raise ValueError(f"the published runs {name!r} come without weights: train them again")
    return [_entrant(run) for run in training.load_seeds(with_weights, path, task)]


def _entrant(run: training.Stored) -> Entrant:
    return Entrant(run.policy, 0, Label(run.spec.seed, run.step), run.is_finite)


def replay_runs(
    root: Path,
    *,
    tracks: Sequence[str] = (),
    progress: Callable[[str, int, int], Any] = lambda stage, done, total: None,
) -> list[str]:
    """Evaluate the first seed of every agent again, and store its episodes as bundles.

    Only where there is no bundle of the same result yet, and where `tracks` are named, of theirs
    alone; over folds, only with the first of them. What could not be replayed is said, not raised:
    a report without those episodes is still a report.
    """
    folder, notes = root / "episodes", []
    groups: dict[str, list[Path]] = {}
    for path in load_results(root).paths:
        spec = files.read_object(path / "spec.json")
        is_asked = not tracks or track_of(spec) in tracks
        if is_asked and not is_setting(spec):
            name = path.parent.relative_to(root.resolve()).as_posix()
            groups.setdefault(name, []).append(path)
    for name in [name for name in groups if name.rpartition("/")[2] in folds.NAMES[1:]]:
        if f"{name.rpartition('/')[0]}/{folds.NAMES[0]}" in groups:
            del groups[name]
    first = {
        name: next(filter(store.has_checkpoint, paths), None) for name, paths in groups.items()
    }
    if without := [name for name, path in first.items() if path is None]:
        notes.append(f"no seed keeps a checkpoint to be replayed from: {', '.join(without)}")
    for number, (name, run) in enumerate(first.items(), 1):
        progress("replaying agents", number, len(first))
        target = folder / f"{name.replace('/', '-')}.tape"
        if run is None or _is_replayed(run, target):
            continue
        try:
            spec = files.read_object(run / "spec.json")
            exam = from_identity(spec.get("exam"))
            outcome = evaluate(run, exam)
            folder.mkdir(exist_ok=True)
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


@dataclass(frozen=True)
class Lesioned:
    """What lesions of the memory of an agent's runs cost, or why there are none."""

    losses: tuple[lesion.Losses, ...] = ()
    exam: Exam | None = None
    """Of the last run; those of the others differ in which rules they call held out."""
    reason: str = ""


def lesion_runs(
    runs: Mapping[str, Sequence[Path]],
    *,
    progress: Callable[[str, int, int], Any] = lambda stage, done, total: None,
) -> dict[str, Lesioned]:
    """Make lesions of the memory of some runs of each agent, in the exam that they sat."""
    lesioned = {}
    total, done = sum(map(len, runs.values())), 0
    for agent, paths in runs.items():
        losses: list[lesion.Losses] = []
        exam, reason = None, ""
        for path in paths:
            try:
                exam = from_identity(files.read_object(path / "spec.json").get("exam"))
                losses.append(lesion.lesions(training.load_run(path, exam.task).policy, exam))
            except lesion.NoLesionError as error:
                reason = str(error)
            except (ValueError, OSError) as error:
                reason = f"{path.name} cannot be loaded: {files.one_line(error)}"
            if reason:
                break
            progress("lesions", done + len(losses), total)
        done += len(paths)
        lesioned[agent] = Lesioned(reason=reason) if reason else Lesioned(tuple(losses), exam)
    return lesioned


def _is_replayed(run: Path, target: Path) -> bool:
    """Whether a bundle holds episodes of this very result, by its hash and not by file times."""
    try:
        verified = bundle.verify(target)
    except bundle.BundleError:
        return False
    is_same = verified.about.get("result") == store.result_hash(run)
    return is_same and verified.conditions.seating == seating.VERSION
