"""The code of the tutorials runs, and prints what they say."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import matplotlib
import pytest

ROOT = Path(__file__).parents[2]
tutorials = SimpleNamespace(**runpy.run_path(str(ROOT / "tools" / "tutorials.py")))


@pytest.fixture(autouse=True)
def style_of_their_own():
    """Tutorials set what Matplotlib draws by, as their readers do."""
    with matplotlib.rc_context():
        yield


def text(name):
    return (tutorials.FOLDER / f"{name}.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", tutorials.names())
def test_a_tutorial_prints_what_it_says(name):
    assert tutorials.run(text(name)) == text(name)


@pytest.mark.slow
def test_the_notebook_runs_and_is_its_tutorial(tmp_path):
    path = tutorials.FOLDER / f"{tutorials.NOTEBOOK}.ipynb"
    document = json.loads(path.read_text())
    assert document == tutorials.notebook(text(tutorials.NOTEBOOK))
    namespace = {}
    for cell in document["cells"]:
        if cell["cell_type"] == "code":
            exec(compile(cell["source"], path.name, "exec"), namespace)
    assert (tmp_path / "figure.svg").stat().st_size > 10_000


def test_every_tutorial_is_listed_in_their_index():
    index = text("index")
    assert len(tutorials.names()) == 5
    assert all(f"({name}.md)" in index for name in tutorials.names())


def test_outputs_are_replaced_by_what_is_printed_now():
    block = '```python\nprint(6 * 7)\n```\n\n```text title="Output"\nan older one\n```\n'
    assert tutorials.run(f"before\n{block}after\n") == (
        f"before\n{block.replace('an older one', '42')}after\n"
    )


def test_what_is_printed_must_be_shown():
    with pytest.raises(ValueError, match="no output follows"):
        tutorials.run("```python\nprint(1)\n```\n")


def test_a_block_with_a_title_is_a_file_to_import():
    module = '```python title="module_of_this_test.py"\nanswer = 42\n```\n'
    tutorials.run(module)
    assert Path("module_of_this_test.py").read_text() == "answer = 42\n"


def test_only_commands_of_ours_are_run():
    with pytest.raises(ValueError, match="not 'rm'"):
        tutorials.run('```sh\nrm -r x\n```\n\n```text title="Output"\n```\n')
