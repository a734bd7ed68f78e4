"""Finished runs as arrays: who was asked the same, and what came of it.

Runs are put together into contests. Within one, everybody sat the same exam in the same
experiment, so their numbers may stand in one table; across them they may not.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tapebench.base import files
from tapebench.exam import metrics, seating
from tapebench.exam.baselines import Baseline, load_stored
from tapebench.exam.bundle import PATTERN, Bundle, BundleError, verify
from tapebench.exam.by_stratum import why_unknown
from tapebench.exam.exam import STANDARD, SUBSETS, Exam, from_identity
from tapebench.physics.features import Rule
from tapebench.runs import results, store
from tapebench.runs.results import load_results
from tapebench.runs.tracks import is_setting, track_of
from tapebench.stats import CONTEXTS
from tapebench.tasks import folds, splits
from tapebench.tasks.universe import ELEMENTARY

METRICS = tuple(metrics.METRICS)

NAMED = 6
"""Unfinished runs that are listed by name."""

EQUIVARIANT, FULLY_CONNECTED = "ring-equivariant", "fully connected"
KINDS = dict.fromkeys(("conv", "cells", "entries"), EQUIVARIANT)
KINDS |= dict.fromkeys(("mlp", "gru"), FULLY_CONNECTED)
"""The kind of each network. Agents are compared within a kind: across kinds it is the networks that
are compared."""

IDENTIFICATION = ("automata",)
"""What infers the rule and searches with it, without reinforcement learning: it has runs, and
stands with the references."""


LABEL_SHIFTS = ("shift", "shift+flip")
"""Augmentations of `rad` in which the action stays where it was: what they learn from is another
label. Runs of them are the ablation `rad-label-shift`, see ADR 23."""


def label_of(agent: str, config: Mapping[str, Any] | None) -> str:
    """What tables call an agent: its name and the network of its stored config, if it has one.

    Then what it is given about the rule, `pqn-conv+evidence`, if it is given anything.
    """
    config = config or {}
    network, given = config.get("network"), given_about_rule(config)
    name = f"{agent}-label-shift" if is_ablation(agent, config) else agent
    label = f"{name}-{network}" if network else name
    return f"{label}+{given}" if given else label


def given_about_rule(config: Mapping[str, Any]) -> str:
    """What this config gives an agent about the rule, of `CONTEXTS`; empty if nothing."""
    context = config.get("context")
    return context if context in CONTEXTS and context != "none" else ""


def is_ablation(agent: str, config: Mapping[str, Any]) -> bool:
    """Whether an agent with this config is shown for what it lacks, and speaks for no method."""
    return agent == "rad" and config.get("augment") in LABEL_SHIFTS


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
    seatings: tuple[int, ...] = (seating.VERSION,)
    """Every version of the seating that the evaluations which count were sat with."""

    @property
    def trained_on(self) -> frozenset[int]:
        return frozenset(self.specs[0].get("trained_on") or ())

    @property
    def label(self) -> str:
        """What tables call it, by the config that its runs were made with; see `label_of`."""
        labels = {label_of(self.agent, spec.get("config")) for spec in self.specs}
        return labels.pop() if len(labels) == 1 else self.agent

    @property
    def network_kind(self) -> str:
        """The kind of its network; empty where that is not known, and where it is given something
        about the rule, so that it is compared with nobody who is not."""
        configs = [spec.get("config") or {} for spec in self.specs]
        networks = {config.get("network") for config in configs}
        if len(networks) > 1 or any(map(given_about_rule, configs)):
            return ""
        return KINDS.get(str(networks.pop()), "")

    @property
    def is_ablation(self) -> bool:
        """Whether it is shown for what it lacks; see `is_ablation`."""
        return any(is_ablation(self.agent, spec.get("config") or {}) for spec in self.specs)

    @property
    def is_told(self) -> bool:
        """Whether it is given the rule."""
        return any(given_about_rule(spec.get("config") or {}) == "rule" for spec in self.specs)

    @property
    def is_identification(self) -> bool:
        """Whether it does no reinforcement learning."""
        return self.agent in IDENTIFICATION

    @property
    def is_reference(self) -> bool:
        """Whether it stands with the references."""
        return self.is_identification or self.is_told

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
    baselines: Mapping[str, Baseline]
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
        parts = [f"{self.experiment} on {self.exam.split}", task.space.title]
        parts.append(f"H = {task.horizon}")
        if task.hidden:
            parts.append(f"{task.hidden.bit_count()} cells hidden")
        if task.noise:
            parts.append(f"noise {task.noise:g}")
        if switches := task.schedule.switches:
            parts.append(f"the rule switches at {', '.join(map(str, switches))}")
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
    damaged: tuple[results.Damage, ...] = ()
    """Runs among those that are damaged."""


@dataclass(frozen=True)
class _Run:
    """A finished run, as far as tables need it; all of it has been looked at."""

    id: store.RunId
    path: Path
    spec: dict[str, Any]
    exam: Exam
    last: int
    by_steps: Mapping[str, Mapping[int, float]]
    """Subset -> optimal steps -> success."""
    curve: Mapping[str, list[Any]]
    provenance: dict[str, Any]


def read(
    root: Path,
    *,
    settings: bool = True,
    tracks: Sequence[str] = (),
    baselines: Mapping[str, Mapping[str, Baseline]] | None = None,
    published: bool = False,
) -> Findings:
    """Read every finished run and every bundle under a directory. Nothing is computed anew.

    Without `settings`, runs that are settings of experiments are passed over and only counted,
    unless there are no others; so are, where `tracks` are named, runs of others. `baselines` are
    those of exams, by hash, that are not stored. Whether the directory is that of the `published`
    results decides how the advice calls it.
    """
    stored = load_results(root)
    missing = [str(damage) for damage in stored.left_out]
    missing += _unfinished(stored)
    runs: dict[store.RunId, _Run] = {}
    exams: dict[str, Exam] = {}
    passed_over = 0
    of_others: Counter[str] = Counter()
    exams_of_others: set[str] = set()
    for path in stored.paths:
        spec = files.read_object(path / "spec.json")
        is_passed_over = not settings and is_setting(spec)
        is_other = bool(tracks) and track_of(spec) not in tracks
        if is_passed_over or is_other:
            exams_of_others.add(_canonical(spec.get("exam")))
            passed_over += is_passed_over
            of_others[track_of(spec)] += not is_passed_over
            continue
        try:
            run = _read_run(path, spec, exams)
        except ValueError as error:
            missing.append(f"{_as_named(root, path)} is left out: {error}")
            continue
        if run.id in runs:
            raise ValueError(
                f"two runs under {root} are called {run.id}: report their directories apart"
            )
        runs[run.id] = run
    if passed_over and not runs:
        return read(root, tracks=tracks, baselines=baselines, published=published)
    where = "--published" if published else shlex.quote(str(root))
    command = f"tape report {where}"
    for track, count in (+of_others).items():
        which, flag = (
            (f"of the track {track}", f" --track {track}") if track else ("of no track", "")
        )
        missing.append(f"runs {which} ({count}): {command}{flag} shows them")
    if passed_over:
        missing.append(
            f"runs that are settings of experiments ({passed_over}): tape reproduce "
            f"{where if published else f'--results {where}'} lists these, and shows one by its name"
        )
    bundles, refused = read_bundles(root)
    missing += refused
    groups: dict[tuple[str, str, str], list[_Run]] = {}
    for run in runs.values():
        groups.setdefault((run.id.experiment, run.exam.split, run.exam.hash), []).append(run)
    contests = []
    for (experiment, split, mark), group in groups.items():
        others = [key for key in groups if key[:2] == (experiment, split)]
        slug = re.sub(r"[^a-z0-9._+-]", "-", f"{experiment}-{split}".lower())
        slug += f"-{mark[:6]}" if len(others) > 1 else ""
        contest = _contest(slug, group, root, bundles, baselines or {}, missing)
        if contest is not None:
            contests.append(contest)
    contests = _with_other_settings(contests)
    contests.sort(key=lambda c: (-sum(len(e.seeds) for e in c.entries), -len(c.exam.rules), c.slug))
    for contest in contests:
        missing += _gaps(contest)
    tracks_flag = f" --track {' '.join(tracks)}" if tracks else ""
    missing += _unwatched(contests, runs, command + tracks_flag)
    used = {id(bundle) for contest in contests for bundle in contest.bundles}
    missing += [
        f"the bundle of {bundle.about['policy']} is of an exam that no run sat: left out"
        for bundle in bundles
        if id(bundle) not in used and _canonical(bundle.exam.identity) not in exams_of_others
    ]
    return Findings(root, tuple(contests), tuple(missing), stored.left_out)


def with_bundles(found: Findings, paths: Sequence[Path]) -> Findings:
    """The findings with bundles of others as agents of their own, wherever their exam was sat.

    Bundles of one name on one exam are seeds of one agent, which is taken to be trained on the
    training rules of its split, as it says. `ValueError` names a bundle that is refused, or whose
    exam nobody sat.
    """
    groups: dict[tuple[str, str], list[Bundle]] = {}
    for path in paths:
        try:
            played = verify(path)
        except BundleError as error:
            raise ValueError(f"{path} is refused: {error}") from None
        if not any(contest.exam.hash == played.exam.hash for contest in found.contests):
            task = played.exam.task
            raise ValueError(
                f"{path} is of an exam that no run here sat: {played.exam.split}, "
                f"{task.space.title}, H = {task.horizon}, {played.exam.name}"
            )
        groups.setdefault((played.exam.hash, player(played)), []).append(played)
    joined = []
    for contest in found.contests:
        labels = {entry.label for entry in contest.entries}
        for (mark, name), seeds in groups.items():
            if mark == contest.exam.hash:
                entry = _entry_of_bundles(name if name not in labels else f"{name} *", seeds)
                contest = replace(
                    contest,
                    entries=(*contest.entries, entry),
                    bundles=(*(b for b in contest.bundles if not _is_among(b, seeds)), *seeds),
                )
        joined.append(contest)
    return replace(found, contests=tuple(joined))


def player(played: Bundle) -> str:
    """Who played a bundle; of one that is not made of a run, also what it declares."""
    policy = str(played.about["policy"])
    if isinstance(played.about.get("run"), str):
        return policy
    sight = "saw the rule" if played.about["sees_rule"] else "declared blind"
    return f"{policy} ({', '.join([sight, *played.conditions.remarks])})"


def _is_among(played: Bundle, others: Sequence[Bundle]) -> bool:
    """Whether a bundle is one of some, found in the directory and named as well."""
    return any(other.result == played.result and other.about == played.about for other in others)


def _entry_of_bundles(name: str, seeds: Sequence[Bundle]) -> Entry:
    exam = seeds[0].exam
    is_known = exam.split in splits.names()
    trained_on = splits.load(exam.split).train if is_known else exam.train
    spec = {"id": name, "agent": name, "trained_on": list(trained_on), "exam": exam.identity}
    return Entry(
        agent=name,
        seeds=tuple(range(len(seeds))),
        scores={
            metric: np.array([measure(seed.episodes).mean(axis=1) for seed in seeds], float)
            for metric, measure in metrics.METRICS.items()
        },
        by_steps={},
        curve=Curve((), {}),
        specs=(spec,) * len(seeds),
        provenance=({},) * len(seeds),
        seatings=tuple(sorted({seed.conditions.seating for seed in seeds})),
    )


def _with_other_settings(contests: Sequence[Contest]) -> list[Contest]:
    """Contests, with runs of a track that were made with other settings in the track's own contest.

    `tape bench` keeps them apart as `full+0123abcd`. They sat the same exam, so they stand in one
    table wherever their labels tell them from what is there.
    """
    joined = {(contest.experiment, contest.exam.hash): contest for contest in contests}
    for key, other in sorted(joined.items()):
        first = joined.get((other.experiment.partition("+")[0], other.exam.hash), other)
        labels = [entry.label for entry in (*first.entries, *other.entries)]
        is_fold = other.exam.split in folds.NAMES  # folds are put together as a set
        if first is not other and not is_fold and len({*labels}) == len(labels):
            joined[first.experiment, first.exam.hash] = replace(
                first,
                entries=(*first.entries, *other.entries),
                bundles=(*first.bundles, *(b for b in other.bundles if b not in first.bundles)),
            )
            del joined[key]
    return list(joined.values())


def _as_named(root: Path, path: Path) -> Path:
    """A run's directory by the name that its reader gave to the results."""
    return root / path.relative_to(root.resolve())


