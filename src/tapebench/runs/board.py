"""A leaderboard: the bundles below a directory, replayed, and the rows that they make.

Nothing that a bundle says of itself puts it into a better light. Outcomes are those of its actions,
replayed here. That a row was *run by us* is known by the hash of its exam and actions, which is
listed in the package; all others are called *outcomes replayed, blindness declared*. See ADR 33.

A bundle is checked once: what was seen is kept in the user's cache under the hash of its bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from importlib import resources
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from tapebench import __version__, stats
from tapebench.base import files, seeding
from tapebench.exam import bounds, bundle, by_stratum, seating
from tapebench.exam.bundle import BundleError
from tapebench.exam.exam import STANDARD, Exam
from tapebench.exam.seating import Conditions
from tapebench.runs import tracks
from tapebench.runs.tracks import Track
from tapebench.stats import Interval

HEADLINE = "beyond-reflex"
"""The stratum that rows are sorted by."""

WATCHED = 4
"""Start tapes for each rule whose episodes a board keeps, to be watched."""

LARGEST = 80 << 20
"""Bytes of a file above which it is no bundle, and is not read."""

VERSION = 1
"""Of what is kept of a bundle."""

FEW = 16
"""Bundles up to which they are checked in this process."""

OURS, REPLAYED, POOLS, SAW = (
    "run by us",
    "outcomes replayed, blindness declared",
    "pools rows",
    "saw the rule",
)
"""How a row was made."""

RESERVED = ("memoryless", "blind ceiling", "exact ceiling", "a shortest way")
"""Names of what stands beside the rows."""


@dataclass(frozen=True)
class Listed:
    """What we ran ourselves, as the package lists it."""

    name: str
    sees_rule: bool
    is_reference: bool
    """Whether it is no trained agent, and stands with the references."""


@dataclass(frozen=True)
class Entry:
    """A bundle that was replayed."""

    file: str
    """Its name below the directory."""
    sha256: str
    result: str
    """A hash of exam and actions."""
    actions: str
    """A hash of the actions alone."""
    name: str
    sees_rule: bool
    conditions: Conditions
    """How it was made, as it says."""
    track: Track
    exam: Exam
    success: np.ndarray
    """`[R, E]`."""
    cells: np.ndarray
    """`[R, WATCHED, H]`; -1 after the end."""

    @property
    def folder(self) -> str:
        return self.file.rpartition("/")[0]


@dataclass(frozen=True)
class Refusal:
    """A file that makes no row."""

    file: str
    reason: str


@dataclass(frozen=True)
class Figures:
    """Success on beyond-reflex rules, and how far it is from what bounds it."""

    rules: int
    """That were held out by some bundle of the row."""
    unseen: Interval
    seen: float | None
    cost: Interval | None
    """Seen − unseen on the same rules and start tapes; None where no rule is on both sides."""
    above_memoryless: float | None
    below_blind_ceiling: float | None
    below_ceiling: float | None


@dataclass(frozen=True)
class Row:
    """The bundles of one agent."""

    label: str
    """Its name; with its directory if others have that name too."""
    made: str
    """One of `OURS`, `REPLAYED`, `POOLS`, `SAW`."""
    is_reference: bool
    entries: tuple[Entry, ...]
    figures: Figures | None
    """None if no beyond-reflex rule is held out."""
    unranked: str
    """Why it has no rank; empty if it has one."""

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(sorted({entry.exam.split for entry in self.entries}))

    @property
    def remarks(self) -> tuple[str, ...]:
        """What its bundles say of how they were made."""
        every = (remark for entry in self.entries for remark in entry.conditions.remarks)
        return tuple(dict.fromkeys(remark for remark in every if remark != self.made))


@dataclass(frozen=True)
class Standing:
    """All rows on one exam, over the folds of its track if that has any."""

    track: Track
    exam: Exam
    """That of the first split."""
    rows: tuple[Row, ...]
    """The best on unseen beyond-reflex rules first, references after them."""

    @property
    def title(self) -> str:
        fresh = "" if self.exam.name == STANDARD else f", {self.exam.name} exam"
        return f"{self.track.label}{fresh}"

    @cached_property
    def optimal_steps(self) -> np.ndarray:
        return self.exam.optimal_steps()

    @cached_property
    def headline(self) -> np.ndarray:
        """The beyond-reflex rules, as a mask `[R]`."""
        kinds = by_stratum.strata_by_rule(self.exam)
        return np.array([kinds.get(rule) == HEADLINE for rule in self.exam.rules.tolist()])

    @cached_property
    def sides(self) -> dict[str, np.ndarray]:
        """The beyond-reflex rules that some split of the track holds out, and that some trains on,
        as masks `[R]`: over folds all of them, both times."""
        exams = [_exam_of(self.track.label, split, self.exam.name) for split in self.track.splits]
        return {
            name: self.headline & np.any([exam.subsets == side for exam in exams], axis=0)
            for name, side in (("unseen", "ood"), ("seen", "id"))
        }

    @cached_property
    def levels(self) -> dict[str, np.ndarray]:
        """What bounds success under each rule, `[R]`; nan where it is not computed."""
        bound = bounds.bounds_by_stratum(self.exam)
        ceilings = self.exam.ceilings(self.optimal_steps)
        return dict(
            zip(RESERVED[:3], (bound.memoryless, bound.blind_ceiling, ceilings), strict=True)
        )

    def ranks(self) -> list[int | None]:
        """The rank of each row; None for one that has none."""
        count = iter(range(1, len(self.rows) + 1))
        return [None if row.unranked else next(count) for row in self.rows]

    def as_dict(self) -> dict[str, Any]:
        """The standing as a document."""
        task = self.exam.task
        unseen = self.sides["unseen"]
        means = {name: _mean(level[unseen]) for name, level in self.levels.items()}
        return {
            "track": self.track.label,
            "exam": self.exam.name,
            "splits": list(self.track.splits),
            "length": task.length,
            "horizon": task.horizon,
            "rules": int(unseen.sum()),
            "bounds": means,
            "rows": [
                {
                    "rank": rank,
                    "name": row.label,
                    "made": row.made,
                    "reference": row.is_reference,
                    "remarks": list(row.remarks),
                    "unranked": row.unranked or None,
                    "splits": list(row.splits),
                    **_figures_as_dict(row.figures),
                    "bundles": [
                        {
                            "file": entry.file,
                            "sha256": entry.sha256,
                            "result": entry.result,
                            "split": entry.exam.split,
                            "conditions": entry.conditions.as_dict(),
                        }
                        for entry in row.entries
                    ],
                }
                for rank, row in zip(self.ranks(), self.rows, strict=True)
            ],
        }


@dataclass(frozen=True)
class Board:
    """Every standing, and every file that was refused. Get it from `read`."""

    standings: tuple[Standing, ...]
    refused: tuple[Refusal, ...]
    checked: int
    """Bundles that were replayed now; the others had been before."""

    def as_dict(self) -> dict[str, Any]:
        """The board as a document."""
        return {
            "format": 1,
            "tapebench": __version__,
            "exam_version": seeding.EXAM_VERSION,
            "standings": [standing.as_dict() for standing in self.standings],
            "refused": [vars(refusal) for refusal in self.refused],
        }


def read(
    root: Path, progress: Callable[[str, int, int], Any] = lambda stage, done, total: None
) -> Board:
    """Every bundle below a directory, replayed unless it had been, as a leaderboard."""
    if not root.is_dir():
        raise ValueError(f"there is no directory {root}: name one with bundles")
    paths = sorted(path for path in root.rglob(bundle.PATTERN) if not path.is_dir())
    names = {path: _printable(path.relative_to(root).as_posix()) for path in paths}
    seen: list[Entry | Refusal] = []
    waiting: dict[Path, str] = {}
    for path in paths:
        digest = _digest(path)
        made = _read_record(_recall(digest), names[path], digest)
        if made is None:
            waiting[path] = digest
        else:
            seen.append(made)
    for number, (path, record) in enumerate(_check_all([*waiting]), 1):
        made = _read_record(record, names[path], waiting[path])
        assert made is not None, "it was made here and now"
        seen.append(made)
        _remember(waiting[path], record)
        progress("replaying bundles", number, len(waiting))
    entries = [made for made in seen if isinstance(made, Entry)]
    refused = [made for made in seen if isinstance(made, Refusal)]
    entries, doubtful = _without_pretenders(sorted(entries, key=lambda entry: entry.file))
    refused = sorted([*refused, *doubtful], key=lambda refusal: refusal.file)
    return Board(tuple(_standings(entries, progress)), tuple(refused), len(waiting))


# One bundle


def _check_all(paths: Sequence[Path]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """What `_check` says of each, in as many processes as there are cores if they are many."""
    if len(paths) <= FEW:
        yield from ((path, _check(path)) for path in paths)
        return
    cores = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(cores, get_context("spawn")) as pool:
        yield from zip(paths, pool.map(_check, paths, chunksize=FEW), strict=True)


def _check(path: Path) -> dict[str, Any]:
    """What a board keeps of a bundle, or why it is `refused`."""
    try:
        if path.is_file() and path.stat().st_size > LARGEST:
            raise BundleError(f"it is larger than {LARGEST >> 20} MB")
        played = bundle.verify(path, _find_track)
        if played.conditions.seating != seating.VERSION:
            raise BundleError(
                f"it was sat in the order of the rules (seating {played.conditions.seating}), "
                "from which rules can be told: evaluate the agent again"
            )
    except BundleError as error:
        return {"refused": _printable(str(error).replace(str(path), "it"))[:500]}
    except Exception as error:
        # It comes from others: whatever it is that a check does not foresee, a board goes on.
        return {"refused": f"it cannot be checked ({type(error).__name__})", "unforeseen": True}
    shown = np.where(played.episodes.cells < 0, -1, played.episodes.cells)[:, :WATCHED]
    return {
        "name": played.about["policy"],
        "sees_rule": played.about["sees_rule"],
        "conditions": played.conditions.as_dict(),
        "track": _find_track(played.exam).label,
        "split": played.exam.split,
        "exam": played.exam.name,
        "result": played.result,
        "actions": played.actions,
        "success": _pack(np.packbits(played.episodes.success)),
        "cells": _pack(shown.astype("<i2")),
    }


def _find_track(exam: Exam) -> Track:
    """The track whose exam it is; `BundleError` if it is none of today's."""
    for track in tracks.tracks().values():
        is_asked = track.label == track.name and exam.split in track.splits
        if is_asked and _exam_of(track.label, exam.split, exam.name).hash == exam.hash:
            return track
    task = exam.task
    raise BundleError(
        f"its exam ({exam.split}, {task.length} cells, {task.horizon} steps, {len(exam.rules)} "
        f"rules with {exam.episodes} tapes) is that of no current track: tape evaluate --track "
        "core sits one"
    )


