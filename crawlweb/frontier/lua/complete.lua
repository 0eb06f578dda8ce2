-- complete: how leases ended. A release is one of the ways.
-- uses: time common pack host cold place trouble reclaim records
--
-- ARGV[3]  minimum delay ms    ARGV[4] delay = at least this factor * average latency    ARGV[5] most ms of that latency part
-- ARGV[6]  msgpack [[token, host, way, age, latency, wait, arg, robots, signs, page], ...]; token '': news of a host, without a lease
--            age      ms since the request ended; -1: nothing was sent, the clock stays
--            latency  ms from request to first byte; -1: no sample
--            wait     ms: not before; meaning by way
--            way      d done · x dead letter (arg reason) · q not ours (arg what)
--                     l released: back to its exact place; the host rests for `wait`
--                     w released: the URL waits for `wait` by itself
--                     r failed: one failure more, the URL waits for `wait`; arg [most failures, reason]
--                     o its origin failed, not the URL: first to be tried when the origin is (signs.o must be there)
--                     n robots.txt disallows it; arg [more entries of the host's back queue that it disallows]
--            robots   false or [origin, value, ms it lives, crawl-delay ms (-1: none), [sitemaps]]
--            signs    false or a map
--                     o  its origin failed: [reason, first gap, most gap, jitter factor, Retry-After, dead after, ms dead, give-up ms,
--                        1: struggling, 1: URLs wait] (trouble.lua)
--                     at origin, if it is not the entry's    p  push-back: [first gap ms, most gap ms, jitter factor, Retry-After
--                        ms, Retry-After that is too long to wait for (-1: none), reason]: the host is dead so long
--                     s  [origin, ms]: its robots.txt could not be had, the copy that is kept holds so long
--                     e  the error in words, for the dead letter
--                     h  [origin, value, ms it lives]: where its robots.txt redirects to
--                     x  error pages of the host (host.lua: e): one of g, or of a probe t and p or t alone, which replaces what the last one got
--                     c  ms: the server saw the end so much later, since we closed the connection
--                     k  a good page: 0; one that looks like a refusal: [first rest ms, most rest ms, give-up ms (-1: never), ms dead]
--            page     false or [key, record] (records.lua); kept when its URL is done or dead, not if the lease is gone: somebody else may have
--                     the URL, and then tells
-- ARGV[7]  1: told before, to a server that may have lost it: a lease that is gone has ended; only clocks move on, and robots.txt and page are kept
-- Returns  a letter for each: k done as asked, x a dead letter now, g the lease was gone (only what is known of host and origin changed)
-- Holds    next-allowed = end of the request + max(minimum, crawl-delay, factor * latency), and never moves back; an override replaces
--          what is in the parentheses

local ORIGINS_DELAYED = 64           -- origins of a host whose crawl-delay is kept, the largest ones
local DELAY_KEPT_MS = 30 * 86400000
local REFUSALS = 800000              -- share of refusals, in millionths, that means it; the average runs over about ten pages
local REST_DOUBLINGS = 8
local KEPT = '{"v":2,'                -- what a robots.txt that is kept begins with (policy/robots.py)
local SHAPES_MOST = 4                 -- error pages of a host that are known
local SHAPE_BYTES = 9
local KNOWN_BYTES = 500              -- of names of origins that had pages

