"""Results that last: run directories, tables, checkpoints, and queries over many runs.

A run is a directory named by its id, `main/dqn/fps30/s07`:

    spec.json         what was asked; a run started again must be asked the same
    provenance.json   versions, machine, revision, wall-clock
    eval.parquet      one row per episode, at the checkpoints that count
    curve.parquet     means per rule, at every checkpoint
    train.parquet     what training reported
    checkpoints/      arrays (safetensors) and a manifest (JSON)
    summary.json      the run in a few numbers
    done.json         the marker: names, sizes and hashes of the files above

Every file is written aside and renamed, so it is the old one or the whole new one. The marker comes
last: a run without it is unfinished and no reader counts it. One writer at a time holds the
directory's lock, which the system lets go of when the writer dies.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import re
import secrets
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

import tapebench

SCHEMA = 1
MARKER = "done.json"
MAX_JSON = 16 << 20
MAX_CHECKPOINT = 4 << 30

Table = Mapping[str, np.ndarray]
"""Columns of equal length by name."""

_FILE = re.compile(
    r"(spec|provenance|summary|done)\.json|(eval|curve|train)\.parquet|log\.txt"
    r"|checkpoints/[0-9]{12}\.(json|safetensors)"
)
"""Files of a run that travel from one directory to another."""

_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,79}")


class BusyError(ValueError):
    """Another process is writing this run."""


@dataclass(frozen=True, order=True)
class RunId:
    """Which run: experiment, agent, split and training seed."""

    experiment: str
    agent: str
    split: str
    seed: int

    def __post_init__(self) -> None:
        for name in ("experiment", "agent", "split"):
            part = getattr(self, name)
            if not _PART.fullmatch(part):
                raise ValueError(
                    f"{name} {part!r} cannot name a directory: use letters, digits and . _ + -"
                )
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"a seed is an integer from 0 to {2**32 - 1}, not {self.seed}")

    def __str__(self) -> str:
        return f"{self.experiment}/{self.agent}/{self.split}/s{self.seed:02d}"


@dataclass(frozen=True)
class Run:
    """One run's directory, open for writing. Get it from `open_run`."""

    path: Path
    spec: dict[str, Any]

    @property
    def is_done(self) -> bool:
        return (self.path / MARKER).is_file()

    def write(self, name: str, table: Table) -> None:
        """Replace a table: `eval`, `curve` or `train`."""
        write_table(self.path / f"{name}.parquet", table)

    def extend(self, name: str, table: Table) -> None:
        """Add the rows of a checkpoint to a table; rows from that step on are replaced.

        A run that was killed and goes on from an earlier checkpoint writes its later rows again,
        so what is there beyond the checkpoint does not count.
        """
        path = self.path / f"{name}.parquet"
        if path.is_file():
            known = read_table(path)
            keep = known["step"] < table["step"].min()
            table = {key: np.concatenate([known[key][keep], table[key]]) for key in table}
        write_table(path, table)

    def read(self, name: str) -> dict[str, np.ndarray]:
        """A table as it was last written."""
        return read_table(self.path / f"{name}.parquet")

    def save_checkpoint(self, step: int, arrays: Table, about: Mapping[str, Any]) -> None:
        """Write a training state; older ones are dropped once it is there.

        `about` is what must be the same for a checkpoint to be of use (agent, configuration,
        versions): `load_checkpoint` compares it.
        """
        from safetensors.numpy import save

        place = self.path / "checkpoints"
        place.mkdir(exist_ok=True)
        data = save({name: np.asarray(array, order="C") for name, array in arrays.items()})
        name = f"{step:012d}"
        write_bytes(place / f"{name}.safetensors", data)
        manifest = {
            "schema": SCHEMA,
            "step": step,
            "size": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            "about": dict(about),
        }
        write_json(place / f"{name}.json", manifest)
        for old in place.iterdir():
            if old.name.split(".")[0] < name:
                old.unlink(missing_ok=True)

    def load_checkpoint(
        self, about: Mapping[str, Any] | None = None
    ) -> tuple[int, dict[str, np.ndarray]] | None:
        """The latest complete training state, or None; see `load_checkpoint`."""
        return load_checkpoint(self.path, about)

    def receive(self, files: Mapping[str, bytes]) -> None:
        """Take over what `pack` gave of the same run elsewhere; the marker last, and checked."""
        for name in files:
            if not _FILE.fullmatch(name):
                raise ValueError(f"{name!r} is not a file of a run")
        marker = json.loads(files[MARKER]) if MARKER in files else {"files": {}}
        for name, about in marker["files"].items():
            if hashlib.sha256(files.get(name, b"")).hexdigest() != about["sha256"]:
                raise ValueError(f"{name} of {self.spec['id']} is not what its marker says")
        (self.path / "checkpoints").mkdir(exist_ok=True)
        for name in sorted(files, key=lambda name: (name == MARKER, name)):
            write_bytes(self.path / name, files[name])
        kept = {name.split("/")[1] for name in files if name.startswith("checkpoints/")}
        for old in (self.path / "checkpoints").iterdir():
            if MARKER in files and old.name not in kept:
                old.unlink()

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the summary, then the marker with the hash of every file."""
        write_json(self.path / "summary.json", summary)
        mark(self.path)


@contextmanager
def open_run(
    root: Path, run_id: RunId, spec: Mapping[str, Any], *, anew: bool = False
) -> Iterator[Run]:
    """Hold the run's directory to write into it; `BusyError` if another process does.

    A run that was begun goes on, if it was asked the same: another `spec` is refused. `anew` drops
    what is there.
    """
    path = root / str(run_id)
    path.mkdir(parents=True, exist_ok=True)
    with _lock(path / ".lock", f"another process is writing {run_id}: wait for it, or stop it"):
        if anew:
            # The marker goes first: a run that is being torn down is not done.
            (path / MARKER).unlink(missing_ok=True)
            for file in [
                *path.glob("*.json"),
                *path.glob("*.parquet"),
                *path.glob("checkpoints/*"),
            ]:
                file.unlink()
        _sweep(path)
        wanted = asked(run_id, spec)
        file = path / "spec.json"
        if not file.is_file():
            write_json(file, wanted)
        elif changed := differences(path, run_id, spec):
            raise ValueError(
                f"{run_id} was begun with another {', '.join(changed)}: "
                "choose another experiment name, or start it anew"
            )
        yield Run(path, wanted)


def asked(run_id: RunId, spec: Mapping[str, Any]) -> dict[str, Any]:
    """What `spec.json` of a run holds. Through JSON and back: tuples become lists."""
    return dict(json.loads(json.dumps({"id": str(run_id), **spec})))


def differences(path: Path, run_id: RunId, spec: Mapping[str, Any]) -> list[str]:
    """Names of what the run in `path` was asked otherwise than by `spec`."""
    known, wanted = read_json(path / "spec.json"), asked(run_id, spec)
    return sorted(key for key in known.keys() | wanted.keys() if known.get(key) != wanted.get(key))


def came_to(path: Path) -> str:
    """A short hash of what a finished run came to, by which it is known wherever it is copied."""
    summary = json.dumps(read_json(path / "summary.json"), sort_keys=True)
    return hashlib.sha256(summary.encode()).hexdigest()[:16]


def mark(path: Path) -> None:
    """Write the marker into a run's directory: from now on it is finished."""
    files = {}
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path).as_posix()
        is_ours = file.suffix in (".json", ".parquet", ".safetensors") and name != MARKER
        if is_ours and not file.name.startswith("."):
            files[name] = {"size": file.stat().st_size, "sha256": file_hash(file)}
    write_json(path / MARKER, {"schema": SCHEMA, "files": files})


