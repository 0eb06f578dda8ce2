-- audit: counts every URL and host of the partition by the state it is in, and those in none. Reads all of it: not for a hot path.
-- uses: common
--
-- Returns  msgpack {inline, back, park, wait, leased, dead (URLs) · waiting, ready, asleep, inflight (hosts) · pending (enqueued - done by the
--          counters) · lost (URLs of hosts that are in no place, hosts that are in two, leases without entry) · what [texts]}

local r = {inline = 0, back = 0, park = 0, wait = 0, leased = 0, dead = on(TAG .. 'dead', 'LLEN'), waiting = 0, ready = 0, asleep = 0, inflight = 0, lost = 0, what = {}}
local places, live, urls = {}, {}, {}
local function lost(n, text)
  r.lost = r.lost + n
  if #r.what < 20 then r.what[#r.what + 1] = text end
end
local function at(host, place)
  places[host] = (places[host] and places[host] .. '+' or '') .. place
end

for k = 0, 9 do
  for _, token in ipairs(on(TAG .. 'front:' .. k, 'LRANGE', 0, -1)) do
    local host, serial, entry = string.match(token, '^([^\t]+)\t(%d+)\t(.*)$')
    if host and (entry == '' or is_entry(entry)) then
      if entry ~= '' then r.inline = r.inline + 1 end
      if redis.call('HGET', TAG .. 'host:' .. host, 't') == serial then
        at(host, 'waiting')
        r.waiting = r.waiting + 1
      end
    end
  end
end
for _, place in ipairs({'ready', 'asleep'}) do
  for _, host in ipairs(on(TAG .. place, 'ZRANGE', 0, -1)) do
    at(host, place)
    r[place] = r[place] + 1
  end
end
local leases = on(TAG .. 'leased', 'HGETALL')
for i = 1, #leases, 2 do
  local host = string.match(leases[i + 1], '^([^\t]+)\t%d+\t')
  if host and redis.call('ZSCORE', TAG .. 'leases', leases[i]) then
    r.leased = r.leased + 1
    r.inflight = r.inflight + 1
    at(host, 'inflight')
  else
    lost(1, 'lease ' .. leases[i])
  end
end
if on(TAG .. 'leases', 'ZCARD') ~= #leases / 2 then lost(1, 'leases') end
r.wait = on(TAG .. 'wait', 'ZCARD')

local cursor = '0'
repeat
  local page = redis.call('SCAN', cursor, 'MATCH', string.gsub(TAG, '[%[%]*?\\]', '\\%0') .. '*', 'COUNT', 1000)
  cursor = page[1]
  for _, name in ipairs(page[2]) do
    local kind, host = string.match(string.sub(name, #TAG + 1), '^(%l+):(.+)$')
    if (kind == 'back' or kind == 'park') and not urls[name] then
      urls[name] = true
      local n = kind == 'back' and on(name, 'ZCARD') or on(name, 'LLEN')
      r[kind] = r[kind] + n
      if not places[host] then lost(n, name) end
    end
  end
until cursor == '0'
local STATE = {waiting = 'w', ready = 'r', asleep = 'a', inflight = 'f'}
for host, place in pairs(places) do
  local s = redis.call('HGET', TAG .. 'host:' .. host, 's')
  if STATE[place] ~= s then lost(1, host .. ' is ' .. place .. ' but says ' .. tostring(s)) end
end
local f = redis.call('HMGET', CTR, 'enq', 'done')
r.pending = (num(f[1]) or 0) - (num(f[2]) or 0)
if r.pending ~= r.inline + r.back + r.park + r.wait + r.leased then lost(math.abs(r.pending - r.inline - r.back - r.park - r.wait - r.leased), 'counters say ' .. r.pending .. ' pending') end
return cmsgpack.pack(r)
