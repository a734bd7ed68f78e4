import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from commands import tape
from tapebench import cli
from tapebench.base import files
from tapebench.physics.families import FAMILIES
from tapebench.runs import store
from tapebench.runs.tracks import get_track
from tapebench.tasks import drawn, splits

SUPPORT = Path(__file__).parents[1] / "support"


SUBCOMMANDS = [*cli.COMMANDS, *(f"splits {name}" for name in ("list", "show", "make", "audit"))]


@pytest.mark.parametrize("command", SUBCOMMANDS)
def test_help_has_two_examples_and_names_its_values(capsys, command):
    code, out, _ = tape(capsys, *command.split(), "--help")
    assert code == 0
    examples = {line for line in out.splitlines() if line.startswith(f"  tape {command}")}
    assert len(examples) == 2
    assert not re.search(r"\b(STR|INT|FLOAT|PATH)\b", out)
    for idle in ("None", "False", "MISSING", ""):
        assert f"(default: {idle})" not in out


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_the_examples_in_a_help_are_understood(capsys, command):
    help_text = tape(capsys, command, "--help")[1]
    for example in re.findall(r"(?m)^  tape (.+)", help_text):
        assert type(cli.parse(shlex.split(example))) is cli.load(command)


def test_each_command_is_in_one_group_and_has_a_sentence_in_the_overview(capsys):
    assert sum(map(len, cli.GROUPS.values())) == len(cli.COMMANDS)
    code, out, err = tape(capsys, "--help")
    assert (code, err) == (0, "")
    for name in cli.COMMANDS:
        assert len(re.findall(rf"(?m)^  {name} +\S", out)) == 1
    for group in cli.GROUPS:
        assert f"\n{group}\n" in out
    assert "For example" not in out
    assert max(map(len, out.splitlines())) <= 80


def test_the_command_alone_gives_a_tour_of_commands_that_work(capsys):
    code, out, err = tape(capsys)
    assert (code, err) == (0, "")
    steps = re.findall(r"(?m)^  tape (.+?)  ", out)
    assert len(steps) == 5
    for step in steps:
        assert cli.parse(step.split()) is not None
    assert max(map(len, out.splitlines())) <= 80


def test_an_unknown_command_is_one_line_with_the_nearest(capsys):
    assert tape(capsys, "trian") == (
        2,
        "",
        "tape: unknown command 'trian': did you mean 'train'?\n",
    )


@pytest.mark.parametrize(
    ("command", "old", "new"),
    [(command, old, new) for command, names in cli.RENAMED.items() for old, new in names.items()],
)
def test_an_older_name_of_an_option_works_with_a_warning_and_is_not_in_the_help(
    capsys, command, old, new
):
    out = tape(capsys, command, "--help")[1]
    assert f"{new} " in out
    assert f"{old} " not in out
    assert cli.parse([command, old, "1"]) == cli.parse([command, new, "1"])
    assert cli.parse([command, f"{old}=1"]) == cli.parse([command, new, "1"])
    assert f"{old} of {command} is now called {new}" in capsys.readouterr().err
    assert cli.rename_options(command, ["--", old]) == ["--", old]
    assert capsys.readouterr().err == ""


def test_splits_show_prints_one_json_document(capsys):
    code, out, _ = tape(capsys, "splits", "show", "fps30", "--json")
    document = json.loads(out)
    assert code == 0
    assert {"name", "train", "test", "hash"} <= set(document)
    assert document["test"] == list(splits.load("fps30").test)


def test_splits_audit_prints_one_json_document(capsys):
    _, out, _ = tape(capsys, "splits", "audit", "matched30", "--json")
    document = json.loads(out)
    assert document["clean"]
    assert document["disjoint"]
    assert document["mirror_pairs_cut"] == []
    assert abs(document["difficulty"]["ceiling L32"]["difference"]) < 0.5 / 30 + 0.5 / 226


