-- spill: long queues to disk and back. The files are a worker's matter; this swaps entries for the name of the chunk that holds them, and back.
-- uses: time common pack host cold place
--
-- ARGV[3]  what    ARGV[4] queue (`front:<k>`, `park:<host>` or `later:<day>`), then
--   cut    most entries, entries that the head keeps: moves the end of a long head to the left of the tail (while nothing is on disk)
--   out    chunk, entries, URLs among them, serial: these entries, the first of the tail, are in the chunk now
--   in     chunk, offset, URLs among them, entry, entry, ...: entries of the first chunk, from the offset on, to the end of the head
--   lost   chunk: the first chunk cannot be read
--   done   nothing is to be done any more; ms from which it may be looked at again (0: it may leave the list of chores)
--   tune   (no queue) length from which a queue is long; front queues that are so now become chores
-- Returns  cut: entries moved; out, in, lost: 1, or 0 if that is not how things are (another worker was first); done: 1; tune: the length
--          before
-- Holds    an entry stands in Redis or in a chunk that `cold` names, before and after; while a queue has chunks it has a tail

local CHUNK_MS = 600000              -- a chunk older than this is not swapped in any more: its file may have been taken for an orphan

local old = answered('s')
if old ~= nil then return num(old) or redis.error_reply('STALE') end
local what, q = ARGV[3], ARGV[4]
pass_when_full()
local head, chunks, tail = TAG .. q, TAG .. q .. ':chunks', TAG .. q .. ':tail'

local function info_of(chunk)
  local text = on(TAG .. 'cold', 'HGET', chunk)
  local owner, taken, size, urls = string.match(text or '', '^([^\t]+)\t(%d+)\t(%d+)\t(%d+)$')
  if owner == q then return num(taken), num(size), num(urls) end
end

-- A host that slept because its next URLs were on disk.
local function wake()
  local host = string.match(q, '^park:(.+)$')
  if not host then return end
  local h = look(host)
  if h.s == 'a' and activate(host, math.max(h.next, h.paused)) ~= 'a' then redis.call('ZREM', TAG .. 'asleep', host) end
end

-- What a worker read of the tail before is no longer how it begins.
local function moved_left_end()
  seq = seq + 1
  tails = tails + on(TAG .. 'tails', 'HSET', q, string.format('%d', seq))
end

local function forget(chunk)
  redis.call('LPOP', chunks)
  redis.call('HDEL', TAG .. 'cold', chunk)
end

local result = 0
if what == 'cut' then
  local size = on(head, 'LLEN')
  local n = math.min(num(ARGV[5]), size - num(ARGV[6]))
  if n > 0 and on(chunks, 'LLEN') == 0 then
    local some, turned = redis.call('LRANGE', head, -n, -1), {}
    for i = #some, 1, -1 do turned[#turned + 1] = some[i] end
    on(tail, 'LPUSH', unpack(turned))
    moved_left_end()
    redis.call('LTRIM', head, 0, -n - 1)
    result = n
  end
elseif what == 'out' then
  local chunk, n = ARGV[5], num(ARGV[6])
  local made_ms = num(string.match(chunk, '^(%d+)')) or 0
  if on(TAG .. 'tails', 'HGET', q) == ARGV[8] and on(tail, 'LLEN') > n and math.abs(now - made_ms) < CHUNK_MS then
    on(TAG .. 'cold', 'HSET', chunk, q .. '\t0\t' .. ARGV[6] .. '\t' .. ARGV[7])
    on(chunks, 'RPUSH', chunk)
    moved_left_end()
    redis.call('LTRIM', tail, n, -1)
    result = 1
  end
elseif what == 'in' then
  local chunk, n = ARGV[5], #ARGV - 7
  local taken, size, urls = info_of(chunk)
  if on(chunks, 'LINDEX', 0) == chunk and taken == num(ARGV[6]) and taken + n <= size then
    on(head, 'RPUSH', unpack(ARGV, 8))
    if taken + n < size then
      on(TAG .. 'cold', 'HSET', chunk, string.format('%s\t%d\t%d\t%d', q, taken + n, size, math.max(0, urls - num(ARGV[7]))))
    else
      on(TAG .. 'gone', 'ZADD', string.format('%d', now), chunk)
      forget(chunk)
    end
    if string.sub(q, 1, 6) == 'front:' then tokens = tokens + n end
    wake()
    result = 1
  end
elseif what == 'lost' then
  local chunk = ARGV[5]
  if on(chunks, 'LINDEX', 0) == chunk then
    local taken, size, urls = info_of(chunk)
    quarantine('chunk ' .. q, string.format('%s\t%d\t%d', chunk, taken or 0, size or 0))
    count('done', urls or 0)
    count('unreadable', urls or 0)
    forget(chunk)
    wake()
    result = 1
  end
elseif what == 'done' then
  if num(ARGV[5]) > 0 then
    on(TAG .. 'chores', 'ZADD', 'XX', string.format('%d', now + num(ARGV[5])), q)
  else
    on(TAG .. 'chores', 'ZREM', q)
  end
  result = 1
elseif what == 'tune' then
  result, long = long, num(q)
  for k = 0, 9 do
    if on(TAG .. 'front:' .. k, 'LLEN') >= long then chore('front:' .. k) end
  end
end
finish()
return num(answer('s', result))
