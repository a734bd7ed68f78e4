import hashlib
import json
import random
import time
import tracemalloc
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load, save

from commands import tape
from tapebench.exam import bundle, policy, rollout
from tapebench.exam import exam as exams
from tapebench.exam.bundle import BundleError
from tapebench.exam.exam import make_exam
from tapebench.runs import evaluation


def forged_metadata(text):
    return {"tape_bundle": text, "digest": hashlib.sha256(text.encode()).hexdigest()}


def small_exam(**changes):
    return make_exam(
        **{"length": 8, "horizon": 6, "episodes": 3, "rules": [0, 4, 30, 204]} | changes
    )


@pytest.fixture
def genuine(tmp_path):
    """A small bundle; `genuine()` reads its arrays and description, `genuine(...)` rewrites it."""
    path = tmp_path / "result.tape"
    evaluation.evaluate("random", small_exam()).write_bundle(path)

    def change(arrays=None, description=None):
        data = path.read_bytes()
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        if arrays is None and description is None:
            return load(data), json.loads(header["__metadata__"]["tape_bundle"])
        old_arrays, old_description = change()
        text = json.dumps(description or old_description)
        path.write_bytes(save(arrays or old_arrays, forged_metadata(text)))
        return path

    change.path = path
    return change


def test_a_genuine_bundle_gives_back_its_episodes(tmp_path):
    exam = small_exam(noise=0.1, trials=2)
    outcome = evaluation.evaluate("random", exam)
    outcome.write_bundle(tmp_path / "b")
    replayed = bundle.verify(tmp_path / "b")
    assert replayed.exam == exam
    np.testing.assert_array_equal(replayed.episodes.cells, outcome.runs[0].cells)
    np.testing.assert_array_equal(replayed.episodes.wrong, outcome.runs[0].wrong)
    assert replayed.episodes.trials == 2
    assert replayed.about["sees_rule"] is False
    assert replayed.about["provenance"]["versions"]["numpy"] == np.__version__


@pytest.mark.parametrize(
    "options",
    [
        {"length": 70, "horizon": 4, "goal": "01" * 35},
        {"length": 300, "horizon": 3},
        {"goal": "random", "observe_goal": True},
        {"mask": [1, 2], "exam": "fresh:abc"},
        {"rules": [30, 22]},
        {"rules": [30, 45, 22, 60], "switch": [1, 4]},
    ],
)
def test_bundles_of_every_kind_of_exam_verify(tmp_path, options):
    exam = small_exam(**options)
    evaluation.evaluate("random", exam).write_bundle(tmp_path / "b")
    assert bundle.verify(tmp_path / "b").exam == exam


def test_five_thousand_episodes_verify_in_seconds(tmp_path):
    exam = make_exam()
    outcome = evaluation.evaluate("flip-ones", exam)
    outcome.write_bundle(tmp_path / "b")
    began = time.monotonic()
    found = bundle.verify(tmp_path / "b")
    assert time.monotonic() - began < 5
    assert found.episodes.success.size == 5120
    np.testing.assert_array_equal(found.episodes.success, outcome.runs[0].success)


def test_every_single_changed_action_is_noticed_and_its_episode_named(genuine):
    arrays, _ = genuine()
    original = arrays["actions"].copy()
    for row, column, t in np.ndindex(original.shape):
        if t >= arrays["steps"][row, column]:
            continue
        changed = original.copy()
        changed[row, column, t] ^= 1
        genuine({**arrays, "actions": changed})
        with pytest.raises(BundleError, match=f"rule {[0, 4, 30, 204][row]}, episode {column}:"):
            bundle.verify(genuine.path)


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        ("success", lambda a: a ^ 1, "claims another outcome"),
        ("steps", lambda a: a - 1, "rule 0, episode 0: claims another number of steps"),
        ("final_wrong", lambda a: a + 1, "claims another final distance"),
        ("checksum", lambda a: a + 1, "not the ones it was written with"),
        ("tapes", lambda a: a ^ 1, "start tape is not that of the exam"),
        ("rules", lambda a: a[::-1].copy(), "rules are not those of its exam"),
        ("actions", lambda a: a + 8, "actions beyond 7"),
        ("steps", lambda a: a + 7, "steps beyond 6"),
        ("steps", lambda a: a[:, :-1].copy(), "episodes are missing"),
        ("actions", lambda a: a[:-1].copy(), "episodes are missing"),
        ("actions", lambda a: a.astype(np.uint16), "U16"),
        ("extra", lambda a: np.zeros(1, np.uint8), "'extra' is missing, or should not be there"),
    ],
)
def test_changed_arrays_are_refused(genuine, name, change, complaint):
    arrays, _ = genuine()
    genuine({**arrays, name: change(arrays.get(name, np.zeros(1)))})
    with pytest.raises(BundleError, match=complaint):
        bundle.verify(genuine.path)


