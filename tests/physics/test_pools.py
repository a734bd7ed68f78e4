from importlib import resources

import pytest

from tapebench.physics import pools
from tapebench.physics.quotient import Quotient


def shipped(name):
    return resources.files("tapebench").joinpath(f"data/pools/{name}.json").read_text()


@pytest.mark.slow
def test_the_pool_of_rings_is_drawn_again_byte_for_byte():
    assert pools.dump(pools.draw("ring2")) == shipped("ring2")


@pytest.mark.nightly
@pytest.mark.timeout(1300)
def test_the_pool_of_tori_is_drawn_again_byte_for_byte():
    assert pools.dump(pools.draw("life")) == shipped("life")


@pytest.mark.slow
def test_the_smallest_strata_of_tori_are_drawn_again():
    pool, search = pools.load("life"), Quotient(pools.load("life").family, pools.SPACES["life"])
    for ones in (1, 17):
        searched, counts = pools.draw_stratum(search, ones)
        assert searched == pool.searched[ones] == 18
        kept = {rule: reach for rule, reach in pool.counts.items() if rule.bit_count() == ones}
        assert list(counts.items()) == list(kept.items())


@pytest.mark.parametrize("name", pools.SPACES)
def test_pools_hold_solved_rules_one_of_each_that_are_the_same_task(name):
    pool = pools.load(name)
    assert pools.dump(pool) == shipped(name)
    assert pool.space == pools.SPACES[name]
    assert list(pool.searched) == list(range(1, pool.family.entries))
    for rule, reach in pool.counts.items():
        assert sum(reach.histogram) == 2**pool.space.size
        assert reach.max_steps <= pools.HORIZON
        assert pool.family.twins(rule)[0] == rule
    for ones, rules in pool.within(pools.HORIZON).items():
        assert 0 < len(rules) <= min(pool.searched[ones], pools.KEPT)


def test_a_shorter_horizon_leaves_some_of_the_rules_of_a_longer():
    pool = pools.load("ring2")
    shorter, longer = pool.within(4), pool.within(8)
    for ones, rules in shorter.items():
        assert set(rules) <= set(longer[ones])
    assert all(pool.counts[rule].max_steps <= 4 for rules in shorter.values() for rule in rules)


def test_pools_are_of_families_too_large_to_list():
    with pytest.raises(ValueError, match="drawn of elementary: use one of ring2, life"):
        pools.load("elementary")
