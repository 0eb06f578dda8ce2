-- Long queues whose middle lies on disk. Uses common.
--
-- A front queue or park list q has up to three parts, read in this order:
--   <q>          list: the head; taken from the left
--   <q>:chunks   list: names of chunks, files that a worker wrote (spill.lua)
--   <q>:tail     list: what was appended since; there as long as anything is cold
-- tails            hash: q → serial of the left end of its tail, which a swap must name
-- cold             hash: chunk → `q \t entries taken from it \t entries in it \t URLs left in it`
-- chores           zset: queues that need a worker, by the ms from which one may take it
--
-- ctr.tails counts the queues that have a tail: 0, as usual, and nothing here costs a call.

local COLD_MS = 5000                 -- a host whose next URLs are on disk is looked at again after this, or as soon as they are here
local CHORE_MS = 30000               -- a worker that took a chore and died is not waited for longer

-- A worker is wanted for a queue: it is long, or its head runs out while the rest is on disk.
local function chore(q)
  on(TAG .. 'chores', 'ZADD', 'NX', string.format('%d', now), q)
end

-- At the end of a queue. Returns the length of the part that it was put into.
local function append(q, entry)
  local size = tails > 0 and on(TAG .. q .. ':tail', 'RPUSHX', entry) or 0
  if size == 0 then size = on(TAG .. q, 'RPUSH', entry) end
  if size >= long then chore(q) end
  return size
end

-- The same of several entries.
local function append_all(q, entries)
  in_thousands(entries, function(...)
    local size = tails > 0 and on(TAG .. q .. ':tail', 'RPUSHX', ...) or 0
    if size == 0 then size = on(TAG .. q, 'RPUSH', ...) end
    if size >= long then chore(q) end
  end)
end

-- The head of a queue has run out. True if there is more of it in Redis now; the second result: true if what follows is on disk.
local function thaw(q)
  if tails == 0 or on(TAG .. 'tails', 'HEXISTS', q) == 0 then return false, false end
  if on(TAG .. q .. ':chunks', 'LLEN') > 0 then
    chore(q)
    return false, true
  end
  if on(TAG .. q .. ':tail', 'LLEN') > 0 then redis.call('RENAME', TAG .. q .. ':tail', TAG .. q) end
  tails = tails - redis.call('HDEL', TAG .. 'tails', q)
  return on(TAG .. q, 'LLEN') > 0, false
end

-- The head of a queue is about to run out: its next chunk is fetched meanwhile.
local function foresee(q, size)
  if tails > 0 and size < long / 15 and on(TAG .. q .. ':chunks', 'LLEN') > 0 then chore(q) end
end