def _canonical(identity: Any) -> str:
    """An exam's identity as a text, also one that is malformed."""
    return json.dumps(identity, sort_keys=True)


def _unwatched(
    contests: Sequence[Contest], runs: Mapping[store.RunId, _Run], command: str
) -> list[str]:
    """Sentences about contests that no episodes are kept of: those that can be replayed, others."""
    can: dict[bool, list[str]] = {True: [], False: []}
    replayed = {(contest.experiment, contest.exam.split) for contest in contests if contest.bundles}
    for contest in contests:
        is_fold = contest.exam.split in folds.NAMES
        if not contest.bundles and not (
            is_fold and (contest.experiment, folds.NAMES[0]) in replayed
        ):
            keeps = any(
                store.has_checkpoint(runs[store.parse_id(spec["id"])].path)
                for entry in contest.entries
                for spec in entry.specs
            )
            can[keeps].append(contest.title)
    sentences = []
    if can[True]:
        sentences.append(
            f"{'; '.join(can[True])}: there are no episodes to watch. {command} --replay makes "
            "them from checkpoints; any bundle of the same exam in this directory is shown"
        )
    if can[False]:
        sentences.append(
            f"{'; '.join(can[False])}: there are no episodes to watch, and no checkpoint to make "
            "them from; any bundle of the same exam in this directory is shown"
        )
    return sentences


