"""What the results that come with the package say, in words and tables, and beside the paper.

    python tools/results_page.py            # from the published results
    python tools/results_page.py runs       # from a results directory, to look at

Writes `docs/results.md` with its pictures in `docs/results`, and `docs/paper.md`.

No sentence is written by hand for a number: each is chosen by what its interval says, so that it
cannot contradict the table beside it. The same results give the same bytes, and a test fails when
a page is not what this writes.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tapebench import experiments, stats
from tapebench.base import files
from tapebench.exam import baselines
from tapebench.exam.exam import SUBSETS
from tapebench.experiments import api, unseen
from tapebench.experiments.api import Exhibit, Scale
from tapebench.experiments.unseen import UNSEEN
from tapebench.pages import claims
from tapebench.report import contests as results
from tapebench.report import findings
from tapebench.report.contests import Contest
from tapebench.report.figures import Picture
from tapebench.report.tables import Column, Row, Table
from tapebench.runs import published, tracks
from tapebench.runs.results import load_results
from tapebench.stats import Comparison

ROOT = Path(__file__).parents[3]
"""The checkout that the documents are in."""
PAGE = Path("docs") / "results.md"
BESIDE = Path("docs") / "paper.md"
PICTURES = Path("docs") / "results"

TRACK = "full"
SPLITS = ("fps30", "matched30")
LONG = "long"
INFERENCE = "inference"
OTHER_TRACKS = {LONG: "With a larger budget", INFERENCE: "Where the law has to be found out"}
"""Tracks that are shown by their main table and learning curves, and under what title."""

EXPERIMENTS = (
    UNSEEN,
    "fresh-exam",
    "holdout-length",
    "dreamer-credibility",
    "automata-control",
    "budget",
    "trials",
    "law-in-memory",
    "train-on-test",
    "fixed-rules",
    "small-scale",
    "split-robustness",
    "networks",
    "training-rules",
    "context-length",
    "informativeness",
    "augmentations",
    "reward",
)
"""Experiments that are shown where there are runs of them."""

TRACKS = (LONG, TRACK, "lite")
"""Tracks that experiments may be shown of: the first that says much."""

AGAIN = {
    (TRACK, SPLITS[1]): ("fresh-exam", "holdout-length", "train-on-test", "networks"),
    (LONG, None): (UNSEEN,),
    (INFERENCE, None): ("automata-control",),
}
"""Experiments that are shown a second time, of another track or split, if some of it is there."""

MEMORY = (("rppo, gru", "ppo, mlp"), ("rppo, cells", "ppo, conv"))
"""Settings of `networks` and `budget` that differ by memory, the better first."""

TRAINED_THERE = tuple(
    (f"{agent}, trained on test", f"{agent}, trained on train") for agent in ("dqn", "ppo")
)
"""Settings of `train-on-test` that differ by the rules trained on."""

ABOUT = """This page is made by `python tools/results_page.py` from the results that come with the
package; `tape report --published` shows the tracks with more tables and figures, `tape reproduce
NAME --published` one experiment. An interval is over training seeds, for these rules and this exam.
Words such as above and below follow from the 95% interval of each agent on its own, and between
agents from Welch's test with Holm's correction; else two are not told apart, or a difference is
open, which is not the same as none. One seed decides nothing."""


ABOUT_BESIDE = """This page is made by `python tools/results_page.py` from the results that come
with the package and from what needs no training; `tape reproduce paper-beside-ours --published`
shows the same. A dash is what was not measured here, or not printed there."""


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> None:
    """Write the page and its pictures into the repository at `root`."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("results", type=Path, nargs="?", help="by default the published ones")
    place = parser.parse_args(arguments).results or published.directory()
    text, pictures = page(place)
    (root / PICTURES).mkdir(parents=True, exist_ok=True)
    for old in (root / PICTURES).glob("*.svg"):
        old.unlink()
    for picture in pictures:
        files.write_bytes(root / PICTURES / f"{picture.name}.svg", picture.svg)
    files.write_text(root / PAGE, text)
    files.write_text(root / BESIDE, beside_paper(place))
    print(f"{PAGE}: {len(text.splitlines())} lines, {len(pictures)} pictures; {BESIDE}")


