"""What results say in words: every sentence and verdict is chosen by an interval.

No sentence is written by hand for a number, so none can contradict the table beside it. Words such
as above and below follow from the 95% interval of each agent on its own, and between agents from
Welch's test with Holm's correction. `results_page` puts them on a page.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import cast

import numpy as np

from tapebench import stats
from tapebench.exam import baselines
from tapebench.experiments.paper_tables import published, statements
from tapebench.report import findings
from tapebench.report.contests import Contest, Entry
from tapebench.report.tables import Column, Row, Table
from tapebench.runs.tracks import get_track
from tapebench.stats import Comparison, Interval

ABOVE, BELOW, OPEN, OPEN_DIFFERENCE = "above", "below", "not told apart from", "open"

TOTAL, REST = 1, 3
"""Columns of the table of drops: all of it, and what the composition of the sides leaves."""

CONTRASTS = (
    ("pearl", "dqn", "a context of the episode"),
    ("rad", "dqn", "augmentation"),
    ("curl", "dqn", "a contrastive loss"),
    ("ppo-dr", "ppo", "domain randomisation"),
    ("rppo", "ppo", "memory"),
    ("dreamer", "dqn", "a learned world model"),
    ("automata", "dreamer", "a model that knows laws to be local"),
)
"""An agent, the one that it is read against, and what it has that the other has not."""


# In short


def in_short(
    found: Mapping[str, Contest],
    costs: Mapping[str, Interval],
    longer: Mapping[str, Interval],
    experiments: Mapping[str, Mapping[str, Mapping[str, Comparison]]],
) -> Iterable[str]:
    """What was found, a line for each question.

    `costs` are by agent what it costs a rule to be held out, `longer` the same of the track `long`;
    `experiments` are further questions, with what was compared and how that came out by side.
    """
    first = next(iter(found.values()))
    for split, contest in found.items():
        yield f"**The drop on `{split}`.** {about_drop(contest)}"
    if costs:
        yield about_costs(costs, longer)
    for name in ("flip-ones", "random"):
        yield about_line(first, name)
    yield f"**Of what is possible**, ID / OOD: {about_shares(first)}."
    yield (
        "**Runs that fail**, with less than half the ID success of their agent's median: "
        + (", ".join(failures(found)) or "none")
        + "."
    )
    held = claims_table(first, costs)
    says = [(str(row.cells[-1]), str(row.cells[0])) for row in held.rows] if held else []
    for question, answers in (
        ("What additions buy", additions(first)),
        ("What the paper claims", says),
    ):
        if answers:
            yield f"**{question}.** {grouped(answers)}."
    for question, pairs in experiments.items():
        told = "; ".join(f"{what}: {by_side(sides)}" for what, sides in pairs.items())
        if told:
            yield f"**{question}.** {told}."


def about_drop(contest: Contest) -> str:
    """Who loses success on held-out rules, and whether other rules of their kind explain it."""
    total, told = drops_of(contest, TOTAL), []
    for word, what in ((ABOVE, "falls"), (BELOW, "rises")):
        agents = signs(contest, TOTAL)[word]
        if agents:
            sizes = [abs(total[agent].mean) for agent in agents]
            told.append(f"{what} for {listed(agents)}, by {span(sizes)}")
    unsure = signs(contest, TOTAL)[OPEN]
    told += [f"is open for {listed(unsure)}"] if unsure else []
    worse = signs(contest, REST)[ABOVE]
    rest = f"still falls for {listed(worse)}" if worse else "falls for nobody"
    return (
        f"From seen to held-out rules success {'; '.join(told)}. What is possible drops by "
        f"{gap(contest, 'ceiling'):+.3f}. Beside seen rules of the same type and ceiling level "
        f"success {rest}."
    )


def about_costs(costs: Mapping[str, Interval], longer: Mapping[str, Interval]) -> str:
    """What is lost on a rule because it was held out, by agent, and at most; then with the budget
    of the track `long`."""
    told, more = (
        ", ".join(f"`{agent}` {signed(cost)}" for agent, cost in by_agent.items())
        for by_agent in (costs, longer)
    )
    most = max(costs, key=lambda agent: costs[agent].high)
    steps = get_track("long").steps
    return (
        "**What an unseen law costs**, every rule held against itself, trained on under one split "
        f"and held out by another: {told}. These intervals are over rules too; none ends above "
        f"{costs[most].high:+.3f} (`{most}`). They are not corrected for the number of agents, and "
        "who has learned little has little to lose."
        + (f" After {steps:,} steps: {more}." if more else "")
    )


def about_line(contest: Contest, name: str) -> str:
    """Who stands the same way to what needs no training on every side."""
    sides = [beside(contest, name, side) for side in contest.subsets()]
    both = {
        word: [agent for agent in who if all(agent in side[word] for side in sides)]
        for word, who in sides[0].items()
    }
    told = "; ".join(f"{word} it {listed(who)}" for word, who in both.items() if who)
    level = " / ".join(f"{level_of(contest, name, side):.3f}" for side in contest.subsets())
    return f"**Beside `{name}`** ({level}), on both sides alike: {told or 'nobody'}."


def about_shares(contest: Contest) -> str:
    """What everybody reaches of the ceiling, the best first."""
    told = []
    for entry in findings.ranked(contest):
        parts = [share(contest, entry, side).mean for side in contest.subsets()]
        told.append(f"`{entry.agent}` {' / '.join(f'{100 * part:.1f}%' for part in parts)}")
    return ", ".join(told)


def failures(found: Mapping[str, Contest]) -> Iterable[str]:
    """How many runs of an agent fall far behind its others, by split; a mean hides them."""
    for split, contest in found.items():
        for entry in findings.ranked(contest):
            own = entry.scores["success"][:, contest.exam.rows("id")].mean(axis=1)
            count = int((own < np.median(own) / 2).sum())
            if count:
                yield f"`{entry.agent}` {count} of {len(own)} on `{split}`"


def additions(contest: Contest) -> list[tuple[str, str]]:
    """Verdict and addition; the verdict is for both sides, or one for each."""
    sides: dict[str, list[str]] = {}
    for row in contrast_table(contest).rows:
        what, agents, *_, word = map(str, row.cells)
        sides.setdefault(f"{what} ({agents})", []).append(word)
    return [
        (words[0] if len({*words}) == 1 else f"{words[0]} ID and {words[1]} OOD", what)
        for what, words in sides.items()
    ]


def grouped(answers: Sequence[tuple[str, str]]) -> str:
    """Verdicts in the order in which they come up, each with all that it was passed on."""
    told = "; ".join(
        f"{word}: {', '.join(what for one, what in answers if one == word)}"
        for word in dict.fromkeys(word for word, _ in answers)
    )
    return f"{told[0].upper()}{told[1:]}"


def by_side(tests: Mapping[str, Comparison]) -> str:
    """Differences with their intervals."""
    return ", ".join(f"{side.upper()} {signed(test.difference)}" for side, test in tests.items())


# Of one contest


def beside_lines(contest: Contest) -> Iterable[str]:
    """Who is above and who is below what needs no training."""
    for name in ("random", "flip-ones"):
        for side in contest.subsets():
            level, where = level_of(contest, name, side), beside(contest, name, side)
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
    ceiling, blind = (gap(contest, name) for name in ("ceiling", "flip-ones"))
    yield (
        f"What is possible drops by {ceiling:+.3f} from seen to held-out rules, the blind "
        f"`flip-ones` by {blind:+.3f}."
    )
    words = {ABOVE: "less success on held-out rules", BELOW: "more success there", OPEN: "open"}
    for what, found in (
        ("In all", signs(contest, TOTAL)),
        ("Beside seen rules of the same type and ceiling level", signs(contest, REST)),
    ):
        told = "; ".join(f"{words[word]}: {listed(who)}" for word, who in found.items() if who)
        yield f"{what}, {told}."


def survival(found: dict[str, Contest]) -> Iterable[str]:
    """The drop of every agent on both splits."""
    by_split = {split: drops_of(contest, TOTAL) for split, contest in found.items()}
    first, second = by_split.values()
    for agent in [agent for agent in first if agent in second]:
        told = [f"{signed(total[agent])} on `{split}`" for split, total in by_split.items()]
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
            Column("p (Holm)", digits=4, never_zero=True),
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


# What the paper claims

HOLDS, FAILS, MIXED = "holds", "does not hold", "in part"


def claims_table(contest: Contest, costs: Mapping[str, Interval]) -> Table | None:
    """What the paper says of its agents in general, and whether ours agree; None of too few.

    `costs` are by agent what it costs a rule to be held out, as far as that is known.
    """
    printed = published()["main"].rows
    entries = [entry for entry in contest.entries if entry.agent in printed]
    entries = [entry for entry in entries if len(entry.seeds) > 1]
    if len(entries) < 2:
        return None
    alone = partial(law_alone, costs=costs)
    claims = (fall, size_of_fall, alone, below_planner, order_of_agents, inference_helps)
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
    return (says, where, *told_of_all(entries, drops_of(contest, TOTAL), "a drop"))


def law_alone(
    contest: Contest, entries: Sequence[Entry], costs: Mapping[str, Interval]
) -> tuple[str, ...]:
    """That it is the law which they fail at, and not that these rules are harder.

    If each rule was held against itself: whether not having been trained on it costs as much as
    the paper says that success drops.
    """
    says = "the degradation can be attributed primarily to latent-law shift"
    known = [costs[entry.agent] for entry in entries if entry.agent in costs]
    if not known:
        rest = told_of_all(entries, drops_of(contest, REST), "a rest beside alike rules")
        return (says, "sec:discussion", *rest)
    least, _ = statements()["drop over methods and horizons"]["value"]
    below = [cost.high < least for cost in known]
    ends = f"{min(cost.mean for cost in known):+.3f} to {max(cost.mean for cost in known):+.3f}"
    here = f"cost of an unseen law: {ends}, below {least} for {sum(below)} of {len(below)}"
    verdict = FAILS if all(below) else MIXED if any(below) else OPEN_DIFFERENCE
    return says, "sec:discussion", here, verdict


def size_of_fall(contest: Contest, entries: Sequence[Entry]) -> tuple[str, ...]:
    """By how much."""
    low, high = statements()["drop over methods and horizons"]["value"]
    found = [drops_of(contest, TOTAL)[entry.agent] for entry in entries]
    inside = [one.low <= high and one.high >= low for one in found]
    here = f"{min(one.mean for one in found):+.3f} to {max(one.mean for one in found):+.3f}"
    verdict = HOLDS if all(inside) else MIXED if any(inside) else FAILS
    return f"the drop is {low} to {high}", "sec:discussion", here, verdict


def below_planner(contest: Contest, entries: Sequence[Entry]) -> tuple[str, ...]:
    """That most stay below the planner."""
    here, most = [], []
    for side in contest.subsets():
        level = level_of(contest, baselines.PLANNER, side)
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


def beside(contest: Contest, name: str, side: str) -> dict[str, list[str]]:
    """Agents by where they stand to a line on a side."""
    level = level_of(contest, name, side)
    where: dict[str, list[str]] = {ABOVE: [], BELOW: [], OPEN: []}
    for entry in findings.ranked(contest):
        found = findings.success(contest, entry, side)
        where[against(found, level, len(entry.seeds))].append(entry.agent)
    return where


def signs(contest: Contest, column: int) -> dict[str, list[str]]:
    """Agents by where a column of the table of drops stands to zero."""
    seeds = {entry.agent: len(entry.seeds) for entry in contest.entries}
    where: dict[str, list[str]] = {ABOVE: [], BELOW: [], OPEN: []}
    for agent, found in drops_of(contest, column).items():
        where[against(found, 0.0, seeds[agent])].append(agent)
    return where


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
    values = contest.ceilings if name == "ceiling" else contest.baselines[name]["success"]
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


def span(values: Sequence[float]) -> str:
    """The least and the largest of them, if they differ as printed."""
    ends = dict.fromkeys(f"{value:.3f}" for value in (min(values), max(values)))
    return " to ".join(ends)


def listed(names: Sequence[str]) -> str:
    """Names in a row."""
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
