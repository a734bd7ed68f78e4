import numpy as np
import pytest

from tapebench.base import seeding
from tapebench.tasks.schedule import NEVER, Schedule
from tapebench.tasks.task import make_task


def streams(num):
    return seeding.Stream(*np.random.default_rng(0).integers(0, 2**32, (2, num), dtype=np.uint32))


def test_a_switch_is_a_step_or_several():
    assert make_task().schedule is NEVER
    assert make_task(switch=None) == make_task(switch=[]) == make_task()
    for switch in (4, [4], (4,), np.array([4])):
        task = make_task(length=8, horizon=8, switch=switch)
        assert task.schedule == Schedule((4,))
        assert hash(task) == hash(make_task(length=8, horizon=8, switch=4))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"switch": 0}, "cannot switch at 0: with a horizon of 8 choose steps from 1 to 7"),
        ({"switch": 8}, "cannot switch at 8"),
        ({"switch": [2, 9]}, "cannot switch at 9"),
        ({"switch": [4, 2]}, "each step once and in order"),
        ({"switch": [2, 2]}, "each step once and in order"),
        ({"switch": 2.0}, "a step or a list of steps"),
        ({"switch": True}, "a step or a list of steps"),
        ({"switch": "4"}, "a step or a list of steps"),
        ({"switch": 4, "rules": 30}, "rule 30 has no other to switch to"),
    ],
)
def test_bad_switches_are_refused_with_the_fix(options, message):
    with pytest.raises(ValueError, match=message):
        make_task(**{"length": 8, "horizon": 8} | options)


def test_a_rule_is_followed_by_every_other_one_alike():
    num, rules = 6000, (30, 90, 110, 204)
    later = Schedule((2, 5)).later_rules(streams(num), np.full(num, 90), rules)
    assert later.shape == (num, 2)
    assert (later[:, 0] != 90).all()
    assert (later[:, 1] != later[:, 0]).all()
    for follower in (30, 110, 204):
        assert (later[:, 0] == follower).mean() == pytest.approx(1 / 3, abs=0.02)
    assert (later[later[:, 0] == 30, 1] == 90).mean() == pytest.approx(1 / 3, abs=0.035)


def test_each_side_stays_among_itself_and_under_one_stream_every_rule_comes_once():
    rules = (0, 4, 30, 90, 110, 204, 250)
    schedule = Schedule((1, 2)).within((4, 30, 204), (0, 90, 110, 250))
    stream = streams(50)
    for side in ((4, 30, 204), (0, 90, 110, 250)):
        later = np.stack(
            [schedule.later_rules(stream, np.full(50, rule), rules) for rule in side], axis=-1
        )
        np.testing.assert_array_equal(np.sort(later, axis=-1), np.broadcast_to(side, later.shape))


def test_a_rule_alone_on_its_side_cannot_switch_and_one_from_elsewhere_has_no_place():
    with pytest.raises(ValueError, match="rule 30 has no other held-out rule"):
        Schedule((1,)).within((0, 4), (30,))
    with pytest.raises(ValueError, match="rule 45 is not one of the task's"):
        Schedule((1,)).later_rules(streams(2), np.array([4, 45]), (4, 30))
    assert NEVER.within((0,), (30,)) is NEVER


def test_the_rule_at_a_time_is_the_one_of_the_last_switch():
    rules = Schedule((2, 5)).rule_at(np.arange(7), np.array(30), [np.array(90), np.array(204)])
    assert rules.tolist() == [30, 30, 90, 90, 90, 204, 204]
