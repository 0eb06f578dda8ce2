-- audit: counts every URL and host of the partition by the state it is in, and those in none. Reads all of it: not for a hot path.
-- uses: time common pack
--
-- Returns  msgpack {inline, back, park, wait, leased, dead (URLs) · waiting, ready, asleep, inflight (hosts) · pending (enqueued - done by the
--          counters) · foreign (members of our lists that are not ours) · lost (URLs of hosts that are in no place, hosts that are in two or
--          none, leases without entry) · what [texts]}

local r = {inline = 0, back = 0, park = 0, wait = 0, leased = 0, dead = on(TAG .. 'dead', 'LLEN'), foreign = 0, waiting = 0, ready = 0, asleep = 0, inflight = 0, lost = 0, what = {}}
local places, flights, urls = {}, {}, {}
local function lost(n, text)
  r.lost = r.lost + n
  if #r.what < 20 then r.what[#r.what + 1] = text end
end
local function at(host, place)
  places[host] = (places[host] and places[host] .. '+' or '') .. place
end

local function state(host)
  local h = on(TAG .. 'host:' .. host, 'HMGET', 's', 't', 'f')
  if h[1] then return h[1], h[2], h[3] end
  local s, _, serial, body = read_record(host)
  if s ~= 'w' then return nil end
  local fields, f = read_fields(host, body), nil
  for i = 1, #fields, 2 do
    if fields[i] == 'f' then f = tostring(fields[i + 1]) end
  end
  return s, serial, f
end
local stateless = {}  -- hosts with a token and no record: promote takes their URLs for what they are

for k = 0, 9 do
  for _, token in ipairs(on(TAG .. 'front:' .. k, 'LRANGE', 0, -1)) do
    local host, serial, entry = string.match(token, '^([^\t]+)\t(%d+)\t(.*)$')
    if host and (entry == '' or is_entry(entry)) then
      if entry ~= '' then r.inline = r.inline + 1 end
      local s, its = state(host)
      if its == serial then
        at(host, 'waiting')
        r.waiting = r.waiting + 1
      elseif not s then
        stateless[host] = true
      end
    else
      r.foreign = r.foreign + 1
    end
  end
end
for _, place in ipairs({'ready', 'asleep'}) do
  for _, host in ipairs(on(TAG .. place, 'ZRANGE', 0, -1)) do
    at(host, place)
    r[place] = r[place] + 1
  end
end
local function is_ours(text)
  local host, entry = string.match(text, '^([^\t]+)\t%d+\t(.*)$')
  return host and is_entry(entry) and host
end
for _, token in ipairs(on(TAG .. 'leases', 'ZRANGE', 0, -1)) do
  local text = on(TAG .. 'leased', 'HGET', token)
  if not text or not is_ours(text) then r.foreign = r.foreign + 1 end
end
local leased = on(TAG .. 'leased', 'HGETALL')
for i = 1, #leased, 2 do
  local host = is_ours(leased[i + 1])
  if host and redis.call('ZSCORE', TAG .. 'leases', leased[i]) then
    r.leased = r.leased + 1
    r.inflight = r.inflight + 1
    flights[host] = (flights[host] or 0) + 1
  elseif host then
    lost(1, 'lease ' .. leased[i])
  end
end
for host, n in pairs(flights) do  -- several, or another place too, where an override allows several
  if not places[host] then
    at(host, 'inflight')
  end
  if (n > 1 or places[host] ~= 'inflight') and tostring(n) ~= select(3, state(host)) then
    lost(1, host .. ' is ' .. places[host] .. ' with ' .. n .. ' leases')
  end
end
for _, text in ipairs(on(TAG .. 'wait', 'ZRANGE', 0, -1)) do
  local name = is_ours(text) and 'wait' or 'foreign'
  r[name] = r[name] + 1
end

local cursor = '0'
repeat
  local page = redis.call('SCAN', cursor, 'MATCH', string.gsub(TAG, '[%[%]*?\\]', '\\%0') .. '*', 'COUNT', 1000)
  cursor = page[1]
  for _, name in ipairs(page[2]) do
    local kind, host = string.match(string.sub(name, #TAG + 1), '^(%l+):(.+)$')
    if kind == 'host' and not places[host] and not urls[name] then
      urls[name] = true
      local s = on(name, 'HGET', 's')
      if s then lost(1, host .. ' is in no place but says ' .. s) end
    elseif kind == 'hosts' and num(host) and not urls[name] then
      urls[name] = true
      local records_here = on(name, 'HGETALL')
      for i = 1, #records_here, 2 do
        local packed = records_here[i]
        if not places[packed] and state(packed) == 'w' then lost(1, packed .. ' is in no place but says w') end
      end
    elseif (kind == 'back' or kind == 'park' or kind == 'wait') and not urls[name] then
      urls[name] = true
      local n = 0
      for _, text in ipairs(kind == 'back' and on(name, 'ZRANGE', 0, -1) or on(name, 'LRANGE', 0, -1)) do
        local entry = kind == 'wait' and string.match(text, '^%d+\t(.*)$') or text
        if is_entry(entry) then n = n + 1 else r.foreign = r.foreign + 1 end
      end
      if kind == 'wait' then host = string.match(host, '^(%S+) ') or host end
      r[kind] = r[kind] + n
      if n > 0 and not places[host] and not stateless[host] then lost(n, name) end
    end
  end
until cursor == '0'
local STATE = {waiting = 'w', ready = 'r', asleep = 'ab', inflight = 'f'}
for host, place in pairs(places) do
  local s = state(host)
  if not s or not string.find(STATE[place] or '', s, 1, true) then lost(1, host .. ' is ' .. place .. ' but says ' .. tostring(s)) end
end
local f = redis.call('HMGET', CTR, 'enq', 'done')
r.pending = (num(f[1]) or 0) - (num(f[2]) or 0)
if r.pending ~= r.inline + r.back + r.park + r.wait + r.leased then lost(math.abs(r.pending - r.inline - r.back - r.park - r.wait - r.leased), 'counters say ' .. r.pending .. ' pending') end
return cmsgpack.pack(r)