def test_splits_audit_is_readable(capsys):
    code, out, _ = tape(capsys, "splits", "audit", "fps30")
    assert code == 0
    assert "mirror pairs cut by the split (15)" in out
    assert "clean: no" in out


def test_splits_list_names_them_all(capsys):
    _, out, _ = tape(capsys, "splits", "list")
    assert all(name in out for name in splits.names())
    _, out, _ = tape(capsys, "splits", "list", "--family", "ring2")
    assert all((name in out) == name.startswith("ring2") for name in drawn.names())


def test_splits_of_a_larger_family_are_shown_and_audited(capsys):
    _, out, _ = tape(capsys, "splits", "show", "life-H8-matched-16")
    assert "train (16): B" in out
    _, out, _ = tape(capsys, "splits", "make", "life-H8-matched-16")
    assert out == splits.dump(splits.load("life-H8-matched-16"))
    _, out, _ = tape(capsys, "splits", "audit", "ring2-H8-tuning", "--json")
    document = json.loads(out)
    assert document["clean"]
    assert (document["family"], document["shape"], document["horizon"]) == ("ring2", [16], 8)
    _, out, _ = tape(capsys, "splits", "audit", "life-H4-matched")
    assert "solved from every tape within 4 steps; 64 are on neither side" in " ".join(out.split())
    assert "images of one trained on: 0" in out
    assert "clean: yes" in out


def test_exact_answers_for_a_split_of_drawn_rules_without_a_search(capsys):
    named = ("--family", "ring2", "--split", "ring2-H8-matched-16", "--rules", "train", "--json")
    _, known, _ = tape(capsys, "exact", *named, "--horizon", "8")
    assert json.loads(known)["mean_ceiling"] == 1
    for horizon in ("3", "8"):
        _, known, _ = tape(capsys, "exact", *named, "--horizon", horizon)
        _, searched, _ = tape(capsys, "exact", *named, "--horizon", horizon, "--search")
        assert known == searched


def test_a_new_split_is_made_and_used_by_path(capsys, tmp_path):
    path = tmp_path / "mine.json"
    code, _, err = tape(
        capsys, "splits", "make", "mine", "--generator", "random", "--seed", "7", "--out", str(path)
    )
    assert code == 0
    assert "wrote" in err
    assert not list(tmp_path.glob("*.partial"))
    code, out, _ = tape(capsys, "splits", "audit", str(path), "--json")
    assert code == 0
    assert json.loads(out)["name"] == "mine"


def test_a_shipped_split_is_made_again(capsys):
    _, out, _ = tape(capsys, "splits", "make", "fps-0")
    assert out == splits.dump(splits.load("fps-0"))


def test_show_draws_in_the_terminal(capsys):
    code, out, _ = tape(capsys, "show", "--rules", "204", "--policy", "flip-ones", "--length", "16")
    assert code == 0
    assert "rule 204, flip-ones" in out
    assert "goal in" in out
    rows = [line for line in out.splitlines() if set(line.strip()) <= set("·█○◙") and line.strip()]
    assert len(rows[0].strip()) == 16
    assert rows[-1].strip() == "·" * 16


def test_show_without_flips_draws_the_rule_alone(capsys):
    _, out, _ = tape(capsys, "show", "--policy", "none", "--horizon", "3")
    assert "no flips" in " ".join(out.split())
    assert "◙" not in out


