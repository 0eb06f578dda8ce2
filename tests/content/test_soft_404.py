from __future__ import annotations

import random
import time

import pytest

from crawlweb.content import soft_404
from crawlweb.content.page import parse_page
from crawlweb.records import Page

WORDS = ("home", "products", "services", "about", "team", "blog", "press", "jobs", "contact", "help")
NAV = "".join(f'<li><a href="/{word}">{word.title()}</a>' for word in WORDS)
PROSE = "The harbour was quiet that morning, and the boats lay still while gulls went over the roofs of the old town in search of bread. "


def page(title: str, *headings: str, text: str = "", nav: str = "", head: str = "") -> Page:
    tops = "".join(f"<h1>{heading}</h1>" for heading in headings)
    html = f"<!doctype html><meta charset=utf-8><title>{title}</title>{head}<body><ul>{nav}</ul>{tops}<p>{text}</p>"
    return parse_page(html.encode(), "http://site.example/some/page")


ERRORS = {
    "en": ("Page not found", "Sorry, we couldn't find the page you were looking for."),
    "de": ("Seite nicht gefunden", "Die von Ihnen gesuchte Seite existiert leider nicht."),
    "fr": ("Page introuvable", "Désolé, la page que vous cherchez n'existe pas ou a été supprimée."),
    "es": ("Página no encontrada", "Lo sentimos, la página que buscas no existe."),
    "it": ("Pagina non trovata", "La pagina che stai cercando non esiste più."),
    "pt": ("Página não encontrada", "A página que você procura não existe ou foi removida."),
    "nl": ("Pagina niet gevonden", "De pagina die u zoekt bestaat niet meer."),
    "sv": ("Sidan hittades inte", "Sidan du söker finns inte längre."),
    "da": ("Siden blev ikke fundet", "Den side, du leder efter, findes ikke."),
    "no": ("Siden ble ikke funnet", "Siden du leter etter finnes ikke."),
    "fi": ("Sivua ei löytynyt", "Etsimääsi sivua ei ole olemassa."),
    "pl": ("Nie znaleziono strony", "Strona, której szukasz, nie istnieje."),
    "cs": ("Stránka nenalezena", "Stránka, kterou hledáte, neexistuje."),
    "sk": ("Stránka sa nenašla", "Hľadaná stránka neexistuje."),
    "hu": ("Az oldal nem található", "A keresett oldal nem létezik."),
    "ro": ("Pagina nu a fost găsită", "Pagina căutată nu există."),
    "bg": ("Страницата не е намерена", "Търсената страница не съществува."),
    "ru": ("Страница не найдена", "К сожалению, такой страницы нет на нашем сайте."),
    "uk": ("Сторінку не знайдено", "На жаль, такої сторінки не існує."),
    "el": ("Η σελίδα δεν βρέθηκε", "Η σελίδα που ζητήσατε δεν υπάρχει."),
    "tr": ("Sayfa bulunamadı", "Aradığınız sayfa mevcut değil."),
    "hr": ("Stranica nije pronađena", "Tražena stranica ne postoji."),
    "ja": ("ページが見つかりません", "お探しのページは存在しないか、削除された可能性があります。"),
    "zh": ("页面不存在", "抱歉，您访问的页面找不到了。"),
    "zh-tw": ("找不到頁面", "很抱歉，您要找的頁面不存在。"),
    "ko": ("페이지를 찾을 수 없습니다", "요청하신 페이지가 존재하지 않거나 삭제되었습니다."),
    "ar": ("الصفحة غير موجودة", "عذرا، لم يتم العثور على الصفحة المطلوبة."),
    "fa": ("صفحه یافت نشد", "صفحه مورد نظر شما وجود ندارد."),
    "he": ("הדף לא נמצא", "הדף שחיפשת אינו קיים."),
    "hi": ("पृष्ठ नहीं मिला", "यह पृष्ठ मौजूद नहीं है।"),
    "th": ("ไม่พบหน้าที่คุณต้องการ", "ขออภัย ไม่พบหน้าที่คุณค้นหา"),
    "vi": ("Không tìm thấy trang", "Trang bạn tìm không tồn tại."),
    "id": ("Halaman tidak ditemukan", "Halaman yang Anda cari tidak ada."),
}


@pytest.mark.parametrize("language", ERRORS)
def test_an_error_page_says_so_in_its_language(language: str) -> None:
    title, text = ERRORS[language]
    assert soft_404.is_error(page(f"{title} - Harbour News", title, text=text, nav=NAV)), "with title, heading and menu"
    assert soft_404.is_error(page("Harbour News", title, text=text, nav=NAV)), "with the site's title"
    assert soft_404.is_error(page(title, text=text)), "bare"