@lru_cache(maxsize=1024)
def _exam_of(track: str, split: str, name: str) -> Exam:
    return tracks.get_track(track).exam(split=split, exam=name)


def _read_record(record: Mapping[str, Any], file: str, digest: str) -> Entry | Refusal | None:
    """What `_check` says of a bundle, for the file that it is; None if it cannot be understood."""
    if "refused" in record:
        return Refusal(file, str(record["refused"]))
    with suppress(ValueError, KeyError, TypeError):
        return _entry(record, file, digest)
    return None


def _entry(record: Mapping[str, Any], file: str, digest: str) -> Entry:
    track = tracks.get_track(record["track"])
    exam = _exam_of(record["track"], record["split"], record["exam"])
    num, columns = len(exam.rules), exam.num_columns
    bits = np.frombuffer(base64.b64decode(record["success"]), np.uint8)
    shown = (num, min(WATCHED, columns), exam.task.horizon)
    return Entry(
        file,
        digest,
        record["result"],
        record["actions"],
        record["name"],
        record["sees_rule"],
        Conditions(**record["conditions"]),
        track,
        exam,
        np.unpackbits(bits, count=num * columns).reshape(num, columns).astype(bool),
        np.frombuffer(base64.b64decode(record["cells"]), "<i2").reshape(shown),
    )