def test_an_action_after_the_end_is_noticed(genuine):
    arrays, _ = genuine()
    assert arrays["steps"][0, 0] == 1, "under rule 0 every episode ends at once"
    arrays["actions"][0, 0, 3] = 1
    genuine(arrays)
    with pytest.raises(BundleError, match="actions after its end"):
        bundle.verify(genuine.path)


def test_a_missing_array_is_refused(genuine):
    arrays, _ = genuine()
    del arrays["steps"]
    genuine(arrays)
    with pytest.raises(BundleError, match="'steps' is missing"):
        bundle.verify(genuine.path)


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("exam", "fresh:other", "wrong exam|start tape"),
        ("version", 2, "exam version 2"),
        ("version", None, "exam version None"),
        ("split", "matched30", "wrong exam"),
        ("split", 3, "wrong exam"),
        ("horizon", 10**9, "wrong exam"),
        ("horizon", "6", "wrong exam"),
        ("length", 9, "wrong exam|episodes are missing|start tape"),
        ("episodes", 10**12, "wrong exam"),
        ("episodes", True, "wrong exam"),
        ("episodes", 4, "wrong exam|episodes are missing"),
        ("train", [0, 4, 30, 204, 30], "wrong exam"),
        ("train", "0", "wrong exam"),
        ("train", [0, -4], "wrong exam"),
        ("test", [1], "wrong exam"),
        ("goal", "11111111", "wrong exam|claims"),
        ("noise", 0.5, "wrong exam|claims"),
        ("noise", float("nan"), "wrong exam"),
        ("mask", [99], "wrong exam"),
        ("reward", "fame", "wrong exam"),
        ("unknown", 1, "wrong exam"),
    ],
)
@pytest.mark.parametrize("with_hash", [False, True])
def test_a_changed_exam_is_refused(genuine, key, value, complaint, with_hash):
    _, description = genuine()
    description["exam"][key] = value
    if with_hash:
        with suppress(ValueError):  # of a description that stands for no exam there is no hash
            description["exam_hash"] = exams.from_identity(description["exam"]).hash
    genuine(description=description)
    with pytest.raises(BundleError, match=complaint):
        bundle.verify(genuine.path)


@pytest.mark.parametrize(
    "description",
    [
        {},
        [],
        {"format": 2},
        {"format": 1},
        {"format": 1, "exam": 3},
        {"format": 1, "exam": {}},
    ],
)
def test_a_description_of_something_else_is_refused(genuine, description):
    arrays, _ = genuine()
    genuine.path.write_bytes(save(arrays, forged_metadata(json.dumps(description))))
    with pytest.raises(BundleError):
        bundle.verify(genuine.path)
    genuine.path.write_bytes(save(arrays, {"other": "x"}))
    with pytest.raises(BundleError, match="no description"):
        bundle.verify(genuine.path)


def test_privileges_must_be_declared(genuine):
    for about in ({}, {"policy": 3}, {"policy": "x"}, {"policy": "x", "sees_rule": 1}, None):
        _, description = genuine()
        genuine(description=description | {"about": about})
        with pytest.raises(BundleError, match="it does not say"):
            bundle.verify(genuine.path)


def test_absurd_sizes_in_the_header_are_refused_before_they_take_memory(tmp_path):
    path = tmp_path / "b"
    for length in (2**63, 2**40, 10**6, 1, 0):
        path.write_bytes(length.to_bytes(8, "little") + b"{}" * 10)
        with pytest.raises(BundleError):
            bundle.verify(path)
    for entry in (
        {"dtype": "U8", "shape": [2**40], "data_offsets": [0, 2**40]},
        {"dtype": "U8", "shape": [2**40], "data_offsets": [0, 4]},
        {"dtype": "U8", "shape": [-4], "data_offsets": [0, 4]},
        {"dtype": "U8", "shape": [1] * 60, "data_offsets": [0, 1]},
        {"dtype": "F64", "shape": [4], "data_offsets": [0, 4]},
        {"dtype": "U8", "shape": "4", "data_offsets": [0, 4]},
        {"dtype": "U8", "shape": [4], "data_offsets": [2, 6]},
        {"dtype": "U8", "shape": [4], "data_offsets": [4, 0]},
        {"dtype": "U8", "shape": [True], "data_offsets": [0, 1]},
        {"shape": [4]},
        3,
    ):
        head = json.dumps({"actions": entry}).encode()
        path.write_bytes(len(head).to_bytes(8, "little") + head + b"\0" * 4)
        with pytest.raises(BundleError):
            bundle.verify(path)


