"""Nobody can tell the rule from where or when a row is played, and those who try are found."""

import json
from dataclasses import replace

import numpy as np
import pytest

import agents_that_peek
from commands import tape
from stored_runs import store_run
from tapebench.base import files, seeding
from tapebench.exam import baselines, bundle, evaluate, external, policy, rollout, seating
from tapebench.exam.exam import make_exam
from tapebench.exam.external import AgentError
from tapebench.exam.seating import Conditions, Seating
from tapebench.report import contests, findings
from tapebench.runs import evaluation, published, store, training
from tapebench.tasks.task import make_task

EXAM = make_exam(length=8, horizon=8, episodes=20)
SMALL = make_exam(length=8, horizon=8, episodes=3)


def success(outcome):
    return outcome.runs[0].success.mean()


def margin(share, exam=EXAM):
    """Four standard errors of a difference between two such shares."""
    return 4 * np.sqrt(2 * share * (1 - share) / (len(exam.rules) * exam.episodes))


# The order.


def test_an_order_is_a_permutation_that_its_secret_alone_decides():
    first, same, other = Seating(b"a"), Seating(b"a"), Seating(b"b")
    order = first.order(1000)
    np.testing.assert_array_equal(np.sort(order), np.arange(1000))
    np.testing.assert_array_equal(order, same.order(1000))
    assert (order != other.order(1000)).mean() > 0.99


def test_orders_that_are_drawn_differ_every_time():
    assert len({seating.draw_seating().secret for _ in range(100)}) == 100


@pytest.mark.parametrize(("num", "size"), [(1, 256), (255, 256), (256, 256), (257, 256), (900, 64)])
def test_every_row_is_played_once_and_batches_are_of_one_size(num, size):
    batches = Seating(b"a", size).batches(num)
    assert {len(rows) for rows in batches} == {min(num, size)}
    everyone = np.concatenate(batches)
    np.testing.assert_array_equal(np.sort(everyone[:num]), np.arange(num))
    assert len(everyone) - num < size, "only the last is filled up"


def test_every_batch_mixes_the_rules():
    rules = np.arange(256).repeat(20)
    for rows in Seating(b"a", 256).batches(len(rules)):
        assert len(np.unique(rules[rows])) > 128
        assert abs(np.corrcoef(rules[rows], np.arange(256))[0, 1]) < 0.3


