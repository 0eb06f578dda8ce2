-- The seen-set: a blocked Bloom filter in plain strings. Uses common.
--
-- bloom            hash: layers n; per layer i: b<i> blocks, c<i> capacity, u<i> keys in it, p<i> segments made ahead; small: layer 0 is
-- bloom:<i>:<s>    string: segment s of layer i, 65,535 blocks of 64 bytes (4 MiB - 64 B), made whole, ahead of need or at its first write
-- A key sets one bit in each of a block's eight 64-bit sections: bytes 1-4 of the key choose the block, bytes 5-12 the bits.
-- The layer for the keys that are expected takes 0.64 of the allowed rate (17 bits a key at 0.1 %); before it, where many are expected, comes
-- a small one with 0.02, so that a crawl that stays small does not pay for what it expected. Of the rest, each later layer takes 0.2 of what
-- the ones before left, and doubles the whole (1, 1, 2, 4, ... times what was expected): the whole never exceeds the rate. Source of the rates:
-- Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom Filters" (2007), the sum over Poisson-filled blocks.

local SEGMENT_BLOCKS = 65535
local MASK = {}                       -- of the bits of a word
for b = 0, 31 do MASK[b + 1] = 2 ^ b end
local WORDS = string.rep('<I4', 16)   -- a block, two words a section
local EMPTY = string.rep('\0', 64)
local byte = string.byte
local FEW = 32768                     -- expected keys that need no small layer before
local BLOCKS_MOST = 2 ^ 32
local layers, small                   -- newest first: {number, blocks, capacity, used, added, names of segments met}
local written                         -- blocks written in this call: name of the segment → {offset → block}

local function block_rate(bits_per_key)
  local mean, rate = 512 / bits_per_key, 0
  local p = math.exp(-mean)
  for j = 1, math.ceil(mean + 12 * math.sqrt(mean) + 12) do
    p = p * mean / j
    rate = rate + p * (1 - (63 / 64) ^ j) ^ 8
  end
  return rate
end

local function blocks_for(capacity, rate)
  local low, high = 4, 256
  for _ = 1, 30 do
    local mid = (low + high) / 2
    if block_rate(mid) > rate then low = mid else high = mid end
  end
  return math.ceil(capacity * high / 512)
end

-- Blocks and capacity of layer i, which is the next.
local function plan(i, expected, rate)
  local capacity, later, left = math.max(expected, 1024), i, 0.36
  if i == 0 then small = capacity > FEW end
  if small then later, left = i - 1, 0.34 end
  local share = 0.64
  if later < 0 then
    capacity, share = math.max(FEW / 2, math.min(capacity / 32, 2 ^ 20)), 0.02
  elseif later > 0 then
    capacity, share = capacity * 2 ^ (later - 1), left * 0.2 * 0.8 ^ (later - 1)
  end
  local blocks = blocks_for(capacity, rate * share)
  on(TAG .. 'bloom', 'HSET', 'b' .. i, string.format('%d', blocks), 'c' .. i, string.format('%d', capacity), 'small', small and 1 or 0)
  return blocks, math.floor(capacity)
end

local function add_layer(expected, rate)
  local i = #layers
  local f = on(TAG .. 'bloom', 'HMGET', 'b' .. i, 'c' .. i)
  local blocks, capacity = sane(f[1], BLOCKS_MOST), sane(f[2], 2 ^ 53)
  if not blocks or blocks < 1 or not capacity then blocks, capacity = plan(i, expected, rate) end
  redis.call('HSET', TAG .. 'bloom', 'n', i + 1, 'u' .. i, 0)
  table.insert(layers, 1, {i, blocks, capacity, 0, 0, {}})
end

local function make_segment(i, blocks, segment)
  local size = math.min(SEGMENT_BLOCKS, blocks - segment * SEGMENT_BLOCKS) * 64
  on(TAG .. 'bloom:' .. i .. ':' .. segment, 'SETRANGE', size - 64, EMPTY)
end