def test_what_is_no_bundle_is_refused(tmp_path):
    for name, data in {
        "empty": b"",
        "short": b"\x01",
        "text": b"hello, this is a text file and nothing else",
        "zip": b"PK\x03\x04" + b"\0" * 100,
        "zeros": b"\0" * 1000,
    }.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(BundleError):
            bundle.verify(tmp_path / name)
    with pytest.raises(BundleError, match="there is no"):
        bundle.verify(tmp_path / "missing")
    with pytest.raises(BundleError, match="not a file"):
        bundle.verify(tmp_path)


def test_cut_off_anywhere_it_is_refused(genuine):
    data = genuine.path.read_bytes()
    chance = random.Random(0)
    for length in [0, 7, 8, 9, len(data) - 1, *(chance.randrange(len(data)) for _ in range(100))]:
        genuine.path.write_bytes(data[:length])
        with pytest.raises(BundleError):
            bundle.verify(genuine.path)
    genuine.path.write_bytes(data + b"\0")
    with pytest.raises(BundleError):
        bundle.verify(genuine.path)


def test_any_flipped_bit_is_noticed(genuine):
    """Fuzz: no bit of the file can be flipped into a traceback or another result."""
    data = genuine.path.read_bytes()
    chance = random.Random(1)
    for _ in range(1500):
        place = chance.randrange(len(data))
        spoilt = bytearray(data)
        spoilt[place] ^= 1 << chance.randrange(8)
        genuine.path.write_bytes(bytes(spoilt))
        with pytest.raises(BundleError) as refusal:
            bundle.verify(genuine.path)
        assert "\n" not in str(refusal.value)


def test_too_long_episodes_are_not_bundled(tmp_path):
    exam = small_exam(horizon=5000, rules=[0], episodes=1)
    with pytest.raises(ValueError, match="at most 4096 steps"):
        evaluation.evaluate("random", exam).write_bundle(tmp_path / "b")


def test_an_oracle_says_so(tmp_path):
    exam = small_exam()
    oracle = policy.greedy(exam.task)
    evaluation.evaluate(oracle, exam).write_bundle(tmp_path / "b")
    assert bundle.verify(tmp_path / "b").about["sees_rule"] is True


def test_a_forged_checksum_does_not_help_against_the_replay(genuine):
    _, description = genuine()
    exam = small_exam()
    episodes = rollout.rollout(policy.random(exam.task), exam.task, None, 3)
    forged = replace(episodes, wrong=np.where(np.arange(7) == 6, 0, episodes.wrong))
    genuine(bundle._arrays(forged, exam), description)
    with pytest.raises(BundleError, match="claims another outcome"):
        bundle.verify(genuine.path)


@pytest.mark.parametrize(
    "policy",
    [
        "x\x1b[2K\rverified: 5120 episodes of my-agent\x1b[8m",
        "two\nlines",
        "\ud800",
        "x" * 101,
        "\u202eright to left",
        "",
        " ",
        7,
        None,
    ],
)
def test_a_name_that_could_forge_a_line_is_refused(genuine, policy):
    _, description = genuine()
    genuine(description=description | {"about": description["about"] | {"policy": policy}})
    with pytest.raises(BundleError, match=r"whose result it is|printable letters"):
        bundle.verify(genuine.path)
    with pytest.raises(ValueError, match=r"whose result it is|printable letters"):
        bundle.check_name(policy)


def refused(path):
    """The most memory held at a time until a bundle was refused, in bytes, and why it was."""
    tracemalloc.start()
    try:
        with pytest.raises(BundleError) as refusal:
            bundle.verify(path)
        return tracemalloc.get_traced_memory()[1], str(refusal.value)
    finally:
        tracemalloc.stop()


def test_a_small_file_cannot_take_much_memory(genuine, tmp_path):
    """Sparse files that say they are huge: refused by their headers."""
    _, description = genuine()
    entry = {"dtype": "U8", "shape": [1 << 30], "data_offsets": [0, 1 << 30]}
    vast = make_exam(length=8, horizon=4096, episodes=390)
    described = {"format": 1, "exam": vast.identity, "exam_hash": vast.hash}
    for more in (description, {**description, "exam": {}}, {**description, **described}):
        header = {"__metadata__": forged_metadata(json.dumps(more)), "actions": entry}
        head = json.dumps(header).encode()
        path = tmp_path / "sparse.tape"
        with path.open("wb") as file:
            file.write(len(head).to_bytes(8, "little") + head)
            file.truncate(8 + len(head) + (1 << 30))
        peak, why = refused(path)
        assert peak < 32 << 20
    assert "at most 33,554,432 actions" in why


def test_more_actions_than_a_bundle_holds_are_refused_before_the_exam_is_sat(capsys, tmp_path):
    vast = ("--length", "8", "--horizon", "4096", "--episodes", "390")
    code, _, err = tape(capsys, "evaluate", "random", *vast, "--bundle", str(tmp_path / "b"))
    assert code == 2
    assert "at most 33,554,432 actions" in err
    assert not (tmp_path / "b").exists()
