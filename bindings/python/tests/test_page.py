"""The page of a session in a real browser: what it shows, that nothing of a log runs, keyboard and dark mode.

Judged by facts about the page as it is laid out and by the pixels' brightness, so that another font is no failure."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from turnwheel.view import Sessions

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
ATTACK = (
    "</pre></details></style></title></script><script>window.pwned='script'</script>"
    "<img src=x onerror=\"window.pwned='image'\"><svg onload=\"window.pwned='svg'\">"
    "<iframe srcdoc=\"<script>parent.pwned='frame'</script>\"></iframe>"
    "<a href=\"javascript:window.pwned='link'\">click me</a>"
    "<style>body{display:none}</style><link rel=stylesheet href=http://127.0.0.1:9/x.css>"
    '<meta http-equiv=refresh content="0;url=http://127.0.0.1:9/">'
    "<form action=http://127.0.0.1:9/><input autofocus onfocus=\"window.pwned='focus'\"></form>"
    "<base href=http://127.0.0.1:9/>'\" onmouseover=\"window.pwned='over'\" \u202egnp.exe\u001b[2J"
)


def log(path: Path, text: str, turns: int = 1) -> Path:
    """A log in which `text` stands wherever a model, a tool or a user can put it."""
    lines: list[dict[str, Any]] = []

    def add(kind: str, data: Any, surface: bool = False) -> None:
        event = {"type": kind, "seq": len(lines), "time": 1767225674000 + 100 * len(lines), "data": data}
        lines.append(event | ({"surfaceOp": "append"} if surface else {}))

    for turn in range(1, turns + 1):
        at = {"turn": turn, "step": turn}
        said = [{"type": "text", "text": text}]
        call = {"type": "tool-call", "id": f"c{turn}", "name": text, "arguments": text}
        model = {"kind": "model", "provider": text, "model": text}
        answer = {"id": f"a{turn}", "role": "assistant", "source": model}
        answer["content"] = [{"type": "reasoning", "text": text}, *said, call, {"type": text, "odd": text}]
        usage = {"inputTokens": 100 * turn, "outputTokens": 50, "cacheReadTokens": 50}
        block = {"type": "tool-result", "toolCallId": f"c{turn}", "isError": True, "content": said}
        tool = {"id": f"r{turn}", "role": "user", "source": {"kind": "tool", "callId": f"c{turn}"}, "content": [block]}
        add("turn/start", {"turn": turn})
        add("step/start", at)
        user = {"id": f"u{turn}", "role": "user", "content": said, "source": {"kind": "user"}}
        add("user/message", user, surface=True)
        if turn == 1:
            schema = {"name": text, "description": text, "parameters": {"title": text}}
            header = {"config": {"provider": text, "model": text}, "system": text, "tools": [schema]}
            add("request/header", {"header": header, "reason": "initial"})
        add("assistant/message", {**at, "message": answer, "usage": usage}, surface=True)
        add("tool/call", {**at, "callId": f"c{turn}", "name": text, "arguments": text})
        add("tool/result", {**at, "message": tool}, surface=True)
        add("step/end", at)
        add("turn/end", {"turn": turn, "reason": {"kind": "error", "error": {"message": text, "code": text}}})
    first = {"type": "session", "version": 0, "id": text, "createdAt": 1767225674000, "delegationDepth": 0}
    path.write_text("".join(json.dumps(line) + "\n" for line in [first, *lines]))
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert CHROMIUM, "Chromium is missing: run `tests/machine-setup browser`"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Watch:
    """Everything a page says and asks for."""

    def __init__(self, page: Page):
        self.said: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("dialog", lambda dialog: self.said.append(dialog.message))
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("popup", lambda popup: self.asked.append(popup.url))


def show(browser: Browser, folder: Path, text: str, turns: int = 1, **options: Any) -> tuple[Page, Watch]:
    out = folder / "page.html"
    Sessions(log(folder / "log", text, turns)).read().save_html(out)
    page = browser.new_page(**options)
    watch = Watch(page)
    page.goto(out.as_uri(), wait_until="load")
    return page, watch


def outline(page: Page) -> list[str]:
    """The elements of the page in order, but for the marks of hidden characters."""
    name = "e => e.tagName + '.' + (e.className.baseVal ?? e.className)"
    script = f"[...document.querySelectorAll('*:not(span.hidden)')].map({name})"
    found: list[str] = page.evaluate(script)
    return found


def test_a_hostile_session_is_shown_and_nothing_of_it_runs(browser, tmp_path):
    page, watch = show(browser, tmp_path, ATTACK)
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    for article in page.query_selector_all("article"):
        article.hover()
    assert page.evaluate("window.pwned") is None
    assert watch.said == [], "neither an error nor a violation of the policy"
    assert watch.asked == [page.url], "one file, and no request to anywhere"
    assert page.locator("script, img, iframe, form, input, base, link, a[href^=javascript]").count() == 0
    assert page.locator("meta[http-equiv=refresh], style").count() == 1, "the style is ours"
    said = page.locator("article.user pre").inner_text()
    shown = ATTACK.replace("\u202e", "\u27e8U+202E\u27e9").replace("\u001b", "\u241b")
    assert said == shown and page.locator("article.user .hidden").all_inner_texts() == ["⟨U+202E⟩", "␛"]
    hostile = outline(page)
    page.close()
    plain, _ = show(browser, tmp_path, "plain")
    assert hostile == outline(plain), "a log decides about texts, not about elements"
    plain.close()


def test_a_notebook_shows_the_page_in_a_frame_that_may_do_nothing(browser, tmp_path):
    frame = Sessions(log(tmp_path / "log", ATTACK)).read()._repr_html_()
    page = browser.new_page()
    watch = Watch(page)
    page.set_content(f"<p>a cell</p>{frame}")
    inside = page.frame_locator("iframe")
    assert "gnp.exe" in inside.locator("article.user pre").inner_text()
    assert page.locator("body > *").count() == 2 and page.evaluate("window.pwned") is None
    assert watch.said == [] and [url for url in watch.asked if not url.startswith("about:")] == []
    page.close()


def test_the_policy_stops_a_script_and_a_request_that_got_into_the_page(browser, tmp_path):
    """The second line of defence, shown by breaking the first."""
    out = tmp_path / "page.html"
    Sessions(log(tmp_path / "log", "MARK")).read().save_html(out)
    inject = "<script>window.pwned=1</script><img src=x onerror='window.pwned=2'><style>body{display:none}</style>"
    out.write_text(out.read_text().replace("MARK</pre>", inject + "</pre>", 1))
    page = browser.new_page()
    watch = Watch(page)
    page.goto(out.as_uri(), wait_until="load")
    assert page.evaluate("window.pwned") is None and page.locator("body").is_visible()
    refused = [said.split(" violates")[0] for said in watch.said if "Content Security Policy" in said]
    assert "Executing inline script" in refused and "Applying inline style" in refused
    assert any("image" in each for each in refused) and "Executing inline event handler" in refused
    page.close()


def test_details_fold_and_unfold_by_keyboard_and_turns_are_reached_by_it(browser, tmp_path):
    page, watch = show(browser, tmp_path, "plain text", turns=3)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Turn 2"
    page.keyboard.press("Enter")
    page.wait_for_url("**/page.html#t*")
    turn = page.evaluate("document.querySelector(':target').querySelector('h2').textContent")
    assert turn.startswith("Turn 2 ")
    # From there on Tab goes on inside the turn: its links, then what folds.
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "SUMMARY":
            break
    folded = "document.activeElement.parentElement.open"
    assert page.evaluate("document.activeElement.closest('section') === document.querySelector(':target')")
    assert page.evaluate(folded) is False
    page.keyboard.press("Enter")
    assert page.evaluate(folded) is True
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", "focus can be seen"
    page.keyboard.press("Space")
    assert page.evaluate(folded) is False and watch.said == []
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_is_light_or_dark_as_the_reader_likes_it_and_can_be_read(browser, tmp_path, scheme):
    page, _ = show(browser, tmp_path, "plain text", color_scheme=scheme)
    contrasts = page.evaluate("""() => {
        const light = color => {
            const [r, g, b] = color.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
                .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const back = light(getComputedStyle(document.body).backgroundColor);
        const texts = [...document.querySelectorAll('h1, p, pre, summary, time, a, .sums, .tokens')];
        const ratios = texts.map(e => light(getComputedStyle(e).color))
            .map(fore => (Math.max(fore, back) + 0.05) / (Math.min(fore, back) + 0.05));
        return { back, least: Math.min(...ratios), count: texts.length };
    }""")
    assert contrasts["back"] > 0.9 if scheme == "light" else contrasts["back"] < 0.1
    assert contrasts["count"] > 10 and contrasts["least"] >= 4.5, "WCAG AA for every text"
    # What is painted, not only what is computed.
    picture = page.screenshot()
    assert picture.startswith(b"\x89PNG")
    bright = page.evaluate(
        """async data => {
            const bytes = Uint8Array.from(atob(data), c => c.charCodeAt(0));
            const image = await createImageBitmap(new Blob([bytes]));
            const canvas = new OffscreenCanvas(image.width, image.height).getContext('2d');
            canvas.drawImage(image, 0, 0);
            const pixels = canvas.getImageData(0, 0, image.width, image.height).data;
            let sum = 0;
            for (let i = 0; i < pixels.length; i += 4) sum += pixels[i] + pixels[i + 1] + pixels[i + 2];
            return sum / (pixels.length / 4 * 3 * 255);
        }""",
        base64.b64encode(picture).decode(),
    )
    assert bright > 0.7 if scheme == "light" else bright < 0.3
    page.close()


def test_bars_are_as_long_as_the_tokens_are_many(browser, tmp_path):
    page, _ = show(browser, tmp_path, "plain text", turns=3)
    width = "e => e.getBoundingClientRect().width"
    bars = page.locator("section > svg")
    lengths = [sum(bars.nth(turn).locator("rect").evaluate_all(f"all => all.map({width})")) for turn in range(3)]
    whole = bars.nth(0).evaluate(width)
    # 200, 300 and 400 tokens, cached ones included; the greatest turn is a whole bar.
    assert lengths == [pytest.approx(whole * part, abs=1) for part in (0.5, 0.75, 1.0)]
    page.close()


def test_a_narrow_screen_needs_no_scrolling_aside(browser, tmp_path):
    page, _ = show(browser, tmp_path, "word" * 500, viewport={"width": 360, "height": 640})
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.close()