def _read_run(path: Path, spec: dict[str, Any], exams: dict[str, Exam]) -> _Run:
    """A run as tables need it. `ValueError` says what it lacks: it may come from others."""
    run_id = store.parse_id(spec["id"])
    summary = files.read_object(path / "summary.json")
    if not (path / "curve.parquet").is_file():
        raise ValueError("it holds no figures by rule")
    identity = _canonical(spec.get("exam"))
    if identity not in exams:
        exams[identity] = from_identity(spec.get("exam"))
    trained_on = spec.get("trained_on") or []
    if not isinstance(trained_on, list) or not all(isinstance(rule, int) for rule in trained_on):
        raise ValueError("its spec.json does not say what it was trained on")
    try:
        by_steps = {
            subset: {int(steps): float(share) for steps, share in summary[subset]["by_steps"]}
            for subset in SUBSETS
            if subset in summary and "by_steps" in summary[subset]
        }
        curve_as_stored = read_curve(path, summary)
        curve = {"step": [int(step) for step in curve_as_stored["step"]]} | {
            subset: [float(share) for share in curve_as_stored[subset]]
            for subset in SUBSETS
            if subset in curve_as_stored
        }
        last = int(summary["last"])
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"its summary.json is malformed ({error!r})") from None
    if len({len(column) for column in curve.values()}) != 1:
        raise ValueError("its summary.json is malformed (a learning curve with gaps)")
    return _Run(run_id, path, spec, exams[identity], last, by_steps, curve, _provenance(path))


