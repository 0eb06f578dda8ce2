-- A host's hash, read at once. Uses common, pack.
--
-- host:<host>, while the host has an active place (a host that waits or is idle: pack.lua). Fields:
--   s  state: w waiting, r ready, f in flight, a asleep, b asleep because all its URLs are of blocked origins; none: no URL but in `wait`
--   t  serial of its token           k  the token's front queue
--   n  next-allowed ms               q, g  URLs left and end ms of its quantum
--   f  leases in flight, where it may have several
--   l  average latency ms            c  largest crawl-delay ms of its origins    cd  msgpack: origin → {crawl-delay ms, since ms}
--   p  gap ms after push-back (429), halved by every answer
--   b  msgpack: origins in trouble → {u blocked until ms, f failures in a row, s ms of the first of them, g gap ms, d dead until ms,
--      m times dead, r reason, e last error, p 1: struggling, y 1: its URLs wait}
--   h  how it looks: pages, and if there were refusals, their share in millionths, since ms, times: a site that has blocked us (complete)
--   v  origins that had pages (short_origin), `|` around each: the last few that were new
--   e  error pages of the host, 9 bytes each: g or p and a shape, of a real one or what a probe got, the last few; t and in 8 digits the hour
--      since 1970 of the last probe (complete)
--   x  dead until ms                 xr  why
--   d  1: robots.txt disallowed its last URL, so leases show what comes next
--   o  overrides: `delay-ms concurrency pause-until-ms below-minimum`, - for none

local PAGES_KNOWN = 5  -- good pages after which a host is known: refusals can mean that it has blocked us

local STATES = {w = true, r = true, f = true, a = true, b = true}
local FLIGHTS_MOST = 10000

-- A map of maps or lists packed by us; nil for anything else.
local function unpacked(text)
  if not text then return nil end
  local fine, map, more = pcall(cmsgpack.unpack, text)
  if not fine or more ~= nil or type(map) ~= 'table' then return nil end
  for name, row in pairs(map) do
    if type(name) ~= 'string' or type(row) ~= 'table' then return nil end
    for _, value in pairs(row) do
      if type(value) ~= 'string' and not sane(value, 2 ^ 53) then return nil end
    end
  end
  return map
end

-- Origins in trouble (field b). Of what is not ours nothing is left but the origins whose URLs wait, as far as they can be guessed.
local NUMBERS = {'u', 'f', 's', 'g', 'd', 'm', 'p', 'y'}
local wait_list
local function troubles(host, text)
  local b = unpacked(text)
  for _, o in pairs(b or {}) do
    for _, name in ipairs(NUMBERS) do
      if o[name] ~= nil and type(o[name]) ~= 'number' then b = nil end
    end
    if b and (o.r ~= nil and type(o.r) ~= 'string' or o.e ~= nil and type(o.e) ~= 'string') then b = nil end
    if not b then break end
    if (o.u or 0) > now + YEAR_MS then o.u = 0 end
    if (o.d or 0) > now + YEAR_MS then o.d = 0 end
  end
  if b then return b end
  quarantine('host:' .. host .. ' b', text)
  b = {}
  for _, before in ipairs({'https://', 'http://', 'https://www.', 'http://www.'}) do
    if on(wait_list(host, before .. host), 'LLEN') > 0 then b[before .. host] = {} end
  end
  return b
end

-- `kept`: its fields, if they are of its record.
local function look(host)
  local values, h = on(TAG .. 'host:' .. host, 'HGETALL'), {}
  for i = 1, #values, 2 do h[values[i]] = values[i + 1] end
  if not h.s then
    local s, k, serial, body = read_record(host)
    if s then
      h.kept = read_fields(host, body)
      for i = 1, #h.kept, 2 do h[h.kept[i]] = h.kept[i + 1] end
      if s == 'w' then h.s, h.k, h.t = s, k, serial end
    end
  end
  local latest = now + YEAR_MS
  if h.s and not STATES[h.s] then
    quarantine('host:' .. host .. ' s', h.s)
    h.s = nil
  end
  h.n, h.q, h.g, h.l = sane(h.n, latest), num(h.q), num(h.g), sane(h.l, YEAR_MS)
  h.f, h.c, h.p, h.x = h.f and sane(h.f, FLIGHTS_MOST), h.c and sane(h.c, YEAR_MS), h.p and sane(h.p, YEAR_MS), h.x and sane(h.x, latest)
  if h.b then h.b = troubles(host, h.b) end
  h.next, h.most, h.paused = h.n or 0, 1, 0
  if h.o then
    local delay, most, paused, below = string.match(h.o, '^(%S+) (%S+) (%S+) (%S+)$')
    h.delay, h.paused, h.below = sane(delay, YEAR_MS), sane(paused, 2 ^ 53) or 0, below == '1'
    h.most = math.max(1, math.floor(sane(most, FLIGHTS_MOST) or 1))
  end
  return h
