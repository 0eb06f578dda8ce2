-- lease: the next URL of each host whose time has come, one a host, in flight until completed, released or expired.
-- uses: common place reclaim promote
--
-- ARGV[3]  most leases (never over 1,000)    ARGV[4] ms that a lease lasts    ARGV[5] look-ahead ms: a lease may carry a not-before that is so far away
-- ARGV[6]  hosts wanted active    ARGV[7] most tokens looked at    ARGV[8] most expired leases reclaimed (0: none)
-- ARGV[9]  minimum delay ms    ARGV[10] latency factor    ARGV[11] most ms of the latency part (as complete)
-- Returns  msgpack [ms until something may be due (-1: nothing is here), [token, host, entry, not-before in ms, failures of the host in a
--          row, ms since its robots.txt cannot be had (-1: it can)], ...]
-- Holds    a host is in one of ready, asleep, in flight, front; a leased URL stands in `leased` and nowhere else

local MOVE_MOST = 64

local function reply(leases)
  local due = {on(TAG .. 'ready', 'ZRANGE', 0, 0, 'WITHSCORES')[2], on(TAG .. 'asleep', 'ZRANGE', 0, 0, 'WITHSCORES')[2],
    on(TAG .. 'wait', 'ZRANGE', 0, 0, 'WITHSCORES')[2], on(TAG .. 'leases', 'ZRANGE', 0, 0, 'WITHSCORES')[2]}
  local first = -1
  for i = 1, 4 do
    if due[i] then
      local ms = math.max(0, num(due[i]) - now)
      if first < 0 or ms < first then first = ms end
    end
  end
  if tokens > 0 and on(TAG .. 'ready', 'ZCARD') + on(TAG .. 'leases', 'ZCARD') < num(ARGV[6]) then first = 0 end
  table.insert(leases, 1, first)
  return cmsgpack.pack(leases)
end

local function describe(token, host, entry)
  local h = on(TAG .. 'host:' .. host, 'HMGET', 'n', 'e', 'u')
  return {token, host, entry, math.max(0, (num(h[1]) or 0) - now), num(h[2]) or 0, h[3] and now - num(h[3]) or -1}
end

local old = answered('l')
if old == false then return redis.error_reply('STALE') end
if old then
  local leases = {}
  for i = 1, num(old) do
    local token = ARGV[1] .. ':' .. ARGV[2] .. ':' .. i
    local host, _, entry = lease_of(token)
    if host then leases[#leases + 1] = describe(token, host, entry) end
  end
  return reply(leases)
end

reclaim(num(ARGV[8]), num(ARGV[9]), num(ARGV[10]), num(ARGV[11]))

for _, host in ipairs(on(TAG .. 'asleep', 'ZRANGEBYSCORE', '-inf', string.format('%d', now + num(ARGV[5])), 'LIMIT', 0, MOVE_MOST)) do
  local s = activate(host, num(on(TAG .. 'host:' .. host, 'HGET', 'n') or 0))
  if s ~= 'a' then redis.call('ZREM', TAG .. 'asleep', host) end  -- a late completion may have moved its clock
end

for _, text in ipairs(on(TAG .. 'wait', 'ZRANGEBYSCORE', '-inf', string.format('%d', now), 'LIMIT', 0, MOVE_MOST)) do
  local host, score, entry = string.match(text, '^([^\t]+)\t(%d+)\t(.*)$')
  if host and is_entry(entry) then
    if back_add(host, num(score), entry) and redis.call('ZCARD', TAG .. 'back:' .. host) > BACK_CAP then displace(host) end
    local h = on(TAG .. 'host:' .. host, 'HMGET', 's', 'n')
    if not h[1] then activate(host, num(h[2]) or 0) end
  else
    quarantine('wait', text)
  end
  redis.call('ZREM', TAG .. 'wait', text)
end

promote(num(ARGV[6]), num(ARGV[7]))

-- A host at the top of `ready` that gets no lease now goes where its URLs and its clock say.
local function move(host, next_ms)
  if settle(host, next_ms, 1, now + 1) ~= 'r' then redis.call('ZREM', TAG .. 'ready', host) end
end

local leases, leased, expiries, gone = {}, {}, {}, {}
local expiry = string.format('%d', now + num(ARGV[4]))
local latest = now + num(ARGV[5])
local ready = on(TAG .. 'ready', 'ZRANGEBYSCORE', '-inf', string.format('%d', latest), 'LIMIT', 0, math.min(num(ARGV[3]), 1000))
for _, host in ipairs(ready) do
  local key, back = TAG .. 'host:' .. host, TAG .. 'back:' .. host
  local h = on(key, 'HMGET', 'n', 'x', 'xr', 'e', 'u')
  local best = on(back, 'ZRANGE', 0, 0, 'WITHSCORES')
  if not best[1] and refill(host) then best = redis.call('ZRANGE', back, 0, 0, 'WITHSCORES') end
  local next_ms = num(h[1]) or 0
  if best[1] and num(h[2] or 0) > now then
    for _, entry in ipairs(redis.call('ZRANGE', back, 0, MOVE_MOST - 1)) do
      dead_letter(host, entry, h[3] or 'dead host')
      redis.call('ZREM', back, entry)
    end
    move(host, next_ms)
  elseif best[1] and not is_entry(best[1]) then
    quarantine(back, best[1])
    redis.call('ZREM', back, best[1])
    move(host, next_ms)
  elseif not best[1] or next_ms > latest then
    move(host, next_ms)
  else
    local token = ARGV[1] .. ':' .. ARGV[2] .. ':' .. (#leases + 1)
    local n = #leased
    leased[n + 1], leased[n + 2] = token, host .. '\t' .. score_text(num(best[2])) .. '\t' .. best[1]
    expiries[n + 1], expiries[n + 2] = expiry, token
    gone[#gone + 1] = host
    leases[#leases + 1] = {token, host, best[1], math.max(0, next_ms - now), num(h[4]) or 0, h[5] and now - num(h[5]) or -1}
  end
end
if #leases > 0 then
  on(TAG .. 'leased', 'HSET', unpack(leased))
  on(TAG .. 'leases', 'ZADD', unpack(expiries))
  for i, host in ipairs(gone) do
    on(TAG .. 'host:' .. host, 'HSET', 's', 'f')
    redis.call('ZREM', TAG .. 'back:' .. host, leases[i][3])
  end
  redis.call('ZREM', TAG .. 'ready', unpack(gone))
end
finish()
answer('l', #leases)
return reply(leases)
