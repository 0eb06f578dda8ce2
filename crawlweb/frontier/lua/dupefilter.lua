-- dupefilter: is the key of a request known? Marks it, in one step. For Scrapy's and scrapy-redis' schedulers (crawlweb/dupefilter.py).
-- uses: time common seen exact
--
-- ARGV[3]  16 bytes; ARGV[4] keys that the first Bloom layer is made for; ARGV[5] false-positive rate allowed; ARGV[6] 'bloom' or 'exact'
-- Returns  n new, s seen

local old = answered('d')
if old ~= nil then return old or redis.error_reply('STALE') end
local key, expected, rate = ARGV[3], num(ARGV[4]), num(ARGV[5])
if #key ~= 16 then return redis.error_reply('ERR key is not 16 bytes') end
local is_new
if ARGV[6] == 'exact' then
  is_new = exact_add(key)
  exact_close()
else
  seen_open(expected, rate)
  is_new = not is_seen(key)
  if is_new then mark_seen(key, expected, rate) end
  seen_close(expected, rate)
end
return answer('d', is_new and 'n' or 's')
