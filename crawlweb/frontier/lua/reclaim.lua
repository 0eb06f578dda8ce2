-- reclaim: leases that ran out go back to where they were, with one expiry more. Uses common, place.
--
-- It is not known whether the request was made: the host's clock moves as if it had been made just now.

local MAX_EXPIRIES = 3

local function end_lease(token)
  redis.call('HDEL', TAG .. 'leased', token)
  redis.call('ZREM', TAG .. 'leases', token)
end

-- host, score, entry of a lease; nil if there is none.
local function lease_of(token)
  local text = on(TAG .. 'leased', 'HGET', token)
  if not text then return nil end
  local host, score, entry = string.match(text, '^([^\t]+)\t(%d+)\t(.*)$')
  return host, num(score), entry
end

local function digit(entry, at)
  return num(string.sub(entry, at, at), 36)
end

-- The entry with its failures (at 2) or expiries (at 3) one higher.
local DIGITS = '0123456789abcdefghijklmnopqrstuvwxyz'
local function bump(entry, at)
  local n = math.min(digit(entry, at) + 1, 35) + 1
  return string.sub(entry, 1, at - 1) .. string.sub(DIGITS, n, n) .. string.sub(entry, at + 1)
end

local function reclaim(most, delay_ms)
  for _, token in ipairs(on(TAG .. 'leases', 'ZRANGEBYSCORE', '-inf', string.format('%d', now), 'LIMIT', 0, most)) do
    local host, score, entry = lease_of(token)
    if not host then
      quarantine('lease', token)
      end_lease(token)
    else
      local key = TAG .. 'host:' .. host
      local h = on(key, 'HMGET', 'n', 'q', 'g', 'c')
      local next_ms = math.max(num(h[1]) or 0, now + math.max(delay_ms, num(h[4]) or 0))
      count('expired')
      entry = bump(entry, 3)
      if digit(entry, 3) >= MAX_EXPIRIES then
        dead_letter(host, entry, 'expired')
      else
        back_add(host, score, entry)
      end
      end_lease(token)
      on(key, 'HSET', 'n', string.format('%d', next_ms))
      settle(host, next_ms, num(h[2]) or 0, num(h[3]) or 0)
    end
  end
end
