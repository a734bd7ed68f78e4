"""`tape evaluate|compare|verify`: sit an exam, compare those who did, replay a result."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from tapebench.cli.console import (
    check_target,
    ends,
    free_name,
    name_damage_in,
    parse_rules,
    parse_size,
    parse_steps,
    progress,
    screen,
)

if TYPE_CHECKING:
    from tapebench.exam.seating import Conditions


@dataclass(frozen=True)
class ExamOptions:
    """The exam: rules, start tapes and task."""

    split: Annotated[str, tyro.conf.arg(metavar="SPLIT")] = "fps30"
    """Split whose training and held-out rules are examined."""
    exam: Annotated[str, tyro.conf.arg(metavar="EXAM")] = "standard"
    """standard, or fresh:SALT for another exam of the same kind."""
    episodes: Annotated[int, tyro.conf.arg(metavar="N")] = 20
    """Start tapes for every rule."""
    trials: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """Consecutive episodes under the same rule, with memory kept from one to the next."""
    rules: Annotated[str, tyro.conf.arg(metavar="RULES")] = "all"
    """all, train, test, or rules like 0,30,110; of other families by label, like B3/S23."""
    family: Annotated[str, tyro.conf.arg(metavar="FAMILY")] = "elementary"
    """elementary, ring2 (five cells on a ring) or life (on a torus)."""
    length: Annotated[int | None, tyro.conf.arg(metavar="CELLS")] = None
    """Cells on the ring, by default 32, or what the rules of the split are drawn for."""
    shape: Annotated[str | None, tyro.conf.arg(metavar="SIDES")] = None
    """Sides of a torus, like 5x5, by default those that the rules of the split are drawn for."""
    horizon: Annotated[int | None, tyro.conf.arg(metavar="STEPS")] = None
    """Steps at most; by default as many as there are cells, or those that the rules of the split
    are drawn for."""
    goal: Annotated[str, tyro.conf.arg(metavar="GOAL")] = "zeros"
    """zeros, random, or the cells of a tape like 0110..."""
    observe_goal: bool = False
    """Show the goal's cells after t/H."""
    noise: Annotated[float, tyro.conf.arg(metavar="P")] = 0.0
    """Probability that a cell flips after each update."""
    mask: Annotated[str, tyro.conf.arg(metavar="CELLS")] = ""
    """Cells hidden from the observation, like 0,4."""
    switch: Annotated[str, tyro.conf.arg(metavar="STEPS")] = ""
    """Steps at which the rule changes to another of its side, like 4 or 2,5."""

    def make(self) -> Any:
        from tapebench.exam.exam import make_exam
        from tapebench.physics import families

        family = families.get(self.family)
        length, shape, horizon = parse_size(
            family, self.split, self.length, self.shape, self.horizon
        )
        try:
            mask = [int(cell) for cell in self.mask.split(",")] if self.mask else None
        except ValueError:
            raise ValueError(f"unknown mask {self.mask!r}: name cells like 0,4") from None
        return make_exam(
            split=self.split,
            exam=self.exam,
            episodes=self.episodes,
            trials=self.trials,
            rules=None if self.rules == "all" else parse_rules(self.rules, family),
            family=family.name,
            length=length,
            shape=shape,
            horizon=horizon,
            goal=self.goal,
            observe_goal=self.observe_goal,
            noise=self.noise,
            mask=mask,
            switch=parse_steps(self.switch),
        )


