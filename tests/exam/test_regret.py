import numpy as np
import pytest

from tapebench.exam import bounds, evaluate, policy, regret, rollout
from tapebench.exam.exam import make_exam
from tapebench.exam.policy import Policy, blind
from tapebench.physics import bayes

EXAM = make_exam(length=6, horizon=3, episodes=12)
IDEAL = bounds.ideal(EXAM)


def play(chosen):
    made = policy.make(chosen, EXAM.task, EXAM.origin) if isinstance(chosen, str) else chosen
    return rollout.rollout(made, EXAM.task, rules=EXAM.rules, episodes=EXAM.episodes)


def first_one(memory, obs, stream):
    return memory, EXAM.task.layout.cells(obs).argmax(axis=-1)


FIRST_ONE = blind(Policy("first-one", lambda rule, num: (), first_one, backend="numpy"))


def of_the_tapes():
    """The blind ceiling from the exam's own tapes."""
    starts = IDEAL.ring.number[EXAM.tapes()[:, 0]]
    return IDEAL.value[3][starts, bayes.NOTHING].mean() / len(EXAM.rules)


@pytest.mark.parametrize("chosen", [FIRST_ONE, "memoryless"], ids=["first-one", "memoryless"])
def test_regrets_of_a_policy_that_does_not_draw_add_up_to_its_shortfall(chosen):
    played = play(chosen)
    lost = regret.regrets(played, EXAM, IDEAL)
    assert (lost.total >= 0).all()
    assert (lost.ignored <= lost.total).all()
    shortfall = of_the_tapes() - played.success.mean()
    assert shortfall > 0.01
    assert lost.total.sum(axis=-1).mean() == pytest.approx(shortfall, abs=1e-9)
    # As much for each tape by itself, over all rules.
    starts = IDEAL.ring.number[EXAM.tapes()[:, 0]]
    blind_ceiling = IDEAL.value[3][starts, bayes.NOTHING] / len(EXAM.rules)
    by_tape = lost.total.sum(axis=-1).mean(axis=0)
    np.testing.assert_allclose(by_tape, blind_ceiling - played.success.mean(axis=0), atol=1e-9)


def test_the_ideal_player_regrets_nothing():
    played = play("bayes-optimal")
    lost = regret.regrets(played, EXAM, IDEAL)
    assert not lost.total.any()
    is_move = played.cells >= 0
    assert (lost.best[is_move] >> played.cells[is_move] & 1).all()
    assert not lost.best[~is_move].any()
    # What is expected at the start is what arrives, over all rules.
    assert lost.value[:, :, 0].mean() == pytest.approx(of_the_tapes())


def test_a_player_without_memory_ignores_evidence_and_one_who_does_not_aim_lacks_control():
    """At the first step nothing has been seen, so nothing can be ignored."""
    lost = regret.regrets(play("flip-ones"), EXAM, IDEAL)
    assert not lost.ignored[:, :, 0].any()
    assert lost.total[:, :, 0].any()
    assert lost.ignored[:, :, 1:].any()
    assert lost.control[:, :, 1:].any()


def test_random_play_ignores_evidence_as_often_as_by_chance():
    lost = regret.regrets(play("random"), EXAM, IDEAL)
    ignored, by_chance = (part.sum(axis=-1).mean() for part in (lost.ignored, lost.by_chance))
    # Its moves are drawn evenly, but those that lose much weigh more.
    assert ignored == pytest.approx(by_chance, rel=0.25)
    assert (lost.by_chance <= lost.total + 1e-12).all()
    assert not lost.by_chance[:, :, 0].any()


def test_ignored_moves_are_optimal_for_who_has_seen_less_by_the_plain_way():
    played = play("flip-ones")
    lost = regret.regrets(played, EXAM, IDEAL)
    length, checked = EXAM.task.length, 0
    for row, episode in np.random.default_rng(0).integers(0, (256, 12), size=(60, 2)):
        tapes, cells = played.trace(int(row), int(episode))
        seen = 0
        for step, cell in enumerate(cells):
            flipped = tapes[step].copy()
            flipped[cell] ^= 1
            tape = int(tapes[step] @ (1 << np.arange(length)))
            left = EXAM.task.horizon - step
            if lost.total[row, episode, step] > 0:
                subsets = [part for part in range(256) if part & seen == part and part != seen]
                excused = any(
                    IDEAL.optimal_cells(
                        np.array([tape], np.uint32),
                        bayes.knowledge_of([played.rules[row]], [part]),
                        left,
                    )[0, cell]
                    for part in subsets
                )
                assert excused == (lost.ignored[row, episode, step] > 0)
                checked += 1
            for code in 4 * np.roll(flipped, 1) + 2 * flipped + np.roll(flipped, -1):
                seen |= 1 << int(code)
    assert checked > 30


@pytest.mark.slow
def test_a_score_is_taken_apart_on_the_tapes_of_the_exam():
    outcome = evaluate.evaluate("flip-ones", exam=EXAM)
    apart = outcome.score["apart"]
    whole = outcome.score
    for side in ("id", "ood"):
        group = apart[side]["all"]
        assert group["success"] == pytest.approx(whole[side]["success"])
        assert group["rules"] == len(EXAM.rows(side))
        assert group["ceiling"] - group["not_knowing"] - group["shortfall"] == pytest.approx(
            group["success"]
        )
        parts = [apart[side][kind] for kind in apart[side] if kind != "all"]
        assert sum(part["rules"] for part in parts) == group["rules"]
        mean = sum(part["success"] * part["rules"] for part in parts) / group["rules"]
        assert mean == pytest.approx(group["success"])
    blind_ceiling = sum(
        apart[side]["all"]["blind_ceiling"] * apart[side]["all"]["rules"] for side in ("id", "ood")
    )
    assert blind_ceiling / len(EXAM.rules) == pytest.approx(of_the_tapes())
    lost = apart["evidence_ignored"] + apart["control"]
    assert 0 < apart["evidence_ignored_by_chance"] < lost
    assert next(iter(whole["by_stratum"])) == "beyond-reflex"
    for kind, sides in whole["by_stratum"].items():
        for side, row in sides.items():
            for name in ("success", "ceiling", "blind_ceiling", "rules"):
                assert row[name] == pytest.approx(apart[side][kind][name])
            assert row["interval"][0] <= row["success"] <= row["interval"][1]
            assert {"random", "flip-ones", "greedy", "mpc", "memoryless"} <= row.keys()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"length": 16}, "more than 12 cells"),
        ({"noise": 0.1}, "noisy"),
        ({"mask": [0]}, "hidden"),
        ({"trials": 2}, "trials"),
        ({"goal": "011001"}, "goal"),
    ],
)
def test_what_is_not_computed_says_why(options, reason):
    exam = make_exam(**{"length": 6, "horizon": 3, "episodes": 2, "rules": [30, 110]} | options)
    assert not bounds.is_computed(exam)
    assert reason in bounds.obstacle(exam)


@pytest.mark.slow
def test_a_score_that_cannot_be_taken_apart_is_still_a_score():
    masked = make_exam(length=6, horizon=3, episodes=2, rules=[30, 110], mask=[0])
    for chosen, exam in (("flip-ones", masked), ("greedy", EXAM)):
        found = evaluate.evaluate(chosen, exam=exam).score
        assert "success" in found["id"]
        assert "apart" not in found
