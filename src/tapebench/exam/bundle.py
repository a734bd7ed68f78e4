"""Result bundles: every action of a result in one file that anyone can replay.

A bundle is a safetensors file of small arrays (actions, outcomes, start tapes) with a JSON
description in its metadata. `verify` plays every action again on the exam that the description
stands for and compares. That proves what came of the actions. It does not prove that the agent
chose them without knowing the rule: anybody can write down the best actions, so that a bundle is
blind is *declared*, and how it was made is what it says.

Bundles come from others, so nothing in one is believed: the header and its exam before anything
else is read, the exact size that these ask for, every value before it indexes anything. Each
episode and the description also carry a checksum. These guard against accidents, and name the
episode where an action was changed without any consequence; whoever forges a bundle can forge them
too.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np

from tapebench.base import files, seeding
from tapebench.base.shapes import Integer
from tapebench.exam import exam as exams
from tapebench.exam import policy
from tapebench.exam.exam import Exam
from tapebench.exam.rollout import Episodes, exam_start, prepare
from tapebench.exam.seating import Conditions, read_conditions
from tapebench.physics import space

FORMAT = 1
PATTERN = "*.tape"
"""What files below a directory are taken for bundles."""

MAX_HEADER = 1 << 20
MAX_HORIZON = 4096
"""Longest episodes a bundle may hold."""

MAX_ACTIONS = 1 << 25
"""Rules × episodes × steps that a bundle may hold; replaying takes some forty bytes for each."""

MAX_NAME = 100
"""Letters of a policy's name."""


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

    @property
    def actions(self) -> str:
        """A hash of all actions."""
        return hashlib.sha256(self.episodes.cells.astype("<i2").tobytes()).hexdigest()

    @property
    def result(self) -> str:
        """A hash of exam and actions, which is the same whoever wrote them down and says what."""
        return hashlib.sha256(f"{self.exam.hash} {self.actions}".encode()).hexdigest()


def write(
    path: Path, episodes: Episodes, exam: Exam, about: Mapping[str, Any], conditions: Conditions
) -> None:
    """Write a result as a bundle.

    `about` and `conditions` say what replaying cannot show: `policy`, whether it `sees_rule`,
    provenance; and how it was made.
    """
    from safetensors.numpy import save

    check_size(exam)
    check_name(about.get("policy"))
    arrays = _arrays(episodes, exam)
    description = {
        "format": FORMAT,
        "exam": exam.identity,
        "exam_hash": exam.hash,
        "about": dict(about),
        "conditions": conditions.as_dict(),
    }
    text = json.dumps(description, allow_nan=False)
    files.write_bytes(path, save(arrays, {"tape_bundle": text, "digest": _digest(text)}))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def verify(path: Path, accept: Callable[[Exam], object] = lambda exam: None) -> Bundle:
    """Replay a bundle; `BundleError` says which episode is wrong, or what else is.

    Nothing is read beyond the header before the exam that it names says how large the rest is.
    `accept` is asked about that exam first, and raises `BundleError` for one that is not wanted.
    """
    try:
        if not path.is_file():
            raise BundleError(f"{path} is not a file" if path.exists() else f"there is no {path}")
        with path.open("rb") as file:
            head = _read_header(file, path)
            description, entries = _parse_header(head, path)
            exam = _read_exam(description)
            accept(exam)
            about = _read_about(description)
            try:
                conditions = read_conditions(description.get("conditions"))
            except ValueError as error:
                raise BundleError(str(error)) from None
            size = _check_entries(entries, exam)
            if os.fstat(file.fileno()).st_size != 8 + len(head) + size:
                raise BundleError("the arrays do not fill the file: it was cut off or added to")
            data = file.read(size)
    except OSError as error:
        raise BundleError(f"cannot read {path}: {error.strerror}") from None
    if len(data) != size:
        raise BundleError(f"{path} was cut off")
    arrays = {
        name: np.frombuffer(
            data, dtype, math.prod(shape), entries[name]["data_offsets"][0]
        ).reshape(shape)
        for name, (dtype, shape) in _layout(exam).items()
    }
    _check_starts(arrays, exam)
    replayed = replay(arrays["actions"], exam, about["policy"])
    _compare(arrays, _arrays(replayed, exam), exam)
    return Bundle(replayed, exam, about, conditions)


def check_size(exam: Exam) -> None:
    """Refuse an exam whose episodes are more than a bundle may hold."""
    if exam.task.horizon > MAX_HORIZON:
        raise ValueError(
            f"a bundle holds episodes of at most {MAX_HORIZON} steps, not {exam.task.horizon}: "
            "choose a smaller --horizon or leave out --bundle"
        )
    actions = len(exam.rules) * exam.num_columns * exam.task.horizon
    if actions > MAX_ACTIONS:
        raise ValueError(
            f"a bundle holds at most {MAX_ACTIONS:,} actions, not {actions:,}: "
            "choose fewer --episodes or a shorter --horizon"
        )


def check_name(policy: Any) -> str:
    """Refuse what cannot stand in one line of a terminal for whose result it is."""
    if not isinstance(policy, str) or not policy.strip():
        raise ValueError("it does not say whose result it is")
    if len(policy) > MAX_NAME or not policy.isprintable():
        raise ValueError(f"the policy's name must be at most {MAX_NAME} printable letters")
    return policy


def _read_header(file: IO[bytes], path: Path) -> bytes:
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or not 2 <= length <= min(MAX_HEADER, size - 8):
        raise BundleError(f"{path} is not a bundle, or was cut off")
    return file.read(length)


