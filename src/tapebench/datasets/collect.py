"""Play episodes and label every step: the columns of a dataset."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapebench.base import files, seeding
from tapebench.base.shapes import Float32, Integer, Shaped, UInt32
from tapebench.datasets import answers
from tapebench.datasets.spec import Spec
from tapebench.exam.exam import UNKNOWN
from tapebench.gym import TapeVectorEnv
from tapebench.physics import space, starts

COLUMNS: dict[str, np.dtype[Any]] = {
    "episode": np.dtype(np.uint32),
    "history": np.dtype(np.uint32),
    "trial": np.dtype(np.uint16),
    "step": np.dtype(np.uint16),
    "rule": np.dtype(np.uint8),
    "tape": np.dtype(np.uint32),
    "action": np.dtype(np.uint8),
    "reward": np.dtype(np.float32),
    "next_tape": np.dtype(np.uint32),
    "terminated": np.dtype(np.bool_),
    "success": np.dtype(np.bool_),
    "optimal_cells": np.dtype(np.uint32),
    "optimal_steps": np.dtype(np.int16),
    "entropy": np.dtype(np.float32),
}
"""Name and type of every column, one row per step."""

ABOUT = {
    "episode": "Number of the episode, from 0.",
    "history": "Number of the history: episodes in a row that one player met under one rule.",
    "trial": "Number of the episode within its history.",
    "step": "Steps taken in the episode before this one; the observation is the cells and step/H.",
    "rule": "The hidden elementary rule, of the training side of the split. Not for the agent.",
    "tape": "The observed cells before the step, bit i is cell i.",
    "action": "The cell that was flipped.",
    "reward": "Minus the share of ones after the step, and 1 on success.",
    "next_tape": "The cells after the step, bit i is cell i.",
    "terminated": "Whether the episode is over: on success, or when the horizon is reached.",
    "success": "Whether the step led to the goal, the tape of zeros.",
    "optimal_cells": "Bit i: a shortest way to the goal under the rule begins with cell i. Zero "
    "if there is no way or it is not known.",
    "optimal_steps": "Fewest steps to the goal from `tape` under the rule, whatever time is left; "
    "-1 if it cannot be reached, -2 if that is not known.",
    "entropy": "Bits of uncertainty about the rule after the step, given this episode so far and a "
    "uniform prior over the training rules of the split.",
}
"""What every column holds."""

BATCH = 8192
"""Most histories that are played side by side. Makes no difference to what happens in them."""


def draw_starts(
    spec: Spec, episode: UInt32[np.ndarray, " N"]
) -> tuple[UInt32[np.ndarray, " N"], UInt32[np.ndarray, " N"]]:
    """Rule and start tape of episodes, whatever the behaviour but for the length of its histories.

    A rule is drawn for a whole history, a tape for each episode; both are uniform.
    """
    rules = np.array(spec.split.train, np.uint32)
    history = episode // np.uint32(spec.plays.history)
    word = seeding.draw(seeding.data_streams(spec.seed, "rule", history), np.array([seeding.RULE]))
    rule = rules[seeding.below(np.uint32(len(rules)), word[:, 0])]
    lane = seeding.draw(seeding.data_streams(spec.seed, "tape", episode), np.array([seeding.TAPE]))
    return rule, starts.nonzero_words(lane, spec.length)[:, 0]


def collect(
    spec: Spec, first: int, last: int, batch: int = BATCH
) -> dict[str, Shaped[np.ndarray, " steps"]]:
    """The columns of the episodes from `first`, where a history begins, up to before `last`."""
    span = batch * spec.plays.history
    parts = [_play(spec, start, min(start + span, last)) for start in range(first, last, span)]
    return {name: np.concatenate([part[name] for part in parts]) for name in COLUMNS}


def _play(spec: Spec, first: int, last: int) -> dict[str, np.ndarray]:
    task, behaviour = spec.task, spec.plays
    trials = behaviour.history
    # Of a history that is cut short the rest is played as well, and left out.
    num = -(-(last - first) // trials)
    every = np.arange(first, first + num * trials, dtype=np.uint32)
    rule, start = draw_starts(spec, every)
    policy = behaviour.make(task, spec.split)
    env = TapeVectorEnv(num, task=task)
    memory = policy.init(rule[::trials], num)
    kept = ("tape", "action", "reward", "next_tape", "success")
    played = {name: np.zeros((num, trials, task.horizon), COLUMNS[name]) for name in kept}
    is_taken = np.zeros((num, trials, task.horizon), bool)
    for trial in range(trials):
        rows = slice(trial, None, trials)
        draws = seeding.policy_streams(spec.seed, policy.name, rule[rows], every[rows])
        tape = start[rows]
        options = {"rule": rule[rows], "tape": space.unpack(tape[:, None], task.length)}
        obs, _ = env.reset(seed=0, options=options)
        running = np.ones(num, bool)
        for step in range(task.horizon):
            memory, cell = policy.act(memory, obs, draws)
            draws = seeding.advance(draws)
            seen, paid, terminated, truncated, _ = env.step(cell)
            after = space.pack(task.layout.cells(seen))[:, 0]
            memory = behaviour.learn(memory, tape, cell, after, running)
            is_taken[:, trial, step] = running
            for name, values in zip(kept, (tape, cell, paid, after, terminated), strict=True):
                played[name][:, trial, step] = values
            # What has ended stands still.
            obs = np.where(running[:, None], seen, obs)
            tape = np.where(running, after, tape)
            running = running & ~(terminated | truncated)
    by_episode = {
        name: values.reshape(num * trials, task.horizon)[: last - first]
        for name, values in (*played.items(), ("is_taken", is_taken))
    }
    is_taken = by_episode.pop("is_taken")
    row, time = np.nonzero(is_taken)
    columns = {name: values[is_taken] for name, values in by_episode.items()}
    evidence = (by_episode[name] for name in ("tape", "action", "next_tape"))
    columns |= {
        "episode": every[row],
        "history": every[row] // np.uint32(trials),
        "trial": every[row] % np.uint32(trials),
        "step": time,
        "rule": rule[row],
        "terminated": columns["success"] | (time == task.horizon - 1),
        "entropy": entropy(spec, *evidence)[is_taken],
    }
    columns |= label(spec, columns["rule"], columns["tape"])
    return {name: columns[name].astype(kind) for name, kind in COLUMNS.items()}


def label(
    spec: Spec, rule: Integer[np.ndarray, " N"], tape: UInt32[np.ndarray, " N"]
) -> files.Columns:
    """The columns that follow from rule and tape."""
    if not spec.is_labelled:
        return {"optimal_cells": np.zeros_like(tape), "optimal_steps": np.full(len(tape), UNKNOWN)}
    known = answers.solve(spec.split.train, spec.length)
    return {
        "optimal_cells": space.pack(known.optimal_cells(rule, tape))[:, 0],
        "optimal_steps": known.fewest_steps(rule, tape),
    }


def entropy(
    spec: Spec,
    tape: UInt32[np.ndarray, "N H"],
    cell: Integer[np.ndarray, "N H"],
    next_tape: UInt32[np.ndarray, "N H"],
) -> Float32[np.ndarray, "N H"]:
    """Bits of uncertainty after each step of episodes."""
    states = answers.follow_evidence(tape, cell, next_tape, spec.length)
    bits: np.ndarray = answers.entropies(spec.split.train)[states]
    return bits
