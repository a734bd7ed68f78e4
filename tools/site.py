"""The sources of the documentation site, in build/docs: `make docs` runs this and then mkdocs.

They are the files of docs/, with pages added that list others (agents, records, modules), a page
for each example, and for each public module one that mkdocstrings fills in. Links to files outside
of docs/ lead to those pages, or become plain words.
"""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS, BUILD = ROOT / "docs", ROOT / "build" / "docs"

MODULES = {
    "Doors": ("tapebench", "tapebench.gym", "tapebench.env", "tapebench.sb3"),
    "Rules and what is possible": (
        "tapebench.physics.family",
        "tapebench.physics.families",
        "tapebench.physics.space",
        "tapebench.physics.exact",
        "tapebench.physics.bayes",
        "tapebench.physics.strata",
    ),
    "Tasks": ("tapebench.tasks.task", "tapebench.tasks.splits", "tapebench.tasks.universe"),
    "Exams": (
        "tapebench.exam.exam",
        "tapebench.exam.policy",
        "tapebench.exam.external",
        "tapebench.exam.evaluate",
        "tapebench.exam.metrics",
        "tapebench.exam.bundle",
    ),
    "Agents": ("tapebench.agents", "tapebench.agents.api"),
    "Runs and results": (
        "tapebench.runs.evaluation",
        "tapebench.runs.training",
        "tapebench.runs.tracks",
        "tapebench.runs.results",
        "tapebench.runs.published",
    ),
    "Statistics": (
        "tapebench.stats.intervals",
        "tapebench.stats.comparisons",
        "tapebench.stats.drop",
        "tapebench.stats.unseen",
        "tapebench.stats.folds",
        "tapebench.stats.summaries",
    ),
}
"""Modules with a page in the API reference, by what they are for."""


def module_file(name: str) -> Path:
    """The source of a module."""
    path = ROOT / "src" / Path(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def docstring(path: Path) -> str:
    """The docstring of a file of Python."""
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def title(path: Path) -> str:
    """The heading of a Markdown file."""
    return path.read_text().split("\n", 1)[0].lstrip("# ")


def listing(
    heading: str, about: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]
) -> str:
    """A page that lists others."""
    table = [columns, ("---",) * len(columns), *rows]
    lines = [f"| {' | '.join(row)} |" for row in table]
    return "\n".join([f"# {heading}", "", about, "", *lines, ""])


def first_sentence(text: str) -> str:
    """Of a docstring or page, in one line."""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[.?])(?<! al\.)\s", paragraph)[0].rstrip(":")


def write(path: str, text: str) -> None:
    """A page of the site."""
    target = BUILD / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


def add_examples() -> None:
    """A page for each example: what it says of itself, and its code."""
    for path in sorted((ROOT / "examples").glob("*.py")):
        code = path.read_text()
        write(
            f"examples/{path.stem}.md",
            f'# {path.name}\n\n```python title="examples/{path.name}"\n{code}```\n',
        )


def add_api() -> None:
    """A page for each public module, and one that lists them."""
    sections = ["# API reference", ""]
    for heading, modules in MODULES.items():
        rows = []
        for name in modules:
            write(f"api/{name}.md", f"---\ntitle: {name}\n---\n\n::: {name}\n")
            about = first_sentence(docstring(module_file(name)))
            rows.append(f"| [`{name}`]({name}.md) | {about} |")
        sections += [f"## {heading}", "", "| | |", "| --- | --- |", *rows, ""]
    write("api/index.md", "\n".join(sections))


def add_listings() -> None:
    """The pages that list agents and records."""
    agents = [
        (
            f"[{path.stem}]({path.name})",
            first_sentence(path.read_text().split("\n\n", 1)[1]),
            f"[tuning](../tuning/{path.name})" if (DOCS / "tuning" / path.name).is_file() else "",
        )
        for path in sorted((DOCS / "agents").glob("*.md"))
    ]
    about = (
        "The page of an agent has its source, its loss, how it deviates from the source, and every "
        "option. How its settings were found is on the page of its tuning."
    )
    columns = ("agent", "what it is", "settings")
    write("agents/index.md", listing("Agents", about, columns, agents))
    records = [(f"[{title(path)}]({path.name})",) for path in sorted((DOCS / "adr").glob("*.md"))]
    about = "Choices that somebody might question, one page each: what was decided, and why."
    write("adr/index.md", listing("Decisions", about, ("decision",), records))


def redirect(page: Path) -> str:
    """The text of a page, with links to files that are not on the site led elsewhere."""

    def lead(match: re.Match[str]) -> str:
        words, target, anchor = match[1], match[2], match[3] or ""
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        path = (page.parent / target).resolve()
        if path.is_relative_to(DOCS):
            return match[0] if path.is_file() else words
        if path.is_relative_to(ROOT / "examples") and path.suffix == ".py":
            up = "../" * (len(page.relative_to(DOCS).parts) - 1)
            return f"[{words}]({up}examples/{path.stem}.md{anchor})"
        return words

    return re.sub(r"(?<!!)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)", lead, page.read_text())


def main() -> None:
    """Write all sources anew."""
    shutil.rmtree(BUILD, ignore_errors=True)
    shutil.copytree(DOCS, BUILD)
    for page in DOCS.rglob("*.md"):
        write(str(page.relative_to(DOCS)), redirect(page))
    add_examples()
    add_api()
    add_listings()


if __name__ == "__main__":
    main()
