"""`crawlweb`: what an operator asks of a crawl and wants of its hosts, whether its workers run or not."""

from __future__ import annotations

import asyncio
import json
import math
import re
import secrets
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, TypeVar

import click
from scrapy.utils.project import get_project_settings

from . import __version__
from .default_settings import Config, load
from .errors import ConfigError, FrontierError, without_credentials
from .frontier.accounts import Account, Accounts, Tally
from .frontier.connect import Servers
from .frontier.frontier import Frontier
from .frontier.inspect import DeadLetter, HostView, begun, count_dead_letters, host_view, newest_dead_letters, server_time
from .frontier.rows import Override
from .frontier.server import PrivateServer
from .policy.hosts import SUFFIX_LIST_ID, host_of, host_of_name

T = TypeVar("T")
Settings = Sequence[tuple[str, str]]

NONE = "none"  # the word that takes a value back
FOREVER = datetime(9999, 1, 1, tzinfo=timezone.utc)
DELAY_MOST_S = 86_400.0
CONCURRENCY_MOST = 100
_SPAN = re.compile(r"\+(\d{1,9}(?:\.\d{1,3})?)([smhdw])")
_SPANS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Failure(click.ClickException):
    """Ends the command with one line on standard error."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        click.echo(f"crawlweb: {_plain(self.message)}", file=file, err=True)


class NothingFound(Failure):
    exit_code = 1


# -- what is typed -------------------------------------------------------------------------------------------------------


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise click.BadParameter(f"{text!r}: NAME=VALUE expected")
    return name, value


def _host(text: str) -> str:
    """A name or a URL → the host whose clock it moves."""
    text = text.strip()
    is_ipv6 = text.count(":") > 1 and "/" not in text and "[" not in text
    try:
        return host_of_name(text) if is_ipv6 else host_of(text if "://" in text else f"http://{text}")
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither a name nor an http or https URL") from None


def _number(text: str, kind: Callable[[str], float], low: float, high: float) -> float | str:
    try:
        value = text if text == NONE else kind(text)
    except ValueError:
        value = math.nan
    if value != NONE and not low <= float(value) <= high:
        raise click.BadParameter(f"{text!r}: a number from {low:g} to {high:g}, or {NONE}, expected")
    return value


def _pause(text: str) -> datetime | timedelta | str:
    text = text.strip()
    try:
        if text == NONE:
            return NONE
        if text == "forever":
            return FOREVER
        if span := _SPAN.fullmatch(text):
            return timedelta(**{_SPANS[span[2]]: float(span[1])})
        return datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text).astimezone()
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(f"{text!r}: a date and time such as 2026-12-01T08:00, +2h, forever, or {NONE}, expected") from None


_settings = click.option(
    "-s", "--set", "settings", multiple=True, type=_setting, metavar="NAME=VALUE", help="a setting of the project, as for scrapy crawl"
)
_json = click.option("--json", "as_json", is_flag=True, help="one JSON object a line")
_of_reason = click.option("--reason", default="", metavar="REASON", help="only dead letters with this reason")
_of_host = click.option("--host", type=_host, metavar="HOST", help="only dead letters of this host")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Looks into a crawl and steers it, while its workers run or not. Run it where scrapy crawl is run.

    Exit status: 0 done, 1 nothing was found, or the audit found URLs in no place, 2 it could not be done.
    """


# -- commands ------------------------------------------------------------------------------------------------------------


@main.command()
@_json
@_settings
def hosts(as_json: bool, settings: Settings) -> None:
    """Hosts with overrides."""
    found = sorted(_run(settings, Frontier.overrides).items())
    if as_json:
        _print_json({"host": host, **asdict(override)} for host, override in found)
    elif found:
        _print_table([("host", "delay", "concurrency", "paused until", "below minimum"), *((h, *_override_cells(o)) for h, o in found)])