@dataclass(frozen=True)
class Evaluate:
    """Evaluate a policy on the exam, next to baselines, planner and exact ceilings.

    For example:
      tape evaluate greedy --family life --split life-H8-matched
      tape evaluate my_agents:make --exam fresh:2027 --bundle result.tape
    """

    policy: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="POLICY")]
    """A name (random, flip-ones, greedy, mpc, beam, optimal, bayes, bayes-train, belief-planner,
    belief-planner-train, bayes-optimal, bayes-optimal-train, memoryless), a directory of runs, one
    of the package's own like published/full/rppo/fps30, or package.module:factory for an agent of
    yours."""
    more: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[DIR ...]")] = ()
    """More directories of runs: settings of the same agent that differ in what they are given about
    the rule (their option context). The gaps between their scores are printed."""
    exam_options: tyro.conf.OmitArgPrefixes[ExamOptions] = field(default_factory=ExamOptions)
    seeds: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """Repeat with this number of seeds for the policy's own randomness."""
    lesions: bool = False
    """Also exchange the agent's memory within episodes for one from another rule, and for one from
    the same rule: is more success lost by the first? See docs/adr/0022."""
    lesion_steps: Annotated[str | None, tyro.conf.arg(metavar="STEPS")] = None
    """Steps after which the memory is exchanged, like 2,4; by default all from 2 on, or 2, 4, 8
    and so on if there are more than eight. Implies --lesions."""
    subprocess: bool = False
    """Run package.module:factory in a process of its own."""
    deadline: Annotated[float, tyro.conf.arg(metavar="SECONDS")] = 60.0
    """Seconds for one call of an agent in its own process."""
    traceback: bool = False
    """If the agent fails, show the traceback of its code."""
    bundle: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write every action to this file, for others to verify."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write one row per episode to this Parquet file."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        from tapebench.base import files
        from tapebench.exam.bundle import check_size
        from tapebench.exam.external import AgentError
        from tapebench.runs import evaluation

        for target in (self.bundle, self.out):
            if target is not None:
                check_target(target)
        if self.more:
            self.run_contexts()
            return
        if self.bundle is not None and self.seeds > 1:
            raise ValueError("a bundle holds one run: leave out --seeds or --bundle")
        exam = self.exam_options.make()
        lesions = self.lesions if self.lesion_steps is None else _parse_steps(self.lesion_steps)
        if self.bundle is not None:
            check_size(exam)
        name_damage_in(self.policy)
        try:
            with progress() as show:
                outcome = evaluation.evaluate(
                    self.policy,
                    exam,
                    seeds=self.seeds,
                    subprocess=self.subprocess,
                    deadline=self.deadline,
                    lesions=lesions,
                    progress=show,
                )
                document = outcome.score
        except AgentError as failure:
            if self.traceback and failure.details:
                print(failure.details, file=sys.stderr, end="")
            rows = getattr(failure, "rows", None)
            if rows is None:
                raise ValueError(f"{failure} (no episode was finished)") from None
            file = free_name(Path("unfinished.parquet"))
            try:
                files.write_table(file, rows)
            except ValueError as error:
                raise ValueError(f"{failure} (finished episodes are lost: {error})") from None
            count = len(rows["success"])
            raise ValueError(f"{failure} ({count} finished episodes are kept in {file})") from None
        # Printed before it is written: a full disk takes no result with it.
        if self.json:
            print(json.dumps(document), flush=True)
        else:
            print_score(document)
        failures = []
        for target, write in (
            (self.out, lambda path: files.write_table(path, outcome.rows())),
            (self.bundle, outcome.write_bundle),
        ):
            if target is not None:
                try:
                    write(target)
                    print(f"wrote {target}", file=sys.stderr)
                except ValueError as error:
                    failures.append(str(error))
        if failures:
            raise ValueError("; ".join(failures))

    def run_contexts(self) -> None:
        """Evaluate several settings of an agent, and print the gaps between their scores."""
        from tapebench.runs import contexts, evaluation

        if self.bundle is not None or self.out is not None or self.lesions or self.lesion_steps:
            raise ValueError("--bundle, --out and --lesions are for one policy: name one")
        paths = [Path(name) for name in (self.policy, *self.more)]
        for path in paths:
            if not path.is_dir():
                raise ValueError(f"there is no {path}: of several, each is a directory of runs")
        name_damage_in(self.policy, *self.more)
        exam = self.exam_options.make()
        by_context = contexts.sort_by_context(paths)
        with progress() as show:
            outcomes = {
                name: evaluation.evaluate(path, exam, progress=show)
                for name, path in by_context.items()
            }
            document = contexts.gaps(outcomes)
        if self.json:
            print(json.dumps(document))
        else:
            print_contexts(document)