-- A segment of the next layer, if it is time for one: all are made in the last tenth of the newest layer, since all of them at the first
-- writes would stop the server for 1 ms each.
local function make_ahead(expected, rate)
  local newest, i = layers[1], #layers
  local due = ((newest[4] + newest[5]) / newest[3] - 0.9) * 10  -- share of the segments
  if due < 0 then return end
  local f = redis.call('HMGET', TAG .. 'bloom', 'b' .. i, 'p' .. i)
  local blocks, made = sane(f[1], BLOCKS_MOST), sane(f[2], BLOCKS_MOST) or 0
  if not blocks or blocks < 1 then
    plan(i, expected, rate)
  elseif made < due * math.ceil(blocks / SEGMENT_BLOCKS) and made * SEGMENT_BLOCKS < blocks then
    make_segment(i, blocks, made)
    redis.call('HSET', TAG .. 'bloom', 'p' .. i, made + 1)
  end
end

local LAYERS_MOST = 64                -- each is as large as all before

-- `expected`: keys that the first layer is made for; `rate`: false positives allowed, of one. What is not ours is planned again.
local function seen_open(expected, rate)
  layers, written = {}, {}
  local f = on(TAG .. 'bloom', 'HMGET', 'n', 'small')
  local n = sane(f[1], LAYERS_MOST)
  if f[1] and not n then
    n = 0
    while n < LAYERS_MOST and redis.call('HEXISTS', TAG .. 'bloom', 'u' .. n) == 1 do n = n + 1 end
  end
  small = f[2] == '1'
  n = n or 0
  for i = 0, n - 1 do
    local text = string.format('%d', i)
    f = redis.call('HMGET', TAG .. 'bloom', 'b' .. text, 'c' .. text, 'u' .. text)
    local blocks, capacity, used = sane(f[1], BLOCKS_MOST), sane(f[2], 2 ^ 53), sane(f[3], 2 ^ 53)
    if not blocks or blocks < 1 or not capacity then
      quarantine('bloom', 'layer ' .. i)
      blocks, capacity = plan(i, expected, rate)
    end
    table.insert(layers, 1, {i, blocks, capacity, used or capacity, 0, {}})
  end
  if n == 0 then add_layer(expected, rate) end
end

local function place_of(layer, key)
  local b1, b2, b3, b4 = byte(key, 1, 4)
  local block = (b1 + b2 * 256 + b3 * 65536 + b4 * 16777216) % layer[2]
  local at = block % SEGMENT_BLOCKS
  local segment = (block - at) / SEGMENT_BLOCKS
  local name = layer[6][segment]
  if not name then
    name = string.format('%sbloom:%d:%d', TAG, layer[1], segment)
    layer[6][segment], written[name] = name, {}
  end
  return name, at * 64, segment
end

local function has(block, key)
  for s = 0, 7 do
    local h = byte(key, 5 + s) % 64
    local b = h % 8
    local mask = MASK[b + 1]
    if byte(block, s * 8 + (h - b) / 8 + 1) % (2 * mask) < mask then return false end
  end
  return true
end

local function read_block(name, at)
  return written[name][at] or on(name, 'GETRANGE', string.format('%d', at), string.format('%d', at + 63))
end

local function is_seen(key)
  for _, layer in ipairs(layers) do
    local name, at = place_of(layer, key)
    local block = read_block(name, at)
    if #block == 64 and has(block, key) then return true end
  end
  return false
end

local function mark_seen(key, expected, rate)
  local layer = layers[1]
  if layer[4] + layer[5] >= layer[3] then
    add_layer(expected, rate)
    layer = layers[1]
  end
  local name, at, segment = place_of(layer, key)
  local block = read_block(name, at)
  if #block < 64 then
    make_segment(layer[1], layer[2], segment)
    block = on(name, 'GETRANGE', at, at + 63)
  end
  local words, bits = {struct.unpack(WORDS, block)}, {byte(key, 5, 12)}
  for s = 1, 8 do
    local h = bits[s] % 64
    local b = h % 32
    local i, mask = s * 2 - 1 + (h - b) / 32, MASK[b + 1]
    if words[i] % (2 * mask) < mask then words[i] = words[i] + mask end
  end
  block = struct.pack(WORDS, unpack(words, 1, 16))
  on(name, 'SETRANGE', string.format('%d', at), block)
  written[name][at] = block
  layer[5] = layer[5] + 1
end

local function seen_close(expected, rate)
  for _, layer in ipairs(layers) do
    if layer[5] > 0 then
      add_to(TAG .. 'bloom', 'u' .. layer[1], layer[5])
      if layer == layers[1] then make_ahead(expected, rate) end
    end
  end
end
