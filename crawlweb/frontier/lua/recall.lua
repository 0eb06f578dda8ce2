-- recall: reads page records, drops those that are in a chunk now, or puts others in their place.
-- uses: time common cold records
--
-- ARGV[3]  get, drop, or swap    ARGV[4..] keys of 8 bytes; to drop: key and the first 8 bytes of its record, which must still be so; to swap:
--          the same, and the record that takes its place: the page is due when it was
-- Returns  get: msgpack [record or false, ...]; drop, swap: how many

if ARGV[3] == 'get' then
  local out = {}
  for i = 4, #ARGV do out[#out + 1] = page_get(ARGV[i]) or false end
  return cmsgpack.pack(out)
end
pass_when_full()
local old = answered('g')
if old ~= nil then return num(old) or redis.error_reply('STALE') end
local changed = 0
for i = 4, #ARGV do
  local key = string.sub(ARGV[i], 1, 8)
  local text, before = page_get(key)
  if text and string.sub(text, 1, 8) == string.sub(ARGV[i], 9, 16) then
    if ARGV[3] == 'swap' then page_put(key, string.sub(ARGV[i], 17), before) else page_drop(key, before) end
    changed = changed + 1
  end
end
finish()
return num(answer('g', changed))
