"""Queries read and nothing else, whatever they say; and any of them can be interrupted."""

import json
import os
import signal
import threading
import time

import duckdb
import numpy as np
import pytest

from commands import tape
from stored_runs import store_run, store_runs
from tapebench.base import files
from tapebench.report.contests import read
from tapebench.runs.results import load_results


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return store_runs(tmp_path_factory.mktemp("runs"), seeds=1)


def contents(root):
    return {
        str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()
    }


@pytest.mark.parametrize(
    "sql",
    [
        "explain analyze copy (select 1 as a, 2 as b) to '{root}/main' "
        "(format parquet, partition_by (a), overwrite true)",
        "explain analyze copy (select 0.9 as x) to '{root}/main/first-one/fps30/s00/summary.json' "
        "(format json)",
        "explain analyze copy (select 'x') to '{elsewhere}/pwn.csv'",
        "explain analyze copy (select 'x') to '.tmp/pwn.csv'",
        "explain select * from runs",
        "copy (select 1) to '{root}/x.csv'",
        "create table t as select 1",
        "delete from runs",
        "drop table runs",
        "attach '{elsewhere}/x.db'",
        "export database '{elsewhere}/x'",
        "pragma database_list",
        "set enable_external_access = true",
        "install httpfs",
        "call pragma_version()",
        "checkpoint",
        "select 1; select 2",
        "",
    ],
)
def test_only_select_statements_are_executed_and_nothing_is_written(
    runs, tmp_path, monkeypatch, sql
):
    monkeypatch.chdir(tmp_path)
    before = contents(runs)
    with pytest.raises(ValueError, match=r"read-only|select|Error"):
        load_results(runs).query(sql.format(root=runs, elsewhere=tmp_path))
    assert contents(runs) == before
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_parquet('{root}/*/*/*/*/eval.parquet')",
        "select * from read_text('{root}/main/first-one/fps30/s00/spec.json')",
        "select * from read_csv('/etc/passwd')",
        "select * from '/etc/passwd'",
        "select * from glob('/*')",
        "select * from glob('{root}/**')",
        "select * from read_blob('.tmp/x')",
        "select * from parquet_metadata('{root}/main/first-one/fps30/s00/eval.parquet')",
    ],
)
def test_no_file_can_be_read_once_the_tables_are_there(runs, sql):
    with pytest.raises(ValueError, match=r"(?i)permission|disabled|there is no table"):
        load_results(runs).query(sql.format(root=runs))


def test_the_connection_itself_has_neither_files_nor_a_place_for_them(runs):
    settings = dict(
        load_results(runs).query(
            "select name, value from duckdb_settings() where name in ('enable_external_access', "
            "'temp_directory', 'allowed_directories', 'allowed_paths', 'lock_configuration')"
        )[1]
    )
    assert settings["enable_external_access"] == "false"
    assert settings["lock_configuration"] == "true"
    assert not settings["temp_directory"]
    assert settings["allowed_directories"] in ("[]", "", None)
    assert settings["allowed_paths"] in ("[]", "", None)


def test_every_table_can_be_asked_alone_and_with_others(runs):
    stored = load_results(runs)
    for sql, count in {
        "select count(*) from runs": 3,
        "select count(distinct agent) from eval": 3,
        'select count(distinct step) from "curve"': 3,
        "select count(*) from (select agent from EVAL group by all) join runs using (agent)": 3,
        "with t as (select distinct agent from curve) select count(*) from t": 3,
    }.items():
        assert stored.query(sql)[1] == [(count,)]
    assert ("given_runs",) not in stored.query("select table_name from duckdb_tables(), runs")[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["seed=3", "success=1", "step=0", "agent=x"])
def test_a_directory_that_looks_like_a_partition_is_a_name_like_any_other(tmp_path, name):
    plain, odd = tmp_path / "plain", tmp_path / name / "runs"
    for root in (plain, odd):
        store_run(root, "any-one", 0)
        store_run(root, "any-one", 1)
    asked = "select agent, seed, step, avg(success::int) from {} group by all order by all"
    for table in ("eval", "curve"):
        sql = asked.format(table).replace("::int", "::double")
        assert load_results(odd).query(sql) == load_results(plain).query(sql)
    for file in plain.rglob("*.parquet"):
        ours = files.read_table(odd / file.relative_to(plain))
        for column, values in files.read_table(file).items():
            np.testing.assert_array_equal(ours[column], values)
    contests = [read(root).contests[0] for root in (plain, odd)]
    np.testing.assert_array_equal(*(contest.entries[0].scores["success"] for contest in contests))


@pytest.mark.parametrize(
    "sql",
    [
        "with recursive t as (select 1 as x union all select x + 1 from t) select count(*) from t",
        "select count(*) from range(1000000000) a, range(100000) b where a.range = b.range % 7",
    ],
)
def test_any_query_can_be_interrupted(runs, sql):
    stored = load_results(runs)
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        stored.query(sql)
    assert 0.9 < time.monotonic() - began < 20


def test_values_are_printed_as_they_are(runs, capsys):
    for text in ("x[y]z", "[/x]", "[red]a[/red]", "\\[b]"):
        asked = f"select '{text}' as \"[/col]\""
        code, out, err = tape(capsys, "query", asked, "--results", str(runs))
        assert code == 0, err
        assert text in out
        assert "[/col]" in out
        code, out, _ = tape(capsys, "query", asked, "--results", str(runs), "--json")
        assert json.loads(out)["rows"] == [[text]]


def test_the_engine_is_one_whose_settings_are_known():
    assert int(duckdb.__version__.split(".")[0]) >= 1
