-- events: appends to the stream of events, and trims what is older than the newest ones.
-- uses: time aside
--
-- KEYS[1]  {crawl}:events, stream    ARGV[1] entries kept, about: trimmed by whole nodes    ARGV[2] msgpack [[field, value, ...], ...]
-- Returns  how many were appended
-- A full Redis takes them: pages in hand end by them, and only that frees memory.

redis.call('PERSIST', KEYS[1])
local rows = cmsgpack.unpack(ARGV[2])
for _, row in ipairs(rows) do on(KEYS[1], 'XADD', '*', unpack(row)) end
on(KEYS[1], 'XTRIM', 'MAXLEN', '~', ARGV[1])
return #rows
