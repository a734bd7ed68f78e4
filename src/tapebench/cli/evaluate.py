"""`tape evaluate|compare|unseen|verify`: sit an exam, compare those who did, replay a result."""

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
    progress,
    screen,
)

if TYPE_CHECKING:
    from tapebench.exam.seating import Conditions


@dataclass(frozen=True)
class ExamOptions:
    """What is asked."""

    split: str = "fps30"
    """Split whose two sides are asked about."""
    exam: str = "standard"
    """standard, or fresh:SALT for another exam of the same kind."""
    episodes: int = 20
    """Start tapes for every rule."""
    trials: int = 1
    """Times in a row that the same rule is met with memory kept."""
    rules: str = "all"
    """all, train, test, or rules like 0,30,110."""
    length: int = 32
    """Cells on the ring."""
    horizon: int | None = None
    """Steps at most; by default as many as there are cells."""
    goal: str = "zeros"
    """zeros, random, or the cells of a tape like 0110..."""
    observe_goal: bool = False
    """Show the goal's cells after t/H."""
    noise: float = 0.0
    """Probability that a cell flips after each update."""
    mask: str = ""
    """Cells hidden from the observation, like 0,4."""

    def make(self) -> Any:
        from tapebench.exam.exam import make_exam

        try:
            mask = [int(cell) for cell in self.mask.split(",")] if self.mask else None
        except ValueError:
            raise ValueError(f"unknown mask {self.mask!r}: name cells like 0,4") from None
        return make_exam(
            split=self.split,
            exam=self.exam,
            episodes=self.episodes,
            trials=self.trials,
            rules=None if self.rules == "all" else parse_rules(self.rules),
            length=self.length,
            horizon=self.length if self.horizon is None else self.horizon,
            goal=self.goal,
            observe_goal=self.observe_goal,
            noise=self.noise,
            mask=mask,
        )


@dataclass(frozen=True)
class Evaluate:
    """Have a policy sit the exam, and read its score beside baselines, planner and ceiling."""

    policy: tyro.conf.Positional[str]
    """A name (random, flip-ones, greedy, mpc, beam, optimal, bayes, bayes-train, belief-planner,
    belief-planner-train), a directory of runs, or package.module:factory for an agent of yours."""
    asked: tyro.conf.OmitArgPrefixes[ExamOptions] = field(default_factory=ExamOptions)
    seeds: int = 1
    """Repeat with so many seeds of the policy's own draws."""
    lesions: bool = False
    """Also swap and clear its memory within episodes: what it loses it owes to knowing this law."""
    subprocess: bool = False
    """Run package.module:factory in a process of its own."""
    deadline: float = 60.0
    """Seconds for one call of an agent in its own process."""
    traceback: bool = False
    """If the agent fails, show the traceback of its code."""
    bundle: Path | None = None
    """Write every action to this file, for others to verify."""
    out: Path | None = None
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
        if self.bundle is not None and self.seeds > 1:
            raise ValueError("a bundle holds one run: leave out --seeds or --bundle")
        exam = self.asked.make()
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
                    lesions=self.lesions,
                    progress=show,
                )
                document = outcome.score
        except AgentError as failure:
            if self.traceback and failure.details:
                print(failure.details, file=sys.stderr, end="")
            rows = getattr(failure, "rows", None)
            if rows is None:
                raise ValueError(f"{failure} (no episode was finished)") from None
            kept = free_name(Path("unfinished.parquet"))
            try:
                files.write_table(kept, rows)
            except ValueError as error:
                raise ValueError(f"{failure} (finished episodes are lost: {error})") from None
            count = len(rows["success"])
            raise ValueError(f"{failure} ({count} finished episodes are kept in {kept})") from None
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


