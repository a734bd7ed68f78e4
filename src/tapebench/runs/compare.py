"""What results say of one another: two agents on an exam, one agent with several splits, and the
seeds that a difference needs.

`ExamResult` is all that a comparison asks for, so a policy that sits the exam now, a bundle of
somebody else and stored runs are compared alike.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tapebench import stats
from tapebench.base import files, seeding
from tapebench.base.names import one_of
from tapebench.exam import bundle, by_stratum
from tapebench.exam.evaluate import evaluate
from tapebench.exam.exam import SUBSETS, Exam, from_identity
from tapebench.exam.seating import Conditions
from tapebench.runs import published, results, store
from tapebench.runs.folds import rule_success
from tapebench.runs.results import load_results


@dataclass(frozen=True)
class ExamResult:
    """Successes on an exam, wherever they come from: all that a comparison needs."""

    name: str
    exam: Exam
    success: np.ndarray
    """`[S, R, E]`: seeds, rules, episodes; of means by rule a single column."""
    remarks: tuple[str, ...] = ()
    """What has to stand beside them, see `seating.Conditions.remarks`."""
    is_by_rule: bool = False
    """Whether there are means by rule alone, without episodes."""


PUBLISHED = "published:"
"""How the name of an agent begins whose published means by rule are meant."""


def enter(
    names: Sequence[str], make_exam: Callable[[], Exam], is_given: bool = True, **options: Any
) -> list[ExamResult]:
    """Successes of policies that sit an exam now, in bundles, in stored runs and published ones.

    Unless the exam `is_given`, it is the one that the first bundle or directory of runs sat.
    """
    loaded = {
        name: load_result(Path(name))
        for name in dict.fromkeys(names)
        if Path(name).is_dir() or Path(name).is_file()
    }
    sat = next(iter(loaded.values())).exam if loaded and not is_given else make_exam()
    return [loaded.get(name) or evaluate_or_load(name, sat, **options) for name in names]


def evaluate_or_load(policy: str, exam: Exam, **options: Any) -> ExamResult:
    """Successes of a policy that sits `exam` now, or those in a bundle or in stored runs."""
    path = Path(policy)
    if path.is_dir() or path.is_file():
        return load_result(path)
    if policy.startswith(PUBLISHED):
        return load_published(policy.removeprefix(PUBLISHED), exam)
    outcome = evaluate(policy, exam, **options)
    success = np.array([run.success for run in outcome.runs], float)
    return ExamResult(policy, exam, success, outcome.conditions.remarks)


def load_result(path: Path) -> ExamResult:
    """Successes in a bundle or in stored runs."""
    if path.is_dir():
        return _read_runs(path)
    replayed = bundle.verify(path)
    success = replayed.episodes.success[None].astype(float)
    return ExamResult(replayed.about["policy"], replayed.exam, success, replayed.conditions.remarks)


def load_published(name: str, exam: Exam) -> ExamResult:
    """The means by rule of a published agent on an exam, see `published.runs_of`."""
    stored = load_results(published.runs_of(name, exam))
    success = [
        rule_success(run, exam, int(files.read_object(run / "spec.json")["last"]))
        for run in stored.paths
    ]
    oldest = int(stored.columns("select min(seating) as seating from curve")["seating"][0])
    remarks = Conditions("by us", seating=oldest).remarks
    return ExamResult(f"published {name}", exam, np.array(success)[..., None], remarks, True)


def _read_runs(path: Path) -> ExamResult:
    """The seeds of one agent under a directory, averaged over the checkpoints that count."""
    store.refuse_damage(path)
    stored = load_results(path)
    specs = [files.read_object(run / "spec.json") for run in stored.paths]
    if not specs:
        raise ValueError(f"there are no finished runs in {path}")
    if len({json.dumps(spec.get("exam")) for spec in specs}) > 1:
        raise ValueError(f"the runs in {path} sat different exams: name a directory further down")
    if len({spec["id"].rsplit("/", 1)[0] for spec in specs}) > 1:
        raise ValueError(f"{path} holds several agents: name a directory further down")
    if not all((run / "eval.parquet").is_file() for run in stored.paths):
        raise ValueError(
            f"the runs in {path} hold no episodes, as those that come with the package: "
            "tape bench or tape train makes them again, and tape evaluate has them sit an exam"
        )
    exam = from_identity(specs[0].get("exam"))
    means = stored.columns(
        "select seed, rule, trial, episode, avg(success::int) as success from eval "
        "group by all order by seed, rule, trial, episode"
    )["success"]
    shape = (len(specs), len(exam.rules), exam.num_columns)
    if means.size != np.prod(shape):
        raise ValueError(f"the runs in {path} hold {means.size} episodes instead of {shape}")
    oldest = int(stored.columns("select min(seating) as seating from eval")["seating"][0])
    remarks = Conditions("by us", seating=oldest).remarks
    return ExamResult(specs[0]["id"].split("/")[1], exam, means.reshape(shape), remarks)


def compare(a: ExamResult, b: ExamResult) -> dict[str, Any]:
    """How two differ on the same exam, by stratum and as a whole, with paired intervals."""
    if a.exam.hash != b.exam.hash:
        differing = [
            key for key in a.exam.identity if a.exam.identity[key] != b.exam.identity.get(key)
        ]
        raise ValueError(f"{a.name} and {b.name} sat different exams: {', '.join(differing)}")
    is_by_rule = a.is_by_rule or b.is_by_rule
    if is_by_rule:
        a, b = _means_by_rule(a), _means_by_rule(b)
    over_seeds = _is_over_seeds(a, b)
    over_one = "rules" if is_by_rule else "rules and tapes"
    document: dict[str, Any] = {
        "a": a.name,
        "b": b.name,
        "remarks": {"a": list(a.remarks), "b": list(b.remarks)},
        "split": a.exam.split,
        "exam": a.exam.name,
        "paired_by": "rules" if is_by_rule else "episodes",
        "interval_over": "seeds" if over_seeds else over_one,
        "by_stratum": _contrast_strata(a, b),
        "no_strata": by_stratum.why_unknown(a.exam) or None,
    }
    for subset in SUBSETS:
        rows = a.exam.rows(subset)
        document[subset] = _contrast(a, b, rows, subset) if len(rows) else None
    if over_seeds:
        present = [subset for subset in SUBSETS if document[subset]]
        corrected = stats.holm(np.array([document[subset]["p"] for subset in present]))
        for subset, p in zip(present, corrected, strict=True):
            document[subset]["p_holm"] = float(p)
    return document


def _means_by_rule(result: ExamResult) -> ExamResult:
    return replace(result, success=result.success.mean(axis=2, keepdims=True))


def _contrast(a: ExamResult, b: ExamResult, rows: np.ndarray, *names: str) -> dict[str, Any]:
    """How two differ on some rules of their exam; `names` say which, to draw by."""
    ours, theirs = a.success[:, rows], b.success[:, rows]
    rng = seeding.generator(0, "compare", *names)
    contrast: dict[str, Any] = {"a": float(ours.mean()), "b": float(theirs.mean())}
    if _is_over_seeds(a, b):
        by_seed = ours.mean(axis=2), theirs.mean(axis=2)
        tested = stats.welch(*by_seed)
        is_paired = len(ours) == len(theirs)
        interval = stats.paired_interval(*by_seed, rng) if is_paired else tested.difference
        if is_paired and by_seed[0].shape[1] > 1:
            in_general = stats.hierarchical_interval(by_seed[0] - by_seed[1], rng)
            contrast["interval_over_rules_too"] = [in_general.low, in_general.high]
        contrast["p"] = tested.p
        contrast["improvement"] = stats.probability_of_improvement(*by_seed, rng).mean
    else:
        interval = stats.rule_tape_bootstrap(ours.mean(axis=0) - theirs.mean(axis=0), rng)
    contrast |= {"difference": interval.mean, "interval": [interval.low, interval.high]}
    by_rule = ours.mean(axis=(0, 2)) - theirs.mean(axis=(0, 2))
    won, lost = int((by_rule > 0).sum()), int((by_rule < 0).sum())
    return contrast | {"rules": len(rows), "rules_won": won, "rules_lost": lost}


def _is_over_seeds(a: ExamResult, b: ExamResult) -> bool:
    return len(a.success) > 1 and len(b.success) > 1


def _contrast_strata(a: ExamResult, b: ExamResult) -> dict[str, dict[str, Any]]:
    """How two differ by stratum and side, without tests: those are of the sides as a whole."""
    document: dict[str, dict[str, Any]] = {}
    for group in by_stratum.groups(a.exam):
        row = None
        if group.is_shown:
            row = _contrast(a, b, group.rows, group.side, group.stratum)
            row = {name: value for name, value in row.items() if name != "p"}
        document.setdefault(group.stratum, {})[group.side] = row
    return document


def unseen(exam_results: Sequence[ExamResult], name: str | None = None) -> dict[str, Any]:
    """What it costs an agent that a rule was not trained on, see `stats.cost_of_unseen`.

    Each result is of one or more seeds trained with a split, on the exam of that split; there must
    be at least two splits with two seeds each, all of one agent. Results under different names are
    refused unless `name` says that they are the same agent. Intervals are over seeds and rules.
    """
    names = list(dict.fromkeys(result.name for result in exam_results))
    if len(names) > 1 and name is None:
        raise ValueError(
            f"these are results of {names[0]} and of {names[1]}, and the seeds must be of one "
            "agent: leave some out, or say that they are with --as NAME"
        )
    groups: dict[str, list[ExamResult]] = {}
    for result in exam_results:
        groups.setdefault(result.exam.hash, []).append(result)
    exams = [group[0].exam for group in groups.values()]
    sides = ("split", "train", "test")
    for exam in exams[1:]:
        differing = [
            key
            for key, value in exam.identity.items()
            if key not in sides and value != exams[0].identity[key]
        ]
        if differing:
            raise ValueError(
                f"the exams differ in more than their split: {', '.join(differing)}; "
                "use exams that differ in nothing else"
            )
    if len({exam.split for exam in exams}) < max(len(exams), 2):
        raise ValueError(
            "results of one agent trained with two splits or more are needed, each on the whole "
            f"exam of its split; these are of {', '.join(sorted(exam.split for exam in exams))} "
            "alone"
        )
    trainings = [
        stats.Training(
            np.concatenate([result.success.mean(axis=2) for result in group]),
            exam.rules,
            exam.subsets == "ood",
        )
        for exam, group in zip(exams, groups.values(), strict=True)
    ]
    few = [
        exam.split for exam, result in zip(exams, trainings, strict=True) if len(result.scores) < 2
    ]
    if few:
        raise ValueError(
            f"the spread between seeds cannot be told from one: add seeds of {', '.join(few)}"
        )
    cost = stats.cost_of_unseen(trainings)
    if cost is None:
        raise ValueError("no rules were held out by one split and trained on with another")
    return {
        "names": [name] if name else names,
        "remarks": sorted({remark for result in exam_results for remark in result.remarks}),
        "exam": exams[0].name,
        "splits": {
            exam.split: {
                "seeds": len(training.scores),
                "id": float(training.scores[:, exam.rows("id")].mean()),
                "ood": float(training.scores[:, exam.rows("ood")].mean()),
                "drop": asdict(stats.drop_over_rules(training)),
                "cost": asdict(own_cost)
                if (own_cost := stats.cost_of_unseen(trainings, number))
                else None,
            }
            for number, (exam, training) in enumerate(zip(exams, trainings, strict=True))
        },
        "cost": asdict(cost),
        "interval_over": "seeds and rules",
    }


def power(
    stored: results.Results, metric: str, difference: float, wanted: float
) -> list[dict[str, Any]]:
    """For every stored agent: spread between seeds, and the seeds that a difference needs."""
    groups: dict[tuple[str, str, str], list[float]] = {}
    for run in stored.runs:
        one_of("metric", metric, run)
        groups.setdefault((run["experiment"], run["agent"], run["split"]), []).append(run[metric])
    rows = []
    for (experiment, agent, split), values in sorted(groups.items()):
        if len(values) < 2:
            continue
        sd = stats.pooled_sd(np.array(values))
        rows.append(
            {
                "experiment": experiment,
                "agent": agent,
                "split": split,
                "seeds": len(values),
                "sd": sd,
                "seeds_needed": stats.seeds_needed(difference, sd, power=wanted),
                "power_now": stats.power_of(len(values), difference, sd),
            }
        )
    if not rows:
        raise ValueError("no agent has two finished seeds, so their spread is unknown: run more")
    return rows