@main.command()
@click.argument("host", type=_host)
@click.option(
    "--delay",
    "delay_s",
    type=lambda text: _number(text, float, 0, DELAY_MOST_S),
    metavar="SECONDS",
    help="from the end of a request to the next, in place of crawl-delay, latency and minimum",
)
@click.option(
    "--concurrency",
    type=lambda text: _number(text, int, 1, CONCURRENCY_MOST),
    metavar="N",
    help="requests at a time; the delay then counts from start to start",
)
@click.option(
    "--pause-until",
    type=_pause,
    metavar="MOMENT",
    help="no request before: 2026-12-01T08:00 (local time, or with +01:00 or Z), +2h (s, m, h, d, w), forever",
)
@click.option(
    "--below-minimum",
    is_flag=True,
    help="permits a delay below the crawl's minimum, and a concurrency over 1: only for hosts whose owner agreed to it",
)
@click.option("--clear", is_flag=True, help="takes all overrides of the host back")
@_json
@_settings
def host(
    host: str,
    delay_s: float | str | None,
    concurrency: int | str | None,
    pause_until: datetime | timedelta | str | None,
    below_minimum: bool,
    clear: bool,
    as_json: bool,
    settings: Settings,
) -> None:
    """Shows a host, named by any of its names or URLs; sets overrides first, if any is given.

    Overrides hold for all workers within a second or two, and outlive them. Those not named stay as they are; `none` takes one back.
    """
    given = {"delay_s": delay_s, "concurrency": concurrency, "pause_until": pause_until}
    changes = {name: None if value == NONE else value for name, value in given.items() if value is not None}
    if clear and (changes or below_minimum):
        raise click.UsageError("--clear goes with no other override")
    if below_minimum and not changes:
        raise click.UsageError("--below-minimum goes with --delay or --concurrency")

    async def work(frontier: Frontier) -> HostView | None:
        if clear or changes:
            view = await host_view(frontier, host)
            old = view.override if view else None
            if clear and old is None:
                raise NothingFound(f"{host} has no override")
            least_s = frontier.limits.min_delay_s
            new = None if clear else _changed(old or Override(), changes, below_minimum, least_s, await server_time(frontier))
            await frontier.override(host, new)
        return await host_view(frontier, host)

    view = _run(settings, work)
    if view is None:
        raise NothingFound(f"{host}: the crawl knows no such host")
    if as_json:
        _print_json([asdict(view)])
    else:
        _print_table(_described(view))


@main.command()
@_of_reason
@_of_host
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, metavar="N", help="the newest N")
@click.option("--summary", is_flag=True, help="how many there are, by reason")
@_json
@_settings
def dead(reason: str, host: str | None, limit: int, summary: bool, as_json: bool, settings: Settings) -> None:
    """Dead letters: URLs that were given up, and why. Newest first."""
    if summary:
        counts = _run(settings, lambda frontier: count_dead_letters(frontier, reason, host or ""))
        rows: list[dict[str, Any]] = [{"reason": why, "letters": n} for why, n in sorted(counts.items(), key=lambda row: (-row[1], row[0]))]
    else:
        rows = [_letter(one) for one in _run(settings, lambda frontier: newest_dead_letters(frontier, limit, reason, host or ""))]
    if as_json:
        _print_json(rows)
    elif rows:
        _print_table([tuple(rows[0]), *(tuple(_moment(v) if name == "at" else str(v) for name, v in row.items()) for row in rows)])
    if not summary and len(rows) == limit:
        click.echo(f"the newest {limit}; --limit shows more", err=True)
    if not rows and (reason or host):
        raise NothingFound("no such dead letter")


@main.command()
@_of_reason
@_of_host
@_settings
def requeue(reason: str, host: str | None, settings: Settings) -> None:
    """Puts dead letters back into the frontier, as if they were new."""
    moved = _run(settings, lambda frontier: frontier.requeue(reason, host or ""))
    if not moved and (reason or host):
        raise NothingFound("no such dead letter")
    click.echo(f"{moved} requeued")


@main.command()
@_json
@_settings
def audit(as_json: bool, settings: Settings) -> None:
    """Counts every URL and host by its state, and those in none (lost). Reads the whole frontier, a partition at a time."""
    found = _run(settings, Frontier.audit)
    what = found.pop("what", [])
    if as_json:
        _print_json([{**found, "what": what}])
    else:
        _print_table([*((name, str(n)) for name, n in sorted(found.items())), *(("", text) for text in what)])
    if found.get("lost"):
        sys.exit(1)


@main.command()
@click.option("--sample", "samples", type=click.IntRange(1), metavar="N", help="looks at N samples of 100 keys instead of all keys")
@_json
@_settings
def memory(samples: int | None, as_json: bool, settings: Settings) -> None:
    """What the crawl costs in Redis' memory, by kind of key, and what a URL, a host and a page cost. Reads the size of every key, a few
    hundred at a time."""

    async def work(frontier: Frontier) -> Account:
        accounts = Accounts(frontier)
        if samples is None:
            return await accounts.walk(_progress if sys.stderr.isatty() else lambda *_: None)
        for _ in range(samples):
            await accounts.sample()
        return await accounts.estimate()

    account = _run(settings, work)
    if as_json:
        _print_json([_accounted(account)])
        return
    _print_table(_shares(account))
    click.echo()
    _print_table(_costs(account))


