"""Opens the built site in Chromium: the search finds a page in each language. On a phone no page scrolls sideways, lacks a column of a
table, breaks an identifier that fits on a line, or has a picture too small to read. None shows raw Markdown, loads anything from elsewhere
or has an error in the console.

usage: check.py FOLDER, in which a site has the folder of its version
"""

import functools
import http.server
import os
import shutil
import sys
import threading
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

PHONE = {"width": 390, "height": 844}
RAW = r"""() => [...document.querySelectorAll('article p, article li, article td')].map(e => {
      const text = e.cloneNode(true)
      text.querySelectorAll('pre, code, li').forEach(code => code.replaceWith('code'))
      return text.textContent
    }).filter(text => /^([-*] |\d+\. |\||\s*```|\[[ xX]\] )/m.test(text) || text.includes('](') || text.includes('**'))"""

# Each cell is to be seen, under the name of its column.
CELLS = r"""() => [...document.querySelectorAll('article table:not([class])')].flatMap(table => {
      const columns = [...table.querySelectorAll('th')].map(th => th.textContent.trim())
      return [...table.querySelectorAll('tbody tr')].flatMap(tr => [...tr.children].map((td, i) => [td, columns[i]]))
    }).filter(([td, column]) => {
      const at = td.getBoundingClientRect()
      const seen = at.height > 0 && at.left >= 0 && at.right <= innerWidth
      const named = !column || getComputedStyle(td, '::before').content.includes(column.replaceAll('"', '\\"'))
      return td.childNodes.length && !(seen && named)
    }).map(([td]) => td.textContent)"""
BROKEN = r"""() => [...document.querySelectorAll('article :not(pre) > code')].flatMap(code => {
      const block = code.closest('td, li, p, h1, h2, h3, h4, article'), style = getComputedStyle(block)
      const room = block.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight)
      const words = [], walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT)
      while (walker.nextNode()) {
        for (const match of walker.currentNode.data.matchAll(/\S+/g)) {
          const range = document.createRange()
          range.setStart(walker.currentNode, match.index)
          range.setEnd(walker.currentNode, match.index + match[0].length)
          const lines = [...range.getClientRects()], wide = lines.reduce((sum, line) => sum + line.width, 0)
          if (lines.length > 1 && wide < room - 24) words.push(match[0])
        }
      }
      return words
    })"""
SMALLEST = 9  # the pixels of a letter that can be read
PICTURES = r"""async smallest => (await Promise.all([...document.querySelectorAll('article img[src$=".svg"]')].map(async img => {
      const svg = await (await fetch(img.src)).text()
      const scale = img.getBoundingClientRect().width / svg.match(/viewBox="0 0 ([\d.]+)/)[1]
      const sizes = [...svg.matchAll(/(?:font-size="|font-size:|font:)([\d.]+)/g)].map(size => size[1] * scale)
      return Math.min(...sizes) < smallest && `${img.src}: ${Math.min(...sizes).toFixed(1)} px`
    }))).filter(Boolean)"""


def chromium():
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    return found or sys.exit("There is no Chromium: apt-get install chromium, or set CHROMIUM to one.")


def check_page(page, url, faults):
    page.goto(url)
    wide = page.evaluate("document.scrollingElement.scrollWidth - innerWidth")
    if wide > 0:
        faults.append(f"{url}: scrolls sideways by {wide} px on a phone")
    faults.extend(f"{url}: shows raw Markdown: {text[:80]!r}" for text in page.evaluate(RAW))
    faults.extend(f"{url}: a phone does not show this cell, or the name of its column: {text[:80]!r}" for text in page.evaluate(CELLS))
    faults.extend(f"{url}: breaks {word!r} on a phone" for word in page.evaluate(BROKEN))
    faults.extend(f"{url}: the letters are too small on a phone: {picture}" for picture in page.evaluate(PICTURES, SMALLEST))


def check_search(page, url, word, title, path, faults):
    page.goto(url)
    page.locator("label[for=__search]").first.click()
    page.locator("input[name=query]").fill(word)
    page.keyboard.press("End")  # the search waits for a key
    result = page.locator(".md-search-result__link", has_text=title).first
    expect(result).to_be_visible()
    result.click()
    expect(page).to_have_title(f"{title} - Rollcall")
    if path not in page.url:
        faults.append(f"the search for {word} leads to {page.url}")


class Files(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def main():
    root = Path(sys.argv[1])
    pages = sorted(p.relative_to(root).as_posix() for p in root.rglob("*.html") if p.name != "404.html")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=root))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}/"
    faults = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        page = browser.new_page(viewport=PHONE)
        page.on("console", lambda m: m.type == "error" and faults.append(f"{page.url}: console: {m.text}"))
        page.on("pageerror", lambda e: faults.append(f"{page.url}: {e}"))
        page.on("request", lambda r: r.url.startswith(base) or faults.append(f"{page.url}: loads {r.url}"))
        for path in pages:
            check_page(page, base + path, faults)
        start = base + next(p for p in pages if p.endswith("index.html"))
        check_search(page, start, "history", "What Rollcall did", "history.html", faults)
        check_search(page, start, "请求", "快速开始", "quickstart.zh-CN.html", faults)
        browser.close()
    print("\n".join(faults) or f"{len(pages)} pages are good on a phone, and the search finds history and 请求.")
    sys.exit(bool(faults) or not pages)


if __name__ == "__main__":
    main()
