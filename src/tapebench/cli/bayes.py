"""`tape bayes`: what an ideal player reaches that is not told the rule."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from tapebench.cli.console import check_target, make_table, progress_bar, screen

if TYPE_CHECKING:
    import numpy as np

    from tapebench.tasks.splits import Split

PICTURES = (".png", ".svg", ".pdf")
"""How the file of a picture may end."""

MAX_MEMORYLESS = 12
"""Cells up to which a search for memoryless play ends within minutes."""

MAX_WEIGHTS = 64 * 1024
"""Bytes of a file of weights."""


@dataclass(frozen=True)
class Bayes:
    """The exact price of not knowing the rule: Bayes-optimal play by backward induction.

    The ideal player knows the prior and all that transitions have shown. It is printed next to the
    ceiling, for a player that knows the rule, and, with --memoryless, to the best policy found that
    never looks at what the rule does. Up to 16 cells.

    For example:
      tape bayes --length 8 --horizon 4 --alone --memoryless
      tape bayes --length 8 --heatmap cost.png
    """

    length: Annotated[int, tyro.conf.arg(metavar="CELLS")] = 8
    """Cells on the ring."""
    horizon: Annotated[int | None, tyro.conf.arg(metavar="STEPS")] = None
    """Steps at most; by default half as many as there are cells."""
    prior: Annotated[str, tyro.conf.arg(metavar="PRIOR")] = "all"
    """Which rules the player thinks possible: all, train (of --split), split (both of its sides),
    or a JSON file of integer weights by rule, like {"30": 1, "110": 2}."""
    split: Annotated[str, tyro.conf.arg(metavar="SPLIT")] = "fps30"
    """Split whose sides are reported, and that train refers to."""
    alone: bool = False
    """Also play for each group of rules alone: what bounds a player that plays for no others."""
    memoryless: bool = False
    """Also search for the best policy of tape and time alone; with --alone for each group too."""
    heatmap: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Draw the cost of not knowing over 3 to --length cells and as many steps, to this file."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        if self.heatmap is not None:
            check_target(self.heatmap)
            if self.heatmap.suffix not in PICTURES:
                raise ValueError(f"cannot draw {self.heatmap}: name it {', '.join(PICTURES)}")
        if self.memoryless and self.length > MAX_MEMORYLESS:
            raise ValueError(
                f"--memoryless searches up to {MAX_MEMORYLESS} cells, not {self.length}: beyond "
                "that it takes hours"
            )
        document = self.document()
        if self.json:
            print(json.dumps(document))
        else:
            _print(document)
        if self.heatmap is not None:
            self._draw(self.heatmap)

    def document(self) -> dict[str, Any]:
        """All that is reported."""
        import numpy as np

        from tapebench.physics import bayes
        from tapebench.physics.strata import STRATA, measure
        from tapebench.tasks import splits
        from tapebench.tasks.task import make_task

        split = splits.load(self.split)
        length = self.length
        horizon = max(1, length // 2) if self.horizon is None else self.horizon
        make_task(length=length, horizon=horizon, split=split)
        bayes.make_ring(length)
        prior = self._prior(split)
        title = f"Bayes-optimal play, L = {length}, H = {horizon}"
        with progress_bar(title, horizon) as advance:
            solution = bayes.solve(prior, length, horizon, progress=advance)
        rules = split.universe.rules
        blind = bayes.success_by_rule(solution, rules)
        measured = measure(rules, length, horizon)
        ceiling = np.array([measured[rule].ceiling for rule in rules])
        kinds = {rule: row.stratum for rule, row in measured.items()}
        chance = prior / prior.sum()
        groups = {"train": split.train, "test": split.test}
        groups |= {kind: tuple(rule for rule in rules if kinds[rule] == kind) for kind in STRATA}
        document: dict[str, Any] = {
            "length": length,
            "horizon": horizon,
            "prior": self.prior,
            "split": split.name,
            "blind_ceiling": solution.blind_ceiling,
            "ceiling": float(chance @ ceiling),
            "groups": {
                name: {
                    "rules": len(members),
                    "blind": float(blind[list(members)].mean()),
                    "ceiling": float(ceiling[list(members)].mean()),
                }
                for name, members in groups.items()
                if members
            },
        }
        if self.memoryless:
            document["memoryless_at_least"] = _search(prior, length, horizon, "memoryless play")
        if self.alone:
            for name, group in document["groups"].items():
                own = bayes.parse_prior(groups[name])
                with progress_bar(f"{name} alone", horizon) as advance:
                    solution = bayes.solve(own, length, horizon, progress=advance)
                group["blind_alone"] = solution.blind_ceiling
                if self.memoryless:
                    least = _search(own, length, horizon, f"memoryless play, {name} alone")
                    group["memoryless_at_least"] = least
        if self.prior == "train":
            document["missing_support"] = _missing_support(split, length, horizon)
        document["rules"] = {
            str(rule): {
                "blind": float(blind[rule]),
                "ceiling": float(ceiling[rule]),
                "stratum": kinds[rule],
            }
            for rule in rules
        }
        return document

    def _prior(self, split: Split) -> np.ndarray:
        from tapebench.physics import bayes

        if self.prior == "all":
            return bayes.parse_prior(split.universe.rules)
        if self.prior == "train":
            return bayes.parse_prior(split.train)
        if self.prior == "split":
            return bayes.parse_prior((*split.train, *split.test))
        return bayes.parse_prior(_read_weights(Path(self.prior)))

    def _draw(self, target: Path) -> None:
        from tapebench.base import files
        from tapebench.physics import bayes
        from tapebench.report.figures import heat
        from tapebench.tasks import splits

        prior = self._prior(splits.load(self.split))
        chance = prior / prior.sum()
        rules = splits.load(self.split).universe.rules
        cells: dict[tuple[int, int], float] = {}
        with progress_bar("heat map", self.length - 2) as advance:
            for length in range(3, self.length + 1):
                solution = bayes.solve(prior, length, length)
                for horizon in range(1, length + 1):
                    ceiling = chance @ bayes.ceilings(rules, length, horizon)
                    cells[length, horizon] = float(ceiling) - solution.blind_ceiling_in(horizon)
                advance(length)
        sizes, horizons = range(3, self.length + 1), range(1, self.length + 1)
        drawn = heat(
            [[cells.get((length, steps), float("nan")) for steps in horizons] for length in sizes],
            [str(length) for length in sizes],
            [str(steps) for steps in horizons],
            x="horizon H (steps)",
            y="length L (cells)",
            label="success lost: ceiling − blind ceiling",
            title="What not knowing the rule costs an ideal player",
            digits=3,
        )
        files.write_bytes(target, drawn.render(target.suffix.lstrip(".")))
        screen(stderr=True).print(f"wrote {target}")


def _search(prior: np.ndarray, length: int, horizon: int, title: str) -> float:
    """What the best memoryless policy found reaches."""
    from tapebench.physics import memoryless

    with progress_bar(title, memoryless.KICKS) as advance:
        return memoryless.search(prior, length, horizon, progress=advance).value


def _missing_support(split: Split, length: int, horizon: int) -> dict[str, dict[str, Any]]:
    """What play for the training rules reaches on the held-out ones, by the choice among ties.

    In `train first` the held-out rules have a weight too small to matter but where the training
    rules leave a tie: no sum of theirs is as large as one training rule.
    """
    from tapebench.physics import bayes

    heavy = len(split.test) + 1
    priors: dict[str, Any] = {
        "only train": split.train,
        "train first": dict.fromkeys(split.train, heavy) | dict.fromkeys(split.test, 1),
        "all alike": split.universe.rules,
    }
    document = {}
    for name, weights in priors.items():
        solution = bayes.solve(bayes.parse_prior(weights), length, horizon)
        by_ties = {
            ties: bayes.success_by_rule(solution, split.test, ties).tolist() for ties in bayes.TIES
        }
        document[name] = {
            "held_out": {ties: sum(values) / len(values) for ties, values in by_ties.items()},
            "rules": {
                str(rule): dict(zip(by_ties, values, strict=True))
                for rule, *values in zip(split.test, *by_ties.values(), strict=True)
            },
        }
    return document


def _read_weights(path: Path) -> dict[int, int]:
    """Integer weights by rule from a JSON file that may come from others."""
    try:
        if path.stat().st_size > MAX_WEIGHTS:
            raise ValueError(f"{path} is too large for a file of weights")
        document = json.loads(path.read_text())
    except OSError as error:
        raise ValueError(
            "--prior is all, train, split or a file of weights; "
            f"cannot read {path}: {error.strerror}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no file of weights: {error}") from None
    if not isinstance(document, dict) or not all(
        key.isascii() and key.isdigit() for key in document
    ):
        raise ValueError(f'{path} must be a JSON object of weights by rule, like {{"30": 1}}')
    weights = {int(rule): weight for rule, weight in document.items()}
    if len(weights) < len(document):
        raise ValueError(f"{path} names a rule twice")
    return weights


def _print(document: dict[str, Any]) -> None:
    title = f"What can be reached, L = {document['length']}, H = {document['horizon']}"
    table = make_table("rules", "number", "rule unknown", "rule known", "cost", title=title)

    def add(name: str, number: int | str, blind: float, ceiling: float) -> None:
        figures = blind, ceiling, ceiling - blind
        table.add_row(name, str(number), *(f"{figure:.6f}" for figure in figures))

    def label(name: str) -> str:
        sides = {
            "train": f"seen by {document['split']}",
            "test": f"held out by {document['split']}",
        }
        return sides.get(name, name)

    add(f"prior ({document['prior']})", "", document["blind_ceiling"], document["ceiling"])
    groups = document["groups"]
    for name, group in groups.items():
        add(label(name), group["rules"], group["blind"], group["ceiling"])
    console = screen()
    console.print(table)
    if any("blind_alone" in group for group in groups.values()):
        title = "The same for players that play for these rules alone"
        alone = make_table("rules", "number", "memoryless, at least", "rule unknown", title=title)
        for name, group in groups.items():
            least = group.get("memoryless_at_least")
            cell = "–" if least is None else f"{least:.6f}"
            alone.add_row(label(name), str(group["rules"]), cell, f"{group['blind_alone']:.6f}")
        console.print(alone)
    if "memoryless_at_least" in document:
        least = document["memoryless_at_least"]
        worth = document["blind_ceiling"] - least
        console.print(
            f"tape and time alone reach at least {least:.6f}: to an ideal player evidence is worth "
            f"{worth:.6f} at most"
        )
    if "missing_support" in document:
        _print_support(document["missing_support"])


def _print_support(document: dict[str, dict[str, Any]]) -> None:
    title = (
        "What missing support costs: success on held-out rules, by the choice among tied moves "
        "(worst and best: as suits each rule least and most, which no one player can)"
    )
    table = make_table("prior", "worst", "uniform", "best", title=title)
    for name, row in document.items():
        reached = row["held_out"]
        table.add_row(name, *(f"{reached[ties]:.6f}" for ties in ("worst", "uniform", "best")))
    screen().print(table)