def page(place: Path) -> tuple[str, list[Picture]]:
    """The text, and the pictures that it shows."""
    found = contests(place)
    if not found:
        raise SystemExit(f"there are no runs of the track {TRACK} in {place}")
    parts, pictures = ["# Results", ABOUT], []
    beside = {
        "Trained on the held-out rules instead of the others, fewer and other laws with the same "
        "budget": trained_there(place),
        "What memory buys": remembering(place),
    }
    costs, longer = (unseen.costs(scale_of(track), place) for track in (TRACK, LONG))
    parts += ["## In short", bullets(claims.in_short(found, costs, longer, beside))]
    for split, contest in found.items():
        parts += [f"## `{split}`", made_by(contest)]
        drawn = [findings.success_picture(contest), findings.curve_picture(contest)]
        pictures += drawn
        for table, told in (
            (findings.main_table(contest), claims.beside_lines(contest)),
            (claims.share_table(contest), claims.shares(contest)),
            (findings.drop_table(contest), claims.drops(contest)),
            (claims.contrast_table(contest), []),
        ):
            if table.rows:
                parts += [f"### {table.title}", bullets(told), table.grid(), table.caption]
        parts += show(drawn)
    if len(found) == len(SPLITS):
        parts += ["## Does the drop survive matching?", bullets(claims.survival(found))]
    held = claims.claims_table(found[SPLITS[0]], costs) if SPLITS[0] in found else None
    if held:
        parts += [f"## {held.title}", held.grid(), held.caption]
    for track, title in OTHER_TRACKS.items():
        other = contest_of(place, track)
        if other:
            drawn = [findings.curve_picture(other)]
            pictures += drawn
            table = findings.main_table(other)
            parts += [f"## {title}", made_by(other), table.grid(), table.caption, *show(drawn)]
    for title, note, exhibit in shown(place):
        pictures += exhibit.pictures
        parts += [f"## {title}", note]
        for table in exhibit.tables:
            parts += [table.grid(), table.caption]
        parts += show(exhibit.pictures)
    parts += ["## What it took", *cost(place)]
    return "\n\n".join(wrap(part) for part in parts if part) + "\n", pictures


def contests(place: Path) -> dict[str, Contest]:
    """The runs of the track on its own exam, by split."""
    found = {split: contest_of(place, TRACK, split) for split in SPLITS}
    return {split: contest for split, contest in found.items() if contest}


def contest_of(place: Path, name: str, split: str | None = None) -> Contest | None:
    """The runs of a track on its own exam, if there are any."""
    track = tracks.get_track(name)
    exam = track.exam(split=split or track.split)
    contest = results.find(read(place), name, exam)
    if contest is None:
        return None
    mixed = [entry.agent for entry in contest.entries if entry.is_mixed]
    if mixed:
        raise SystemExit(f"runs of {', '.join(mixed)} in {place} were made with several settings")
    return replace(contest, baselines=baselines.load_or_run(exam, place))


@cache
def read(place: Path) -> tuple[Contest, ...]:
    """All that is there."""
    return results.read(place).contests


def shown(place: Path) -> Iterable[tuple[str, str, Exhibit]]:
    """What experiments show, each with a title and what is missing."""
    for name, experiment in ((name, experiments.every()[name]) for name in EXPERIMENTS):
        usual = (api.results(experiment, scale_of(track), place) for track in TRACKS)
        scales = {"": next(filter(says_much, usual), None)}
        for (track, split), names in AGAIN.items():
            other = api.results(experiment, scale_of(track, split), place)
            scales[f"{split or track}-"] = other if name in names and is_begun(other) else None
        for prefix, found in scales.items():
            if found is None:
                continue
            try:
                exhibit = experiment.show(found)
            except ValueError as error:  # what it measures was not published, nor all policies
                print(f"{name} is left out: {error}", file=sys.stderr)
                continue
            flag = f" --split {found.scale.split}" if found.scale.split else ""
            command = f"`tape reproduce {name} --track {found.scale.track.name}{flag}`."
            absent = f" Not finished: {'; '.join(found.missing)}." if found.missing else ""
            pictures = tuple(replace(one, name=f"{prefix}{one.name}") for one in exhibit.pictures)
            title = experiment.about + (f" On `{prefix[:-1]}`." if prefix else "")
            yield title, command + absent, replace(exhibit, pictures=pictures)


def scale_of(track: str, split: str | None = None) -> Scale:
    """All of a track, on its own split or another."""
    return Scale(tracks.get_track(track), split=split)


def trained_there(place: Path) -> dict[str, dict[str, Comparison]]:
    """Agents trained on the held-out rules against the same trained on the others."""
    found: dict[str, dict[str, Comparison]] = {}
    for split in SPLITS:
        scale = scale_of(TRACK, None if split == SPLITS[0] else split)
        for pair, sides in contrasts("train-on-test", scale, TRAINED_THERE, place).items():
            found[f"{pair[0].split(',')[0]} on `{split}`"] = {"ood": sides["ood"]}
    return found


def remembering(place: Path) -> dict[str, dict[str, Comparison]]:
    """PPO with a memory against PPO without, on like networks."""
    found: dict[str, dict[str, Comparison]] = {}
    for name, scale in (("networks", scale_of(TRACK)), ("budget", scale_of(LONG))):
        for pair, sides in contrasts(name, scale, MEMORY, place).items():
            found[f"{' − '.join(pair)} after {scale.track.steps:,} steps"] = sides
    return found