def _recall(digest: str) -> dict[str, Any]:
    """What was kept of these bytes; nothing if nothing was."""
    place = _place(digest)
    if not digest or not place.is_file():
        return {}
    with suppress(ValueError, KeyError, TypeError):
        kept = files.read_object(place)
        if kept["checksum"] == _checksum(kept["record"]):
            return dict(kept["record"])
    return {}


def _remember(digest: str, record: Mapping[str, Any]) -> None:
    if not digest or "unforeseen" in record:
        return
    with suppress(ValueError, OSError):  # a cache that cannot be written costs time, no result
        _cache().mkdir(parents=True, exist_ok=True)
        files.write_json(_place(digest), {"checksum": _checksum(record), "record": record})


def _checksum(record: Any) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _cache() -> Path:
    return files.user_cache() / "board"


def _place(digest: str) -> Path:
    return _cache() / f"{digest}-{_checker()}.json"


@cache
def _checker() -> str:
    """A hash of all that decides what is seen in a bundle."""
    versions = [VERSION, seeding.EXAM_VERSION, seating.VERSION]
    return _checksum([*versions, *(track.hash for track in tracks.tracks().values())])[:16]


def _digest(path: Path) -> str:
    """SHA-256 of a file; empty where it is none, or too large to be a bundle."""
    with suppress(OSError):
        if path.is_file() and path.stat().st_size <= LARGEST:
            return files.file_hash(path)
    return ""


