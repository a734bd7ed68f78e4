"""docs/tutorials: Markdown whose code is run, and whose outputs are what it printed.

`python tools/tutorials.py` runs every tutorial and writes what its code prints below it; the tests
run them again and compare. In a tutorial

- a block marked `python` is executed, all of a tutorial in one namespace;
- one with a title, like `title="my_agent.py"`, is written to that file instead, to be imported;
- a block marked `sh` that is followed by an output is executed if it consists of `tape` commands;
- a block marked `text title="Output"` is what the block before it printed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from tapebench import cli
from tapebench.base import files

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "tutorials"
NOTEBOOK = "figure"
"""The tutorial that is a notebook as well."""

OUTPUT = 'text title="Output"'
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TITLE = re.compile(r'title="([\w.]+)"')


def names() -> list[str]:
    """The tutorials."""
    return sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != "index")


def run(text: str) -> str:
    """The tutorial with the outputs of its code, which is run in the working directory."""
    namespace: dict[str, Any] = {"__name__": "tutorial"}
    printed = ""
    pieces, end = [], 0
    blocks = [*BLOCK.finditer(text)]
    kinds = [block[1] for block in blocks]
    for block, after in zip(blocks, [*kinds[1:], ""], strict=True):
        kind, code = block[1], block[2]
        if kind == OUTPUT:
            pieces += [text[end : block.start(2)], printed]
            end = block.end(2)
        elif title := TITLE.search(kind):
            Path(title[1]).write_text(code)
        elif kind == "python":
            with capture() as output:
                exec(compile(code, "tutorial", "exec"), namespace)
            printed = tidy(output.getvalue())
            if printed and after != OUTPUT:
                raise ValueError(f"this prints something, and no output follows it:\n{code}")
        elif kind == "sh" and after == OUTPUT:
            with capture() as output:
                for command in commands(code):
                    run_command(command)
            printed = tidy(output.getvalue())
    return "".join([*pieces, text[end:]])


def commands(code: str) -> Iterator[list[str]]:
    """The arguments of every `tape` command of a shell block."""
    for line in code.replace("\\\n", " ").splitlines():
        name, *argv = shlex.split(line, comments=True)
        if name != "tape":
            raise ValueError(f"only tape commands are run, not {name!r}")
        yield argv


def run_command(argv: list[str]) -> None:
    """One command, in this process; the working directory is where its modules are found."""
    with mock.patch.object(sys, "path", [os.getcwd(), *sys.path]):
        cli.main(argv)


@contextlib.contextmanager
def capture() -> Iterator[io.StringIO]:
    """What is printed meanwhile, 80 columns wide."""
    output = io.StringIO()
    with mock.patch.dict(os.environ, {"COLUMNS": "80"}), contextlib.redirect_stdout(output):
        yield output


def tidy(text: str) -> str:
    """Without blanks at the ends of lines and lines at the ends of the text."""
    lines = [line.rstrip() for line in text.splitlines()]
    body = "\n".join(lines).strip("\n")
    return f"{body}\n" if body else ""


def notebook(text: str) -> dict[str, Any]:
    """A tutorial as a notebook: its Markdown and its Python, without outputs."""
    cells: list[dict[str, Any]] = []

    def add(kind: str, source: str) -> None:
        if source.strip():
            number = f"cell-{len(cells)}"
            cell = {"cell_type": kind, "id": number, "metadata": {}, "source": source.strip()}
            extra: dict[str, Any] = (
                {"execution_count": None, "outputs": []} if kind == "code" else {}
            )
            cells.append(cell | extra)

    end = 0
    for block in BLOCK.finditer(text):
        if block[1] in ("python", OUTPUT):
            add("markdown", text[end : block.start()])
            end = block.end()
        if block[1] == "python":
            add("code", block[2])
    add("markdown", text[end:])
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def run_into(name: str, folder: Path) -> None:
    """Run a tutorial in an empty directory; write it, and the pictures it draws, to a folder."""
    text = (FOLDER / f"{name}.md").read_text()
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        files.write_text(folder / f"{name}.md", run(text))
        for picture in Path(place).glob("*.svg"):
            files.write_bytes(folder / picture.name, picture.read_bytes())
    if name == NOTEBOOK:
        document = json.dumps(notebook(text), indent=1)
        files.write_text(folder / f"{name}.ipynb", f"{document}\n")


def main() -> None:
    """Run the tutorials that are named, or all."""
    for name in sys.argv[1:] or names():
        run_into(name, FOLDER)
        print(f"ran {FOLDER / name}.md")


if __name__ == "__main__":
    main()