def test_show_writes_a_picture(capsys, tmp_path):
    path = tmp_path / "show.png"
    code, _, err = tape(capsys, "show", "--rules", "30,90", "--png", str(path))
    assert code == 0
    assert "wrote" in err
    with Image.open(path) as image:
        assert image.width > image.height > 300
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["splits", "show", "matchd30"], "did you mean 'matched30'"),
        (["splits", "audit", "nowhere.json"], "cannot read split file nowhere.json"),
        (["splits", "make", "mine", "--generator", "magic"], "unknown generator 'magic'"),
        (["splits", "make", "mine"], "unknown split 'mine'"),
        (["splits", "make", "fps-0", "--out", "no/where.json"], "cannot write no/where.json"),
        (["splits", "make", "fps-0", "--out", "."], "it is a directory"),
        (["splits", "make", "fps30", "--seed", "5"], "need --generator"),
        (["splits", "make", "fps30", "--generator", "random"], "choose another name"),
        (["show", "--rules"], "at least one rule"),
        (["show", "--seed", "99999999999999999999999"], "a seed is an integer"),
        (["exact", "--length", "33"], "up to length 32, not 33"),
        (["exact", "--goal", "01"], "goal must have shape"),
        (["exact", "--noise", "2"], "noise must be from 0 to 1"),
        (["exact", "--noise", "0.1", "--length", "21"], "up to length 20, not 21"),
        (["exact", "--goal", "random"], "one tape"),
        (["exact", "--switch", "x"], "name them like 4 or 2,5"),
        (["exact", "--switch", "16"], "choose steps from 1 to 15"),
        (["exact", "--switch", "4", "--rules", "30"], "rule 30 has no other to switch to"),
        (["exact", "--switch", "4", "--length", "17"], "up to length 16, not 17"),
        (["exact", "--switch", "4", "--noise", "0.1"], "not both"),
        (["evaluate", "greedy", "--switch", "4", "--length", "8"], "the rule switches"),
        (["exact", "--rules", "x"], "use all, train, test"),
        (["exact", "--family", "live"], "did you mean 'life'"),
        (["exact", "--family", "life", "--rules", "B3/S23"], "give its shape, like 5x5"),
        (["exact", "--family", "life", "--shape", "4x4"], "list those to draw from in rules="),
        (["exact", "--family", "life", "--shape", "4x4", "--rules", "B9/S"], "written like B3/S23"),
        (["exact", "--family", "life", "--shape", "6x6", "--rules", "23/3"], "up to 25 cells"),
        (
            ["exact", "--family", "life", "--shape", "4x5", "--switch", "2", "--rules", "1,2"],
            "up to 16 cells",
        ),
        (["show", "--family", "life", "--shape", "x", "--rules", "23/3"], "written like 5x5"),
        (["show", "--family", "ring2", "--policy", "memoryless"], "between belief-planner and"),
        (["show", "--family", "life", "--rules", "23/3", "--png", "b.png"], "leave out --png"),
        (["show", "--rules", "x"], "a number from 0 to 255, not 'x'"),
        (["oracle", "--objective", "fnal"], "did you mean 'final'"),
        (["oracle", "--side", "odd"], "unknown side 'odd'"),
        (["oracle", "--candidates", "0"], "at least 1"),
        (["oracle", "--seeds", "0"], "seeds must be at least 1"),
        (["oracle", "--by-type", "--export", "no/where.json"], "cannot write no/where.json"),
        (["show", "--rules", "256"], "integer from 0 to 255, not 256"),
        (["show", "--length", "2"], "length must be from 3 to 1024"),
        (["show", "--policy", "greddy"], "did you mean 'greedy'"),
        (["show", "--episode", "-1"], "episode must be 0 or more"),
        (["show", "--png", "no/where.png"], "cannot write no/where.png"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(capsys, argv, message):
    code, out, err = tape(capsys, *argv)
    assert code == 2
    assert out == ""
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert err.startswith("tape: ")


def test_exact_prints_one_json_document(capsys):
    code, out, _ = tape(capsys, "exact", "--length", "16", "--rules", "30,45,110", "--json")
    document = json.loads(out)
    assert code == 0
    assert (document["length"], document["horizon"]) == (16, 16)
    assert document["rules"]["30"]["solvable"] == 1.0
    assert document["rules"]["30"]["max_steps"] == 6
    assert document["rules"]["30"]["histogram"] == [1, 32, 569, 5344, 35992, 23594, 4]
    assert document["rules"]["45"]["solvable_excluding_goal"] < 0.001
    assert document["mean_ceiling"] == pytest.approx(
        sum(reach["solvable"] for reach in document["rules"].values()) / 3
    )


def test_exact_keys_rules_of_other_families_by_label(capsys):
    sized = ("--family", "life", "--shape", "4x4", "--horizon", "16")
    code, out, _ = tape(capsys, "exact", *sized, "--rules", "B3/S23,B36/S23", "--json")
    document = json.loads(out)
    assert code == 0
    assert (document["family"], document["shape"], document["length"]) == ("life", [4, 4], 16)
    assert list(document["rules"]) == ["B3/S23", "B36/S23"]
    assert document["rules"]["B3/S23"]["max_steps"] == 3
    assert document["mean_ceiling"] == 1
    ring = ("--family", "ring2", "--length", "12", "--rules", "{2283010756,2,2},R2:30")
    _, out, _ = tape(capsys, "exact", *ring, "--json")
    assert set(json.loads(out)["rules"]) == {"R2:2283010756", "R2:30"}
    _, out, _ = tape(capsys, "exact", *ring, "--noise", "0.1")
    assert "R2:2283010756" in out


def test_show_draws_a_torus_as_boards(capsys):
    sized = ("--family", "life", "--shape", "5x5", "--rules", "B3/S23", "B2/S")
    _, out, _ = tape(capsys, "show", *sized, "--policy", "none", "--horizon", "2")
    assert "rule B3/S23" in out
    boards = [line.split() for line in out.splitlines() if set(line) <= set("·█○◙ ")]
    assert [len(row) for row in boards] == [6] * 5
    assert all(len(row) == 5 for line in boards for row in line)


def test_exact_reads_what_is_shipped_at_32_cells(capsys):
    code, out, _ = tape(capsys, "exact", "--length", "32", "--json")
    assert code == 0
    assert json.loads(out)["rules"]["1"]["max_steps"] == 8
    assert len(json.loads(out)["rules"]) == 256


def test_oracle_prints_one_json_document(capsys):
    small = ["--length", "8", "--episodes", "2", "--seeds", "2", "--candidates", "8"]
    code, out, _ = tape(capsys, "oracle", *small, "--json")
    document = json.loads(out)
    assert code == 0
    assert document["policy"] == "mpc-min"
    assert {"id", "ood", "all"} <= set(document)
    assert document["ood"]["rules"] == 30


def test_oracle_by_type_writes_its_export(capsys, tmp_path):
    small = ["--length", "8", "--side", "ood", "--episodes", "1", "--seeds", "1"]
    code, out, _ = tape(capsys, "oracle", *small, "--candidates", "8", "--by-type")
    assert code == 0
    assert "chaotic" in out
    document = json.loads((tmp_path / "mpc_by_type_eval.json").read_text())
    assert document["by_type"]["all"]["episodes"] == 30


def test_a_split_named_like_markup_is_shown_as_it_is(capsys, tmp_path):
    (tmp_path / "odd.json").write_text(json.dumps({"name": "[/x]", "train": [1], "test": [2]}))
    code, out, _ = tape(capsys, "splits", "audit", "odd.json")
    assert code == 0
    assert "[/x]" in out


def test_unknown_options_exit_with_2_and_a_suggestion(capsys):
    code, _, err = tape(capsys, "show", "--polcy", "random")
    assert code == 2
    assert "--policy" in err


def test_the_version_is_told(capsys):
    version, revision = re.fullmatch(
        r"tapebench (\S+) \((\S+)\)\n", tape(capsys, "--version")[1]
    ).groups()
    made_with = files.provenance()
    assert (version, revision) == (made_with["versions"]["tapebench"], made_with["revision"])


def test_exact_knows_what_can_be_reached_when_the_rule_switches(capsys):
    words = ("exact", "--length", "6", "--horizon", "4", "--rules", "0,255,30", "--switch", "2")
    code, out, _ = tape(capsys, *words, "--json")
    assert code == 0
    document = json.loads(out)
    assert document["switch"] == [2]
    sequences = document["sequences"]
    assert len(sequences) == 6
    assert sequences["255,0"]["histogram"] == [1, 0, 0, 63]
    shares = [row["solvable"] for row in sequences.values()]
    assert document["mean_ceiling"] == pytest.approx(sum(shares) / 6)
    code, out, _ = tape(capsys, *words)
    assert code == 0
    for text in ("255, 0", "switch at 2", "over 6 sequences of rules"):
        assert text in " ".join(out.split())


def test_exact_knows_the_best_chance_under_noise(capsys):
    words = ("exact", "--length", "6", "--noise", "0.05", "--rules", "30,204")
    code, out, _ = tape(capsys, *words, "--json")
    document = json.loads(out)
    assert code == 0
    assert document["noise"] == 0.05
    assert 0 < document["rules"]["30"]["ceiling"] < 1
    mean = document["mean_ceiling_excluding_goal"]
    assert f"{mean:.4f}" in tape(capsys, *words)[1]
    # Without noise the same key means the same.
    plain = json.loads(tape(capsys, *words[:3], *words[5:], "--json")[1])
    assert 0 < mean < plain["mean_ceiling_excluding_goal"] <= plain["mean_ceiling"]


@pytest.mark.slow
def test_listing_splits_imports_no_jax():
    code = (
        "import sys; from tapebench import cli; cli.main(['splits', 'list']);"
        "print('jax' in sys.modules, file=sys.stderr)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stderr.strip() == "False"


def test_evaluate_prints_one_json_document(capsys):
    code, out, _ = tape(
        capsys, "evaluate", "flip-ones", "--length", "8", "--split", "matched30", "--json"
    )
    document = json.loads(out)
    assert code == 0
    assert {"policy", "split", "exam", "id", "ood", "drop", "by_type"} <= set(document)
    wanted = {
        "success",
        "final_distance",
        "auc_distance",
        "return",
        "soft_success",
        "on",
        "ceiling",
    }
    assert wanted | {"normalised", "interval", "episodes"} <= set(document["ood"])
    assert document["id"]["episodes"] == 226 * 20


@pytest.mark.slow
def test_evaluate_is_readable_and_writes_rows_and_a_bundle(capsys, tmp_path):
    rows, result = tmp_path / "rows.parquet", tmp_path / "result.tape"
    exam_flags = ("--length", "8", "--rules", "0,4,30,204", "--trials", "2", "--episodes", "3")
    code, out, err = tape(
        capsys, "evaluate", "flip-ones", *exam_flags, "--out", str(rows), "--bundle", str(result)
    )
    assert code == 0
    for word in ("exact ceiling", "mpc", "ON: % of mpc", "By type", "By trial"):
        assert word in out
    assert f"wrote {result}" in err.replace("\n", "")
    assert len(files.read_table(rows)["success"]) == 4 * 6
    code, out, _ = tape(capsys, "verify", str(result), "--json")
    assert code == 0
    assert json.loads(out)["episodes"] == 24
    code, out, _ = tape(capsys, "verify", str(result))
    assert "verified: 24 episodes of flip-ones on the standard exam of fps30, 4 rules" in out
    assert "Blindness: declared, not proved." in out
    assert "Made: by us, rows not checked, seating 2" in out


def test_rules_of_other_families_sit_exams_by_their_labels(capsys, tmp_path):
    life, split = FAMILIES["life"], splits.load("life-H8-matched-16")
    labels = ",".join(map(life.label, [*split.train[:3], *split.test[:3]]))
    flags = ("--family", "life", "--split", split.name, "--shape", "3x4", "--episodes", "3")
    result = str(tmp_path / "result.tape")
    code, out, _ = tape(
        capsys, "evaluate", "flip-ones", *flags, "--rules", labels, "--bundle", result
    )
    assert code == 0
    assert "life-H8-matched-16, a torus of 3 × 4, H = 12" in " ".join(out.split())
    assert "density from 0.00" in out
    code, out, _ = tape(capsys, "verify", result, "--json")
    document = json.loads(out)
    assert (document["family"], document["shape"], document["rules"]) == ("life", [3, 4], 6)
    code, out, _ = tape(capsys, "verify", result)
    assert "6 rules, a torus of 3 × 4, H = 12" in out


def test_splits_of_drawn_rules_say_how_many_cells_and_steps(capsys):
    flags = ("--family", "ring2", "--split", "ring2-H6-matched-16", "--side", "id", "--json")
    budget = ("--candidates", "4", "--horizon-plan", "2", "--seeds", "1")
    code, out, _ = tape(capsys, "oracle", *flags, *budget, "--episodes-per-rule", "1")
    document = json.loads(out)
    assert code == 0
    assert (document["length"], document["horizon"], document["family"]) == (16, 6, "ring2")
    assert document["id"]["rules"] == 16


def test_a_failing_agent_leaves_its_episodes_and_one_line(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(SUPPORT))
    exam_flags = ("--length", "8", "--episodes", "2")
    code, out, err = tape(capsys, "evaluate", "agents_of_users:crashing", *exam_flags, "--json")
    assert (code, out) == (2, "")
    assert "out of ideas (in agents_of_users.py:" in err
    assert "(256 finished episodes are kept in unfinished.parquet)" in err
    assert err.strip().count("\n") == 0
    assert len(files.read_table(tmp_path / "unfinished.parquet")["success"]) == 256


@pytest.mark.slow
def test_the_traceback_of_an_agent_is_shown_to_who_asks_for_it(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(SUPPORT))
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT), prepend=":")
    exam_flags = ("--length", "8", "--episodes", "2", "--traceback")
    for apart in ((), ("--subprocess",)):
        code, _, err = tape(capfd, "evaluate", "agents_of_users:crashing", *exam_flags, *apart)
        assert code == 2
        assert 'raise RuntimeError("out of ideas")' in err
        assert "Traceback" in err


