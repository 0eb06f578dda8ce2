"""The web as a process.

    python -m tests.web --site tree:count=12,pages=40,robots=private --site files:name=docs.org,folder=FOLDER

The first line on standard output is a JSON object: http_port, dns_server, seeds. Then every line on standard input is
a command that is answered with a line of JSON: `served`, `served-bytes`, `report [min_delay_s [ip_delay_s]]`, `log`. The end of input
ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import sys
from typing import Any

from .kinds import KINDS, parse
from .server import Web
from .sites import ROBOTS


def answer(web: Web, command: str) -> Any:
    word, _, rest = command.strip().partition(" ")
    if word == "served":
        return web.served
    if word == "served-bytes":
        return web.served_bytes
    if word == "log":
        return web.visits()
    if word == "report":
        delays = [float(value) for value in rest.split()]
        report = web.report(min_delay_s=delays[0] if delays else 0.0, ip_delay_s=delays[1] if len(delays) > 1 else 0.0)
        return {**dataclasses.asdict(report), "coverage": report.coverage}
    return {"error": f"unknown command: {word}"}


async def serve(web: Web) -> None:
    await web.open()
    print(
        json.dumps({"http_port": web.http_port, "dns_server": web.dns_server, "seeds": web.seeds()}),
        flush=True,
    )
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        print(json.dumps(answer(web, line.decode())), flush=True)
    await web.close()


def main() -> None:
    parser = argparse.ArgumentParser("tests.web", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--site",
        action="append",
        required=True,
        metavar="KIND[:KEY=VALUE,…]",
        help=f"kinds: {' '.join(KINDS)}; count=N makes N; robots: {' '.join(ROBOTS)}; other keys: tests/web/sites.py, manners.py",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--http-port", type=int, default=0)
    parser.add_argument("--dns-port", type=int, default=0)
    parser.add_argument("--tls", action="store_true", help="https, by a certificate that nobody signed")
    parser.add_argument("--no-keep-alive", dest="keep_alive", action="store_false", help="each answer ends its connection")
    parser.add_argument("--cores", help="run on these cores only, e.g. 1 or 0,1")
    options = parser.parse_args()
    if options.cores:
        os.sched_setaffinity(0, set(map(int, options.cores.split(","))))
    try:
        sites = [site for text in options.site for site in parse(text)]
    except ValueError as error:
        parser.error(str(error))
    with contextlib.suppress(ImportError):
        import uvloop

        uvloop.install()
    ports = {"http_port": options.http_port, "dns_port": options.dns_port}
    web = Web(seed=options.seed, sites=sites, **ports, tls=options.tls, keep_alive=options.keep_alive)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(web))


if __name__ == "__main__":
    main()