def test_who_is_checked_keeps_its_seats_and_gets_other_neighbours():
    for num in (1, 2, 40, 700):
        seats = Seating(b"x", 256)
        number, checked, others = seats.check(num)
        rows = seats.batches(num)[number]
        assert len(others) == len(rows)
        np.testing.assert_array_equal(others[checked], rows[checked])
        assert len(checked) == max(min(64, len(rows) // 2), 1)
        if num > 2:
            assert (others != rows).sum() > 0.9 * (len(rows) - len(checked))


# Randomness is per row.


@pytest.mark.slow
@pytest.mark.parametrize("name", policy.NAMED)
def test_order_and_neighbours_change_nothing_for_our_policies(name):
    task = make_task(length=8, horizon=6, rules=[0, 4, 22, 30, 90, 110, 204])
    sitting = rollout.prepare(policy.make(name, task), task, None, 6, seed=3, trials=2)
    everyone = np.arange(sitting.num)
    whole = sitting.episodes([(everyone, sitting.play(everyone))])
    shuffled = Seating(b"other").order(sitting.num)
    some, rest = shuffled[:11], shuffled[11:]
    parts = sitting.episodes([(rows, sitting.play(rows)) for rows in (some, rest)])
    np.testing.assert_array_equal(whole.cells, parts.cells)
    seats = Seating(b"any", 16)
    played = [(rows, sitting.play(rows)) for rows in seats.batches(sitting.num)]
    assert sitting.check(seats, played) == "independent"


def test_streams_of_rows_differ_and_do_not_depend_on_each_other():
    rules, episodes = np.arange(256).repeat(20), np.tile(np.arange(20), 256)
    streams = seeding.policy_streams(0, "p", rules, episodes)
    assert len(np.unique(streams.identity)) > 0.99 * len(rules)
    alone = seeding.policy_streams(0, "p", rules[77:78], episodes[77:78])
    assert alone.identity == streams.identity[77]
    for seed, name in ((1, "p"), (0, "q")):
        others = seeding.policy_streams(seed, name, rules, episodes)
        assert (others.identity != streams.identity).mean() > 0.99


def test_uniform_numbers_are_uniform_over_rows_lanes_and_calls():
    streams = seeding.policy_streams(0, "p", np.arange(256), np.zeros(256, int))
    calls = []
    for _ in range(20):
        calls.append(seeding.uniform(streams, 32))
        streams = seeding.advance(streams)
    numbers = np.stack(calls)
    assert (numbers >= 0).all()
    assert (numbers < 1).all()
    counts = np.histogram(numbers, 16, (0, 1))[0] / (numbers.size / 16)
    np.testing.assert_allclose(counts, 1, atol=0.03)
    flat = numbers.reshape(20, -1)
    assert abs(np.corrcoef(flat[:-1].ravel(), flat[1:].ravel())[0, 1]) < 0.01
    fork = seeding.uniform(seeding.fork(streams, 0), 32)
    assert abs(np.corrcoef(fork.ravel(), seeding.uniform(streams, 32).ravel())[0, 1]) < 0.05


# Those who peek.


def scrambled(name):
    """The same agent, whose rules are mixed up: what it scores without peeking."""
    agent = getattr(agents_that_peek, name)()
    agent.scramble = np.random.default_rng(0)
    return success(evaluation.evaluate(agent, EXAM))


@pytest.mark.slow
@pytest.mark.parametrize("name", agents_that_peek.PEEKING)
def test_who_peeks_gains_nothing_in_a_process_of_its_own(name):
    # What the clock says is the same for many rows, so that its luck is not that of single rows.
    sittings = 4 if name == "watches_the_clock" else 1
    outcomes = [
        evaluation.evaluate(f"agents_that_peek:{name}", EXAM, subprocess=True)
        for _ in range(sittings)
    ]
    outcome, without = outcomes[0], scrambled(name)
    gain = np.mean([success(each) for each in outcomes]) - without
    is_told = bool(outcome.conditions.remarks)
    assert gain < margin(without) or is_told, (name, gain, outcome.conditions)
    # Those that a former order of rows betrayed the rule to gain nothing, found out or not.
    if name not in ("remembers", "asks_neighbours"):
        assert gain < margin(without), (name, gain)
    assert "not isolated" not in outcome.conditions.remarks


def test_the_same_agents_knew_the_rule_when_rows_came_in_its_order():
    """What the order is for: with that of seating 1, counting rows is knowing the rule."""
    agent = agents_that_peek.CountsRows()
    task, reached = EXAM.task, []
    for first in range(0, 256, 16):
        rules = list(range(first, first + 16))
        sitting = rollout.prepare(external.in_process(agent, "peek", task), task, rules, 5)
        in_order = np.arange(sitting.num)
        reached.append(sitting.episodes([(in_order, sitting.play(in_order))]).success.mean())
    assert np.mean(reached) > scrambled("counts_rows") + 0.3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "remark"),
    [
        ("asks_neighbours", "pools rows"),
        ("remembers", "not repeatable"),
        ("counts_rows", "not repeatable"),
        ("chance", "not repeatable"),
    ],
)
def test_the_evaluator_says_who_does_not_keep_rows_apart(name, remark):
    for apart in (False, True):
        outcome = evaluation.evaluate(f"agents_that_peek:{name}", SMALL, subprocess=apart)
        assert outcome.conditions.rows == remark
        assert remark in outcome.conditions.remarks


