-- The seen-set: a blocked Bloom filter in plain strings. Uses common.
--
-- bloom            hash: layers n; per layer i: b<i> blocks, c<i> capacity, u<i> keys in it
-- bloom:<i>:<s>    string: segment s of layer i, 65,535 blocks of 64 bytes (4 MiB - 64 B), allocated whole at its first write
-- A key sets one bit in each of a block's eight 64-bit sections: bytes 1-4 of the key choose the block, bytes 5-12 the bits.
-- Layer 0 takes 0.64 of the allowed rate (17 bits a key at 0.1 %), layer i > 0 takes 0.36 * 0.2 * 0.8^(i-1) of it and is twice as large as
-- the one before, so the whole never exceeds the rate. Source of the rates: Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient
-- Bloom Filters" (2007), the sum over Poisson-filled blocks.

local SEGMENT_BLOCKS = 65535
local MASK = {1, 2, 4, 8, 16, 32, 64, 128}
local EMPTY = string.rep('\0', 64)
local byte, band = string.byte, bit.band
local layers                          -- newest first: {number, blocks, capacity, used, added}

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

local function add_layer(expected, rate)
  local i = #layers
  local capacity = math.max(expected, 1024) * 2 ^ i
  local share = i == 0 and 0.64 or 0.36 * 0.2 * 0.8 ^ (i - 1)
  local layer = {i, blocks_for(capacity, rate * share), capacity, 0, 0}
  on(TAG .. 'bloom', 'HSET', 'n', i + 1, 'b' .. i, string.format('%d', layer[2]), 'c' .. i, string.format('%d', capacity), 'u' .. i, 0)
  table.insert(layers, 1, layer)
end

-- `expected`: keys that the first layer is made for; `rate`: false positives allowed, of one.
local function seen_open(expected, rate)
  layers = {}
  local n = num(on(TAG .. 'bloom', 'HGET', 'n') or 0)
  for i = 0, n - 1 do
    local f = redis.call('HMGET', TAG .. 'bloom', 'b' .. i, 'c' .. i, 'u' .. i)
    table.insert(layers, 1, {i, num(f[1]), num(f[2]), num(f[3]), 0})
  end
  if n == 0 then add_layer(expected, rate) end
end

local function place_of(layer, key)
  local b1, b2, b3, b4 = byte(key, 1, 4)
  local block = (b1 + b2 * 256 + b3 * 65536 + b4 * 16777216) % layer[2]
  local segment = math.floor(block / SEGMENT_BLOCKS)
  return TAG .. 'bloom:' .. layer[1] .. ':' .. segment, (block - segment * SEGMENT_BLOCKS) * 64, segment
end

local function has(block, key)
  for s = 0, 7 do
    local h = byte(key, 5 + s) % 64
    local b = h % 8
    if band(byte(block, s * 8 + (h - b) / 8 + 1), MASK[b + 1]) == 0 then return false end
  end
  return true
end

-- A key that is not seen leaves what mark_seen needs: where it belongs in the newest layer.
local fresh_name, fresh_at, fresh_segment, fresh_block
local function is_seen(key)
  for i, layer in ipairs(layers) do
    local name, at, segment = place_of(layer, key)
    local block = on(name, 'GETRANGE', at, at + 63)
    if i == 1 then fresh_name, fresh_at, fresh_segment, fresh_block = name, at, segment, block end
    if #block == 64 and has(block, key) then return true end
  end
  return false
end

-- Marks the key that is_seen was asked for last.
local function mark_seen(key, expected, rate)
  local layer = layers[1]
  local name, at, segment, block = fresh_name, fresh_at, fresh_segment, fresh_block
  if layer[4] + layer[5] >= layer[3] then
    add_layer(expected, rate)
    layer = layers[1]
    name, at, segment = place_of(layer, key)
    block = ''
  end
  if #block < 64 then
    local size = math.min(SEGMENT_BLOCKS, layer[2] - segment * SEGMENT_BLOCKS) * 64
    on(name, 'SETRANGE', size - 64, EMPTY)
    block = on(name, 'GETRANGE', at, at + 63)
  end
  local out, from = {}, 1
  for s = 0, 7 do
    local h = byte(key, 5 + s) % 64
    local b = h % 8
    local i = s * 8 + (h - b) / 8 + 1
    out[#out + 1] = string.sub(block, from, i - 1)
    out[#out + 1] = string.char(bit.bor(byte(block, i), MASK[b + 1]))
    from = i + 1
  end
  out[#out + 1] = string.sub(block, from)
  on(name, 'SETRANGE', at, table.concat(out))
  layer[5] = layer[5] + 1
end

local function seen_close()
  for _, layer in ipairs(layers) do
    if layer[5] > 0 then redis.call('HINCRBY', TAG .. 'bloom', 'u' .. layer[1], layer[5]) end
  end
end
