-- Where URLs and hosts are put. Uses common, pack, host, cold.

-- Into the back queue at a score; true if it was not there. An entry that stands there already is one URL less, at the better place.
local function back_add(host, score, entry)
  if on(TAG .. 'back:' .. host, 'ZADD', 'LT', score_text(score), entry) == 1 then return true end
  count('done')
  count('merged')
end

-- Moves the worst of the back queue to the head of the park list.
local function displace(host)
  local back = TAG .. 'back:' .. host
  local worst = redis.call('ZRANGE', back, -1, -1)[1]
  on(TAG .. 'park:' .. host, 'LPUSH', worst)
  redis.call('ZREM', back, worst)
end

-- Into the back queue at a score; if that was full, its worst URL is parked.
local function back_put(host, score, entry)
  if back_add(host, score, entry) and redis.call('ZCARD', TAG .. 'back:' .. host) > BACK_CAP then displace(host) end
end

-- Fills the back queue up from the park list; true if the back queue has anything after. The second result: true if the host's next URLs are
-- on disk.
local function refill(host)
  local q = 'park:' .. host
  local back, park = TAG .. 'back:' .. host, TAG .. q
  local size, more, cold = on(back, 'ZCARD'), nil, false
  while size < BACK_CAP do
    local some = on(park, 'LRANGE', 0, BACK_CAP - size - 1)
    if #some == 0 then
      more, cold = thaw(q)
      if not more then break end
    end
    for _, entry in ipairs(some) do
      if is_entry(entry) then
        seq = seq + 1
        if back_add(host, score_of(entry, seq), entry) then size = size + 1 end
      else
        quarantine(park, entry)
      end
    end
    if #some > 0 then redis.call('LTRIM', park, #some, -1) end
  end
  if tails > 0 and not cold then foresee(q, on(park, 'LLEN')) end
  return size > 0, cold
end