def _pack(array: np.ndarray) -> str:
    return base64.b64encode(array.tobytes()).decode()


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)


# All of them


@cache
def listed() -> dict[str, Listed]:
    """What we ran ourselves, by the hash of exam and actions."""
    text = resources.files("tapebench").joinpath("data/board.json").read_text()
    return {result: Listed(**about) for result, about in json.loads(text)["results"].items()}


def _plain_name(name: str) -> str:
    """A name as it is compared with others: letters that look alike are alike."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def _without_pretenders(entries: Sequence[Entry]) -> tuple[list[Entry], list[Refusal]]:
    """Refuse what was seen before, and what takes the actions or the name of something of ours."""
    ours = listed()
    names = {_plain_name(about.name) for about in ours.values()} | set(RESERVED)
    kept: dict[str, Entry] = {}
    refused = []
    for entry in entries:
        own = ours.get(entry.result)
        if own is not None and own.name != entry.name:
            reason = f"its actions are those of {own.name}, which we ran ourselves"
        elif own is None and _plain_name(entry.name) in names:
            reason = (
                f"{entry.name} is the name of a row of ours, and these are not its actions: choose "
                "another with tape evaluate --name"
            )
        elif entry.result in kept:
            reason = f"it has the same actions on the same exam as {kept[entry.result].file}"
        else:
            kept[entry.result] = entry
            continue
        refused.append(Refusal(entry.file, reason))
    return [*kept.values()], refused


def _standings(
    entries: Iterable[Entry], progress: Callable[[str, int, int], Any]
) -> Iterator[Standing]:
    """By track and exam, tracks over folds first; in each a row for every directory and name."""
    groups: dict[tuple[Track, str], dict[tuple[str, str], list[Entry]]] = {}
    for entry in entries:
        rows = groups.setdefault((entry.track, entry.exam.name), {})
        rows.setdefault((entry.folder, entry.name), []).append(entry)
    total = sum(map(len, groups.values()))
    done = iter(range(1, total + 1))
    order = sorted(
        groups, key=lambda key: (not key[0].folds, key[0].label, key[1] != STANDARD, key[1])
    )
    for track, exam in order:
        empty = Standing(track, _exam_of(track.label, track.splits[0], exam), ())
        count = Counter(name for _, name in groups[track, exam])
        made: dict[str, Row] = {}
        for (folder, name), members in groups[track, exam].items():
            label = f"{name} ({folder or '.'})" if count[name] > 1 else name
            while label in made:  # a name may end in what was put behind another
                label += "*"
            made[label] = _row(label, members, empty)
            progress("ranking", next(done), total)
        yield replace(empty, rows=tuple(sorted(made.values(), key=_place_of)))


def _place_of(row: Row) -> tuple[bool, float, str]:
    return row.is_reference, -(row.figures.unseen.mean if row.figures else -1.0), row.label


def _row(label: str, entries: Sequence[Entry], standing: Standing) -> Row:
    ours = [listed().get(entry.result) for entry in entries]
    known = [about for about in ours if about is not None]
    is_ours = len(known) == len(entries)
    saw = any(entry.sees_rule for entry in entries) or any(about.sees_rule for about in known)
    pools = any(entry.conditions.rows == POOLS for entry in entries)
    made = OURS if is_ours else SAW if saw else POOLS if pools else REPLAYED
    is_reference = is_ours and any(about.is_reference for about in known)
    wanted = standing.track.splits
    present = {entry.exam.split for entry in entries}
    reason = ""
    if is_reference:
        reason = "a reference"
    elif saw or pools:
        reason = SAW if saw else POOLS
    elif len(present) < len(wanted):
        reason = f"{len(present)} of {len(wanted)} folds"
    elif _plays_alike(entries):
        reason = "the same actions in several folds"
    return Row(label, made, is_reference, tuple(entries), _figures(entries, standing), reason)


def _plays_alike(entries: Sequence[Entry]) -> bool:
    """Whether bundles of two folds hold the same actions, which two trainings do not."""
    by_split = {(entry.exam.split, entry.actions) for entry in entries}
    return len({actions for _, actions in by_split}) < len(by_split)


def unseen_and_seen(played: Sequence[tuple[Exam, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Success under each rule from each tape, `[R, E]`, of results that held the rule out and of
    results that did not: means of these, nan where there are none. The exams are of one kind."""
    sides = []
    for side in ("ood", "id"):
        total = np.zeros(played[0][1].shape)
        count = np.zeros(len(total))
        for exam, success in played:
            is_on_side = exam.subsets == side
            total[is_on_side] += success[is_on_side]
            count += is_on_side
        with np.errstate(invalid="ignore"):
            sides.append(total / count[:, None])
    return sides[0], sides[1]


