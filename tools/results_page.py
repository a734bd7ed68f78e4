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
import itertools
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np

from tapebench import bench, experiments, protocol, score, shipped, stats, store
from tapebench.experiments import Exhibit, Scale
from tapebench.experiments.published import published, statements
from tapebench.report import findings, results
from tapebench.report.figures import Picture
from tapebench.report.results import Contest, Entry
from tapebench.report.tables import Column, Row, Table
from tapebench.stats import Interval

ROOT = Path(__file__).parents[1]
PAGE = Path("docs") / "results.md"
BESIDE = Path("docs") / "paper.md"
PICTURES = Path("docs") / "results"

TRACK = "full"
SPLITS = ("fps30", "matched30")
LONG = "long"

ABOVE, BELOW, OPEN, OPEN_DIFFERENCE = "above", "below", "not told apart from", "open"

EXPERIMENTS = (
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

SCALES = ("long", "full", "lite")
"""Tracks that experiments may be shown of, the better first."""

CONTRASTS = (
    ("pearl", "dqn", "a context of the episode"),
    ("rad", "dqn", "augmentation"),
    ("curl", "dqn", "a contrastive loss"),
    ("ppo-dr", "ppo", "domain randomisation"),
    ("rppo", "ppo", "memory"),
    ("dreamer", "dqn", "a learnt world model"),
    ("automata", "dreamer", "a model that knows laws to be local"),
)
"""An agent, the one that it is read against, and what it has that the other has not."""

ABOUT = """This page is made by `python tools/results_page.py` from the results that come with the
package; `tape report --published` shows all of them with episodes to watch. An interval is over
training seeds, for these rules and this exam. Words such as above and below follow from the 95%
interval of each agent on its own, and between agents from Welch's test with Holm's correction; else
two are not told apart, or a difference is open, which is not the same as none. One seed decides
nothing."""


ABOUT_BESIDE = """This page is made by `python tools/results_page.py` from the results that come
with the package and from what needs no training; `tape reproduce paper-beside-ours --published`
shows the same. A dash is what was not measured here, or not printed there."""


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> None:
    """Write the page and its pictures into the repository at `root`."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("results", type=Path, nargs="?", help="by default the published ones")
    place = parser.parse_args(arguments).results or shipped.directory()
    text, pictures = page(place)
    (root / PICTURES).mkdir(parents=True, exist_ok=True)
    for old in (root / PICTURES).glob("*.svg"):
        old.unlink()
    for picture in pictures:
        store.write_bytes(root / PICTURES / f"{picture.name}.svg", picture.svg)
    store.write_text(root / PAGE, text)
    store.write_text(root / BESIDE, beside_paper(place))
    print(f"{PAGE}: {len(text.splitlines())} lines, {len(pictures)} pictures; {BESIDE}")


def page(place: Path) -> tuple[str, list[Picture]]:
    """The text, and the pictures that it shows."""
    found = contests(place)
    if not found:
        raise SystemExit(f"there are no runs of the track {TRACK} in {place}")
    parts, pictures = ["# Results", ABOUT], []
    for split, contest in found.items():
        parts += [f"## `{split}`", made_by(contest)]
        drawn = [findings.success_picture(contest), findings.curve_picture(contest)]
        pictures += drawn
        for table, claims in (
            (findings.main_table(contest), beside_lines(contest)),
            (share_table(contest), shares(contest)),
            (findings.drop_table(contest), drops(contest)),
            (contrast_table(contest), []),
        ):
            if table.rows:
                parts += [f"### {table.title}", bullets(claims), table.grid(), table.caption]
        parts += show(drawn)
    if len(found) == len(SPLITS):
        parts += ["## Does the drop survive matching?", bullets(survival(found))]
    held = claims_table(found[SPLITS[0]]) if SPLITS[0] in found else None
    if held:
        parts += [f"## {held.title}", held.grid(), held.caption]
    longer = contest_of(place, LONG)
    if longer:
        drawn = [findings.curve_picture(longer)]
        pictures += drawn
        table = findings.main_table(longer)
        parts += [
            "## With a larger budget",
            made_by(longer),
            table.grid(),
            table.caption,
            *show(drawn),
        ]
    for title, note, exhibit in shown(place):
        pictures += exhibit.pictures
        parts += [f"## {title}", note]
        for table in exhibit.tables:
            parts += [table.grid(), table.caption]
        parts += show(exhibit.pictures)
    everything = [*found.values(), *([longer] if longer else [])]
    parts += ["## What it took", *cost(everything)]
    return "\n\n".join(wrap(part) for part in parts if part) + "\n", pictures


def contests(place: Path) -> dict[str, Contest]:
    """The runs of the track on its own exam, by split."""
    found = {split: contest_of(place, TRACK, split) for split in SPLITS}
    return {split: contest for split, contest in found.items() if contest}


def contest_of(place: Path, name: str, split: str | None = None) -> Contest | None:
    """The runs of a track on its own exam, if there are any."""
    track = protocol.get_track(name)
    exam = track.exam(split=split or track.split)
    contest = results.find(read(place), name, exam)
    if contest is None:
        return None
    mixed = [entry.agent for entry in contest.entries if entry.is_mixed]
    if mixed:
        raise SystemExit(f"runs of {', '.join(mixed)} in {place} were made with several settings")
    return replace(contest, lines=bench.lines(exam, place))


@cache
def read(place: Path) -> tuple[Contest, ...]:
    """All that is there."""
    return results.read(place).contests


def shown(place: Path) -> Iterable[tuple[str, str, Exhibit]]:
    """What experiments show, with a title and what is missing: of the best track that says much."""
    for name in EXPERIMENTS:
        experiment = experiments.every()[name]
        for track in map(protocol.get_track, SCALES):
            found = experiments.results(experiment, Scale(track), place)
            if not says_much(found):
                continue
            command = f"`tape reproduce {name} --track {track.name}`."
            absent = f" Not finished: {'; '.join(found.missing)}." if found.missing else ""
            try:
                yield experiment.about, command + absent, experiment.show(found)
            except ValueError as error:  # what it measures was not published, nor all policies
                print(f"{name} is left out: {error}", file=sys.stderr)
            break


def says_much(found: experiments.Results) -> bool:
    """Whether half of the settings are there, and not only those that it shares with `main`."""
    own = {
        setting
        for setting, group in found.settings.items()
        if group[0].experiment != found.scale.track.name
    }
    is_about_main = not own and bool(found.finished)
    return len(found.finished) >= max(2, len(found.missing)) and (
        is_about_main or bool(own & found.finished.keys())
    )


def beside_paper(place: Path) -> str:
    """The page that holds every number of the paper against ours."""
    track = protocol.get_track(TRACK)
    experiment = experiments.every()["paper-beside-ours"]
    exhibit = experiment.show(experiments.results(experiment, Scale(track), place))
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


# What is said


def beside_lines(contest: Contest) -> Iterable[str]:
    """Who is above and who is below what needs no training."""
    for name in ("random", "flip-ones"):
        for side in contest.subsets():
            level = level_of(contest, name, side)
            where: dict[str, list[str]] = {ABOVE: [], BELOW: [], OPEN: []}
            for entry in findings.ranked(contest):
                found = findings.success(contest, entry, side)
                where[against(found, level, len(entry.seeds))].append(entry.agent)
            told = "; ".join(f"{word} it {listed(who)}" for word, who in where.items() if who)
            yield f"{side.upper()}, `{name}` has {level:.3f}: {told}."


def shares(contest: Contest) -> Iterable[str]:
    """The best share of the ceiling, and what is left."""
    for side in contest.subsets():
        by_agent = {entry.agent: share(contest, entry, side) for entry in contest.entries}
        best = max(by_agent, key=lambda agent: by_agent[agent].mean)
        others = [found.mean for agent, found in by_agent.items() if agent != best]
        told = f"{side.upper()}: `{best}` reaches {by_agent[best]} of what is possible"
        yield told + (f", the others {min(others):.3f} to {max(others):.3f}." if others else ".")


def drops(contest: Contest) -> Iterable[str]:
    """How large drops are, and how much of them the rules themselves explain."""
    where: dict[str, list[str]] = {ABOVE: [], BELOW: [], OPEN: []}
    rest: dict[str, list[str]] = {ABOVE: [], BELOW: [], OPEN: []}
    seeds = {entry.agent: len(entry.seeds) for entry in contest.entries}
    for row in findings.drop_table(contest).rows:
        agent, total, _, left = row.cells
        assert isinstance(total, Interval)
        assert isinstance(left, Interval)
        where[against(total, 0.0, seeds[str(agent)])].append(str(agent))
        rest[against(left, 0.0, seeds[str(agent)])].append(str(agent))
    ceiling, blind = (gap(contest, name) for name in ("ceiling", "flip-ones"))
    yield (
        f"What is possible drops by {ceiling:+.3f} from seen to held-out rules, the blind "
        f"`flip-ones` by {blind:+.3f}."
    )
    words = {ABOVE: "less success on held-out rules", BELOW: "more success there", OPEN: "open"}
    for what, found in (
        ("In all", where),
        ("Beside seen rules of the same type and ceiling level", rest),
    ):
        told = "; ".join(f"{words[word]}: {listed(who)}" for word, who in found.items() if who)
        yield f"{what}, {told}."


def survival(found: dict[str, Contest]) -> Iterable[str]:
    """The drop of every agent on both splits."""
    by_split = {
        split: {str(row.cells[0]): row.cells for row in findings.drop_table(contest).rows}
        for split, contest in found.items()
    }
    first, second = by_split.values()
    for agent in [agent for agent in first if agent in second]:
        told = []
        for split, rows in by_split.items():
            total = rows[agent][1]
            assert isinstance(total, Interval)
            told.append(f"{signed(total)} on `{split}`")
        yield f"`{agent}`: {', '.join(told)}."


def contrast_table(contest: Contest) -> Table:
    """What an addition buys, agent against agent, corrected for all of them together."""
    by_name = {entry.agent: entry for entry in contest.entries if len(entry.seeds) > 1}
    found = []
    for agent, other, what in CONTRASTS:
        if agent in by_name and other in by_name:
            for side in contest.subsets():
                at = contest.exam.rows(side)
                a, b = (by_name[name].scores["success"][:, at] for name in (agent, other))
                found.append((what, agent, other, side, stats.welch(a, b)))
    corrected = stats.holm(np.array([test.p for *_, test in found])) if found else np.array([])
    rows = []
    for (what, agent, other, side, test), p in zip(found, corrected, strict=True):
        word = OPEN_DIFFERENCE if p > 0.05 else "better" if test.difference.mean > 0 else "worse"
        rows.append(
            Row((what, f"{agent} − {other}", side.upper(), test.difference, float(p), word))
        )
    return Table(
        f"{contest.slug}-contrasts",
        "What additions buy",
        "Difference of mean success with its 95% interval by Welch's test; p is corrected by Holm "
        "for all rows of this table.",
        (
            Column("with"),
            Column("agents"),
            Column("side"),
            Column("difference", signed=True),
            Column("p (Holm)", digits=4),
            Column("verdict"),
        ),
        tuple(rows),
    )


def share_table(contest: Contest) -> Table:
    """Success over the ceiling, on both sides, and their difference."""
    rows = []
    for entry in findings.ranked(contest):
        sides = [share_by_seed(contest, entry, side) for side in ("id", "ood")]
        difference = stats.paired_interval(sides[0], sides[1], findings.rng(contest, entry, "gap"))
        both = [share(contest, entry, side) for side in ("id", "ood")]
        rows.append(Row((entry.agent, *both, difference)))
    return Table(
        f"{contest.slug}-shares",
        "How much of what is possible",
        "Mean success over the mean exact ceiling of the side, and the difference of the two, "
        "paired by seed.",
        (Column("agent"), Column("ID"), Column("OOD"), Column("ID − OOD", signed=True)),
        tuple(rows),
    )


def cost(found: Iterable[Contest]) -> Iterable[str]:
    """Wall-clock by agent and in total."""
    rows, total = [], 0.0
    made: list[dict[str, Any]] = []
    for contest in found:
        for entry in sorted(contest.entries, key=lambda entry: entry.agent):
            each = entry.seconds or 0.0
            spent = each * len(entry.seeds)
            total += spent
            made += entry.provenance
            what = contest.experiment, contest.exam.split, entry.agent, len(entry.seeds)
            rows.append(Row((*what, each, spent / 60)))
    table = Table(
        "cost",
        "What it took",
        "",
        (
            Column("track"),
            Column("split"),
            Column("agent"),
            Column("seeds"),
            Column("s per run", digits=0),
            Column("minutes of one core", digits=0),
        ),
        tuple(rows),
    )
    facts = dict(results.made_with(made))
    yield (
        f"{total / 3600:.1f} hours of one core for these runs with all their evaluations "
        f"({facts.get('machines', 'machine unknown')}); experiments are not counted."
    )
    yield table.grid()


# What the paper claims

HOLDS, FAILS, MIXED = "holds", "does not hold", "in part"


def claims_table(contest: Contest) -> Table | None:
    """What the paper says of its agents in general, and whether ours agree; None of too few."""
    printed = published()["main"].rows
    entries = [entry for entry in contest.entries if entry.agent in printed]
    entries = [entry for entry in entries if len(entry.seeds) > 1]
    if len(entries) < 2:
        return None
    claims = (fall, size_of_fall, law_alone, below_planner, order_of_agents, inference_helps)
    rows = [Row(row) for claim in claims if (row := claim(contest, entries))]
    return Table(
        f"{contest.slug}-claims",
        "What the paper claims",
        f"On `{contest.exam.split}`, of the paper's agents that are finished here: "
        f"{', '.join(sorted(entry.agent for entry in entries))}. A claim about all of them holds "
        "if every 95% interval says so, and does not if one says the contrary.",
        tuple(map(Column, ("the paper says", "where", "here", "verdict"))),
        tuple(rows),
    )


def fall(contest: Contest, entries: Sequence[Entry]) -> tuple[str, ...]:
    """That success falls for all of them."""
    says, where = "a consistent ID-to-OOD drop across families", "abstract"
    return (says, where, *told_of_all(entries, drops_of(contest, 1), "a drop"))


def law_alone(contest: Contest, entries: Sequence[Entry]) -> tuple[str, ...]:
    """That it is the law which they fail at, and not that these rules are harder."""
    says = "the degradation can be attributed primarily to latent-law shift"
    rest = drops_of(contest, 3)
    return (
        says,
        "sec:discussion",
        *told_of_all(entries, rest, "a rest beside alike rules"),
    )


def size_of_fall(contest: Contest, entries: Sequence[Entry]) -> tuple[str, ...]:
    """By how much."""
    low, high = statements()["drop over methods and horizons"]["value"]
    found = [drops_of(contest, 1)[entry.agent] for entry in entries]
    inside = [one.low <= high and one.high >= low for one in found]
    here = f"{min(one.mean for one in found):+.3f} to {max(one.mean for one in found):+.3f}"
    verdict = HOLDS if all(inside) else MIXED if any(inside) else FAILS
    return f"the drop is {low} to {high}", "sec:discussion", here, verdict


def below_planner(contest: Contest, entries: Sequence[Entry]) -> tuple[str, ...]:
    """That most stay below the planner."""
    here, most = [], []
    for side in contest.subsets():
        level = level_of(contest, score.PLANNER, side)
        where = [
            against(findings.success(contest, entry, side), level, len(entry.seeds))
            for entry in entries
        ]
        here.append(f"{side.upper()}: {where.count(BELOW)} of {len(where)} below {level:.3f}")
        most.append(where.count(BELOW) > len(where) / 2)
    verdict = HOLDS if all(most) else MIXED if any(most) else FAILS
    says = "most families stay below the true-dynamics planner"
    return says, "sec:discussion", "; ".join(here), verdict


def order_of_agents(contest: Contest, entries: Sequence[Entry]) -> tuple[str, ...] | None:
    """That one agent is better than another, of all pairs that both tables tell apart."""
    printed, agree, differ = published()["main"].rows, 0, 0
    for side in contest.subsets():
        ours = {entry.agent: findings.success(contest, entry, side) for entry in entries}
        theirs = {agent: Interval(*printed[agent][f"{side}.success"]) for agent in ours}
        for a, b in itertools.combinations(ours, 2):
            order = apart(ours[a], ours[b]) * apart(theirs[a], theirs[b])
            agree, differ = agree + (order > 0), differ + (order < 0)
    if not agree + differ:
        return None
    verdict = HOLDS if not differ else FAILS if not agree else MIXED
    here = f"{agree} of {agree + differ} pairs that both tell apart are in the same order"
    return "the order of the agents, by success", "tab:extended_main", here, verdict


def inference_helps(contest: Contest, entries: Sequence[Entry]) -> tuple[str, ...] | None:
    """That a context of the episode makes up for some of it."""
    rows = [row.cells for row in contrast_table(contest).rows if row.cells[1] == "pearl − dqn"]
    if not rows:
        return None
    here = "; ".join(f"{side} {signed(cast(Interval, found))}" for _, _, side, found, _, _ in rows)
    words = {str(row[-1]) for row in rows}
    verdict = HOLDS if words == {"better"} else FAILS if "worse" in words else OPEN_DIFFERENCE
    says = "task inference recovers some of the performance"
    return says, "sec:discussion", f"PEARL − DQN: {here}", verdict


def drops_of(contest: Contest, column: int) -> dict[str, Interval]:
    """A column of the table of drops by agent."""
    rows = findings.drop_table(contest).rows
    return {str(row.cells[0]): cast(Interval, row.cells[column]) for row in rows}


def told_of_all(entries: Sequence[Entry], found: dict[str, Interval], what: str) -> tuple[str, str]:
    """Of how many something is above zero, and whether that is so of all."""
    where = [against(found[entry.agent], 0.0, len(entry.seeds)) for entry in entries]
    here = f"{what}: {where.count(ABOVE)} of {len(where)}"
    here += f", the contrary: {where.count(BELOW)}" if BELOW in where else ""
    if BELOW in where:
        return here, FAILS
    return here, HOLDS if {*where} == {ABOVE} else MIXED if ABOVE in where else OPEN_DIFFERENCE


def apart(a: Interval, b: Interval) -> int:
    """1 if a lies above b, -1 if below, 0 if their intervals overlap."""
    return int(a.low > b.high) - int(a.high < b.low)


# Words and numbers


def made_by(contest: Contest) -> str:
    """What was run, and what is not there."""
    track = protocol.get_track(contest.experiment)
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


def share_by_seed(contest: Contest, entry: Entry, side: str) -> np.ndarray:
    """Success over the ceiling for each seed, `[S, 1]`."""
    at = contest.exam.rows(side)
    success = entry.scores["success"][:, at].mean(axis=1, keepdims=True)
    return np.asarray(success / contest.ceilings[at].mean())


def share(contest: Contest, entry: Entry, side: str) -> Interval:
    """The share of the ceiling that an agent reaches."""
    return stats.seed_interval(
        share_by_seed(contest, entry, side), findings.rng(contest, entry, "share", side)
    )


def level_of(contest: Contest, name: str, side: str) -> float:
    """Mean success of a line on a side, or the ceiling."""
    values = contest.ceilings if name == "ceiling" else contest.lines[name]["success"]
    return float(values[contest.exam.rows(side)].mean())


def gap(contest: Contest, name: str) -> float:
    """ID − OOD of a line or the ceiling."""
    return level_of(contest, name, "id") - level_of(contest, name, "ood")


def against(found: Interval, level: float, seeds: int) -> str:
    """Where an interval over so many seeds lies. That of a single one says nothing."""
    if seeds < 2:
        return OPEN
    return ABOVE if found.low > level else BELOW if found.high < level else OPEN


def signed(found: Interval) -> str:
    """A difference with its interval."""
    return f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def listed(names: Sequence[str]) -> str:
    """Names in a row."""
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"


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


if __name__ == "__main__":
    main()
