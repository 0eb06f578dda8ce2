"""Many workers on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import click

from ..errors import ConfigError, FrontierError
from ..frontier.connect import Servers
from ..frontier.frontier import Frontier
from ..frontier.inspect import begun
from ..frontier.meta import Meta
from ..frontier.totals import Overview, overview
from ..policy.hosts import SUFFIX_LIST_ID
from . import main
from .common import Failure, Project, Settings, project_of, redis_of, setting, settings_option
from .processes import Processes
from .shown import plain

WORKER = "%(worker)s"  # stands for the number of a worker
LINE_S = 10.0  # between two lines where there is no terminal
LOOK_S = 2.0  # between two looks; longer for many partitions, each is asked
PARTITIONS_A_SECOND = 100
RATE_S = 12.0  # pages a second are a mean over so long
NUMBER = click.IntRange(1, 1000)


class Stopped(Failure):
    """As scrapy crawl ends."""

    exit_code = 1


@main.command()
@click.argument("number", metavar="N", type=NUMBER)
@click.option("-a", "arguments", multiple=True, type=setting, metavar="NAME=VALUE", help="an argument of the spider, as for scrapy crawl")
@click.option(
    "-o",
    "--output",
    "feeds",
    multiple=True,
    metavar="URI",
    help=f"a feed, as for scrapy crawl, for each worker one of its own: {WORKER} in it is the worker's number",
)
@click.option("--spider", default="web", show_default=True, metavar="NAME", help="the spider to run")
@settings_option
def workers(number: int, arguments: Settings, feeds: Sequence[str], spider: str, settings: Settings) -> None:
    """Runs N workers on this machine, until the crawl is drained or Ctrl-C.

    Each is a `scrapy crawl` of its own, with its log in <data directory>/<crawl>/logs. One that dies is started again. %(worker)s in values
    of -a and -s, too, is the worker's number.

    Exit status: 0 the crawl is drained or was stopped, 1 what scrapy crawl would not start with.
    """
    try:
        project = project_of(settings)
        _refuse_shared_feeds(number, feeds, project)
        folder = Path(project.config.data_dir, project.config.crawl, "logs")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise ConfigError(f"CRAWLWEB_DATA_DIR={project.config.data_dir}: {e.strerror or e}") from None
        commands = [_command(n, spider, arguments, feeds, settings) for n in range(1, number + 1)]
        with redis_of(project.config, make=True) as url:
            asyncio.run(_run(commands, folder, project, url, has_seeds="seeds" in dict(arguments)))
    except (ConfigError, FrontierError, ImportError) as e:
        raise Stopped(str(e)) from e


def _refuse_shared_feeds(number: int, feeds: Sequence[str], project: Project) -> None:
    """Several processes that append to one file would write into each other's lines."""
    if number == 1:
        return
    for feed in feeds:
        if WORKER not in feed:
            raise ConfigError(f"-o {feed}: each worker needs a file of its own: put {WORKER} into its name")
    for feed in project.feeds:
        if WORKER not in feed:
            raise ConfigError(f"FEEDS has {feed}: each worker needs a file of its own: leave it out (-s FEEDS={{}}), use -o with {WORKER}")


def _command(number: int, spider: str, arguments: Settings, feeds: Sequence[str], settings: Settings) -> list[str]:
    """Of a worker. The first brings the seeds in, whenever it starts: after a kill in the midst of them as well, and those that are known
    cost only a look."""
    words = [sys.executable, "-m", "scrapy", "crawl", spider, "-s", "LOG_FILE="]
    words += [word for name, value in settings for word in ("-s", f"{name}={value}")]
    words += [word for name, value in arguments if number == 1 or name != "seeds" for word in ("-a", f"{name}={value}")]
    words += [word for feed in feeds for word in ("-o", feed)]
    return [word.replace(WORKER, str(number)) for word in words]


