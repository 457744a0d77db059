"""The page of a story: whole, whatever a log holds, and as a browser sees it."""

from __future__ import annotations

import json
import re
from datetime import UTC
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.report.html import LINES, LISTED, page
from jobctl.jobspec.report.layout import percent
from jobctl.jobspec.report.report import Story, tell
from tests.report.stories import END, WORDS, rich

GOLDEN = Path(__file__).parent.parent / "golden" / "report" / "page.html"

# What a log line may hold that is more than text somewhere.
HOSTILE = (
    "</title><script>window.harmed = 1</script>",
    '"><img/src=x/onerror="window.harmed=1">',
    "'/><svg/onload=window.harmed=1>",
    "{{7*7}}{%for%}</style>",
    "</pre></td><iframe src=https://example.com></iframe>",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \0 \r \x85 \u202eesrever \ud800 " + "long " * 500 + "x" * 3000,
    "<!-- --> ]]> &amp; &lt; <base href=//example.com>",
    "torch\u2028</p>",
    "x' onclick='window.harmed=1",
)


class Skeleton(HTMLParser):
    """The elements of a page with the names of their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.values: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(name for name, _ in attrs)))
        self.values += [value or "" for _, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_is_as_recorded(request: pytest.FixtureRequest) -> None:
    made = page(rich(), END + 60, UTC)
    if request.config.getoption("--update-golden"):
        GOLDEN.parent.mkdir(parents=True, exist_ok=True)
        GOLDEN.write_text(made)
    assert made == GOLDEN.read_text()


def test_what_others_wrote_stays_text() -> None:
    plain, hostile = Skeleton(page(rich(), END)), Skeleton(page(rich(HOSTILE), END))
    assert hostile.elements == plain.elements
    assert "</title><script>window.harmed = 1</script>" in hostile.text
    assert "red  ␀ ␍ \\u0085 \\u202eesrever \\ud800 long" in hostile.text
    assert re.search(r"lo?n?g? … \(\d+ more characters\)", hostile.text)
    assert (
        re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", hostile.text + "".join(hostile.values))
        is None
    )


def test_needs_nothing_else() -> None:
    made = page(rich(), END)
    skeleton = Skeleton(made)
    assert not {tag for tag, _ in skeleton.elements} & {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "base",
        "form",
    }
    assert not {name for _, names in skeleton.elements for name in names} & {
        "src",
        "href",
        "srcset",
        "action",
        "xlink:href",
    }
    assert not re.search(r"url\(|@import|https?:", made)
    assert not any(name.startswith("on") for _, names in skeleton.elements for name in names)


def test_every_event_is_listed() -> None:
    text = Skeleton(page(rich(), END)).text
    assert "All 31 events" in text
    assert "new-kind" in text


def _large(count: int) -> Story:
    """A job of many nodes, the last of which failed."""
    lines: list[dict[str, Any]] = [
        {"time": 1.0, "event": "step", "message": "", "step": "start", "node": n, "host": f"h{n}"} for n in range(count)
    ]
    lines.append({"time": 2.0, "event": "step", "message": "", "step": "generation", "generation": 1})
    states = [{"node": n, "state": "running", "generation": 1} for n in range(count)]
    lines += [{"time": 3.0, "event": "node", "message": "", **state} for state in states]
    lines.append({"time": 9.0, "event": "node", "message": "", "node": count - 1, "state": "failed", "generation": 1})
    story = tell("large", lines, (), 20.0)
    assert story is not None
    return story


def test_of_many_nodes_those_are_drawn_that_something_happened_to() -> None:
    made = page(_large(3000), 20.0)
    drawn = [int(number) for number in re.findall(r'<div class="who">node (\d+)', made)]
    assert drawn == [*range(LINES - 1), 2999]
    assert "2936 more nodes, to which nothing else happened, are not drawn." in made
    assert f"The first {6002 - LISTED} are left out" in made
    assert len(made) < 1_500_000


def test_only_all_of_it_is_called_all_of_it() -> None:
    assert [percent(part) for part in (0.0, 0.123, 0.8949, 0.99999, 1.0)] == [
        "0 %",
        "12.3 %",
        "89.5 %",
        "99.9 %",
        "100 %",
    ]


WIDTHS = (320, 680, 1280)  # of a telephone, at the point where the page changes, of a desk

# Opens the page in a frame of each width, and writes down what only a browser knows.
PROBE = """<!doctype html><meta charset="utf-8"><title>probe</title><body><pre id="probe"></pre><script>
const page = %s, widths = %s, found = [];
const box = e => { const b = e.getBoundingClientRect(); return [b.left, b.right, b.width, b.height, b.top + b.height / 2]; };
for (const width of widths) {
  const frame = document.createElement("iframe");
  frame.style.cssText = `width: ${width}px; height: 900px; border: 0`;
  frame.srcdoc = page;
  frame.onload = () => {
    const d = frame.contentDocument, all = q => [...d.querySelectorAll(q)];
    d.querySelectorAll("details").forEach(e => e.open = true);
    found.push({
      width, harmed: frame.contentWindow.harmed ?? null, inner: frame.contentWindow.innerWidth,
      scroll: d.documentElement.scrollWidth, client: d.documentElement.clientWidth,
      svg: all("svg").map(box), line: all("polyline").map(box), bar: all("rect").map(box),
      tick: all(".axis span").filter(e => e.offsetWidth).map(box), tile: all(".tile").map(box),
      level: all(".level").map(box), who: all(".who").map(box),
      grid: all(".chart line:not([class])").map(box), pre: all("pre").map(e => [e.scrollWidth, e.clientWidth]),
      colours: all("body, .soft, .tile b, pre, .cost, .badge, td").map(e => {
        let under = e;
        while (getComputedStyle(under).backgroundColor === "rgba(0, 0, 0, 0)") under = under.parentElement;
        return [e.className || e.tagName, getComputedStyle(e).color, getComputedStyle(under).backgroundColor];
      }),
      ground: getComputedStyle(d.body).backgroundColor,
    });
    if (found.length === widths.length) document.getElementById("probe").textContent = JSON.stringify(found);
  };
  document.body.append(frame);
}
</script>"""


@pytest.fixture(scope="module", params=["light", "dark"])
def seen(request: pytest.FixtureRequest, browse: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a browser makes of a page with a hostile log, for each width."""
    path = tmp_path_factory.mktemp("page") / "probe.html"
    text = json.dumps(page(rich((WORDS[0], *HOSTILE[1:])), END)).replace("</", "<\\/")
    path.write_text(PROBE % (text, list(WIDTHS)))
    done = browse(path, *(["--force-dark-mode"] if request.param == "dark" else []))
    told = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    assert told is not None
    assert "CONSOLE" not in done.stderr, done.stderr
    views = {view["width"]: view for view in json.loads(_unescaped(told[1]))}
    assert sorted(views) == sorted(WIDTHS)
    return request.param, views