@dataclass(frozen=True)
class Compare:
    """Have two policies sit the same exam: where do they differ, and by how much?"""

    a: tyro.conf.Positional[str]
    """A policy as for tape evaluate, or the file of a bundle."""
    b: tyro.conf.Positional[str]
    """Another."""
    asked: tyro.conf.OmitArgPrefixes[ExamOptions] = field(default_factory=ExamOptions)
    seeds: int = 1
    """Repeat with so many seeds of the policies' own draws."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        from tapebench.runs import compare

        exam = self.asked.make()
        name_damage_in(self.a, self.b)
        with progress() as show:
            sides = [
                compare.evaluate_or_load(who, exam, seeds=self.seeds, progress=show)
                for who in (self.a, self.b)
            ]
        document = compare.compare(*sides)
        if self.json:
            print(json.dumps(document))
        else:
            print_comparison(document)


@dataclass(frozen=True)
class Unseen:
    """What does it cost an agent that a law was not trained on? Each rule is held against itself.

    A drop from seen to held-out rules compares different rules. Train the same agent with two
    splits, two seeds or more of each, and have every seed sit the exam of its split: this compares
    success on a rule where it was trained on and where it was held out.
    """

    results: tyro.conf.Positional[tuple[str, ...]] = ()
    """Bundles and directories of runs, of two splits or more."""
    as_: Annotated[str | None, tyro.conf.arg(name="as")] = None
    """Take all of them for seeds of one agent, under this name, whatever they call themselves."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        from tapebench.runs import compare

        if not self.results:
            raise ValueError(
                "name results of one agent trained with two splits, two seeds or more of each: "
                "bundles, like tape unseen fps30-*.tape matched30-*.tape, or directories of runs, "
                "like tape unseen runs/main/dqn/fps30 runs/main/dqn/matched30"
            )
        name_damage_in(*self.results)
        found = []
        for path in self.results:
            if not Path(path).exists():
                raise ValueError(f"there is no {path}: name bundles or directories of runs")
            found.append(compare.load_result(Path(path)))
        document = compare.unseen(found, self.as_)
        if self.json:
            print(json.dumps(document))
        else:
            print_unseen(document)


