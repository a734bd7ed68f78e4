"""The page of every agent: what it is, its options, how they were chosen, and what it reaches.

    python tools/agent_pages.py                    # write the pages again
    python tools/agent_pages.py --results runs     # and take the figures of these runs along

The text comes from the agent's module, options from its `Config`, the search from `docs/tuning`,
and the paper's figures from `tapebench/data/paper.json`. Ours come from the published results;
`docs/agents/results.json` has a row for every run that is shown and not among these. Beside a page
stand the learning curves of its table. A test fails when a page or a picture is not what this
writes.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tapebench import agents
from tapebench.base import files
from tapebench.exam.intervals import share_over_seeds
from tapebench.experiments.paper_tables import published_tables as tables_of_paper
from tapebench.experiments.variants import curve_panels
from tapebench.report.figures import Picture, lines
from tapebench.report.tables import Column
from tapebench.runs import tuning
from tapebench.runs.published import directory, piece_files
from tapebench.runs.tracks import get_track

ROOT = Path(__file__).parents[3]
"""The checkout that the documents are in."""
PAGES = ROOT / "docs" / "agents"
TUNING = ROOT / "docs" / "tuning"
FIGURES = PAGES / "results.json"
SEARCHES = (None, "sizes", "returns")
"""In the order in which they are made."""

SHOWN = 12
"""Trials of a search that a page shows."""

ASKED = ("agent", "config", "seed", "split", "train_on", "length", "horizon", "steps")


def main() -> None:
    """Collect figures if asked to, then write the pages."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--results", type=Path, help="a results directory to take figures from")
    options = parser.parse_args()
    # What was asked the same is the same run, whatever it is called: the newer row counts.
    collected = collect(options.results) if options.results is not None else ()
    rows = {spec_key(row): row for row in [*unpublished(), *collected]}
    for row in published_rows():
        rows.pop(spec_key(row), None)
    document = sorted(rows.values(), key=lambda row: str(row["run"]))
    text = ",\n ".join(json.dumps(rounded(row)) for row in document)
    files.write_text(FIGURES, f"[\n {text}\n]\n")
    for name in agents.NAMES:
        files.write_text(PAGES / f"{name}.md", agent_page(name))
        (PAGES / f"{name}.svg").unlink(missing_ok=True)
        if drawn := curves(name):
            files.write_bytes(PAGES / f"{name}.svg", drawn.svg)


def is_usual(spec: Mapping[str, Any]) -> bool:
    """Whether a run can be told by its agent's options and what the tables have columns for.

    Others were asked about a part of the rules, with cells hidden or for another reward; they stand
    with the experiments that they are of.
    """
    if spec["rules"] not in (None, spec["train_on"]):
        return False
    return (spec["mask"], spec["reward"], spec["success_bonus"]) == ([], "distance", 1.0)


def collect(root: Path) -> Iterable[dict[str, Any]]:
    """A row for every finished run that is usual."""
    for path in sorted(root.glob("*/*/*/*/summary.json")):
        spec = files.read_json(path.parent / "spec.json")
        if not is_usual(spec):
            continue
        summary = files.read_json(path)
        yield {
            "run": str(path.parent.relative_to(root)),
            "agent": spec["agent"],
            "config": spec["config"],
            "seed": spec["seed"],
            "split": spec["split"],
            "train_on": spec["train_on"],
            "length": spec["length"],
            "horizon": spec["horizon"],
            "steps": spec["steps"],
            **{
                side: {
                    key: value for key, value in summary[side].items() if isinstance(value, float)
                }
                for side in ("id", "ood")
                if side in summary
            },
            "curve": {
                name: [round(value, 4) for value in values]
                for name, values in summary["curve"].items()
            },
        }


def rounded(row: dict[str, Any]) -> dict[str, Any]:
    """A row as it is kept in `results.json`."""
    return row | {
        side: {metric: round(value, 5) for metric, value in row[side].items()}
        for side in ("id", "ood")
        if side in row
    }


def spec_key(row: dict[str, Any]) -> str:
    """What a row is about, as text."""
    return json.dumps([row[key] for key in ASKED], sort_keys=True)


def unpublished() -> list[dict[str, Any]]:
    """The rows of runs that are not among the published results."""
    return json.loads(FIGURES.read_text())


@cache
def published_rows() -> tuple[dict[str, Any], ...]:
    """The rows of those that are. What was asked twice counts once: a track's own runs come before
    those of its experiments."""
    rows: dict[str, dict[str, Any]] = {}
    for row in collect(directory()) if piece_files() else ():
        rows.setdefault(spec_key(row), row)
    return tuple(rows.values())