pass_when_full()
local old = answered('c')
if old ~= nil then return old or redis.error_reply('STALE') end
local min_ms, factor, latency_cap_ms = num(ARGV[3]), num(ARGV[4]), num(ARGV[5])
local ops = cmsgpack.unpack(ARGV[6])
local ARG = {d = false, x = 'string', q = 'string', l = false, w = false, r = 'table', o = false, n = 'table'}
for _, op in ipairs(ops) do
  local kind = ARG[op[3]]
  local signs = type(op[9]) == 'table' and op[9]
  if kind == nil or (kind and type(op[7]) ~= kind) or (op[3] == 'o' and not (signs and signs.o)) then
    return redis.error_reply('ERR no such way to end a lease: ' .. tostring(op[3]))
  end
  local x = signs and signs.x
  if x and (type(x) ~= 'string' or #x == 0 or #x > 2 * SHAPE_BYTES or #x % SHAPE_BYTES ~= 0) then return redis.error_reply('ERR no error pages') end
  local page = op[10]
  if page and (type(page) ~= 'table' or type(page[1]) ~= 'string' or #page[1] ~= 8 or type(page[2]) ~= 'string') then
    return redis.error_reply('ERR no such record of a page')
  end
end
local function put(set, name, value)
  local n = #set
  set[n + 1], set[n + 2] = name, value
end
local function ms(value) return string.format('%d', value) end

-- The largest crawl-delay of a host's origins, after one of them told its own (-1: none).
local function keep_crawl_delay(h, set, origin, delay_ms)
  local delays = unpacked(h.cd) or {}
  if delay_ms < 0 and not delays[origin] then return end
  delays[origin] = delay_ms >= 0 and {delay_ms, now} or nil
  local largest, size, smallest = 0, 0, nil
  for name, row in pairs(delays) do
    local delay, at = num(row[1]) or 0, num(row[2]) or 0
    if at + DELAY_KEPT_MS < now then
      delays[name] = nil
    else
      size, largest = size + 1, math.max(largest, delay)
      if not smallest or delay < (num(delays[smallest][1]) or 0) then smallest = name end
    end
  end
  if size > ORIGINS_DELAYED then delays[smallest] = nil end
  h.c = largest
  put(set, 'c', ms(largest))
  put(set, 'cd', cmsgpack.pack(delays))
end

-- Error pages that a host was found to have, before those that it had.
local function keep_error_pages(h, set, found)
  local kept, shapes = {found}, (#found > SHAPE_BYTES or string.sub(found, 1, 1) ~= 't') and 1 or 0
  local is_probe = string.sub(found, 1, 1) == 't'
  local has_time = is_probe
  for at = 1, #(h.e or '') - SHAPE_BYTES + 1, SHAPE_BYTES do
    local row = string.sub(h.e, at, at + SHAPE_BYTES - 1)
    local kind = string.sub(row, 1, 1)
    if kind == 't' and not has_time then
      kept[#kept + 1], has_time = row, true
    elseif (kind == 'g' or (kind == 'p' and not is_probe)) and row ~= string.sub(found, -SHAPE_BYTES) and shapes < SHAPES_MOST then
      kept[#kept + 1], shapes = row, shapes + 1
    end
  end
  put(set, 'e', table.concat(kept))
end

-- An origin had a page.
local function keep_origin(host, h, set, origin)
  local kept = h.v or '|'
  origin = short_origin(host, origin)
  if origin == '' or string.find(kept, '|' .. origin .. '|', 1, true) then return end
  if #kept > KNOWN_BYTES then kept = string.match(kept, '^|[^|]*(|.*)$') or '|' end
  put(set, 'v', kept .. origin .. '|')
end

-- Is this one page more of a site that has blocked us? Then ms that the host rests; may set it dead.
local function refused_ms(h, set, page)
  local refused = page == 0 and 0 or 1
  local pages, share, since, times = string.match(h.h or '', '^(%d*) ?(%d*) ?(%d*) ?(%d*)$')
  pages, share, since, times = num(pages) or 0, num(share) or 0, num(since) or 0, num(times) or 0
  if refused == 0 and pages >= PAGES_KNOWN and share == 0 then return 0 end
  local rest_ms = 0
  share = math.floor(share * 0.9) + refused * 100000
  if refused == 0 then
    pages, since, times = math.min(pages + 1, PAGES_KNOWN), 0, 0
    if share < 1000 then share = 0 end
  elseif pages >= PAGES_KNOWN and share >= REFUSALS then
    since = since > 0 and since or now
    local first_ms, most_ms, give_up_ms, dead_ms = unpack(page)
    rest_ms = math.min(first_ms * 2 ^ math.min(times, REST_DOUBLINGS), most_ms)
    times = times + 1
    if times == 1 then count('blocked') end
    if give_up_ms >= 0 and now - since >= give_up_ms then
      put(set, 'x', ms(now + dead_ms))
      put(set, 'xr', 'blocked')
    end
  end
  put(set, 'h', ms(pages) .. (share > 0 and ' ' .. ms(share) .. ' ' .. ms(since) .. ' ' .. ms(times) or ''))
  return rest_ms
end

local out, tokens_of, ended, held = {}, {}, {}, {}
for i, op in ipairs(ops) do tokens_of[i] = op[1] end
in_thousands(tokens_of, function(...)
  for _, text in ipairs(on(TAG .. 'leased', 'HMGET', ...)) do held[#held + 1] = text end
end)
for i, op in ipairs(ops) do
  local token, host, way, age, latency, wait, arg, robots, signs, page = unpack(op, 1, 10)
  signs = signs or {}
  local key = TAG .. 'host:' .. host
  local h = look(host)
  take_up(host, h)
  local next_ms, rest_ms, set = h.next, 0, {}
  local found, score, entry = read_lease(not ended[token] and held[i])
  local is_held = found == host
  local is_known = ARGV[7] == '1' and not is_held
  if is_known then latency, signs = -1, {h = signs.h, s = signs.s, x = signs.x, c = signs.c} end
  if signs.h then on(TAG .. 'hop:' .. signs.h[1], 'SET', signs.h[2], 'PX', math.max(1, signs.h[3])) end
  if robots then
    on(TAG .. 'robots:' .. robots[1], 'SET', robots[2], 'PX', math.max(1, robots[3]))
    redis.call('DEL', TAG .. 'stale:' .. robots[1], TAG .. 'hop:' .. robots[1])
    keep_crawl_delay(h, set, robots[1], robots[4])
    if robots[5] and #robots[5] > 0 then on(TAG .. 'sitemaps:' .. host, 'SADD', unpack(robots[5])) end
  end
  if signs.s then on(TAG .. 'stale:' .. signs.s[1], 'SET', '1', 'PX', math.max(1, signs.s[2])) end
  if latency >= 0 then
    h.l = h.l and math.floor(h.l + (latency - h.l) / 4 + 0.5) or latency
    put(set, 'l', h.l)
  end
  local gap_ms = 0
  local origin = signs.at or (robots and robots[1]) or (is_held and origin_of(host, entry)) or ''
  if signs.o and signs.o[1] == 'robots_elsewhere' and on(TAG .. 'robots:' .. origin, 'GETRANGE', 0, #KEPT - 1) == KEPT then
    signs.o, way = nil, 'l'  -- the news was faster
  end
  if signs.o and origin ~= '' then
    rest_ms = origin_failed(host, h, origin, signs.o, signs.e)
    save(host, h.b)
  elseif (age >= 0 or token == '') and not signs.p and not signs.s and not signs.h and h.b and h.b[origin] then
    gap_ms = origin_answered(host, h.b, origin, min_ms)
    save(host, h.b)
    if not next(h.b) then h.b = nil end
  end
  if signs.p then
    local gap = math.min(signs.p[2], math.max(signs.p[1], (h.p or 0) * 2))
    put(set, 'p', ms(gap))
    local push_ms = math.max(signs.p[4], math.floor(gap * signs.p[3]))
    if signs.p[5] >= 0 and signs.p[4] > signs.p[5] then
      put(set, 'x', ms(now + push_ms))
      put(set, 'xr', signs.p[6])
    else
      rest_ms = math.max(rest_ms, push_ms)
    end
  elseif h.p and age >= 0 and not signs.o then
    local gap = math.floor(h.p / 2)
    gap_ms = math.max(gap_ms, gap)
    if gap < min_ms then on(key, 'HDEL', 'p') else put(set, 'p', ms(gap)) end
  end
  if age >= 0 then
    if not is_known then count('requests') end
    local delay_ms = math.max(delay_of(h, min_ms, factor, latency_cap_ms), gap_ms)
    if h.most == 1 then next_ms = math.max(next_ms, now - age + (signs.c or 0) + delay_ms) end
    if h.x and not signs.o and not signs.p then on(key, 'HDEL', 'x', 'xr') end
  end
  if signs.x then keep_error_pages(h, set, signs.x) end
  if signs.k == 0 then keep_origin(host, h, set, origin) end
  if signs.k then rest_ms = math.max(rest_ms, refused_ms(h, set, signs.k)) end
  if is_held then
    out[#out + 1] = 'k'
    if way == 'd' then
      count('done')
    elseif way == 'n' then
      count('done')
      for _, other in ipairs(arg) do
        if on(TAG .. 'back:' .. host, 'ZREM', other) == 1 then count('done') end
      end
      put(set, 'd', 1)
    elseif way == 'x' then
      dead_letter(host, entry, arg, signs.e)
      out[#out] = 'x'
    elseif way == 'q' then
      quarantine(arg, entry)
      count('done')
    elseif way == 'w' then
      on(TAG .. 'wait', 'ZADD', ms(now + wait), host .. '\t' .. score_text(score) .. '\t' .. entry)
    elseif way == 'r' then
      entry = bump(entry, 2)
      if digit(entry, 2) >= arg[1] then
        dead_letter(host, entry, arg[2], signs.e)
        out[#out] = 'x'
      else
        on(TAG .. 'wait', 'ZADD', ms(now + wait), host .. '\t' .. score_text(score) .. '\t' .. entry)
      end
    elseif way == 'o' and rest_ms == 0 then
      on(wait_list(host, origin), 'LPUSH', score_text(score) .. '\t' .. entry)
    else
      back_put(host, score, entry)
      if way == 'l' then rest_ms = math.max(rest_ms, wait) end
    end
    if page and (way == 'd' or out[#out] == 'x') then keep_page(page[1], page[2], false) end
    ended[token] = true
    ended[#ended + 1] = token
    if h.d and way ~= 'n' then on(key, 'HDEL', 'd') end
    if rest_ms > 0 then next_ms = math.max(next_ms, now + rest_ms) end
    local left = (h.q or 0) - (age >= 0 and 1 or 0)
    put(set, 'n', ms(next_ms))
    put(set, 'q', left)
    land(host, h, next_ms, left, rest_ms > 0, set)
  else
    if page and is_known then keep_page(page[1], page[2], true) end
    out[#out + 1] = token == '' and 'k' or 'g'
    if token ~= '' and not is_known then count('late') end
    if rest_ms > 0 then next_ms = math.max(next_ms, now + rest_ms) end
    if age >= 0 or rest_ms > 0 or #set > 0 then
      put(set, 'n', ms(next_ms))
      on(key, 'HSET', unpack(set))
    end
    if h.s == 'b' then rouse(host, next_ms) end  -- its origin may have answered
  end
  if not h.s or h.s == 'w' then stow_again(host) end
end
end_leases(ended)
finish()
return answer('c', table.concat(out))
