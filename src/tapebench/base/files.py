"""Files that are whole or absent: atomic writes, checked reads, locks, and provenance."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import secrets
import stat
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import numpy as np

import tapebench

MAX_JSON = 16 << 20

Value = TypeVar("Value")

Columns = Mapping[str, np.ndarray]
"""Columns of equal length by name."""

PARQUET = b"PAR1"
"""What a Parquet file begins and ends with."""


class BusyError(ValueError):
    """Another process is writing this run."""


class DamageWarning(UserWarning):
    """A run was left out because it is damaged or has diverged; the message names it."""


class DamageError(ValueError):
    """A file is not what was written: cut short, changed, or of another kind."""


def refuse_links(path: Path) -> None:
    """Refuse to write into a run that is a symbolic link, or holds any.

    Through one, files elsewhere would be emptied, extended or deleted. Directories above a run may
    be links: results may live on another disk.
    """
    inside = (*path.glob("*"), *path.glob(".*"), *path.glob("checkpoints/*"))
    for file in (path, *inside):
        if file.is_symlink():
            raise ValueError(f"{file} is a symbolic link: runs are not written through links")


def write_bytes(path: Path, data: bytes) -> None:
    """Write aside, then rename: the file is either the old one or the whole new one.

    A full disk or a missing permission is reported as a ValueError that names the file.
    """
    with aside(path) as file, file.open("xb") as written:
        written.write(data)


def write_text(path: Path, text: str) -> None:
    """`write_bytes` for text."""
    write_bytes(path, text.encode())


def write_json(path: Path, document: Any) -> None:
    """`write_bytes` for a JSON document."""
    write_text(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """A JSON document of reasonable size; `DamageError` if it is none."""
    try:
        status = path.stat()
        # A pipe would be waited for, and a device may have no end.
        if not stat.S_ISREG(status.st_mode):
            raise DamageError(f"{path} is not a regular file")
        if status.st_size > MAX_JSON:
            raise DamageError(f"{path} is larger than {MAX_JSON} bytes")
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise DamageError(f"there is no file {path}") from None
    except OSError as error:
        raise DamageError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, DamageError):
            raise
        raise DamageError(f"{path} is not valid JSON") from None


def read_object(path: Path) -> dict[str, Any]:
    """`read_json` of a document that has to be an object."""
    document = read_json(path)
    if not isinstance(document, dict):
        raise DamageError(f"{path} does not hold a JSON object")
    return document


@cache
def _database(process: int) -> duckdb.DuckDBPyConnection:
    """What reads and writes the tables of a process. To open one takes longer than most tables."""
    return duckdb.connect(config={"enable_external_file_cache": False})


def write_table(path: Path, table: Columns) -> None:
    """Columns of equal length as a Parquet file."""
    lengths = {name: len(column) for name, column in table.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"columns differ in length: {lengths}")
    columns = {
        name: column.astype(object) if column.dtype.kind == "U" else column
        for name, column in table.items()
    }
    with aside(path) as file, _database(os.getpid()).cursor() as connection:
        connection.register("columns_to_write", columns)
        connection.execute(
            "copy (select * from columns_to_write) to $to (format parquet, compression zstd)",
            {"to": str(file)},
        )


def read_table(path: Path) -> dict[str, np.ndarray]:
    """The columns of a Parquet file. A missing number is nan."""
    if not path.is_file():
        raise DamageError(f"there is no table {path}")
    try:
        with _database(os.getpid()).cursor() as connection:
            columns = connection.execute(f"select * from {parquet_source([path])}").fetchnumpy()
    except duckdb.Error as error:
        raise DamageError(f"cannot read {path}: {one_line(error)}") from None
    return {name: _plain(column) for name, column in columns.items()}


def table_schema(path: Path) -> tuple[int, dict[str, str]]:
    """How many rows a Parquet file says that it has, and the SQL type of each column.

    Only its footer is read, so this comes before `read_table` where a file is not trusted.
    """
    try:
        with _database(os.getpid()).cursor() as connection:
            footer = f"parquet_file_metadata({_quoted(str(path))})"
            (rows,) = connection.execute(f"select num_rows from {footer}").fetchone() or (0,)
            source = parquet_source([path])
            described = connection.execute(f"describe select * from {source}").fetchall()
    except duckdb.Error as error:
        raise DamageError(f"cannot read {path}: {one_line(error)}") from None
    return int(rows), {name: kind for name, kind, *_ in described}


def _plain(column: Any) -> np.ndarray:
    if isinstance(column, np.ma.MaskedArray):
        if column.mask.any() and column.dtype.kind in "iub":
            column = column.astype(float)
        column = column.filled(np.nan) if column.dtype.kind == "f" else column.data
    return np.asarray(column)


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """A temporary file next to `path`, of this writer alone, that replaces it on success."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        try:
            yield partial
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except (OSError, duckdb.IOException) as error:
        reason = error.strerror if isinstance(error, OSError) else one_line(error)
        raise ValueError(f"cannot write {path}: {reason}") from None