# -- the crawl -----------------------------------------------------------------------------------------------------------


def _run(settings: Settings, work: Callable[[Frontier], Awaitable[T]]) -> T:
    """What `work` makes of the crawl's frontier."""
    try:
        project = get_project_settings()
        project.setdict(dict(settings), priority="cmdline")
        config = load(project)
        try:
            params = project.getdict("REDIS_PARAMS")
        except (TypeError, ValueError):
            raise ConfigError(f"REDIS_PARAMS={project.get('REDIS_PARAMS')!r}: a dictionary expected") from None
        with _redis_url(config) as url:
            return asyncio.run(_asked(url, params, config, work))
    except (ConfigError, FrontierError, ImportError) as e:
        raise Failure(str(e)) from e


@contextmanager
def _redis_url(config: Config) -> Iterator[str]:
    """The private server is started if it does not run, and ended if no worker needs it."""
    if config.redis_url:
        yield config.redis_url
        return
    server = PrivateServer(Path(config.data_dir), config.redis_binary)
    if not server.folder.is_dir():
        raise ConfigError(f"CRAWLWEB_DATA_DIR={config.data_dir}: no crawl was begun here, and there is no REDIS_URL")
    server.start()
    try:
        yield server.url
    finally:
        server.stop()


async def _asked(url: str, params: Mapping[str, Any], config: Config, work: Callable[[Frontier], Awaitable[T]]) -> T:
    servers = await Servers.connect(url, params, config.redis_cluster)
    try:
        return await work(await begun(servers.redis, config.crawl, f"cli-{secrets.token_hex(4)}", SUFFIX_LIST_ID))
    finally:
        await servers.close()


def _changed(old: Override, changes: Mapping[str, Any], permitted: bool, min_delay_s: float, now_s: float) -> Override | None:
    """`changes`: new values of its fields. None: nothing is left of it."""
    pause = changes.get("pause_until")
    if pause is not None:
        until_s = min(now_s + pause.total_seconds() if isinstance(pause, timedelta) else pause.timestamp(), FOREVER.timestamp())
        if until_s <= now_s:
            raise Failure(f"--pause-until: {_moment(until_s)} is over")
        changes = {**changes, "pause_until": until_s}
    delay_s, concurrency = changes.get("delay_s"), changes.get("concurrency")
    if not permitted and delay_s is not None and delay_s < min_delay_s:
        raise Failure(f"--delay {delay_s:g}: the crawl's minimum is {min_delay_s:g} s; if the host's owner agreed, add --below-minimum")
    if not permitted and concurrency is not None and concurrency > 1:
        raise Failure(f"--concurrency {concurrency}: more than one; if the host's owner agreed, add --below-minimum")
    new = replace(old, **changes)
    new = replace(new, below_minimum=(new.delay_s is not None and new.delay_s < min_delay_s) or (new.concurrency or 1) > 1)
    return None if new == Override() else new


# -- what is shown -------------------------------------------------------------------------------------------------------


def _described(view: HostView) -> Iterator[tuple[str, str]]:
    queue = "" if view.front_queue is None else f" in front queue {view.front_queue}; its first URL may travel with its token"
    yield "host", view.host
    yield "state", view.state + queue
    yield "next allowed", f"in {_span(view.next_s)}" if view.next_s else "now"
    yield "delay", f"{view.delay_s:g} s ({view.delay_from})"
    if view.latency_s is not None:
        yield "latency", f"{view.latency_s:g} s"
    for origin, delay_s in view.crawl_delays_s.items():
        yield "crawl-delay", f"{delay_s:g} s of {origin}"
    if view.push_back_s:
        yield "push-back", f"{view.push_back_s:g} s after 429, halved by every answer"
    cold = f" and {view.cold} on disk" if view.cold else ""
    yield "URLs", f"{view.back} in back, {view.park} in park{cold}, {view.wait} in wait, {view.in_flight} leased"
    for o in view.origins:
        dead = f"dead for {_span(o.dead_s)}" if o.dead_s else f"blocked for {_span(o.blocked_s)}" if o.blocked_s else "not blocked"
        yield (
            "in trouble",
            f"{o.origin}: {o.reason or 'no reason'}, {o.failures} in a row since {_span(o.since_s)}, {dead}, {o.urls} URLs wait",
        )
    if view.dead_s:
        yield "dead", f"for {_span(view.dead_s)}: {view.dead_reason}"
    if view.rests:
        yield "blocked us", f"since {_span(view.refused_s)}; rested {view.rests} times"
    if view.override:
        delay, concurrency, pause, below = _override_cells(view.override)
        yield "override", f"delay {delay}, concurrency {concurrency}, paused until {pause}, below minimum {below}"