@pytest.mark.parametrize(
    "error",
    [
        page("404 Not Found", "404 Not Found", text="nginx"),
        page("Harbour Docs", "404 - Not found", nav=NAV * 3, text="Made with a tool"),
        page("404", "404", "Page not found", "This page doesn't exist", nav=NAV),
        page("Harbour", "Looks like you're lost", text="We can't seem to find that page.", nav=NAV),
        page("Harbour", text="Harbour Navigation 404 Page not found Take me home"),
        page("Error", text="Cannot GET /some/page"),
        page("Harbour", "404", text="This is not the web page you are looking for.", nav=NAV),
        page("Oops!", text="Error 404. The page you requested is no longer here. Go back to the home page."),
        page("Error 410", "Gone", text="This resource is no longer available, and there is no forwarding address."),
        page("403 Forbidden", "Forbidden", text="You don't have permission to access this resource."),
        page("500 Internal Server Error", "Internal Server Error", text="The server met with an error."),
        page("Service Unavailable", text="The service is temporarily unavailable. Please try again later."),
        page("Just a moment...", text="Checking your browser before accessing the site."),
        page("Welcome to nginx!", "Welcome to nginx!", text="If you see this page, the web server is installed and working."),
        page("Apache2 Debian Default Page: It works", text="It works! This is the default welcome page."),
        page("Fishing rod 2000 | Shop", "This product is no longer available", text="Have a look at others.", nav=NAV),
        page("Job search", "This job has expired", text="See similar jobs below.", nav=NAV),
        page("Account Suspended", "Account Suspended", text="This account has been suspended. Contact your hosting provider."),
    ],
)
def test_other_ways_to_say_it(error: Page) -> None:
    assert soft_404.is_error(error), soft_404.signals(error)


@pytest.mark.parametrize(
    "fine",
    [
        page("", text=""),
        page("My App", text="Loading"),
        page("Sign in", "Sign in", text="User name Password Remember me Forgot password?"),
        page("Contact us", "Contact us", text="Call 404 555 1234 or write to us. We are at 404 Main Street."),
        page("How to fix 404 errors on your site", "How to fix 404 errors on your site", text=PROSE * 12),
        page("What does “page not found” mean? - Harbour Blog", "What does “page not found” mean?", text=PROSE * 8),
        page("HTTP 404 - Encyclopedia", "HTTP 404", text=("The 404 or not found status says that a page was not found. " + PROSE) * 60),
        page("Status codes", "400 Bad Request", "401 Unauthorized", "403 Forbidden", "404 Not Found", text=PROSE * 4),
        page("Missing cat still not found", "Missing cat still not found after a week", text=PROSE * 5),
        page("Boots 39 | Shop", "Winter boots", text="Currently unavailable in size 39. " + PROSE * 3, nav=NAV),
        page("Room 404 | Hotel", "Room 404", text="A quiet room with a view. " + PROSE * 3, nav=NAV),
        page("Peugeot 404 for sale", "Peugeot 404", text="Built 1965, one owner. " + PROSE * 4, nav=NAV),
        page("Die 500 besten Weine", "Die 500 besten Weine", text="Nicht gefunden, was Sie suchen? " + PROSE * 6),
        page("Harbour News", text=PROSE * 3, nav=NAV, head="<meta name=robots content=noindex>"),
        page("Shopping cart", "Your cart is empty", text="Continue shopping", nav=NAV),
        page("Harbour News", "Weather warning: ferry service unavailable until Monday", text=PROSE * 10, nav=NAV),
    ],
)
def test_pages_about_errors_and_short_pages_are_none(fine: Page) -> None:
    assert not soft_404.is_error(fine), soft_404.signals(fine)


# -- likeness --------------------------------------------------------------------------------------------------------------

SAILED = "The ferry has sailed. Our captain shrugs, for somebody must have left this pier long before you came along, dear visitor."
HERE, THERE = "http://site.example/lost/green-boat-17", "http://site.example/gone/old-anchor?id=99881"


def at(url: str, title: str, *headings: str, text: str = SAILED) -> Page:
    tops = "".join(f"<h1>{heading}</h1>" for heading in headings)
    body = f"<!doctype html><meta charset=utf-8><title>{title}</title>{NAV}{tops}<p>{text} {url}</p>"
    return parse_page(body.encode(), url)


def test_error_pages_of_one_template_are_alike_whatever_they_echo() -> None:
    known = soft_404.shape(at(HERE, "green boat 17 - Harbour News", "The ferry has sailed", text=f"{SAILED} No. 4711."), HERE)
    assert len(known) == soft_404.SHAPE_BYTES
    other = at(THERE, "old anchor 99881 - Harbour News", "The ferry has sailed", text=f"{SAILED} No. 12.")
    assert soft_404.is_like(other, THERE, [bytes(8), known])
    assert soft_404.is_error(other, THERE, [known])
    assert not soft_404.is_error(other, THERE)
    assert not soft_404.is_error(other, THERE, [bytes(8)])