def contrasts(
    name: str, scale: Scale, pairs: Iterable[tuple[str, str]], place: Path
) -> dict[tuple[str, str], dict[str, Comparison]]:
    """Pairs of settings of an experiment against each other, by side, where both have seeds."""
    found = api.results(experiments.every()[name], scale, place)
    compared = {}
    for pair in pairs:
        runs = [found.summaries(one) for one in pair if one in found.finished]
        if len(runs) == len(pair) and min(map(len, runs)) > 1:
            compared[pair] = {
                side: stats.welch(
                    *(np.array([run[side]["success"] for run in one]) for one in runs)
                )
                for side in SUBSETS
            }
    return compared


def says_much(found: api.Results) -> bool:
    """Whether half of the settings are there."""
    return is_begun(found) and len(found.finished) >= len(found.missing)


def is_begun(found: api.Results) -> bool:
    """Whether some settings are there, and not only those that it shares with `main`, if it has
    others."""
    own = {
        setting
        for setting, group in found.settings.items()
        if group[0].experiment != found.scale.track.name
    }
    return len(found.finished) > 1 and (not own or bool(own & found.finished.keys()))


def beside_paper(place: Path) -> str:
    """The page that holds every number of the paper against ours."""
    track = tracks.get_track(TRACK)
    experiment = experiments.every()["paper-beside-ours"]
    exhibit = experiment.show(api.results(experiment, Scale(track), place))
    parts = ["# The paper beside ours", ABOUT_BESIDE]
    for table in exhibit.tables:
        parts += [f"## {table.title}", table.grid(), table.caption]
    return "\n\n".join(wrap(part) for part in parts if part) + "\n"


def show(pictures: Iterable[Picture]) -> list[str]:
    """Pictures in Markdown, with what they show."""
    return [
        text
        for picture in pictures
        for text in (f"![{picture.title}](results/{picture.name}.svg)", picture.caption)
    ]


# What it took, and how it is put


def cost(place: Path) -> Iterable[str]:
    """Wall-clock of all runs that are there, by agent and in total."""
    runs = [
        (files.read_json(path / "spec.json"), files.read_json(path / "provenance.json"))
        for path in load_results(place).paths
    ]
    rows = []
    for agent in sorted({str(spec["agent"]) for spec, _ in runs}):
        own = [(spec["experiment"], seconds(made)) for spec, made in runs if spec["agent"] == agent]
        usual = [spent for experiment, spent in own if experiment == TRACK]
        each = float(np.mean(usual)) if usual else None
        rows.append(Row((agent, each, len(own), sum(spent for _, spent in own) / 60)))
    total = sum(seconds(made) for _, made in runs)
    table = Table(
        "cost",
        "What it took",
        "",
        (
            Column("agent"),
            Column(f"s per run of {TRACK}", digits=0),
            Column("runs in all"),
            Column("minutes of one core", digits=0),
        ),
        (*rows, Row(("all", None, len(runs), total / 60))),
    )
    facts = dict(results.made_with([made for _, made in runs]))
    yield (
        f"{total / 3600:.1f} hours of one core for all runs that are published, those of "
        "experiments too, with all their evaluations "
        f"({facts.get('machines', 'machine unknown')})."
    )
    yield table.grid()


def seconds(made: Mapping[str, Any]) -> float:
    """What a run took, by its provenance."""
    return float(made.get("seconds") or 0.0) / int(made.get("together", 1))


def made_by(contest: Contest) -> str:
    """What was run, and what is not there."""
    track = tracks.get_track(contest.experiment)
    exam = contest.exam
    here = {entry.agent: len(entry.seeds) for entry in contest.entries}
    seeds = sorted(set(here.values()))
    few = [f"{agent} {count}" for agent, count in here.items() if count < seeds[-1]]
    absent = [agent for agent in track.agents if agent not in here]
    flags = "" if exam.split == track.split else f" --split {exam.split}"
    told = (
        f"`tape bench --track {track.name}{flags}`: L = {exam.task.length}, "
        f"H = {exam.task.horizon}, {track.steps:,} steps of training, "
        f"{len(exam.rows('id'))} ID and {len(exam.rows('ood'))} OOD rules with {exam.episodes} "
        f"start tapes each, {seeds[-1]} seeds"
    )
    told += f" ({', '.join(few)})." if few else "."
    return told + (f" Not finished: {', '.join(absent)}." if absent else "")


def bullets(lines: Iterable[str]) -> str:
    """A list in Markdown."""
    return "\n".join(f"- {line[0].upper()}{line[1:]}" for line in lines)


def wrap(part: str) -> str:
    """Lines of at most 100 characters, but tables and pictures as they are."""
    if part.startswith(("|", "!", "#")):
        return part
    return "\n".join(
        textwrap.fill(
            line,
            100,
            subsequent_indent="  " if line.startswith("- ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in (part if part.startswith("- ") else " ".join(part.split())).splitlines()
    )
