"""What results say in words: every sentence and verdict is chosen by an interval.

No sentence is written by hand for a number, so none can contradict its table. Words such
as better and worse follow from the 95% interval of each agent on its own, and between agents from
Welch's test with Holm's correction. `results_page` puts them on a page.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

import numpy as np

from tapebench import stats
from tapebench.exam import baselines
from tapebench.exam.intervals import over_seeds
from tapebench.experiments.paper_tables import published_tables, statements
from tapebench.experiments.unseen import (
    NOTHING_TO_LOSE,
    READINGS,
    SKILL,
    SKILLED,
    UNDECIDED,
    UnseenCost,
)
from tapebench.report import findings, strata
from tapebench.report.contests import Contest, Entry
from tapebench.report.tables import AGENT, Column, Row, Table
from tapebench.runs.tracks import get_track
from tapebench.stats import Comparison, Interval, Training
from tapebench.tasks import splits
from tapebench.tasks.universe import ELEMENTARY

ABOVE, BELOW, OPEN, OPEN_DIFFERENCE = "better", "worse", "undecided", "open"

ABOUT_AS_WELL = 0.01
"""Success that one may lack and still be said to do about as well."""

TOTAL, REST = 1, 3
"""Columns of the table of drops: the whole drop, and the rest beyond composition."""

CONTRASTS = (
    ("pearl-mlp", "dqn-mlp", "a context of the episode"),
    ("pearl-conv", "dqn-conv", "a context of the episode"),
    ("rad-mlp", "dqn-mlp", "augmentation"),
    ("rad-label-shift-mlp", "dqn-mlp", "augmentation that the action does not follow"),
    ("curl-mlp", "dqn-mlp", "a contrastive loss"),
    ("ppo-dr-mlp", "ppo-mlp", "domain randomisation"),
    ("rppo-gru", "ppo-mlp", "memory"),
    ("rppo-cells", "ppo-conv", "memory"),
    ("dreamer-conv", "dqn-conv", "a learned world model"),
)
"""An agent, the one that it is compared with, and what it adds to that: always on networks of one
kind, since across kinds it is the networks that are compared."""


# In short


def in_short(
    contests: Mapping[str, Contest],
    costs: Mapping[str, UnseenCost],
    longer: Mapping[str, UnseenCost],
    experiments: Mapping[str, Mapping[str, Mapping[str, Comparison]]],
    identification: str = "",
) -> Iterable[str]:
    """The summary of the results page, a bullet for each question.

    `costs` are the costs of unseen by agent, `longer` those of the track `long`; `experiments` are
    further questions with their comparisons, by side; `identification` is about what stands with
    the references.
    """
    first = next(iter(contests.values()))
    if costs:
        yield about_costs(costs, longer)
    for split, contest in contests.items():
        if sentence := about_beyond_reflex(contest):
            yield f"**Beyond reflex on `{split}`.** {sentence}"
    for split, contest in contests.items():
        yield f"**The drop on `{split}`.** {about_drop(contest)}"
    if identification:
        yield identification
    for name in ("flip-ones", "random"):
        yield about_baseline(first, name)
    yield f"**Share of the exact ceiling**, ID / OOD: {about_shares(first)}."
    yield (
        "**Failed runs**, with less than half the ID success of their agent's median: "
        + (", ".join(failures(contests)) or "none")
        + "."
    )
    held = claims_table(contests, costs, longer)
    says = [(str(row.cells[-1]), str(row.cells[0])) for row in held.rows] if held else []
    for question, answers in (
        ("Effects of additions", additions(first)),
        ("The paper's claims", says),
    ):
        if answers:
            yield f"**{question}.** {grouped(answers)}."
    for question, pairs in experiments.items():
        if pairs:
            yield f"**{question}.** {about_pairs(pairs)}."


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
    agents = [entry.label for entry in findings.learners(contest)]
    learned = ", ".join(f"`{agent}` {levels[agent]}" for agent in agents)
    references = [entry.label for entry in contest.entries if entry.is_reference]
    untrained = ", ".join(f"`{name}` {levels[name]}" for name in (*contest.baselines, *references))
    named = " and ".join(column.name.removeprefix("beyond-reflex ") for column in first.columns[1:])
    return (
        f"On the rules that take more than flipping ones, {named}, where the exact ceiling is "
        f"{levels['exact ceiling']}: {learned}. "
        f"References: {untrained}."
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
        f"For these very rules, by intervals over seeds that are not corrected for the number of "
        f"agents, success on held-out ones is {'; '.join(clauses)}. The exact ceiling drops by "
        f"{gap(contest, 'ceiling'):+.3f}. Compared with training rules of the same type and "
        f"ceiling level, {rest}."
    )


def about_costs(costs: Mapping[str, UnseenCost], longer: Mapping[str, UnseenCost]) -> str:
    """What unseen rules cost agents with skill, the most trained first; who has nothing to lose."""
    steps = [get_track(track).steps for track in ("long", "full")]
    clauses = [
        f"After {count:,} steps {about_skilled(by_agent)}."
        for count, by_agent in zip(steps, (longer, costs), strict=True)
        if any(cost.reading == SKILLED for cost in by_agent.values())
    ]
    for reading, verb in ((UNDECIDED, "is undecided for"), (NOTHING_TO_LOSE, "is absent from")):
        agents = [agent for agent, cost in costs.items() if cost.reading == reading]
        if agents:
            ends = printed_ends([costs[agent].cost for agent in agents])
            clauses.append(
                f"After {steps[1]:,} steps skill {verb} {listed(agents)} (costs {ends}"
                + (f": {NOTHING_TO_LOSE})." if reading == NOTHING_TO_LOSE else ").")
            )
    return (
        "**Cost of unseen**, success on a rule when it was trained on minus success on the same "
        f"rule when it was held out, is paid only by agents with skill to lose. {SKILL} "
        + " ".join(clauses)
        + " Intervals of costs are over seeds and rules, and not corrected for the number of "
        "agents."
    )


def about_skilled(costs: Mapping[str, UnseenCost]) -> str:
    """The costs of agents with skill, next to that skill."""
    texts = []
    for agent, cost in costs.items():
        if cost.reading == SKILLED:
            on_those = (
                f", on those rules {signed(cost.beyond_reflex)}" if cost.beyond_reflex else ""
            )
            texts.append(
                f"`{agent}` reaches {cost.success} on seen beyond-reflex rules, and an unseen rule "
                f"costs it {signed(cost.cost)}{on_those}"
            )
    return "; ".join(texts)


def about_identification(
    contest: Contest,
    ablation: Mapping[str, Mapping[str, float]],
    hidden: Contest | None,
) -> str:
    """What `automata` is, what it reaches without learning, and where it fails; empty without it.

    `ablation` is success by side of the `table` of `automata-control` and of what was `trained`,
    `hidden` a contest in which cells are hidden.
    """
    if not any(entry.is_identification for entry in contest.entries):
        return ""
    text = (
        "**`automata`** stands with the references: it is system identification and search, no "
        "reinforcement learning. Its search was developed on all 256 rules, held-out ones among "
        "them."
    )
    if ablation:
        reached = ", ".join(
            f"`{setting}` {' / '.join(f'{mean:.3f}' for mean in by_side.values())}"
            for setting, by_side in ablation.items()
        )
        losses = [
            max(by_side[side] for by_side in ablation.values()) - ablation["table"][side]
            for side in ablation["table"]
        ]
        does = "does about as well" if max(losses) < ABOUT_AS_WELL else "reaches less"
        text += f" A table that learns nothing {does}, ID / OOD on `lite@2`: {reached}."
    for entry in hidden.entries if hidden else ():
        if entry.is_identification and hidden:
            sides = [
                f"{side.upper()} {findings.success(hidden, entry, side)} against "
                f"{level_of(hidden, 'flip-ones', side):.3f} of `flip-ones`"
                for side in hidden.subsets()
            ]
            words = {
                against(
                    findings.success(hidden, entry, side),
                    level_of(hidden, "flip-ones", side),
                    len(entry.seeds),
                )
                for side in hidden.subsets()
            }
            does = "It fails where" if words == {BELOW} else "Where"
            text += f" {does} cells are hidden (track `inference@2`): {', '.join(sides)}."
    return text


def limits() -> Iterable[str]:
    """What the numbers cannot say, whatever they are."""
    split = splits.load("fps30")
    mirrored = [rule for rule in split.test if ELEMENTARY.features[rule].mirror in split.train]
    yield (
        "The sizes of PPO's networks, its environments and the length of its rounds were tried on "
        "`fps30` with held-out rules in sight; the searches of `docs/tuning` were made on the "
        "split `tuning`, which has no held-out rule."
    )
    yield (
        f"{len(mirrored)} of the {len(split.test)} held-out rules of `fps30` have their mirror "
        "image among the training rules, so half of what is unseen is a mirror image of what was "
        "seen; `matched30` never separates the two."
    )
    yield (
        "Training on the held-out rules is no bound on what can be reached there: it is fewer and "
        "other rules with the same budget, and the result can be below `flip-ones`."
    )
    yield (
        "A fresh exam changes start tapes, not rules: all 256 rules are public, and that a rule "
        "was held out is a declaration of whoever trained."
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
    for entry in findings.learners(contest):
        parts = [ceiling_share(contest, entry, side).mean for side in contest.subsets()]
        shares_text.append(f"`{entry.label}` {' / '.join(f'{100 * part:.1f}%' for part in parts)}")
    return ", ".join(shares_text)


def failures(contests: Mapping[str, Contest]) -> Iterable[str]:
    """How many runs of an agent fall far behind its others, by split; a mean hides them."""
    for split, contest in contests.items():
        for entry in findings.ranked(contest):
            own = entry.scores["success"][:, contest.exam.rows("id")].mean(axis=1)
            count = int((own < np.median(own) / 2).sum())
            if count:
                yield f"`{entry.label}` {count} of {len(own)} on `{split}`"


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


def about_pairs(pairs: Mapping[str, Mapping[str, Comparison]]) -> str:
    """Differences by pair and side with their intervals, and verdicts by Welch's test with Holm's
    correction for all of them together."""
    tests = [(pair, side, test) for pair, sides in pairs.items() for side, test in sides.items()]
    corrected = stats.holm(np.array([test.p for *_, test in tests]))
    texts: dict[str, list[str]] = {}
    for (pair, side, test), p in zip(tests, corrected, strict=True):
        difference = (
            f"{side.upper()} {signed(test.difference)} ({verdict_of(test, p)}, p = {p:.3f})"
        )
        texts.setdefault(pair, []).append(difference)
    return "; ".join(f"{pair}: {', '.join(sides)}" for pair, sides in texts.items())


def verdict_of(test: Comparison, corrected: float) -> str:
    """Better or worse where the corrected p value says so, else open."""
    if corrected > 0.05:
        return OPEN_DIFFERENCE
    return "better" if test.difference.mean > 0 else "worse"


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
        by_agent = {
            entry.label: ceiling_share(contest, entry, side) for entry in findings.learners(contest)
        }
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
    by_name = {entry.label: entry for entry in contest.entries if len(entry.seeds) > 1}
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
        word = verdict_of(test, float(p))
        rows.append(
            Row((question, f"{agent} − {other}", side.upper(), test.difference, float(p), word))
        )
    return Table(
        f"{contest.slug}-contrasts",
        "Effects of additions",
        "Agents on networks of one kind. Difference of mean success with its 95% interval by "
        "Welch's test; p is corrected by Holm for all rows of this table.",
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
        rows.append(findings.row_of(entry, (*both, difference)))
    return Table(
        f"{contest.slug}-shares",
        "Share of the exact ceiling",
        "Mean success over the mean exact ceiling of the side, and the difference of the two, "
        "paired by seed.",
        (Column("agent"), Column("ID"), Column("OOD"), Column("ID − OOD", signed=True)),
        tuple(rows),
    )


# The paper's claims

REPRODUCED, NOT_REPRODUCED = "reproduced", "not reproduced by this implementation"

Judged = tuple[str, str]
"""What was found on a split, and the verdict on it."""


def claims_table(
    contests: Mapping[str, Contest],
    costs: Mapping[str, UnseenCost],
    longer: Mapping[str, UnseenCost],
) -> Table | None:
    """The paper's claims about its agents, judged on every split; None with too few agents.

    `costs` are the costs of unseen by agent, as far as they are measured, `longer` those of the
    track `long`.
    """
    papers = {split: paper_entries(contest) for split, contest in contests.items()}
    papers = {split: entries for split, entries in papers.items() if len(entries) > 1}
    if not papers:
        return None
    low, high = statements()["drop over methods and horizons"]["value"]
    claims: list[tuple[str, str, Callable[[Contest, Sequence[Entry]], Judged | None]]] = [
        ("a consistent ID-to-OOD drop across families", "abstract", fall),
        (f"the drop is {low} to {high}", "sec:discussion", size_of_fall),
        ("most families stay below the true-dynamics planner", "sec:discussion", below_planner),
        ("the order of the agents, by success", "tab:extended_main", order_of_agents),
        ("task inference recovers some of the performance", "sec:discussion", inference_helps),
    ]
    rows = []
    for says, where, judge in claims:
        judged = [judge(contests[split], entries) for split, entries in papers.items()]
        if all(judged):
            known = [each for each in judged if each]
            verdict = overall([word for _, word in known])
            rows.append(Row((says, where, *(finding for finding, _ in known), verdict)))
    if costs:
        finding, verdict = unseen_alone(costs, longer)
        says = "the degradation can be attributed primarily to latent-law shift"
        rows.append(Row((says, "sec:discussion", *[finding] * len(papers), verdict)))
    return Table(
        f"{next(iter(contests.values())).slug}-claims",
        "The paper's claims",
        f"For the paper's agents as far as they are finished here: {sizes(papers)}. Drops and "
        "distances from the planner have 95% intervals over seeds and rules, since these claims "
        "are about rules; the order of agents is read from intervals over seeds, task inference "
        "from Welch's test with Holm's correction. Reproduced: on every split. Not reproduced by "
        "this implementation: contradicted on a split. Open: neither. The paper leaves "
        "details of split, networks, reward and planner open, so nothing here says that it is "
        "wrong; what its printed numbers say of each other is on the page of the "
        "[paper](paper.md).",
        tuple(map(Column, ("the paper says", "where", *papers, "verdict"))),
        tuple(rows),
    )


def paper_entries(contest: Contest) -> list[Entry]:
    """The paper's agents among those of a contest: the runs of its track, with several seeds.

    Not the ablations of an agent, nor agents with a second network.
    """
    printed = published_tables()["main"].rows
    return [
        entry
        for entry in contest.entries
        if entry.agent in printed
        and len(entry.seeds) > 1
        and not entry.is_ablation
        and str(entry.specs[0].get("experiment")).partition("+")[0] == contest.experiment
    ]


def sizes(papers: Mapping[str, Sequence[Entry]]) -> str:
    """The agents that claims are judged by, and which have fewer seeds than the paper's."""
    printed = published_tables()["main"].rows
    seeds = {entry.label: (len(entry.seeds), entry.agent) for es in papers.values() for entry in es}
    return ", ".join(
        label + (f" ({count} of the paper's {theirs} seeds)" if count < theirs else "")
        for label, (count, agent) in sorted(seeds.items())
        for theirs in [int(printed[agent]["seeds"])]
    )


