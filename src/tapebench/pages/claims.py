"""What results say in words: every sentence and verdict is chosen by an interval.

No sentence is written by hand for a number, so none can contradict its table. Words such
as better and worse follow from the 95% interval of each agent on its own, and between agents from
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
from tapebench.exam.intervals import over_seeds
from tapebench.experiments.paper_tables import published_tables, statements
from tapebench.report import findings, strata
from tapebench.report.contests import Contest, Entry
from tapebench.report.tables import Column, Row, Table
from tapebench.runs.tracks import get_track
from tapebench.stats import Comparison, Interval

ABOVE, BELOW, OPEN, OPEN_DIFFERENCE = "better", "worse", "undecided", "open"

TOTAL, REST = 1, 3
"""Columns of the table of drops: the whole drop, and the rest beyond composition."""

CONTRASTS = (
    ("pearl", "dqn", "a context of the episode"),
    ("rad", "dqn", "augmentation"),
    ("curl", "dqn", "a contrastive loss"),
    ("ppo-dr", "ppo", "domain randomisation"),
    ("rppo", "ppo", "memory"),
    ("dreamer", "dqn", "a learned world model"),
    ("automata", "dreamer", "a model that assumes local rules"),
)
"""An agent, the one that it is compared with, and what it adds to that."""


# In short


def in_short(
    contests: Mapping[str, Contest],
    costs: Mapping[str, Interval],
    longer: Mapping[str, Interval],
    experiments: Mapping[str, Mapping[str, Mapping[str, Comparison]]],
) -> Iterable[str]:
    """The summary of the results page, a bullet for each question.

    `costs` are the costs of unseen by agent, `longer` those of the track `long`; `experiments` are
    further questions with their comparisons, by side.
    """
    first = next(iter(contests.values()))
    for split, contest in contests.items():
        if sentence := about_beyond_reflex(contest):
            yield f"**Beyond reflex on `{split}`.** {sentence}"
    for split, contest in contests.items():
        yield f"**The drop on `{split}`.** {about_drop(contest)}"
    if costs:
        yield about_costs(costs, longer)
    for name in ("flip-ones", "random"):
        yield about_baseline(first, name)
    yield f"**Share of the exact ceiling**, ID / OOD: {about_shares(first)}."
    yield (
        "**Failed runs**, with less than half the ID success of their agent's median: "
        + (", ".join(failures(contests)) or "none")
        + "."
    )
    held = claims_table(first, costs)
    says = [(str(row.cells[-1]), str(row.cells[0])) for row in held.rows] if held else []
    for question, answers in (
        ("Effects of additions", additions(first)),
        ("The paper's claims", says),
    ):
        if answers:
            yield f"**{question}.** {grouped(answers)}."
    for question, pairs in experiments.items():
        pairs_text = "; ".join(f"{pair}: {by_side(sides)}" for pair, sides in pairs.items())
        if pairs_text:
            yield f"**{question}.** {pairs_text}."


def about_beyond_reflex(contest: Contest) -> str:
    """What everybody reaches on rules that take more than flipping ones, ID / OOD."""
    table = strata.strata_table(contest)
    if table is None:
        return ""
    first = strata.beyond_reflex(table)

    def level(row: Row) -> str:
        means = [cell.mean if isinstance(cell, Interval) else cell for cell in row.cells[1:]]
        return " / ".join("–" if mean is None else f"{mean:.3f}" for mean in means)

    levels = {str(row.cells[0]): level(row) for row in first.rows}
    agents = [entry.agent for entry in findings.ranked(contest)]
    learned = ", ".join(f"`{agent}` {levels[agent]}" for agent in agents)
    untrained = ", ".join(f"`{name}` {levels[name]}" for name in contest.baselines)
    named = " and ".join(column.name.removeprefix("beyond-reflex ") for column in first.columns[1:])
    return (
        f"On the rules that take more than flipping ones, {named}, where the exact ceiling is "
        f"{levels['exact ceiling']}: {learned}. "
        f"Without training: {untrained}."
    )


def about_drop(contest: Contest) -> str:
    """The sign of the ID–OOD drop by agent, and whether types and ceilings explain it."""
    total, clauses = drops_of(contest, TOTAL), []
    for word, verb in ((ABOVE, "lower"), (BELOW, "higher")):
        agents = signs(contest, TOTAL)[word]
        if agents:
            sizes = [abs(total[agent].mean) for agent in agents]
            clauses.append(f"{verb} for {listed(agents)} (by {printed_range(sizes)})")
    unsure = signs(contest, TOTAL)[OPEN]
    clauses += [f"undecided for {listed(unsure)}"] if unsure else []
    worse = signs(contest, REST)[ABOVE]
    rest = f"the drop remains for {listed(worse)}" if worse else "no agent drops"
    return (
        f"Success on held-out rules is {'; '.join(clauses)}. The exact ceiling drops by "
        f"{gap(contest, 'ceiling'):+.3f}. Compared with training rules of the same type and "
        f"ceiling level, {rest}."
    )


def about_costs(costs: Mapping[str, Interval], longer: Mapping[str, Interval]) -> str:
    """The cost of unseen by agent and its largest upper end; then with the budget of `long`."""
    listing, more = (
        ", ".join(f"`{agent}` {signed(cost)}" for agent, cost in by_agent.items())
        for by_agent in (costs, longer)
    )
    most = max(costs, key=lambda agent: costs[agent].high)
    steps = get_track("long").steps
    return (
        "**Cost of unseen**, success on a rule when it was trained on minus success on the same "
        f"rule when it was held out: {listing}. These intervals are over rules too; none ends "
        f"above {costs[most].high:+.3f} (`{most}`). They are not corrected for the number of "
        "agents, and an agent that has learned little has little to lose, so read each cost next "
        "to its success." + (f" After {steps:,} steps: {more}." if more else "")
    )


def about_baseline(contest: Contest, name: str) -> str:
    """Agents that compare with a baseline in the same way on every side."""
    sides = [compare_with(contest, name, side) for side in contest.subsets()]
    both = {
        word: [agent for agent in agents if all(agent in side[word] for side in sides)]
        for word, agents in sides[0].items()
    }
    clauses = "; ".join(f"{word}: {listed(agents)}" for word, agents in both.items() if agents)
    level = ", ".join(
        f"{side.upper()} {level_of(contest, name, side):.3f}" for side in contest.subsets()
    )
    return f"**Compared with `{name}`** ({level}), on both sides {clauses or 'undecided'}."


def about_shares(contest: Contest) -> str:
    """Every agent's share of the ceiling, the best first."""
    shares_text = []
    for entry in findings.ranked(contest):
        parts = [ceiling_share(contest, entry, side).mean for side in contest.subsets()]
        shares_text.append(f"`{entry.agent}` {' / '.join(f'{100 * part:.1f}%' for part in parts)}")
    return ", ".join(shares_text)


