"""Look at the built site in a browser, on a phone and on a desk, in light and in dark.

    pip install playwright
    python docs/check_pages.py docs/_build/html [--screenshots FOLDER]

It needs Playwright and a Chromium of the system, and says so where one is missing. Checked is:

- no page is wider than the screen, and at 1280 pixels no table is wider than its place;
- letters stand out from what is behind them, by 4.5 to 1 (WCAG 2.1, 1.4.3);
- what scrolls can be reached by the keyboard;
- the front page shows a picture and a block with its output on the first screen;
- the user guide has at most 7 screens of a desk, the comparison at most 10.
"""

import argparse
import shutil
import sys
from pathlib import Path

PHONE, DESK = (390, 844), (1280, 800)
MAXIMUM_SCREENS = {"user_guide": 7, "comparison": 10}
GENERATED = "search.html", "genindex.html", "py-modindex.html"  # at the top, by Sphinx
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

# Texts whose contrast with the color behind them is below 4.5, or 3 for large letters.
CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgba = color => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3]));
  const light = rgb => rgb.map(c => c / 255)
    .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = node => {
    const layers = [];
    for (; node; node = node.parentElement)
      layers.push(rgba(getComputedStyle(node).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const found = new Map();
  const walker = document.createTreeWalker(document.querySelector(".bd-article, main"), 4);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement, text = walker.currentNode.data.trim();
    if (!text || !node.checkVisibility({visibilityProperty: true})) continue;
    if (node.closest("svg, script, style, .headerlink")) continue;
    const style = getComputedStyle(node), back = behind(node);
    const [a, b] = [light(over(rgba(style.color), back)), light(back)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const large = parseFloat(style.fontSize) >= 24;
    if (ratio < (large ? 3 : 4.5)) found.set(style.color + " on " + back.map(Math.round), text);
  }
  return [...found].map(([colors, text]) => `${colors}: ${text.slice(0, 40)}`);
}"""
# Elements that scroll sideways, and whether the keyboard can reach them.
SCROLLING = """selector => [...document.querySelectorAll(selector)]
  .filter(e => e.checkVisibility() && e.scrollWidth > e.clientWidth + 1)
  .map(e => [e.textContent.trim().slice(0, 40), e.tabIndex >= 0])"""
FIRST_SCREEN = """() => [".bd-article img", ".bd-article div.highlight"].map(selector => {
  const shown = [...document.querySelectorAll(selector)].find(e => e.checkVisibility());
  return shown ? Math.round(shown.getBoundingClientRect().bottom) : Infinity;
})"""


def problems(page, name, screen, theme):
    """Yield what is wrong with a page that is open."""
    width, height = screen
    if (wide := page.evaluate("document.documentElement.scrollWidth")) > width:
        yield f"{wide} pixels wide"
    tables = page.evaluate(SCROLLING, ".pst-scrollable-table-container")
    code = page.evaluate(SCROLLING, "div.highlight pre")
    if screen == DESK:
        yield from (f"table hides a column: {text}" for text, _ in tables)
    yield from (
        f"out of the keyboard's reach: {text}" for text, key in tables + code if not key
    )
    yield from (f"faint: {text}" for text in page.evaluate(CONTRAST))
    if name == "index":
        for what, bottom in zip(("picture", "block"), page.evaluate(FIRST_SCREEN), strict=True):
            if bottom > height:
                yield f"the {what} ends at {bottom} of {height} pixels"
    if screen == DESK and name in MAXIMUM_SCREENS:
        screens = page.evaluate("document.querySelector('.bd-article').offsetHeight") / height
        if screens > MAXIMUM_SCREENS[name]:
            yield f"{screens:.1f} screens"


def check(site, executable, screenshots=None):
    """Return the number of problems of all pages, and print them."""
    from playwright.sync_api import sync_playwright

    names = sorted(
        str(path.relative_to(site).with_suffix(""))
        for path in site.rglob("*.html")
        if not {"_static", "_modules", "generated"} & set(path.relative_to(site).parts)
        and str(path.relative_to(site)) not in GENERATED
    )
    n_problems = 0
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=executable, args=options)
        for screen in (PHONE, DESK):
            for theme in ("light", "dark"):
                size = {"width": screen[0], "height": screen[1]}
                page = browser.new_page(viewport=size, color_scheme=theme)
                for name in names:
                    page.goto((site / f"{name}.html").resolve().as_uri())
                    page.wait_for_load_state("load")
                    if screenshots is not None:
                        file = f"{name.replace('/', '-')}-{screen[0]}-{theme}.png"
                        page.screenshot(path=screenshots / file)
                    for problem in problems(page, name, screen, theme):
                        n_problems += 1
                        print(f"{name}, {screen[0]} pixels, {theme}: {problem}")
                page.close()
        browser.close()
    print(f"{len(names)} pages, two screens, two themes: {n_problems} problems")
    return n_problems


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path, help="folder of the built site")
    parser.add_argument("--screenshots", type=Path, help="write first screens to this folder")
    options = parser.parse_args()
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if executable is None:
        print(f"Skipped: none of {', '.join(BROWSERS)} is installed.")
        return
    try:
        import playwright  # noqa: F401
    except ImportError:
        print("Skipped: Playwright is not installed; pip install playwright")
        return
    if options.screenshots is not None:
        options.screenshots.mkdir(parents=True, exist_ok=True)
    sys.exit(check(options.site, executable, options.screenshots) > 0)


if __name__ == "__main__":
    main()
