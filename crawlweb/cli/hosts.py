"""Hosts: where they are, and what an operator wants of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Any

import click

from ..frontier.frontier import Frontier
from ..frontier.inspect import HostView, host_view, server_time
from ..frontier.rows import Override
from . import main
from .common import Failure, NothingFound, Settings, host_name, json_option, on_frontier, settings_option
from .shown import FOREVER, moment, print_json, print_table, span

NONE = "none"  # the word that takes a value back
DELAY_MOST_S = 86_400.0
CONCURRENCY_MOST = 100
_SPAN = re.compile(r"\+(\d{1,9}(?:\.\d{1,3})?)([smhdw])")
_SPANS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


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
        if found := _SPAN.fullmatch(text):
            return timedelta(**{_SPANS[found[2]]: float(found[1])})
        return datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text).astimezone()
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(f"{text!r}: a date and time such as 2026-12-01T08:00, +2h, forever, or {NONE}, expected") from None


@main.command()
@json_option
@settings_option
def hosts(as_json: bool, settings: Settings) -> None:
    """Hosts with overrides."""
    found = sorted(on_frontier(settings, Frontier.overrides).items())
    if as_json:
        print_json({"host": host, **asdict(override)} for host, override in found)
    elif found:
        print_table([("host", "delay", "concurrency", "paused until", "below minimum"), *((h, *_override_cells(o)) for h, o in found)])


@main.command()
@click.argument("host", type=host_name)
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
@json_option
@settings_option
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

    view = on_frontier(settings, work)
    if view is None:
        raise NothingFound(f"{host}: the crawl knows no such host")
    if as_json:
        print_json([asdict(view)])
    else:
        print_table(_described(view))


def _changed(old: Override, changes: Mapping[str, Any], permitted: bool, min_delay_s: float, now_s: float) -> Override | None:
    """`changes`: new values of its fields. None: nothing is left of it."""
    pause = changes.get("pause_until")
    if pause is not None:
        until_s = min(now_s + pause.total_seconds() if isinstance(pause, timedelta) else pause.timestamp(), FOREVER.timestamp())
        if until_s <= now_s:
            raise Failure(f"--pause-until: {moment(until_s)} is over")
        changes = {**changes, "pause_until": until_s}
    delay_s, concurrency = changes.get("delay_s"), changes.get("concurrency")
    if not permitted and delay_s is not None and delay_s < min_delay_s:
        raise Failure(f"--delay {delay_s:g}: the crawl's minimum is {min_delay_s:g} s; if the host's owner agreed, add --below-minimum")
    if not permitted and concurrency is not None and concurrency > 1:
        raise Failure(f"--concurrency {concurrency}: more than one; if the host's owner agreed, add --below-minimum")
    new = replace(old, **changes)
    new = replace(new, below_minimum=(new.delay_s is not None and new.delay_s < min_delay_s) or (new.concurrency or 1) > 1)
    return None if new == Override() else new


def _described(view: HostView) -> Iterator[tuple[str, str]]:
    queue = "" if view.front_queue is None else f" in front queue {view.front_queue}; its first URL may travel with its token"
    yield "host", view.host
    yield "state", view.state + queue
    yield "next allowed", f"in {span(view.next_s)}" if view.next_s else "now"
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
        dead = f"dead for {span(o.dead_s)}" if o.dead_s else f"blocked for {span(o.blocked_s)}" if o.blocked_s else "not blocked"
        yield (
            "in trouble",
            f"{o.origin}: {o.reason or 'no reason'}, {o.failures} in a row since {span(o.since_s)}, {dead}, {o.urls} URLs wait",
        )
    if view.dead_s:
        yield "dead", f"for {span(view.dead_s)}: {view.dead_reason}"
    if view.rests:
        yield "blocked us", f"since {span(view.refused_s)}; rested {view.rests} times"
    if view.override:
        delay, concurrency, pause, below = _override_cells(view.override)
        yield "override", f"delay {delay}, concurrency {concurrency}, paused until {pause}, below minimum {below}"


def _override_cells(override: Override) -> tuple[str, str, str, str]:
    delay = "-" if override.delay_s is None else f"{override.delay_s:g} s"
    pause = "-" if override.pause_until is None else moment(override.pause_until)
    return delay, str(override.concurrency or "-"), pause, "yes" if override.below_minimum else "-"
