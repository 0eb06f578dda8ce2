-- audit: counts every URL and host of the partition by the state it is in, and those in none. Reads all of it: not for a hot path.
-- uses: time common pack cold records
--
-- ARGV[3]  msgpack {host: serial of its token} of all tokens that are in chunks, or nil: not known
-- ARGV[4]  1: pages that are due and in no list are put into theirs again
-- Returns  msgpack {relisted (such pages) · recorded (page records in Redis), due (keys in lists of due pages, chunks aside) · inline, back, park, cold, wait, leased, dead (URLs) · waiting, ready, asleep, inflight (hosts) · pending (enqueued - done by the
--          counters) · foreign (members of our lists that are not ours) · quarantined (what was found so, the latest 10,000) · lost (URLs of hosts that are in no place, hosts that are in two or
--          none, leases without entry, URLs in chunks that no queue names, pages that are due and in no list) · what [texts]}

local r = {relisted = 0, recorded = 0, due = 0, inline = 0, back = 0, park = 0, cold = 0, wait = 0, leased = 0, dead = on(TAG .. 'dead', 'LLEN'), foreign = 0, quarantined = on(TAG .. 'quarantine', 'LLEN'), waiting = 0, ready = 0, asleep = 0, inflight = 0, lost = 0, what = {}}
local places, flights, urls, homes = {}, {}, {}, {}
local function lost(n, text)
  r.lost = r.lost + n
  if #r.what < 20 then r.what[#r.what + 1] = text end
end
local function at(host, place)
  places[host] = (places[host] and places[host] .. '+' or '') .. place
end

local queues, chunks = {}, {}  -- queue → URLs in its chunks; chunk → queue
local infos = on(TAG .. 'cold', 'HGETALL')
for i = 1, #infos, 2 do
  local q, _, _, urls = string.match(infos[i + 1], '^([^\t]+)\t(%d+)\t(%d+)\t(%d+)$')
  if q then
    chunks[infos[i]] = q
    queues[q] = (queues[q] or 0) + num(urls)
    r.cold = r.cold + num(urls)
  else
    r.foreign = r.foreign + 1
  end
end
for q in pairs(queues) do
  for _, chunk in ipairs(on(TAG .. q .. ':chunks', 'LRANGE', 0, -1)) do
    if chunks[chunk] ~= q then lost(1, chunk .. ' of ' .. q .. ' is not known') end
    chunks[chunk] = nil
  end
  if on(TAG .. q .. ':tail', 'LLEN') == 0 then lost(1, q .. ' has chunks and no tail') end
end
for chunk, q in pairs(chunks) do lost(1, chunk .. ' is not in ' .. q) end
local tokens_in_chunks = ARGV[3] ~= '' and cmsgpack.unpack(ARGV[3]) or nil
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
-- A host that says where it is, and is not there: its token may be in a chunk.
local function nowhere(host, s, serial, k)
  if s == 'w' and queues['front:' .. k] and (not tokens_in_chunks or tokens_in_chunks[host] == serial) then
    at(host, 'waiting')
    r.waiting = r.waiting + 1
  else
    lost(1, host .. ' is in no place but says ' .. s)
  end
end
local stateless = {}  -- hosts with a token and no record: promote takes their URLs for what they are

for k = 0, 9 do
  local front, tokens_of_k = TAG .. 'front:' .. k, {}
  for _, part in ipairs({front, front .. ':tail'}) do
    for _, token in ipairs(on(part, 'LRANGE', 0, -1)) do tokens_of_k[#tokens_of_k + 1] = token end
  end
  for _, token in ipairs(tokens_of_k) do
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

local due_at, listed = {}, {}  -- of pages: when; in a list
local cursor = '0'
repeat
  local page = redis.call('SCAN', cursor, 'MATCH', string.gsub(TAG, '[%[%]*?\\]', '\\%0') .. '*', 'COUNT', 1000)
  cursor = page[1]
  for _, name in ipairs(page[2]) do
    local kind, host = string.match(string.sub(name, #TAG + 1), '^(%l+):(.+)$')
    if kind == 'host' and not places[host] and not urls[name] then
      urls[name] = true
      local h = on(name, 'HMGET', 's', 't', 'k')
      if h[1] then nowhere(host, h[1], h[2], h[3]) end
    elseif kind == 'hosts' and num(host) and not urls[name] then
      urls[name] = true
      local records_here = on(name, 'HGETALL')
      for i = 1, #records_here, 2 do
        local packed = records_here[i]
        if not places[packed] and state(packed) == 'w' then
          local _, k, serial = read_record(packed)
          nowhere(packed, 'w', serial, k)
        end
      end
    elseif kind == 'rec' and host ~= 'long' and not urls[name] then
      urls[name] = true
      for _, key in ipairs(on(name, 'HKEYS')) do
        local record = #key == 8 and page_get(key)
        local fetched, due_s = page_times(record)
        if fetched then
          r.recorded = r.recorded + 1
          if due_s > 0 then due_at[key] = due_s end
        elseif record ~= nil then
          r.foreign = r.foreign + 1
        end
      end
    elseif (kind == 'due' or kind == 'soon' or kind == 'later') and not string.find(name, ':chunks$') and not urls[name] then
      urls[name] = true
      for _, item in ipairs(on(name, 'LRANGE', 0, -1)) do
        if #item >= 8 then r.due = r.due + 1 else r.foreign = r.foreign + 1 end
        listed[string.sub(item, 1, 8)] = true
      end
    elseif (kind == 'back' or kind == 'park' or kind == 'wait') and not string.find(name, ':chunks$') and not urls[name] then
      urls[name] = true
      if kind == 'park' then host = string.gsub(host, ':tail$', '') end
      local n = 0
      for _, text in ipairs(kind == 'back' and on(name, 'ZRANGE', 0, -1) or on(name, 'LRANGE', 0, -1)) do
        local entry = kind == 'wait' and string.match(text, '^%d+\t(.*)$') or text
        if is_entry(entry) then n = n + 1 else r.foreign = r.foreign + 1 end
      end
      if kind == 'wait' then host = string.match(host, '^(%S+) ') or host end
      r[kind] = r[kind] + n
      if n > 0 then homes[host] = (homes[host] or 0) + n end
    end
  end
until cursor == '0'
for q, n in pairs(queues) do
  local host = string.match(q, '^park:(.+)$')
  if host then homes[host] = (homes[host] or 0) + n end
end
for host, n in pairs(homes) do
  if not places[host] and not stateless[host] then lost(n, 'URLs of ' .. host .. ', which is in no place') end
end
for key, due_s in pairs(due_at) do
  if not listed[key] and not queues['later:' .. math.floor(due_s / 86400)] then
    if ARGV[4] == '1' then
      page_due(key, due_s)
      r.relisted = r.relisted + 1
    else
      lost(1, 'a page that is due at ' .. due_s .. ' is in no list')
    end
  end
end
local STATE = {waiting = 'w', ready = 'r', asleep = 'ab', inflight = 'f'}
for host, place in pairs(places) do
  local s = state(host)
  if not s or not string.find(STATE[place] or '', s, 1, true) then lost(1, host .. ' is ' .. place .. ' but says ' .. tostring(s)) end
end
local f = redis.call('HMGET', CTR, 'enq', 'done')
r.pending = (num(f[1]) or 0) - (num(f[2]) or 0)
local in_places = r.inline + r.back + r.park + r.cold + r.wait + r.leased
if r.pending ~= in_places then lost(math.abs(r.pending - in_places), 'counters say ' .. r.pending .. ' pending, there are ' .. in_places) end
return cmsgpack.pack(r)
