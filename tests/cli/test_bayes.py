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
    support = found["missing_support"]
    reached = {name: row["held_out"] for name, row in support.items()}
    for name, row in support.items():
        assert reached[name]["worst"] <= reached[name]["uniform"] <= reached[name]["best"]
        assert len(row["rules"]) == 30
        for ties, mean in reached[name].items():
            assert mean == pytest.approx(sum(rule[ties] for rule in row["rules"].values()) / 30)
    only, first, alike = (reached[name]["uniform"] for name in support)
    assert only < first <= alike
    # Held-out rules break ties the way that suits them.
    assert reached["train first"]["best"] <= reached["only train"]["best"]
    assert found["groups"]["train"]["blind"] == pytest.approx(found["blind_ceiling"])


def test_groups_alone_bound_what_a_player_of_all_rules_reaches_there(capsys):
    found = ask(capsys, "--length", "5", "--horizon", "3", "--alone", "--memoryless")
    for group in found["groups"].values():
        assert group["blind"] <= group["blind_alone"] <= group["ceiling"] + 1e-12
        assert group["memoryless_at_least"] <= group["blind_alone"] + 1e-12


def test_both_sides_of_a_split_are_a_prior(capsys):
    found = ask(capsys, "--length", "9", "--horizon", "4", "--split", "folds-0", "--prior", "split")
    # The rules of the folds are those that are not impossible at this size.
    rules = [rule for rule in found["rules"].values() if rule["stratum"] != "impossible"]
    assert len(rules) == 165
    blind = sum(rule["blind"] for rule in rules) / len(rules)
    assert blind == pytest.approx(found["blind_ceiling"])


def test_weights_of_a_file_are_a_prior(capsys, tmp_path):
    weights = tmp_path / "weights.json"
    weights.write_text('{"30": 1, "110": 3}')
    found = ask(capsys, "--length", "6", "--horizon", "2", "--prior", str(weights))
    own = [found["rules"][rule]["blind"] for rule in ("30", "110")]
    assert found["blind_ceiling"] == pytest.approx((own[0] + 3 * own[1]) / 4)


def test_the_tables_and_the_picture(capsys, tmp_path):
    target = tmp_path / "cost.png"
    words = ("--length", "5", "--horizon", "2", "--memoryless", "--alone", "--prior", "train")
    code, out, err = tape(capsys, "bayes", *words, "--heatmap", str(target))
    assert code == 0
    for text in ("rule unknown", "beyond-reflex", "tape and time alone reach at least", "alone"):
        assert text in out
    assert "What missing support costs" in out
    assert str(target) in err.replace("\n", "")
    assert target.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--length", "17"), "reaches 16 cells, not 17"),
        (("--length", "8", "--horizon", "0"), "horizon must be a positive integer"),
        (("--prior", "nowhere"), "--prior is all, train, split or a file of weights"),
        (("--prior", "list.json"), "must be a JSON object of weights"),
        (("--prior", "broken.json"), "is no file of weights"),
        (("--prior", "wrong.json"), "weight of rule 30 must be an integer"),
        (("--split", "fps31"), "fps30"),
        (("--heatmap", "nowhere/cost.png"), "nowhere"),
        (("--heatmap", "cost.xyz"), "name it .png, .svg, .pdf"),
        (("--length", "14", "--memoryless"), "searches up to 12 cells"),
        (("--prior", "twice.json"), "names a rule twice"),
        (("--prior", "negative.json"), "from 0 to 2^31 - 1"),
    ],
)
def test_what_is_wrong_is_one_line(capsys, tmp_path, words, message):
    texts = {"list": "[30]", "broken": "{", "wrong": '{"30": 0.5}'}
    texts |= {"twice": '{"30": 1, "030": 9}', "negative": '{"30": -1}'}
    for name, text in texts.items():
        (tmp_path / f"{name}.json").write_text(text)
    code, out, err = tape(capsys, "bayes", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