def overall(verdicts: Sequence[str]) -> str:
    """The verdict over all splits: reproduced on every one, or contradicted on one, or open."""
    if NOT_REPRODUCED in verdicts:
        return NOT_REPRODUCED
    return REPRODUCED if {*verdicts} == {REPRODUCED} else OPEN_DIFFERENCE


def drop_over_rules(contest: Contest, entry: Entry) -> Interval:
    """An agent's drop with an interval over seeds and rules."""
    exam = contest.exam
    training = Training(entry.scores["success"], exam.rules, exam.subsets == "ood")
    return stats.drop_over_rules(training)


def fall(contest: Contest, entries: Sequence[Entry]) -> Judged:
    """Claim: success drops for all agents."""
    drops = [drop_over_rules(contest, entry) for entry in entries]
    words = [
        against(drop, 0.0, len(entry.seeds)) for drop, entry in zip(drops, entries, strict=True)
    ]
    ends = printed_ends(drops)
    finding = f"{ends}; a drop: {words.count(ABOVE)} of {len(words)}, the opposite: "
    finding += f"{words.count(BELOW)}, undecided over rules: {words.count(OPEN)}"
    return finding, sign_of_all(words)


def sign_of_all(words: Sequence[str]) -> str:
    """The verdict on an effect that all agents are said to have."""
    if BELOW in words:
        return NOT_REPRODUCED
    return REPRODUCED if {*words} == {ABOVE} else OPEN_DIFFERENCE


