"""Finished runs as arrays: who was asked the same, and what came of it.

Runs are put together into contests. Within one, everybody sat the same exam in the same
experiment, so their numbers may stand in one table; across them they may not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tapebench import rules, score, store
from tapebench.bundle import Bundle, BundleError, verify
from tapebench.exam import STANDARD, SUBSETS, Exam, from_identity

BUNDLES = "*.tape"
"""Files under a results directory that are taken for bundles of episodes."""

METRICS = tuple(score.METRICS)

NAMED = 6
"""Unfinished runs that are listed by name."""


@dataclass(frozen=True)
class Curve:
    """Success in the course of training."""

    steps: tuple[int, ...]
    success: Mapping[str, np.ndarray]
    """Subset -> `[S, K]`, of the seeds that were evaluated at these steps."""


@dataclass(frozen=True)
class Entry:
    """One agent in a contest: its finished seeds."""

    agent: str
    seeds: tuple[int, ...]
    scores: Mapping[str, np.ndarray]
    """Metric -> `[S, R]`: means over episodes and over the evaluations that count."""
    by_steps: Mapping[str, Mapping[int, np.ndarray]]
    """Subset -> optimal steps -> success of each seed, `[S]`, on tapes that need so many."""
    curve: Curve
    specs: tuple[dict[str, Any], ...]
    provenance: tuple[dict[str, Any], ...]
    """Of each seed; empty where it is not stored."""

    @property
    def trained_on(self) -> frozenset[int]:
        return frozenset(self.specs[0].get("trained_on") or ())

    @property
    def seconds(self) -> float | None:
        """Mean wall-clock of a run, as far as it is known; of runs made together its share."""
        known = [
            about["seconds"] / about.get("together", 1)
            for about in self.provenance
            if about.get("seconds")
        ]
        return float(np.mean(known)) if known else None

    @property
    def is_mixed(self) -> bool:
        """Whether its seeds were not all made with the same settings."""
        settings = [
            {key: value for key, value in spec.items() if key not in ("id", "seed")}
            for spec in self.specs
        ]
        return any(other != settings[0] for other in settings[1:])


@dataclass(frozen=True)
class Contest:
    """Everybody who sat one exam in one experiment, and what they are read against."""

    experiment: str
    slug: str
    """The contest in a file's name."""
    exam: Exam
    entries: tuple[Entry, ...]
    optimal_steps: np.ndarray
    """`[R, E]`, see `Exam.optimal_steps`."""
    lines: Mapping[str, score.Line]
    """What needs no training; empty if it is neither shipped nor was measured beside the runs."""
    bundles: tuple[Bundle, ...] = ()
    """Episodes on this exam that can be replayed."""

    @cached_property
    def ceilings(self) -> np.ndarray:
        """The best possible success under each rule, `[R]`; nan where that is not known."""
        return self.exam.ceilings(self.optimal_steps)

    @property
    def title(self) -> str:
        task = self.exam.task
        parts = [f"{self.experiment} on {self.exam.split}", f"L = {task.length}"]
        parts.append(f"H = {task.horizon}")
        if task.hidden:
            parts.append(f"{task.hidden.bit_count()} cells hidden")
        if task.noise:
            parts.append(f"noise {task.noise:g}")
        if self.exam.name != STANDARD:
            parts.append(f"{self.exam.name} exam")
        return ", ".join(parts)

    @property
    def trained_alike(self) -> bool:
        """Whether all agents were trained on the same rules."""
        return len({entry.trained_on for entry in self.entries}) == 1

    def subsets(self) -> list[str]:
        """The sides that were asked about."""
        return [subset for subset in SUBSETS if len(self.exam.rows(subset))]


@dataclass(frozen=True)
class Findings:
    """All that a results directory holds."""

    root: Path
    contests: tuple[Contest, ...]
    missing: tuple[str, ...]
    """What is not there or cannot be used, a sentence each."""


