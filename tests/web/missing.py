"""Sites that differ in what they answer where there is nothing."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Literal

from .sites import Answer, Request, Tree, redirect
from .text import label, prose

WORDINGS = {
    "en": ("Page not found", "Sorry, the page you are looking for does not exist."),
    "de": ("Seite nicht gefunden", "Die gesuchte Seite existiert leider nicht mehr."),
    "fr": ("Page introuvable", "La page que vous cherchez n'existe pas."),
    "es": ("Página no encontrada", "La página que busca no existe o ha sido eliminada."),
    "it": ("Pagina non trovata", "La pagina richiesta non esiste."),
    "pt": ("Página não encontrada", "A página que procura não existe."),
    "nl": ("Pagina niet gevonden", "De pagina bestaat niet of is verwijderd."),
    "pl": ("Nie znaleziono strony", "Strona, której szukasz, nie istnieje."),
    "cs": ("Stránka nenalezena", "Hledaná stránka neexistuje."),
    "sv": ("Sidan hittades inte", "Sidan finns inte längre."),
    "ru": ("Страница не найдена", "Запрошенная страница не существует."),
    "tr": ("Sayfa bulunamadı", "Aradığınız sayfa mevcut değil."),
    "ja": ("ページが見つかりません", "お探しのページは存在しません。"),
    "zh": ("页面不存在", "您访问的页面找不到。"),
    "ar": ("الصفحة غير موجودة", "لم يتم العثور على الصفحة."),
    # In words that only those who have seen such a page of the site can know.
    "eo": ("Nenio estas ĉi tie", "La paĝo kiun vi volis legi forvojaĝis sen postlasi adreson al ni."),
    "is": ("Síða fannst ekki", "Því miður er engin síða hér lengur, hún hefur verið flutt annað."),
    "sw": ("Ukurasa haukupatikana", "Samahani, ukurasa unaotafuta haupo tena kwenye tovuti hii leo."),
    "joke": ("The ferry has sailed", "Our captain shrugs. Somebody must have left this pier long before you came along, dear visitor."),
    "poem": ("", "Roses are red, this place is blue, we had something here but not for you, so take the next boat and see the view."),
}
UNKNOWN_WORDINGS = ("eo", "is", "sw", "joke", "poem")

Missed = Literal["proper", "soft", "half", "home", "shell", "redirect"]
Titles = Literal["own", "none", "logo"]


@dataclass
class Missing(Tree):
    """A tree with a menu of `menu` links, of which every third page has hardly any text; each page links to two that are not there, under
    /gone/ and /lost/. `how`: a 404 (proper), the same page with a 200 (soft), the one or the other (half), the home page (home) or a
    redirect to it (redirect); of a shell, every path is the same few bytes. `titles`: what pages have, beside the site's name as title:
    a title and a heading of their own, neither, or a heading that is the site's."""

    how: Missed = "soft"
    wording: str = "en"
    menu: int = 12
    titles: Titles = "own"

    def links(self, number: int) -> list[str]:
        return [*super().links(number), f"/gone/{label(number).replace(' ', '-')}-{number}", f"/lost/{number}"]

    def document(self, title: str, hrefs: list[str], key: object) -> bytes:  # noqa: ARG002
        number = int(str(key))
        name = prose(self.rng("name", key), 5).rstrip(".") if self.titles == "own" else ""
        text = prose(self.rng("text", key), 12 if number % 3 == 2 else self.words)
        links = "".join(f'<li><a href="{html.escape(h)}">{label(i)}</a></li>' for i, h in enumerate(hrefs))
        return self.framed(name, f"<p>{text}</p><ul>{links}</ul>")

    def framed(self, name: str, content: str) -> bytes:
        menu = "".join(f'<a href="/leaf/{k}">{label(3 * k + len(self.name))}</a> ' for k in range(1, self.menu))
        heading = (f"<h1>{self.name}</h1>" if self.titles == "logo" else "") + (f"<h2>{name}</h2>" if name else "")
        title = f"{name} - {self.name}" if name and self.titles == "own" else self.name
        return (
            f'<!doctype html>\n<html><head><meta charset="utf-8"><title>{title}</title></head>\n'
            f"<body><nav>{menu}</nav>{heading}\n{content}\n<footer>{self.name}, {prose(self.rng('footer'), 20)}</footer></body></html>\n"
        ).encode()

    def error_page(self, request: Request) -> bytes:
        """With an echo of the path, a number, and a line that is never twice the same."""
        name, text = WORDINGS[self.wording]
        rng = self.rng("error", request.target)
        lately = f"<p>{label(rng.randrange(999))}, {label(rng.randrange(999))}</p>" if self.menu else ""
        return self.framed(name, f"<p>{text} {html.escape(request.target)} ({rng.randrange(10**9)})</p>{lately}")

    def respond(self, request: Request) -> Answer:
        if self.how == "shell":
            number = self.number(request.path)
            page = None if number is None else self.path(number)
            return Answer(b'<!doctype html><title>App</title><div id="root">Loading</div><script src="/app.js"></script>', page=page)
        if self.number(request.path) is not None:
            return super().respond(request)
        if self.how == "home":
            return Answer(self.document("", self.links(0), 0))
        if self.how == "redirect":
            return redirect("/", 302)
        is_soft = self.how == "soft" or (self.how == "half" and request.path.startswith("/lost/"))
        return Answer(self.error_page(request), 200 if is_soft else 404)
