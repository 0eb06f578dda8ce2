"""Sites built from text."""

from __future__ import annotations

from collections.abc import Callable

from .manners import Blocking, Flaky, Nofollow, Origins, Pushback, Siblings, Walled
from .missing import Missing
from .saved import Saved
from .sites import ROBOTS, Broken, Errors, Files, Links, Redirects, Site, Slow, Spellings, Tree

_ALL: tuple[type[Site], ...] = (
    *(Tree, Slow, Spellings, Redirects, Errors, Broken, Links, Files),
    *(Pushback, Flaky, Origins, Siblings, Blocking, Nofollow, Walled),
    *(Missing, Saved),
)
KINDS = {kind.__name__.lower(): kind for kind in _ALL}
_CONVERT: dict[object, Callable[[str], object]] = {"int": int, "float": float, "str": str, "Fate": str, "How": str}
_CONVERT |= {"Missed": str, "Titles": str}


def parse(text: str) -> list[Site]:
    """Sites from `kind:key=value,…`: keys are the fields of the kind; `count` makes several; `robots` is a key of
    ROBOTS. ValueError names what is wrong."""
    kind, _, rest = text.partition(":")
    values = dict(pair.partition("=")[::2] for pair in rest.split(",") if pair)
    count = int(values.pop("count", "1"))
    if kind not in KINDS:
        raise ValueError(f"unknown kind of site: {kind}")
    fields = KINDS[kind].__dataclass_fields__
    options: dict[str, object] = {}
    for key, value in values.items():
        if key == "robots" and value in ROBOTS:
            options[key] = ROBOTS[value]
        elif key in fields and fields[key].init and fields[key].type in _CONVERT:
            options[key] = _CONVERT[fields[key].type](value)
        else:
            raise ValueError(f"{kind}: {key}={value}")
    return [KINDS[kind](**options) for _ in range(count)]  # type: ignore[arg-type]