def test_compare_prints_both_ways(capsys):
    exam_flags = ("--length", "8", "--rules", "test", "--episodes", "4")
    code, out, _ = tape(capsys, "compare", "flip-ones", "random", *exam_flags, "--json")
    document = json.loads(out)
    assert code == 0
    assert document["id"] is None
    assert document["ood"]["difference"] > 0
    code, out, _ = tape(capsys, "compare", "flip-ones", "random", *exam_flags)
    assert "A = flip-ones; B = random" in out
    assert "OOD" in out


def test_query_and_power_ask_stored_runs(capsys, tmp_path):
    for seed, value in enumerate((0.5, 0.6, 0.55)):
        with store.open_run(tmp_path, store.RunId("main", "dqn", "fps30", seed), {}) as run:
            run.finish({"ood": {"success": value}})
    where = ("--results", str(tmp_path))
    sql = "select agent, avg(ood_success) as s from runs group by agent"
    code, out, _ = tape(capsys, "query", sql, *where, "--json")
    assert code == 0
    assert json.loads(out) == {"columns": ["agent", "s"], "rows": [["dqn", 0.55]]}
    code, out, _ = tape(capsys, "query", sql, *where)
    assert "dqn" in out
    code, out, _ = tape(capsys, "power", "--difference", "0.05", *where, "--json")
    assert code == 0
    assert json.loads(out)["agents"][0]["seeds_needed"] == 17
    code, out, _ = tape(capsys, "power", *where)
    assert "needed" in out