def pack(path: Path) -> dict[str, bytes]:
    """The files of a run by name, to be carried to another directory."""
    names = [file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()]
    return {name: (path / name).read_bytes() for name in sorted(names) if _FILE.fullmatch(name)}


def load_checkpoint(
    path: Path, about: Mapping[str, Any] | None = None
) -> tuple[int, dict[str, np.ndarray]] | None:
    """The latest complete training state in a run's directory, or None if there is none.

    A file of other size or content than its manifest says is refused, and so is a state whose
    `about` differs.
    """
    place = path / "checkpoints"
    manifests = sorted(place.glob("[0-9]*.json"), reverse=True) if place.is_dir() else []
    if not manifests:
        return None
    file = manifests[0].with_suffix(".safetensors")
    manifest = read_json(manifests[0])
    for key, kind in (
        ("schema", int),
        ("step", int),
        ("size", int),
        ("sha256", str),
        ("about", dict),
    ):
        if not isinstance(manifest.get(key), kind):
            raise ValueError(f"{manifests[0]} is not a checkpoint manifest: it has no {key}")
    if manifest["schema"] != SCHEMA:
        raise ValueError(f"{manifests[0]} is of schema {manifest['schema']}, not {SCHEMA}")
    if about is not None:
        wanted = json.loads(json.dumps(dict(about)))
        for key in sorted(wanted.keys() | manifest["about"].keys()):
            if wanted.get(key) != manifest["about"].get(key):
                raise ValueError(
                    f"the checkpoint in {path} was made with another {key} "
                    f"({manifest['about'].get(key)!r}, not {wanted.get(key)!r}): start the run anew"
                )
    return manifest["step"], _read_tensors(file, manifest["size"], manifest["sha256"])