end

-- Gives a host that was looked at its hash again, if it has none. Whoever does and gives it no active place has it packed (stow_again).
local function take_up(host, h)
  if not h.kept then return end
  local set = h.kept
  for _, name in ipairs({'s', 'k', 't'}) do
    if h[name] then set[#set + 1], set[#set + 2] = name, h[name] end
  end
  if #set > 0 then redis.call('HSET', TAG .. 'host:' .. host, unpack(set)) end
  drop_record(host)
end

-- State, serial of its token, next-allowed time of a host; its fields, if they are of its record.
local function state_of(host)
  local h = on(TAG .. 'host:' .. host, 'HMGET', 's', 't', 'n')
  local next_ms = sane(h[3], now + YEAR_MS) or 0
  if h[1] and STATES[h[1]] then return h[1], h[2], next_ms end
  local s, _, serial, body = read_record(host)
  if not s then return nil, nil, next_ms end
  if h[3] then  -- a hash beside its record
    take_up(host, look(host))
    return s == 'w' and s or nil, serial, sane(on(TAG .. 'host:' .. host, 'HGET', 'n'), now + YEAR_MS) or 0
  end
  local kept = read_fields(host, body)
  for i = 1, #kept, 2 do
    if kept[i] == 'n' then next_ms = sane(kept[i + 1], now + YEAR_MS) or 0 end
  end
  return s == 'w' and s or nil, serial, next_ms, kept
end

-- What is to be known of a host to place a URL: {state, front queue, next-allowed time, its record ('': it has nothing)}.
local function glance(host)
  local h = on(TAG .. 'host:' .. host, 'HMGET', 's', 'k', 'n')
  if h[1] and STATES[h[1]] then return h end
  local text = record_of(host)
  if text and string.find(text, '^w%d%d+\t') then return {'w', string.sub(text, 2, 2), false, text} end
  if text and read_record(host, text) then return {false, false, false, text} end
  return h[3] and {false, false, h[3]} or {false, false, false, ''}
end

-- Least ms from the end of a request to the next.
local function delay_of(h, min_ms, factor, cap_ms)
  if h.delay then return math.max(h.delay, h.below and 0 or min_ms) end
  return math.ceil(math.max(min_ms, h.c or 0, math.min(factor * (h.l or 0), cap_ms)))
end

-- scheme://name[:port] of an entry, as its robots.txt is asked for.
local function origin_of(host, entry)
  local url = string.match(entry, '^[^\t]*\t[^\t]*\t([^\t]*)') or ''
  local sign = string.sub(url, 1, 1)
  if sign == '/' then return 'https://' .. host end
  if sign == '-' then return 'http://' .. host end
  if sign == '+' then return 'https://www.' .. host end
  if sign == '*' then return 'http://www.' .. host end
  return string.match(url, '^https?://[^/?#]*') or ''
end

-- An origin in few letters: the sign that its entries have in place of it, if there is one.
local function short_origin(host, origin)
  if origin == 'https://' .. host then return '/' end
  if origin == 'http://' .. host then return '-' end
  if origin == 'https://www.' .. host then return '+' end
  if origin == 'http://www.' .. host then return '*' end
  return origin
end

-- Where the URLs of a blocked origin wait, first to be tried first: `score \t entry`.
wait_list = function(host, origin)
  return TAG .. 'wait:' .. host .. ' ' .. origin
end

-- When the first of the URLs that wait for their origins may be tried; nil: none waits.
local function first_wait(host, b)
  local first
  for origin, o in pairs(b or {}) do
    if on(wait_list(host, origin), 'LLEN') > 0 then
      local at = (o.d or 0) > now and now or o.u or 0
      if not first or at < first then first = at end
    end
  end
  return first
end
