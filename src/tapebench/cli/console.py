"""What the subcommands share: reading arguments, showing progress, printing results."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import cache
from inspect import isclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Column, Table

    from tapebench.physics.family import Family
    from tapebench.runs.results import Damage, Results


@cache
def hide_idle_defaults(options: type) -> None:
    """Leave defaults out of the help that say nothing: none, empty, and a flag that is off.

    tyro takes this for one argument at a time, so it is written into the annotations.
    """
    import tyro

    hint = tyro.conf.arg(help_behavior_hint=default_hint)
    for name, annotation in get_type_hints(options, include_extras=True).items():
        groups = [*option_groups(annotation)]
        for group in groups:
            hide_idle_defaults(group)
        if not groups:
            options.__annotations__[name] = Annotated[annotation, hint]


def option_groups(annotation: Any) -> Iterator[type]:
    """The dataclasses within a type: options that belong together, or subcommands."""
    if isclass(annotation) and is_dataclass(annotation):
        yield annotation
    for part in get_args(annotation):
        yield from option_groups(part)


def default_hint(default: str) -> str:
    """What follows the help of an argument with this default."""
    is_idle = default in ("", "None", "False") or default.startswith("MISSING")
    return "" if is_idle else f"(default: {default})"


def report(
    document: dict[str, Any],
    as_json: bool,
    title: str | None,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
) -> None:
    """Print figures as one JSON document or as a table."""
    if as_json:
        print(json.dumps(document))
        return
    table = make_table(*columns, title=title)
    for row in rows:
        table.add_row(*row)
    screen().print(table)


def make_table(
    *columns: Column | str, title: str | None = None, caption: str | None = None
) -> Table:
    """A table in the style of all of them, which spends little of 80 columns on lines."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    return Table(
        *columns,
        title=title,
        caption=caption,
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        title_justify="left",
        caption_justify="left",
    )


def screen(stderr: bool = False) -> Console:
    """Where tables are printed. Text is shown as it is: brackets in data are no markup."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, emoji=False)


def open_results(root: Path) -> Results:
    """The finished runs under a directory; those that do not count are named on standard error."""
    from tapebench.runs import results

    stored = results.load_results(root)
    name_damage(stored.left_out)
    return stored


def name_damage(damaged: Iterable[Damage]) -> None:
    """A line on standard error for each run that is left out, with what makes it again."""
    console = screen(stderr=True)
    for damage in damaged:
        console.print(f"tape: {damage}", style="red", highlight=False, soft_wrap=True)


def name_damage_in(*names: str) -> None:
    """`name_damage` of what is a directory of runs; a run that is named itself is refused later."""
    from tapebench.base import files
    from tapebench.runs import results, store

    for name in names:
        if Path(name).is_dir() and not store.has_marker(name):
            name_damage(results.load_results(name).left_out)
    warnings.simplefilter("ignore", files.DamageWarning)  # they have been named


def error_line(error: Exception) -> str:
    """What an error says: of one of the system's the file and the reason."""
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
    return str(error)


def parse_rule(text: str, family: Family) -> int:
    """A rule by number or label."""
    return (
        family.check_rule(int(text)) if re.fullmatch(r"-?[0-9]{1,20}", text) else family.parse(text)
    )


def separate_rules(text: str) -> list[str]:
    """The rules between commas; those in {n,2,2} separate nothing."""
    return re.split(r",(?![^{]*\})", text)


def parse_rules(text: str, family: Family | None = None) -> str | list[int]:
    """`all`, `train` and `test` as they are; else rules separated by commas, of a family by label.

    Without a family they are elementary rules.
    """
    if text in ("all", "train", "test"):
        return text
    if family is not None and family.name != "elementary":
        return [family.parse(part) for part in separate_rules(text)]
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(
            f"unknown rules {text!r}: use all, train, test, or rules like 0,30,110"
        ) from None


def parse_size(
    family: Family, split: str, length: int | None, shape: str | None, horizon: int | None
) -> tuple[int | None, Any, int]:
    """Length, shape and horizon as they are asked for, or else as the split has them.

    Rules are drawn for one size and horizon, and their splits are for no other. Elementary rules
    have 32 cells and as many steps as cells.
    """
    from tapebench.tasks import splits
    from tapebench.tasks.task import parse_space

    universe = splits.load(split).universe
    is_drawn = universe.horizon is not None and universe.family == family
    if is_drawn and length is None and shape is None:
        shape = "x".join(map(str, universe.space.shape))
    where = parse_space(family, length, shape)
    if horizon is None:
        is_its_size = is_drawn and where == universe.space
        horizon = universe.horizon if is_its_size else None
    return length, shape, where.size if horizon is None else horizon


def parse_steps(text: str) -> list[int] | None:
    """Steps separated by commas; None for none."""
    try:
        return [int(step) for step in text.split(",")] if text else None
    except ValueError:
        raise ValueError(f"unknown steps {text!r}: name them like 4 or 2,5") from None


ShowProgress = Callable[[str, int, int], None]
"""Called with the name of a stage, how much of it is done, and how much there is."""


@contextmanager
def progress() -> Iterator[ShowProgress]:
    """A bar with an estimate for each stage of the work, on standard error if it is a terminal."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = screen(stderr=True)
    with Progress(
        *columns,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bars:
        stages: dict[str, Any] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in stages:
                stages[stage] = bars.add_task(stage, total=total)
            bars.update(stages[stage], completed=done, total=total)

        yield show


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Callable[[Any], None]]:
    """`progress` for work of one stage; yields what to call when one part is done."""
    with progress() as show:
        show(title, 0, total)
        done = iter(range(1, total + 1))
        yield lambda _: show(title, next(done), total)


def ends(interval: Sequence[float]) -> str:
    """An interval as text, where no zero has a sign."""
    low, high = (round(end, 3) + 0.0 for end in interval)
    return f"[{low:.3f}, {high:.3f}]"


def free_name(path: Path) -> Path:
    """The path, or with a number if something is there already: nothing is overwritten."""
    number, candidate = 1, path
    while candidate.exists():
        number += 1
        candidate = path.with_stem(f"{path.stem}-{number}")
    return candidate


def check_target(path: Path) -> None:
    """Refuse a place that cannot be written to before any work is done for it."""
    if path.is_dir():
        raise ValueError(f"cannot write {path}: it is a directory")
    if not path.parent.is_dir():
        raise ValueError(f"cannot write {path}: there is no directory {path.parent}")