def agent_page(agent: str) -> str:
    """The text of one page."""
    module = import_module(f"tapebench.agents.{agent.replace('-', '_')}")
    title, _, body = inspect.cleandoc(module.__doc__ or "").partition("\n\n")
    parts = [
        f"# `{agent}`",
        " ".join(title.split()),
        body,
        "## Options",
        "Change any of them by `tape train " + agent + " --set NAME=VALUE`.",
        options_table(module.Config),
        "## What training reports",
        "In the metrics of a run, for every chunk, and with `--log`.",
        markdown_table(
            ("metric", "meaning"),
            [(f"`{name}`", meaning) for name, meaning in sorted(module.Config.METRICS.items())],
        ),
        "## How they were chosen",
        *tuning_lines(agent),
        "## Results",
        *result_lines(agent),
    ]
    return "\n\n".join(part.rstrip() for part in parts if part) + "\n"


def options_table(config: type[Any]) -> str:
    """Name, default and meaning of every field."""
    meaning = meanings(config)
    rows = [
        (f"`{entry.name}`", f"`{entry.default}`", meaning[entry.name]) for entry in fields(config)
    ]
    return markdown_table(("option", "default", "meaning"), rows)


def meanings(config: type[Any]) -> dict[str, str]:
    """The docstring behind every field of a config and of those that it inherits from."""
    texts: dict[str, str] = {}
    for kind in reversed(config.__mro__[:-1]):
        (tree,) = ast.parse(inspect.cleandoc(inspect.getsource(kind))).body
        assert isinstance(tree, ast.ClassDef)
        for field, text in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                assert isinstance(field.target, ast.Name)
                texts[field.target.id] = " ".join(ast.literal_eval(text.value).split())
    return texts


def tuning_lines(agent: str) -> Iterable[str]:
    """What the search of each network found."""
    notes = TUNING / f"{agent}.md"
    yield notes.read_text() if notes.is_file() else ""
    yield from halving_lines(agent)
    every = [json.loads(path.read_text()) for path in TUNING.glob("*.json")]
    ours = [search for search in every if search["agent"] == agent]
    for search in sorted(
        ours, key=lambda search: (search["network"], SEARCHES.index(search["then"]))
    ):
        network = search["network"]
        which = f", {search['then']}" if search["then"] else ""
        first = "the best so far" if search["then"] else "the default when the search began"
        yield (
            f"An earlier search, network `{network}`{which}: {search['steps']:,} steps at 32 "
            f"cells, {search['seeds']} seeds, trained on one side of the split `tuning` and judged "
            "by success on the other. No rule held out in `fps30` or `matched30` takes part. "
            f"The first row is {first}."
        )
        trials = sorted(search["trials"], key=lambda row: row["trial"])
        names = list(search["space"])
        rows = [
            (
                *(f"`{row['options'].get(name, search['defaults'][name])}`" for name in names),
                f"{np.mean(row['training']):.3f}",
                f"{np.mean(row['validation']):.3f}",
            )
            for row in trials
            if row["validation"]
        ]
        yield markdown_table((*(f"`{name}`" for name in names), "trained on", "validation"), rows)


def halving_lines(agent: str) -> Iterable[str]:
    """What the searches by successive halving have found so far."""
    for path in sorted((TUNING / "core").glob("*.json")):
        document = json.loads(path.read_text())
        if document["agent"] != agent:
            continue
        search = tuning.from_document(document)
        options, network = search.options(), search.fixed["network"]
        planned, made = tuning.num_runs(len(options)), sum(map(len, search.rows.values()))
        missing = f" **Not finished**: {planned - made} of {planned} runs are still to come."
        yield (
            f"Network `{network}`: `python tools/tune.py {agent} --network {network}`, successive "
            f"halving on the part `folds-tuning` at 9 cells and 4 steps, {search.steps:,} steps a "
            f"run, {len(options)} trials, {document['seconds'] / 3600:.1f} core-hours. Success on "
            "rules held out, beyond reflex and all, and on those trained on: means over seeds, "
            "each with another piece held out, so rows of as many seeds are alike in what they "
            "were asked." + (missing if made < planned else "")
        )
        most = {
            trial: max(seeds for seeds in tuning.SEEDS if seeds <= len(rows))
            for trial, rows in search.rows.items()
            if len(rows) >= tuning.SEEDS[0]
        }
        names = list(search.space)
        usual = vars(agents.configure(agent, **search.fixed))
        order = sorted(
            most, key=lambda trial: (-most[trial], search.order(most[trial]).index(trial))
        )
        rows = [
            (
                *(f"`{options[trial].get(name, usual[name])}`" for name in names),
                most[trial],
                *(
                    f"{np.mean([row[score] for row in search.rows[trial]]):.3f}"
                    for score in (tuning.STRATUM, "validation", "training")
                ),
            )
            for trial in order[:SHOWN]
        ]
        heads = (
            *(f"`{name}`" for name in names),
            "seeds",
            "beyond reflex",
            "held out",
            "trained on",
        )
        yield markdown_table(heads, rows)
        if len(order) > SHOWN:
            yield f"The best {SHOWN} of {len(order)}; the document has them all."


