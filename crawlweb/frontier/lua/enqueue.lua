-- enqueue: marks new URLs as seen and places them, in one step.
-- uses: time common pack host cold place seen exact
--
-- ARGV[3]  keys that the first Bloom layer of this partition is made for
-- ARGV[4]  false-positive rate allowed (0.001)
-- ARGV[5]  msgpack [[host, key, how, entry, key, how, entry, ...], ...]; key: 16 bytes; how: priority + 10 * (0 test the seen-set,
--          1 test the exact set (seeds), 2 test nothing)
-- ARGV[6]  1: refused as a whole when Redis is full
-- ARGV[7]  'exact': all keys are in the exact set, and there is no Bloom filter
-- Returns  a letter for each URL in order: n new, s seen, q not one of ours. The source of a redirect to one that is seen becomes its alias.
-- Holds    a URL is marked if and only if it was placed (here or before)

-- A redirect to a URL that is known already: its source is another name of it.
local function alias(entry, id)
  local more = string.match(entry, '\t({"h":[^\t]*)$')
  local fine, fields = pcall(cjson.decode, more or '')
  local chain = fine and type(fields) == 'table' and fields.c
  local source = type(chain) == 'table' and chain[#chain]
  if type(source) == 'string' and string.find(source, '^' .. string.rep('%x', 32) .. '$') then
    local bytes = string.gsub(source, '%x%x', function(pair) return string.char(num(pair, 16)) end)
    if bytes ~= id then on(TAG .. 'alias:' .. string.sub(source, 1, 3), 'HSET', bytes, id) end
  end
end

if ARGV[6] ~= '1' then pass_when_full() end
local old = answered('e')
if old ~= nil then return old or redis.error_reply('STALE') end
if ARGV[6] == '1' then refuse_when_full() end
local groups = cmsgpack.unpack(ARGV[5])
local expected, rate = num(ARGV[3]), num(ARGV[4])
local by_bloom = ARGV[7] ~= 'exact'
for _, group in ipairs(groups) do
  for i = 2, #group, 3 do
    if type(group[i]) ~= 'string' or #group[i] ~= 16 then return redis.error_reply('ERR key is not 16 bytes') end
  end
end
if by_bloom then seen_open(expected, rate) end
local out, met = {}, {}              -- met: keys that are new in this call
for _, group in ipairs(groups) do
  local host, fresh = group[1], {}
  local h, room
  for i = 2, #group, 3 do
    local id, entry = group[i], group[i + 2]
    local how = math.floor(group[i + 1] / 10)
    local is_new = true
    if not is_entry(entry) then
      quarantine('enqueue', entry)
      out[#out + 1] = 'q'
    else
      local known = by_bloom and (met[id] or is_seen(id))
      if how == 1 or not by_bloom then
        is_new = exact_add(id) or how == 2
      elseif how == 0 then
        is_new = not known
      end
      if is_new then
        if not h then h, room = glance(host), {rest = {}} end
        place_new(host, h, room, entry)
        if by_bloom and not known then
          fresh[#fresh + 1], met[id] = id, true
        end
        count('enq')
        out[#out + 1] = 'n'
      else
        if string.byte(entry, -1) == 125 then alias(entry, id) end  -- it ends in }
        out[#out + 1] = 's'
      end
    end
  end
  if room then park_rest(host, room) end
  for _, id in ipairs(fresh) do mark_seen(id, expected, rate) end
end
if by_bloom then seen_close(expected, rate) end
exact_close()
finish()
return answer('e', table.concat(out))
