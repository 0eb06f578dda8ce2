-- lease: the next URL of each host whose time has come, one a host, in flight until completed, released or expired.
-- uses: time common pack host cold place trouble reclaim promote
--
-- ARGV[3]  most leases (never over 1,000)    ARGV[4] ms that a lease lasts    ARGV[5] look-ahead ms: a lease may carry a not-before that is so far away
-- ARGV[6]  hosts wanted active    ARGV[7] most tokens looked at    ARGV[8] most expired leases reclaimed (0: none)
-- ARGV[9]  minimum delay ms    ARGV[10] latency factor    ARGV[11] most ms of the latency part (as complete)
-- ARGV[12] most queues that the worker would see to (spill.lua); it has them to itself for a while
-- ARGV[13] run id of the server ('': not known)    ARGV[14] ms that nobody leases or reclaims after it has changed    ARGV[15] run ids that all workers have left
--          in peace
-- ARGV[16] how often this call was sent before: its first may still come, and must find a record then
-- Returns  msgpack [ms until something may be due (-1: nothing is here), [queue, ...], [token, host, entry, not-before in ms, failures of its origin in a
--          row, ms since the first of them (-1: none), [the host's next entries, if robots.txt disallowed its last one],
--          1 if its origin had pages + 2 if an override allows it less than the minimum + 4 if other origins of the host had pages,
--          or may have: the host had few, its error pages (host.lua: e), ms from start to start where it may have several in flight (0: it may not)], ...]
-- Holds    a call that finds nothing to do writes nothing; a full Redis refuses it as a whole; a host is in one of ready, asleep, in flight, front; a leased URL stands in `leased` and nowhere else

local MOVE_MOST = 64
local SHOWN_MOST = 64
local NONE = {}

local calm_until = sane(c[8], now + 60000) or 0

local function reply(leases, queues)
  local due = {on(TAG .. 'ready', 'ZRANGE', '0', '0', 'WITHSCORES')[2], on(TAG .. 'asleep', 'ZRANGE', '0', '0', 'WITHSCORES')[2],
    on(TAG .. 'wait', 'ZRANGE', '0', '0', 'WITHSCORES')[2], on(TAG .. 'leases', 'ZRANGE', '0', '0', 'WITHSCORES')[2]}
  local first = -1
  for i = 1, 4 do
    if due[i] then
      local ms = math.max(0, num(due[i]) - now)
      if first < 0 or ms < first then first = ms end
    end
  end
  if heads > 0 and on(TAG .. 'ready', 'ZCARD') + on(TAG .. 'leases', 'ZCARD') < num(ARGV[6]) then first = 0 end
  if calm_until > now then first = calm_until - now end
  table.insert(leases, 1, queues)
  table.insert(leases, 1, first)
  return cmsgpack.pack(leases)
end

local function row(token, host, h, entry, o)
  local not_before = math.max(h.next, h.paused, o and o.u or 0)
  local since = o and (o.f or 0) > 0 and o.s and now - o.s or -1
  local shown, flags = NONE, h.below and 2 or 0
  if h.d then
    shown = {}
    for _, other in ipairs(on(TAG .. 'back:' .. host, 'ZRANGE', 0, SHOWN_MOST)) do
      if other ~= entry then shown[#shown + 1] = other end
    end
  end
  local is_known = h.h and (num(string.match(h.h, '^%d+')) or 0) >= PAGES_KNOWN
  if h.v then
    local name = short_origin(host, origin_of(host, entry))
    local has_pages = string.find(h.v, '|' .. name .. '|', 1, true)
    if has_pages then flags = flags + 1 end
    if not is_known or #h.v > (has_pages and #name + 2 or 1) then flags = flags + 4 end
  elseif not is_known then
    flags = flags + 4
  end
  local apart_ms = h.most > 1 and delay_of(h, num(ARGV[9]), num(ARGV[10]), num(ARGV[11])) or 0
  return {token, host, entry, math.max(0, not_before - now), o and o.f or 0, since, shown, flags, h.e or '', apart_ms}
end

local function describe(token, host, entry)
  local h = look(host)
  return row(token, host, h, entry, h.b and h.b[origin_of(host, entry)])
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
  return reply(leases, NONE)
end

refuse_when_full()
-- A server that was started again, or a replica in its place, may lack the last seconds. Workers tell it what they had told, and which requests are
-- under way, before anybody leases.
if ARGV[13] ~= '' and ARGV[13] ~= c[7] then
  if c[7] and not string.find(ARGV[15], c[7], 1, true) then calm_until = now + num(ARGV[14]) end
  redis.call('HSET', CTR, 'run', ARGV[13], 'calm', string.format('%d', calm_until))
end
local is_again = (num(ARGV[16]) or 0) > 0
if calm_until > now then
  if is_again then
    finish()
    answer('l', 0)
  end
  return reply({}, NONE)
end
local moved = false
-- The last of a zset by time, if that is further away than any time of ours but a pause: it is looked at now, and put aside or back where it
-- belongs. Else the crawl would wait for it.
for _, name in ipairs({'leases', 'wait', 'ready', 'asleep'}) do
  local last = on(TAG .. name, 'ZRANGE', '-1', '-1', 'WITHSCORES')
  if last[1] and num(last[2]) > now + YEAR_MS and not on(TAG .. 'overrides', 'HGET', last[1]) then
    redis.call('ZADD', TAG .. name, string.format('%d', now), last[1])
    moved = true
  end
end
reclaim(num(ARGV[8]), num(ARGV[9]), num(ARGV[10]), num(ARGV[11]))

for _, host in ipairs(on(TAG .. 'asleep', 'ZRANGEBYSCORE', '-inf', string.format('%d', now + num(ARGV[5])), 'LIMIT', '0', MOVE_MOST)) do
  moved = true
  local h = on(TAG .. 'host:' .. host, 'HMGET', 's', 'n')
  local s
  if h[1] or on(TAG .. 'back:' .. host, 'ZCARD') + on(TAG .. 'park:' .. host, 'LLEN') > 0 then
    s = activate(host, sane(h[2], now + YEAR_MS) or 0)
  else
    quarantine('asleep', host)
  end
  if s ~= 'a' then redis.call('ZREM', TAG .. 'asleep', host) end  -- a late completion may have moved its clock
end

for _, text in ipairs(on(TAG .. 'wait', 'ZRANGEBYSCORE', '-inf', string.format('%d', now), 'LIMIT', '0', MOVE_MOST)) do
  moved = true
  local host, score, entry = string.match(text, '^([^\t]+)\t(%d+)\t(.*)$')
  if host and is_entry(entry) then
    back_put(host, score_in_back(score, entry), entry)
    local s, _, next_ms, kept = state_of(host)
    if not s then activate(host, next_ms, kept) end
    if s == 'b' then rouse(host, next_ms) end
  else
    quarantine('wait', text)
  end
  redis.call('ZREM', TAG .. 'wait', text)
end

promote(num(ARGV[6]), num(ARGV[7]))

-- A host at the top of `ready` that gets no lease now goes where its URLs and its clock say.
local function move(host, h, next_ms)
  moved = true
  if not h.s and on(TAG .. 'back:' .. host, 'ZCARD') == 0 then quarantine('ready', host) end
  if (h.f or 0) > 0 then
    on(TAG .. 'host:' .. host, 'HSET', 's', 'f')
    redis.call('ZREM', TAG .. 'ready', host)
  elseif settle(host, h, next_ms, 1, now + 1, h.paused > now) ~= 'r' then
    redis.call('ZREM', TAG .. 'ready', host)
  end
end

local leases, leased, expiries, gone = {}, {}, {}, {}
local expiry = string.format('%d', now + num(ARGV[4]))
local latest = now + num(ARGV[5])
local budget = {left = 2 * MOVE_MOST}
for _, host in ipairs(on(TAG .. 'ready', 'ZRANGEBYSCORE', '-inf', string.format('%d', latest), 'LIMIT', '0', math.min(num(ARGV[3]), 1000))) do
  local h = look(host)
  local next_ms = math.max(h.next, h.paused)
  local in_flight = h.f or 0
  local entry, score, list, o
  if in_flight < h.most and next_ms <= latest then
    entry, score, list, o = choose(host, h, latest, budget)
  end
  if not entry then
    move(host, h, next_ms)
  else
    local token = ARGV[1] .. ':' .. ARGV[2] .. ':' .. (#leases + 1)
    local n = #leased
    leased[n + 1], leased[n + 2] = token, host .. '\t' .. score_text(score) .. '\t' .. entry
    expiries[n + 1], expiries[n + 2] = expiry, token
    leases[#leases + 1] = row(token, host, h, entry, o)
    h.host, h.entry, h.list, h.trouble = host, entry, list, o
    gone[#gone + 1] = h
  end
end
if #leases > 0 then
  on(TAG .. 'leased', 'HSET', unpack(leased))
  on(TAG .. 'leases', 'ZADD', unpack(expiries))
  local in_flight = {}
  for _, h in ipairs(gone) do
    local host, o = h.host, h.trouble
    local key = TAG .. 'host:' .. host
    local size = (h.f or 0) + 1
    if h.most == 1 then
      if h.f then on(key, 'HSET', 's', 'f', 'f', size) else on(key, 'HSET', 's', 'f') end
      in_flight[#in_flight + 1] = host
    else  -- its delay is from start to start
      local n = string.format('%d', math.max(h.next, now) + delay_of(h, num(ARGV[9]), num(ARGV[10]), num(ARGV[11])))
      on(key, 'HSET', 'f', size, 'n', n, 's', size < h.most and 'r' or 'f')
      if size < h.most then redis.call('ZADD', TAG .. 'ready', n, host) else in_flight[#in_flight + 1] = host end
      if o and (o.f or 0) > 0 then  -- one of them finds out
        o.u = now + num(ARGV[4])
        save(host, h.b)
      end
    end
    if h.list then redis.call('LPOP', h.list) else redis.call('ZREM', TAG .. 'back:' .. host, h.entry) end
  end
  if #in_flight > 0 then redis.call('ZREM', TAG .. 'ready', unpack(in_flight)) end
end
-- Where there is nothing to lease, what `tails` names without reason would keep the crawl from its end.
if #leases == 0 and heads == 0 then
  local size = on(TAG .. 'tails', 'HLEN')
  for _, q in ipairs(size > 0 and size <= MOVE_MOST and redis.call('HKEYS', TAG .. 'tails') or NONE) do
    if on(TAG .. q .. ':tail', 'LLEN') + on(TAG .. q .. ':chunks', 'LLEN') == 0 then
      quarantine('tails', q)
      size = size - redis.call('HDEL', TAG .. 'tails', q)
    end
  end
  tails = size
end
local queues = {}
if num(ARGV[12]) > 0 then
  for _, q in ipairs(on(TAG .. 'chores', 'ZRANGEBYSCORE', '-inf', string.format('%d', now), 'LIMIT', '0', ARGV[12])) do
    if string.find(q, '^front:%d$') or string.find(q, '^park:[\33-\126]+$') then
      queues[#queues + 1] = q
      redis.call('ZADD', TAG .. 'chores', string.format('%d', now + CHORE_MS), q)
    else
      quarantine('chores', q)
      redis.call('ZREM', TAG .. 'chores', q)
    end
  end
end
-- An answer of nothing leaves no record: the same call may come again, unless it was sent twice.
if is_again or moved or #leases > 0 or #queues > 0 or has_counted() then
  finish()
  answer('l', #leases)
end
return reply(leases, queues)