def size_of_fall(contest: Contest, entries: Sequence[Entry]) -> Judged:
    """Claim: the size of the drop."""
    low, high = statements()["drop over methods and horizons"]["value"]
    drops = [drop_over_rules(contest, entry) for entry in entries]
    reaches = [drop.low <= high and drop.high >= low for drop in drops]
    is_drop = [drop.low > 0 for drop in drops]
    widest = max(drop.high - drop.low for drop in drops) / 2
    finding = f"{printed_ends(drops)}, each ± up to {widest:.2f} over rules; the range is within "
    finding += f"the intervals of {sum(reaches)} of {len(reaches)}"
    if not all(reaches):
        return finding, NOT_REPRODUCED
    return finding, REPRODUCED if all(is_drop) else OPEN_DIFFERENCE


def unseen_alone(costs: Mapping[str, UnseenCost], longer: Mapping[str, UnseenCost]) -> Judged:
    """Claim: the drop is due to rules being unseen, and not to these rules being harder.

    Only an agent with skill beyond reflex can tell. It speaks for the claim where its cost is above
    zero, against it where its cost is below the paper's smallest drop.
    """
    least, _ = statements()["drop over methods and horizons"]["value"]
    skilled = [
        (agent, cost, get_track(track).steps)
        for track, by_agent in (("full", costs), ("long", longer))
        for agent, cost in by_agent.items()
        if cost.reading == SKILLED
    ]
    readings = [cost.reading for cost in costs.values()]
    counts = [
        f"{reading}: {readings.count(reading)} of {len(readings)}"
        for reading in READINGS
        if reading in readings
    ]
    counts += [
        f"after {steps:,} steps {agent} pays {signed(cost.cost)}" for agent, cost, steps in skilled
    ]
    is_against = any(cost.cost.high < least for _, cost, _ in skilled)
    return "; ".join(counts), NOT_REPRODUCED if is_against else OPEN_DIFFERENCE


