"""Tables: the same numbers in every format, and marks that do not claim more than intervals do."""

import csv
import io
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapebench.report.tables import CEILING, REFERENCE, Column, Row, Table
from tapebench.stats import Interval

COLUMNS = (Column("agent"), Column("success", better="high"), Column("distance", better="low"))


def table(*rows, columns=COLUMNS):
    return Table("main", "A title", "A caption & more.", columns, rows)


def interval(mean, half=0.01):
    return Interval(mean, mean - half, mean + half)


SAMPLE = table(
    Row(("dqn", interval(0.5), interval(0.3))),
    Row(("ppo_x", interval(0.495), interval(0.2))),
    Row(("rad|2", interval(0.4), None)),
    Row(("curl", interval(0.1), float("nan"))),
    Row(("mpc", 0.9, 0.01), REFERENCE),
    Row(("ceiling", 1.0, 0.0), CEILING),
)


def test_whoever_overlaps_the_best_is_best_too_and_references_do_not_compete():
    assert [marks[1] for marks in SAMPLE.marks] == ["best", "best", "second", "", "", ""]
    assert [marks[2] for marks in SAMPLE.marks] == ["second", "best", "", "", "", ""]


def test_one_agent_alone_is_no_contest():
    alone = table(Row(("dqn", interval(0.5), 0.3)), Row(("mpc", 0.1, 0.9), REFERENCE))
    assert not any(any(marks) for marks in alone.marks)


@given(
    st.lists(
        st.tuples(st.floats(0, 1), st.floats(0, 0.3)),
        min_size=2,
        max_size=8,
    )
)
def test_marks_follow_from_the_intervals_alone(values):
    ranked = table(
        *(Row((str(n), interval(mean, half), None)) for n, (mean, half) in enumerate(values))
    )
    marks = [row[1] for row in ranked.marks]
    top = max(values, key=lambda pair: pair[0])
    for (mean, half), mark in zip(values, marks, strict=True):
        assert mark != "best" or mean + half >= top[0] - top[1]
    by_mean = [mark for _, mark in sorted(zip(values, marks, strict=True), key=lambda p: -p[0][0])]
    assert by_mean[0] == "best"
    assert by_mean == sorted(by_mean, key=["best", "second", ""].index)


def test_no_agent_is_passed_over_in_favour_of_a_worse_one_with_a_wider_interval():
    ranked = table(
        Row(("best", interval(0.5), None)),
        Row(("better", interval(0.4), None)),
        Row(("worse", interval(0.3, 0.3), None)),
    )
    assert [row[1] for row in ranked.marks] == ["best", "second", "second"]


def test_marks_follow_the_tests_where_there_are_any_and_stay_within_a_group():
    columns = (
        Column("agent"),
        Column("success", better="high", apart=frozenset({frozenset(("a", "c"))})),
    )
    rows = [Row((name, interval(mean, 0.0))) for name, mean in (("c", 0.1), ("a", 0.9), ("b", 0.5))]
    rows += [Row((name, interval(mean)), group="conv") for name, mean in (("d", 0.99), ("e", 0.01))]
    tested = Table("tested", "Tested", "", columns, tuple(rows))
    assert [row[1] for row in tested.marks] == ["second", "best", "best", "best", "best"]


def test_csv_gives_back_every_number_in_full():
    third = Interval(1 / 3, 0.1 + 0.2, np.float64(0.7))
    written = table(Row(("a, b", third, 2)), Row(("c", None, 5.5), REFERENCE))
    head, first, second = csv.reader(io.StringIO(written.csv()))
    assert head == ["kind", "agent", "success", "success low", "success high", "distance"]
    assert first[:2] == ["agent", "a, b"]
    assert tuple(map(float, first[2:5])) == (1 / 3, 0.1 + 0.2, 0.7)
    assert first[5] == "2"
    assert second == ["reference", "c", "", "", "", "5.5"]