def read(root: Path, *, settings: bool = True, tracks: Sequence[str] = ()) -> Findings:
    """Read every finished run and every bundle under a directory. Nothing is computed anew.

    Without `settings`, runs that are settings of experiments are passed over and only counted,
    unless there are no others; so are, where `tracks` are named, runs of others.
    """
    stored = store.load(root)
    missing = [f"{fault}: left out" for fault in stored.damaged]
    missing += _unfinished(root)
    by_id: dict[tuple[str, ...], dict[str, Any]] = {}
    passed_over = 0
    of_others: Counter[str] = Counter()
    for path in stored.paths:
        try:
            spec = store.read_json(path / "spec.json")
            key = _key(spec["id"])
            if not settings and is_setting(spec):
                passed_over += 1
                continue
            if tracks and track_of(spec) not in tracks:
                of_others[track_of(spec)] += 1
                continue
            summary = store.read_json(path / "summary.json")
            curve = read_curve(path, summary)
        except (ValueError, TypeError, KeyError) as error:
            missing.append(f"{path.relative_to(root.resolve())} is damaged ({error}): left out")
            continue
        if key in by_id:
            raise ValueError(
                f"two runs under {root} are called {spec['id']}: report their directories apart"
            )
        if not (path / "curve.parquet").is_file():
            missing.append(f"{spec['id']} holds no figures by rule: left out")
            continue
        by_id[key] = {
            "spec": spec,
            "summary": summary,
            "curve": curve,
            "provenance": _optional(path / "provenance.json"),
            "path": path,
        }
    if passed_over and not by_id:
        return read(root, tracks=tracks)
    for track, count in of_others.items():
        which, flag = (
            (f"of the track {track}", f" --tracks {track}") if track else ("of no track", "")
        )
        missing.append(f"runs {which} ({count}): tape report{flag} shows them")
    if passed_over:
        missing.append(
            f"runs that are settings of experiments ({passed_over}): tape reproduce shows them"
        )
    bundles, refused = read_bundles(root)
    missing += refused
    contests = []
    if by_id:
        groups = _group(by_id, missing)
        for (experiment, split, mark), runs in groups.items():
            others = [key for key in groups if key[:2] == (experiment, split)]
            slug = re.sub(r"[^a-z0-9._+-]", "-", f"{experiment}-{split}".lower())
            slug += f"-{mark[:6]}" if len(others) > 1 else ""
            contests.append(_contest(slug, runs, stored, root, bundles))
    contests.sort(key=lambda c: (-sum(len(e.seeds) for e in c.entries), -len(c.exam.rules), c.slug))
    for contest in contests:
        missing += _gaps(contest)
    unseen = [contest.title for contest in contests if not contest.bundles]
    if unseen:
        missing.append(
            f"{'; '.join(unseen)}: there are no episodes to watch. tape report --replay makes them "
            "from checkpoints; any bundle of the same exam in this directory is shown"
        )
    used = {id(bundle) for contest in contests for bundle in contest.bundles}
    missing += [
        f"the bundle of {bundle.about['policy']} is of an exam that no run sat: left out"
        for bundle in bundles
        if id(bundle) not in used
    ]
    return Findings(root, tuple(contests), tuple(missing))


def track_of(spec: Mapping[str, Any]) -> str:
    """The track whose budget a run had, without its version; empty if it had none."""
    return str(spec.get("track") or "").rpartition("-")[0]


def is_setting(spec: Mapping[str, Any]) -> bool:
    """Whether a run was made for an experiment, such as `lite-reward-...`, and not for a track."""
    track = track_of(spec)
    return bool(track) and str(spec.get("experiment")).startswith(f"{track}-")


def find(contests: Iterable[Contest], experiment: str, exam: Exam) -> Contest | None:
    """Those who sat this exam in this experiment."""
    for contest in contests:
        if (contest.experiment, contest.exam.hash) == (experiment, exam.hash):
            return contest
    return None


def known_lines(exam: Exam, root: Path) -> dict[str, score.Line] | None:
    """The reference lines of an exam, kept beside the runs or shipped; None if they have not been
    measured."""
    file = root / "lines" / f"{exam.hash}.json"
    if not file.is_file():
        return score.shipped_lines(exam)
    return {
        name: {metric: np.array(by_rule) for metric, by_rule in line.items()}
        for name, line in store.read_json(file)["lines"].items()
    }


