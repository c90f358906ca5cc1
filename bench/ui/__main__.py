"""The web UI in Chromium, beside rq-dashboard's: `python -m bench.ui [--jobs N] [--seconds S] [--only MEASURE]`

Each page: kB on the wire, requests, and the time until it can be used. The list of runs beside the list of the same
number of jobs of rq-dashboard, both opened for the first time. Then frame times while a list of many jobs is
scrolled, and what twenty viewers cost the server while it handles events: its share of a core, and how late jobs of
every second begin. A page that is open meanwhile: how busy its main thread is, and what its memory grows by. The
server, the viewers and the browser share the machine, as they do where `mainspring up` runs beside a browser.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

from bench.api.serving import HOST, free_port
from bench.harness.figures import percentile
from bench.harness.running import PEERS, Failed
from bench.peers.installing import REQUIREMENTS, install

TESTS = Path(__file__).parents[2] / "tests" / "browser"
PAGES = (
    "/", "/jobs", "/runs", "/failures", "/load", "/timeline", "/queues", "/workers", "/cluster", "/calendars",
    "/events", "/audit", "/settings",
)  # fmt: skip
MEASURES = ("pages", "lists", "scroll", "viewers", "watch")
VIEWERS = 20
EVENTS_PER_RUN = 3
"""Submitted, running, succeeded."""
EVENTS_PER_S = 500
PULSES = 10
"""Jobs that fire every second, whose lateness shows what viewers cost."""
START_S = 60.0
LISTED = 100
"""Rows of the lists that are compared: a page of the list of runs."""
PEER_NAME = "mainspring-bench-ui"
PEER_QUEUE = """
import sys
from redis import Redis
from rq import Queue
url, name, count = sys.argv[1:]
queue = Queue(name, connection=Redis.from_url(url))
queue.delete(delete_jobs=True)
for number in range(int(count)):
    queue.enqueue("builtins.abs", number)
