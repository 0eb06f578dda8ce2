-- override: what an operator wants of a host, in place of what the crawler found.
-- uses: time common pack host cold place
--
-- ARGV[3]  host    ARGV[4] text as in field o of the host; '': none any more
-- Returns  1
-- Holds    a host with an override is not forgotten; one that rested only for its pause is active again when that is taken back

pass_when_full()
local old = answered('o')
if old ~= nil then return old or redis.error_reply('STALE') end
local host, text = ARGV[3], ARGV[4]
local key = TAG .. 'host:' .. host
take_up(host, look(host))
if text ~= '' then
  on(TAG .. 'overrides', 'HSET', host, text)
  on(key, 'HSET', 'o', text)
  redis.call('HSETNX', key, 'n', 0)  -- it stays a host that is known
else
  on(TAG .. 'overrides', 'HDEL', host)
  on(key, 'HDEL', 'o')
end
local h = look(host)
if h.s == 'a' then
  rouse(host, math.max(h.next, h.paused))
elseif h.s == 'r' and h.paused > now + REST_MS then
  on(TAG .. 'asleep', 'ZADD', string.format('%d', math.max(h.next, h.paused)), host)
  on(key, 'HSET', 's', 'a')
  redis.call('ZREM', TAG .. 'ready', host)
elseif h.s == 'r' then
  on(TAG .. 'ready', 'ZADD', 'XX', string.format('%d', math.max(h.next, h.paused)), host)
elseif not h.s or h.s == 'w' then
  stow_again(host)
end
finish()
return answer('o', 1)