def test_an_agent_of_this_process_can_reach_the_rule_and_is_said_not_to_be_isolated():
    outcome = evaluation.evaluate("agents_that_peek:reads_frames", SMALL)
    assert success(outcome) > scrambled("reads_frames") + 0.2
    assert outcome.conditions.remarks == ("not isolated",)
    assert outcome.conditions.made == "in this process"


class Fair:
    """Draws by a generator that `reset` begins anew, as an agent should that draws at all."""

    def reset(self, num_envs):
        self.rng = np.random.default_rng(0)

    def act(self, obs):
        return (obs[:, :-1] + self.rng.random(obs[:, :-1].shape)).argmax(axis=1)


def test_honest_agents_are_independent_whatever_the_size_of_the_exam():
    for exam in (SMALL, make_exam(length=8, horizon=8, episodes=1, rules=[30])):
        outcome = evaluation.evaluate(Fair(), exam)
        assert outcome.conditions.rows == "independent"
        assert outcome.conditions.remarks == ("not isolated",)


def test_a_policy_of_others_is_checked_too_and_ours_are_not():
    pooling = policy.Policy(
        "pool",
        lambda rule, num: (),
        lambda memory, obs, stream: (memory, np.full(len(obs), int(obs[:, :-1].sum()) % 8)),
        backend="numpy",
    )
    conditions = evaluation.evaluate(policy.blind(pooling), SMALL).conditions
    assert conditions.rows == "pools rows"
    ours = evaluation.evaluate("random", SMALL).conditions
    assert ours == Conditions("by us")
    assert ours.remarks == ()


def test_each_evaluation_has_an_order_of_its_own_and_records_it():
    outcomes = [evaluation.evaluate(Fair(), SMALL) for _ in range(2)]
    secrets = [bytes.fromhex(outcome.conditions.order) for outcome in outcomes]
    assert len(secrets[0]) == 16
    assert secrets[0] != secrets[1]
    seats = replace(seating.draw_seating(), secret=secrets[0])
    assert len(seats.batches(768)) == 3


def test_an_agent_that_fails_when_it_is_checked_keeps_its_result():
    class Tired(Fair):
        calls = 0

        def act(self, obs):
            self.calls += 1
            if self.calls > 3 * 8:
                raise RuntimeError("enough")
            return super().act(obs)

    outcome = evaluation.evaluate(Tired(), SMALL)
    assert outcome.conditions.rows == "not repeatable"
    assert outcome.runs[0].success.any()


def test_what_was_finished_before_a_failure_is_kept_row_by_row():
    class Tired(Fair):
        calls = 0

        def act(self, obs):
            self.calls += 1
            if self.calls > 2 * 8:
                raise RuntimeError("enough")
            return obs[:, :-1].argmax(axis=1)

    with pytest.raises(evaluate.UnfinishedError, match=r"enough \(in test_seating.py:\d+\)") as got:
        evaluation.evaluate(Tired(), SMALL)
    assert isinstance(got.value, AgentError)
    assert "raise RuntimeError" in got.value.details
    rows = got.value.rows
    assert len(rows["success"]) == 2 * seating.BATCH
    assert len(np.unique(rows["rule"])) > 128, "rules are mixed"
    whole = evaluation.evaluate("agents_of_users:good", SMALL).rows()
    place = {
        key: number for number, key in enumerate(zip(whole["rule"], whole["episode"], strict=True))
    }
    same = [place[key] for key in zip(rows["rule"], rows["episode"], strict=True)]
    np.testing.assert_array_equal(rows["success"], whole["success"][same])
    np.testing.assert_array_equal(rows["steps"], whole["steps"][same])


def test_of_a_row_that_fills_up_a_batch_the_first_play_counts(tmp_path):
    """300 rows in batches of 256: the last 212 seats are of rows that were played before."""
    exam = make_exam(length=8, horizon=8, episodes=10, rules="test")
    file = tmp_path / "b.tape"
    outcome = evaluation.evaluate("agents_that_peek:draws", exam)
    outcome.write_bundle(file)
    again = bundle.verify(file)
    np.testing.assert_array_equal(again.episodes.success, outcome.runs[0].success)
    sitting = rollout.prepare(policy.random(exam.task), exam.task, None, 2)
    rows = np.arange(sitting.num)
    once = sitting.play(rows)
    other = replace(once, cells=np.where(once.moved, 7 - once.cells, -1))
    np.testing.assert_array_equal(
        sitting.episodes([(rows, once), (rows, other)]).cells,
        sitting.episodes([(rows, once)]).cells,
    )