def row_success(entries: Sequence[Entry]) -> tuple[np.ndarray, np.ndarray]:
    """`unseen_and_seen` of the bundles of a row."""
    return unseen_and_seen([(entry.exam, entry.success) for entry in entries])


def watched(entries: Sequence[Entry]) -> np.ndarray:
    """Episodes to watch, `[R, WATCHED, H]`: under each rule those of a bundle that held it out,
    or of the first bundle where none did."""
    cells = entries[0].cells.copy()
    for entry in reversed(entries):
        is_held_out = entry.exam.subsets == "ood"
        cells[is_held_out] = entry.cells[is_held_out]
    return cells


def _figures(entries: Sequence[Entry], standing: Standing) -> Figures | None:
    unseen, seen = row_success(entries)
    is_unseen = standing.headline & ~np.isnan(unseen).any(axis=1)
    is_both = is_unseen & ~np.isnan(seen).any(axis=1)
    is_seen = standing.headline & ~np.isnan(seen).any(axis=1)
    if not is_unseen.any():
        return None
    gap = {name: _mean(level[is_unseen]) for name, level in standing.levels.items()}
    mean = float(unseen[is_unseen].mean())

    def below(name: str) -> float | None:
        level = gap[name]
        return None if level is None else level - mean

    above = below(RESERVED[0])
    return Figures(
        rules=int(is_unseen.sum()),
        unseen=_interval(unseen[is_unseen], "unseen"),
        seen=_mean(seen[is_seen].mean(axis=1)) if is_seen.any() else None,
        cost=_interval((seen - unseen)[is_both], "cost") if is_both.any() else None,
        above_memoryless=None if above is None else -above,
        below_blind_ceiling=below(RESERVED[1]),
        below_ceiling=below(RESERVED[2]),
    )


def _interval(table: np.ndarray, name: str) -> Interval:
    return stats.rule_tape_bootstrap(table, seeding.generator(0, "board", name))


def _figures_as_dict(figures: Figures | None) -> dict[str, Any]:
    if figures is None:
        return {"rules": 0, "unseen": None}
    document = dict(vars(figures))
    for name in ("unseen", "cost"):
        interval = document.pop(name)
        document[name] = interval and interval.mean
        document[f"{name}_interval"] = interval and [interval.low, interval.high]
    return document


def _mean(values: np.ndarray) -> float | None:
    mean = float(values.mean()) if values.size else float("nan")
    return None if np.isnan(mean) else mean
