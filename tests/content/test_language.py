"""What language a page is said to be in: its text before its declaration, its declaration before a guess."""

from __future__ import annotations

import pytest

from crawlweb.content.language import detect
from crawlweb.content.page import parse_page

TEXTS = {
    "en": "The last ferry leaves the harbour at twenty past nine, and it does not wait for anybody from the city.",
    "de": "Die letzte Fähre verlässt den Hafen um zwanzig nach neun und wartet auf niemanden, der aus der Stadt kommt.",
    "fr": "Le dernier bateau quitte le port à neuf heures vingt et n'attend personne, quoi que fasse le train de la ville.",
    "es": "El último barco sale del puerto a las nueve y veinte y no espera a nadie, haga lo que haga el tren de la ciudad.",
    "pt": "A última balsa deixa o porto às nove e vinte e não espera por ninguém, não importa o que faça o trem da cidade.",
    "it": "L'ultimo traghetto lascia il porto alle nove e venti e non aspetta nessuno, qualunque cosa faccia il treno.",
    "pl": "Ostatni prom odpływa z portu dwadzieścia po dziewiątej i na nikogo nie czeka, cokolwiek zrobi pociąg z miasta.",
    "ru": "Последний паром уходит из гавани в двадцать минут десятого и никого не ждёт, что бы ни делал поезд из города.",
    "uk": "Останній пором відходить із гавані о двадцять хвилин на десяту й нікого не чекає, хоч би що робив потяг із міста.",
    "ja": "最終のフェリーは九時二十分に港を出て、町から来る列車がどれだけ遅れても、誰のことも待ってはくれません。",
    "zh": "末班渡轮在九点二十分离开港口，无论城里来的火车晚点多久，它都不会等待任何人，岛上的居民抱怨了多年。",
    "ko": "마지막 여객선은 아홉 시 이십 분에 항구를 떠나며 도시에서 오는 기차가 아무리 늦어도 누구도 기다리지 않습니다.",
    "ar": "تغادر العبارة الأخيرة الميناء في التاسعة والثلث، ولا تنتظر أحدا مهما تأخر القطار القادم من المدينة.",
    "th": "เรือเฟอร์รี่เที่ยวสุดท้ายออกจากท่าเรือเวลาเก้าโมงยี่สิบนาทีและไม่เคยรอใครแม้ว่ารถไฟจากในเมืองจะล่าช้า",
    "el": "Το τελευταίο πλοίο φεύγει από το λιμάνι στις εννέα και είκοσι και δεν περιμένει κανέναν από την πόλη.",
    "hi": "आखिरी नौका नौ बजकर बीस मिनट पर बंदरगाह से निकलती है और शहर से आने वाली रेलगाड़ी के लिए कभी नहीं रुकती।",
}


@pytest.mark.parametrize("language", TEXTS)
@pytest.mark.parametrize("declared", ["", "en", "de-DE"])
def test_a_text_that_is_surely_in_a_language_is_believed_before_what_is_declared(language: str, declared: str) -> None:
    assert detect(TEXTS[language], declared) == language


@pytest.mark.parametrize("text", ["", "   ", "19.90 € 2024-05-01", "OK", "Login | Home"])
@pytest.mark.parametrize(
    ("declared", "language"),
    [
        ("de", "de"),
        (" de-CH-1996\n", "de"),
        ("PT_br", "pt"),
        ("zh-Hant-TW", "zh"),
        ("gsw", "gsw"),
        ("jp", "ja"),
        ("eng", "en"),
        ("iw", "he"),
        ("und", ""),
        ("x-default", ""),
        ("english", ""),
        ("de, en", "de"),
        ("{{ lang }}", ""),
        ("", ""),
        ("٣٤", ""),
    ],
)
def test_without_letters_enough_a_page_is_in_the_language_that_it_declares(text: str, declared: str, language: str) -> None:
    assert detect(text, declared) == language


@pytest.mark.parametrize(
    ("text", "declared", "language"),
    [
        ("Ferga går klokka ni og venter ikke på noen som kommer fra byen, uansett hva toget gjør.", "nb", "nb"),
        ("Posljednji trajekt odlazi iz luke u devet i dvadeset i ne čeka nikoga tko dolazi iz grada.", "bs", "bs"),
        ("zxqv bnrt wplk fghj mnbv cxzl kjhg qwrt ypsd", "nl", "nl"),
    ],
)
def test_a_declaration_is_believed_before_a_guess_and_between_close_languages(text: str, declared: str, language: str) -> None:
    assert detect(text, declared) == language


def test_a_notice_in_the_declared_language_before_a_text_in_another_script_decides_nothing() -> None:
    notice = "This feature is not available right now. Please try again later, or come back to it tomorrow."
    assert detect(f"{notice}\n{3 * TEXTS['el']}", "en") == "el"


def test_capitals_are_read_like_small_letters() -> None:
    assert detect(TEXTS["de"].upper()) == "de"


@pytest.mark.parametrize("text", ["\ud800" * 50 + "abc" * 10, "a\0b" * 40, "\n" * 100, "\u200b" * 300, "x" * 5_000_000, "__label__en " * 9])
def test_no_text_makes_it_fail(text: str) -> None:
    assert isinstance(detect(text, "en\0\ud800"), str)


def test_a_page_has_the_language_of_its_main_text() -> None:
    html = f"<html lang=en><nav>Home News Sport</nav><p>{TEXTS['fr']}</p><p>{TEXTS['fr']}</p>"
    assert parse_page(html.encode(), "https://site.test/").language == "fr"
    assert parse_page(b"<html lang=it><p>42", "https://site.test/").language == "it"
    assert parse_page(b"", "https://site.test/").language == ""