def find_contest(contests: Iterable[Contest], experiment: str, exam: Exam) -> Contest | None:
    """Those who sat this exam in this experiment."""
    for contest in contests:
        if (contest.experiment, contest.exam.hash) == (experiment, exam.hash):
            return contest
    return None


def with_networks(contest: Contest, contests: Iterable[Contest]) -> Contest:
    """The contest and, from the experiment `networks`, the same agents with other networks."""
    others = [
        other
        for other in contests
        if other.experiment.startswith(f"{contest.experiment}-networks-")
        and other.exam.hash == contest.exam.hash
    ]
    entries = {entry.label: entry for other in others for entry in other.entries}
    entries |= {entry.label: entry for entry in contest.entries}
    return replace(contest, entries=tuple(entries.values()))


def read_curve(path: Path, summary: Mapping[str, Any]) -> dict[str, list[Any]]:
    """A run's learning curve: `step`, and success by subset. Older summaries do not hold it."""
    if "curve" in summary:
        return dict(summary["curve"])
    table = files.read_table(path / "curve.parquet")
    steps = np.unique(table["step"])
    return {"step": steps.tolist()} | {
        subset: [
            float(table["success"][is_of_subset & (table["step"] == step)].mean()) for step in steps
        ]
        for subset in SUBSETS
        if (is_of_subset := table["subset"] == subset).any()
    }


