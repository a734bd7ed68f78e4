"""Datasets in memory, an episode a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tapebench.base import files
from tapebench.base.shapes import Bool, Float32, Int16, Integer, UInt8, UInt16, UInt32
from tapebench.datasets.collect import collect
from tapebench.datasets.manifest import joint_hash, read_manifest
from tapebench.datasets.spec import Spec
from tapebench.datasets.store import content_hash, read_columns
from tapebench.physics import space

Rows = Integer[np.ndarray, " B"] | Sequence[int] | slice
"""Which episodes."""


@dataclass(frozen=True)
class Dataset:
    """Episodes side by side: N of them, of at most H steps, on L cells.

    Packed as they are stored, about 19 bytes a step; `observations` and `optimal` unpack the rows
    that a batch asks for. Behind an episode's last step stand zeros, and the tape stays.
    """

    spec: Spec
    rule: UInt8[np.ndarray, " N"]
    """The hidden rule: a label, not for the agent."""
    num_steps: UInt16[np.ndarray, " N"]
    """Steps of each episode."""
    success: Bool[np.ndarray, " N"]
    action: UInt8[np.ndarray, "N H"]
    tape: UInt32[np.ndarray, "N H+1"]
    """The cells at the start and after each step; bit i is cell i."""
    reward: Float32[np.ndarray, "N H"]
    optimal_cells: UInt32[np.ndarray, "N H"]
    """Where a shortest way to the goal begins, as bits; none if there is no way."""
    optimal_steps: Int16[np.ndarray, "N H"]
    """Fewest steps to the goal before each step; -1 if it cannot be reached, -2 if not known."""
    entropy: Float32[np.ndarray, "N H"]
    """Bits of uncertainty about the rule after each step, given the episode so far."""

    def __len__(self) -> int:
        return len(self.rule)

    @property
    def history(self) -> int:
        """So many rows in a row are the episodes of one player under one rule."""
        return self.spec.plays.history

    @property
    def is_taken(self) -> Bool[np.ndarray, "N H"]:
        """Which steps were taken."""
        taken: np.ndarray = np.arange(self.spec.horizon) < self.num_steps[:, None]
        return taken

    def rows_by_rule(self) -> dict[int, Integer[np.ndarray, " rows"]]:
        """The episodes under each rule that occurs, to draw contexts and queries from."""
        order = np.argsort(self.rule, kind="stable")
        rules, first = np.unique(self.rule[order], return_index=True)
        return dict(zip(rules.tolist(), np.split(order, first[1:]), strict=True))

    def observations(self, rows: Rows = slice(None)) -> Float32[np.ndarray, "B tapes D"]:
        """What the agent saw before each step and at the end, H + 1 times: the cells, then t/H."""
        tape = self.tape[rows]
        seen = np.empty((*tape.shape, self.spec.length + 1), np.float32)
        seen[..., :-1] = space.unpack(tape[..., None], self.spec.length)
        step = np.arange(self.spec.horizon + 1)
        # As the environment shows it, divided in float32.
        time = np.minimum(step, self.num_steps[rows][:, None]).astype(np.float32)
        seen[..., -1] = time / np.float32(self.spec.horizon)
        return seen

    def optimal(self, rows: Rows = slice(None)) -> Bool[np.ndarray, "B H L"]:
        """Which cells are optimal at each step; none where there is no way to the goal."""
        cells = space.unpack(self.optimal_cells[rows][..., None], self.spec.length)
        return cells.astype(bool)


def load(path: str | Path, episodes: int | None = None) -> Dataset:
    """A dataset, or its first so many episodes. Sizes, hashes, types and indices are checked.

    That is enough for one's own; `check.check` also replays what others have made.
    """
    path = Path(path)
    manifest = read_manifest(path)
    spec = manifest.spec
    num = spec.episodes if episodes is None else min(episodes, spec.episodes)
    if num < 1:
        raise ValueError(f"episodes must be at least 1, not {episodes}")
    data = _empty(spec, num)
    for number in range(-(-num // spec.file_episodes)):
        columns = read_columns(path, manifest, number)
        wanted = columns["episode"] < num
        _fill(data, {name: column[wanted] for name, column in columns.items()})
    return data


def make_in_memory(spec: Spec) -> tuple[Dataset, str]:
    """A dataset without files, and the hash of its content: the one that its manifest would say."""
    data, hashes = _empty(spec, spec.episodes), []
    for number in range(spec.num_files):
        columns = collect(spec, *spec.episodes_of(number))
        hashes.append(content_hash(columns))
        _fill(data, columns)
    return data, joint_hash(hashes)


def _empty(spec: Spec, num: int) -> Dataset:
    """A dataset of so many episodes that are to be filled in."""
    shape = (num, spec.horizon)
    return Dataset(
        spec,
        rule=np.zeros(num, np.uint8),
        num_steps=np.zeros(num, np.uint16),
        success=np.zeros(num, bool),
        tape=np.zeros((num, spec.horizon + 1), np.uint32),
        action=np.zeros(shape, np.uint8),
        reward=np.zeros(shape, np.float32),
        optimal_cells=np.zeros(shape, np.uint32),
        optimal_steps=np.zeros(shape, np.int16),
        entropy=np.zeros(shape, np.float32),
    )


def _fill(data: Dataset, columns: files.Columns) -> None:
    """Put the steps of whole episodes into their rows."""
    episode, step = columns["episode"], columns["step"]
    for name in ("action", "reward", "optimal_cells", "optimal_steps", "entropy"):
        getattr(data, name)[episode, step] = columns[name]
    first = step == 0
    data.rule[episode[first]] = columns["rule"][first]
    data.tape[episode[first], 0] = columns["tape"][first]
    data.tape[episode, step + 1] = columns["next_tape"]
    last = columns["terminated"]
    data.num_steps[episode[last]] = step[last] + 1
    data.success[episode[last]] = columns["success"][last]
    for late in range(1, data.spec.horizon + 1):
        is_over = late > data.num_steps[episode[last]]
        over = episode[last][is_over]
        data.tape[over, late] = data.tape[over, late - 1]