def failures(contests: Mapping[str, Contest]) -> Iterable[str]:
    """How many runs of an agent fall far behind its others, by split; a mean hides them."""
    for split, contest in contests.items():
        for entry in findings.ranked(contest):
            own = entry.scores["success"][:, contest.exam.rows("id")].mean(axis=1)
            count = int((own < np.median(own) / 2).sum())
            if count:
                yield f"`{entry.agent}` {count} of {len(own)} on `{split}`"


def additions(contest: Contest) -> list[tuple[str, str]]:
    """Verdict and addition; the verdict is for both sides, or one for each."""
    sides: dict[str, list[str]] = {}
    for row in contrast_table(contest).rows:
        addition, agents, *_, word = map(str, row.cells)
        sides.setdefault(f"{addition} ({agents})", []).append(word)
    return [
        (words[0] if len({*words}) == 1 else f"{words[0]} ID and {words[1]} OOD", addition)
        for addition, words in sides.items()
    ]


def grouped(answers: Sequence[tuple[str, str]]) -> str:
    """Claims grouped by verdict, in the order in which verdicts come up."""
    text = "; ".join(
        f"{word}: {', '.join(claim for verdict, claim in answers if verdict == word)}"
        for word in dict.fromkeys(word for word, _ in answers)
    )
    return f"{text[0].upper()}{text[1:]}"


def by_side(tests: Mapping[str, Comparison]) -> str:
    """Differences with their intervals."""
    return ", ".join(f"{side.upper()} {signed(test.difference)}" for side, test in tests.items())


# Of one contest


