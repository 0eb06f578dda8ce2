-- Origins in trouble. Uses common, host, place.
--
-- TLS, DNS, server errors and robots.txt that cannot be had belong to an origin: its URLs wait, the host goes on with those of other origins. A
-- short trouble of a host that has nothing else to do (no URL of another origin soon, none that had pages) rests the host instead, so that not
-- every URL of it is moved.

local ORIGINS_MOST = 64              -- origins in trouble that a host keeps in mind, but those with URLs that wait
local SOFT_REST_MS = 20000           -- a rest of the host, not longer than this and
local SOFT_FAILURES = 3              -- not oftener in a row
local VISIBLE = 16                   -- URLs at the head of a back queue that are looked at for another origin
local DEAD_MOST_MS = 86400000

local function save(host, b)
  local key, size, oldest = TAG .. 'host:' .. host, 0, nil
  for origin, o in pairs(b) do
    size = size + 1
    if (not oldest or (o.u or 0) < (b[oldest].u or 0)) and on(wait_list(host, origin), 'LLEN') == 0 then oldest = origin end
  end
  if size > ORIGINS_MOST and oldest then b[oldest] = nil end
  if next(b) then on(key, 'HSET', 'b', cmsgpack.pack(b)) else on(key, 'HDEL', 'b') end
end

-- Has the host anything else to do? Then it goes on.
local function has_other_origin(host, h, origin)
  if h.v and h.v ~= '|' .. short_origin(host, origin) .. '|' then return true end
  for _, entry in ipairs(on(TAG .. 'back:' .. host, 'ZRANGE', 0, VISIBLE - 1)) do
    if is_entry(entry) and origin_of(host, entry) ~= origin then return true end
  end
end

-- An origin answered. Returns ms that the host's gap should have at least after it.
local function origin_answered(host, b, origin, min_ms)
  local o = b[origin]
  local blocked = (o.u or 0) > 0
  o.f, o.s, o.d, o.m, o.g = 0, nil, 0, 0, o.p == 1 and math.floor((o.g or 0) / 2) or 0
  if o.g < min_ms then o.g = 0 end
  o.u = blocked and o.g > 0 and now + o.g or 0
  if o.g == 0 and on(wait_list(host, origin), 'LLEN') == 0 then b[origin] = nil end
  return blocked and 0 or o.g
end

-- An origin failed. `how`: {reason, first gap ms, most gap ms, jitter factor, Retry-After ms, dead after so many in a row (0: never), ms dead,
-- ms of trouble after which it is given up (-1: never), 1: it is struggling, so the gap stays and is halved by every answer, 1: dead by tries,
-- its URLs that have no other spelling wait}. Returns ms that the host rests; 0: the origin is blocked, or dead.
local function origin_failed(host, h, origin, how, cause)
  h.b = h.b or {}
  local o = h.b[origin] or {}
  h.b[origin] = o
  o.f, o.s, o.r, o.p = (o.f or 0) + 1, o.s or now, how[1], how[9]
  o.e = cause
  o.g = math.min(how[3], math.max(how[2], (o.g or 0) * 2))
  local rest_ms = math.max(how[5], math.floor(o.g * how[4]))
  local given_up = how[8] >= 0 and (now - o.s >= how[8] or how[5] > how[8])
  if given_up or (how[6] > 0 and o.f >= how[6]) then
    o.y = not given_up and how[10] or nil
    o.m = (o.m or 0) + 1
    o.d = now + math.max(rest_ms, math.min(how[7] * 2 ^ (o.m - 1), DEAD_MOST_MS))
    o.u = 0
    return 0
  end
  if o.f <= SOFT_FAILURES and rest_ms <= SOFT_REST_MS and not has_other_origin(host, h, origin) then
    o.u = 0
    return rest_ms
  end
  o.u = now + rest_ms
  return 0
end

