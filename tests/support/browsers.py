"""Pages in a real browser: Debian's Chromium, driven by Playwright. `make browser` gets it."""

import shutil

import pytest

OPTIONS = (
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDE, PHONE = {"width": 1200, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser():
    """A browser; its absence is a failure, for pages that nobody opened are not tested."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium")
    if path is None:
        pytest.fail("there is no chromium to test the pages with: `make browser` installs it")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        yield running
        running.close()


@pytest.fixture
def visit(browser):
    """Open pages; at the end nobody may have complained or asked for anything from elsewhere."""
    contexts, complaints = [], []

    def open_page(address, viewport=WIDE, scheme="light", own=()):
        context = browser.new_context(viewport=viewport, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda said: complaints.append(f"{said.type}: {said.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith((address, "data:", *own))
                else complaints.append(request.url)
            ),
        )
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def scrolls_sideways(page):
    return page.evaluate("document.documentElement.scrollWidth > innerWidth")
