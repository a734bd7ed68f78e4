"""`tape unseen`: what it costs an agent that a rule was not trained on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from tapebench.cli.console import ends, make_table, name_damage_in, screen


@dataclass(frozen=True)
class Unseen:
    """The cost of unseen: success lost on a rule because it was not trained on, paired by rule.

    A drop from seen to held-out rules compares different rules. Train the same agent with two
    splits, two seeds or more of each, and evaluate every seed on the exam of its split: this
    compares success on a rule when trained on it and when it was held out. Runs over folds, such
    as those of the tracks core and lite, are recognised: each rule is held out by one fold, and
    costs are shown by stratum, with the smallest cost that such runs could detect.

    For example:
      tape unseen runs/lite
      tape unseen fps30-*.tape matched30-*.tape
    """

    results: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[RESULTS ...]")
    ] = ()
    """Bundles and directories of runs, of two splits or more, or of folds."""
    as_: Annotated[str | None, tyro.conf.arg(metavar="NAME", name="as")] = None
    """Take all of them for seeds of one agent, under this name, whatever they call themselves."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        from tapebench.runs import compare, folds

        if not self.results:
            raise ValueError(
                "name results of one agent trained with two splits, two seeds or more of each: "
                "bundles, like tape unseen fps30-*.tape matched30-*.tape, or directories of runs, "
                "like tape unseen runs/main/dqn/fps30 runs/main/dqn/matched30; or runs over folds, "
                "like tape unseen runs/lite"
            )
        name_damage_in(*self.results)
        paths = [Path(path) for path in self.results]
        for path in paths:
            if not path.exists():
                raise ValueError(f"there is no {path}: name bundles or directories of runs")
        if sets := folds.load(paths, self.as_):
            documents = [runs.as_dict() for runs in sets]
            if not any(document["cost"] for document in documents):
                known = ", ".join(dict.fromkeys(name for runs in sets for name in runs.trainings))
                raise ValueError(
                    "two folds or more are needed, with two seeds or more of each; there is only "
                    f"{known}"
                )
            if self.json:
                print(json.dumps({"folds": documents, "interval_over": "runs and rules"}))
            else:
                print_folds(documents)
            return
        document = compare.unseen([compare.load_result(path) for path in paths], self.as_)
        if self.json:
            print(json.dumps(document))
        else:
            print_unseen(document)


def print_unseen(document: dict[str, Any]) -> None:
    """What an unseen law costs, as a table and a sentence."""
    title = f"{', '.join([*document['names'], *document['remarks']])}, {document['exam']} exam"
    table = make_table("split", "seeds", "ID", "OOD", "drop", "cost of being held out", title=title)
    for split, row in document["splits"].items():
        means = (f"{row[side]:.3f}" for side in ("id", "ood"))
        table.add_row(
            split, str(row["seeds"]), *means, cost_text(row["drop"]), cost_text(row["cost"])
        )
    console = screen()
    console.print(table)
    console.print(
        f"not to have been trained on a rule costs {cost_text(document['cost'])} of success "
        f"(95% over {document['interval_over']})"
    )


def print_folds(documents: Sequence[dict[str, Any]]) -> None:
    """The cost of unseen over folds: a line for every agent and stratum, and what is missing."""
    from rich.table import Column

    console = screen()
    table = make_table(
        *(Column(name, no_wrap=True) for name in ("rules", "")),
        *(Column(name, justify="right") for name in ("seen", "unseen")),
        *("cost of unseen", Column("smallest\nto tell", justify="right")),
        Column("runs", justify="right"),
        title="Each rule trained on by some runs, held out by others",
    )
    for number, document in enumerate(documents):
        if number:
            table.add_section()
        name = "/".join(part for part in (document["experiment"], document["agent"]) if part)
        table.add_row(name)
        for stratum, row in document["cost"].items():
            means = (f"{row[side]['mean']:.3f}" for side in ("seen", "unseen"))
            figures = cost_text(row["cost"]), f"{row['smallest']:.3f}", str(row["runs"])
            table.add_row(f"  {stratum}", str(row["rules"]), *means, *figures)
    console.print(table)
    console.print(
        "95% intervals over runs and rules; a true cost of the smallest size would be told from "
        "none in four cases of five"
    )
    for document in documents:
        for key, what in (("missing", "no run"), ("single", "one seed alone")):
            if document[key]:
                which = ", ".join(document[key])
                console.print(
                    f"{document['agent']}: {what} of {which}, so rules held out there are left out"
                )


def cost_text(interval: dict[str, float] | None) -> str:
    """A cost with its interval."""
    if interval is None:
        return ""
    mean = round(interval["mean"], 3) + 0.0
    return f"{mean:+.3f} {ends([interval['low'], interval['high']])}"