-- At the end of the host's park list; with the others at `park_rest` where `room` has a list `rest`.
local function to_park(host, entry, room)
  if room.rest then room.rest[#room.rest + 1] = entry else append('park:' .. host, entry) end
end

local function park_rest(host, room)
  if #room.rest > 0 then append_all('park:' .. host, room.rest) end
end

-- The score of the last in a back queue; nil: it is empty.
local function worst_in(back) return num(on(back, 'ZRANGE', '-1', '-1', 'WITHSCORES')[2]) end

-- Adds a URL to a host that has an active place. `number`: its sequence number. `room`: cached sizes of the host's queues, filled here.
local function add_to_active(host, entry, number, room)
  local back = room.back
  if not back then
    back = TAG .. 'back:' .. host
    room.back, room.parked = back, on(TAG .. 'park:' .. host, 'LLEN')
    if room.parked > 0 then
      room.worst = worst_in(back)
      if not room.worst then
        refill(host)
        room.parked = redis.call('LLEN', TAG .. 'park:' .. host)
      end
    end
  end
  local score = score_of(entry, number)
  if room.parked == 0 then room.size = room.size or on(back, 'ZCARD') end
  if room.parked > 0 or room.size >= BACK_CAP then
    room.worst = room.worst or worst_in(back)
    if room.worst and score >= room.worst then
      to_park(host, entry, room)
      room.parked = room.parked + 1
      return
    end
  end
  room.size = room.size or on(back, 'ZCARD')
  if back_add(host, score, entry) then
    room.size, room.worst = room.size + 1, nil
    if room.size > BACK_CAP then
      displace(host)
      room.size, room.parked = room.size - 1, room.parked + 1
    end
  end
end

-- A host token at the end of a front queue; `entry`: the URL that travels inline, or ''. Returns its serial.
local function push_token(host, k, entry)
  seq = seq + 1
  tokens = tokens + 1
  local serial = string.format('%d', seq)
  append('front:' .. k, host .. '\t' .. serial .. '\t' .. entry)
  return serial
end

-- Gives a host with URLs in its back queue an active place, or lets it sleep. `kept`: its fields, if they are of its record. Returns its state.
local function activate(host, next_ms, kept)
  local key = TAG .. 'host:' .. host
  local at = math.max(next_ms, now)
  local far = at - now > ASLEEP_MS
  on(TAG .. (far and 'asleep' or 'ready'), 'ZADD', string.format('%d', at), host)
  local s, until_ms = far and 'a' or 'r', string.format('%d', now + QUANTUM_MS)
  if kept then
    on(key, 'HSET', 's', s, 'q', QUANTUM_URLS, 'g', until_ms, unpack(kept))
    drop_record(host)
  else
    on(key, 'HSET', 's', s, 'q', QUANTUM_URLS, 'g', until_ms)
    redis.call('HDEL', key, 't', 'k')
    redis.call('PERSIST', key)
  end
  return s
end

-- Where a host goes whose turn is over: idle, back into a front queue, asleep or ready. `rests`: it was told to wait, which is more than its
-- delay. `set`: fields of the host to be written with its state. Returns the new state; nil: idle.
local function settle(host, h, next_ms, left, until_ms, rests, set)
  local key = TAG .. 'host:' .. host
  local far = next_ms - now > (rests and REST_MS or ASLEEP_MS)
  local best = on(TAG .. 'back:' .. host, 'ZRANGE', '0', '0', 'WITHSCORES')[2]
  local more, cold
  if not best then more, cold = refill(host) end
  if more then best = redis.call('ZRANGE', TAG .. 'back:' .. host, 0, 0, 'WITHSCORES')[2] end
  local blocked_ms = not best and first_wait(host, h.b)
  if not best and not blocked_ms and (h.others or 0) > 0 then
    on(key, 'HSET', 's', 'f', unpack(set or {}))
    return 'f'
  end
  if not best and cold then
    on(TAG .. 'asleep', 'ZADD', string.format('%d', math.max(next_ms, now + COLD_MS)), host)
    set = set or {}
    set[#set + 1], set[#set + 2] = 's', 'a'
    on(key, 'HSET', unpack(set))
    return 'a'
  end
  if not best and not blocked_ms then
    stow(host, set)
    return
  end
  if blocked_ms then
    local at = math.max(blocked_ms, next_ms)
    local s = at - now > REST_MS and 'b' or 'r'
    on(TAG .. (s == 'b' and 'asleep' or 'ready'), 'ZADD', string.format('%d', at), host)
    set = set or {}
    set[#set + 1], set[#set + 2] = 's', s
    on(key, 'HSET', unpack(set))
    return s
  end
  if tokens > 0 and (left <= 0 or now >= until_ms) and not far then
    local k = math.max(0, math.min(9, math.floor(num(best) / PRIORITY_STEP)))  -- of the score: the entry may not be ours
    k = string.format('%d', k)
    stow(host, set, k, push_token(host, k, ''))
    return 'w'
  end
  local s = far and 'a' or 'r'
  on(TAG .. (s == 'a' and 'asleep' or 'ready'), 'ZADD', string.format('%d', next_ms), host)
  set = set or {}
  set[#set + 1], set[#set + 2] = 's', s
  on(key, 'HSET', unpack(set))
  return s
end

-- A host that sleeps only because all its URLs are of blocked origins has a place among the active ones again.
local function rouse(host, next_ms)
  if activate(host, next_ms) == 'r' then redis.call('ZREM', TAG .. 'asleep', host) end
end

-- A lease of the host ended: it goes where its URLs and its clock say, unless it has as many others in flight as it may, or has a place.
local function land(host, h, next_ms, left, rests, set)
  local others = (h.f or 1) - 1
  if h.f then
    set[#set + 1], set[#set + 2] = 'f', others
    h.others = others
  end
  if (h.s == 'f' or not h.s) and others < h.most then
    settle(host, h, next_ms, left, h.g or 0, rests, set)
    return
  end
  on(TAG .. 'host:' .. host, 'HSET', unpack(set))
  if h.s == 'r' then redis.call('ZADD', TAG .. 'ready', 'XX', string.format('%d', next_ms), host) end
  if h.s == 'b' then rouse(host, next_ms) end
end

-- A host whose token was pushed waits. `h`: see place_new.
local function wait(host, h, k, serial)
  if h[4] then
    write_record(host, string.match(h[4], '\t(.*)$') or '', k, serial)
  else
    on(TAG .. 'host:' .. host, 'HSET', 's', 'w', 't', serial, 'k', k)
    if not h[1] and h[3] then redis.call('PERSIST', TAG .. 'host:' .. host) end
  end
  h[1], h[2] = 'w', k
end

-- A URL that is new here, or back from the dead. `h`: what `glance` says of the host, kept up to date; `room`: see add_to_active.
local function place_new(host, h, room, entry)
  local k = string.sub(entry, 1, 1)
  if not h[1] then
    wait(host, h, k, push_token(host, k, entry))
  elseif h[1] ~= 'w' then
    seq = seq + 1
    add_to_active(host, entry, seq, room)
    if h[1] == 'b' then
      rouse(host, num(h[3]) or 0)
      h[1] = 'r'
    end
  elseif k < h[2] then
    seq = seq + 1
    back_put(host, score_of(entry, seq), entry)
    wait(host, h, k, push_token(host, k, ''))
  else
    to_park(host, entry, room)
  end
end