@pytest.fixture
def wide_results(tmp_path):
    """Three runs with more columns than a window has room for."""
    for seed in range(12):
        with store.open_run(tmp_path, store.RunId("main", "dqn", "fps30", seed), {}) as run:
            run.finish({"ood": {f"metric_{number}": number / 8 for number in range(20)}})
    return tmp_path


def test_a_row_that_is_too_wide_is_shown_column_by_column(capsys, wide_results):
    code, out, _ = tape(capsys, "query", "select * from runs", "--results", str(wide_results))
    assert code == 0
    assert re.search(r"(?m)^ ood_metric_19 +2.375 *$", out)
    assert max(map(len, out.splitlines())) <= 80
    assert "row 10" in out
    assert "row 11" not in out
    assert "12 rows from 12 finished runs" in out
    assert "the first 10 are shown" in out


def test_a_query_prints_comma_separated_values(capsys, wide_results):
    sql = "select seed, ood_metric_4 from runs order by seed"
    _, out, _ = tape(capsys, "query", sql, "--results", str(wide_results), "--csv")
    assert out.splitlines() == ["seed,ood_metric_4", *(f"{seed},0.5" for seed in range(12))]


@pytest.mark.parametrize(
    "command",
    [
        "compare flip-ones random --length 8 --horizon 4 --episodes 2",
        "evaluate flip-ones --length 8 --horizon 4 --episodes 2",
        "splits list",
        "splits audit fps30",
        "exact --length 6",
        "bayes --length 5",
        "train dqn --options",
        "bench --plan",
    ],
)
def test_what_is_printed_fits_eighty_columns(capsys, command):
    code, out, _ = tape(capsys, *command.split())
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out


