"""Links and text of `parse_page` beside a browser's DOM (needs playwright for Python, and Chromium on the PATH).

    python bench/dom.py FOLDER [--pages 50] [--seed 1]

FOLDER holds .html files (../shared/data/e_html_pages unpacked, for instance). They are served on loopback; the browser's scripts are off
and whatever is not on loopback is refused. Links: URL keys of `document.links` against those of all hrefs (recall) and of those of
`a` and `area` (precision). Text: words of `innerText` of the body without noscript and iframes, as multisets, case folded;
words that only we have are sorted into those that the DOM holds but styles hide, and others.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import http.server
import random
import re
import shutil
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from playwright.sync_api import Page as Tab
from playwright.sync_api import Route, sync_playwright

from crawlweb.content.page import parse_page
from crawlweb.policy.canonical import Canonicalizer
from crawlweb.records import Page

WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|\w+")
SHOWN = 4  # differences of a page that are printed
LINKS = "[...document.links].filter(link => !link.getAttribute('href').trim().startsWith('#')).map(link => link.href)"
VISIBLE = "(document.querySelectorAll('noscript, iframe').forEach(node => node.remove()), document.body ? document.body.innerText : '')"
ALL_TEXT = """(document.querySelectorAll('script, style, template').forEach(node => node.remove()),
    document.querySelectorAll('*').forEach(node => node.append(' ')), document.body ? document.body.textContent : '')"""


class Handler(http.server.BaseHTTPRequestHandler):
    def __init__(self, bodies: dict[str, bytes], *arguments: object) -> None:
        self.bodies = bodies
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        body = self.bodies.get(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Type", content_type(body or b""))
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        with contextlib.suppress(BrokenPipeError):
            self.wfile.write(body or b"")

    def log_message(self, *_: object) -> None:
        pass


def content_type(body: bytes) -> str:
    """UTF-8 is declared where it is: many saved pages were transcoded and still name another charset."""
    try:
        body.decode()
    except UnicodeDecodeError:
        return "text/html"
    return "text/html; charset=utf-8"


def words(text: str) -> Counter[str]:
    return Counter(WORD.findall(text.casefold()))


def targets(canonicalizer: Canonicalizer, page: Page, hrefs: Iterable[str]) -> dict[bytes, str]:
    return {target.key: target.url for target in canonicalizer.targets(list(hrefs), page.base_url, page.encoding)}


def refuse_outside(route: Route) -> None:
    if route.request.url.startswith("http://127.0.0.1:"):
        route.continue_()
    else:
        route.abort()


def measure(tab: Tab, origin: str, bodies: dict[str, bytes]) -> None:
    canonicalizer = Canonicalizer()
    sums: Counter[str] = Counter()
    for path, body in bodies.items():
        url = origin + path
        tab.goto(url, wait_until="domcontentloaded")
        if tab.url != url:
            print(f"{path}: left for {tab.url}, not counted")
            continue
        theirs = targets(canonicalizer, Page(url, []), (link for link in tab.evaluate(LINKS) if link.startswith(("http://", "https://"))))
        visible = words(tab.evaluate(VISIBLE))
        in_dom = words(tab.evaluate(ALL_TEXT))
        page = parse_page(body, url, content_type(body))
        ours = targets(canonicalizer, page, page.hrefs)
        anchors = targets(canonicalizer, page, (href for href, anchor in page.anchors.items() if anchor.tag in ("a", "area")))
        text = words(page.text)
        lacking = [link for key, link in theirs.items() if key not in ours]
        extra = [link for key, link in anchors.items() if key not in theirs]
        unseen, unshown = visible - text, text - visible
        sums.update(
            {
                "pages": 1,
                "their links": len(theirs),
                "lacking": len(lacking),
                "our links": len(anchors),
                "extra": len(extra),
                "their words": visible.total(),
                "unseen": unseen.total(),
                "our words": text.total(),
                "unshown": unshown.total(),
                "hidden by styles": (unshown & (in_dom - visible)).total(),
            }
        )
        if lacking or extra or unseen.total() > visible.total() / 50 or unshown.total() > text.total() / 50:
            print(f"{path}: links {len(theirs)}, lacking {len(lacking)}, extra {len(extra)}; ", end="")
            print(f"words {visible.total()}, lacking {unseen.total()}, extra {unshown.total()}")
            for name, differing in ("lacking links", lacking), ("extra links", extra), ("lacking words", unseen), ("extra words", unshown):
                if differing:
                    print(f"    {name}: {' '.join(sorted(differing)[:SHOWN])}")
    print(f"{sums['pages']} pages, {sums['their links']} links, {sums['their words']} words in the browser")
    print(f"links: recall {1 - sums['lacking'] / sums['their links']:.4f}, precision {1 - sums['extra'] / sums['our links']:.4f}")
    print(f"words: recall {1 - sums['unseen'] / sums['their words']:.4f}, precision {1 - sums['unshown'] / sums['our words']:.4f}", end="")
    shown = sums["our words"] - sums["hidden by styles"]
    print(f", of words that no style hides {1 - (sums['unshown'] - sums['hidden by styles']) / shown:.4f}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--pages", type=int, default=50)
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    files = sorted(options.folder.rglob("*.html"))
    chosen = random.Random(options.seed).sample(files, min(options.pages, len(files)))
    bodies = {f"/{file.parent.name}/{file.name}": file.read_bytes() for file in chosen}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, bodies))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        print(f"Chromium {browser.version}")
        context = browser.new_context(java_script_enabled=False)
        context.route("**/*", refuse_outside)
        measure(context.new_page(), f"http://127.0.0.1:{server.server_port}", bodies)
        browser.close()
    server.shutdown()


if __name__ == "__main__":
    main()
