"""A run as one page, opened from disk: without a request, in both themes, through 10,000 events, damage said."""

import pytest

from tests.export.shared_runs import asking, failing, many

PATIENCE = 60_000


@pytest.fixture(scope="module")
def pages(browser):
    """Return ``pages(path)``: the file in a tab that may ask for nothing else; what it asks for is in ``asked``."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, offline=True)
    context.set_default_timeout(PATIENCE)

    def opened(path, within=context):
        page = within.new_page()
        page.asked, page.errors = [], []
        page.on("request", lambda request: page.asked.append(request.url))
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.on("console", lambda message: page.errors.append(message.text) if message.type == "error" else None)
        page.route("**/*", lambda route: route.continue_() if route.request.url == path.as_uri() else route.abort())
        page.goto(path.as_uri())
        return page

    yield opened
    context.close()


def shown(page, text):
    page.get_by_text(text).filter(visible=True).first.wait_for()


def stepped(page):
    """Unfold the replay; return its slider."""
    page.locator(".db-stepping > summary").click()
    slider = page.get_by_role("slider", name="Position in the log")
    slider.wait_for()
    return slider


def go(slider, place):
    slider.evaluate("(node, place) => { node.value = place; node.dispatchEvent(new Event('input')); }", place)


def test_a_page_shows_the_run_and_asks_nobody_for_anything(pages, tmp_path):
    path = asking().to_html(tmp_path / "run.html")
    page = pages(path)
    shown(page, "All parts of this file are undamaged: viewer, texts, run, log.")
    for text in ("yes, very much so", "second line </script><!--", "Is it <b>well</b> said?"):
        shown(page, text)
    page.get_by_role("tab", name="Timeline").click()
    page.locator("canvas").first.wait_for()
    assert (page.asked, page.errors) == ([path.as_uri()], [])


def test_its_policy_lets_nothing_out(pages, tmp_path):
    page = pages(asking().to_html(tmp_path / "run.html"))
    shown(page, "All parts of this file")
    tried = "fetch('https://example.com/').then(() => 'sent', (error) => String(error))"
    assert "Failed to fetch" in page.evaluate(tried)
    assert all("Content Security Policy" in error or "Refused" in error for error in page.errors)
    assert len(page.asked) == 1


def test_a_page_steps_through_ten_thousand_events(pages, tmp_path):
    run = many(10_000, 400)
    page = pages(run.to_html(tmp_path / "run.html"))
    last = run.state.last_sequence
    slider = stepped(page)
    shown(page, f"event {last:,} of {last:,}")
    assert slider.get_attribute("max") == str(last)
    for place in (1, 2, last // 2, last - 1, 3):
        go(slider, place)
        page.get_by_text(f"State after event {place:,}", exact=True).wait_for()
    page.get_by_role("button", name="Next event (→)").click()
    page.get_by_text("State after event 4", exact=True).wait_for()
    assert page.errors == []


@pytest.mark.parametrize("make", [asking, failing], ids=["told", "failed"])
def test_a_page_looks_right(make, browser, pages, looks, tmp_path):
    lax = browser.new_context(bypass_csp=True)  # what looks at it is a script of its own
    page = pages(make().to_html(tmp_path / "run.html"), lax)
    shown(page, "All parts of this file")
    stepped(page)
    looks.at(InPage(page), f"page-{make.__name__}", page.locator("main"))
    lax.close()


class InPage:
    """A page that is looked at as a notebook is: its theme is the browser's."""

    def __init__(self, page):
        self.page = page

    def be(self, theme):
        self.page.emulate_media(color_scheme=theme.lower())
        self.page.locator(f"body[data-jp-theme-light={str(theme == 'Light').lower()}]").wait_for()

    def shot(self, name, _target):
        from tests.browser.conftest import SHOTS

        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{name}.png", full_page=True)


def damaged(path, part, place=200):
    """Flip a bit of a character in a part of a page."""
    content = bytearray(path.read_bytes())
    at = content.index(f'data-name="{part}"'.encode()) + place
    content[at] ^= 4
    changed = path.with_name(f"{part}.html")
    changed.write_bytes(content)
    return changed


@pytest.mark.parametrize("part", ["viewer", "texts", "run", "log"])
def test_a_damaged_part_is_said_in_the_page(part, pages, tmp_path):
    page = pages(damaged(asking().to_html(tmp_path / "run.html"), part))
    shown(page, f'The part "{part}" is damaged: its checksum is')
    page.get_by_text("Get a new copy of the file from its source.").wait_for()
    assert page.get_by_text("The run cannot be shown without these parts.").count() == (part != "log")
    assert page.locator(".db-root").count() == (part == "log")


def test_a_sample_of_flipped_bytes_is_found_in_the_page(pages, tmp_path):
    """The same text is checked as in Python: any changed character of a part gives another checksum."""
    path = asking().to_html(tmp_path / "run.html")
    size = {part: path.read_bytes().index(b"</script>", at) - at for part, at in starts(path).items()}
    for part, length in size.items():
        for place in range(60, length, max(1, length // 5)):
            page = pages(damaged(path, part, place))
            page.locator("#told .fault").first.wait_for()
            page.close()


def starts(path):
    content = path.read_bytes()
    return {part: content.index(f'data-name="{part}"'.encode()) for part in ("viewer", "texts", "run", "log")}


def test_a_part_that_is_missing_is_said(pages, tmp_path):
    path = asking().to_html(tmp_path / "run.html")
    path.write_text(path.read_text().replace('data-name="log"', 'data-name="lag"'))
    shown(pages(path), 'The part "log" is missing.')


def test_without_scripts_the_page_says_why_it_shows_no_more(browser, tmp_path):
    path = asking().to_html(tmp_path / "run.html")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    shown(page, "scripts are switched off")
    context.close()