def remove_partial_files(path: Path) -> None:
    """Remove what killed writers left aside; the caller holds the lock."""
    for file in [*path.glob(".*.partial"), *path.glob("checkpoints/.*.partial")]:
        file.unlink(missing_ok=True)


@contextmanager
def lock(path: Path, complaint: str) -> Iterator[None]:
    """Hold a file's lock, or raise `BusyError` with this complaint if somebody else does."""
    # Neither emptied nor followed: it might be a link to somebody's file.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o666), "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(complaint) from None
        yield


def file_hash(path: Path) -> str:
    """SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def user_cache() -> Path:
    """Where what can be made again is kept from one program to the next."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tapebench"


def remember(
    name: str, compute: Callable[[], dict[str, Any]], parse: Callable[[dict[str, Any]], Value]
) -> Value:
    """What `parse` makes of a document in the user's cache, which is computed if it is not there.

    `parse` refuses a document that is not whole. A cache that is damaged, or cannot be written,
    costs time and no result.
    """
    place = user_cache() / name
    with suppress(ValueError, KeyError, TypeError, OSError):
        return parse(read_object(place))
    document = compute()
    with suppress(ValueError, OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        write_json(place, document)
    return parse(document)


def provenance(seconds: float | None = None) -> dict[str, Any]:
    """Where and with what a result was made. `seconds` is its wall-clock time."""
    packages = ("numpy", "jax", "jaxlib", "equinox", "optax", "scipy", "torch")
    versions = {}
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "versions": {
            "tapebench": tapebench.__version__,
            "python": platform.python_version(),
            **versions,
        },
        "machine": {
            "system": platform.system(),
            "architecture": platform.machine(),
            "processor": _processor(),
            "cores": os.cpu_count(),
        },
        "revision": revision(),
        "seconds": None if seconds is None else round(seconds, 3),
    }


def _processor() -> str:
    """The processor's name; results are the same to the bit only on the same instruction set."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(
            line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        return platform.processor()


@cache
def revision() -> str | None:
    """The git revision of the source, with a + if it was changed; None outside a checkout.

    Read once per process: imported code does not change with the files.
    """
    command = ["git", "-C", str(Path(__file__).parent)]
    try:
        head = subprocess.run(
            [*command, "rev-parse", "HEAD"], capture_output=True, text=True, check=True, timeout=10
        )
        changed = subprocess.run(
            [*command, "status", "--porcelain", "--untracked-files=no"],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")


def parquet_source(files: Sequence[str | Path]) -> str:
    """Parquet files as what SQL selects from.

    A directory called `seed=3` somewhere above them is a name like any other.
    """
    listed = ", ".join(_quoted(str(file)) for file in files)
    return f"read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"


def _quoted(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"


def one_line(error: BaseException) -> str:
    """What an error says, in one line of reasonable length."""
    return " ".join(str(error).split())[:300]