def below_planner(contest: Contest, entries: Sequence[Entry]) -> Judged:
    """Claim: most agents stay below the planner."""
    finding, most = [], []
    planner = contest.baselines[baselines.PLANNER]["success"]
    for side in contest.subsets():
        rows = contest.exam.rows(side)
        words = [
            against(
                stats.hierarchical_interval(
                    entry.scores["success"][:, rows] - planner[rows],
                    findings.rng(contest, entry, "below planner", side),
                ),
                0.0,
                len(entry.seeds),
            )
            for entry in entries
        ]
        level = level_of(contest, baselines.PLANNER, side)
        finding.append(f"{side.upper()}: {words.count(BELOW)} of {len(words)} below {level:.3f}")
        most.append((words.count(BELOW), words.count(ABOVE), len(words)))
    if all(below > number / 2 for below, _, number in most):
        return "; ".join(finding), REPRODUCED
    contradicted = any(above > number / 2 for _, above, number in most)
    return "; ".join(finding), NOT_REPRODUCED if contradicted else OPEN_DIFFERENCE


def order_of_agents(contest: Contest, entries: Sequence[Entry]) -> Judged | None:
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
    finding = f"{agree} of {agree + differ} pairs that both distinguish are in the same order"
    return finding, verdict_on_order(agree, differ)


