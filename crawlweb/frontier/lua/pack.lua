-- Hosts without an active place: a short record each, 15 to 90 in one hash. Uses common.
--
-- hosts:<bucket>   hash: host → `head \t body`
--   head  waiting: w, its front queue (a digit), the serial of its token; idle: - and the hour since 1970 that it is forgotten in, if any
--   body  msgpack, or nothing: its other fields (host.lua)
-- What is too long for that keeps its hash. Where a record stands beside a hash with a state, a step broke off: the hash is right.
--
-- Buckets are split one at a time, in order, into four (Litwin, "Linear Hashing", 1980), so no record written moves more than a bucket; into four,
-- because a record is then moved only every second doubling. A secret of the partition is the factor of the hash, or names could be made that share a
-- bucket (Carter, Wegman, "Universal Classes of Hash Functions", 1979).
--
-- ctr fields: hb buckets, packed records, hs the secret

local BUCKET_HOSTS = 60              -- mean number at which splitting begins; it is over at 90, so that few have more than 128 (a listpack's most)
local HOSTS_A_SPLIT = 30
local RECORD_BYTES = 1000            -- at most: a longer value makes a hash table of the bucket (hash-max-listpack-value 1024)
local SWEPT_EVERY = 256              -- numbers given out (seq) until a bucket is looked through for hosts to be forgotten
local HOUR_MS = 3600000
local PRIME = 33554393               -- products with what is below it are exact
local byte = string.byte

local low, split, secret, records  -- of `low` buckets, a power of four, the first `split` are split: b into b, b + low, b + 2 low, b + 3 low
local found, found_key             -- the host whose bucket was looked for last

begins[#begins + 1] = function() low, found = nil, nil end

-- False: there is no record at all.
local function open_records()
  if low then return secret end
  local f = redis.call('HMGET', CTR, 'hb', 'packed', 'hs')
  records, secret = sane(f[2], 2 ^ 53) or 0, sane(f[3], 2 ^ 25)
  local buckets = math.max(1, sane(f[1], 2 ^ 32) or 1)
  low = 1
  while low * 4 <= buckets do low = low * 4 end
  split = math.floor((buckets - low) / 3)
  return secret
end

local function bucket_of(host)
  local hash = #host
  for i = 1, #host, 3 do
    local a, b, c = byte(host, i, i + 2)
    hash = (hash * secret + a + (b or 0) * 256 + (c or 0) * 65536) % PRIME
  end
  hash = hash * secret % PRIME
  local b = hash % low
  return b < split and hash % (4 * low) or b
end

local function bucket_key(number)
  return TAG .. 'hosts:' .. number
end

local function key_of(host)
  if host ~= found then found, found_key = host, bucket_key(bucket_of(host)) end
  return found_key
end

-- State ('-': idle), front queue, serial, body; nil for what is not ours, false for what is to be forgotten.
local function parse_record(text)
  local k, serial, body = string.match(text, '^w(%d)(%d+)\t(.*)$')
  if k then return 'w', k, serial, body end
  local hour
  hour, body = string.match(text, '^%-(%d*)\t(.*)$')
  if not hour then return nil end
  if hour ~= '' and num(hour) * HOUR_MS <= now then return false end
  return '-', nil, nil, body
end

local function forgotten(n)
  records = records - n
  count('packed', -n)
end

local function record_of(host)
  return open_records() and on(key_of(host), 'HGET', host)
end

-- As parse_record; nil if the host has no record. `text`: it, if it was read.
local function read_record(host, text)
  text = text or record_of(host)
  if not text then return nil end
  local s, k, serial, body = parse_record(text)
  if s == nil then
    quarantine(key_of(host), host .. '\t' .. text)
    forgotten(on(key_of(host), 'HDEL', host))
  end
  return s or nil, k, serial, body
end

local function drop_record(host)
  forgotten(on(key_of(host), 'HDEL', host))
end

-- Fields of a record's body: [name, value, ...]; nil if it is not ours.
local function fields_of(body)
  local list = {}
  if body == '' then return list end
  if #body >= RECORD_BYTES then return nil end
  local fine, map, more = pcall(cmsgpack.unpack, body)
  fine = fine and more == nil and type(map) == 'table'
  for name, value in pairs(fine and map or {}) do
    fine = fine and type(name) == 'string' and (type(value) == 'string' or (type(value) == 'number' and math.abs(value) < 2 ^ 53))
    list[#list + 1], list[#list + 2] = name, value
  end
  return fine and list or nil
end

-- The same; what is not ours is shown to somebody, and counts as nothing.
local function read_fields(host, body)
  local list = fields_of(body)
  if list then return list end
  quarantine('hosts', host .. '\t' .. body)
  return {}
end

-- Splits the next bucket. Until `hb` says so, all stands where it stood.
local function split_bucket()
  local old, lists = split, {}
  local values = on(bucket_key(old), 'HGETALL')
  split, found = split + 1, nil
  for b = old, old + 3 * low, low do lists[b] = {} end
  for i = 1, #values, 2 do
    local list = lists[bucket_of(values[i])] or {}  -- none: an earlier split broke off
    list[#list + 1], list[#list + 2] = values[i], values[i + 1]
  end
  local first = bucket_key('split')
  for b, list in pairs(lists) do
    local key = b == old and first or bucket_key(b)
    if redis.call('EXISTS', key) == 1 then move_aside(key) end
    in_thousands(list, function(...) redis.call('HSET', key, ...) end)
  end
  redis.call('HSET', CTR, 'hb', low + 3 * split)
  if #lists[old] > 0 then redis.call('RENAME', first, bucket_key(old)) else redis.call('DEL', bucket_key(old)) end
  if split == low then low, split = 4 * low, 0 end
end

-- Looks through the i-th of all buckets, in any order, for hosts to be forgotten.
local function sweep_bucket(i)
  i = i % (low + 3 * split)
  local b = i < low and i or (i - low) % split + low * (1 + math.floor((i - low) / split))
  local key, gone = bucket_key(b), {}
  local values = on(key, 'HGETALL')
  for i = 1, #values, 2 do
    local s = parse_record(values[i + 1])
    if s == nil then quarantine(key, values[i] .. '\t' .. values[i + 1]) end
    if not s then gone[#gone + 1] = values[i] end
  end
  in_thousands(gone, function(...) forgotten(redis.call('HDEL', key, ...)) end)
end

-- `k`, `serial`: the front queue that its token stands in; nil: it is idle, until `hour` ('': for ever).
local function write_record(host, body, k, serial, hour)
  if not open_records() then
    secret = 2 ^ 23 + num(string.sub(redis.sha1hex(CTR .. ARGV[1] .. string.format('%d', now)), 1, 6), 16)
    redis.call('HSET', CTR, 'hs', secret)
  end
  if on(key_of(host), 'HSET', host, (k and 'w' .. k .. serial or '-' .. hour) .. '\t' .. body) == 1 then
    records = records + 1
    count('packed')
    if records > BUCKET_HOSTS * low + HOSTS_A_SPLIT * split then split_bucket() end
  end
  if k and seq % SWEPT_EVERY == 0 then sweep_bucket(seq / SWEPT_EVERY) end
end

local SPENT = {'s', 't', 'k', 'q', 'g'}  -- fields that the head of a record holds, or that go with an active place

-- Packs a host that waits (`k`, `serial`: see write_record) or is idle. `set`: fields that are to be written first.
local function stow(host, set, k, serial)
  local key, h = TAG .. 'host:' .. host, {}
  local values = on(key, 'HGETALL')
  if #values == 0 and not set and not k then return end
  for i = 1, #values, 2 do h[values[i]] = values[i + 1] end
  for i = 1, set and #set or 0, 2 do h[set[i]] = set[i + 1] end
  for _, name in ipairs(SPENT) do h[name] = nil end
  local hour = h.o and '' or string.format('%d', math.ceil((now + HOST_TTL_MS) / HOUR_MS))
  local n = h.n and num(h.n)
  if n and string.format('%d', n) == h.n then h.n = n end  -- 9 bytes, not 14
  local body = next(h) and cmsgpack.pack(h) or ''
  if #body < RECORD_BYTES then
    write_record(host, body, k, serial, hour)
    redis.call('DEL', key)
    return
  end
  if set then redis.call('HSET', key, unpack(set)) end
  if k then
    redis.call('HSET', key, 's', 'w', 't', serial, 'k', k)
    redis.call('HDEL', key, 'q', 'g')
  else
    redis.call('HDEL', key, unpack(SPENT))
  end
  if k or h.o then redis.call('PERSIST', key) else redis.call('PEXPIRE', key, HOST_TTL_MS) end
end

-- Packs a host again that was taken out of its bucket, if it got no active place.
local function stow_again(host)
  local h = on(TAG .. 'host:' .. host, 'HMGET', 's', 'k', 't')
  if not h[1] then stow(host) elseif h[1] == 'w' then stow(host, nil, h[2] or '9', h[3] or '0') end
end