def relation(rule: int, trained_on: frozenset[int], known: Mapping[int, Rule]) -> str:
    """The nearest relative of a rule among those trained on: see `RELATIONS`.

    A mirror image is the same task seen from the other side. A complement is not: it does not keep
    the goal of zeros.
    """
    mirror, negative = known[rule].mirror, known[rule].complement
    nearest = (rule, mirror, negative, known[negative].mirror)
    for name, relative in zip(RELATIONS, nearest, strict=False):
        if relative in trained_on:
            return name
    return RELATIONS[-1]


NO_RELATIVES = "which are looked up among elementary rules alone"


def knows_relatives(exam: Exam) -> bool:
    """Whether it is known which rules are mirror images and complements of each other."""
    return exam.universe.family == ELEMENTARY.family


RELATIONS = (
    "trained on itself",
    "its mirror image",
    "its complement",
    "its mirrored complement",
    "no relative",
)


def _unfinished(stored: results.Results) -> list[str]:
    """A sentence about runs that were begun and have no marker, if there are any."""
    begun = [path.relative_to(stored.root).as_posix() for path in stored.unfinished]
    if not begun:
        return []
    more = f" and {len(begun) - NAMED} more" if len(begun) > NAMED else ""
    return [f"runs that are not finished: {', '.join(begun[:NAMED])}{more}"]


def _provenance(path: Path) -> dict[str, Any]:
    """How a run was made; empty where that is not stored, or not as we store it."""
    file = path / "provenance.json"
    about = files.read_object(file) if file.is_file() else {}
    kinds: dict[str, Any] = {
        "versions": dict,
        "machine": dict,
        "revision": (str, type(None)),
        "seconds": (int, float, type(None)),
    }
    is_ours = all(isinstance(about.get(key), kind) for key, kind in kinds.items())
    together = about.get("together", 1)
    return about if is_ours and isinstance(together, int) and together > 0 else {}


def read_bundles(root: Path) -> tuple[list[Bundle], list[str]]:
    """Every bundle under a directory, replayed; and of those that are refused, why."""
    bundles, refused = [], []
    for path in sorted(file for file in root.rglob(PATTERN) if file.is_file()):
        try:
            bundles.append(verify(path))
        except BundleError as error:
            refused.append(f"the bundle {path.relative_to(root)} is refused: {error}")
    return bundles, refused


def _contest(
    slug: str,
    runs: Sequence[_Run],
    root: Path,
    bundles: Sequence[Bundle],
    baselines: Mapping[str, Mapping[str, Baseline]],
    missing: list[str],
) -> Contest | None:
    """Those runs as a contest; what had to be left out of it goes to `missing`."""
    exam, experiment = runs[0].exam, runs[0].id.experiment
    try:
        table = _rule_means(root, runs)
    except ValueError:
        # One table that cannot be read must not keep the others from being shown.
        readable = []
        for run in runs:
            try:
                _rule_means(root, [run])
                readable.append(run)
            except ValueError as error:
                named = _as_named(root, run.path)
                missing.append(f"{named} is left out: {error}; {store.remedy(named)}")
        if not readable:
            return None
        runs, table = readable, _rule_means(root, readable)
    known = baselines.get(exam.hash)
    if known is None:
        try:
            known = load_stored(exam, root)
        except ValueError as error:
            missing.append(f"{error}: tape bench measures it again")
    return Contest(
        experiment=experiment,
        slug=slug,
        exam=exam,
        entries=tuple(
            _entry(agent, [run for run in runs if run.id.agent == agent], exam, table)
            for agent in dict.fromkeys(run.id.agent for run in runs)
        ),
        optimal_steps=exam.optimal_steps(),
        baselines=known or {},
        bundles=tuple(bundle for bundle in bundles if _belongs(bundle, experiment, exam)),
    )


