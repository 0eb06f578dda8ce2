"""What error pages say, in 41 languages: tables for soft_404.py. Case and accents do not matter."""

# That something is not there, or not for the visitor; found anywhere in what is read, within words too.
PHRASES = """
en page not found|not found|cannot be found|can't be found|could not be found|couldn't be found|can't find|couldn't find
en could not find|cannot find|was not found|wasn't found|unable to find|does not exist|doesn't exist|no longer exists|no longer here
en not exist
en no longer available|isn't available|is not available|page unavailable|page is unavailable|temporarily unavailable
en service unavailable|currently unavailable|has been removed|been deleted|might have been moved|may have been moved|has expired
en listing has ended|access denied|access forbidden|permission denied|forbidden|don't have permission|not authorized|unauthorized
en method not allowed|bad request|bad gateway|gateway timeout|internal server error|server error|application error|an error occurred
en an error has occurred|unexpected error|error page|something went wrong|went wrong|no results found|no results for|nothing found
en no such|nothing here|page is missing|missing page|page is gone|resource is gone|is permanently gone|broken link|dead link
en account suspended|has been suspended|domain is for sale|domain is parked|parked domain|domain may be for sale
en checking your browser|verify you are human|security check|are you a robot|no products were found|no longer accepting
en no longer active|invalid url|wrong url|wrong turn|fatal error|database connection|got lost|requested url|lost in space
en under maintenance|out of service|too many requests|file or directory not found|there isn't a
en can't seem to find|does not appear to exist|doesn't seem to exist|isn't here|is not here|no page here|you seem to be lost|you're lost
en you are lost|nothing to see here|reached a dead end|are not the droids|aren't the droids|not the web page you are looking for|hit a route
en page has moved|page may have moved|was moved or deleted|removed or renamed|moved or removed|you tried to reach|whitelabel error
en cannot get /|default backend|website unavailable|site unavailable|domain not configured|cannot be displayed|runtime error|proxy error
en web server is down|connection timed out|host error|origin is unreachable|unreachable|establishing a database connection
de nicht gefunden|existiert nicht|nicht existiert|existiert leider nicht|existiert auf dem server nicht|nicht vorhanden
de nicht mehr verfügbar|nicht verfügbar|nicht erreichbar|wurde entfernt|wurde gelöscht|zugriff verweigert|zugriff verboten
de kein zugriff|keine berechtigung|nicht erlaubt|interner serverfehler|serverfehler|fehlerseite|fehler aufgetreten
de fehlerhafte anfrage|ungültige anfrage|nicht mehr online|abgelaufen|keine ergebnisse|keine treffer|nicht auffindbar|nicht finden
de nicht mehr vorhanden|wartungsarbeiten|seite fehlt
fr introuvable|non trouvé|pas été trouvé|n'a pas pu être trouvé|n'existe pas|n'existe plus|pas trouvé|n'est plus disponible
fr pas disponible|plus accessible|a été supprimé|accès refusé|accès interdit|accès non autorisé|interdit d'accès|non autorisé
fr erreur interne|erreur serveur|erreur du serveur|page d'erreur|une erreur est survenue|une erreur s'est produite
fr service indisponible|indisponible|mauvaise requête|requête incorrecte|requête invalide|aucun résultat|a expiré|non permis
fr pas autorisé
es no encontrad|no se encuentra|no se encontr|no existe|no localizad|no se ha encontrado|no se ha localizado|no hemos encontrado
es no encontramos|no disponible|ya no esta disponible|ha sido eliminad|fue eliminad|acceso prohibido|acceso denegado|no permitid
es error interno|error del servidor|página de error|se ha producido un error|ha ocurrido un error|solicitud incorrecta
es petición incorrecta|petición errónea|sin resultados|ningún resultado|ha caducado|no pudimos encontrar|servicio no disponible
it non trovat|non è stata trovata|non è stato trovato|non esiste|non esistente|non è più disponibile|non disponibile
it non più disponibile|è stata rimossa|è stato rimosso|accesso negato|accesso vietato|accesso proibito|non consentito|non permesso
it errore interno|errore del server|errore nel server|pagina di errore|si è verificato un errore|richiesta errata
it richiesta non valida|nessun risultato|scaduto|inesistente|non raggiungibile|non riusciamo a trovare
pt não encontrad|não foi encontrad|não existe|não pôde ser encontrad|não está disponível|não está mais disponível|indisponível
pt foi removid|já não se encontra|acesso proibido|acesso negado|não permitid|não é permitid|erro interno|erro do servidor
pt erro no servidor|página de erro|ocorreu um erro|pedido inválido|requisição inválida|solicitação inválida|nenhum resultado|expirou
pt não foi localizad|não localizad
nl niet gevonden|bestaat niet|niet beschikbaar|niet meer beschikbaar|niet vinden|niet langer beschikbaar|bestaat niet meer
nl is verwijderd|toegang geweigerd|toegang verboden|geen toegang|niet toegestaan|interne serverfout|serverfout|foutpagina
nl fout opgetreden|ongeldige aanvraag|verlopen|geen resultaten|niet bereikbaar
sv hittades inte|hittades ej|inte hittas|kunde inte hitta|finns inte|finns ej|saknas|ej tillgänglig|inte tillgänglig|åtkomst nekad
sv åtkomst förbjuden|tillträde förbjudet|inte tillåten|ej tillåten|internt serverfel|serverfel|fel uppstod|fel har uppstått
sv felaktig begäran|inga resultat|inga träffar|har tagits bort|inte längre tillgänglig|hittar inte|ej hittas
no ikke funnet|finnes ikke|finnes ikke lenger|ikke tilgjengelig|ingen tilgang|adgang forbudt|ikke tillatt|intern serverfeil
no serverfeil|finner ikke|fant ikke|oppstod en feil|ugyldig forespørsel|ingen treff|er fjernet|kunne ikke finne
da ikke fundet|findes ikke|findes ikke længere|ikke tilgængelig|adgang nægtet|ikke tilladt|intern serverfejl|serverfejl
da opstod en fejl|ugyldig forespørgsel|ingen resultater|kunne ikke finde|er blevet fjernet|kan ikke findes|ikke finde
fi ei löydy|ei löytynyt|ei löydetty|ei ole olemassa|ei ole saatavilla|ei ole enää|pääsy kielletty|pääsy evätty|ei sallittu
fi palvelinvirhe|tapahtui virhe|virheellinen pyyntö|ei tuloksia|ei hakutuloksia|on poistettu|ei käytettävissä
pl nie znaleziono|nie została znaleziona|nie została odnaleziona|nie istnieje|nie odnaleziono|niedostępn|nie można znaleźć
pl nie jest dostępn|nie jest już dostępn|została usunięta|został usunięty|brak dostępu|odmowa dostępu|dostęp zabroniony
pl zabroniony dostęp|niedozwolon|błąd serwera|wewnętrzny błąd|wystąpił błąd|strona błędu|nieprawidłowe żądanie|błędne żądanie
pl brak wyników|wygasł|nie ma takiej
cs nenalezen|nebyl nalezen|nebyla nalezena|nebylo nalezeno|neexistuje|není k dispozici|není dostupn|nedostupn|již není
cs byla odstraněna|byl odstraněn|přístup odepřen|přístup zakázán|přístup zamítnut|nepovolen|chyba serveru|interní chyba
cs došlo k chybě|nastala chyba|chybný požadavek|neplatný požadavek|žádné výsledky|nelze najít|nepodařilo najít|nenašli
sk nenájden|nebol nájden|nebola nájdená|nebolo nájdené|sa nenašl|neexistuje|nie je k dispozícii|nie je dostupn|nedostupn
sk bola odstránená|prístup zamietnutý|prístup odmietnutý|chyba servera|došlo k chybe|nastala chyba|žiadne výsledky
hu nem található|nem talál|nem létezik|nem elérhető|már nem érhető el|nem érhető el|hozzáférés megtagadva|hozzáférés tiltott
hu tiltott hozzáférés|nem engedélyezett|szerverhiba|kiszolgálóhiba|hiba történt|hibás kérés|érvénytelen kérés|nincs találat
hu eltávolít|megszűnt
ro nu a fost găsit|nu a fost gasit|negăsit|nu există|nu exista|nu este disponibil|nu mai este disponibil|indisponibil
ro nu a putut fi găsit|acces interzis|accesul interzis|acces refuzat|nepermis|nu este permis|eroare internă|eroare de server
ro a apărut o eroare|cerere invalidă|niciun rezultat|a fost ștears|pagina nu
ru не найден|не найдена|не удалось найти|не существует|не существуют|недоступ|больше не доступ|удалена|удалён|доступ запрещ
ru доступ закрыт|нет доступа|отказано в доступе|не разрешен|недопустим|ошибка сервера|внутренняя ошибка|произошла ошибка
ru неверный запрос|ошибочный запрос|страница ошибки|ничего не найдено|нет результатов|не обнаружен|такой страницы нет
ru нет такой страницы|срок действия истек|нет прав доступа
uk не знайден|не існує|недоступн|більше не доступ|видален|доступ заборон|немає доступу|помилка сервера|внутрішня помилка
uk сталася помилка|невірний запит|нічого не знайдено|немає результатів|не вдалося знайти
bg не е намерен|не беше намерен|не съществува|не може да бъде намерен|недостъпн|не е достъпн|забранен достъп|достъпът е забранен
bg отказан достъп|грешка в сървъра|вътрешна грешка|възникна грешка|няма намерени|няма резултати
sr није пронађен|не постоји|није доступн|приступ забрањен|грешка на серверу|nije pronađen|ne postoji|nije dostupn|pristup zabranjen
hr nije pronađen|ne postoji|nije dostupn|nedostupn|pristup odbijen|zabranjen pristup|greška poslužitelja|pogreška poslužitelja
hr došlo je do pogreške
sl ni bila najdena|ni mogoče najti|ne obstaja|ni na voljo|dostop zavrnjen|dostop prepovedan|napaka strežnika|prišlo je do napake
sl ni najden
el δεν βρέθηκε|δεν υπάρχει|δεν είναι διαθέσιμ|μη διαθέσιμ|δεν μπορεί να βρεθεί|απαγορεύεται η πρόσβαση|δεν επιτρέπεται
el σφάλμα διακομιστή|εσωτερικό σφάλμα|παρουσιάστηκε σφάλμα|κανένα αποτέλεσμα|δεν εντοπίστηκε
tr bulunamadı|bulunamıyor|bulunmuyor|mevcut değil|bulamadık|artık mevcut|kullanılamıyor|erişim engellendi|erişim yasak
tr erişim reddedildi|giriş yasak|izin verilmiyor|izin verilmeyen|sunucu hatası|hata oluştu|bir hata|geçersiz istek|hatalı istek
tr sonuç yok|kaldırıldı|yayından kaldırıl|hizmet verilemiyor|hizmet dışı
lt nerasta|nerastas|neegzistuoja|nepasiekiam|prieiga uždrausta|serverio klaida|įvyko klaida|rezultatų nerasta
lv nav atrast|neeksistē|nav pieejam|piekļuve liegta|servera kļūda|radās kļūda
et ei leitud|ei eksisteeri|ei ole saadaval|pole saadaval|juurdepääs keelatud|serveri viga|tekkis viga|ei leia
ca no s'ha trobat|no trobad|no existeix|no està disponible|accés denegat|accés prohibit|error del servidor|error intern
ga níor aimsíodh|níl an leathanach|ní féidir teacht ar|níl fáil|cosc ar rochtain
id tidak ditemukan|tidak ada|tidak tersedia|akses ditolak|akses dilarang|kesalahan server|terjadi kesalahan|telah dihapus
id tidak dapat ditemukan
ms tidak dijumpai|tidak wujud|ralat pelayan
vi không tìm thấy|không tồn tại|không có sẵn|không khả dụng|truy cập bị từ chối|lỗi máy chủ|đã xảy ra lỗi|không thể tìm
th ไม่พบ|ไม่มีหน้า|ไม่สามารถเข้าถึง|ไม่พร้อมใช้งาน|ปฏิเสธการเข้าถึง|เกิดข้อผิดพลาด
ja 見つかりません|見つかりませんでした|見つけることができ|存在しません|存在しない|ございません|みつかりません|削除された|削除されて
ja アクセスできません|アクセス権|アクセスが禁止|アクセス拒否|許可されていません|サーバエラー|サーバーエラー|エラーが発生
ja 不正なリクエスト|不正なアクセス|終了しました|該当するページ|利用できません|公開を終了|ただいまメンテナンス|応じることができません
ja 掲載終了
zh 找不到|未找到|不存在|无法找到|無法找到|没有找到|沒有找到|无法访问|無法訪問|禁止访问|禁止訪問|禁止存取|拒绝访问|拒絕存取|已被删除
zh 已被刪除|已删除|已刪除|不可用|服务器错误|伺服器錯誤|内部错误|內部錯誤|发生错误|發生錯誤|错误请求|錯誤的請求|不允許|不允许|已过期
zh 已過期|已下架|页面丢失|走丢了|無法使用|服务不可用
ko 찾을 수 없|존재하지 않|없는 페이지|접근이 거부|접근 금지|접근 거부|접근할 수 없|사용할 수 없|서버 오류|오류가 발생|잘못된 요청
ko 허용되지 않|객체 없음|일시중지|삭제되었|찾지 못했|검색 결과가 없
ar غير موجود|لم يتم العثور|تعذر العثور|لا يمكن العثور|غير متاح|غير متوفر|ممنوع الوصول|الوصول ممنوع|تم رفض الوصول|خطأ في الخادم
ar حدث خطأ|لا توجد نتائج
fa یافت نشد|پیدا نشد|وجود ندارد|در دسترس نیست|دسترسی غیرمجاز|دسترسی ممنوع|خطای سرور|خطایی رخ داد|نتیجه ای یافت
he לא נמצא|לא קיים|אינו קיים|אינו זמין|לא זמין|הגישה נדחתה|אין גישה|שגיאת שרת|אירעה שגיאה|אין תוצאות
hi नहीं मिला|नहीं मिली|मौजूद नहीं|उपलब्ध नहीं|त्रुटि हुई|प्रवेश निषेध|पहुंच अस्वीकृत
bn পাওয়া যায়নি|খুঁজে পাওয়া|বিদ্যমান নেই
"""

