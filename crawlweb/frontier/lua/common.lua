-- What every step of a partition shares. Uses time.
--
-- KEYS[1]  {crawl:p}:ctr, hash. Every other key of the partition has the same hash tag, so a step touches one cluster slot.
-- ARGV[1]  worker, ARGV[2] sequence number of its calls of this step: a call whose answer was lost is repeated as it was.
--
-- Scripts are isolated, not transactional: an error after the first write leaves half a step. So a step validates what it was
-- given before it writes, inserts into the new place before it removes from the old, and hides no error.

-- Numbers go to commands as text where it is hot: Redis prints those of Lua with 17 digits, which takes longer than the command.
--
-- A step that `each` runs (scripts.py) may be called on several partitions of one server at once: ARGV has of each the number of its arguments,
-- and these. `begin` takes the next; what is remembered between calls of functions is forgotten by `begins`.

local ARGV = ARGV
local CTR, TAG, CALL
local begins = {}
local BACK_CAP = 64                  -- URLs a back queue holds; the rest of the host's is parked
local QUANTUM_URLS = 64              -- a host keeps its active place for so many URLs
local QUANTUM_MS = 60000             -- or so long, if others wait
local ASLEEP_MS = 60000              -- further away than this, a host takes no active place
local REST_MS = 1000                 -- the same for a host that was told to rest: dead hosts leave the places to live ones
local HOST_TTL_MS = 30 * 86400000    -- a host without URLs is forgotten after this
local LONG = 30000                   -- a queue of so many entries is long: its middle goes to disk (cold.lua)
local PRIORITY_STEP = 2 ^ 48         -- score in a back queue = priority * step + sequence number
local SCORES = 10 * PRIORITY_STEP
local YEAR_MS = 366 * 86400000       -- no time of ours is further away, but of a pause
local QUARANTINED_MOST = 10000       -- kept; all are counted
local QUARANTINED_BYTES = 2000       -- of each

local add                            -- counters of ctr, written once at the end of the step

local function count(name, by)
  add[name] = (add[name] or 0) + (by or 1)
end

-- The number that a text says, from 0 to `most`; nil for anything else: what stands in Redis is not trusted.
local function sane(text, most)
  local n = num(text)
  if n and n >= 0 and n <= most then return n end
end

-- Adds to a counter; one that is no number begins again.
local function add_to(key, field, by)
  by = string.format('%d', by)
  local r = redis.pcall('HINCRBY', key, field, by)
  if type(r) ~= 'table' then return r end
  redis.call('HSET', key, field, by)
  return num(by)
end

local on