def _rule_means(root: Path, runs: Sequence[_Run]) -> dict[str, np.ndarray]:
    """Every metric by agent, seed and rule: means over the evaluations that count, and the versions
    of the seating that these were sat with.

    Refuses runs that do not hold every rule of their exam once.
    """
    means = ", ".join(f'avg("{name}"::double) as "{name}"' for name in METRICS)
    table = results.Results(root, tuple(run.path for run in runs)).columns(
        f"with ranked as (select *, dense_rank() over (partition by agent, seed order by step desc)"
        f" as back from curve) select agent, seed, rule, {means}, min(seating) as first_seating, "
        "max(seating) as last_seating from ranked "
        "join (select agent, seed, last from runs) using (agent, seed) where back <= last "
        "group by all order by agent, seed, rule"
    )
    expected = np.tile(np.sort(runs[0].exam.rules), len(runs))
    if not np.array_equal(table["rule"], expected):
        raise ValueError("its curve.parquet does not hold every rule of its exam")
    return table


def _belongs(bundle: Bundle, experiment: str, exam: Exam) -> bool:
    """Whether a bundle is of this exam; one made of a run, only with that run's experiment."""
    run = bundle.about.get("run")
    is_own = not isinstance(run, str) or run.split("/")[0] == experiment
    return is_own and bundle.exam.hash == exam.hash


def _entry(agent: str, runs: list[_Run], exam: Exam, table: Mapping[str, np.ndarray]) -> Entry:
    runs.sort(key=lambda run: run.id.seed)
    is_own = table["agent"] == agent
    scores = {
        name: table[name][is_own].astype(float).reshape(len(runs), len(exam.rules))
        for name in METRICS
    }
    by_steps = {}
    for subset in SUBSETS:
        shares = [run.by_steps.get(subset, {}) for run in runs]
        needed = set(shares[0]).intersection(*shares)
        if needed:
            by_steps[subset] = {
                steps: np.array([by_number[steps] for by_number in shares])
                for steps in sorted(needed)
            }
    steps = tuple(runs[0].curve["step"])
    same = [run.curve for run in runs if tuple(run.curve["step"]) == steps]
    return Entry(
        agent=agent,
        seeds=tuple(run.id.seed for run in runs),
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
        specs=tuple(run.spec for run in runs),
        provenance=tuple(run.provenance for run in runs),
        seatings=tuple(
            int(version)
            for version in np.unique(
                [table[name][is_own] for name in ("first_seating", "last_seating")]
            )
        ),
    )


def _gaps(contest: Contest) -> list[str]:
    """What a contest lacks, a sentence each."""
    sentences = []
    where = contest.title
    alone = [entry.agent for entry in contest.entries if len(entry.seeds) == 1]
    if alone:
        sentences.append(
            f"{where}: {', '.join(alone)} has one seed, so there is no interval and no test"
        )
    mixed = [entry.agent for entry in contest.entries if entry.is_mixed]
    if mixed:
        sentences.append(f"{where}: the seeds of {', '.join(mixed)} were not made with one setting")
    if not contest.trained_alike:
        sentences.append(
            f"{where}: agents were trained on different rules; ID and OOD are the sides of the "
            "split, and there is no table by relatives"
        )
    if not contest.baselines:
        sentences.append(
            f"{where}: the baselines of this exam were not measured; tape bench does so for "
            "its tracks, and tape evaluate random prints them for any exam"
        )
    if reason := why_unknown(contest.exam):
        sentences.append(f"{where}: success by stratum is not shown, {reason}")
    if not knows_relatives(contest.exam):
        sentences.append(f"{where}: there is no table by relatives, {NO_RELATIVES}")
    unknown = int(np.isnan(contest.ceilings).sum())
    if unknown:
        sentences.append(f"{where}: the exact ceiling of {unknown} rules is not known")
    return sentences


def made_with(provenance: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Versions, machines and times that runs were made with, as facts with names."""
    provenance = [made for made in provenance if made]
    if not provenance:
        return []
    versions = {
        f"tapebench {made['versions'].get('tapebench', '?')}, "
        f"jax {made['versions'].get('jax', '?')}"
        for made in provenance
    }
    machines = {
        f"{made['machine'].get('processor', '?')}, {made['machine'].get('cores', '?')} cores"
        for made in provenance
    }
    revisions = {made["revision"][:12] for made in provenance if made.get("revision")}
    hours = sum(made.get("seconds") or 0.0 for made in provenance) / 3600
    facts = [("versions", "; ".join(sorted(versions))), ("machines", "; ".join(sorted(machines)))]
    if revisions:
        facts.append(("revisions", ", ".join(sorted(revisions))))
    return [*facts, ("time at work", f"{hours:.2f} hours of all runs together")]
