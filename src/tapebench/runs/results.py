"""Many runs at once: what is finished below a directory, and queries over it."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import numpy as np

from tapebench.base import frames
from tapebench.base.files import one_line, parquet_source, read_object
from tapebench.runs.store import TABLES, damage, has_marker, parse_id, remedy

T = TypeVar("T")


@dataclass(frozen=True)
class Damage:
    """A run that cannot be counted, or a directory that cannot be read."""

    path: Path
    reason: str
    remedy: str
    """What to do about it, as a clause."""
    problem: str = "is damaged"

    def __str__(self) -> str:
        return f"{self.path} {self.problem} ({self.reason}) and left out: {self.remedy}"


@dataclass(frozen=True)
class Results:
    """Every finished run under a directory. Get it from `load_results`."""

    root: Path
    paths: tuple[Path, ...]
    damaged: tuple[Damage, ...] = ()
    """Runs with a marker that are not what it says."""
    diverged: tuple[Damage, ...] = ()
    """Runs whose weights are not finite: what they chose means nothing, so they do not count."""
    unfinished: tuple[Path, ...] = ()
    """Runs that were begun and have no marker."""

    @property
    def left_out(self) -> tuple[Damage, ...]:
        """Finished runs that do not count."""
        return (*self.damaged, *self.diverged)

    @cached_property
    def runs(self) -> list[dict[str, Any]]:
        """Id and summary of every run; nested figures are joined by underscores."""
        rows = []
        for path in self.paths:
            run = parse_id(read_object(path / "spec.json").get("id"))
            head = {"run": str(run), **asdict(run)}
            rows.append(head | dict(_flat(read_object(path / "summary.json"))))
        return rows

    @property
    def run_columns(self) -> dict[str, np.ndarray]:
        """`runs`, column by column."""
        names = sorted({name for run in self.runs for name in run})
        return {name: frames.column([run.get(name) for run in self.runs]) for name in names}

    def to_pandas(self) -> Any:
        """`runs` as a `pandas.DataFrame`."""
        return frames.to_pandas(self.run_columns)

    def to_polars(self) -> Any:
        """`runs` as a `polars.DataFrame`."""
        return frames.to_polars(self.run_columns)

    def query(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Column names and rows of a read-only query.

        There are the tables `runs` (one row per run), `eval`, `curve` and `train`. They are loaded
        first; then the connection is cut off from all files, so that nothing can be written or
        read, whatever the statement says. Ctrl-C ends any query.
        """
        if not self.paths:
            raise ValueError(f"there are no finished runs in {self.root} to query")
        try:
            statements = duckdb.extract_statements(sql)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise ValueError("give one select statement: results are read-only")
            with duckdb.connect() as connection:
                return _interruptible(connection, lambda: self._execute(connection, statements[0]))
        except duckdb.CatalogException as error:
            unknown = re.search(r"Table with name (\S+) does not exist", str(error))
            message = self._no_table(unknown[1]) if unknown else one_line(error)
            raise ValueError(message) from None
        except duckdb.Error as error:
            raise ValueError(one_line(error)) from None

    def _no_table(self, name: str) -> str:
        """Message that lists the tables, and says why this one is missing."""
        held = [table for table in TABLES if self._files(table)]
        message = f"there is no table {name}: there are {', '.join(['runs', *held])}"
        if name in TABLES:
            message += (
                f"; none of these runs holds a {name}.parquet, as those that come with the package "
                "do not: runs made by tape bench or tape train do"
            )
        return message

    def _files(self, table: str) -> list[str]:
        files = (path / f"{table}.parquet" for path in self.paths)
        return [str(file) for file in files if file.is_file()]

    def columns(self, sql: str) -> dict[str, np.ndarray]:
        """`query`, column by column."""
        names, rows = self.query(sql)
        return {name: np.array([row[index] for row in rows]) for index, name in enumerate(names)}

    def _execute(
        self, connection: duckdb.DuckDBPyConnection, statement: Any
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        connection.execute("set temp_directory = ''")
        text = statement.query.lower()
        for name in ("runs", *TABLES):
            if name in text:
                self._load_table(connection, name)
        connection.execute("set enable_external_access = false")
        connection.execute("set lock_configuration = true")
        cursor = connection.execute(statement)
        return [column[0] for column in cursor.description or ()], cursor.fetchall()

    def _load_table(self, connection: duckdb.DuckDBPyConnection, name: str) -> None:
        if name == "runs":
            connection.register("given_runs", self.run_columns)
            connection.execute("create table runs as select * from given_runs")
            connection.unregister("given_runs")
            return
        files = self._files(name)
        if not files:
            return
        rows = f"from {parquet_source(files)}"
        selection = "*"
        if name != "train":
            described = connection.execute(f"describe select * {rows}").fetchall()
            is_named = "seating" in {column[0] for column in described}
            # Rows that do not name their seating are of the first.
            selection = (
                "* replace (coalesce(seating, 1) as seating)"
                if is_named
                else "*, 1::tinyint as seating"
            )
        connection.execute(f'create table "{name}" as select {selection} {rows}')


def load_results(root: str | Path, *, thorough: bool = False) -> Results:
    """The finished runs under `root`, whatever their depth; for `thorough` see `damage`.

    Links to directories are followed, each directory once. What cannot be read is `damaged`.
    """
    root = Path(root)
    if not root.is_dir():
        raise ValueError(f"there is no results directory {root}")
    paths, damaged, diverged, unfinished = [], [], [], []
    seen: set[tuple[int, int]] = set()

    def refuse(error: OSError) -> None:
        path = Path(error.filename)
        remedy = f"chmod -R u+rX {shlex.quote(str(path))} may give you the permission"
        damaged.append(Damage(path, f"cannot be read: {error.strerror}", remedy))

    for name, folders, files in os.walk(root, followlinks=True, onerror=refuse):
        status, path = os.stat(name), Path(name)
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()  # a link back to where we come from, or to what was counted
            continue
        seen.add((status.st_dev, status.st_ino))
        folders.sort()
        if has_marker(path):
            folders.clear()
            if reason := damage(path, thorough=thorough):
                damaged.append(Damage(path, reason, remedy(path)))
            elif _is_diverged(path / "summary.json"):
                diverged.append(Damage(path, *_DIVERGED))
            else:
                paths.append(root.resolve() / path.relative_to(root))
        elif "spec.json" in files:
            unfinished.append(path)
    return Results(
        root,
        tuple(sorted(paths)),
        tuple(sorted(damaged, key=lambda entry: entry.path)),
        tuple(sorted(diverged, key=lambda entry: entry.path)),
        tuple(sorted(unfinished)),
    )


_DIVERGED = (
    "its weights are not finite",
    "other settings, such as a smaller learning_rate, may keep them so",
    "diverged",
)


def _is_diverged(summary: Path) -> bool:
    # Parsed only where the word is: there may be very many runs.
    return b'"diverged"' in summary.read_bytes() and bool(read_object(summary).get("diverged"))


def _interruptible(connection: duckdb.DuckDBPyConnection, work: Callable[[], T]) -> T:
    """Run a function that uses a connection so that Ctrl-C ends it at once.

    The work is done in a thread: in this one a signal would wait until it was over.
    """
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        try:
            while not wait([future], timeout=0.2).done:
                pass
            return future.result()
        except KeyboardInterrupt:
            connection.interrupt()
            raise


def _flat(document: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}_")
        elif not isinstance(value, Sequence) or isinstance(value, str):
            yield before + key, value