def test_a_summary_comes_before_its_table(capsys):
    _, out, _ = tape(capsys, "exact", "--length", "6")
    assert out.startswith("mean ceiling over 256 rules")
    _, out, _ = tape(capsys, "splits", "audit", "fps30")
    assert out.startswith("clean: no (")


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (("evaluate", "flip-one"), "did you mean 'flip-ones'"),
        (("evaluate", "random", "--split", "fsp30"), "did you mean 'fps30'"),
        (("evaluate", "random", "--exam", "fresh"), "fresh:SALT"),
        (("evaluate", "random", "--episodes", "0"), "episodes must be a positive integer"),
        (("evaluate", "random", "--mask", "a"), "name cells like 0,4"),
        (("evaluate", "random", "--mask", "99"), "cells are 0 to 31"),
        (("evaluate", "random", "--rules", "x"), "use all, train, test"),
        (("evaluate", "random", "--noise", "2"), "noise must be from 0 to 1"),
        (("evaluate", "random", "--family", "live"), "did you mean 'life'"),
        (("evaluate", "random", "--family", "life"), "give its shape, like 5x5"),
        (("evaluate", "random", "--family", "ring2"), "like ring2-H4-matched"),
        (("evaluate", "random", "--split", "life-H8-matched"), "say family='life'"),
        (("evaluate", "random", "--bundle", "nowhere/x"), "there is no directory nowhere"),
        (("evaluate", "random", "--bundle", "x", "--seeds", "2"), "a bundle holds one run"),
        (("evaluate", "nothing.here:make"), "there is no module nothing.here"),
        (("evaluate", "json:make"), "json has no factory 'make'"),
        (("compare", "random", "radnom"), "did you mean 'random'"),
        (("verify", "nowhere.tape"), "there is no nowhere.tape"),
        (("query", "select 1", "--results", "nowhere"), "there is no results directory nowhere"),
        (("power", "--results", "."), "run more"),
        (("train", "dqm"), "unknown agent 'dqm': did you mean 'dqn'?"),
        (("train", "dqn", "--set", "widht=3"), "did you mean 'width'?"),
        (("train", "dqn", "--set", "width"), "write it like width=128"),
        (("train", "dqn", "--set", "width=wide"), "width is a whole number"),
        (("train", "dqn", "--set", "double=yes"), "double is true or false"),
        (("train", "dqn", "--seeds", "0"), "give a number like 5"),
        (("train", "dqn", "--seeds", "a,b"), "give a number like 5"),
        (("train", "dqn", "--track", "ful"), "did you mean 'full'?"),
        (("train", "dqn", "--rules", "300"), "a rule is an integer from 0 to 255"),
        (
            ("train", "dqn", "--steps", "1234"),
            "dqn trains 1,000 steps at a time, which do not divide 1,234: "
            "--steps 2000 --evaluate-every 1000 works",
        ),
        (
            ("train", "dqn", "--evaluate-every", "500", "--steps", "20000"),
            "1,000 steps at a time, which do not divide 500: --evaluate-every 4000 works",
        ),
        (
            ("train", "dqn", "--evaluate-every", "3000", "--steps", "20000"),
            "20,000 steps are no multiple of 3,000: --evaluate-every 4000 works",
        ),
        (
            ("train", "dqn", "--evaluate-every", "100000"),
            "the last 3 evaluations count, and there would be 2: --evaluate-every 40000 works",
        ),
        (("train", "dqn", "--steps", "0"), "--steps must be at least 1"),
        (("train", "no/such/run"), "there is no run no/such/run: name an agent"),
        (("train", "dqn", "--experiment", "a/b"), "cannot name a directory"),
        (("train", "dqn", "--results", "/proc/x"), "/proc/x"),
        (("evaluate", "."), "there are no finished runs"),
    ],
)
def test_bad_requests_about_exams_end_in_one_line(capsys, tmp_path, monkeypatch, argv, complaint):
    monkeypatch.chdir(tmp_path)
    code, out, err = tape(capsys, *argv)
    assert (code, out) == (2, "")
    assert complaint in err
    assert err.startswith("tape: ")
    assert err.strip().count("\n") == 0
    assert not list(tmp_path.iterdir())


