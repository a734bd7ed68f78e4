"""What a dataset says of itself: its manifest, which may come from others."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tapebench.base import files
from tapebench.base.files import DamageError
from tapebench.datasets.collect import COLUMNS
from tapebench.datasets.spec import Spec, read_spec

SCHEMA = 1
MANIFEST = "dataset.json"

MAX_BYTES_PER_STEP = 64
"""A row is at most 39 bytes before it is compressed."""

MINARI_FILES = ("data/main_data.hdf5", "data/metadata.json")

_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class File:
    """A file of a dataset, as the manifest has it."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Table(File):
    """One that holds steps."""

    rows: int
    content: str
    """Hash of the columns themselves, whatever version of DuckDB has written them."""


@dataclass(frozen=True)
class Manifest:
    """What a dataset says of itself. From `read_manifest` it is well-formed, and no more."""

    spec: Spec
    tables: tuple[Table, ...]
    extra: tuple[File, ...] = ()
    """What else belongs to it: the files for Minari."""

    @property
    def steps(self) -> int:
        """Steps of all episodes."""
        return sum(table.rows for table in self.tables)

    @property
    def size(self) -> int:
        """Bytes of all files that are listed."""
        return sum(file.size for file in (*self.tables, *self.extra))

    @property
    def content(self) -> str:
        """Hash of all columns: the identity of the data."""
        return joint_hash([table.content for table in self.tables])

    def as_dict(self) -> dict[str, Any]:
        """The manifest as JSON."""
        return {
            "schema": SCHEMA,
            "id": self.spec.id,
            "spec": self.spec.as_dict(),
            "steps": self.steps,
            "content": self.content,
            "columns": {name: str(kind) for name, kind in COLUMNS.items()},
            "tables": [asdict(table) for table in self.tables],
            "extra": [asdict(file) for file in self.extra],
        }


def joint_hash(contents: Sequence[str]) -> str:
    """The hash of a dataset's content, from those of its files."""
    return hashlib.sha256("".join(contents).encode()).hexdigest()


def table_name(number: int) -> str:
    """How a file of steps is called."""
    return f"steps-{number:05d}.parquet"


def read_manifest(path: Path) -> Manifest:
    """The manifest of a dataset, which may come from others: `DamageError` if it is not sound."""
    if not path.is_dir():
        raise DamageError(f"there is no dataset {path}")
    document = files.read_object(path / MANIFEST)
    if document.get("schema") != SCHEMA:
        raise DamageError(f"{path} is no dataset of schema {SCHEMA}")
    try:
        spec = read_spec(document.get("spec"))
        tables = tuple(Table(**entry) for entry in document["tables"])
        extra = tuple(File(**entry) for entry in document["extra"])
        names = [table_name(number) for number in range(spec.num_files)]
        is_sound = (
            [table.name for table in tables] == names
            and [file.name for file in extra] in ([], list(MINARI_FILES))
            and all(type(file.size) is int and file.size > 0 for file in (*tables, *extra))
            and all(_HASH.fullmatch(file.sha256) for file in (*tables, *extra))
            and all(_HASH.fullmatch(table.content) for table in tables)
            and all(type(table.rows) is int for table in tables)
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DamageError(f"{path}: its manifest is malformed: {files.one_line(error)}") from None
    if not is_sound:
        raise DamageError(f"{path}: its manifest lists files that are not those of its episodes")
    for number, table in enumerate(tables):
        first, last = spec.episodes_of(number)
        if not last - first <= table.rows <= (last - first) * spec.horizon:
            raise DamageError(f"{path}: {table.name} cannot have {table.rows} steps")
        if table.size > MAX_BYTES_PER_STEP * table.rows + (1 << 16):
            raise DamageError(f"{path}: {table.name} is too large for {table.rows} steps")
    manifest = Manifest(spec, tables, extra)
    if document != manifest.as_dict():
        raise DamageError(f"{path}: its manifest contradicts itself")
    return manifest