def compare_with_baselines(contest: Contest) -> Iterable[str]:
    """Agents that are better and worse than the blind baselines, by side."""
    for name in ("random", "flip-ones"):
        for side in contest.subsets():
            level, where = level_of(contest, name, side), compare_with(contest, name, side)
            clauses = "; ".join(
                f"{word}: {listed(agents)}" for word, agents in where.items() if agents
            )
            yield f"{side.upper()}, compared with `{name}` ({level:.3f}), {clauses}."


def shares(contest: Contest) -> Iterable[str]:
    """The best share of the ceiling, and the range of the others."""
    for side in contest.subsets():
        by_agent = {entry.agent: ceiling_share(contest, entry, side) for entry in contest.entries}
        best = max(by_agent, key=lambda agent: by_agent[agent].mean)
        others = [interval.mean for agent, interval in by_agent.items() if agent != best]
        text = f"{side.upper()}: `{best}` reaches {by_agent[best]} of the ceiling"
        yield text + (f", the others {min(others):.3f} to {max(others):.3f}." if others else ".")


def drops(contest: Contest) -> Iterable[str]:
    """How large drops are, and how much of them the rules themselves explain."""
    ceiling, blind = (gap(contest, name) for name in ("ceiling", "flip-ones"))
    yield (
        f"The exact ceiling drops by {ceiling:+.3f} from seen to held-out rules, the blind "
        f"`flip-ones` by {blind:+.3f}."
    )
    words = {ABOVE: "lower on held-out rules", BELOW: "higher", OPEN: "undecided"}
    for heading, by_sign in (
        ("Success", signs(contest, TOTAL)),
        ("Success given type and ceiling level", signs(contest, REST)),
    ):
        clauses = "; ".join(
            f"{words[word]} for {listed(agents)}" for word, agents in by_sign.items() if agents
        )
        yield f"{heading} is {clauses}."


def survival(contests: dict[str, Contest]) -> Iterable[str]:
    """The drop of every agent on both splits."""
    by_split = {split: drops_of(contest, TOTAL) for split, contest in contests.items()}
    first, second = by_split.values()
    for agent in [agent for agent in first if agent in second]:
        drops_text = [f"{signed(total[agent])} on `{split}`" for split, total in by_split.items()]
        yield f"`{agent}`: {', '.join(drops_text)}."


