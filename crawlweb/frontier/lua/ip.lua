-- ip: the clocks of addresses. A request holds its address; the next one, of whatever host, comes a delay after its end.
-- uses: time aside
--
-- KEYS[1]  {crawl:ip:<shard>}:ip; the addresses of a shard have the same hash tag
-- ARGV[1]  delay ms    ARGV[2] ms that a hold lasts, if nobody ends it    ARGV[3] look-ahead ms: as in lease
-- ARGV[4]  msgpack [[address, token, ms since the request ended (-1: nothing was sent)], ...]: holds that end
-- ARGV[5]  msgpack [[address, host, token], ...]: who wants which
-- Returns  msgpack: ms for each wish: >= 0 held, not to be used before; < 0 refused, the host's turn is in so many ms
-- Holds    an address is held by one token at a time; repeated calls change nothing, the clock only moves on
--
-- ip:<address>   hash: h holder, x until ms, t since ms, n next-allowed ms, e average ms of a hold
-- turns:<address>  zset: hosts that were refused, by the ms of their turn. It tells when to come, no more: whoever comes may have an
--                address that is free while no turn is due, so a host that does not come back costs nothing.

local MISSED_MS = 30000
local HOLD_MS = 200  -- at first
local HOLD_MOST_MS = 3600000
local TTL_MS = 3600000
local TAG = string.sub(KEYS[1], 1, -3)
local now = server_ms()
local delay, lasts, ahead = num(ARGV[1]), num(ARGV[2]), num(ARGV[3])
local LATEST_MS = now + 86400000  -- an address is free before
local function ms(value) return string.format('%d', value) end
local function sane(text)
  local n = num(text or nil)
  return n and n >= 0 and n <= LATEST_MS and n or nil
end
redis.call('PERSIST', KEYS[1])  -- so that it passes when Redis is full (common.lua)

for _, row in ipairs(cmsgpack.unpack(ARGV[4])) do
  local address, token, age = unpack(row)
  local key = TAG .. 'ip:' .. address
  local r = on(key, 'HMGET', 'h', 't', 'n', 'e')
  if age >= 0 then redis.call('HSET', key, 'n', ms(math.max(sane(r[3]) or 0, now - age + delay))) end
  if r[1] == token then
    local hold, average = math.max(0, now - math.max(age, 0) - (sane(r[2]) or now)), math.min(sane(r[4]) or HOLD_MS, HOLD_MOST_MS)
    redis.call('HSET', key, 'e', ms(average + (hold - average) / 4))
    redis.call('HDEL', key, 'h', 'x', 't')
  end
  redis.call('PEXPIRE', key, TTL_MS)
end

local out = {}
for i, row in ipairs(cmsgpack.unpack(ARGV[5])) do
  local address, host, token = unpack(row)
  local key, turns = TAG .. 'ip:' .. address, TAG .. 'turns:' .. address
  local r = on(key, 'HMGET', 'h', 'x', 'n', 'e')
  local holder, expires, next_ms, average = r[1], sane(r[2]) or 0, sane(r[3]) or 0, math.min(sane(r[4]) or HOLD_MS, HOLD_MOST_MS)
  if holder and holder ~= token and expires <= now then  -- its request ended with it, at the latest
    next_ms, holder = math.max(next_ms, expires + delay), false
  end
  local turn = sane(on(turns, 'ZSCORE', host))
  local is_free = (not holder or holder == token) and next_ms <= now + ahead
  if is_free and not turn and holder ~= token then
    redis.call('ZREMRANGEBYSCORE', turns, '-inf', ms(now - MISSED_MS))
    is_free = redis.call('ZCOUNT', turns, '-inf', ms(now + ahead)) == 0
  end
  if is_free then
    redis.call('HSET', key, 'h', token, 'x', ms(now + lasts), 't', ms(math.max(now, next_ms)), 'n', ms(next_ms))
    redis.call('PEXPIRE', key, TTL_MS)
    if turn then redis.call('ZREM', turns, host) end
    out[i] = math.max(0, next_ms - now)
  else
    local free_ms = math.max(next_ms, holder and now + average + delay or now)
    if turn and turn > now then  -- it comes early, or this is a call that is repeated
      turn = math.max(turn, free_ms)
    elseif turn then
      turn = free_ms + redis.call('ZCOUNT', turns, '-inf', '(' .. ms(turn)) * (delay + average)
    else
      local last = sane(redis.call('ZRANGE', turns, -1, -1, 'WITHSCORES')[2])
      turn = last and math.max(free_ms, last + delay + average) or free_ms
    end
    turn = math.max(turn, now + 1)
    redis.call('ZADD', turns, ms(turn), host)
    redis.call('PEXPIRE', turns, ms(turn - now + TTL_MS))
    out[i] = now - turn
  end
end
return cmsgpack.pack(out)
