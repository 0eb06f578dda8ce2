"""What commands share: how they end, their options, the crawl that they ask."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
from scrapy.utils.project import get_project_settings

from ..default_settings import Config, load
from ..errors import ConfigError, FrontierError
from ..frontier.connect import Servers
from ..frontier.frontier import Frontier
from ..frontier.inspect import begun
from ..frontier.server import PrivateServer
from ..policy.hosts import SUFFIX_LIST_ID, host_of, host_of_name
from .shown import plain

T = TypeVar("T")
Settings = Sequence[tuple[str, str]]


class Failure(click.ClickException):
    """Ends the command with one line on standard error."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        click.echo(f"crawlweb: {plain(self.message)}", file=file, err=True)


class NothingFound(Failure):
    exit_code = 1


def setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise click.BadParameter(f"{text!r}: NAME=VALUE expected")
    return name, value


def host_name(text: str) -> str:
    """A name or a URL → the host whose clock it moves."""
    text = text.strip()
    is_ipv6 = text.count(":") > 1 and "/" not in text and "[" not in text
    try:
        return host_of_name(text) if is_ipv6 else host_of(text if "://" in text else f"http://{text}")
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither a name nor an http or https URL") from None


settings_option = click.option(
    "-s", "--set", "settings", multiple=True, type=setting, metavar="NAME=VALUE", help="a setting of the project, as for scrapy crawl"
)
json_option = click.option("--json", "as_json", is_flag=True, help="one JSON object a line")


@dataclass(frozen=True, slots=True)
class Project:
    """`redis_params`: keyword arguments of the Redis client; `feeds`: URIs."""

    config: Config
    redis_params: Mapping[str, Any]
    feeds: Sequence[str]


def project_of(settings: Settings) -> Project:
    """What scrapy crawl would take here; ConfigError, ImportError."""
    project = get_project_settings()
    project.setdict(dict(settings), priority="cmdline")
    config = load(project)

    def dictionary(name: str) -> dict[str, Any]:
        try:
            return project.getdict(name)
        except (TypeError, ValueError):
            raise ConfigError(f"{name}={project.get(name)!r}: a dictionary expected") from None

    return Project(config, dictionary("REDIS_PARAMS"), [str(uri) for uri in dictionary("FEEDS")])


def on_servers(settings: Settings, work: Callable[[Servers, Config], Awaitable[T]], *, make: bool = False) -> T:
    """What `work` makes of the crawl's Redis, be there a crawl or not. `make`: a private server too, where there is none."""
    try:
        project = project_of(settings)
        with redis_of(project.config, make) as url:
            return asyncio.run(_asked(url, project, work))
    except (ConfigError, FrontierError, ImportError) as e:
        raise Failure(str(e)) from e


def on_frontier(settings: Settings, work: Callable[[Frontier], Awaitable[T]]) -> T:
    """What `work` makes of the crawl's frontier."""

    async def ask(servers: Servers, config: Config) -> T:
        return await work(await begun(servers.redis, config.crawl, f"cli-{secrets.token_hex(4)}", SUFFIX_LIST_ID))

    return on_servers(settings, ask)


@contextmanager
def redis_of(config: Config, make: bool) -> Iterator[str]:
    """The address. The private server is started if it does not run, and ended if no worker needs it."""
    if config.redis_url:
        yield config.redis_url
        return
    server = PrivateServer(Path(config.data_dir), config.redis_binary)
    if not make and not server.folder.is_dir():
        raise ConfigError(f"CRAWLWEB_DATA_DIR={config.data_dir}: no crawl was begun here, and there is no REDIS_URL")
    server.start()
    try:
        yield server.url
    finally:
        server.stop()


async def _asked(url: str, project: Project, work: Callable[[Servers, Config], Awaitable[T]]) -> T:
    servers = await Servers.connect(url, project.redis_params, project.config.redis_cluster)
    try:
        return await work(servers, project.config)
    finally:
        await servers.close()