def _read_tensors(file: Path, size: int, digest: str) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    if not file.is_file():
        raise ValueError(f"{file} is missing: start the run anew")
    if file.stat().st_size != size or size > MAX_CHECKPOINT:
        raise ValueError(f"{file} is damaged: {file.stat().st_size} bytes instead of {size}")
    data = file.read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise ValueError(f"{file} is damaged: its content is not what its manifest says")
    try:
        return dict(load(data))
    except SafetensorError as error:
        raise ValueError(f"{file} is damaged: {error}") from None


def write_bytes(path: Path, data: bytes) -> None:
    """Write aside, then rename: the file is either the old one or the whole new one.

    A full disk or a missing permission is reported as a ValueError that names the file.
    """
    with aside(path) as file:
        file.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """`write_bytes` for text."""
    write_bytes(path, text.encode())


def write_json(path: Path, document: Any) -> None:
    """`write_bytes` for a JSON document."""
    write_text(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """A JSON document of reasonable size."""
    try:
        if path.stat().st_size > MAX_JSON:
            raise ValueError(f"{path} is larger than {MAX_JSON} bytes")
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise ValueError(f"{path} is not valid JSON") from None


def write_table(path: Path, table: Table) -> None:
    """Columns of equal length as a Parquet file."""
    lengths = {name: len(column) for name, column in table.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"columns differ in length: {lengths}")
    columns = {
        name: column.astype(object) if column.dtype.kind == "U" else column
        for name, column in table.items()
    }
    with aside(path) as file, duckdb.connect() as connection:
        connection.register("columns_to_write", columns)
        connection.execute(
            "copy (select * from columns_to_write) to $to (format parquet, compression zstd)",
            {"to": str(file)},
        )


def read_table(path: Path) -> dict[str, np.ndarray]:
    """The columns of a Parquet file. A missing number is nan."""
    try:
        with duckdb.connect() as connection:
            columns = connection.execute(
                "select * from read_parquet($from)", {"from": str(path)}
            ).fetchnumpy()
    except duckdb.Error as error:
        raise ValueError(f"cannot read {path}: {_one_line(error)}") from None
    return {name: _plain(column) for name, column in columns.items()}


def _plain(column: Any) -> np.ndarray:
    if isinstance(column, np.ma.MaskedArray):
        if column.mask.any() and column.dtype.kind in "iub":
            column = column.astype(float)
        column = column.filled(np.nan) if column.dtype.kind == "f" else column.data
    return np.asarray(column)


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """A file beside `path`, of this writer alone, that takes its place if all goes well."""
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
        reason = error.strerror if isinstance(error, OSError) else _one_line(error)
        raise ValueError(f"cannot write {path}: {reason}") from None


def _sweep(path: Path) -> None:
    """Remove what killed writers left aside; the caller holds the lock."""
    for file in [*path.glob(".*.partial"), *path.glob("checkpoints/.*.partial")]:
        file.unlink(missing_ok=True)


@contextmanager
def _lock(path: Path, complaint: str) -> Iterator[None]:
    with path.open("w") as file:
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
        "revision": _revision(),
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


def _revision() -> str | None:
    """The git revision of the source, with a + if it was changed; None outside a checkout."""
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


@dataclass(frozen=True)
class Results:
    """Every finished run under a directory. Get it from `load`."""

    root: Path
    paths: tuple[Path, ...]
    damaged: tuple[str, ...]
    """Runs with a marker whose files are missing or of another size, and what is wrong."""

    @cached_property
    def runs(self) -> list[dict[str, Any]]:
        """Id and summary of every run; nested figures are joined by underscores."""
        found = []
        for path in self.paths:
            spec, summary = read_json(path / "spec.json"), read_json(path / "summary.json")
            experiment, agent, split, seed = spec["id"].split("/")
            head = {
                "run": spec["id"],
                "experiment": experiment,
                "agent": agent,
                "split": split,
                "seed": int(seed[1:]),
            }
            found.append(head | dict(_flat(summary)))
        return found

    def query(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Column names and rows of a read-only query.

        There are the tables `runs` (one row per run), `eval`, `curve` and `train`. Nothing can be
        written, and no file outside the results directory can be read.
        """
        if not self.paths:
            raise ValueError(f"there are no finished runs in {self.root} to ask about")
        try:
            statements = duckdb.extract_statements(sql)
            if len(statements) != 1 or statements[0].type not in _READING:
                raise ValueError("give one select statement: results are read-only")
            with self._connect() as connection:
                cursor = connection.execute(statements[0])
                names = [column[0] for column in cursor.description or ()]
                return names, cursor.fetchall()
        except duckdb.Error as error:
            raise ValueError(_one_line(error)) from None

    def columns(self, sql: str) -> dict[str, np.ndarray]:
        """`query`, column by column."""
        names, rows = self.query(sql)
        return {name: np.array([row[index] for row in rows]) for index, name in enumerate(names)}

    def _connect(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect()
        root = str(self.root.resolve()) + os.sep
        names = sorted({name for run in self.runs for name in run})
        if names:
            columns = {name: _column([run.get(name) for run in self.runs]) for name in names}
            connection.register("given_runs", columns)
            connection.execute("create table runs as select * from given_runs")
        for name in ("eval", "curve", "train"):
            files = [
                str(file) for path in self.paths if (file := path / f"{name}.parquet").is_file()
            ]
            if files:
                listed = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
                connection.execute(
                    f'create view "{name}" as '
                    f"select * from read_parquet([{listed}], union_by_name = true)"
                )
        connection.execute(f"set allowed_directories = ['{root.replace(chr(39), chr(39) * 2)}']")
        connection.execute("set enable_external_access = false")
        connection.execute("set lock_configuration = true")
        return connection


_READING = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)


def load(root: str | Path) -> Results:
    """The finished runs under `root`, whatever their depth; unfinished ones are passed over."""
    root = Path(root)
    if not root.is_dir():
        raise ValueError(f"there is no results directory {root}")
    paths, damaged = [], []
    for place, folders, files in os.walk(root):
        if MARKER in files:
            folders.clear()
            fault = _fault(Path(place))
            if fault is None:
                paths.append(Path(place).resolve())
            else:
                damaged.append(fault)
    return Results(root, tuple(sorted(paths)), tuple(sorted(damaged)))


def _fault(path: Path) -> str | None:
    """What is wrong with a finished run, by its marker; None if nothing is."""
    try:
        marker = read_json(path / MARKER)
        if marker["schema"] != SCHEMA:
            return f"{path}: its marker is of schema {marker['schema']}, not {SCHEMA}"
        for name, about in marker["files"].items():
            file = path / name
            if not file.is_file() or file.stat().st_size != about["size"]:
                return f"{path}: {name} is missing or of another size than its marker says"
        if not {"spec.json", "summary.json"} <= marker["files"].keys():
            return f"{path}: its marker names no spec.json or summary.json"
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return f"{path}: its marker cannot be read ({error})"
    return None


def _flat(document: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}_")
        elif not isinstance(value, Sequence) or isinstance(value, str):
            yield before + key, value


def _column(values: list[Any]) -> np.ndarray:
    """Values of one kind, some of them missing, as an array for a table."""
    present = [value for value in values if value is not None]
    if (
        present
        and all(isinstance(value, bool) for value in present)
        and len(present) == len(values)
    ):
        return np.array(values)
    if all(isinstance(value, (int, float)) for value in present):
        if len(present) == len(values) and all(isinstance(value, int) for value in present):
            return np.array(values, np.int64)
        return np.array([np.nan if value is None else float(value) for value in values])
    return np.array([None if value is None else str(value) for value in values], object)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