-- Moves a key that is not ours out of the way.
local function move_aside(key)
  local kind = redis.call('TYPE', key)['ok']
  local aside = TAG .. 'foreign:' .. add_to(CTR, 'foreign', 1) .. ':' .. string.sub(key, #TAG + 1)
  redis.call('RENAME', key, aside)
  on(TAG .. 'quarantine', 'LPUSH', 'key\t' .. aside .. '\t' .. kind)
  redis.call('LTRIM', TAG .. 'quarantine', 0, QUARANTINED_MOST - 1)
end

-- A command on a key. A key of another type is not ours: it is moved aside by name, and the command repeated.
on = function(key, command, ...)
  local r = redis.pcall(command, key, ...)
  if type(r) == 'table' and r.err then
    if string.sub(r.err, 1, 9) ~= 'WRONGTYPE' then error(r.err) end
    move_aside(key)
    r = redis.call(command, key, ...)
  end
  return r
end

local c, now, seq, pick, tokens, tails, long

local function begin(ctr)
  CTR, TAG = ctr, string.sub(ctr, 1, -4)
  CALL, add = TAG .. 'call:' .. ARGV[1], {}
  for _, forget in ipairs(begins) do forget() end
  c = redis.pcall('HMGET', CTR, 'now', 'seq', 'pick', 'tok', 'tails', 'long', 'run', 'calm')
  if c.err then
    local aside = TAG .. 'foreign:' .. '0:ctr'
    redis.call('RENAME', CTR, aside)
    on(TAG .. 'quarantine', 'LPUSH', 'key\t' .. aside)
    c = {}
  end
  now = server_ms()
  now = math.max(now, sane(c[1], now + YEAR_MS) or 0)
  seq, pick, tokens = sane(c[2], PRIORITY_STEP) or 0, sane(c[3], 2 ^ 53) or 0, sane(c[4], 2 ^ 53) or 0
  tails, long = sane(c[5], 2 ^ 53) or 0, sane(c[6], 2 ^ 53) or LONG
end

if #KEYS == 1 then begin(KEYS[1]) end

-- Runs a step on each of KEYS; an error is the answer of its partition.
local function each(step)
  if #KEYS == 1 then return step() end
  local out, all, from = {}, ARGV, 1
  for i, ctr in ipairs(KEYS) do
    local size = num(all[from])
    ARGV, from = {unpack(all, from + 1, from + size)}, from + size + 1
    local fine, answer = pcall(function()
      begin(ctr)
      return step()
    end)
    out[i] = (fine or type(answer) == 'table') and answer or {err = answer}
  end
  return out
end

-- Writes the clock and the counters: the last thing that a step does.
local function finish()
  redis.call('HSET', CTR, 'now', string.format('%d', now), 'seq', string.format('%d', seq), 'pick', string.format('%d', pick), 'tok', string.format('%d', tokens))
  if tails ~= (sane(c[5], 2 ^ 53) or 0) then redis.call('HSET', CTR, 'tails', tails) end
  if long ~= (sane(c[6], 2 ^ 53) or LONG) then redis.call('HSET', CTR, 'long', long) end
  for name, by in pairs(add) do
    if by ~= 0 then add_to(CTR, name, by) end
  end
end

-- Is there anything for `finish` to write but the clock?
local function has_counted()
  return next(add) ~= nil or seq ~= (num(c[2]) or 0) or pick ~= (num(c[3]) or 0) or tokens ~= (num(c[4]) or 0) or tails ~= (num(c[5]) or 0)
    or long ~= (num(c[6]) or LONG)
end

-- A full Redis refuses the first write of a script if that may take memory, and nothing after a first write. So what begins with a write that
-- takes none passes as a whole, and what begins with one that may take some is refused as a whole. Neither changes anything.
local function pass_when_full() redis.call('PERSIST', CTR) end
local function refuse_when_full() redis.call('HSETNX', CTR, 'now', 0) end

-- The answer of this very call, if the partition gave one before; false for a call that a later one overtook.
local function answered(step)
  local last = on(CALL, 'HMGET', step, step .. '=')
  if not last[1] then return nil end
  if last[1] == ARGV[2] then return last[2] end
  if (sane(last[1], 2 ^ 53) or 0) > num(ARGV[2]) then return false end
  return nil
end

local function answer(step, text)
  on(CALL, 'HSET', step, ARGV[2], step .. '=', text)
  redis.call('PEXPIRE', CALL, '3600000')
  return text
end

-- Runs a function on lists of at most 1,000: a call takes 7,999 arguments.
local function in_thousands(list, call)
  for first = 1, #list, 1000 do call(unpack(list, first, math.min(first + 999, #list))) end
end

-- An entry is one of ours if it begins with priority, failures, expiries and a tab.
local function is_entry(entry)
  return string.find(entry, '^%d[0-9a-z][0-9a-z]\t') ~= nil
end

local function quarantine(what, text)
  if #text > QUARANTINED_BYTES then text = string.sub(text, 1, QUARANTINED_BYTES) .. ' … ' .. #text .. ' bytes' end
  on(TAG .. 'quarantine', 'LPUSH', what .. '\t' .. text)
  redis.call('LTRIM', TAG .. 'quarantine', 0, QUARANTINED_MOST - 1)
  count('quarantined')
end

-- `cause`: the last error, in words, if known.
local function dead_letter(host, entry, reason, cause)
  local why = cause and reason .. ': ' .. cause or reason
  on(TAG .. 'dead', 'LPUSH', string.format('%d', now) .. '\t' .. host .. '\t' .. why .. '\t' .. entry)
  count('done')
  count('dead')
end

local function score_of(entry, number)
  return num(string.sub(entry, 1, 1)) * PRIORITY_STEP + number
end

local function score_text(score)
  return string.format('%.0f', score)
end
