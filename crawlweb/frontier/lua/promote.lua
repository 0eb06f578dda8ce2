-- promote: takes host tokens from the front queues while fewer hosts are active than wanted. Uses common, host, place, cold.
--
-- The queue that the i-th pick begins with follows the ruler sequence 0 1 0 2 0 1 0 3 ...: half of the picks are for queue 0, a quarter for
-- queue 1, ..., so no queue starves; an empty one yields to the best that is not.

local heads = 0                      -- tokens that promote could take, after it
begins[#begins + 1] = function() heads = 0 end

local function promote(target, tokens_most)
  local active = on(TAG .. 'ready', 'ZCARD') + on(TAG .. 'leases', 'ZCARD')
  if active >= target or (tokens <= 0 and active > 0) then return end
  local size, total, colds = {}, 0, 0
  for k = 0, 9 do
    local q = 'front:' .. k
    size[k] = on(TAG .. q, 'LLEN')
    if tails > 0 and size[k] == 0 then
      local more, cold = thaw(q)
      if more then size[k] = redis.call('LLEN', TAG .. q) end
      if cold then colds = colds + 1 end
    end
    total = total + size[k]
  end
  while active < target and tokens_most > 0 and total > 0 do
    tokens_most = tokens_most - 1
    pick = pick + 1
    local k, rest = 0, pick
    while rest % 2 == 0 and k < 9 do
      rest = rest / 2
      k = k + 1
    end
    if size[k] == 0 then
      k = 0
      while size[k] == 0 do k = k + 1 end
    end
    local front = TAG .. 'front:' .. k
    local token = on(front, 'LINDEX', 0)
    local host, serial, entry = string.match(token, '^([^\t]+)\t(%d+)\t(.*)$')
    if not host or (entry ~= '' and not is_entry(entry)) then
      quarantine(front, token)
    else
      local s, its, next_ms, kept = state_of(host)
      local waiting = s == 'w' and its == serial
      if s and s ~= 'w' then
        if entry ~= '' then add_to_active(host, entry, num(serial), {}) end
        if entry ~= '' and s == 'b' then rouse(host, next_ms) end
      elseif entry ~= '' or waiting or not s then  -- none: its URLs are gone, or its record is
        if entry ~= '' then back_put(host, score_of(entry, num(serial)), entry) end
        local more, cold = refill(host)
        if more then
          activate(host, next_ms, kept)
          active = active + 1
        elseif s or cold then
          local h = look(host)
          take_up(host, h)
          settle(host, h, next_ms, 1, now + 1)
        end
      end
    end
    on(front, 'LPOP')
    size[k] = size[k] - 1
    total = total - 1
    tokens = total + colds
    if size[k] == 0 and thaw('front:' .. k) then
      size[k] = redis.call('LLEN', front)
      total = total + size[k]
    end
  end
  for k = 0, 9 do
    if size[k] > 0 then foresee('front:' .. k, size[k]) end
  end
  heads, tokens = total, total + colds
end
