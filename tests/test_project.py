import ast
import itertools
import json
import re
import runpy
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tapebench"

FLOW = (
    "base → physics → tasks → env, gym, gymnax, sb3 → exam → planning → datasets, agents → runs "
    "→ report → experiments → pages, play, cli"
)
"""The README's map: each folder or door imports only from those to its left, and from `stats`."""


def module_name(path):
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in SOURCE.rglob("*.py")}
DOOR = "tapebench"
"""Imports what it hands out when it is asked for it, and everybody may ask for the version."""


def imported_modules(path):
    """The tapebench modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        assert not getattr(node, "level", 0), f"{path.name}: imports are absolute"
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


IMPORTS = {
    name: set(imported_modules(path)) & (MODULES.keys() - {name, DOOR})
    for name, path in MODULES.items()
    if name != DOOR
}


def folder(module):
    return module.split(".")[1]


def test_imports_only_point_to_the_left():
    order = {name: number for number, name in enumerate(re.findall(r"\w+", FLOW))}
    assert {folder(name) for name in IMPORTS} == {*order, "stats"}
    for name, others in IMPORTS.items():
        for other in others:
            if folder(name) == "stats":
                assert folder(other) == "stats", f"{name} imports {other}"
            elif folder(other) not in ("stats", folder(name)):
                assert order[folder(other)] < order[folder(name)], f"{name} imports {other}"


def test_no_module_imports_itself_by_way_of_others():
    order = TopologicalSorter(IMPORTS)
    assert len(list(order.static_order())) == len(IMPORTS)


def test_every_arrow_of_the_map_is_an_import():
    stations = [part.split(", ") for part in FLOW.split(" → ")]
    drawn = {(folder(name), folder(other)) for name, others in IMPORTS.items() for other in others}
    for before, after in itertools.pairwise(stations):
        assert {(b, a) for a in before for b in after} & drawn, f"{before} → {after}"
    imported = {other for _, other in drawn}
    assert imported >= {name for station in stations[:-1] for name in station} - {"gymnax", "sb3"}


ASSUMES = {
    "physics.bayes": "its knowledge is of the eight entries of a table",
    "physics.exact": "ships and reads tables of all elementary rules",
    "physics.exhaustive": "its search is written for three neighbours on a ring",
    "physics.features": "the paper's features and Wolfram's classes are of elementary rules",
    "physics.strata": "ships and reads what flipping ones reaches under each of 256 rules",
    "planning.ball": "its balls are spans of a ring",
    "planning.beam": "meets those balls",
    "planning.belief": "holds a probability for each of 256 rules, by sets of eight neighbourhoods",
}
"""Modules that know elementary rules, and why. All others ask the task's family and universe."""


def test_only_these_modules_know_elementary_rules():
    family = "tapebench.physics.families"
    known = {name for name, others in IMPORTS.items() if f"{family}.elementary" in others}
    outside = {name.removeprefix("tapebench.") for name in known if not name.startswith(family)}
    assert outside == set(ASSUMES)


def test_the_map_is_in_the_readme():
    assert FLOW in " ".join((ROOT / "README.md").read_text().split())


@pytest.mark.slow
def test_the_snippets_of_the_readme_run():
    readme = (ROOT / "README.md").read_text()
    snippets = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert len(snippets) == 2
    for snippet in snippets:
        exec(compile(snippet, "README.md", "exec"), {})


@pytest.mark.slow
def test_the_table_in_the_readme_is_what_its_command_gives():
    baselines = runpy.run_path(str(ROOT / "examples" / "baselines.py"))
    readme = (ROOT / "README.md").read_text()
    shown = readme.split(baselines["BEGIN"])[1].split(baselines["END"])[0].strip()
    assert shown == baselines["markdown"](baselines["all_rows"]())


def test_relative_links_in_the_documents_lead_somewhere():
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    assert len(documents) > 5
    for document in documents:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            if not target.startswith("http"):
                assert (document.parent / target).exists(), f"{document.name}: {target}"


LOCKS = ["requirements.lock", "requirements-dev.lock", "requirements-torch.lock"]


def read_lock(name: str) -> dict[str, str]:
    """The locked version of each package, every one with the hashes of its files."""
    entries = (ROOT / name).read_text().replace("\\\n", " ").splitlines()
    versions = {}
    for entry in entries:
        pinned = r"([a-z0-9-]+)==(\S+)( ; [^#]+?)?((?:\s+--hash=sha256:[0-9a-f]{64})+)\s*"
        match = re.fullmatch(pinned, entry)
        assert match, f"{name}: {entry}"
        versions[match[1]] = match[2]
    return versions


@pytest.mark.parametrize("name", [*LOCKS, "requirements-torch-cuda.lock"])
def test_the_lock_holds_exact_versions_with_hashes_and_no_address(name):
    assert len(read_lock(name)) > 5
    assert "://" not in (ROOT / name).read_text()


def test_what_the_project_asks_for_is_locked_and_so_is_what_builds_it():
    with open(ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)
    run, dev, torch = (read_lock(name) for name in LOCKS)

    def names(requirements):
        found = {re.split(r"[\[<>=;]", each)[0].lower().replace("_", "-") for each in requirements}
        return found - {"tapebench"}

    extras = dict(project["project"]["optional-dependencies"])
    assert names(extras.pop("gymnax")) == {"gymnax"}, "is installed apart, by `make clients`"
    extras = extras.values()
    assert names(project["project"]["dependencies"]) <= run.keys()
    assert names(each for extra in extras for each in extra) <= dev.keys()
    assert run.items() <= dev.items()
    assert all(dev.get(name, version) == version for name, version in torch.items())
    assert torch["torch"] == "2.13.0+cpu"
    assert "torch" not in dev
    assert project["build-system"]["requires"] == [f"hatchling=={run['hatchling']}"]


def test_the_package_never_pickles():
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        names = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for alias in node.names
        }
        assert not names & {"pickle", "cloudpickle", "dill"}, path


BENCHMARKS = {
    "throughput.py": (["--no-peers"], ["marks"]),
    "references.py": ([], ["decisions"]),
    "training.py": (["--sweep"], ["marks", "sweep"]),
    "sweeps.py": (["--no-ray"], ["marks"]),
    "worlds.py": ([], ["costs"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("script", BENCHMARKS)
def test_a_benchmark_says_how_it_is_used(script):
    command = [sys.executable, str(ROOT / "benchmarks" / script), "--help"]
    assert "--quick" in subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.nightly
@pytest.mark.timeout(1300)
@pytest.mark.parametrize("script", BENCHMARKS)
def test_the_benchmarks_run(tmp_path, script):
    options, holds = BENCHMARKS[script]
    out = tmp_path / "figures.json"
    command = [sys.executable, str(ROOT / "benchmarks" / script), "--quick", *options]
    subprocess.run([*command, "--json", str(out)], check=True, capture_output=True, timeout=1200)
    figures = json.loads(out.read_text())
    assert all(figures[name] for name in holds)