@dataclass(frozen=True)
class Verify:
    """Replay every action of a result bundle: does it prove what it claims?

    Replay proves outcomes. The evaluator gives an agent observations only, but that a bundle was
    made so is declared: anybody can write down the best actions.
    """

    bundle: tyro.conf.Positional[Path]
    """The file."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        from tapebench.exam.bundle import verify

        found = verify(self.bundle)
        success, exam = found.episodes.success, found.exam
        document = {
            "verified": True,
            "policy": found.about["policy"],
            "sees_rule": found.about["sees_rule"],
            "conditions": found.conditions.as_dict(),
            "split": exam.split,
            "exam": exam.name,
            "exam_hash": exam.hash,
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
            f"{exam.split}, {len(exam.rules)} rules, L = {exam.task.length}, "
            f"H = {exam.task.horizon}; success {shown}"
        )
        print("Outcomes: proved, every action was replayed.")
        sight = "none, it saw the rule" if document["sees_rule"] else "declared, not proved"
        print(f"Blindness: {sight}.")
        print(f"Made: {describe(found.conditions)}, as the bundle says.")


def describe(conditions: Conditions) -> str:
    """How a result was made, in a few words."""
    rows = {
        "independent": "rows independent",
        "not checked": "rows not checked",
    }.get(conditions.rows, conditions.rows)
    isolated = ["not isolated"] if "not isolated" in conditions.remarks else []
    return ", ".join([conditions.made, *isolated, rows, f"seating {conditions.seating}"])


def print_score(document: dict[str, Any]) -> None:
    """The score as tables: the policy beside its lines, then by type, then by trial."""
    from rich.table import Table

    from tapebench.exam.seating import Conditions

    console = screen()
    title = (
        f"Strict success on {document['split']}, L = {document['length']}, "
        f"H = {document['horizon']}, {document['exam']} exam"
    )
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
    table.add_section()
    table.add_row(f"more of {document['policy']}")
    add("", "ON: % of mpc", of("on"), digits=1)
    add("", "share of the ceiling", of("normalised"))
    add("", "on solvable rules", of("success_on_solvable"))
    add("", "macro over types", of("macro_success"))
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
    if conditions.made != "by us":
        console.print(f"made {describe(conditions)}")
    if document.get("drop_composition") is not None:
        console.print(
            f"of the drop {document['drop']:+.3f}, {document['drop_composition']:+.3f} comes from "
            f"which rules are held out and {document['drop_rest']:+.3f} is left for generalisation"
        )
    if "apart" in document:
        print_apart(document["apart"])
    if "lesions" in document:
        print_lesions(document["lesions"])
    kinds = Table("type", "subset", "rules", "success", "ceiling", "return", title="By type")
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


def print_apart(document: dict[str, Any]) -> None:
    """A score taken apart against exact play, what is beyond reflex first."""
    from rich.table import Table

    columns = ("ceiling", "blind_ceiling", "success", "not_knowing", "shortfall")
    headers = (name.replace("_", "\n") for name in columns)
    table = Table("rules", "", *headers, title="Taken apart against exact play")
    for kind in ("beyond-reflex", "reflex", "impossible", "all"):
        for side in ("id", "ood"):
            row = document.get(side, {}).get(kind)
            if row:
                figures = (f"{row[name]:.3f}" for name in columns)
                table.add_row(kind, f"{row['rules']} {side.upper()}", *figures)
    console = screen()
    console.print(table)
    ignored, control = document["evidence_ignored"], document["control"]
    console.print(
        f"by move: {ignored + control:.3f} are lost, {ignored:.3f} of it by moves that are optimal "
        f"for who has seen less of the law (evidence ignored), {control:.3f} by others (control)"
    )


def print_lesions(document: dict[str, Any] | str) -> None:
    """What is lost when a memory is exchanged within an episode."""
    from rich.table import Table

    if isinstance(document, str):
        screen().print(f"lesions: none, {document}")
        return
    table = Table("before step", "memory", "ID", "OOD", title="Success lost by lesions of memory")
    for kind, sides in document.items():
        for place in range(len(next(iter(sides.values())))):
            row = {side: found[place] for side, found in sides.items()}
            figures = (
                f"{row[side]['lost']:+.3f} {ends(row[side]['interval'])}" if side in row else ""
                for side in ("id", "ood")
            )
            table.add_row(str(place + 2), kind, *figures)
    screen().print(table)


def print_comparison(document: dict[str, Any]) -> None:
    """The comparison as a table."""
    from rich.table import Table

    columns = ["", "A", "B", "A - B", "95%", "rules won : lost"]
    over_seeds = document["interval_over"] == "seeds"
    if over_seeds:
        columns += ["95%, rules drawn too", "P(A > B)", "p (Holm)"]
    names = (
        f"{side.upper()} = {', '.join([document[side], *document['remarks'][side]])}"
        for side in ("a", "b")
    )
    table = Table(*columns, title="; ".join(names))
    for subset in ("id", "ood"):
        row = document[subset]
        if not row:
            continue
        cells = [subset.upper(), f"{row['a']:.3f}", f"{row['b']:.3f}", f"{row['difference']:+.3f}"]
        cells += [ends(row["interval"]), f"{row['rules_won']} : {row['rules_lost']}"]
        if over_seeds:
            wider = row.get("interval_over_rules_too")
            cells += [ends(wider) if wider else "", f"{row['improvement']:.2f}"]
            cells.append(f"{row['p_holm']:.2g}")
        table.add_row(*cells)
    console = screen()
    console.print(table)
    console.print(f"interval over {document['interval_over']}, paired on the same exam")


def print_unseen(document: dict[str, Any]) -> None:
    """What an unseen law costs, as a table and a sentence."""
    from rich.table import Table

    def shown(interval: dict[str, float] | None) -> str:
        if interval is None:
            return ""
        return f"{interval['mean']:+.3f} {ends([interval['low'], interval['high']])}"

    title = f"{', '.join([*document['names'], *document['remarks']])}, {document['exam']} exam"
    table = Table("split", "seeds", "ID", "OOD", "drop", "cost of being held out", title=title)
    for split, row in document["splits"].items():
        means = (f"{row[side]:.3f}" for side in ("id", "ood"))
        table.add_row(split, str(row["seeds"]), *means, shown(row["drop"]), shown(row["cost"]))
    console = screen()
    console.print(table)
    console.print(
        f"not to have been trained on a rule costs {shown(document['cost'])} of success "
        f"(95% over {document['interval_over']})"
    )