# What it is, and what else such titles and headings say: counts only beside a phrase or a status.
WORDS = """
the this that looks like seems page pages url address file document object resource site website server content link request requested error
errors http https status code sorry oops ooops whoops uh oh hmm ouch your you we our were was is are it be to for on here at looking trying
searching view by of a an or and has been but with whatever that's what seite webseite objekt dokument datei fehler adresse die der
das diese angeforderte leider gesuchte wurde ist auf unserem objet ressource fichier erreur serveur la le cette que vous cherchez
recherchez demandée desole oups página pagina objeto recurso archivo documento servidor lo sentimos ups esta el buscas solicitada
risorsa oggetto errore spiacenti questa cercata richiesta che stai cercando erro desculpe ops arquivo ficheiro você procura fout
bestand deze de gevraagde sida sidan fel side siden feil fejl sivu sivua virhe strona strony strone błąd obiekt obiektu stránka
stránku chyba zdroj az oldal lap hiba objektum keresett resursa obiectul eroare страница страницы ошибка объект файл ресурс сторінку
сторінка помилка об'єкт страницата грешка stranica greška stran napaka σελίδα σελίδας η σφάλμα το αντικείμενο sayfa hata nesne
aradığınız puslapis klaida lapa kļūda lehte lehekülg viga pàgina halaman trang lỗi หน้า ページ お探しの 指定された は が ませんでした
エラー 页面 頁面 您 访问的 请求的 物件 错误 錯誤 对象 对不起 抱歉 페이지 페이지를 오류 요청한 요청하신 الصفحة صفحة خطأ صفحه خطا مورد
نظر הדף העמוד שגיאה पृष्ठ पेज त्रुटि
หน้า ที่คุณ คุณ ต้องการ ค้นหา
"""
