import copy
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest

from tapebench.physics import families, space
from tapebench.tasks import splits, task


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 2}, "length must be from 3 to 1024, not 2"),
        ({"length": 1025}, "length must be from 3 to 1024, not 1025"),
        ({"length": 8.0}, "length must be an integer"),
        ({"horizon": 0}, "horizon must be a positive integer"),
        ({"horizon": 2.5}, "horizon must be a positive integer"),
        ({"split": "fps3"}, "did you mean 'fps30'"),
        ({"rules": "held-out"}, "unknown rule set 'held-out'"),
        ({"rules": 256}, "integer from 0 to 255"),
        ({"rules": []}, "rules is empty"),
        ({"goal": [0, 1]}, r"goal must have shape \(32,\), not \(2,\)"),
        ({"goal": [2] * 32}, "goal must hold only 0 and 1"),
        ({"goal": "ones"}, "unknown goal 'ones'"),
        ({"goal": "01"}, r"goal must have shape \(32,\)"),
        ({"goal": [[0], [0, 1]]}, "goal must be 32 cells"),
        ({"reward": "distnce"}, "did you mean 'distance'"),
        ({"start_density": 1.5}, "start_density must be from 0 to 1"),
        ({"start_density": 0.0}, "always starts at the goal"),
        ({"noise": -0.1}, "noise must be from 0 to 1"),
        ({"noise": "high"}, "noise must be a number"),
        ({"mask": [32]}, "mask hides cell 32: cells are 0 to 31"),
        ({"mask": [1, 1]}, "names cell 1 twice"),
        ({"mask": [0.5]}, "mask must be 32 flags"),
        ({"mask": np.eye(32)}, "mask must be 32 flags"),
        ({"horizon": 2**63}, "up to 65536"),
        ({"rules": None}, "integer from 0 to 255"),
        ({"rules": 30.0}, "integer from 0 to 255"),
        ({"split": "typo", "rules": 30}, "unknown split 'typo'"),
        ({"split": None}, "a split is a name, a path or a Split"),
        ({"split": "a" * 300 + ".json"}, "cannot read split file"),
        ({"success_bonus": float("nan")}, "success_bonus must be a number"),
        ({"success_bonus": "x"}, "success_bonus must be a number"),
        ({"reward": np.array(["distance"])}, "unknown reward"),
        ({"family": "live"}, "unknown family 'live': did you mean 'life'"),
        ({"family": "life"}, "life rules need a torus: give its shape, like 5x5"),
        ({"family": "life", "length": 25}, "give its shape"),
        ({"family": "life", "shape": (5, 5)}, r"rules=, by number or label, like B3/S23"),
        ({"family": "ring2", "rules": "all"}, r"rules=, by number or label, like R2:224"),
        ({"family": "ring2"}, "split fps30 is of elementary rules: choose one of ring2 rules"),
        ({"family": "ring2", "split": "life-H8-matched"}, "of life rules: choose one of ring2"),
        ({"family": "ring2", "split": "ring2-H8"}, "unknown split 'ring2-H8': did you mean"),
        ({"split": "ring2-H8-matched"}, "of ring2 rules: say family='ring2'"),
        ({"split": "ring2-H8-matched", "rules": 30}, "of ring2 rules: say family='ring2'"),
        ({"family": "life", "shape": (2, 5)}, r"at least 3 by 3 .+, not \(2, 5\)"),
        ({"family": "life", "shape": (40, 40)}, "at most 1024 cells"),
        ({"family": "life", "shape": 25}, "need a torus"),
        ({"family": "life", "shape": (5, 5), "length": 25}, "length or shape, not both"),
        ({"family": "ring2", "length": 4}, "ring of 5 to 1024"),
        ({"shape": (5, 5)}, "elementary rules need a ring"),
        ({"shape": "5 by 5"}, "written like 5x5"),
        ({"shape": (5.0, 5)}, "written like 5x5"),
        ({"shape": [[5], [5, 5]]}, "written like 5x5"),
        ({"shape": "9" * 5000}, "written like 5x5"),
        ({"family": "life", "shape": "5x-5"}, r"not \(5, -5\)"),
        ({"family": "life", "shape": (5, 5), "rules": []}, "rules is empty"),
        ({"family": "life", "shape": (5, 5), "rules": "B3/S29"}, "a life rule is written"),
        ({"family": "life", "shape": (5, 5), "rules": [224, "23/3"]}, "list each once"),
        ({"family": "life", "shape": (5, 5), "rules": 2**18}, "from 0 to 262143"),
        ({"family": "life", "shape": (5, 5), "rules": None}, "from 0 to 262143"),
    ],
)
def test_bad_options_are_refused_with_the_fix(options, message):
    with pytest.raises(ValueError, match=message):
        task.make_task(**options)


