"""What plain Minari makes of a dataset."""

import json
import shutil

import gymnasium
import h5py
import minari
import numpy as np
import pytest

from tapebench import datasets
from tapebench.base.files import DamageError
from tapebench.datasets import minari_format, store
from tapebench.datasets.check import check
from tapebench.physics import exact
from tapebench.tasks import splits


@pytest.fixture
def exported(tmp_path, optimal, monkeypatch):
    minari_format.export(optimal, store.read_manifest(optimal), lambda *_: None)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "data"))
    return optimal


def test_minari_loads_it_by_its_id(exported):
    data, told = minari.load_dataset("tape/core-folds-0/optimal-v0"), datasets.load(exported)
    assert list(minari.list_local_datasets()) == ["tape/core-folds-0/optimal-v0"]
    assert data.total_episodes == len(told) == 1200
    assert data.total_steps == told.num_steps.sum()
    for row in (0, 700, 1199):
        episode, steps = data[row], int(told.num_steps[row])
        assert episode.id == row
        np.testing.assert_array_equal(
            episode.observations, told.observations([row])[0, : steps + 1]
        )
        np.testing.assert_array_equal(episode.actions, told.action[row, :steps])
        np.testing.assert_array_equal(episode.rewards, told.reward[row, :steps])
        assert episode.terminations.tolist() == [False] * (steps - 1) + [True]
        assert not episode.truncations.any()
        for name in ("optimal_cells", "optimal_steps", "entropy"):
            np.testing.assert_array_equal(episode.infos[name], getattr(told, name)[row, :steps])


def test_an_episode_can_be_played_again_in_the_environment_that_minari_recovers(exported):
    data = minari.load_dataset("tape/core-folds-0/optimal-v0")
    env = data.recover_environment()
    for row in range(20):
        episode = data[row]
        (about,) = data.storage.get_episode_metadata([row])
        obs, _ = env.reset(options=about["options"])
        assert data.observation_space.contains(obs)
        seen, ends = [obs], []
        for action, reward in zip(episode.actions, episode.rewards, strict=True):
            obs, paid, terminated, truncated, _ = env.step(action)
            assert np.float32(paid) == reward
            assert not truncated
            seen.append(obs)
            ends.append(terminated)
        np.testing.assert_array_equal(np.array(seen), episode.observations)
        assert ends == episode.terminations.tolist()


def test_reference_scores_are_the_exact_success_in_the_environment_for_evaluation(exported):
    data = minari.load_dataset("tape/core-folds-0/optimal-v0")
    held_out = splits.load("folds-0").test
    ceiling = np.mean([exact.reach(rule, 9, 4).solvable_excluding_goal for rule in held_out])
    chance = np.mean([exact.chance_of_success(rule, 9, 4, "random") for rule in held_out])
    scores = minari.get_normalized_score(data, np.array([chance, ceiling]))
    np.testing.assert_allclose(scores, [0, 1], atol=1e-12)
    env = data.recover_environment(eval_env=True)
    assert env.unwrapped.task.rules == held_out
    assert env.unwrapped.task.reward == "sparse"
    tape = [1, 0, 0, 0, 0, 0, 0, 0, 0]
    env.reset(options={"rule": 204, "tape": tape})
    assert env.step(0)[1] == 1.0
    env.reset(options={"rule": 204, "tape": tape})
    assert env.step(1)[1] == 0.0


def test_the_same_dataset_has_the_same_bytes_for_minari_too(exported, tmp_path, spec_of):
    path, manifest = store.make(spec_of("optimal", 1200), tmp_path / "again")
    again = minari_format.export(path, manifest, lambda *_: None)
    assert again == store.read_manifest(exported)
    for name in ("data/main_data.hdf5", "data/metadata.json"):
        assert (path / name).read_bytes() == (exported / name).read_bytes()
    with h5py.File(path / "data" / "main_data.hdf5") as file:
        assert len(file) == 1200


def test_a_split_of_a_user_is_recovered_by_its_rules(tmp_path, spec_of):
    split = splits.Split("mine", (30, 110, 204), (90, 150))
    told = minari_format.environment(spec_of("random", split=split), "test", "sparse")
    task = gymnasium.make(told).unwrapped.task
    assert (task.rules, task.length, task.horizon, task.reward) == ((90, 150), 9, 4, "sparse")


def test_files_for_minari_are_checked_and_an_interrupted_export_begins_anew(exported):
    assert check(exported).manifest.extra
    file = exported / "data" / "metadata.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"ref_max_score": 2.0}))
    with pytest.raises(DamageError, match=r"metadata\.json"):
        check(exported)
    manifest = store.read_manifest(exported)
    shutil.copytree(exported / "data", exported / ".data.partial")
    again = minari_format.export(exported, store.replace(manifest, extra=()), lambda *_: None)
    assert again == manifest
    assert check(exported)
    assert not (exported / ".data.partial").exists()