-- The other spelling of a plain entry that a dead origin may be reached by: http for https where TLS fails or nobody listens, with or without
-- `www.` where the name does not exist. nil: there is none, or this was it.
local SCHEME = {['/'] = '-/', ['-/'] = '/', ['+/'] = '*/', ['*/'] = '+/'}
local WWW = {['/'] = '+/', ['-/'] = '*/', ['+/'] = '/', ['*/'] = '-/'}
local function sibling_of(entry, reason)
  local head, sign, rest, referrer = string.match(entry, '^([^\t]*\t[^\t]*\t)([-+*]?/)([^\t]*)\t([^\t]*)\t$')
  if head then
    local other = (reason == 'dns_nxdomain' and WWW or SCHEME)[sign]
    return head .. other .. rest .. '\t' .. referrer .. '\t{"s":2}'
  end
  local scheme
  head, scheme, rest, referrer = string.match(entry, '^([^\t]*\t[^\t]*\t)(https?)://([^\t]*)\t([^\t]*)\t$')
  if head and reason ~= 'dns_nxdomain' and not string.find(rest, '^[^/?#]*:%d') then
    return head .. (scheme == 'http' and 'https' or 'http') .. '://' .. rest .. '\t' .. referrer .. '\t{"s":2}'
  end
end

local SPELLED = {tls = true, connect_refused = true, dns_nxdomain = true}

-- A URL of a dead origin: its other spelling is queued, or it waits, or it is a dead letter.
local function give_up(host, b, score, entry, o)
  local other = SPELLED[o.r] and sibling_of(entry, o.r)
  local there = other and b[origin_of(host, other)]
  if other and not (there and (there.d or 0) > now) then
    back_put(host, score, other)
    count('siblings')
  elseif o.y == 1 then
    on(TAG .. 'wait', 'ZADD', string.format('%d', o.d), host .. '\t' .. score_text(score) .. '\t' .. entry)
  else
    dead_letter(host, entry, o.r or 'dead', o.e)
  end
end

-- A score of ours; for another, one as if the entry were new.
local function score_in_back(text, entry)
  local score = sane(text, SCORES)
  if score then return score end
  seq = seq + 1
  return score_of(entry, seq)
end

-- The next URL of a host: entry, score, the list it stands in if it waited for its origin, its origin's trouble. nil: none may be fetched before
-- `latest`. URLs of blocked origins are moved out of the way, those of dead ones out of the crawl: one at least, else as many as `budget.left`.
local function choose(host, h, latest, budget)
  local back, moved = TAG .. 'back:' .. host, 0
  local dead_host = (h.x or 0) > now and {d = h.x, r = h.xr}
  if not h.b and not dead_host then  -- nearly always
    local best = on(back, 'ZRANGE', '0', '0', 'WITHSCORES')
    if best[1] and is_entry(best[1]) then return best[1], score_in_back(best[2], best[1]) end
  end
  local function may_move()
    moved, budget.left = moved + 1, budget.left - 1
    return moved == 1 or budget.left >= 0
  end
  for origin, trouble in pairs(h.b or {}) do
    local list, o = wait_list(host, origin), dead_host or trouble
    while (o.d or 0) > now or (o.u or 0) <= latest do
      local text = on(list, 'LINDEX', 0)
      if not text then break end
      local score, entry = string.match(text, '^(%d+)\t(.*)$')
      local is_ours = score and is_entry(entry)
      if is_ours and (o.d or 0) <= now then return entry, score_in_back(score, entry), list, o end
      if not may_move() then return nil end
      if is_ours then give_up(host, h.b, num(score), entry, o) else quarantine(list, text) end
      redis.call('LPOP', list)
    end
  end
  while true do
    local best = on(back, 'ZRANGE', '0', '0', 'WITHSCORES')
    if not best[1] and refill(host) then best = redis.call('ZRANGE', back, 0, 0, 'WITHSCORES') end
    if not best[1] then return nil end
    local entry = best[1]
    local is_ours = is_entry(entry)
    local score = is_ours and score_in_back(best[2], entry)
    local origin = is_ours and h.b and origin_of(host, entry)
    local o = dead_host or (origin and h.b[origin])
    local dead, blocked = o and (o.d or 0) > now, o and (o.u or 0) > latest
    if is_ours and not dead and not blocked then return entry, score, nil, o end
    if not may_move() then return nil end
    if not is_ours then
      quarantine(back, entry)
    elseif dead then
      give_up(host, h.b or {}, score, entry, o)
    else
      on(wait_list(host, origin), 'RPUSH', score_text(score) .. '\t' .. entry)
    end
    redis.call('ZREM', back, entry)
  end
end