def result_lines(agent: str) -> Iterable[str]:
    """Our figures and the paper's, learning curves, then fixed rules."""
    paper = tables_of_paper()["main"].rows.get(agent)
    rows = [
        (
            options,
            split,
            f"{steps:,}",
            len(runs),
            *(interval(run[side]["success"] for run in runs) for side in ("id", "ood")),
        )
        for (options, split, steps), runs in across(agent).items()
    ]
    if paper:
        success = (printed(paper[f"{side}.success"]) for side in ("id", "ood"))
        rows.append(("the paper", "its own", "200,000", paper["seeds"], *success))
    if rows:
        yield f"`tape train {agent} --seeds 5`, on `fps30` at L = H = 32 unless said otherwise."
        header = ("options", "split", "steps", "seeds", "ID success", "OOD success")
        yield markdown_table(header, rows)
    else:
        yield "No figures yet."
    if drawn := curves(agent):
        yield f"![{drawn.title}]({agent}.svg)"
        yield drawn.caption
    fixed: dict[Any, list[float]] = defaultdict(list)
    for options, row in rows_of(agent):
        if isinstance(row["train_on"], list) and len(row["train_on"]) == 1:
            side = next(row[side] for side in ("id", "ood") if side in row)
            where = row["train_on"][0], options, row["length"], row["steps"]
            fixed[where].append(side["success"])
    if fixed:
        yield "Trained and examined on one rule:"
        yield markdown_table(
            ("rule", "options", "cells", "steps", "seeds", "success"),
            [
                (rule, options, length, f"{steps:,}", len(values), interval(values))
                for (rule, options, length, steps), values in sorted(fixed.items())
            ],
        )


def across(agent: str) -> dict[tuple[str, str, int], list[dict[str, Any]]]:
    """Runs that learned from all training rules of a split, by options, split and steps."""
    groups: dict[Any, list[Any]] = defaultdict(list)
    for options, row in rows_of(agent):
        is_full_size = (row["length"], row["horizon"]) == (32, 32)
        if row["train_on"] == "train" and is_full_size:
            groups[options, row["split"], row["steps"]].append(row)
    return dict(sorted(groups.items()))


def rows_of(agent: str) -> Iterable[tuple[str, dict[str, Any]]]:
    """Every run of an agent, with its options as differences from the defaults of today."""
    now = asdict(agents.configure(agent))
    for row in [*unpublished(), *published_rows()]:
        if row["agent"] == agent:
            config = agents.read_config(agent, row["config"]) | (
                {"total_steps": now["total_steps"]} if "total_steps" in now else {}
            )
            if config.keys() != now.keys():
                raise ValueError(
                    f"{row['run']} has other options than {agent} today: say in it which"
                )
            changed = [f"{key}={config[key]}" for key, value in now.items() if config[key] != value]
            yield " ".join(changed) or "defaults", row


def curves(agent: str) -> Picture | None:
    """Success in the course of training on the split and for the steps of the track `full`.

    Of published runs alone: settings of yesterday stay in the table, and would crowd this.
    """
    track = get_track("full")
    today = {spec_key(row) for row in published_rows()}
    shown = {
        options: [run["curve"] for run in runs]
        for (options, split, steps), runs in across(agent).items()
        if (split, steps) == (track.split, track.steps)
        and all(spec_key(run) in today for run in runs)
    }
    if not shown:
        return None
    by_name = {short(name, shown): runs for name, runs in shown.items()}
    panels = curve_panels(track.exam(), directory(), by_name)
    return Picture(
        agent,
        f"Learning curves of {agent}",
        "Strict success at every evaluation: mean over the seeds of the table, with a band of the "
        "95% interval; of the settings whose runs come with the package. Dotted: references, "
        "which need no training, and the exact ceiling.",
        lines(panels, x="environment steps", y="strict success"),
    )


def short(options: str, others: Iterable[str]) -> str:
    """The first of some options, and those that tell it from others that begin alike."""
    words = options.split()
    if len(words) < 3:
        return ", ".join(words)
    alike = [set(other.split()) for other in others if other.split()[0] == words[0]]
    return ", ".join(
        word
        for index, word in enumerate(words)
        if index == 0 or not all(word in other for other in alike)
    )


def interval(values: Iterable[float]) -> str:
    """A share: mean and 95% interval over seeds."""
    column, around = Column("success"), share_over_seeds([*values])
    return f"{column.number(around.mean)} {column.ends(around)}".strip()


def printed(value: list[float]) -> str:
    """A figure of the paper with its interval."""
    mean, low, high = value
    return f"{mean:.3f} [{low:.3f}, {high:.3f}]"


def markdown_table(header: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    """A table in Markdown."""
    lines = [[*map(str, header)], *([*map(str, row)] for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