def test_markdown_has_one_line_for_each_row_and_escapes_bars():
    lines = SAMPLE.markdown().splitlines()
    rows = [line for line in lines if line.startswith("| ")]
    assert len(rows) == 2 + len(SAMPLE.rows)
    assert "| **0.500** [0.490, 0.510] | _0.300_ [0.290, 0.310] |" in rows[2]
    assert "rad\\|2" in rows[4]
    assert rows[4].endswith("| – |")
    assert lines[-1] == "A caption & more."


def test_latex_is_booktabs_with_everything_escaped():
    text = SAMPLE.latex()
    for command in (r"\toprule", r"\midrule", r"\bottomrule", r"\label{tab:main}"):
        assert command in text
    assert r"ppo\_x & \textbf{0.495} {\scriptsize [0.485, 0.505]}" in text
    assert r"A caption \& more." in text
    assert text.count(r"\midrule") == 3
    assert text.count("{") == text.count("}")


def test_a_latex_table_longer_than_a_page_breaks_and_has_plain_letters_only():
    long = table(*(Row((f"ε × {n}", 0.1, 0.2)) for n in range(80)))
    text = long.latex()
    assert text.startswith(r"\begin{longtable}{lrr}")
    assert text.count(r"\endhead") == text.count(r"\endfoot") == 1
    assert text.isascii()
    assert SAMPLE.latex().startswith(r"\begin{table}")


def test_html_escapes_and_carries_full_numbers():
    text = table(Row(("<script>", interval(1 / 3), 2.0))).html()
    assert "<script>" not in text
    assert f'data-value="{1 / 3!r}"' in text
    assert "0.333 <small>[0.323, 0.343]</small>" in text
    assert text.count("<button") == 3


def test_numbers_are_printed_as_the_column_says():
    assert Column("x", digits=1, signed=True).number(2.04) == "+2.0"
    assert Column("x").number(-0.0001) == "0.000"
    assert Column("p", digits=4, never_zero=True).number(0.00004) == "< 0.0001"
    assert Column("p", digits=4, never_zero=True).number(0.00006) == "0.0001"
    assert Column("x").number(12345) == "12,345"
    assert Column("x").number(math.inf) == "–"
    assert Column("x").ends(Interval(1, 1, 1)) == ""


def test_files_are_written_in_three_formats(tmp_path):
    written = SAMPLE.save(tmp_path)
    assert {path.name for path in written} == {"main.md", "main.tex", "main.csv"}
    assert {path.name for path in tmp_path.iterdir()} == {"main.md", "main.tex", "main.csv"}
    assert (tmp_path / "main.tex").read_text() == SAMPLE.latex()


def test_a_ragged_row_and_a_bad_name_are_refused():
    with pytest.raises(ValueError, match="2 cells for 3 columns"):
        table(Row(("dqn", 1.0)))
    with pytest.raises(ValueError, match=r"part of a file's name, not '\.\./x'"):
        Table("../x", "", "", COLUMNS, ())
    with pytest.raises(ValueError, match="high, low or empty"):
        Column("x", better="more")


def test_columns_of_sentences_are_broken_into_lines_and_others_are_not():
    sentence = "failing episodes end at a mean distance that is printed"
    table = Table(
        "t", "T", "c", (Column("a"), Column("b"), Column("c")), (Row((sentence, "x", 1)),)
    )
    assert r"\begin{tabular}{p{0.3\linewidth}lr}" in table.latex()
    assert (
        f'<th scope=row class="text prose">{sentence}</th><td class="text">x</td><td'
        in table.html()
    )


def test_text_in_csv_is_never_a_formula():
    names = ("=1+1", "+x", "-y", "@z", "plain", "a=b")
    made = Table("t", "T", "", (Column("name"), Column("n")), tuple(Row((n, -1)) for n in names))
    cells = [line.split(",")[1] for line in made.csv().splitlines()[1:]]
    assert cells == ["'=1+1", "'+x", "'-y", "'@z", "plain", "a=b"]
    assert all(line.endswith(",-1") for line in made.csv().splitlines()[1:]), "numbers stay"