def _parse_header(head: bytes, path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The description, and where each array says that it is."""
    try:
        header = json.loads(head)
        if not isinstance(header, dict):
            raise BundleError("its header is not that of a bundle")
        metadata = header.pop("__metadata__")
        description = json.loads(metadata["tape_bundle"])
        is_whole = metadata["digest"] == _digest(metadata["tape_bundle"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if isinstance(error, BundleError):
            raise
        raise BundleError(f"{path} is no bundle: it has no description") from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise BundleError(f"{path} is no bundle of format {FORMAT}")
    if not is_whole:
        raise BundleError(f"{path} is damaged: its description was changed")
    return description, header


def _read_exam(description: dict[str, Any]) -> Exam:
    try:
        exam = exams.from_identity(description.get("exam"))
        check_size(exam)
    except ValueError as error:
        raise BundleError(f"wrong exam: {error}") from None
    if description.get("exam_hash") != exam.hash:
        raise BundleError("wrong exam: its hash does not fit its description")
    return exam


def _read_about(description: dict[str, Any]) -> dict[str, Any]:
    about = description.get("about")
    if not isinstance(about, dict):
        raise BundleError("it does not say whose result it is")
    try:
        check_name(about.get("policy"))
    except ValueError as error:
        raise BundleError(str(error)) from None
    if not isinstance(about.get("sees_rule"), bool):
        raise BundleError("it does not say whether the policy saw the rule")
    return about


def _check_entries(entries: dict[str, Any], exam: Exam) -> int:
    """Refuse arrays other than those of the exam, one after the other; their size in bytes."""
    layout = _layout(exam)
    if set(entries) != set(layout):
        odd = sorted(set(entries) ^ set(layout))[0]
        raise BundleError(f"the array {odd[:40]!r} is missing, or should not be there")
    spans = []
    for name, (dtype, shape) in layout.items():
        entry = entries[name]
        try:
            kind, axes, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        except (TypeError, KeyError, ValueError):
            raise BundleError(f"the array {name!r} is not described") from None
        if kind != _KINDS[dtype.itemsize] or axes != list(shape):
            raise BundleError(
                f"{name} is {str(kind)[:10]} {str(axes)[:60]}, not {dtype} {shape}: "
                "episodes are missing, or there are too many"
            )
        if type(begin) is not int or type(end) is not int:
            raise BundleError(f"the array {name!r} is not described")
        if end - begin != dtype.itemsize * math.prod(shape):
            raise BundleError(f"the array {name!r} is not where its header says, or cut off")
        spans.append((begin, end))
    spans.sort()
    if spans[0][0] != 0 or any(a[1] != b[0] for a, b in pairwise(spans)):
        raise BundleError("the arrays do not fill the file: it was cut off or added to")
    return spans[-1][1]


_KINDS = {1: "U8", 2: "U16", 4: "U32"}
"""What the format calls unsigned integers of so many bytes."""


def _layout(exam: Exam) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
    """Type and shape of every array in a bundle of this exam."""
    num, columns, task = len(exam.rules), exam.num_columns, exam.task
    cell = np.dtype(np.uint8 if task.length <= 256 else np.uint16)
    rule = np.dtype(np.uint8 if task.family.num_rules <= 256 else np.uint32)
    return {
        "rules": (rule, (num,)),
        "tapes": (np.dtype(np.uint32), (columns, space.num_words(task.length))),
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
    arrays = {
        "rules": exam.rules,
        "tapes": tapes,
        "actions": np.where(episodes.cells < 0, 0, episodes.cells),
        "steps": steps,
        "success": episodes.success,
        "final_wrong": episodes.wrong[..., -1],
        "checksum": _checksum(episodes.cells, exam.rules, tapes),
    }
    return {name: array.astype(layout[name][0]) for name, array in arrays.items()}


def _checksum(cells: np.ndarray, rules: np.ndarray, tapes: np.ndarray) -> np.ndarray:
    """uint32 `[R, E]` of rule, start tape and actions `[R, E, H]` (-1 after the end)."""
    words = [rules.astype(np.uint32)[:, None], *tapes.T[:, None]]
    return seeding.hash32(*words, *(np.moveaxis(cells, -1, 0) + np.int16(1)).astype(np.uint32))


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


def replay(actions: Integer[np.ndarray, "R E H"], exam: Exam, name: str) -> Episodes:
    """Play actions in the vector environment; those after an episode's end are not
    looked at."""
    cells = actions.reshape(-1, exam.task.horizon)
    again = policy.Policy(
        name,
        lambda rule, num: 0,
        lambda t, obs, stream: (t + 1, cells[:, t].astype(np.int64)),
        backend="numpy",
        sees_rule=False,
    )
    sitting = prepare(again, exam.task, None, exam.num_columns, salt=exam.salt)
    rows = np.arange(sitting.num)
    return replace(sitting.episodes([(rows, sitting.play(rows))]), trials=exam.trials)


def _compare(claimed: dict[str, np.ndarray], replayed: dict[str, np.ndarray], exam: Exam) -> None:
    for name, what in (
        ("success", "claims another outcome than its actions have"),
        ("steps", "claims another number of steps than its actions take"),
        ("final_wrong", "claims another final distance than its actions lead to"),
        ("checksum", "its actions are not the ones it was written with"),
        ("actions", "has actions after its end"),
    ):
        apart = np.asarray(claimed[name] != replayed[name])
        differs = apart.reshape(*claimed["steps"].shape, -1).any(axis=-1)
        if differs.any():
            raise BundleError(
                f"{_where(differs, exam)}: {what} ({int(differs.sum())} such episodes)"
            )


def _where(flags: Any, exam: Exam) -> str:
    row, column = np.argwhere(flags)[0]
    return f"rule {exam.task.family.label(int(exam.rules[row]))}, episode {column}"