@dataclass(frozen=True)
class Compare:
    """Compare two policies on the same exam: where do they differ, and by how much?

    For example:
      tape compare flip-ones greedy
      tape compare mine.tape yours.tape --json
    """

    a: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="POLICY|BUNDLE")]
    """A policy as for tape evaluate, or the file of a bundle."""
    b: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="POLICY|BUNDLE")]
    """The policy or bundle to compare it with."""
    exam_options: tyro.conf.OmitArgPrefixes[ExamOptions] = field(default_factory=ExamOptions)
    seeds: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """Repeat with this number of seeds for the policies' own randomness."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        from tapebench.runs import compare

        exam = self.exam_options.make()
        name_damage_in(self.a, self.b)
        with progress() as show:
            sides = [
                compare.evaluate_or_load(entrant, exam, seeds=self.seeds, progress=show)
                for entrant in (self.a, self.b)
            ]
        document = compare.compare(*sides)
        if self.json:
            print(json.dumps(document))
        else:
            print_comparison(document)


@dataclass(frozen=True)
class Verify:
    """Replay every action of a result bundle: does it prove what it claims?

    Replay proves the outcomes. That the agent was blind to the rule is declared, not proved:
    anybody can write down the best actions.

    For example:
      tape verify result.tape
      tape verify result.tape --json
    """

    bundle: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="BUNDLE")]
    """The file."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        from tapebench.exam import score
        from tapebench.exam.bundle import verify

        replayed = verify(self.bundle)
        success, exam = replayed.episodes.success, replayed.exam
        document = {
            "verified": True,
            "policy": replayed.about["policy"],
            "sees_rule": replayed.about["sees_rule"],
            "conditions": replayed.conditions.as_dict(),
            "split": exam.split,
            "exam": exam.name,
            "exam_hash": exam.hash,
            **score.describe_laws(exam),
            "length": exam.task.length,
            "horizon": exam.task.horizon,
            "rules": len(exam.rules),
            "episodes": int(success.size),
            "success": {
                subset: float(success[rows].mean())
                for subset in ("id", "ood")
                if len(rows := exam.rows(subset))
            },
        }
        if self.json:
            print(json.dumps(document))
            return
        shown = ", ".join(
            f"{name.upper()} {mean:.4f}" for name, mean in document["success"].items()
        )
        print(
            f"verified: {success.size} episodes of {document['policy']} on the {exam.name} exam of "
            f"{exam.split}, {len(exam.rules)} rules, {describe_size(document)}, "
            f"H = {exam.task.horizon}; success {shown}"
        )
        print("Outcomes: proved, every action was replayed.")
        sight = "none, it saw the rule" if document["sees_rule"] else "declared, not proved"
        print(f"Blindness: {sight}.")
        print(f"Made: {describe_conditions(replayed.conditions)}, as the bundle says.")


def describe_size(document: dict[str, Any]) -> str:
    """How many cells a document is about, for a title."""
    if "shape" in document:
        return f"a torus of {' × '.join(map(str, document['shape']))}"
    return f"L = {document['length']}"


def _parse_steps(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(step) for step in text.split(","))
    except ValueError:
        raise ValueError(f"unknown --lesion-steps {text!r}: name steps like 2,4") from None


def describe_conditions(conditions: Conditions) -> str:
    """How a result was made, in a few words."""
    rows = {
        "independent": "rows independent",
        "not checked": "rows not checked",
    }.get(conditions.rows, conditions.rows)
    isolated = ["not isolated"] if "not isolated" in conditions.remarks else []
    return ", ".join([conditions.made, *isolated, rows, f"seating {conditions.seating}"])


