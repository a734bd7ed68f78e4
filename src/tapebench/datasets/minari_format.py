"""The same episodes for Minari (extra `data`), next to the Parquet files.

The layout is that of Minari's HDF5 storage, written here directly: a few times as fast as by way of
its buffers, a fifth as large, and without the times that HDF5 notes by itself, so that the same
dataset gives the same bytes from the same versions of h5py and Minari.

`ref_min_score` and `ref_max_score` are exact: what random play and play that knows the rule can
reach in the evaluation environment, which pays one for a success under a held-out rule. There a
normalised score says how far from chance to the ceiling an agent has come.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import tapebench
from tapebench.base import files
from tapebench.datasets.manifest import MINARI_FILES, Manifest
from tapebench.datasets.read import Dataset, load
from tapebench.datasets.spec import Spec
from tapebench.datasets.store import Progress, add_files
from tapebench.physics import exact, space
from tapebench.tasks import splits

ENVIRONMENT = "Tape-v1"

_AT_ONCE = 1 << 14
"""Episodes that are unpacked at a time."""


def export(path: Path, manifest: Manifest, progress: Progress) -> Manifest:
    """Add the files for Minari to a dataset that does not have them, or damaged ones."""
    check_installed()
    if manifest.extra:
        return manifest
    partial, folder = path / ".data.partial", path / "data"
    for left in (partial, folder):
        shutil.rmtree(left, ignore_errors=True)
    partial.mkdir()
    data = load(path)
    _write_episodes(partial / "main_data.hdf5", data, progress)
    size = (partial / "main_data.hdf5").stat().st_size
    files.write_json(partial / "metadata.json", _metadata(manifest, size))
    partial.rename(folder)
    for namespace in (path.parent, path.parent.parent):
        if not (namespace / "namespace_metadata.json").exists():
            files.write_json(namespace / "namespace_metadata.json", {})
    return add_files(path, manifest, MINARI_FILES)


def check_installed() -> None:
    """Refuse to begin without the extra."""
    try:
        import h5py  # noqa: F401
        import minari  # noqa: F401
    except ImportError:
        raise ValueError(
            "datasets for Minari need minari and h5py: pip install 'tapebench[data]'"
        ) from None


def environment(spec: Spec, side: str, reward: str) -> gymnasium.envs.registration.EnvSpec:
    """The environment under the rules of one side, as Gymnasium makes it of its id and options."""
    is_named = spec.split.name in splits.all_names()
    chosen: dict[str, Any] = (
        {"split": spec.split.name, "rules": side}
        if is_named
        else {"rules": list(splits.select(spec.split, side))}
    )
    options = {"length": spec.length, "horizon": spec.horizon, **chosen, "reward": reward}
    registered = gymnasium.spec(ENVIRONMENT)
    return replace(registered, kwargs=registered.kwargs | options)


def _metadata(manifest: Manifest, size: int) -> dict[str, Any]:
    import minari
    from minari.serialization import serialize_space

    spec = manifest.spec
    shape = (spec.task.observation_size,)
    return {
        "total_episodes": spec.episodes,
        "total_steps": manifest.steps,
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "observation_space": serialize_space(gymnasium.spaces.Box(0.0, 1.0, shape, np.float32)),
        "action_space": serialize_space(gymnasium.spaces.Discrete(spec.length)),
        "env_spec": environment(spec, "train", spec.task.reward).to_json(),
        "eval_env_spec": environment(spec, "test", "sparse").to_json(),
        "dataset_id": spec.id,
        "algorithm_name": spec.behaviour,
        "author": ["The tapebench authors"],
        "description": f"{spec.plays.about}, under the training rules of {spec.split.name}",
        "requirements": [f"tapebench>={tapebench.__version__}"],
        "minari_version": minari.__version__,
        "dataset_size": round(size / 1e6, 1),
        **_reference_scores(spec),
    }


def _reference_scores(spec: Spec) -> dict[str, float]:
    """Mean success under the held-out rules of random play and of the exact ceiling, if known."""
    rules, size = spec.split.test, (spec.length, spec.horizon)
    scores = {}
    if spec.is_labelled:
        chances = [exact.chance_of_success(rule, *size, "random") for rule in rules]
        scores["ref_min_score"] = sum(chances) / len(rules)
        solved = exact.reach_all(rules, *size)
    else:
        try:
            solved = exact.shipped_ceilings(*size)
        except ValueError:
            solved = {}
    if set(rules) <= set(solved):
        total = sum(solved[rule].solvable_excluding_goal for rule in rules)
        scores["ref_max_score"] = total / len(rules)
    return scores


def _write_episodes(path: Path, data: Dataset, progress: Progress) -> None:
    """A group for each episode, as Minari's storage has them, in small contiguous arrays."""
    from h5py import h5a, h5d, h5f, h5g, h5p, h5s, h5t

    access = h5p.create(h5p.FILE_ACCESS)
    access.set_libver_bounds(h5f.LIBVER_V18, h5f.LIBVER_V110)
    plists = [h5p.create(kind) for kind in (h5p.FILE_CREATE, h5p.GROUP_CREATE, h5p.DATASET_CREATE)]
    for plist in plists:
        plist.set_obj_track_times(False)
    creation, group, array = plists
    array.set_layout(h5d.COMPACT)
    scalar = h5s.create(h5s.SCALAR)
    types = {
        np.dtype(kind): h5t.py_create(np.dtype(kind), logical=True)
        for kind in ("f4", "i8", "u4", "i2", "u1", "?")
    }
    file = h5f.create(str(path).encode(), h5f.ACC_EXCL, creation, access)

    def write(place: Any, name: bytes, values: np.ndarray) -> None:
        values = np.ascontiguousarray(values)
        extent = h5s.create_simple(values.shape)
        h5d.create(place, name, types[values.dtype], extent, array).write(h5s.ALL, h5s.ALL, values)

    def note(place: Any, name: bytes, values: Any, kind: str) -> None:
        values = np.asarray(values, kind)
        extent = h5s.create_simple(values.shape) if values.ndim else scalar
        h5a.create(place, name, types[values.dtype], extent).write(values)

    try:
        for begin in range(0, len(data), _AT_ONCE):
            rows = slice(begin, min(begin + _AT_ONCE, len(data)))
            observations = data.observations(rows)
            starts = space.unpack(data.tape[rows, :1], data.spec.length)
            for row, (seen, start) in enumerate(zip(observations, starts, strict=True), begin):
                steps = int(data.num_steps[row])
                ends = np.arange(1, steps + 1) == steps
                episode = h5g.create(file, f"episode_{row}".encode(), gcpl=group)
                note(episode, b"id", row, "i8")
                note(episode, b"total_steps", steps, "i8")
                # What reset(options=...) takes, so that the episode can be played again.
                note(episode, b"options/rule", data.rule[row], "i8")
                note(episode, b"options/tape", start, "u1")
                write(episode, b"observations", seen[: steps + 1])
                write(episode, b"actions", data.action[row, :steps].astype(np.int64))
                write(episode, b"rewards", data.reward[row, :steps])
                write(episode, b"terminations", ends)
                write(episode, b"truncations", np.zeros(steps, bool))
                labels = h5g.create(episode, b"infos", gcpl=group)
                write(labels, b"optimal_cells", data.optimal_cells[row, :steps])
                write(labels, b"optimal_steps", data.optimal_steps[row, :steps])
                write(labels, b"entropy", data.entropy[row, :steps])
            progress(f"{data.spec.id} for Minari", rows.stop, len(data))
    finally:
        file.close()
