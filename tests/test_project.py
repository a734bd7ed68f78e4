import ast
import json
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tapebench"

FLOW = [
    "naming",
    "dynamics",
    "seeding",
    "stats",
    "rules",
    "exhaustive",
    "exact",
    "splits",
    "task",
    "draw",
    "env",
    "gym",
    "sb3",
    "policy",
    "seating",
    "rollout",
    "guest",
    "references",
    "agents",
    "store",
    "shipped",
    "exam",
    "bundle",
    "score",
    "training",
    "credibility",
    "protocol",
    "contrasts",
    "sweep",
    "executors",
    "report",
    "experiments",
    "bench",
    "play",
    "cli",
]
"""Every module, in an order in which each imports only from those before it."""


def imported_modules(path):
    """Names of the tapebench modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        assert not getattr(node, "level", 0), f"{path.name}: imports are absolute"
        if isinstance(node, ast.ImportFrom) and node.module == "tapebench":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tapebench."):
            yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("tapebench."):
                    yield alias.name.split(".")[1]


def test_imports_only_point_against_the_flow():
    files = [path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py"]
    place = {path: path.relative_to(SOURCE).with_suffix("").parts[0] for path in files}
    assert set(place.values()) == set(FLOW)
    for path, name in place.items():
        for other in imported_modules(path):
            if other != name and not other.startswith("__"):
                assert FLOW.index(other) < FLOW.index(name), f"{path.name} imports {other}"


def test_the_map_in_the_readme_lists_the_modules_in_the_flow():
    readme = (ROOT / "README.md").read_text()
    (line,) = (line for line in readme.splitlines() if line.endswith("→ cli"))
    listed = re.findall(r"\w+", line)
    assert listed == [name for name in FLOW if name not in ("draw", "exhaustive")]


def test_the_snippets_of_the_readme_run():
    readme = (ROOT / "README.md").read_text()
    snippets = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert len(snippets) == 2
    for snippet in snippets:
        exec(compile(snippet, "README.md", "exec"), {})


@pytest.mark.slow
def test_the_table_in_the_readme_is_what_its_command_gives():
    lines = runpy.run_path(str(ROOT / "examples" / "trivial_lines.py"))
    readme = (ROOT / "README.md").read_text()
    shown = readme.split(lines["BEGIN"])[1].split(lines["END"])[0].strip()
    assert shown == lines["markdown"](lines["all_rows"]())


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

    extras = project["project"]["optional-dependencies"].values()
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
