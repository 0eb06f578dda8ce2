-- events: appends to the stream of events, and trims what is older than the newest ones.
-- uses: time aside
--
-- KEYS[1]  {crawl}:events, stream    ARGV[1] entries kept, about: trimmed by whole nodes    ARGV[2] msgpack [[field, value, ...], ...]
-- Returns  how many were appended
-- A full Redis takes them: pages in hand end by them, and only that frees memory.

redis.call('PERSIST', KEYS[1])
local rows, i = cmsgpack.unpack(ARGV[2]), 1
while i <= #rows do
  local r = redis.pcall('XADD', KEYS[1], '*', unpack(rows[i]))
  if type(r) ~= 'table' then
    i = i + 1
  elseif string.find(r.err, '^WRONGTYPE') or string.find(r.err, 'last possible ID', 1, true) then  -- such an id is not ours
    move_aside(KEYS[1])
    i = 1
  else
    error(r.err)
  end
end
redis.call('XTRIM', KEYS[1], 'MAXLEN', '~', ARGV[1])
return #rows