def print_score(document: dict[str, Any]) -> None:
    """The score as tables: by stratum, then as a whole, by type and by trial."""
    from rich.table import Table

    from tapebench.exam.seating import Conditions

    console = screen()
    print_strata(document)
    title = (
        f"Strict success on {document['split']}, {describe_size(document)}, "
        f"H = {document['horizon']}, {document['exam']} exam"
    )
    if "switch" in document:
        title += f", the rule switches at {', '.join(map(str, document['switch']))}"
    table = Table("policy", "", "ID", "OOD", "drop", title=title)
    subsets = [name for name in ("id", "ood") if document[name]]
    both = len(subsets) == 2

    def add(label: str, note: str, values: Sequence[Any], digits: int = 3) -> None:
        id_value, ood_value = values
        if id_value is None and ood_value is None:
            return
        drop = f"{id_value - ood_value:+.{digits}f}" if None not in values else ""
        shown = ["" if value is None else f"{value:.{digits}f}" for value in values]
        table.add_row(label, note, *shown, drop)

    def of(key: str) -> list[Any]:
        return [document[name][key] if document[name] else None for name in ("id", "ood")]

    conditions = Conditions(**document["conditions"])
    table.add_row(
        ", ".join([document["policy"], *conditions.remarks]),
        f"95% over {document['interval_over']}",
        *(
            f"{document[name]['success']:.3f} {ends(document[name]['interval'])}"
            if document[name]
            else ""
            for name in ("id", "ood")
        ),
        f"{document['drop']:+.3f} {ends(document['drop_interval'])}" if both else "",
    )
    for name, line in document["lines"].items():
        note = {"mpc": "planner, true rule", "greedy": "true rule"}.get(name, "learns nothing")
        add(name, note, [line.get("id"), line.get("ood")])
    add("exact ceiling", "best possible", of("ceiling"))
    is_elementary = "family" not in document
    table.add_section()
    table.add_row(f"more of {document['policy']}")
    add("", "ON: % of mpc", of("on"), digits=1)
    add("", "share of the ceiling", of("normalised"))
    add("", "on solvable rules", of("success_on_solvable"))
    add("", f"macro over {'types' if is_elementary else 'densities'}", of("macro_success"))
    for tolerance in next(document[name] for name in subsets)["soft_success"]:
        soft = [value and value[tolerance] for value in of("soft_success")]
        add("", f"within {float(tolerance):.2g} of goal", soft)
    add("", "final distance", of("final_distance"))
    add("", "AUC distance", of("auc_distance"))
    add("", "return", of("return"), digits=2)
    console.print(table)
    if document["diverged"]:
        console.print(
            f"diverged: the weights of {document['diverged']} of {document['runs']} runs are not "
            "finite, so this score means nothing",
            style="red",
        )
    if "no_ceiling" in document:
        console.print(f"no exact ceiling: {document['no_ceiling']}", highlight=False)
    if conditions.made != "by us":
        console.print(f"made {describe_conditions(conditions)}")
    if document.get("drop_composition") is not None:
        console.print(
            f"of the drop {document['drop']:+.3f}, {document['drop_composition']:+.3f} comes from "
            f"which rules are held out and {document['drop_rest']:+.3f} is left for generalisation"
        )
    if "lesions" in document:
        print_lesions(document["lesions"])
    kinds = Table(
        *("type", "subset", "rules", "success", "ceiling", "return"),
        title="By type" if is_elementary else "By the share of ones in the rule's table",
    )
    for kind, sides in document["by_type"].items():
        for name, row in sides.items():
            ceiling = "" if row["ceiling"] is None else f"{row['ceiling']:.3f}"
            success = f"{row['success']:.3f} {ends(row['interval'])}"
            kinds.add_row(
                kind, name.upper(), str(row["rules"]), success, ceiling, f"{row['return']:.2f}"
            )
    console.print(kinds)
    if "by_trial" in document:
        trials = Table("trial", *(name.upper() for name in subsets), title="By trial")
        for number, row in enumerate(document["by_trial"], 1):
            trials.add_row(str(number), *(f"{row[name]:.3f}" for name in subsets))
        console.print(trials)


