-- The exact set: 63 bits of each URL key as a number, in sets small enough for Redis to keep them as intsets, 8 bytes a key. Uses common.
--
-- seen             hash: n buckets, u keys in them
-- seen:<bucket>    set of numbers: bytes 1 to 8 of the URL key without the first bit
-- Buckets grow one by one, by linear hashing (Litwin, "Linear Hashing: A New Tool for File and Table Addressing", 1980): of n buckets, a key's
-- is key mod top (top: least power of two >= n), or that - top / 2 if it is not there yet. A bucket that waits for its split holds up to
-- twice the load: 384 at 192, under the 512 of `set-max-intset-entries` by six standard deviations.
-- Holds: a key that was added is found, after an error in the middle of a split too: into the new bucket, then the number of buckets, then
-- out of the old one.

local LOAD = 192                     -- keys a bucket in the mean, beyond which one is split
local SPLITS = 2                     -- in a call; one that adds 300 keys needs no more
local LIMB, BILLION = 2 ^ 21, 1e9
local buckets, top, keys, added
local old_set                        -- is there the set of seeds that older releases made?
begins[#begins + 1] = function() buckets = nil end

local function exact_open()
  local f = on(TAG .. 'seen', 'HMGET', 'n', 'u')
  local n, u = num(string.match(f[1] or '', '^%d+$')), num(string.match(f[2] or '', '^%d+$'))
  buckets, top, keys, added = math.max(1, math.min(n or 1, 2 ^ 40)), 1, u or 0, 0
  while top < buckets do top = top * 2 end
  old_set = redis.call('EXISTS', TAG .. 'exact') == 1
end

-- True if the key was not there.
local function exact_add(key)
  if not buckets then exact_open() end
  if old_set and on(TAG .. 'exact', 'SISMEMBER', key) == 1 then return false end
  local b1, b2, b3, b4, b5, b6, b7, b8 = string.byte(key, 1, 8)
  local c, f = b3 % 4, b6 % 32
  local middle = c * 524288 + b4 * 2048 + b5 * 8 + (b6 - f) / 32
  local low = f * 65536 + b7 * 256 + b8
  local bucket = (middle * LIMB + low) % top
  if bucket >= buckets then bucket = bucket - top / 2 end
  -- Three limbs of 21 bits as decimal digits, every number on the way below 2^53.
  local upper = (b1 % 128 * 16384 + b2 * 64 + (b3 - c) / 4) * LIMB + middle
  local rest = upper % BILLION
  local lower = rest * LIMB + low
  local digits = lower % BILLION
  local front = (upper - rest) / BILLION * LIMB + (lower - digits) / BILLION
  local text = front > 0 and string.format('%d%09d', front, digits) or string.format('%d', digits)
  local is_new = on(TAG .. 'seen:' .. bucket, 'SADD', text) == 1
  if is_new then added = added + 1 end
  return is_new
end

-- A number of up to 19 digits modulo a power of two up to 2^40: 10^9 is 1,953,125 * 2^9.
local function modulo(text, power)
  local front, digits = num(string.sub(text, 1, -10)) or 0, num(string.sub(text, -9))
  local m = math.max(1, power / 512)
  return ((front % m) * 1953125 % m * 512 + digits) % power
end

local function split()
  local wider = buckets == top and top * 2 or top
  local from, to = TAG .. 'seen:' .. (buckets - wider / 2), TAG .. 'seen:' .. buckets
  local moved = {}
  for _, text in ipairs(on(from, 'SMEMBERS')) do
    if #text < 20 and string.find(text, '^%d+$') and modulo(text, wider) == buckets then moved[#moved + 1] = text end
  end
  for i = 1, #moved, 1000 do on(to, 'SADD', unpack(moved, i, math.min(i + 999, #moved))) end
  redis.call('HSET', TAG .. 'seen', 'n', string.format('%d', buckets + 1))
  redis.call('SDIFFSTORE', from, from, to)
  buckets, top = buckets + 1, wider
end

local function exact_close()
  if not buckets or added == 0 then return end
  keys = keys + added
  redis.call('HSET', TAG .. 'seen', 'u', string.format('%d', keys))
  for _ = 1, SPLITS do
    if keys > LOAD * buckets then split() end
  end
end
