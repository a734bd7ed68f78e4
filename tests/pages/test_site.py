"""The site of the documentation builds without a warning and needs no network to be read."""

import functools
import http.server
import os
import re
import runpy
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import pytest

from browsers import PHONE, WIDE, scrolls_sideways

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".venv-docs" / "bin"
sources = SimpleNamespace(**runpy.run_path(str(ROOT / "tools" / "site.py")))

PAGES = (
    "index.html",
    "howto.html",
    "protocol.html",
    "results.html",
    "tutorials/first-agent.html",
    "tutorials/figure.html",
    "agents/index.html",
    "agents/dqn.html",
    "adr/index.html",
    "api/index.html",
    "api/tapebench.gym.html",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `make docs` builds it. A warning is an error."""
    if not (TOOLS / "mkdocs").exists():
        pytest.fail("there is no mkdocs to build the site with: `make docs` installs it")
    place = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run([sys.executable, str(ROOT / "tools" / "site.py")], check=True)
    built = subprocess.run(
        [TOOLS / "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(place)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (built.returncode, built.stderr) == (0, "")
    return place


@pytest.fixture(scope="module")
def served(site):
    """The address of the site on this machine."""
    handler = functools.partial(_Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class _Page(HTMLParser):
    """What a page links to, what it fetches, and what can be linked to in it."""

    def __init__(self, path):
        super().__init__()
        self.links, self.fetched, self.anchors = [], [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.anchors |= {attributes.get("id"), attributes.get("name")}
        if tag == "a":
            self.links.append(attributes.get("href"))
        elif tag in ("img", "script", "iframe"):
            self.fetched.append(attributes.get("src"))
        elif tag == "link" and attributes.get("rel") in ("stylesheet", "icon", "preload"):
            self.fetched.append(attributes.get("href"))


def test_every_link_leads_somewhere_and_nothing_is_fetched_from_elsewhere(site):
    pages = {path: _Page(path) for path in site.rglob("*.html") if path.name != "404.html"}
    assert len(pages) > 80
    broken = []
    for path, page in pages.items():
        for address in filter(None, [*page.links, *page.fetched]):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                if address in page.fetched:
                    broken.append((path.name, address))
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchors = {"", *pages[target].anchors} if target in pages else {parts.fragment}
            if not target.is_file() or unquote(parts.fragment) not in anchors:
                broken.append((path.name, address))
    assert broken == []


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(("viewport", "scheme"), [(WIDE, "light"), (PHONE, "dark")])
def test_a_page_opens_on_any_screen(visit, served, page, viewport, scheme):
    opened = visit(served + page, viewport, scheme, own=(served,))
    opened.wait_for_selector("h1")
    assert opened.title().endswith("TAPE")
    assert not scrolls_sideways(opened)
    paper = opened.evaluate("getComputedStyle(document.body).backgroundColor")
    is_dark = sum(map(int, re.findall(r"\d+", paper)[:3])) < 300
    assert is_dark == (scheme == "dark")


def test_the_search_finds_a_page(visit, served):
    page = visit(served + "index.html", WIDE, own=(served,))
    page.keyboard.press("/")
    page.keyboard.type("autoreset")
    page.wait_for_selector(".md-search-result__item a")
    links = page.locator(".md-search-result__item a").all()
    assert any("tapebench.gym" in link.get_attribute("href") for link in links)


def test_every_module_of_the_reference_is_there_and_so_are_its_docstrings(site):
    for modules in sources.MODULES.values():
        for name in modules:
            page = (site / "api" / f"{name}.html").read_text()
            sentence = sources.first_sentence(sources.docstring(sources.module_file(name)))
            first_words = re.escape(sentence.split("`")[0].strip()[:30])
            assert re.search(first_words, page), name


def test_links_to_files_that_are_not_on_the_site_lead_to_pages_or_nowhere():
    page = sources.redirect(sources.DOCS / "submit.md")
    assert "(examples/sb3_agent.md)" in page
    assert "../examples" not in page
    assert "(protocol.md)" in page
    assert "../src" not in sources.redirect(sources.DOCS / "protocol.md")


def test_the_site_holds_no_address_of_a_registry():
    text = (ROOT / "requirements-docs.lock").read_text()
    assert "://" not in text
    assert "mkdocs-material==" in text
