-- starts: start URLs that others put into a key of theirs, taken in batches, and forgotten once the frontier has them.
-- uses: time
--
-- KEYS[1]  their key: list (first entries first), set or zset (highest scores first)
-- ARGV[1]  what our keys beside it begin with, in the same cluster slot
-- ARGV[2]  the type wanted; empty: any of the three
-- ARGV[3]  look                          returns 1 if start URLs are there or in somebody's hands, else 0
--          take, batch, most, ms         moves up to `most` entries into a batch that lasts so long, or takes one over that has run out.
--                                        Returns the batch's name, empty if there was nothing, and its entries: text, or the length in
--                                        bytes of one that is too long. Repeated with the same name, it returns the same batch
--          keep, batch, ms               makes a batch last so long from now
--          drop, batch, index, reason …  the frontier has a batch: it goes, after the entries named went to quarantine. Returns how many
--          A look or take that finds a key of another type returns {key, its type}.
-- Holds    an entry is in the key, in a batch that somebody will take over, in quarantine, or was acknowledged by the frontier

local MAX_ENTRY_BYTES = 65536
local MAX_BATCH_BYTES = 500000        -- a batch ends where it gets larger
local AT_ONCE = 10                    -- entries moved by a command
local TAG = ARGV[1]
local TAKEN, QUARANTINE = TAG .. 'taken', TAG .. 'quarantine'
local KINDS = {list = true, set = true, zset = true}

local function kind_of(key) return redis.call('TYPE', key)['ok'] end
local function is_or_none(key, kind)
  local found = kind_of(key)
  return found == kind or found == 'none'
end

-- The next entries of a key, and their removal.
local NEXT = {
  list = function(n) return redis.call('LRANGE', KEYS[1], 0, n - 1) end,
  set = function(n) return redis.call('SRANDMEMBER', KEYS[1], n) end,
  zset = function(n) return redis.call('ZREVRANGE', KEYS[1], 0, n - 1) end,
}
local REMOVE = {
  list = function(entries) redis.call('LTRIM', KEYS[1], #entries, -1) end,
  set = function(entries) redis.call('SREM', KEYS[1], unpack(entries)) end,
  zset = function(entries) redis.call('ZREM', KEYS[1], unpack(entries)) end,
}

local what, name = ARGV[3], ARGV[4]
local batch = TAG .. 'batch:' .. (name or '')

if what == 'keep' then return redis.call('ZADD', TAKEN, 'XX', string.format('%d', server_ms() + num(ARGV[5])), name) end

if what == 'drop' then
  redis.call('PERSIST', batch)  -- a full Redis lets pass what begins with a write that takes no memory (common.lua)
  local moved = 0
  if kind_of(batch) == 'list' then
    if not is_or_none(QUARANTINE, 'list') then redis.call('RENAME', QUARANTINE, TAG .. 'foreign:' .. server_ms()) end
    for i = 5, #ARGV, 2 do
      local entry = redis.call('LINDEX', batch, ARGV[i])
      if entry then
        redis.call('LPUSH', QUARANTINE, ARGV[i + 1] .. '\t' .. entry)
        moved = moved + 1
      end
    end
  end
  redis.call('UNLINK', batch)
  redis.call('ZREM', TAKEN, name)
  return moved
end

if not is_or_none(TAKEN, 'zset') then return {TAKEN, kind_of(TAKEN)} end
local kind = kind_of(KEYS[1])
local is_theirs = KINDS[kind] and (ARGV[2] == '' or ARGV[2] == kind)
if what == 'look' then
  if is_theirs or redis.call('ZCARD', TAKEN) > 0 then return 1 end
  return kind == 'none' and 0 or {KEYS[1], kind}
end

local now = server_ms()
if redis.call('EXISTS', batch) == 0 then
  for _, late in ipairs(redis.call('ZRANGEBYSCORE', TAKEN, '-inf', now, 'LIMIT', 0, 10)) do  -- their worker died
    if kind_of(TAG .. 'batch:' .. late) == 'list' then
      name, batch = late, TAG .. 'batch:' .. late
      break
    end
    redis.call('ZREM', TAKEN, late)
  end
end
if not is_or_none(batch, 'list') then return {batch, kind_of(batch)} end
local is_there = redis.call('EXISTS', batch) == 1
if not is_there and not is_theirs then
  if kind == 'none' then return {''} end
  return {KEYS[1], kind}
end
redis.call('ZADD', TAKEN, string.format('%d', now + num(ARGV[6])), name)
if not is_there then
  local left, bytes = num(ARGV[5]), 0
  while left > 0 and bytes <= MAX_BATCH_BYTES do
    local entries = NEXT[kind](math.min(left, AT_ONCE))
    if #entries == 0 then break end
    redis.call('RPUSH', batch, unpack(entries))
    REMOVE[kind](entries)
    left = left - #entries
    for _, entry in ipairs(entries) do bytes = bytes + #entry end
  end
end
local out = {name, {}}
for i, entry in ipairs(redis.call('LRANGE', batch, 0, -1)) do
  out[2][i] = #entry <= MAX_ENTRY_BYTES and entry or #entry
end
return out