def print_strata(document: dict[str, Any]) -> None:
    """Success by stratum, beyond-reflex first, next to baselines and bounds."""
    from rich.table import Column, Table

    from tapebench.exam import bounds
    from tapebench.exam.by_stratum import ABOUT

    console = screen()
    if document["no_strata"]:
        console.print(f"no success by stratum: {document['no_strata']}")
        return
    rows = [
        (kind, side, row)
        for kind, sides in document["by_stratum"].items()
        if kind != "impossible"
        for side, row in sides.items()
    ]
    heads = (f"{kind}\n{side.upper()} ({row['rules']})" for kind, side, row in rows)
    table = Table(
        "policy",
        *(Column(head, justify="right") for head in heads),
        title=f"Success by stratum, with the number of rules; 95% over {document['interval_over']}",
    )

    def add(label: str, values: Sequence[float | None], sign: str = "") -> None:
        table.add_row(label, *("–" if v is None else f"{v:{sign}.3f}" for v in values))

    reached = (
        "–" if row["success"] is None else f"{row['success']:.3f}\n{ends(row['interval'])}"
        for *_, row in rows
    )
    table.add_row(document["policy"], *reached, end_section=True)
    for name in (*document["lines"], "memoryless", "blind_ceiling", "ceiling"):
        label = {"blind_ceiling": "blind ceiling", "ceiling": "exact ceiling"}.get(name, name)
        add(label, [row[name] for *_, row in rows])
    if "apart" in document:
        table.add_section()
        for name in ("not_knowing", "shortfall"):
            apart = [document["apart"][side][kind][name] for kind, side, _ in rows]
            add(name.replace("_", " "), apart, sign="+")
    console.print(table)
    console.print(ABOUT, highlight=False)
    if all(row["blind_ceiling"] is None or row["memoryless"] is None for *_, row in rows):
        console.print(bounds.NOT_COMPUTED, highlight=False)
    else:
        console.print(bounds.ABOUT, highlight=False)
    for side, row in document["by_stratum"].get("impossible", {}).items():
        if row["success"] is not None:
            console.print(
                f"on {row['rules']} impossible {side.upper()} rules: {row['success']:.3f}, "
                f"with a ceiling of {row['ceiling']:.3f}",
                highlight=False,
            )
    if "apart" not in document:
        return
    names = ("evidence_ignored", "evidence_ignored_by_chance", "control")
    ignored, by_chance, control = (document["apart"][name] for name in names)
    console.print(
        "not knowing: exact ceiling - blind ceiling; shortfall: blind ceiling - success\n"
        f"by move: {ignored + control:.3f} are lost over all rules, {ignored:.3f} of it by moves "
        "that are optimal for a player who has seen less of the rule (evidence ignored; "
        f"{by_chance:.3f} would be so by chance), {control:.3f} by others (control)",
        highlight=False,
    )


