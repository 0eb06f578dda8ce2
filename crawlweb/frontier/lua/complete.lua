-- complete: how leases ended. A release is one of the ways.
-- uses: common place reclaim
--
-- ARGV[3]  minimum delay ms    ARGV[4] delay = at least this factor * average latency    ARGV[5] most ms of that latency part
-- ARGV[6]  msgpack [[token, host, way, age, latency, wait, arg, robots], ...]
--            age      ms since the request ended; -1: nothing was sent, the clock stays
--            latency  ms from request to first byte; -1: no sample
--            wait     ms: not before; meaning by way
--            way      d done · x dead letter (arg reason) · q not ours (arg what)
--                     l released: back to its exact place; the host rests for `wait`
--                     w released: the URL waits for `wait` by itself
--                     r failed: one failure more, the URL waits for `wait`; arg [most failures, reason, ms that the host rests]
--                     h the host failed, not the URL: back to its place, the host rests for `wait`; arg [dead after so many in a row,
--                       ms dead, reason]
--                     u its robots.txt cannot be had: as h; arg [ms until given up (-1: never), ms dead, reason]
--            robots   false or [origin, value, ms it lives, crawl-delay ms (-1: none)]
-- Returns  a letter for each: k done as asked, x a dead letter now, g the lease was gone (only the clock moved)
-- Holds    next-allowed = end of the request + max(minimum, crawl-delay, factor * latency), and never moves back

local old = answered('c')
if old ~= nil then return old or redis.error_reply('STALE') end
local min_ms, factor, latency_cap_ms = num(ARGV[3]), num(ARGV[4]), num(ARGV[5])
local ops = cmsgpack.unpack(ARGV[6])
local ARG = {d = false, x = 'string', q = 'string', l = false, w = false, r = 'table', h = 'table', u = 'table'}
for _, op in ipairs(ops) do
  local kind = ARG[op[3]]
  if kind == nil or (kind and type(op[7]) ~= kind) then return redis.error_reply('ERR no such way to end a lease: ' .. tostring(op[3])) end
end
local function put(set, name, value)
  local n = #set
  set[n + 1], set[n + 2] = name, value
end

local out, tokens_of, ended, held = {}, {}, {}, {}
for i, op in ipairs(ops) do tokens_of[i] = op[1] end
in_thousands(tokens_of, function(...)
  for _, text in ipairs(on(TAG .. 'leased', 'HMGET', ...)) do held[#held + 1] = text end
end)
for i, op in ipairs(ops) do
  local token, host, way, age, latency, wait, arg, robots = unpack(op)
  local key = TAG .. 'host:' .. host
  local h = on(key, 'HMGET', 'n', 'q', 'g', 'c', 'l', 'e', 'u', 's')
  local next_ms, crawl_delay, average = num(h[1]) or 0, num(h[4]) or 0, num(h[5])
  local set = {}
  if robots then
    on(TAG .. 'robots:' .. robots[1], 'SET', robots[2], 'PX', math.max(1, robots[3]))
    if robots[4] >= 0 then
      crawl_delay = robots[4]
      put(set, 'c', crawl_delay)
    end
  end
  if latency >= 0 then
    average = average and math.floor(average + (latency - average) / 4 + 0.5) or latency
    put(set, 'l', average)
  end
  if age >= 0 then
    next_ms = math.max(next_ms, now - age + delay_of(min_ms, crawl_delay, factor, average, latency_cap_ms))
    count('requests')
  end
  local rest_ms = 0
  local found, score, entry = read_lease(not ended[token] and held[i])
  if found == host then
    out[#out + 1] = 'k'
    if way == 'd' then
      count('done')
    elseif way == 'x' then
      dead_letter(host, entry, arg)
      out[#out] = 'x'
    elseif way == 'q' then
      quarantine(arg, entry)
      count('done')
    elseif way == 'w' then
      on(TAG .. 'wait', 'ZADD', string.format('%d', now + wait), host .. '\t' .. score_text(score) .. '\t' .. entry)
    elseif way == 'r' then
      entry = bump(entry, 2)
      rest_ms = arg[3] or 0
      if digit(entry, 2) >= arg[1] then
        dead_letter(host, entry, arg[2])
        out[#out] = 'x'
      else
        on(TAG .. 'wait', 'ZADD', string.format('%d', now + wait), host .. '\t' .. score_text(score) .. '\t' .. entry)
      end
    else
      back_add(host, score, entry)
      rest_ms = wait
      local dead
      if way == 'h' then
        local failures = (num(h[6]) or 0) + 1
        put(set, 'e', failures)
        dead = failures >= arg[1]
      elseif way == 'u' then
        local since = num(h[7]) or now
        put(set, 'u', string.format('%d', since))
        dead = arg[1] >= 0 and now - since >= arg[1]
      end
      if dead then
        put(set, 'x', string.format('%d', now + arg[2]))
        put(set, 'xr', arg[3])
      end
    end
    ended[token] = true
    ended[#ended + 1] = token
    local left = (num(h[2]) or 0) - (age >= 0 and 1 or 0)
    if rest_ms > 0 then next_ms = math.max(next_ms, now + rest_ms) end
    put(set, 'n', string.format('%d', next_ms))
    put(set, 'q', left)
    if age >= 0 and way ~= 'h' and way ~= 'u' and (h[6] or h[7]) then redis.call('HDEL', key, 'e', 'u', 'x', 'xr') end
    settle(host, next_ms, left, num(h[3]) or 0, rest_ms > 0, set)
  else
    out[#out + 1] = 'g'
    count('late')
    if age >= 0 or #set > 0 then
      put(set, 'n', string.format('%d', next_ms))
      on(key, 'HSET', unpack(set))
      if not h[8] then redis.call('PEXPIRE', key, HOST_TTL_MS) end
    end
  end
end
end_leases(ended)
finish()
return answer('c', table.concat(out))
