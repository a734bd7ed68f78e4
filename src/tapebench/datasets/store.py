"""Datasets on disk: a directory of Parquet files with a manifest, made in one go or not at all.

A dataset is a directory named by its id, `tape/core-folds-0/optimal-v0`, under DIR/data:

    steps-00000.parquet   a row per step, in order; about 262,144 steps in each file
    croissant.json        what it is, for machines: Croissant with the responsible-AI fields
    dataset.json          the manifest: what it is of, and names, sizes and hashes of the files
    data/                 the same for Minari, if that was asked for

It is made in a hidden directory next to its place and renamed when it is whole. What was finished
of an interrupted one is kept, and taken up again. DIR/data is also where Minari finds datasets, as
its `MINARI_DATASETS_PATH`.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np

import tapebench
from tapebench.base import files
from tapebench.base.files import DamageError
from tapebench.datasets import croissant
from tapebench.datasets.collect import COLUMNS, collect
from tapebench.datasets.manifest import (
    MANIFEST,
    File,
    Manifest,
    Table,
    read_manifest,
    table_name,
)
from tapebench.datasets.spec import Spec

CROISSANT = "croissant.json"
FOLDER = "data"
"""Where datasets are, below a results directory."""

_SQL_TYPES = {
    "uint8": "UTINYINT",
    "uint16": "USMALLINT",
    "uint32": "UINTEGER",
    "int16": "SMALLINT",
    "float32": "FLOAT",
    "bool": "BOOLEAN",
}

Progress = Callable[[str, int, int], None]
"""Called with the name of a stage, how much of it is done, and how much there is."""


def place(root: Path, spec: Spec) -> Path:
    """Where a dataset is under a results directory."""
    return root / FOLDER / spec.id


def make(
    spec: Spec, root: Path, progress: Progress = lambda stage, done, total: None
) -> tuple[Path, Manifest]:
    """Make a dataset under a results directory, unless it is there already."""
    path = place(root, spec)
    if path.exists():
        manifest = read_manifest(path)
        if manifest.spec != spec:
            raise ValueError(
                f"{path} has {manifest.spec.episodes:,} episodes, of a split with the hash "
                f"{manifest.spec.split.hash}: remove it, or choose another --results or --seed"
            )
        return path, manifest
    partial = path.with_name(f".{path.name}.partial")
    partial.mkdir(parents=True, exist_ok=True)
    files.refuse_links(partial)
    with files.lock(partial / ".lock", f"{spec.id} is being made by another process"):
        _begin(partial, spec)
        tables = []
        for number in range(spec.num_files):
            tables.append(_make_table(partial, spec, number))
            progress(spec.id, spec.episodes_of(number)[1], spec.episodes)
        manifest = Manifest(spec, tuple(tables))
        _describe(partial, manifest)
        (partial / _BEGUN).unlink()
        (partial / ".lock").unlink()
        partial.rename(path)
    return path, manifest


_BEGUN = "begun.json"
"""In an unfinished dataset: what it is of and what makes it."""


def _begin(partial: Path, spec: Spec) -> None:
    """Keep what an interrupted attempt at the very same has finished, and nothing else."""
    begun = {
        "spec": spec.as_dict(),
        "tapebench": tapebench.__version__,
        "duckdb": duckdb.__version__,
    }
    try:
        is_same = files.read_json(partial / _BEGUN) == begun
    except DamageError:
        is_same = False
    for file in partial.iterdir():
        if file.name != ".lock" and not (is_same and _TABLE.fullmatch(file.name)):
            shutil.rmtree(file) if file.is_dir() else file.unlink()
    files.write_json(partial / _BEGUN, begun)


def _make_table(partial: Path, spec: Spec, number: int) -> Table:
    path = partial / table_name(number)
    if not path.exists():
        files.write_table(path, collect(spec, *spec.episodes_of(number)))
    columns = files.read_table(path)
    return Table(
        path.name,
        path.stat().st_size,
        files.file_hash(path),
        len(columns["step"]),
        content_hash(columns),
    )


def _describe(path: Path, manifest: Manifest) -> None:
    """Write what is derived from the manifest, then the manifest."""
    files.write_json(path / CROISSANT, croissant.describe(manifest))
    files.write_json(path / MANIFEST, manifest.as_dict())


def add_files(path: Path, manifest: Manifest, names: tuple[str, ...]) -> Manifest:
    """Put files that were added to a dataset into its manifest."""
    extra = (
        File(name, (path / name).stat().st_size, files.file_hash(path / name)) for name in names
    )
    manifest = replace(manifest, extra=tuple(extra))
    files.write_json(path / MANIFEST, manifest.as_dict())
    return manifest


def content_hash(columns: Mapping[str, np.ndarray]) -> str:
    """Hash of columns: their values as little-endian bytes, in the order of `COLUMNS`."""
    digest = hashlib.sha256()
    for name, kind in COLUMNS.items():
        digest.update(np.ascontiguousarray(columns[name], kind.newbyteorder("<")).tobytes())
    return digest.hexdigest()


_TABLE = re.compile(r"steps-[0-9]{5}\.parquet")


def check_file(path: Path, file: File) -> None:
    """Refuse a file that is not what the manifest says."""
    place = path / file.name
    if place.is_symlink() or not place.is_file():
        raise DamageError(f"there is no file {place}")
    if place.stat().st_size != file.size:
        raise DamageError(f"{place} has {place.stat().st_size} bytes, not {file.size}")
    if files.file_hash(place) != file.sha256:
        raise DamageError(f"{place} is not what the manifest says: its hash differs")


def read_columns(path: Path, manifest: Manifest, number: int) -> dict[str, np.ndarray]:
    """The columns of a file, whose size, hash, rows and types are what the manifest says."""
    table = manifest.tables[number]
    check_file(path, table)
    place = path / table.name
    rows, kinds = files.table_schema(place)
    wanted = {name: _SQL_TYPES[str(kind)] for name, kind in COLUMNS.items()}
    if kinds != wanted:
        odd = next(iter(set(kinds.items()) ^ set(wanted.items())), ("columns", ""))[0]
        raise DamageError(f"{place} has other columns than a dataset: see {str(odd)[:40]!r}")
    if rows != table.rows:
        raise DamageError(f"{place} has {rows} rows, not {table.rows}")
    columns = files.read_table(place)
    for name, kind in COLUMNS.items():
        column = columns[name]
        # A missing number comes as nan, and turns a column of integers into floats.
        if column.dtype != kind or len(column) != rows or np.isnan(column).any():
            raise DamageError(f"{place}: values are missing in {name}")
    _check_order(columns, manifest.spec, number, place)
    return columns


def _check_order(columns: files.Columns, spec: Spec, number: int, place: Path) -> None:
    """Refuse rows that are not those of the file's episodes, each from its first step to its last.

    After this episodes and steps can be indexed by.
    """
    first, last = spec.episodes_of(number)
    episode, step = columns["episode"].astype(int), columns["step"].astype(int)
    is_first = step == 0
    is_last = np.append(is_first[1:], True)
    follows = np.where(is_first[1:], 0, step[:-1] + 1) == step[1:]
    is_over = columns["success"] | (step == spec.horizon - 1)
    is_sound = (
        np.append(is_first[:1], follows)
        & (episode == first - 1 + np.cumsum(is_first))
        & (episode < last)
        & (step < spec.horizon)
        & (columns["terminated"] == is_last)
        & (is_over == is_last)
        & (columns["history"] == episode // spec.plays.history)
        & (columns["trial"] == episode % spec.plays.history)
    )
    if not is_sound.all():
        row = int(np.flatnonzero(~is_sound)[0])
        raise DamageError(f"{place}: row {row} is not the next step of its episodes")
    if episode[-1] != last - 1:
        raise DamageError(f"{place} ends with episode {episode[-1]}, not {last - 1}")


def find(root: Path) -> Iterator[Path]:
    """The datasets under a results directory, in the order of their names."""
    yield from sorted(
        file.parent
        for file in (root / FOLDER).glob(f"tape/*/*/{MANIFEST}")
        if not file.parent.name.startswith(".")
    )
