-- recall: reads page records, or drops those that are in a chunk now.
-- uses: time common cold records
--
-- ARGV[3]  get, or drop    ARGV[4..] keys of 8 bytes; to drop: key and the first 8 bytes of its record, which must still be so
-- Returns  get: msgpack [record or false, ...]; drop: how many

if ARGV[3] == 'get' then
  local out = {}
  for i = 4, #ARGV do out[#out + 1] = page_get(ARGV[i]) or false end
  return cmsgpack.pack(out)
end
pass_when_full()
local old = answered('g')
if old ~= nil then return num(old) or redis.error_reply('STALE') end
local dropped = 0
for i = 4, #ARGV do
  local key = string.sub(ARGV[i], 1, 8)
  local text, before = page_get(key)
  if text and string.sub(text, 1, 8) == string.sub(ARGV[i], 9) then
    page_drop(key, before)
    dropped = dropped + 1
  end
end
finish()
return num(answer('g', dropped))