def verdict_on_order(agree: int, differ: int) -> str:
    """Reproduced if no pair differs, not if as many differ as agree; else open."""
    if not differ:
        return REPRODUCED
    return NOT_REPRODUCED if differ >= agree else OPEN_DIFFERENCE


def inference_helps(contest: Contest, entries: Sequence[Entry]) -> Judged | None:
    """Claim: task inference recovers some of the drop."""
    pair = "pearl-mlp − dqn-mlp"
    rows = [row.cells for row in contrast_table(contest).rows if row.cells[1] == pair]
    if not rows:
        return None
    finding = "; ".join(
        f"{side} {signed(cast(Interval, difference))}" for _, _, side, difference, _, _ in rows
    )
    words = {str(row[-1]) for row in rows}
    verdict = REPRODUCED if words == {"better"} else OPEN_DIFFERENCE
    return f"{pair}: {finding}", NOT_REPRODUCED if "worse" in words else verdict


def compare_with(contest: Contest, name: str, side: str) -> dict[str, list[str]]:
    """Agents that are better, worse or undecided against a baseline on a side."""
    level = level_of(contest, name, side)
    where: dict[str, list[str]] = {ABOVE: [], BELOW: [], OPEN: []}
    for entry in findings.learners(contest):
        interval = findings.success(contest, entry, side)
        where[against(interval, level, len(entry.seeds))].append(entry.label)
    return where


def signs(contest: Contest, column: int) -> dict[str, list[str]]:
    """Agents by the sign of a column of the table of drops."""
    seeds = {entry.label: len(entry.seeds) for entry in contest.entries}
    where: dict[str, list[str]] = {ABOVE: [], BELOW: [], OPEN: []}
    for agent, drop in drops_of(contest, column).items():
        where[against(drop, 0.0, seeds[agent])].append(agent)
    return where


def drops_of(contest: Contest, column: int) -> dict[str, Interval]:
    """A column of the table of drops by agent."""
    rows = [row for row in findings.drop_table(contest).rows if row.kind == AGENT]
    return {str(row.cells[0]): cast(Interval, row.cells[column]) for row in rows}


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


def printed_ends(intervals: Sequence[Interval]) -> str:
    """The least and the largest mean of some differences."""
    means = [interval.mean for interval in intervals]
    return f"{min(means):+.3f} to {max(means):+.3f}"


def printed_range(values: Sequence[float]) -> str:
    """The least and the largest of them, if they differ as printed."""
    ends = dict.fromkeys(f"{value:.3f}" for value in (min(values), max(values)))
    return " to ".join(ends)


def listed(names: Sequence[str]) -> str:
    """Names in a row."""
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
