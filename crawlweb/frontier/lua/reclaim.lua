-- reclaim: leases that ran out go back to where they were, with one expiry more. Uses common, host, place.
--
-- It is not known whether the request was made: the host's clock moves as if it had been made just now.

local MAX_EXPIRIES = 9  -- a worker that dies takes hundreds of leases with it, and one URL at the most is why

local function end_leases(tokens)
  in_thousands(tokens, function(...)
    on(TAG .. 'leased', 'HDEL', ...)
    on(TAG .. 'leases', 'ZREM', ...)
  end)
end

-- host, score, entry of a lease; nil if there is none, or what stands there is not ours.
local function read_lease(text)
  if not text then return nil end
  local host, score, entry = string.match(text, '^([^\t]+)\t(%d+)\t(.*)$')
  if host and is_entry(entry) then return host, num(score), entry end
end

local function lease_of(token)
  return read_lease(on(TAG .. 'leased', 'HGET', token))
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

local function reclaim(most, min_ms, factor, cap_ms)
  for _, token in ipairs(on(TAG .. 'leases', 'ZRANGEBYSCORE', '-inf', string.format('%d', now), 'LIMIT', '0', most)) do
    local host, score, entry = lease_of(token)
    if not host then
      quarantine('lease', token .. '\t' .. (redis.call('HGET', TAG .. 'leased', token) or ''))
      end_leases({token})
    else
      local h = look(host)
      take_up(host, h)
      local next_ms = math.max(h.next, now + delay_of(h, min_ms, factor, cap_ms))
      count('expired')
      entry = bump(entry, 3)
      if digit(entry, 3) >= MAX_EXPIRIES then
        dead_letter(host, entry, 'expired')
      else
        back_put(host, score, entry)
      end
      end_leases({token})
      land(host, h, next_ms, h.q or 0, false, {'n', string.format('%d', next_ms)})
      if not h.s or h.s == 'w' then stow_again(host) end
    end
  end
end
