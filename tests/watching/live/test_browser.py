"""The page in a real browser, without a screen: what people see, click and press."""

from __future__ import annotations

import asyncio
import itertools
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

import agym
from agym.watching.live import web_app
from tests.support.backends import FORK
from tests.support.drivers import APIS
from tests.support.envs.painting_envs import Painter
from tests.support.insides import hub_of, painted
from tests.support.patience import patience
from tests.support.viewers import Stepping, started, stepping, until

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs Debian's chromium and chromium-driver"
)

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--window-size=1300,800",
]  # fmt: skip


class Driver(webdriver.ChromeService):
    """Chromium's driver, waited for as long as tests wait: Selenium gives it half a minute."""

    def start(self) -> None:
        self._start_process(self.path)
        until(self.is_there)

    def is_there(self) -> bool:
        self.assert_process_still_running()
        return self.is_connectable()


class Blinker(Painter):
    """Its pictures differ by more from step to step than what a JPEG leaves out."""

    def render(self) -> Any:
        self.canvas[:] = 37 * self.steps % 256, 60 * self.me % 256, 128
        return self.canvas


class Browser:
    """A page that is open in Chromium."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def __getitem__(self, css: str) -> Any:
        return self.driver.find_element(By.CSS_SELECTOR, css)

    def points(self, css: str) -> Any:
        """The points of a line, in one call: the page may draw it anew at any moment."""
        script = "return document.querySelector(arguments[0])?.getAttribute('points')"
        return self.driver.execute_script(script, css)

    @property
    def seen(self) -> tuple[int, int, int]:
        """Number of pictures so far; first environment of the latest, and how many."""
        data = self["#picture"].get_attribute

        def number(name: str) -> int:
            return int(data(f"data-{name}") or -1)

        return number("pictures"), number("first"), number("count")

    def pixels(self) -> str:
        """What the picture shows."""
        return str(self.js("return document.getElementById('picture').toDataURL()"))

    def js(self, script: str) -> Any:
        return self.driver.execute_script(script)

    def shows(self, first: int, count: int) -> None:
        """Wait for a picture of some environments."""
        until(lambda: self.seen[1:] == (first, count))

    def pause(self, run: Stepping) -> None:
        self["#pause"].click()
        until(lambda: self["#pause"].text == "Resume")
        run.stands()

    def press(self, *keys: str) -> None:
        ActionChains(self.driver).send_keys(*keys).perform()

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in [*FLAGS, f"--user-data-dir={tmp_path / 'profile'}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.add_experimental_option("browserStartupTimeout", int(1000 * patience(6)))
    driver = webdriver.Chrome(options=options, service=Driver(DRIVER))
    try:
        yield Browser(driver)
    finally:
        driver.quit()


@contextmanager
def watching(
    browser: Browser, count: int = 4, kinds: Any = (Blinker,), api: str = "sync", **options: Any
) -> Iterator[Stepping]:
    """Step environments whose page is open in the browser, which has nothing to complain of."""
    speed = options.pop("speed", None)
    shape = options.pop("shape", (60, 90, 3))
    envs = [partial(kinds[i % len(kinds)], i, shape=shape) for i in range(count)]
    with stepping(api, envs, **{"backend": FORK, "workers": 2, **options}) as run:
        if speed is not None:
            run.page.limit_speed(speed)
        browser.driver.get(run.page.url)
        browser.shows(0, min(count, 64))
        until(lambda: browser.js("return latest !== null"))
        yield run
        assert browser.complaints() == []


def move(browser: Browser) -> None:
    """Pictures come, and differ."""
    before, picture = browser.seen, browser.pixels()
    until(lambda: browser.seen > before and browser.pixels() != picture)


@pytest.mark.full
@pytest.mark.parametrize("api", APIS)
def test_watching(api: str, browser: Browser) -> None:
    with watching(browser, api=api) as run:
        assert browser.driver.title == "environments × 4"
        move(browser)
        until(lambda: browser["#rate"].text not in ("–", "0"))
        check_pause(run, browser)

        # A click on the last of two by two enlarges it; another one goes back.
        box = browser["#picture"].rect
        ActionChains(browser.driver).move_to_element_with_offset(
            browser["#picture"], box["width"] // 4, box["height"] // 4
        ).click().perform()
        browser.shows(3, 1)
        move(browser)
        assert browser["#place"].text == "environment 3"
        browser["#all"].click()
        browser.shows(0, 4)
        assert not browser["#all"].is_displayed()
        browser["#envs tbody tr:nth-child(4)"].click()
        browser.shows(3, 1)
        browser["#picture"].click()
        browser.shows(0, 4)

        Select(browser["#speed"]).select_by_visible_text("15")
        until(lambda: hub_of(run.page).throttle.limit == 15)
        Select(browser["#fps"]).select_by_visible_text("5")
        until(lambda: hub_of(run.page).camera.fps == 5)
        run.goes_on()
    steps = hub_of(run.page).metrics.step
    assert 3 * run.rounds < steps <= 4 * run.rounds  # those that reset an environment don't count
    until(lambda: browser["#link"].text == f"The run has ended after {steps:,} steps.")
    assert browser["#age"].text == "the end"
    assert browser["#pause"].get_attribute("class") == ""


def check_pause(run: Stepping, browser: Browser) -> None:
    """Of a page that has shown all environments from its beginning, and nothing else."""
    browser["#pause"].click()
    until(lambda: browser["#pause"].text == "Resume")
    before, pictures = run.stands(), painted(run.page)
    until(lambda: browser.seen[0] == pictures)
    picture = browser.pixels()
    assert run.stands() == before
    assert browser.pixels() == picture
    browser["#step"].click()
    until(lambda: run.rounds == before + 1)

    def step() -> bool:
        browser["#step"].click()
        return browser.pixels() != picture

    until(step)
    browser["#pause"].click()
    until(lambda: browser["#pause"].text == "Pause")
    run.goes_on()
    browser.press(" ")  # the button has the focus
    until(lambda: browser["#pause"].text == "Resume")
    run.stands()
    browser["#pause"].click()
    until(lambda: browser["#pause"].text == "Pause")
    run.goes_on()


class Ends(Blinker):
    """Ends an episode every few steps, and fails when told to."""

    fails = False

    def step(self, action: Any) -> Any:
        observation, reward, _, truncated, info = super().step(action)
        if self.fails and self.steps == 3:
            raise RuntimeError("stumbled")
        return observation, reward, self.steps % 10 == 0, truncated, info


class Fails(Ends):
    fails = True


@pytest.mark.full
def test_tiles_tell_who_it_is_and_what_happened(browser: Browser) -> None:
    options = {"on_fault": agym.FaultPolicy("restart", max_restarts=10**9), "backend": "serial"}
    with watching(browser, kinds=[Ends, Ends, Fails, Ends], **options):
        tiles = browser.driver.find_elements(By.CSS_SELECTOR, ".tile")
        assert [tile.find_element(By.CSS_SELECTOR, "span").text for tile in tiles] == list("0123")
        until(lambda: "failed" in tiles[2].get_attribute("class"))
        assert "failed" not in tiles[0].get_attribute("class")
        until(lambda: "ended" in tiles[0].get_attribute("class"))
        for chart in ("returns", "rates", "times"):
            until(partial(browser.points, f"#{chart} polyline"))
        assert "steps" in browser["#returns"].text


@pytest.mark.full
def test_environments_and_policies_have_tables(browser: Browser) -> None:
    def think(observations: Any) -> Any:
        return observations

    def column() -> list[str]:
        cells = browser.driver.find_elements(By.CSS_SELECTOR, "#envs tbody td:first-child")
        return [cell.text.split()[0] for cell in cells]

    with watching(browser):
        until(lambda: column() == list("0123"))
        header = browser["#envs th button"]
        header.click()
        until(lambda: column() == list("3210"))
        browser["#envs tbody tr"].click()
        browser.shows(3, 1)
        header.click()
        until(lambda: column() == list("0123"))
        policy = agym.batched(think)
        assert asyncio.run(policy(1.0)) == 1.0  # type: ignore[arg-type]
        until(lambda: browser["#policies tbody"].text.startswith("think"))
        asyncio.run(policy.aclose())
        until(lambda: not browser["#policies"].is_displayed())


@pytest.mark.full
def test_the_last_seconds_are_rewound_and_saved(browser: Browser, tmp_path: Path) -> None:
    browser.driver.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    with watching(browser):
        rewind(browser, 1)
        assert "ago" in browser["#age"].text
        still = browser.pixels()
        before = browser.seen[0]
        until(lambda: browser.seen[0] > before + 3)
        assert browser.pixels() == still
        browser["#live"].click()
        until(lambda: browser["#age"].text == "live")
        move(browser)
        browser["#save"].click()
        until(lambda: any(path.suffix in (".mp4", ".webm") for path in tmp_path.iterdir()))


def rewind(browser: Browser, to: int) -> None:
    """Show one of the first pictures, once there are some: few, where the machine is slow."""
    until(lambda: int(browser["#rewind"].get_attribute("max")) >= 3)
    browser.js(
        "const slider = document.getElementById('rewind');"
        f"slider.value = {to}; slider.dispatchEvent(new Event('input'))"
    )
    until(lambda: browser["#picture"].get_attribute("data-live") == "false")


@pytest.mark.full
def test_the_past_is_bounded_while_rewound(browser: Browser) -> None:
    """The oldest picture is dropped although it is the one that is shown."""
    with watching(browser):
        rewind(browser, 0)
        count, within, holds = browser.js(
            "const jpeg = new Blob([new Uint8Array(PAST_BYTES / 8)]);"
            "for (let k = 0; k < 20; k++)"
            "  remember({head: header, jpeg, at: performance.now(), numbers: latest});"
            "const kept = [past.length, pastBytes <= PAST_BYTES, past.includes(rewound)];"
            "past = past.slice(0, 1); pastBytes = past[0].jpeg.size;"  # nobody can decode them
            "return kept"
        )
        assert count <= 8
        assert (within, holds) == (True, False)
        browser["#live"].click()
        until(lambda: browser["#age"].text == "live")
        move(browser)


@pytest.mark.full
def test_a_paused_picture_fits_a_window_of_another_size(browser: Browser) -> None:
    with watching(browser, shape=(300, 450, 3)) as run:
        rewind(browser, 1)
        browser.pause(run)
        pictures = painted(run.page)
        until(lambda: browser.seen[0] == pictures)
        width = browser.js("return picture.width")
        browser.driver.set_window_size(1000, 700)
        until(lambda: browser.js("return picture.width") < width)
        assert browser["#picture"].get_attribute("data-live") == "false"
        browser["#live"].click()
        until(lambda: browser["#picture"].get_attribute("data-live") == "true")
        width = browser.js("return picture.width")
        browser.driver.set_window_size(500, 700)
        until(lambda: browser.js("return picture.width") < width)
        assert browser.seen[0] == pictures
        # On a phone's width the slider has a row of its own.
        assert browser["#rewind"].rect["width"] > 300


def ended_tiles(browser: Browser, ids: list[int]) -> list[int]:
    """End an episode of some environments, and give the tiles that flash, in the usual color."""
    return browser.js(
        "const now = structuredClone(latest);"
        f"for (const env of {ids}) now.envs[env][1] += 1;"
        "compare(latest, now);"
        "const tiles = [...document.querySelectorAll('.tile')];"
        "const colors = tiles.map((tile) => getComputedStyle(tile).backgroundColor);"
        "if (new Set(colors).size > 1) return colors;"
        "return tiles.flatMap((tile, k) => tile.classList.contains('ended') ? [k] : [])"
    )


@pytest.mark.full
def test_flashes_let_pictures_be_seen(browser: Browser) -> None:
    """Also where nothing moves: there, no animation ends."""
    motion = {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]}
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", motion)
    with watching(browser, 70) as run:
        browser.pause(run)
        none = "return document.querySelector('.tile.ended') === null"
        until(lambda: browser.js(none) and browser.js("flashes.clear(); return true"))
        assert ended_tiles(browser, list(range(64))) == []
        assert ended_tiles(browser, [1, 2]) == [1, 2]
        until(lambda: browser.js(none))
        # Not again so soon, whatever the time is.
        browser.js("flashes.set(1, performance.now() + 1e6)")
        assert ended_tiles(browser, [1]) == []


@pytest.mark.full
def test_what_is_clicked_stays_where_it_is(browser: Browser) -> None:
    """Whatever the numbers are: a button that moves is missed by a click."""
    with watching(browser, 70) as run:
        browser["#on"].click()
        browser.shows(64, 6)
        assert browser["#place"].text == "page 2 of 2"
        buttons = [browser[name] for name in ("#pause", "#step", "#speed", "#fps", "#back", "#on")]
        browser.pause(run)
        rectangles = [button.rect for button in buttons]
        for text in ("–", "1,234,567"):
            for name in ("rate", "mean", "steps", "place"):
                browser.js(f"document.getElementById('{name}').textContent = '{text}'")
            assert [button.rect for button in buttons] == rectangles
        # All in one script: the next numbers undo it.
        names = "['pause', 'step', 'speed', 'fps', 'back', 'on', 'link']"
        moved, wide, labels = browser.js(
            f"const edges = () => {names}.map("
            "  name => JSON.stringify($(name).getBoundingClientRect())).join();"
            "const aside = document.querySelector('aside'), before = edges();"
            "const envs = latest.envs.map(row => [row[0], 1.2e9, -1.7e308, 1e17, ...row.slice(4)]);"
            "const at = values => {"
            "  const dots = values.map((value, k) => [3e11 + k, value, 1e9, 0, 0]);"
            "  return {dots, curve: dots, logged: {loss: dots}, mean_length: 1e9}; };"
            "for (const values of [[1e17, 1e17 + 16], [-1.7e308, 1.7e308], Array(9).fill(-3e200)])"
            "  showNumbers({...latest, ...at(values), envs, steps: 1e9, rate: 1e12,"
            "               mean: -1.7e308});"
            "showNumbers({...latest, ...at([1e17, 1e17 + 16])});"
            "return [edges() !== before, aside.scrollWidth > aside.clientWidth,"
            "  $('returns').textContent]"
        )
        assert (moved, wide) == (False, False)
        assert "1e17" in labels
        browser["#pause"].click()
        until(lambda: browser["#pause"].text == "Pause")
        assert [button.rect for button in buttons] == rectangles


@pytest.mark.full
def test_playing_with_the_keyboard(browser: Browser, tmp_path: Path) -> None:
    words = ["play", "agym/Pong-v0", "--seed", "0", "--wait"]
    with started(*words, folder=tmp_path) as (url, process):
        browser.driver.get(url)
        browser.shows(0, 1)
        assert "W: 1" in browser["#legend"].text
        assert not browser["#help"].is_displayed()
        still = browser.pixels()
        press = ActionChains(browser.driver)
        press.key_down("s").perform()
        until(lambda: browser.pixels() != still)
        press.key_up("s").perform()
        check_keys(browser)
        assert browser.complaints() == []
        process.send_signal(signal.SIGINT)
        assert process.wait(patience(2)) == 130


def check_keys(browser: Browser) -> None:
    """That keys are held as long as they are, whatever was clicked before."""

    def down() -> list[str]:
        return browser.js("return [...held.values()].map(each => each.key).sort()")

    keys = ActionChains(browser.driver)
    until(lambda: browser["#rewind"].is_enabled())
    keys.drag_and_drop_by_offset(browser["#rewind"], 20, 0).perform()
    Select(browser["#speed"]).select_by_visible_text("60")
    until(lambda: browser.js("return document.activeElement === document.body"))
    keys.key_down("w").perform()
    assert down() == ["w"]
    keys.key_up("w").perform()
    assert down() == []

    # Shift is released before what it changed.
    browser.js(
        "const key = (kind, key, code, shiftKey) =>"
        "  dispatchEvent(new KeyboardEvent(kind, {key, code, shiftKey}));"
        "key('keydown', 'Shift', 'ShiftLeft', true); key('keydown', '?', 'Slash', true);"
        "key('keydown', 'a', 'KeyA', true); key('keyup', 'Shift', 'ShiftLeft', false);"
    )
    assert down() == ["a"]
    browser.js("dispatchEvent(new KeyboardEvent('keyup', {key: '/', code: 'Slash'}))")
    browser.js("dispatchEvent(new Event('blur'))")
    assert down() == []

    # Enter on a button only clicks it.
    browser.js("$('pause').focus()")
    keys.key_down("\ue007").perform()
    assert down() == []
    keys.key_up("\ue007").perform()
    until(lambda: browser["#pause"].text == "Resume")


@pytest.mark.full
def test_environments_are_enlarged_by_keys(browser: Browser) -> None:
    with watching(browser):
        until(lambda: browser.driver.find_elements(By.CSS_SELECTOR, "#envs tbody tr:nth-child(4)"))
        assert "environments 0 to 3" in browser["#picture"].get_attribute("aria-label")
        browser.js("picture.focus()")
        browser.press("\ue007")  # enter
        browser.shows(0, 1)
        assert "environment 0:" in browser["#picture"].get_attribute("aria-label")
        browser.press("\ue00c")  # escape
        browser.shows(0, 4)
        browser.js("document.querySelector('#envs tbody tr:nth-child(3)').focus()")
        browser.press("\ue007")
        browser.shows(2, 1)
        # A key comes before the server said what it shows.
        browser.js(
            "const known = about; about = null;"
            "try { press(new KeyboardEvent('keydown', {key: 'ArrowRight'}), true) }"
            "finally { about = known }"
        )


@pytest.mark.full
def test_charts_have_gaps_where_nothing_is_known(browser: Browser) -> None:
    """And means are of some episodes."""
    with watching(browser):
        until(lambda: browser.points("#rates polyline"))
        points = browser.js(
            "const lengths = name =>"
            "  [...document.querySelectorAll(`#${name} polyline`)].map(one => one.points.length);"
            "const means = [4, 5, 6].map(count => {"
            "    const curve = [...Array(count).keys()].map(k => [100 * k, 1, 1]);"
            "    drawCharts({...latest, dots: [], curve}); return lengths('returns') });"
            "history.length = 0;"
            "for (const seconds of [1, 1.5, 2, 60, 60.5])"
            "  drawCharts({...latest, seconds, rate: 5, step_seconds: 1});"
            "return [...means, lengths('rates'), lengths('times')]"
        )
        assert points == [[], [1], [2], [3, 2], [3, 2]]


@pytest.mark.full
def test_a_reload_shows_the_same_curve(browser: Browser) -> None:
    """Also the episodes that ended while nobody looked, and none that never was."""
    # Slowed down, so that the first ones are still among the latest.
    with watching(browser, kinds=[Ends], backend="serial", speed=30) as run:
        until(lambda: browser.js("return latest && latest.dots.length > 8"))
        before = browser.js("return latest.dots")
        browser.driver.get("about:blank")
        until(lambda: run.page.viewers == 0)
        rounds = run.rounds
        until(lambda: run.rounds > rounds + 30)
        browser.driver.get(run.page.url)
        until(lambda: browser.js("return latest !== null"))
        dots = browser.js("return latest.dots")
        assert dots[: len(before)] == before
        assert {(total, length) for _, total, length, _, _ in dots} == {(10, 10)}
        steps = [dot[0] for dot in dots]
        assert steps == sorted(steps)
        assert max(b - a for a, b in itertools.pairwise(steps)) <= 44  # an episode of 4, and resets


@pytest.mark.full
def test_a_dot_plays_its_episode(browser: Browser) -> None:
    with watching(browser, kinds=[Ends], backend="serial", speed=4):
        seen = (  # of the latest episode
            "const [end, , , , start] = latest?.dots.at(-1) ?? [];"
            "return past.filter(({head}) => start <= head.step && head.step <= end).length"
        )
        until(lambda: browser.js(seen) > 4)
        middle = (
            "const svg = document.getElementById('returns'), box = svg.getBoundingClientRect();"
            "const mark = svg.marks.filter(each => each.data).at(-1);"
            "const at = {bubbles: true, clientX: box.left + mark.x, clientY: box.top + mark.y};"
        )
        browser.js(middle + "svg.dispatchEvent(new PointerEvent('pointermove', at))")
        assert re.fullmatch(
            r"environment \d: return 10, 10 steps; click to play", browser["#tip"].text
        )
        env, steps, end, start = browser.js(
            middle + "svg.dispatchEvent(new MouseEvent('click', at));"
            "const [end, , , , start] = mark.data;"  # all environments have ended there
            "return [clip.env, clip.shots.map(shot => shot.head.step), end, start]"
        )
        assert steps
        assert start <= min(steps) < max(steps) <= end
        until(lambda: "ago" in browser["#age"].text)
        chosen = browser.js(
            "return [...document.querySelectorAll('.tile')].map(tile => tile.className)"
        )
        assert [k for k, name in enumerate(chosen) if "chosen" in name] == [env]
        browser["#live"].click()
        until(lambda: not browser.js("return document.querySelector('.chosen')"))


@pytest.mark.full
def test_logged_values_are_drawn_and_downloaded(browser: Browser, tmp_path: Path) -> None:
    browser.driver.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    with watching(browser, kinds=[Ends]) as run:
        for k in range(10):
            run.page.log(loss=1 / (1 + k), entropy=k)
        until(lambda: browser.points("#logged svg:nth-of-type(2) polyline"))
        names = browser.driver.find_elements(By.CSS_SELECTOR, "#logged h2")
        assert [name.text for name in names] == ["entropy", "loss"]
        for name, rows in (("episodes", 2), ("logged", 21)):
            browser.js(f"document.querySelector('a[href^={name}]').click()")
            path = tmp_path / f"{name}.csv"
            until(
                lambda path=path, rows=rows: (
                    path.exists() and len(path.read_text().splitlines()) >= rows
                )
            )


@pytest.mark.full
def test_a_page_without_its_run_says_so(browser: Browser) -> None:
    with watching(browser):
        browser.js("tries = TRIES; socket.close()")
        until(lambda: "A new run has a new address" in browser["#link"].text)
        assert re.search(r"has probably ended after [\d,]+ steps", browser["#link"].text)
        assert browser["#age"].text == "the end"
        assert not browser["#pause"].is_enabled()
        browser.driver.refresh()
        browser.shows(0, 4)
        assert browser["#pause"].is_enabled()
    until(lambda: "The run has ended" in browser["#link"].text)
    for name in ("#pause", "#step", "#speed", "#fps"):
        assert not browser[name].is_enabled()


def luminance(colour: str) -> float:
    """As WCAG 2 defines it."""
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ink", ["ink", "faint", "warn", "bad"])
def test_texts_have_enough_contrast(theme: int, ink: str) -> None:
    themes = re.findall(r":root \{(.*?)\}", web_app.PAGE.read_text("utf-8"), re.DOTALL)
    colours = dict(re.findall(r"--(\w+): (#\w{6})\b", themes[theme]))
    for ground in ("ground", "raised", "stage"):
        dark, light = sorted(luminance(colours[name]) for name in (ink, ground))
        assert (light + 0.05) / (dark + 0.05) >= 4.5, ground
