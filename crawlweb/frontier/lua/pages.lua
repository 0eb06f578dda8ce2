-- pages: max_pages. Which URLs may be fetched, which pages count, which of those are complete.
-- uses: time aside
--
-- KEYS[1]  {crawl}:pages, set: keys of the pages that count. Beside it `permits` and `open`, zsets of keys by expiry, ms
-- ARGV[1]  what    ARGV[2] most pages    ARGV[3] ms that a permit lasts    ARGV[4] ms that a page is open, if nobody says that it is complete
-- ARGV[5...]  keys, 8 bytes each
--   permit  may these be fetched? One that counts needs no permit, one that has a permit keeps it. Both last longer from now
--   spend   a page is about to be stored: it counts if it did, if it has a permit, or if there is room
--   again   spent before, as a server that lost its last seconds may not know: they count
--   end     those of these that count are stored and published
--   free    these permits are not needed any more
-- Returns  [a letter for each (y or n), pages that count, how many of them are open, room for more]
-- Holds    pages + permits <= most pages, but for `again`. A page that counts is open until it is complete: the crawl does not end before

local pages, TAG = KEYS[1], string.match(KEYS[1], '^(.-}:)')
local permits, open = TAG .. 'permits', TAG .. 'open'
local now, what, most = server_ms(), ARGV[1], num(ARGV[2])
local function ms(value) return string.format('%d', value) end

if redis.call('PERSIST', pages) and redis.call('EXISTS', pages) == 1 and redis.call('TYPE', pages)['ok'] ~= 'set' then
  return redis.error_reply('WRONGTYPE ' .. pages .. ' is no set: without it nobody knows how many pages are stored')
end
on(permits, 'ZREMRANGEBYSCORE', '-inf', ms(now))
on(open, 'ZREMRANGEBYSCORE', '-inf', ms(now))
redis.call('ZREMRANGEBYSCORE', permits, ms(now + 10 * num(ARGV[3])), '+inf')  -- not ours: nobody would give it back
redis.call('ZREMRANGEBYSCORE', open, ms(now + 10 * num(ARGV[4])), '+inf')
local stored = redis.call('SCARD', pages)
local free = most - stored - redis.call('ZCARD', permits)
local permit_until, open_until = ms(now + num(ARGV[3])), ms(now + num(ARGV[4]))
local out = {}
for i = 5, #ARGV do
  local key, letter = ARGV[i], 'n'
  local counts = redis.call('SISMEMBER', pages, key) == 1
  local has_permit = not counts and redis.call('ZSCORE', permits, key)
  if what == 'end' then
    redis.call('ZREM', open, key)
  elseif what == 'free' then
    if has_permit then free = free + redis.call('ZREM', permits, key) end
  elseif counts then
    redis.call('ZADD', open, 'XX', open_until, key)
    letter = 'y'
  elseif has_permit or free > 0 or what == 'again' then
    if not has_permit then free = free - 1 end
    if what == 'permit' then
      redis.call('ZADD', permits, permit_until, key)
    else
      redis.call('ZADD', open, open_until, key)
      stored = stored + redis.call('SADD', pages, key)
      redis.call('ZREM', permits, key)
    end
    letter = 'y'
  end
  out[#out + 1] = letter
end
return {table.concat(out), stored, redis.call('ZCARD', open), free}
