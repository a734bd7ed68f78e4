"""Result bundles: every action of a result in one file that anyone can replay.

A bundle is a safetensors file of small arrays (actions, outcomes, start tapes) with a JSON
description in its metadata. `verify` plays every action again on the exam that the description
stands for and compares. That proves what came of the actions. It does not prove that the agent
chose them without knowing the rule: anybody can write down the best actions, so that a bundle is
blind is *declared*, and how it was made is what it says.

Bundles come from others, so nothing in one is believed: sizes before reading, names, types and
shapes before use, every value before it indexes anything. Each episode and the description also
carry a checksum. These guard against accidents, and name the episode where an action was changed
without any consequence; whoever forges a bundle can forge them too.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tapebench import dynamics, policy, seeding, store
from tapebench import exam as exams
from tapebench.exam import Exam
from tapebench.rollout import Episodes, exam_start, prepare
from tapebench.seating import Conditions, read_conditions

FORMAT = 1
MAX_BYTES = 1 << 30
MAX_HEADER = 1 << 20
MAX_HORIZON = 4096
"""Longest episodes a bundle may hold."""


class BundleError(ValueError):
    """The bundle is refused; the message says why."""


@dataclass(frozen=True)
class Bundle:
    """A bundle that verified."""

    episodes: Episodes
    """As replayed here, not as claimed."""
    exam: Exam
    about: dict[str, Any]
    """The description: policy, privileges, provenance, wall-clock."""
    conditions: Conditions
    """How it was made, as it says."""


def write(
    path: Path, episodes: Episodes, exam: Exam, about: Mapping[str, Any], conditions: Conditions
) -> None:
    """Write a result as a bundle.

    `about` and `conditions` say what replaying cannot show: `policy`, whether it `sees_rule`,
    provenance; and how it was made.
    """
    from safetensors.numpy import save

    if exam.task.horizon > MAX_HORIZON:
        raise ValueError(f"a bundle holds episodes of at most {MAX_HORIZON} steps: lower --horizon")
    arrays = _arrays(episodes, exam)
    description = {
        "format": FORMAT,
        "exam": exam.identity,
        "exam_hash": exam.hash,
        "about": dict(about),
        "conditions": conditions.as_dict(),
    }
    text = json.dumps(description, allow_nan=False)
    store.write_bytes(path, save(arrays, {"tape_bundle": text, "digest": _digest(text)}))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def verify(path: Path) -> Bundle:
    """Replay a bundle; `BundleError` says which episode is wrong, or what else is."""
    description, arrays = _read(path)
    try:
        exam = exams.from_identity(description.get("exam"))
    except ValueError as error:
        raise BundleError(f"wrong exam: {error}") from None
    if description.get("exam_hash") != exam.hash:
        raise BundleError("wrong exam: its hash does not fit its description")
    about = description.get("about")
    if not isinstance(about, dict) or not isinstance(about.get("policy"), str):
        raise BundleError("it does not say whose result it is")
    if not isinstance(about.get("sees_rule"), bool):
        raise BundleError("it does not say whether the policy saw the rule")
    try:
        conditions = read_conditions(description.get("conditions"))
    except ValueError as error:
        raise BundleError(str(error)) from None
    if exam.task.horizon > MAX_HORIZON:
        raise BundleError(f"its episodes are longer than {MAX_HORIZON} steps")
    _check_arrays(arrays, exam)
    _check_starts(arrays, exam)
    replayed = replay(arrays["actions"], exam, about["policy"])
    _compare(arrays, _arrays(replayed, exam), exam)
    return Bundle(replayed, exam, about, conditions)


def _layout(exam: Exam) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
    """Type and shape of every array in a bundle of this exam."""
    num, columns, task = len(exam.rules), exam.num_columns, exam.task
    cell = np.dtype(np.uint8 if task.length <= 256 else np.uint16)
    return {
        "rules": (np.dtype(np.uint8), (num,)),
        "tapes": (np.dtype(np.uint32), (columns, dynamics.num_words(task.length))),
        "actions": (cell, (num, columns, task.horizon)),
        "steps": (np.dtype(np.uint16), (num, columns)),
        "success": (np.dtype(np.uint8), (num, columns)),
        "final_wrong": (np.dtype(np.uint16), (num, columns)),
        "checksum": (np.dtype(np.uint32), (num, columns)),
    }


def _arrays(episodes: Episodes, exam: Exam) -> dict[str, np.ndarray]:
    """What a bundle holds of these episodes. Actions after the end are zeros."""
    layout = _layout(exam)
    tapes = exam_start(exam.task, exam.rules[:1], exam.num_columns, exam.salt).tape[0]
    steps = episodes.steps.astype(np.uint16)
    found = {
        "rules": exam.rules,
        "tapes": tapes,
        "actions": np.where(episodes.cells < 0, 0, episodes.cells),
        "steps": steps,
        "success": episodes.success,
        "final_wrong": episodes.wrong[..., -1],
        "checksum": _checksum(episodes.cells, exam.rules, tapes),
    }
    return {name: array.astype(layout[name][0]) for name, array in found.items()}


def _checksum(cells: np.ndarray, rules: np.ndarray, tapes: np.ndarray) -> np.ndarray:
    """uint32 `[R, E]` of rule, start tape and actions `[R, E, H]` (-1 after the end)."""
    words = [rules.astype(np.uint32)[:, None], *tapes.T[:, None]]
    return seeding.hash32(*words, *np.moveaxis(cells.astype(np.int64) + 1, -1, 0).astype(np.uint32))


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Description and arrays; refuses what is no bundle before it takes any memory."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        size = path.stat().st_size
        if not path.is_file():
            raise BundleError(f"{path} is not a file")
        if size > MAX_BYTES:
            raise BundleError(f"{path} is larger than a bundle may be ({MAX_BYTES} bytes)")
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or not 2 <= length <= min(MAX_HEADER, size - 8):
                raise BundleError(f"{path} is not a bundle, or was cut off")
            head = file.read(length)
            _check_header(head, size - 8 - length)
            data = length.to_bytes(8, "little") + head + file.read()
    except OSError as error:
        raise BundleError(f"cannot read {path}: {error.strerror}") from None
    try:
        arrays = dict(load(data))
        metadata = json.loads(head)["__metadata__"]
        description = json.loads(metadata["tape_bundle"])
        is_whole = metadata["digest"] == _digest(metadata["tape_bundle"])
    except SafetensorError as error:
        raise BundleError(f"{path} is damaged: {error}") from None
    except (ValueError, TypeError, KeyError, RecursionError):
        raise BundleError(f"{path} is no bundle: it has no description") from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise BundleError(f"{path} is no bundle of format {FORMAT}")
    if not is_whole:
        raise BundleError(f"{path} is damaged: its description was changed")
    return description, arrays


def _check_header(head: bytes, rest: int) -> None:
    """Refuse a header whose arrays are not exactly what follows it."""
    try:
        header = json.loads(head)
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        sizes = {"U8": 1, "U16": 2, "U32": 4}
        for name, entry in entries.items():
            begin, end = entry["data_offsets"]
            shape = entry["shape"]
            if any(type(axis) is not int or axis < 0 for axis in shape) or len(shape) > 3:
                raise BundleError(f"the array {name[:40]!r} has an absurd shape")
            if not 0 <= begin <= end <= rest or end - begin != sizes[entry["dtype"]] * math.prod(
                shape
            ):
                raise BundleError(
                    f"the array {name[:40]!r} is not where its header says, or cut off"
                )
        if (
            sum(entry["data_offsets"][1] - entry["data_offsets"][0] for entry in entries.values())
            != rest
        ):
            raise BundleError("the arrays do not fill the file: it was cut off or added to")
    except BundleError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise BundleError("its header is not that of a bundle") from None


def _check_arrays(arrays: dict[str, np.ndarray], exam: Exam) -> None:
    layout = _layout(exam)
    if set(arrays) != set(layout):
        odd = sorted(set(arrays) ^ set(layout))[0]
        raise BundleError(f"the array {odd[:40]!r} is missing, or should not be there")
    for name, (dtype, shape) in layout.items():
        if arrays[name].dtype != dtype or arrays[name].shape != shape:
            raise BundleError(
                f"{name} is {arrays[name].dtype} {arrays[name].shape}, not {dtype} {shape}: "
                "episodes are missing, or there are too many"
            )


def _check_starts(arrays: dict[str, np.ndarray], exam: Exam) -> None:
    """Rules, tapes and actions must be those of the exam and playable at all."""
    if not np.array_equal(arrays["rules"], exam.rules):
        raise BundleError("its rules are not those of its exam")
    tapes = exam_start(exam.task, exam.rules[:1], exam.num_columns, exam.salt).tape[0]
    if len(wrong := np.flatnonzero((arrays["tapes"] != tapes).any(axis=1))):
        raise BundleError(f"episode {wrong[0]}: its start tape is not that of the exam")
    for name, bound in (("actions", exam.task.length - 1), ("steps", exam.task.horizon)):
        beyond = (arrays[name] > bound).reshape(*arrays["steps"].shape, -1).any(axis=-1)
        if beyond.any():
            raise BundleError(f"{_where(beyond, exam)}: {name} beyond {bound}")


def replay(actions: np.ndarray, exam: Exam, name: str) -> Episodes:
    """Play actions `[R, E, H]` in the vector environment; those after an episode's end are not
    looked at."""
    cells = actions.reshape(-1, exam.task.horizon).astype(np.int64)
    again = policy.Policy(
        name, lambda rule, num: 0, lambda t, obs, stream: (t + 1, cells[:, t]), backend="numpy"
    )
    sitting = prepare(again, exam.task, None, exam.num_columns, salt=exam.salt)
    rows = np.arange(sitting.num)
    return replace(sitting.episodes([(rows, sitting.play(rows))]), trials=exam.trials)


def _compare(claimed: dict[str, np.ndarray], found: dict[str, np.ndarray], exam: Exam) -> None:
    for name, what in (
        ("success", "claims another outcome than its actions have"),
        ("steps", "claims another number of steps than its actions take"),
        ("final_wrong", "claims another final distance than its actions lead to"),
        ("checksum", "its actions are not the ones it was written with"),
        ("actions", "has actions after its end"),
    ):
        apart = np.asarray(claimed[name] != found[name])
        differs = apart.reshape(*claimed["steps"].shape, -1).any(axis=-1)
        if differs.any():
            raise BundleError(
                f"{_where(differs, exam)}: {what} ({int(differs.sum())} such episodes)"
            )


def _where(flags: Any, exam: Exam) -> str:
    row, column = np.argwhere(flags)[0]
    return f"rule {exam.rules[row]}, episode {column}"