def print_lesions(document: dict[str, Any] | str) -> None:
    """What is lost when a memory is exchanged within an episode."""
    from rich.table import Table

    console = screen()
    if isinstance(document, str):
        console.print(f"lesions: none, {document}")
        return

    def cells(sides: dict[str, Any], place: int | None = None) -> list[str]:
        rows = [sides.get(side) for side in ("id", "ood")]
        losses = [row if place is None or row is None else row[place] for row in rows]
        return [f"{row['lost']:+.3f} {ends(row['interval'])}" if row else "" for row in losses]

    title = "Success lost by lesions of memory, once or from then on; 95% over rules"
    table = Table("memory", "after steps", "ID", "OOD", title=title)
    for kind in ("swapped on", "sham", "same tape", "swapped", "cleared"):
        for place, step in enumerate(document["steps"]):
            table.add_row(kind, str(step), *cells(document[kind], place))
        table.add_section()
    table.add_row("swapped on − sham", "mean", *cells(document["law"]))
    for kind, group in document.get("by_stratum", {}).items():
        if group["law"]:
            table.add_row("", f"  {kind}", *cells(group["law"]))
    console.print(table)
    where, decisive = "all rules", document["law"]
    if "by_stratum" in document:  # a reflex can be thrown off without any law being acted on
        where, decisive = "beyond-reflex rules", document["by_stratum"]["beyond-reflex"]["law"]
    verdicts = [
        f"{side.upper()} {'yes' if row['interval'][0] > 0 else 'not shown'}"
        for side, row in decisive.items()
    ]
    by_kind = document if where == "all rules" else document["by_stratum"]["beyond-reflex"]
    by_swap, by_sham = (
        sum(row["lost"] for rows in by_kind[kind].values() for row in rows)
        for kind in ("swapped on", "sham")
    )
    if verdicts and 0 < by_swap < 2 * by_sham:
        verdicts.append("its memories are of little use on another tape, so this says little")
    console.print(
        "swapped: for the memory of an undisturbed episode from another tape under another rule; "
        "sham: from that tape under the same rule; same tape: from its own under another rule\n"
        "owes success to memories of this rule, as an agent that acts on the law does (swapped on "
        f"− sham above zero, mean over steps, {where}): "
        f"{', '.join(verdicts) or 'too few rules to tell'}",
        highlight=False,
    )


def print_contexts(document: dict[str, Any]) -> None:
    """The scores of one agent by what it is given about the rule, and the gaps between them."""
    from rich.table import Table

    sides = [side for side in ("id", "ood") if side in document]
    heads = (f"{side.upper()} ({document[side]['rules']} rules)" for side in sides)
    title = f"{document['policy']} on {document['split']}, by what it is given"
    table = Table("", *heads, title=title)
    labels = {"ceiling": "exact ceiling", "rule": "rule", "evidence": "exact evidence"}
    for name in ("ceiling", "rule", "evidence", "none"):
        if name in document[sides[0]]:
            means = (f"{document[side][name]:.3f}" for side in sides)
            table.add_row(labels.get(name, "nothing"), *means)
    table.add_section()
    for name in document[sides[0]]["gaps"]:
        gaps = (document[side]["gaps"][name] for side in sides)
        table.add_row(name, *(f"{gap['mean']:+.3f} {ends(gap['interval'])}" for gap in gaps))
    screen().print(table)


def print_comparison(document: dict[str, Any]) -> None:
    """The comparison as a table, what is beyond reflex first."""
    from rich.table import Table

    from tapebench.exam.by_stratum import ABOUT

    columns = ["", "A", "B", "A - B", "95%", "rules won : lost"]
    over_seeds = document["interval_over"] == "seeds"
    if over_seeds:
        columns += ["95%, rules drawn too", "P(A > B)", "p (Holm)"]
    names = (
        f"{side.upper()} = {', '.join([document[side], *document['remarks'][side]])}"
        for side in ("a", "b")
    )
    table = Table(*columns, title="; ".join(names))

    def add(label: str, row: dict[str, Any] | None) -> None:
        if row is None:
            table.add_row(label, *("–" for _ in columns[1:]))
            return
        cells = [label, f"{row['a']:.3f}", f"{row['b']:.3f}", f"{row['difference']:+.3f}"]
        cells += [ends(row["interval"]), f"{row['rules_won']} : {row['rules_lost']}"]
        if over_seeds:
            wider = row.get("interval_over_rules_too")
            cells += [ends(wider) if wider else "", f"{row['improvement']:.2f}"]
            cells.append(f"{row['p_holm']:.2g}" if "p_holm" in row else "")
        table.add_row(*cells)

    for kind, sides in document["by_stratum"].items():
        for side, row in sides.items():
            add(f"{kind} {side.upper()}", row)
        table.add_section()
    for side in ("id", "ood"):
        if document[side]:
            add(f"all {side.upper()}", document[side])
    console = screen()
    console.print(table)
    console.print(f"interval over {document['interval_over']}, paired on the same exam")
    if document["no_strata"]:
        console.print(f"no success by stratum: {document['no_strata']}")
    else:
        console.print(ABOUT, highlight=False)
