"""The WARC files of a crawl, with their indexes, get to where the setting says: those of a worker that was killed by the next one."""

from __future__ import annotations

from pathlib import Path

from tests.crawl.crawler import Crawl, at_once
from tests.web import Tree, Web


@at_once
def test_warc_files_are_uploaded_though_a_worker_was_killed(folder: Path) -> None:
    remote = folder / "remote"
    with Web(seed=4, sites=[Tree(f"tree{i}.org", pages=40) for i in range(2)]) as web:
        settings = {
            "CRAWLWEB_WARC_UPLOAD": f"file://{remote}",
            "CRAWLWEB_WARC_MAX_BYTES": 20_000,
            "CRAWLWEB_LEASE_S": 6,
            "DOWNLOAD_TIMEOUT": 2,
        }
        with Crawl(folder, web.dns_server, **settings) as crawl:
            first = crawl.start(web.seeds())
            first.wait_until(lambda: len(list(remote.glob("*.cdxj"))) > 1)
            first.kill()
            killed = [path.stem for path in crawl.warc_folder.glob("*.open")]
            crawl.start(web.seeds()).succeeds()
            here = {path.name: path.read_bytes() for path in crawl.warc_folder.iterdir() if path.suffix in (".gz", ".cdxj")}
            assert {path.name: path.read_bytes() for path in remote.iterdir()} == here
            assert len(killed) == 1
            assert set(killed) <= set(here)
            places = {(page.file, page.offset, page.length) for page in crawl.stored()}
            lines = [line for name, data in here.items() if name.endswith(".cdxj") for line in data.decode().splitlines()]
            assert all(
                any(f'"{length}", "offset": "{offset}", "filename": "{file}"' in line for line in lines) for file, offset, length in places
            )


@at_once
def test_a_place_that_is_none_stops_the_start(folder: Path) -> None:
    with Web(seed=4, sites=[Tree("tree.org", pages=2)]) as web, Crawl(folder, web.dns_server) as crawl:
        run = crawl.start(web.seeds(), CRAWLWEB_WARC_UPLOAD="s4://bucket/web")
        assert run.wait() == 1
        assert "CRAWLWEB_WARC_UPLOAD=s4://bucket/web: " in run.log
        assert "Traceback" not in run.log
        assert web.served == 0