async def _run(commands: Sequence[Sequence[str]], folder: Path, project: Project, url: str, has_seeds: bool) -> None:
    servers = await Servers.connect(url, project.redis_params, project.config.redis_cluster)
    display = Display()
    processes = Processes(commands, folder, display.tell)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        display.tell("stopping: what is being fetched is finished; once more to end at once")
        processes.stop()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
            loop.add_signal_handler(number, stop)
    click.echo(f"workers: {len(commands)}; their logs: {folder}")
    watch = Watch(servers, project.config.crawl, processes, display, has_seeds)
    watching = asyncio.ensure_future(watch.forever())
    try:
        is_well = await processes.run()
        watching.cancel()
        await asyncio.wait([watching], timeout=LOOK_S)
        await watch.look()
        display.end(is_kept=not processes.error)
    finally:
        watching.cancel()
        await servers.close()
    if not is_well:
        raise Stopped(processes.error.removeprefix("crawlweb: ") or f"a worker did not end well, see {folder}")


class Watch:
    """The crawl as its Redis shows it, for the display."""

    def __init__(self, servers: Servers, crawl: str, processes: Processes, display: Display, has_seeds: bool) -> None:
        self._servers, self._crawl, self._processes, self._display = servers, crawl, processes, display
        self._has_seeds = has_seeds
        self._frontier: Frontier | None = None
        self._pages: deque[tuple[float, int]] = deque()

    async def forever(self) -> None:
        while True:
            await self.look()
            partitions = self._frontier.partitions if self._frontier else 0
            await asyncio.sleep(max(LOOK_S, partitions / PARTITIONS_A_SECOND))

    async def look(self) -> None:
        elsewhere = ""
        try:
            if self._frontier is None:
                self._frontier = await begun(self._servers.redis, self._crawl, f"cli-{secrets.token_hex(4)}", SUFFIX_LIST_ID)
            await self._hold_the_end(self._frontier)
            seen = await overview(self._frontier)
            text = self._described(seen)
            elsewhere = f", {seen.workers} in all" if seen.workers > self._processes.alive else ""
        except ConfigError:  # no worker has begun the crawl yet, or they will say why they cannot
            text = "the crawl begins"
        except FrontierError:
            text = "Redis does not answer"
        processes = self._processes
        restarts = f", {processes.restarts} restarts" if processes.restarts else ""
        trouble = f"; {processes.trouble}" if processes.trouble else ""
        self._display.show(f"{text}; {processes.alive} of {len(processes.slots)} workers{elsewhere}{restarts}{trouble}")

    async def _hold_the_end(self, frontier: Frontier) -> None:
        """The others would find the crawl drained while the one that brings the seeds is about to start again."""
        first = self._processes.slots[0]
        if self._has_seeds and not first.has_ended and first.process is None:
            await Meta(frontier).say_seeding(True)

    def _described(self, seen: Overview) -> str:
        now, pages = time.monotonic(), seen.sums.get("crawlweb/pages", 0)
        self._pages.append((now, pages))
        while now - self._pages[0][0] > RATE_S:
            self._pages.popleft()
        since, before = self._pages[0]
        rate = (pages - before) / (now - since) if now > since else 0.0
        errors = sum(n for name, n in seen.sums.items() if name.startswith("crawlweb/errors/"))
        return f"{pages:,} pages ({rate:.1f}/s), {errors:,} errors, {seen.pending:,} URLs pending, {seen.hosts:,} hosts in work"


class Display:
    """One line that is written over on a terminal; elsewhere a line now and then. On standard error."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._shown = ""
        self._next = time.monotonic() + LINE_S

    def show(self, line: str) -> None:
        self._shown = line
        if self._is_terminal:
            self._write(f"\r{plain(line)[: shutil.get_terminal_size().columns - 1]}\x1b[K")
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + LINE_S
            self._write(f"{plain(line)}\n")

    def tell(self, line: str) -> None:
        """A line that stays."""
        self._write(f"\r\x1b[K{plain(line)}\n" if self._is_terminal else f"{plain(line)}\n")
        if self._is_terminal and self._shown:
            self.show(self._shown)

    def end(self, is_kept: bool) -> None:
        """`is_kept`: what is shown last stays."""
        if self._is_terminal:
            self._write("\n" if is_kept else "\r\x1b[K")
        elif is_kept:
            self._write(f"{plain(self._shown)}\n")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):  # the terminal is gone
            sys.stderr.write(text)
            sys.stderr.flush()
