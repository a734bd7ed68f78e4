import json
import subprocess
import sys

import pytest
from PIL import Image

from tapebench import cli, splits


def tape(capsys, *argv):
    """Exit code, standard output and standard error of one command."""
    try:
        cli.main(list(argv))
        code = 0
    except SystemExit as ended:
        code = ended.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err


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
    assert abs(document["difficulty"]["ceiling L16"]["difference"]) < 1 / 60


def test_splits_audit_is_readable(capsys):
    code, out, _ = tape(capsys, "splits", "audit", "fps30")
    assert code == 0
    assert "mirror pairs cut by the split (15)" in out
    assert "clean: no" in out


def test_splits_list_names_them_all(capsys):
    _, out, _ = tape(capsys, "splits", "list")
    assert all(name in out for name in splits.names())


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
    code, out, _ = tape(capsys, "show", "--rule", "204", "--policy", "flip-ones", "--length", "16")
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
    code, _, err = tape(capsys, "show", "--rule", "30", "90", "--png", str(path))
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
        (["show", "--rule", "256"], "integer from 0 to 255, not 256"),
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


def test_unknown_options_exit_with_2_and_a_suggestion(capsys):
    code, _, err = tape(capsys, "show", "--polcy", "random")
    assert code == 2
    assert "--policy" in err


def test_the_version_is_told(capsys):
    assert tape(capsys, "--version")[1].startswith("tapebench ")


def test_listing_splits_imports_no_jax():
    code = (
        "import sys; from tapebench import cli; cli.main(['splits', 'list']);"
        "print('jax' in sys.modules, file=sys.stderr)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stderr.strip() == "False"
