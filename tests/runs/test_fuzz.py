"""Some seconds of the fuzzer in every run of the suite; `make fuzz` goes on for an hour."""

import pytest

import fuzz


@pytest.mark.slow
@pytest.mark.parametrize("target", list(fuzz.TARGETS))
def test_what_comes_from_others_is_refused_in_a_line_or_is_what_it_was(target):
    tally = fuzz.fuzz(6, targets=(target,))
    assert tally.tried[target] > 5
    assert tally.refused[target] <= tally.tried[target]


def test_the_fuzzer_finds_a_reader_that_trusts(monkeypatch):
    """Without its checks a bundle is accepted that is another one: the fuzzer can fail."""
    monkeypatch.setattr(fuzz.bundle, "_compare", lambda *_: None)
    monkeypatch.setattr(fuzz.bundle, "_check_starts", lambda *_: None)
    with pytest.raises(AssertionError, match=r"--target bundles --seed \d+"):
        fuzz.fuzz(60, targets=("bundles",))