@pytest.mark.slow
def test_an_agent_that_recognises_the_check_is_found_all_the_same():
    """It logs what it did and repeats it where a batch looks like one that it has played."""
    outcome = evaluation.evaluate("agents_that_peek:hides", EXAM, subprocess=True)
    assert outcome.conditions.rows == "not repeatable"


def test_an_agent_that_fails_in_a_later_seed_keeps_what_was_finished():
    with pytest.raises(evaluate.UnfinishedError, match="enough") as got:
        evaluation.evaluate("agents_that_peek:tires", SMALL, seeds=3)
    assert len(got.value.rows["success"]) == 768 + 256
    assert sorted(set(got.value.rows["seed"])) == [0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("apart", [False, True])
def test_answers_that_are_no_arrays_keep_what_was_finished_too(apart):
    with pytest.raises(evaluate.UnfinishedError, match=r"gives_up: act\(\) failed") as got:
        evaluation.evaluate("agents_that_peek:gives_up", SMALL, subprocess=apart)
    assert len(got.value.rows["success"]) == seating.BATCH
    assert str(got.value).isprintable()


# What is said of it.


def without_seating(run):
    """Make a stored run one of seating 1, which did not name it."""
    for name in ("curve", "eval"):
        table = files.read_table(run / f"{name}.parquet")
        del table["seating"]
        files.write_table(run / f"{name}.parquet", table)
    store.mark(run)


@pytest.mark.slow
def test_published_policies_play_the_same_episodes_in_order_and_seated():
    """One of each kind that is published; `tools/seatings.py` plays all of them."""
    root = published.directory()
    for name in ("dqn", "ppo", "rppo", "pearl"):
        path = root / "full" / name / "fps30" / "s00"
        exam = make_exam(episodes=4)
        learned = training.load_run(path, exam.task).policy
        sitting = rollout.prepare(learned, exam.task, None, exam.episodes)
        in_order = np.arange(sitting.num)
        seated = seating.OWN.order(sitting.num)
        episodes = [sitting.episodes([(rows, sitting.play(rows))]) for rows in (in_order, seated)]
        np.testing.assert_array_equal(episodes[0].cells, episodes[1].cells)


def test_runs_of_another_seating_are_labelled_and_nothing_is_compared_in_silence(tmp_path, capsys):
    for seed in range(2):
        without_seating(store_run(tmp_path, "first-one", seed))
        store_run(tmp_path, "any-one", seed)
    (contest,) = contests.read(tmp_path).contests
    assert {entry.agent: entry.seatings for entry in contest.entries} == {
        "first-one": (1,),
        "any-one": (2,),
    }
    table = findings.main_table(contest)
    column = [column.name for column in table.columns].index("seating")
    assert {row.cells[0]: row.cells[column] for row in table.rows[:2]} == {
        "first-one": "1",
        "any-one": "2",
    }
    for made in (table, findings.pairwise_table(contest)):
        assert "Seating 1 played rows in the order" in made.caption
    root = str(tmp_path)
    query = "select agent, min(seating) as s from eval group by all order by agent"
    code, out, _ = tape(capsys, "query", query, "--results", root, "--json")
    assert code == 0
    assert json.loads(out)["rows"] == [["any-one", 2], ["first-one", 1]]
    paths = [f"{root}/main/{name}" for name in ("first-one", "any-one")]
    code, out, _ = tape(capsys, "compare", *paths, "--json")
    assert json.loads(out)["remarks"] == {"a": ["seating 1"], "b": []}
    code, out, _ = tape(capsys, "compare", *paths)
    assert "seating 1" in out


def test_an_unfinished_run_of_the_first_seating_goes_on(tmp_path):
    path = store_run(tmp_path, "first-one", 0)
    without_seating(path)
    run = store.Run(path, {})
    run.extend("curve", {name: column[-1:] for name, column in run_table(path).items()})
    assert sorted(set(files.read_table(path / "curve.parquet")["seating"])) == [1, 2]


def run_table(path):
    table = files.read_table(path / "curve.parquet")
    return table | {"seating": np.full(len(table["step"]), 2, np.int8)}


@pytest.mark.slow
def test_baselines_of_another_seating_are_measured_again(tmp_path):
    exam = make_exam(length=8, horizon=5, episodes=2, rules=[0, 30])
    measured = baselines.load_or_run(exam, tmp_path)
    (file,) = (tmp_path / "lines").glob("*.json")
    document = files.read_json(file)
    assert document["seating"] == seating.VERSION
    files.write_json(file, document | {"seating": 1, "lines": {}})
    assert baselines.load_stored(exam, tmp_path) is None
    again = baselines.load_or_run(exam, tmp_path)
    np.testing.assert_array_equal(again["mpc"]["success"], measured["mpc"]["success"])


@pytest.mark.slow
def test_a_bundle_says_how_it_was_made_and_verify_says_what_is_proved(tmp_path, capsys):
    file = tmp_path / "b.tape"
    outcome = evaluation.evaluate("agents_that_peek:asks_neighbours", SMALL, subprocess=True)
    outcome.write_bundle(file)
    replayed = bundle.verify(file)
    assert replayed.conditions == outcome.conditions
    code, out, _ = tape(capsys, "verify", str(file))
    assert code == 0
    assert "256 rules, L = 8, H = 8; success ID" in out
    assert "Outcomes: proved, every action was replayed." in out
    assert "Blindness: declared, not proved." in out
    assert "Made: in a process of its own, pools rows, seating 2, as the bundle says." in out
    code, out, _ = tape(capsys, "verify", str(file), "--json")
    assert json.loads(out)["conditions"]["rows"] == "pools rows"


@pytest.mark.slow
def test_the_score_of_an_agent_stands_beside_what_was_seen_of_it(capsys):
    exam_flags = (
        "--length",
        "8",
        "--horizon",
        "8",
        "--episodes",
        "2",
        "--rules",
        "0,30,90,110,204",
    )
    code, out, _ = tape(capsys, "evaluate", "agents_that_peek:reads_frames", *exam_flags)
    assert code == 0
    assert "made in this process, not isolated, rows independent, seating 2" in out


@pytest.mark.slow
def test_rows_and_scores_carry_the_seating():
    outcome = evaluation.evaluate("flip-ones", SMALL)
    assert (outcome.rows()["seating"] == seating.VERSION).all()
    assert outcome.score["conditions"]["seating"] == seating.VERSION


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"made": "by us"},
        Conditions("by us").as_dict() | {"made": "by magic"},
        Conditions("by us").as_dict() | {"rows": ["independent"]},
        Conditions("by us").as_dict() | {"seating": 3},
        Conditions("by us").as_dict() | {"seating": True},
        Conditions("by us").as_dict() | {"seating": "2"},
        Conditions("by us").as_dict() | {"order": "xyz"},
        Conditions("by us").as_dict() | {"order": 7},
        Conditions("by us").as_dict() | {"order": "00" * 40},
        Conditions("by us").as_dict() | {"order": "ab  cd"},
        Conditions("by us").as_dict() | {"more": 1},
    ],
)
def test_conditions_of_others_are_checked(document):
    with pytest.raises(ValueError, match=r"\w"):
        seating.read_conditions(document)


def test_what_says_nothing_is_of_the_first_seating():
    assert seating.read_conditions(None).remarks == ("seating 1",)
    known = Conditions("in a process of its own", "pools rows", "ab" * 16)
    assert seating.read_conditions(known.as_dict()) == known