"""
"""Makes a queue with this many jobs; with none, removes it."""
USABLE = """(() => {
  const look = () => {
    if (document.querySelector(MARK) && !document.querySelector('.skeleton')) window.usableAt = performance.now();
    else requestAnimationFrame(look);
  };
  look();
})()"""
"""By the clock of the page, which begins when it is asked for. Playwright takes 100 to 200 ms more to see it."""
FRAMES = """async ([seconds, step]) => {
  const gaps = [];
  let last = performance.now();
  const until = last + seconds * 1000;
  while (last < until) {
    scrollBy(0, step);
    const now = await new Promise(requestAnimationFrame);
    gaps.push(now - last);
    last = now;
  }
  return gaps.slice(1);
}"""


@contextmanager
def server(folder: Path, jobs: int) -> Iterator[tuple[str, int]]:
    """A server with many jobs; its address and process."""
    store, port = folder / "bench.db", free_port()
    subprocess.run([sys.executable, str(TESTS / "seeding.py"), str(store), str(jobs), "bare"], check=True)
    words = [sys.executable, "-m", "mainspring", "up", str(TESTS / "company.py"), "--queue", "default"]
    settings = {"MAINSPRING_STORE": f"sqlite:///{store}", "MAINSPRING_PORT": str(port)}
    limits = {"MAINSPRING_SUBMIT_RATE": "1000000", "MAINSPRING_QUERY_RATE": "1000000"}
    with running([*words, "--undeclared", "report"], {**os.environ, **settings, **limits}) as process:
        url = f"http://{HOST}:{port}"
        await_answer(f"{url}/health/live", process)
        yield url, process.pid


@contextmanager
def peer(folder: Path) -> Iterator[str]:
    """rq-dashboard on the Redis server of MAINSPRING_TEST_REDIS; the address of a list of jobs that wait."""
    url = os.environ.get("MAINSPRING_TEST_REDIS")
    if url is None:
        raise Failed("MAINSPRING_TEST_REDIS names no Redis server")
    environment, port = PEERS.with_name(".venv-rq-dashboard"), free_port()
    install(environment, REQUIREMENTS / "rq-dashboard.txt")
    words = ["--bind", HOST, "--port", str(port), "--redis-url", url]
    with running([str(environment / "bin" / "rq-dashboard"), *words], {**os.environ, "HOME": str(folder)}) as process:
        await_answer(f"http://{HOST}:{port}/", process)
        for_queue = [str(environment / "bin" / "python"), "-c", PEER_QUEUE, url, PEER_NAME]
        subprocess.run([*for_queue, str(LISTED)], check=True)
        try:
            yield f"http://{HOST}:{port}/0/view/jobs/{PEER_NAME}/queued/{LISTED}/asc/1"
        finally:
            subprocess.run([*for_queue, "0"], check=True)


@contextmanager
def running(words: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process until the end of the block."""
    process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def await_answer(url: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until a server answers."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        with suppress(httpx.TransportError):
            if httpx.get(url, follow_redirects=True).status_code < 500:
                return
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise Failed(f"{url} does not answer")


def await_usable(page: Page, mark: str) -> None:
    """Wait until what marks a page is there, and nothing stands in for what is still to come."""
    page.wait_for_selector(mark)
    page.wait_for_selector(".skeleton", state="detached")


def load_page(browser: Browser, url: str, mark: str = "h1", warm: str | None = None) -> tuple[float, int, float]:
    """kB, requests, and seconds until a page can be used; after another one, where `warm` names it."""
    page = browser.new_page()
    page.add_init_script(USABLE.replace("MARK", repr(mark)))
    network = page.context.new_cdp_session(page)
    network.send("Network.enable")
    if warm is not None:
        page.goto(warm)
        await_usable(page, mark)
    sizes: list[float] = []
    network.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    page.goto(url)
    await_usable(page, mark)
    page.wait_for_timeout(500)  # Requests that a page makes once it is usable count, too.
    took_s = float(page.evaluate("window.usableAt")) / 1000
    page.close()
    return sum(sizes) / 1024, len(sizes), took_s


def frames(page: Page, seconds: float) -> str:
    """Times between frames while a list is scrolled."""
    gaps = page.evaluate(FRAMES, [seconds, 120])
    p50, p95 = percentile(gaps, 0.5), percentile(gaps, 0.95)
    return f"p50 {p50:.1f} ms, p95 {p95:.1f} ms, longest {max(gaps):.1f} ms, of {len(gaps)}"


def cpu_s(pid: int) -> float:
    """The processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def view(client: httpx.AsyncClient, stop: asyncio.Event, counts: list[int]) -> None:
    """Follow the news as a page does, and fetch the overview whenever there is some."""
    async with client.stream("GET", "/v1/live", headers={"Accept": "text/event-stream"}) as stream:
        async for line in stream.aiter_lines():
            if stop.is_set():
                return
            if line.startswith("data:"):
                counts.append(len(line))
                await client.get("/v1/overview")


async def feed(client: httpx.AsyncClient, seconds: float) -> int:
    """Events at a fixed rate; how many."""
    every_s, runs = 0.2, round(EVENTS_PER_S * 0.2 / EVENTS_PER_RUN)
    began, sent = time.monotonic(), 0
    body = {"runs": [{"task": "exact", "args": {"number": 1}}] * runs}
    while time.monotonic() - began < seconds:
        await client.post("/v1/runs:batch", json=body)
        sent += runs * EVENTS_PER_RUN
        await asyncio.sleep(max(every_s * (sent / EVENTS_PER_RUN / runs) - (time.monotonic() - began), 0))
    return sent


def declare_pulses(url: str) -> None:
    """Jobs whose lateness is measured."""
    for number in range(PULSES):
        body = {"name": f"pulse-{number}", "task": "exact", "args": {"number": 1}, "every": "1s"}
        httpx.post(f"{url}/v1/jobs", json=body).raise_for_status()


def late_p99_s(url: str, since: datetime) -> float:
    """How late the firings since an instant began, at the 99th percentile."""
    found: list[float] = []
    for number in range(PULSES):
        words = {"since": since.isoformat(), "outcome": "succeeded", "limit": 1000}
        items = httpx.get(f"{url}/v1/jobs/pulse-{number}/ledger", params=words).json()["items"]
        found += [each["late_s"] for each in items if each.get("late_s") is not None]
    return percentile(found, 0.99)


class Watched:
    """A page that stays open: what its main thread does, and the memory that its program holds."""

    def __init__(self, browser: Browser, url: str) -> None:
        self.page = browser.new_page(viewport={"width": 1440, "height": 900})
        self.page.goto(f"{url}/ui/runs")
        await_usable(self.page, "h1")
        self._session = self.page.context.new_cdp_session(self.page)
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})
        self._held, self._first, self._began = self._kept(), self._read(), time.monotonic()

    def _read(self) -> dict[str, float]:
        return {each["name"]: each["value"] for each in self._session.send("Performance.getMetrics")["metrics"]}

    def _kept(self) -> float:
        self._session.send("HeapProfiler.collectGarbage")
        return self._read()["JSHeapUsedSize"]

    def close(self) -> str:
        """What it took since it was opened: processor time of the main thread, whatever else the machine does."""
        last, took, held = self._read(), time.monotonic() - self._began, self._kept()
        self.page.close()
        busy = (last["TaskDuration"] - self._first["TaskDuration"]) / took
        grown = (held - self._held) / 2**20
        return f"main thread busy {busy * 100:.1f} %, memory grew by {grown:.1f} MiB in {took:.0f} s"


async def cost(url: str, pid: int, viewers: int, seconds: float) -> tuple[float, int, int]:
    """The share of a core that the server takes, the events, and the news that viewers got."""
    counts: list[int] = []
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=httpx.Limits(max_connections=200)) as client:
        stop = asyncio.Event()
        following = [asyncio.create_task(view(client, stop, counts)) for _ in range(viewers)]
        await asyncio.sleep(1.0)
        began, used = time.monotonic(), cpu_s(pid)
        sent = await feed(client, seconds)
        share = (cpu_s(pid) - used) / (time.monotonic() - began)
        stop.set()
        for each in following:
            each.cancel()
        await asyncio.gather(*following, return_exceptions=True)
    return share, sent, len(counts)


def show(name: str, figures: tuple[float, int, float]) -> None:
    """One line of the table."""
    kb, requests, took = figures
    print(f"{name:<34} {kb:>8.1f} kB {requests:>5} requests {took * 1000:>8.0f} ms")


def measure_pages(browser: Browser, url: str) -> None:
    """What each page weighs, and how soon it can be used."""
    show("first load, /", load_page(browser, f"{url}/ui/", ".panel"))
    for path in PAGES:
        show(f"after it, {path}", load_page(browser, f"{url}/ui{path}", warm=f"{url}/ui/settings"))


def measure_lists(browser: Browser, url: str, folder: Path) -> None:
    """A list of runs beside a peer's list of as many jobs: the first page that a browser without a cache opens."""
    body = {"runs": [{"task": "exact", "queue": "shelf", "args": {"number": 1}}] * LISTED}
    httpx.post(f"{url}/v1/runs:batch", json=body).raise_for_status()
    last = f"tbody tr:nth-child({LISTED})"
    show(f"Mainspring, list of {LISTED} runs", load_page(browser, f"{url}/ui/runs", last))
    try:
        with peer(folder) as address:
            show(f"rq-dashboard, list of {LISTED} jobs", load_page(browser, address, last))
    except Failed as failure:
        print(f"rq-dashboard: {failure}")


def measure_scrolling(browser: Browser, url: str, arguments: argparse.Namespace) -> None:
    """Frame times of a long list."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(f"{url}/ui/jobs")
    page.wait_for_selector("tr[data-row]")
    print(f"scrolling {arguments.jobs} jobs: {frames(page, arguments.seconds)}")
    page.close()


def measure_viewers(url: str, pid: int, seconds: float) -> None:
    """What viewers cost the server, and the jobs that it fires."""
    declare_pulses(url)
    for viewers in (0, VIEWERS):
        began = datetime.now(UTC)
        share, sent, news = asyncio_run(cost(url, pid, viewers, seconds))
        rate, late = sent / seconds, late_p99_s(url, began) * 1000
        print(f"{viewers:>2} viewers, {rate:.0f} events/s: {share * 100:.1f} % of a core, {news} news received,"
              f" firings late p99 {late:.1f} ms")  # fmt: skip


def measure_watching(browser: Browser, url: str, pid: int, seconds: float) -> None:
    """What a flood of events costs a browser."""
    watched = Watched(browser, url)
    asyncio_run(cost(url, pid, 0, seconds))
    print(f"an open list of runs at {EVENTS_PER_S} events/s: {watched.close()}")


def measure(browser: Browser, arguments: argparse.Namespace, folder: Path) -> None:
    """The figures that are asked for, one after another."""
    wanted = arguments.only or MEASURES
    with server(folder, arguments.jobs) as (url, pid):
        if "pages" in wanted:
            measure_pages(browser, url)
        if "lists" in wanted:
            measure_lists(browser, url, folder)
        if "scroll" in wanted:
            measure_scrolling(browser, url, arguments)
        if "viewers" in wanted:
            measure_viewers(url, pid, arguments.seconds)
        if "watch" in wanted:
            measure_watching(browser, url, pid, arguments.seconds)


def asyncio_run(work: Any) -> Any:
    """Run a coroutine beside the browser's own loop, which holds this thread."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, work).result()


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.ui", description="What the web UI weighs, takes and costs.")
    parser.add_argument("--jobs", type=int, default=2_000, help="10000 for figures to quote")
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="of each measure; 600 for the ten minutes of a watch"
    )
    parser.add_argument("--only", action="append", choices=MEASURES, help="this measure; may be repeated")
    arguments = parser.parse_args()
    program = shutil.which("chromium")
    if program is None:
        print("bench: install chromium", file=sys.stderr)
        return 1
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        measure(browser, arguments, Path(folder))
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