def test_an_unknown_option_is_a_type_error_that_names_it():
    with pytest.raises(TypeError, match="lenght"):
        task.make_task(lenght=8)


def test_masks_are_flags_or_cells():
    assert task.make_task(length=4, mask=[1, 0, 0, 1]).hidden == 0b1001
    assert task.make_task(length=4, mask=[0, 3]).hidden == 0b1001
    assert task.make_task(length=4, mask=np.array([True, False, False, True])).hidden == 0b1001
    assert task.make_task(length=4, mask=None).hidden == 0


def test_goals_as_text_sequence_or_array():
    for goal in ("0110", [0, 1, 1, 0], np.array([0, 1, 1, 0]), (False, True, True, False)):
        assert task.make_task(length=4, goal=goal).goal == 0b0110
    assert task.make_task(goal="zeros").goal == 0
    assert task.make_task(goal="random").goal is None


def test_families_and_where_they_live():
    ring = task.make_task(family="ring2", shape=(16,), rules=["{30,2,2}", 7])
    assert ring == task.make_task(family="ring2", length=16, rules=[30, 7])
    assert (ring.length, ring.rules, ring.universe.rules) == (16, (30, 7), (7, 30))
    board = task.make_task(family="life", shape="5x6", rules=np.array([224, 0]))
    assert (board.space.shape, board.length, board.observation_size) == ((5, 6), 30, 31)
    assert board.family is families.LIFE
    assert task.make_task(shape=(8,)) == task.make_task(length=8)
    for known in (board, task.make_task()):
        assert ForkingPickler.loads(ForkingPickler.dumps(known)) == copy.deepcopy(known) == known
    with pytest.raises(ValueError, match="nothing has been published of life rules"):
        _ = board.universe.features


def test_rules_of_a_split_of_a_larger_family():
    split = splits.load("ring2-H8-matched-64")
    options = {"family": "ring2", "length": 16, "split": split.name}
    for side, rules in {"train": split.train, "test": split.test}.items():
        assert task.make_task(rules=side, **options).rules == rules
    train = task.make_task(**options)
    assert train.universe is split.universe
    assert task.make_task(rules="all", **options).rules == split.universe.rules
    assert ForkingPickler.loads(ForkingPickler.dumps(train)) == copy.deepcopy(train) == train
    known = split.test[:2]
    labels = [split.universe.family.label(rule) for rule in known]
    assert task.make_task(rules=labels, **options) == task.make_task(rules=known, **options)
    assert task.make_task(rules=known, **options).universe is split.universe
    elsewhere = task.make_task(rules=[*known, 0], **options)
    assert elsewhere.universe.rules == (0, *known)
    assert elsewhere.universe.horizon is None


def test_a_task_or_options_but_not_both():
    ready = task.make_task(length=8)
    assert task.resolve(ready, {}) is ready
    with pytest.raises(ValueError, match="not both: length"):
        task.resolve(ready, {"length": 9})
    with pytest.raises(ValueError, match="task must be a Task"):
        task.resolve(3, {})
    with pytest.raises(TypeError, match="unknown option 'lenght': did you mean 'length'"):
        task.resolve(None, {"lenght": 9})


def test_an_unknown_option_is_also_refused_in_the_words_that_clients_look_for():
    """TorchRL tries `frameskip` on every environment and leaves it out on hearing these."""
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'frameskip'"):
        task.resolve(None, {"frameskip": 1})


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("distance", {(4, 2): -0.25, (4, 0): 1.5, (4, 6): -0.75}),
        ("sparse", {(4, 2): 0.0, (4, 0): 1.5, (4, 6): 0.0}),
        ("potential", {(4, 2): 0.25, (4, 0): 2.0, (4, 6): -0.25}),
    ],
)
def test_rewards(kind, expected):
    for (before, after), paid in expected.items():
        assert task.reward(kind, before / 8, after / 8, 1.5) == paid


@pytest.mark.parametrize("kind", task.REWARDS)
def test_floats_and_float32_arrays_are_paid_the_same(kind):
    length, bonus = 7, np.float32(0.3)
    cells = np.arange(length + 1)
    share = space.share(cells, length)
    before, after = (grid.ravel() for grid in np.meshgrid(share, share))
    in_arrays = task.reward(kind, before, after, bonus)
    assert in_arrays.dtype == np.float32
    one_by_one = [
        task.reward(kind, float(b), float(a), float(bonus))
        for b, a in zip(before, after, strict=True)
    ]
    np.testing.assert_array_equal(np.array(one_by_one, np.float32), in_arrays)