def _unescaped(text: str) -> str:
    import html

    return html.unescape(text)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_browser_lays_it_out(seen: Any, width: int) -> None:
    view = seen[1][width]
    assert view["inner"] == width
    assert view["scroll"] <= view["client"], "the page is wider than its window"
    assert view["harmed"] is None
    assert len(view["svg"]) == 3
    assert all(wide > width / 2 and high >= 20 for _, _, wide, high, _ in view["svg"])
    assert len(view["line"]) == 7  # three generations lost their last steps
    assert all(wide > 1 and high > 1 for _, _, wide, high, _ in view["line"])
    left, right, *_ = view["svg"][1]
    assert all(left - 2 <= bar[0] and bar[1] <= right + 2 for bar in view["bar"])
    assert all(one[1] < other[0] for one, other in zip(view["tick"], view["tick"][1:], strict=False)), "labels overlap"
    assert all(scroll <= client for scroll, client in view["pre"])
    assert all(tile[2] >= 120 for tile in view["tile"])


@pytest.mark.parametrize("width", WIDTHS)
def test_a_browser_puts_step_numbers_at_their_lines(seen: Any, width: int) -> None:
    view = seen[1][width]
    assert len(view["level"]) == len(view["grid"]) == 4
    assert [round(level[4] - line[4]) for level, line in zip(view["level"], view["grid"], strict=True)] == [0] * 4
    if width < 680:  # the name stands above the chart there
        assert view["level"][-1][4] - view["level"][-1][3] / 2 >= view["who"][0][4] + view["who"][0][3] / 2


def test_a_browser_shows_it_with_contrast(seen: Any) -> None:
    mode, views = seen
    ground = _luminance(views[1280]["ground"])
    assert ground < 0.05 if mode == "dark" else ground > 0.85
    weak = {tuple(colours) for view in views.values() for colours in view["colours"] if _contrast(*colours[1:]) < 4.5}
    assert weak == set()


def _contrast(one: str, other: str) -> float:
    """Return the contrast of two colours as WCAG 2 has it; 4.5 is enough for text."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