def contrast_table(contest: Contest) -> Table:
    """The effect of each addition, agent against agent, corrected for all of them together."""
    by_name = {entry.agent: entry for entry in contest.entries if len(entry.seeds) > 1}
    tests = []
    for agent, other, question in CONTRASTS:
        if agent in by_name and other in by_name:
            for side in contest.subsets():
                rows_of_side = contest.exam.rows(side)
                a, b = (by_name[name].scores["success"][:, rows_of_side] for name in (agent, other))
                tests.append((question, agent, other, side, stats.welch(a, b)))
    corrected = stats.holm(np.array([test.p for *_, test in tests])) if tests else np.array([])
    rows = []
    for (question, agent, other, side, test), p in zip(tests, corrected, strict=True):
        word = OPEN_DIFFERENCE if p > 0.05 else "better" if test.difference.mean > 0 else "worse"
        rows.append(
            Row((question, f"{agent} − {other}", side.upper(), test.difference, float(p), word))
        )
    return Table(
        f"{contest.slug}-contrasts",
        "Effects of additions",
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
        sides = [ceiling_shares(contest, entry, side) for side in ("id", "ood")]
        difference = over_seeds(sides[0] - sides[1])
        both = [ceiling_share(contest, entry, side) for side in ("id", "ood")]
        rows.append(Row((entry.agent, *both, difference)))
    return Table(
        f"{contest.slug}-shares",
        "Share of the exact ceiling",
        "Mean success over the mean exact ceiling of the side, and the difference of the two, "
        "paired by seed.",
        (Column("agent"), Column("ID"), Column("OOD"), Column("ID − OOD", signed=True)),
        tuple(rows),
    )


# The paper's claims

HOLDS, FAILS, MIXED = "holds", "does not hold", "in part"


def claims_table(contest: Contest, costs: Mapping[str, Interval]) -> Table | None:
    """The paper's claims about its agents, and whether ours agree; None with too few agents.

    `costs` are the costs of unseen by agent, as far as they are measured.
    """
    printed = published_tables()["main"].rows
    entries = [entry for entry in contest.entries if entry.agent in printed]
    entries = [entry for entry in entries if len(entry.seeds) > 1]
    if len(entries) < 2:
        return None
    alone = partial(law_alone, costs=costs)
    claims = (fall, size_of_fall, alone, below_planner, order_of_agents, inference_helps)
    rows = [Row(row) for claim in claims if (row := claim(contest, entries))]
    return Table(
        f"{contest.slug}-claims",
        "The paper's claims",
        f"On `{contest.exam.split}`, for the paper's agents that are finished here: "
        f"{', '.join(sorted(entry.agent for entry in entries))}. A claim about all of them holds "
        "if every 95% interval agrees with it, and does not hold if one contradicts it.",
        tuple(map(Column, ("the paper says", "where", "here", "verdict"))),
        tuple(rows),
    )


def fall(contest: Contest, entries: Sequence[Entry]) -> tuple[str, ...]:
    """Claim: success drops for all agents."""
    says, where = "a consistent ID-to-OOD drop across families", "abstract"
    return (says, where, *sign_of_all(entries, drops_of(contest, TOTAL), "a drop"))


def law_alone(
    contest: Contest, entries: Sequence[Entry], costs: Mapping[str, Interval]
) -> tuple[str, ...]:
    """Claim: the drop is due to rules being unseen, and not to these rules being harder.

    Where the cost of unseen is measured: whether it is as large as the paper's drop.
    """
    says = "the degradation can be attributed primarily to latent-law shift"
    measured = [costs[entry.agent] for entry in entries if entry.agent in costs]
    if not measured:
        rest = sign_of_all(entries, drops_of(contest, REST), "a drop given type and ceiling")
        return (says, "sec:discussion", *rest)
    least, _ = statements()["drop over methods and horizons"]["value"]
    below = [cost.high < least for cost in measured]
    ends = (
        f"{min(cost.mean for cost in measured):+.3f} to {max(cost.mean for cost in measured):+.3f}"
    )
    finding = f"cost of unseen: {ends}, below {least} for {sum(below)} of {len(below)}"
    verdict = FAILS if all(below) else MIXED if any(below) else OPEN_DIFFERENCE
    return says, "sec:discussion", finding, verdict


def size_of_fall(contest: Contest, entries: Sequence[Entry]) -> tuple[str, ...]:
    """Claim: the size of the drop."""
    low, high = statements()["drop over methods and horizons"]["value"]
    drops = [drops_of(contest, TOTAL)[entry.agent] for entry in entries]
    inside = [drop.low <= high and drop.high >= low for drop in drops]
    finding = f"{min(drop.mean for drop in drops):+.3f} to {max(drop.mean for drop in drops):+.3f}"
    verdict = HOLDS if all(inside) else MIXED if any(inside) else FAILS
    return f"the drop is {low} to {high}", "sec:discussion", finding, verdict


def below_planner(contest: Contest, entries: Sequence[Entry]) -> tuple[str, ...]:
    """Claim: most agents stay below the planner."""
    finding, most = [], []
    for side in contest.subsets():
        level = level_of(contest, baselines.PLANNER, side)
        where = [
            against(findings.success(contest, entry, side), level, len(entry.seeds))
            for entry in entries
        ]
        finding.append(f"{side.upper()}: {where.count(BELOW)} of {len(where)} below {level:.3f}")
        most.append(where.count(BELOW) > len(where) / 2)
    verdict = HOLDS if all(most) else MIXED if any(most) else FAILS
    says = "most families stay below the true-dynamics planner"
    return says, "sec:discussion", "; ".join(finding), verdict


def order_of_agents(contest: Contest, entries: Sequence[Entry]) -> tuple[str, ...] | None:
    """Claim: the order of the agents, over all pairs that both tables distinguish."""
    printed, agree, differ = published_tables()["main"].rows, 0, 0
    for side in contest.subsets():
        ours = {entry.agent: findings.success(contest, entry, side) for entry in entries}
        theirs = {agent: Interval(*printed[agent][f"{side}.success"]) for agent in ours}
        for a, b in itertools.combinations(ours, 2):
            order = apart(ours[a], ours[b]) * apart(theirs[a], theirs[b])
            agree, differ = agree + (order > 0), differ + (order < 0)
    if not agree + differ:
        return None
    verdict = HOLDS if not differ else FAILS if not agree else MIXED
    finding = f"{agree} of {agree + differ} pairs that both distinguish are in the same order"
    return "the order of the agents, by success", "tab:extended_main", finding, verdict


def inference_helps(contest: Contest, entries: Sequence[Entry]) -> tuple[str, ...] | None:
    """Claim: task inference recovers some of the drop."""
    rows = [row.cells for row in contrast_table(contest).rows if row.cells[1] == "pearl − dqn"]
    if not rows:
        return None
    finding = "; ".join(
        f"{side} {signed(cast(Interval, difference))}" for _, _, side, difference, _, _ in rows
    )
    words = {str(row[-1]) for row in rows}
    verdict = HOLDS if words == {"better"} else FAILS if "worse" in words else OPEN_DIFFERENCE
    says = "task inference recovers some of the performance"
    return says, "sec:discussion", f"PEARL − DQN: {finding}", verdict


def compare_with(contest: Contest, name: str, side: str) -> dict[str, list[str]]:
    """Agents that are better, worse or undecided against a baseline on a side."""
    level = level_of(contest, name, side)
    where: dict[str, list[str]] = {ABOVE: [], BELOW: [], OPEN: []}
    for entry in findings.ranked(contest):
        interval = findings.success(contest, entry, side)
        where[against(interval, level, len(entry.seeds))].append(entry.agent)
    return where


def signs(contest: Contest, column: int) -> dict[str, list[str]]:
    """Agents by the sign of a column of the table of drops."""
    seeds = {entry.agent: len(entry.seeds) for entry in contest.entries}
    where: dict[str, list[str]] = {ABOVE: [], BELOW: [], OPEN: []}
    for agent, drop in drops_of(contest, column).items():
        where[against(drop, 0.0, seeds[agent])].append(agent)
    return where


def drops_of(contest: Contest, column: int) -> dict[str, Interval]:
    """A column of the table of drops by agent."""
    rows = findings.drop_table(contest).rows
    return {str(row.cells[0]): cast(Interval, row.cells[column]) for row in rows}


def sign_of_all(
    entries: Sequence[Entry], intervals: dict[str, Interval], effect: str
) -> tuple[str, str]:
    """For how many agents an effect is positive, and the verdict on all of them."""
    where = [against(intervals[entry.agent], 0.0, len(entry.seeds)) for entry in entries]
    finding = f"{effect}: {where.count(ABOVE)} of {len(where)}"
    finding += f", the opposite: {where.count(BELOW)}" if BELOW in where else ""
    if BELOW in where:
        return finding, FAILS
    return finding, HOLDS if {*where} == {ABOVE} else MIXED if ABOVE in where else OPEN_DIFFERENCE


def apart(a: Interval, b: Interval) -> int:
    """1 if a lies above b, -1 if below, 0 if their intervals overlap."""
    return int(a.low > b.high) - int(a.high < b.low)


# Words and numbers


def ceiling_shares(contest: Contest, entry: Entry, side: str) -> np.ndarray:
    """Success over the ceiling for each seed, `[S, 1]`."""
    rows = contest.exam.rows(side)
    success = entry.scores["success"][:, rows].mean(axis=1, keepdims=True)
    return np.asarray(success / contest.ceilings[rows].mean())


def ceiling_share(contest: Contest, entry: Entry, side: str) -> Interval:
    """The share of the ceiling that an agent reaches."""
    return over_seeds(ceiling_shares(contest, entry, side))


def level_of(contest: Contest, name: str, side: str) -> float:
    """Mean success of a baseline on a side, or the ceiling."""
    values = contest.ceilings if name == "ceiling" else contest.baselines[name]["success"]
    return float(values[contest.exam.rows(side)].mean())


def gap(contest: Contest, name: str) -> float:
    """ID − OOD of a baseline or the ceiling."""
    return level_of(contest, name, "id") - level_of(contest, name, "ood")


def against(interval: Interval, level: float, seeds: int) -> str:
    """How an interval over `seeds` compares with a level. One seed is always undecided."""
    if seeds < 2:
        return OPEN
    return ABOVE if interval.low > level else BELOW if interval.high < level else OPEN


def signed(interval: Interval) -> str:
    """A difference with its interval."""
    return f"{interval.mean:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"


def printed_range(values: Sequence[float]) -> str:
    """The least and the largest of them, if they differ as printed."""
    ends = dict.fromkeys(f"{value:.3f}" for value in (min(values), max(values)))
    return " to ".join(ends)


def listed(names: Sequence[str]) -> str:
    """Names in a row."""
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