def _override_cells(override: Override) -> tuple[str, str, str, str]:
    delay = "-" if override.delay_s is None else f"{override.delay_s:g} s"
    pause = "-" if override.pause_until is None else _moment(override.pause_until)
    return delay, str(override.concurrency or "-"), pause, "yes" if override.below_minimum else "-"


def _letter(letter: DeadLetter) -> dict[str, Any]:
    entry = letter.entry
    url = without_credentials(entry.url) if entry else ""
    tries = entry.failures if entry else 0
    return {"at": letter.at, "host": letter.host, "reason": letter.reason, "tries": tries, "url": url, "error": letter.error}


def _accounted(account: Account) -> dict[str, Any]:
    figures = ("pending_url", "seen_url", "active_host", "packed_host", "page_record", "keys", "used_bytes", "known_bytes")
    return {
        **{name: getattr(account, name) for name in figures},
        "kinds": {kind: asdict(tally) for kind, tally in account.kinds.items()},
        "servers": [asdict(server) for server in account.servers],
    }


def _shares(account: Account) -> Iterator[Sequence[str]]:
    """Largest first."""

    def row(kind: str, tally: Tally | None, size_bytes: float) -> Sequence[str]:
        counts = [""] * 4
        if tally and tally.keys and tally.members:
            counts = [f"{tally.keys:.0f}", f"{tally.members:.0f}", f"{size_bytes / tally.keys:.1f}", f"{size_bytes / tally.members:.1f}"]
        return kind, f"{size_bytes / 1e6:.2f}", f"{100 * size_bytes / max(1, account.used_bytes):.1f} %", *counts

    yield "kind", "MB", "share", "keys", "members", "B a key", "B a member"
    for kind, tally in sorted(account.kinds.items(), key=lambda item: -item[1].size_bytes):
        yield row(kind, tally, tally.size_bytes)
    yield row("times that keys expire at", None, account.table_bytes)
    yield row("a server that holds nothing", None, sum(server.start_bytes for server in account.servers))
    yield row("unaccounted", None, account.used_bytes - account.known_bytes)
    yield row("whole", None, account.used_bytes)


def _costs(account: Account) -> Iterator[tuple[str, str]]:
    figures = {
        "a pending URL": account.pending_url,
        "a seen URL": account.seen_url,
        "an active host": account.active_host,
        "a packed host": account.packed_host,
        "a page record": account.page_record,
    }
    for name, value in figures.items():
        yield name, "there is none" if value is None else f"{value:.1f} B"
    for server in account.servers:
        yield "resident", f"{server.rss_bytes / 1e6:.1f} MB, {server.fragmentation:.2f} times what is used"
        yield "most ever used", f"{server.peak_bytes / 1e6:.1f} MB"
        most = "none" if server.max_bytes is None else f"{server.max_bytes / 1e6:.1f} MB"
        yield "maxmemory", f"{most}, {server.policy}"


def _progress(done: int, of: int) -> None:
    click.echo(f"\r{done} of {of} keys ", err=True, nl=done >= of)


def _moment(unix_s: float) -> str:
    """In local time."""
    if unix_s >= FOREVER.timestamp():
        return "forever"
    return datetime.fromtimestamp(unix_s, timezone.utc).astimezone().isoformat(" ", "seconds")


def _span(seconds: float) -> str:
    for size_s, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size_s:
            return f"{seconds / size_s:.1f} {unit}"
    return f"{seconds:.1f} s"


def _plain(text: str) -> str:
    """No control characters: the text comes from servers, and goes to a terminal."""
    return "".join(c if c.isprintable() else "\ufffd" for c in without_credentials(text))


def _print_table(rows: Iterable[Sequence[str]]) -> None:
    lines = [[_plain(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for cells in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())


def _print_json(objects: Iterable[Mapping[str, Any]]) -> None:
    for one in objects:
        click.echo(json.dumps(one))


if __name__ == "__main__":
    main()