def lines(
    exam: Exam, root: Path, progress: Callable[[str], Any] = lambda name: None
) -> dict[str, score.Line]:
    """What needs no training on this exam; run on the spot once if it is not shipped, then kept."""
    known = known_lines(exam, root)
    if known is not None:
        return known
    found = score.run_lines(exam, progress)
    file = root / "lines" / f"{exam.hash}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    plain = {
        name: {metric: by_rule.tolist() for metric, by_rule in line.items()}
        for name, line in found.items()
    }
    store.write_json(file, {"exam": exam.identity, "lines": plain})
    return found


def read_curve(path: Path, summary: Mapping[str, Any]) -> dict[str, list[Any]]:
    """A run's learning curve: `step`, and success by subset. Older summaries do not hold it."""
    if "curve" in summary:
        return dict(summary["curve"])
    table = store.read_table(path / "curve.parquet")
    steps = np.unique(table["step"])
    return {"step": steps.tolist()} | {
        subset: [float(table["success"][at & (table["step"] == step)].mean()) for step in steps]
        for subset in SUBSETS
        if (at := table["subset"] == subset).any()
    }


def relation(rule: int, trained_on: frozenset[int]) -> str:
    """The nearest relative of a rule among those trained on: see `RELATIONS`.

    A mirror image is the same task seen from the other side. A complement is not: it does not keep
    the goal of zeros.
    """
    negative = rules.complement(rule)
    nearest = (rule, rules.mirror(rule), negative, rules.mirror(negative))
    for name, relative in zip(RELATIONS, nearest, strict=False):
        if relative in trained_on:
            return name
    return RELATIONS[-1]


RELATIONS = (
    "trained on itself",
    "its mirror image",
    "its complement",
    "its mirrored complement",
    "no relative",
)


def _key(run: str) -> tuple[str, ...]:
    experiment, agent, split, seed = run.split("/")
    return experiment, agent, split, str(int(seed[1:]))


def _unfinished(root: Path) -> list[str]:
    """A sentence about runs that were begun and have no marker, if there are any."""
    begun = [
        spec.parent.relative_to(root).as_posix()
        for spec in sorted(root.rglob("spec.json"))
        if not (spec.parent / store.MARKER).is_file()
    ]
    if not begun:
        return []
    more = f" and {len(begun) - NAMED} more" if len(begun) > NAMED else ""
    return [f"runs that are not finished: {', '.join(begun[:NAMED])}{more}"]


def _optional(path: Path) -> dict[str, Any]:
    found = store.read_json(path) if path.is_file() else {}
    return found if isinstance(found, dict) else {}


def read_bundles(root: Path) -> tuple[list[Bundle], list[str]]:
    """Every bundle under a directory, replayed; and of those that are refused, why."""
    found, refused = [], []
    for path in sorted(root.rglob(BUNDLES)):
        try:
            found.append(verify(path))
        except BundleError as error:
            refused.append(f"the bundle {path.relative_to(root)} is refused: {error}")
    return found, refused


def _group(
    by_id: dict[tuple[str, ...], dict[str, Any]], missing: list[str]
) -> dict[tuple[str, str, str], dict[tuple[str, ...], dict[str, Any]]]:
    """Runs by experiment, split and exam."""
    found: dict[tuple[str, str, str], dict[tuple[str, ...], dict[str, Any]]] = {}
    exams: dict[str, Exam] = {}
    for key, run in by_id.items():
        identity = run["spec"].get("exam")
        try:
            exam = exams.get(str(identity)) or from_identity(identity)
        except ValueError as error:
            missing.append(f"{run['spec']['id']} is left out: {error}")
            continue
        run["exam"] = exams[str(identity)] = exam
        found.setdefault((key[0], exam.split, exam.hash), {})[key] = run
    return found


def _contest(
    slug: str,
    runs: dict[tuple[str, ...], dict[str, Any]],
    stored: store.Results,
    root: Path,
    bundles: Sequence[Bundle],
) -> Contest:
    first = next(iter(runs.values()))
    exam: Exam = first["exam"]
    only = store.Results(stored.root, tuple(run["path"] for run in runs.values()), ())
    means = ", ".join(f'avg("{name}"::double) as "{name}"' for name in METRICS)
    table = only.columns(
        f"with ranked as (select *, dense_rank() over (partition by agent, seed order by step desc)"
        f" as back from curve) select agent, seed, rule, {means} from ranked "
        "join (select agent, seed, last from runs) using (agent, seed) where back <= last "
        "group by all order by agent, seed, rule"
    )
    entries = []
    for agent in dict.fromkeys(key[1] for key in runs):
        own = {key: run for key, run in runs.items() if key[1] == agent}
        entries.append(_entry(agent, list(own.values()), exam, table))
    return Contest(
        experiment=next(iter(runs))[0],
        slug=slug,
        exam=exam,
        entries=tuple(entries),
        optimal_steps=exam.optimal_steps(),
        lines=known_lines(exam, root) or {},
        bundles=tuple(one for one in bundles if _belongs(one, next(iter(runs))[0], exam)),
    )


