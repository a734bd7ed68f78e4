import json

import pytest

from commands import tape


def ask(capsys, *words):
    code, out, _ = tape(capsys, "bayes", *words, "--json")
    assert code == 0
    return json.loads(out)


def test_the_document_has_everything_by_rule_and_by_group(capsys):
    found = ask(capsys, "--length", "8", "--horizon", "4")
    assert (found["length"], found["horizon"], found["prior"]) == (8, 4, "all")
    assert found["blind_ceiling"] == pytest.approx(0.514001, abs=5e-7)
    assert found["ceiling"] == pytest.approx(0.558885, abs=5e-7)
    rules = found["rules"]
    assert len(rules) == 256
    for name in ("blind", "ceiling"):
        mean = sum(rule[name] for rule in rules.values()) / 256
        assert mean == pytest.approx(found[f"{name}_ceiling" if name == "blind" else name])
        for stratum in ("beyond-reflex", "reflex", "impossible"):
            members = [rule[name] for rule in rules.values() if rule["stratum"] == stratum]
            group = found["groups"][stratum]
            assert group["rules"] == len(members)
            assert group[name] == pytest.approx(sum(members) / len(members))


def test_a_prior_of_training_rules_says_what_missing_support_costs(capsys):
    found = ask(capsys, "--length", "6", "--horizon", "3", "--prior", "train")
    held_out = found["missing_support"]
    assert held_out["only train, worst ties"] <= held_out["only train, uniform ties"]
    assert held_out["only train, uniform ties"] <= held_out["only train, best ties"]
    assert held_out["only train, uniform ties"] < held_out["train first"] <= held_out["all alike"]
    assert found["groups"]["train"]["blind"] == pytest.approx(found["blind_ceiling"])


def test_weights_of_a_file_are_a_prior(capsys, tmp_path):
    weights = tmp_path / "weights.json"
    weights.write_text('{"30": 1, "110": 3}')
    found = ask(capsys, "--length", "6", "--horizon", "2", "--prior", str(weights))
    own = [found["rules"][rule]["blind"] for rule in ("30", "110")]
    assert found["blind_ceiling"] == pytest.approx((own[0] + 3 * own[1]) / 4)


def test_the_tables_and_the_picture(capsys, tmp_path):
    target = tmp_path / "cost.png"
    words = ("--length", "5", "--horizon", "2", "--memoryless", "--prior", "train")
    code, out, err = tape(capsys, "bayes", *words, "--heatmap", str(target))
    assert code == 0
    for text in ("rule unknown", "beyond-reflex", "tape and time alone reach at least"):
        assert text in out
    assert "What missing support costs" in out
    assert str(target) in err.replace("\n", "")
    assert target.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--length", "17"), "reaches 16 cells, not 17"),
        (("--length", "8", "--horizon", "0"), "horizon must be a positive integer"),
        (("--prior", "nowhere"), "--prior is all, train or a file of weights"),
        (("--prior", "list.json"), "must be a JSON object of weights"),
        (("--prior", "broken.json"), "is no file of weights"),
        (("--prior", "wrong.json"), "weight of rule 30 must be an integer"),
        (("--split", "fps31"), "fps30"),
        (("--heatmap", "nowhere/cost.png"), "nowhere"),
    ],
)
def test_what_is_wrong_is_one_line(capsys, tmp_path, words, message):
    for name, text in {"list": "[30]", "broken": "{", "wrong": '{"30": 0.5}'}.items():
        (tmp_path / f"{name}.json").write_text(text)
    code, out, err = tape(capsys, "bayes", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
