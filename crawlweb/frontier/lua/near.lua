-- near: puts pages into the index of fingerprints, and answers with the pages beside them: those that may have the same content.
-- uses: time aside
--
-- KEYS[1]  {crawl:near:<shard>}:near, hash: n<table> segments of a table, u<table> entries ever put in; g generation of `recent`, r pages in it
-- ARGV[1]  msgpack [[table, segments at the most, bytes of a segment, bytes of a set, bytes of an entry, data], ...]
--          data: four for each page: number that chooses the segment, first and last byte of the set (as text: Lua's numbers are slow to
--          turn into it), entry, whose last 10 bytes are the page's doc id
-- ARGV[2]  msgpack [[doc id, what names the page], ...]    ARGV[3] pages of a generation
-- Returns  [string, ...]: of each table the sets of its pages, in order, each after its page was put in: newest entry first
-- Holds    A page stands once in a set, at its front. A repeated call changes nothing and answers the same, as long as no other came between.
--
-- <table>:<segment>  string: sets of a table. A set is a row of entries; a new one pushes the oldest out, so nothing has to be swept
-- recent:<0|1>       hash: doc id → what names the page, of the last pages: their records may not be written yet. When the newer generation
--                    is full, the older one is dropped
-- A table begins with one segment and grows by one at a time, by linear hashing (Litwin, "Linear hashing: a new tool for file and table
-- addressing", VLDB 1980): the new segment is a copy of the one that it halves. Copied entries that belong into one of the two only are
-- pushed out as others. It grows when it is half full, so that until the last segment nearly nothing is pushed out.

local DOC = 10
local GROWN_MOST = 2                 -- segments a call: a copy of 128 KiB takes 50 µs
local SEGMENTS_MOST = 2 ^ 20
local STATE = KEYS[1]
local TAG = string.match(STATE, '^(.-}:)')
local byte, find, sub = string.byte, string.find, string.sub

redis.call('PERSIST', STATE)         -- so that it passes when Redis is full (common.lua): pages in work wait for it
local tables, named, generation_most = cmsgpack.unpack(ARGV[1]), cmsgpack.unpack(ARGV[2]), num(ARGV[3])

local function sane(text, most)
  local n = num(text or nil)
  if n and n >= 0 and n <= most and n % 1 == 0 then return n end
end

local fields = {'g', 'r'}
for _, t in ipairs(tables) do
  fields[#fields + 1] = 'n' .. t[1]
  fields[#fields + 1] = 'u' .. t[1]
end
local state = on(STATE, 'HMGET', unpack(fields))
local changed = {}
local function set(field, value)
  changed[#changed + 1] = field
  changed[#changed + 1] = string.format('%d', value)
end

-- First what names the pages, then what leads to them.
if #named > 0 then
  local generation, pages = sane(state[1], 1) or 0, sane(state[2], 2 ^ 53) or 0
  if pages + #named > generation_most then
    generation, pages = 1 - generation, 0
    redis.call('UNLINK', TAG .. 'recent:' .. generation)
  end
  local key = TAG .. 'recent:' .. generation
  for _, row in ipairs(named) do pages = pages + on(key, 'HSET', row[1], row[2]) end
  set('g', generation)
  set('r', pages)
end

local out, grown = {}, 0
for i, t in ipairs(tables) do
  local name, most, size, bytes, width, data = unpack(t)
  local segments, used = sane(state[2 * i + 1], SEGMENTS_MOST), sane(state[2 * i + 2], 2 ^ 53) or 0
  if not segments or segments < 1 then
    segments = 1
    while segments < most and redis.call('EXISTS', TAG .. name .. ':' .. segments) == 1 do segments = segments + 1 end
    set('n' .. name, segments)
  end
  local half = 1                     -- the largest power of two that is at most `segments`
  while half * 2 <= segments do half = half * 2 end
  local keys, answers, added, double = {}, {}, 0, half * 2
  for at = 1, #data, 4 do
    local segment, first, last, entry = data[at] % double, data[at + 1], data[at + 2], data[at + 3]
    if segment >= segments then segment = segment - half end
    local key = keys[segment]
    if not key then
      key = TAG .. name .. ':' .. segment
      keys[segment] = key
    end
    local row = redis.pcall('GETRANGE', key, first, last)
    if type(row) ~= 'string' or #row < bytes then
      on(key, 'SETRANGE', size - 1, '\0')  -- made whole
      row = redis.call('GETRANGE', key, first, last)
    end
    local doc = sub(entry, -DOC)
    local found, end_of_old = find(row, doc, 1, true)
    while found and end_of_old % width ~= 0 do found, end_of_old = find(row, doc, found + 1, true) end
    local new
    if found then
      new = entry .. sub(row, 1, end_of_old - width) .. sub(row, end_of_old + 1)
    else
      new = entry .. sub(row, 1, bytes - width)
      added = added + 1
    end
    if new ~= row then redis.call('SETRANGE', key, first, new) end
    answers[#answers + 1] = new
  end
  out[i] = table.concat(answers)
  if added > 0 then
    used = used + added
    set('u' .. name, used)
    if grown < GROWN_MOST and segments < most and used > segments * size / width / 2 then
      redis.call('COPY', TAG .. name .. ':' .. segments - half, TAG .. name .. ':' .. segments, 'REPLACE')
      set('n' .. name, segments + 1)
      grown = grown + 1
    end
  end
end
if #changed > 0 then redis.call('HSET', STATE, unpack(changed)) end
return out