def test_pages_with_another_title_or_heading_are_not_like_an_error_page_of_their_site() -> None:
    known = [soft_404.shape(at(HERE, "Harbour News", "The ferry has sailed"), HERE)]
    assert not soft_404.is_error(at(THERE, "Harbour News", "Boats for hire"), THERE, known)
    assert not soft_404.is_error(at(THERE, "Boats for hire - Harbour News", "The ferry has sailed"), THERE, known)


def test_where_all_pages_have_the_sites_title_only_the_same_text_is_alike() -> None:
    text = " ".join(f"{word} harbour" for word in WORDS)
    known = [soft_404.shape(at(HERE, "site", text=text), HERE)]
    assert soft_404.is_error(at(THERE, "site", text=text), THERE, known)
    assert not soft_404.is_error(at(THERE, "site", text=f"{text} {PROSE}"), THERE, known)


def test_a_home_page_that_is_served_for_everything_is_none_itself() -> None:
    home = "http://site.example/"
    front = at(home, "Harbour News", "Harbour News", text=PROSE)
    known = [soft_404.shape(at(THERE, "Harbour News", "Harbour News", text=PROSE), THERE)]
    assert not soft_404.is_error(front, home, known)
    for other in ("http://site.example", f"{home}index.html", f"{home}Default.aspx"):
        assert not soft_404.is_error(front, other, known)
    assert soft_404.is_error(at(HERE, "Harbour News", "Harbour News", text=PROSE), HERE, known)
    assert soft_404.is_error(at(f"{home}?p=9", "Harbour News", "Harbour News", text=PROSE), f"{home}?p=9", known)


@pytest.mark.parametrize("text", ["", "Loading", "Loading, please wait …", "404", "This app wants JavaScript"])
def test_a_page_with_hardly_any_text_has_no_shape(text: str) -> None:
    shell = parse_page(f"<title>My App</title><div id=root>{text}</div><script>start()</script>".encode(), HERE)
    assert soft_404.shape(shell, HERE) == b""
    assert not soft_404.is_like(shell, HERE, [bytes(8)])


def test_scripts_without_spaces_have_shapes() -> None:
    text = "船はもう出ました。船長は肩をすくめています。"
    known = soft_404.shape(parse_page(f"<meta charset=utf-8><title>港</title><p>{text}".encode(), HERE), HERE)
    assert known
    assert soft_404.is_like(parse_page(f"<meta charset=utf-8><title>港</title><p>{text} 123".encode(), THERE), THERE, [known])


@pytest.mark.parametrize("shapes", [[b""], [b"x"], [b"x" * 7], [b"x" * 9], [b"\xff" * 8] * 5])
def test_shapes_that_are_none_are_like_nothing(shapes: list[bytes]) -> None:
    assert not soft_404.is_like(at(HERE, "Harbour", "The ferry has sailed"), HERE, shapes)


@pytest.mark.parametrize("url", ["", "http://[", "http://site.example/%ff%fe", "http://site.example/" + "a/" * 3000, "\ud800"])
def test_no_url_and_no_page_makes_it_fail(url: str) -> None:
    strange = Page(url, [], title="\ud800 404 \x00", text="\udfff not found " * 50, headings=("\ud800",) * 16)
    assert 0.0 <= soft_404.score(strange, url, [b"x" * 8]) <= 1.0
    assert len(soft_404.shape(strange, url)) in (0, soft_404.SHAPE_BYTES)


def test_whatever_a_page_holds_it_gets_a_score() -> None:
    rng = random.Random(5)
    pieces = [
        "<h1>",
        "</h1>",
        "<title>",
        "404",
        "not found",
        "\ud800",
        "找不到",
        "لم يتم",
        "\u0301" * 9,
        "İ",
        "ﬁ",
        "—|·",
        "\x00",
        "x" * 400,
        " ",
    ]
    for _ in range(300):
        text = "".join(rng.choice(pieces) for _ in range(rng.randrange(60)))
        found = Page(HERE, [], title=text[:300], text=text, main_text=text[:50], headings=tuple(text.split("<h1>")[:16]))
        assert 0.0 <= soft_404.score(found, HERE, [b"\x01" * 8]) <= 1.0
        own = soft_404.shape(found, HERE)
        assert own == b"" or soft_404.likeness(own, [own]) == 1.0


@pytest.mark.parametrize("text", ["not found " * 20_000, "404 " * 50_000, "a-" * 100_000, "¡" * 200_000, "页面" * 100_000])
def test_large_pages_cost_little(text: str) -> None:
    found = Page(HERE, [], title=text[:1_000], text=text, main_text=text, headings=(text[:200],) * 24)
    begun = time.process_time()
    soft_404.score(found, HERE, [soft_404.shape(found, HERE) or b"\x01" * 8])
    assert time.process_time() - begun < 0.2
