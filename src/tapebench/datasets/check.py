"""Is a dataset what it says? Every transition is replayed and every label computed again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tapebench.base import files
from tapebench.base.files import DamageError
from tapebench.datasets import croissant
from tapebench.datasets.collect import draw_starts, entropy, label
from tapebench.datasets.manifest import Manifest, read_manifest
from tapebench.datasets.spec import Spec
from tapebench.datasets.store import CROISSANT, check_file, content_hash, read_columns
from tapebench.physics import space
from tapebench.tasks.task import reward


@dataclass(frozen=True)
class Verdict:
    """A dataset that is sound, and how much of it was replayed."""

    manifest: Manifest
    replayed: int
    """Steps."""
    rules: tuple[int, ...]
    """The rules that occur in these."""


def check(
    path: Path,
    sample: int | None = None,
    progress: Callable[[str, int, int], Any] = lambda *_: None,
) -> Verdict:
    """Check a dataset of unknown origin; `DamageError` says what is wrong with it, and where.

    Sizes and hashes of all files, then the content: all of it, or `sample` files at even distances.
    Actions are not judged. That they are those of the behaviour shows who makes the dataset again
    and compares the hash of the content.
    """
    manifest = read_manifest(path)
    spec = manifest.spec
    for file in (*manifest.tables, *manifest.extra):
        check_file(path, file)
    if files.read_json(path / CROISSANT) != croissant.describe(manifest):
        raise DamageError(f"{path / CROISSANT} does not describe this dataset")
    count = spec.num_files if sample is None else max(1, min(sample, spec.num_files))
    chosen = np.unique(np.linspace(0, spec.num_files - 1, count).astype(int)).tolist()
    replayed, rules = 0, set[int]()
    for done, number in enumerate(chosen):
        columns = read_columns(path, manifest, number)
        check_content(columns, spec, number)
        if content_hash(columns) != manifest.tables[number].content:
            raise DamageError(
                f"{path}: the columns of {manifest.tables[number].name} differ from "
                "the hash of their content"
            )
        replayed += len(columns["step"])
        rules.update(np.unique(columns["rule"]).tolist())
        progress(spec.id, done + 1, len(chosen))
    return Verdict(manifest, replayed, tuple(sorted(rules)))


def check_content(columns: files.Columns, spec: Spec, number: int) -> None:
    """Replay the steps of a file, and compare every label with the exact answer."""

    def demand(is_right: np.ndarray, complaint: str) -> None:
        if not is_right.all():
            row = int(np.flatnonzero(~is_right)[0])
            where = f"episode {columns['episode'][row]}, step {columns['step'][row]}"
            raise DamageError(f"{where}: " + complaint.format(rule=columns["rule"][row]))

    rule, tape, after = (columns[name] for name in ("rule", "tape", "next_tape"))
    demand(~np.isin(rule, spec.split.test), f"rule {{rule}} is held out by {spec.split.name}")
    demand(
        np.isin(rule, spec.split.train), f"rule {{rule}} is none that {spec.split.name} trains on"
    )
    most = space.full(spec.length)[0]
    demand((tape <= most) & (after <= most), f"there are more than {spec.length} cells")
    demand(columns["action"] < spec.length, "the action is no cell")
    is_first = columns["step"] == 0
    episode = np.arange(*spec.episodes_of(number), dtype=np.uint32)
    drawn_rule, drawn_tape = draw_starts(spec, episode)
    row = columns["episode"] - episode[0]
    demand(rule == drawn_rule[row], "the rule is not the one that the seed draws")
    demand(~is_first | (tape == drawn_tape[row]), "it does not start where the seed draws")
    goes_on = ~is_first[1:]
    demand(np.append(True, ~goes_on | (tape[1:] == after[:-1])), "the tape is not the one before")
    updated = spec.task.family.step(tape[:, None], columns["action"], rule, spec.task.space)[:, 0]
    demand(after == updated, "the tape after it is not what rule {rule} makes of the flip")
    demand(columns["success"] == (after == 0), "success is wrong")
    before, now = (
        space.distance(tapes[:, None], np.zeros(1, np.uint32), spec.length)
        for tapes in (tape, after)
    )
    paid = reward(spec.task.reward, before, now, np.float32(spec.task.success_bonus))
    demand(columns["reward"] == paid, "the reward is wrong")
    for name, answer in label(spec, rule, tape).items():
        demand(columns[name] == answer, f"{name} is not the exact answer under rule {{rule}}")
    padded = np.zeros((3, len(episode), spec.horizon), np.uint32)
    place = row, columns["step"]
    for array, name in zip(padded, ("tape", "action", "next_tape"), strict=True):
        array[place] = columns[name]
    demand(columns["entropy"] == entropy(spec, *padded)[place], "the entropy is not the exact one")