def _belongs(bundle: Bundle, experiment: str, exam: Exam) -> bool:
    """Whether a bundle is of this exam; one made of a run, only with that run's experiment."""
    run = bundle.about.get("run")
    is_own = not isinstance(run, str) or run.split("/")[0] == experiment
    return is_own and bundle.exam.hash == exam.hash


def _entry(
    agent: str,
    runs: list[dict[str, Any]],
    exam: Exam,
    table: Mapping[str, np.ndarray],
) -> Entry:
    runs.sort(key=lambda run: run["spec"]["seed"])
    seeds = tuple(int(run["spec"]["seed"]) for run in runs)
    at = table["agent"] == agent
    if at.sum() != len(seeds) * len(exam.rules):
        raise ValueError(
            f"the runs of {runs[0]['spec']['id']} and its other seeds do not hold every rule of "
            "their exam: they are damaged, make them anew"
        )
    scores = {
        name: table[name][at].astype(float).reshape(len(seeds), len(exam.rules)) for name in METRICS
    }
    by_steps = {}
    for subset in SUBSETS:
        told = [dict(run["summary"].get(subset, {}).get("by_steps", ())) for run in runs]
        needed = set(told[0]).intersection(*told)
        if needed:
            by_steps[subset] = {
                steps: np.array([one[steps] for one in told]) for steps in sorted(needed)
            }
    curves = [run["curve"] for run in runs]
    steps = tuple(curves[0]["step"])
    same = [curve for curve in curves if tuple(curve["step"]) == steps]
    return Entry(
        agent=agent,
        seeds=seeds,
        scores=scores,
        by_steps=by_steps,
        curve=Curve(
            steps,
            {
                subset: np.array([curve[subset] for curve in same])
                for subset in SUBSETS
                if all(subset in curve for curve in same)
            },
        ),
        specs=tuple(run["spec"] for run in runs),
        provenance=tuple(run["provenance"] for run in runs),
    )


def _gaps(contest: Contest) -> list[str]:
    """What a contest lacks, a sentence each."""
    found = []
    where = contest.title
    alone = [entry.agent for entry in contest.entries if len(entry.seeds) == 1]
    if alone:
        found.append(
            f"{where}: {', '.join(alone)} has one seed, so there is no interval and no test"
        )
    mixed = [entry.agent for entry in contest.entries if entry.is_mixed]
    if mixed:
        found.append(f"{where}: the seeds of {', '.join(mixed)} were not made with one setting")
    if not contest.trained_alike:
        found.append(
            f"{where}: agents were trained on different rules; ID and OOD are the sides of the "
            "split, and there is no table by relatives"
        )
    if not contest.lines:
        found.append(
            f"{where}: the reference lines of this exam were not measured; tape bench does"
        )
    unknown = int(np.isnan(contest.ceilings).sum())
    if unknown:
        found.append(f"{where}: the exact ceiling of {unknown} rules is not known")
    return found


def made_with(provenance: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Versions, machines and times that runs were made with, as facts with names."""
    if not provenance:
        return []
    versions = {
        f"tapebench {made['versions']['tapebench']}, jax {made['versions'].get('jax', '?')}"
        for made in provenance
    }
    machines = {
        f"{made['machine']['processor']}, {made['machine']['cores']} cores" for made in provenance
    }
    revisions = {made["revision"][:12] for made in provenance if made.get("revision")}
    hours = sum(made.get("seconds") or 0.0 for made in provenance) / 3600
    facts = [("versions", "; ".join(sorted(versions))), ("machines", "; ".join(sorted(machines)))]
    if revisions:
        facts.append(("revisions", ", ".join(sorted(revisions))))
    return [*facts, ("time at work", f"{hours:.2f} hours of all runs together")]