def test_train_lists_the_options_of_an_agent(capsys):
    code, out, _ = tape(capsys, "train", "pearl", "--options")
    assert code == 0
    assert "latent_size=" in out
    assert "--latent-size" not in out


@pytest.mark.slow
def test_train_makes_runs_and_says_what_they_reached(capsys, tmp_path):
    small = ("--set", "width=16", "--steps", "3000")
    command = ("train", "dqn", "--track", "smoke", "--rules", "4", "--seeds", "1", "--workers", "1")
    where = ("--results", str(tmp_path))
    code, out, _ = tape(capsys, *command, *small, *where, "--json")
    assert code == 0
    assert list(json.loads(out)) == ["rules-4/dqn/fps30/s00"]
    code, out, err = tape(capsys, *command, *small, *where)
    assert "1 of 1 runs are done already" in err
    assert "rules-4/dqn/fps30/s00" in out


def test_the_results_directory_has_one_name_and_the_older_one_is_warned_of(capsys, tmp_path):
    (tmp_path / "there").mkdir()
    command = ("bench", "--track", "smoke", "--plan")
    code, out, err = tape(capsys, *command, "--results", "there")
    assert "--out" not in err
    older_code, older_out, err = tape(capsys, *command, "--out", "there")
    assert (older_code, older_out) == (code, out)
    assert "--out of bench is now called --results" in err
    for named in (("there",), ("--results", "there")):
        code, _, err = tape(capsys, "report", *named)
        assert (code, "there are no finished runs in there" in err) == (2, True)


def test_a_track_gives_the_exam_and_a_name_the_row(capsys, tmp_path):
    options = ["--track", "core", "--split", "folds-2", "--name", "mine", "--bundle", "mine.tape"]
    code, out, _ = tape(capsys, "evaluate", "flip-ones", *options, "--json")
    document = json.loads(out)
    assert code == 0
    assert (document["policy"], document["split"]) == ("mine", "folds-2")
    assert document["exam_hash"] == get_track("core").exam(split="folds-2").hash
    assert json.loads(tape(capsys, "verify", "mine.tape", "--json")[1])["policy"] == "mine"
    for wrong, complaint in (
        (["--length", "9"], "the track core fixes --length"),
        (["--split", "fps30"], "unknown split of the track core 'fps30'"),
        (["--name", "x" * 101, "--bundle", "b"], "give a shorter one with --name"),
    ):
        code, _, error = tape(capsys, "evaluate", "flip-ones", "--track", "core", *wrong)
        assert code == 2
        assert complaint in error
