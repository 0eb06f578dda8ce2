-- Where URLs and hosts are put. Uses common.
--
-- host:<host> fields: s state (w waiting, r ready, f in flight, a asleep; none: no URL but in `wait`), t serial of its token, k the token's
-- front queue, n next-allowed ms, q URLs left and g end ms of its quantum, l average latency ms, c crawl-delay ms, e failures of the host
-- in a row, u ms since robots.txt cannot be had, x dead until ms, xr why.

-- Into the back queue at a score. An entry that stands there already is one URL less.
local function back_add(host, score, entry)
  if on(TAG .. 'back:' .. host, 'ZADD', 'NX', score_text(score), entry) == 0 then
    count('done')
    count('merged')
  end
end

-- Fills the back queue from the park list; true if the back queue has anything after.
local function refill(host)
  local back, park = TAG .. 'back:' .. host, TAG .. 'park:' .. host
  local some = on(park, 'LRANGE', 0, BACK_CAP - 1)
  if #some == 0 then return redis.call('EXISTS', back) == 1 end
  for _, entry in ipairs(some) do
    if is_entry(entry) then
      seq = seq + 1
      back_add(host, score_of(entry, seq), entry)
    else
      quarantine(park, entry)
    end
  end
  on(park, 'LTRIM', #some, -1)
  return redis.call('EXISTS', back) == 1
end

-- Adds a URL to a host that has an active place. `room`: cached state of its queues, made by this function.
local function add_to_active(host, entry, room)
  local back, park = TAG .. 'back:' .. host, TAG .. 'park:' .. host
  if not room.size then
    room.size, room.parked = on(back, 'ZCARD'), on(park, 'LLEN')
  end
  seq = seq + 1
  local score = score_of(entry, seq)
  if room.size < BACK_CAP and room.parked == 0 then
    back_add(host, score, entry)
    room.size = room.size + 1
    return
  end
  local worst = on(back, 'ZRANGE', -1, -1, 'WITHSCORES')
  if worst[2] and score < num(worst[2]) and room.size >= BACK_CAP then
    back_add(host, score, entry)
    on(park, 'LPUSH', worst[1])
    on(back, 'ZREM', worst[1])
  elseif room.size < BACK_CAP and worst[2] and score < num(worst[2]) then
    back_add(host, score, entry)
    room.size = room.size + 1
    return
  else
    on(park, 'RPUSH', entry)
  end
  room.parked = room.parked + 1
end

-- A host token at the end of a front queue; `entry`: the URL that travels inline, or ''.
local function push_token(host, k, entry)
  seq = seq + 1
  on(TAG .. 'front:' .. k, 'RPUSH', host .. '\t' .. string.format('%d', seq) .. '\t' .. entry)
  on(TAG .. 'host:' .. host, 'HSET', 's', 'w', 't', string.format('%d', seq), 'k', k)
  tokens = tokens + 1
end

-- Gives a host with URLs in its back queue an active place, or lets it sleep.
local function activate(host, next_ms)
  local key = TAG .. 'host:' .. host
  local at = math.max(next_ms, now)
  local far = at - now > ASLEEP_MS
  on(TAG .. (far and 'asleep' or 'ready'), 'ZADD', string.format('%d', at), host)
  on(key, 'HSET', 's', far and 'a' or 'r', 'q', QUANTUM_URLS, 'g', string.format('%d', now + QUANTUM_MS))
  redis.call('HDEL', key, 't', 'k')
  redis.call('PERSIST', key)
end

-- Where a host goes that is in none of the places (its lease ended): idle, back into a front queue, asleep or ready.
local function settle(host, next_ms, left, until_ms)
  local key = TAG .. 'host:' .. host
  local best = on(TAG .. 'back:' .. host, 'ZRANGE', 0, 0)[1]
  if not best and refill(host) then best = on(TAG .. 'back:' .. host, 'ZRANGE', 0, 0)[1] end
  if not best then
    redis.call('HDEL', key, 's', 'q', 'g', 't', 'k')
    redis.call('PEXPIRE', key, HOST_TTL_MS)
    return
  end
  if tokens > 0 and (left <= 0 or now >= until_ms) and next_ms - now <= ASLEEP_MS then
    push_token(host, string.sub(best, 1, 1), '')
    redis.call('HDEL', key, 'q', 'g')
    return
  end
  local far = next_ms - now > ASLEEP_MS
  on(TAG .. (far and 'asleep' or 'ready'), 'ZADD', string.format('%d', next_ms), host)
  on(key, 'HSET', 's', far and 'a' or 'r')
end
