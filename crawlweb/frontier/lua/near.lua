-- near: puts pages into the index of fingerprints, and answers with the pages beside them: those that may have the same content.
-- uses: time aside
--
-- KEYS[1]  {crawl:near:<shard>}:near, hash: n<table> segments of a table, u<table> entries ever put in
-- ARGV[1]  msgpack [[table, segments at the most, bytes of a segment, bytes of a set, bytes of an entry, data], ...]
--          data: four for each page: number that chooses the segment, first and last byte of the set (as text: Lua's numbers are slow to
--          turn into it), entry, whose last 10 bytes are the page's doc id
-- ARGV[2]  msgpack [table, ..., data] of the names, as above; the entry begins with its length (2 bytes) and the doc id
-- ARGV[3]  msgpack [number that chooses the segment, first, last, ...]: sets of names that are asked for
-- Returns  [string, ...]: of each table the sets of its pages, in order, each after its page was put in, newest entry first; last the names
-- Holds    A page stands once in a set, at its front. A repeated call changes nothing and answers the same, as long as no other came between.
--
-- <table>:<segment>  string: sets of a table. A set is a row of entries; a new one pushes the oldest out, so nothing has to be swept
-- names:<segment>    string: the same, of entries of different lengths, the last of which may be cut; zeros are no entry
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
local tables, names, wanted = cmsgpack.unpack(ARGV[1]), cmsgpack.unpack(ARGV[2]), cmsgpack.unpack(ARGV[3])

local function sane(text, most)
  local n = num(text or nil)
  if n and n >= 0 and n <= most and n % 1 == 0 then return n end
end

local fields = {'n' .. names[1], 'u' .. names[1]}
for _, t in ipairs(tables) do
  fields[#fields + 1] = 'n' .. t[1]
  fields[#fields + 1] = 'u' .. t[1]
end
local state = on(STATE, 'HMGET', unpack(fields))
local changed, grown = {}, 0
local function set(field, value)
  changed[#changed + 1] = field
  changed[#changed + 1] = string.format('%d', value)
end

-- Segments of a table, and the largest power of two that is at most so many.
local function segments_of(name, text, most)
  local segments, half = sane(text, SEGMENTS_MOST), 1
  if not segments or segments < 1 then
    segments = 1
    while segments < most and redis.call('EXISTS', TAG .. name .. ':' .. segments) == 1 do segments = segments + 1 end
    set('n' .. name, segments)
  end
  while half * 2 <= segments do half = half * 2 end
  return segments, half
end

local function key_of(name, number, segments, half)
  local segment = number % (half * 2)
  if segment >= segments then segment = segment - half end
  return TAG .. name .. ':' .. segment
end

local function row_of(key, first, last, size, bytes)
  local row = redis.pcall('GETRANGE', key, first, last)
  if type(row) ~= 'string' or #row < bytes then
    on(key, 'SETRANGE', size - 1, '\0')  -- made whole
    row = redis.call('GETRANGE', key, first, last)
  end
  return row
end

local function has_added(added, used, name, segments, half, most, size, width)
  if added == 0 then return end
  used = (sane(used, 2 ^ 53) or 0) + added
  set('u' .. name, used)
  if grown < GROWN_MOST and segments < most and used > segments * size / width / 2 then
    redis.call('COPY', TAG .. name .. ':' .. segments - half, TAG .. name .. ':' .. segments, 'REPLACE')
    set('n' .. name, segments + 1)
    grown = grown + 1
  end
end

-- A row of names without the entry of a page, made up with zeros.
local function without(row, doc, bytes)
  if not find(row, doc, 1, true) then return row, false end
  local at = 1
  while at < #row do
    local a, b = byte(row, at, at + 1)
    local length = a * 256 + b
    if length == 0 then break end
    if sub(row, at + 2, at + 1 + DOC) == doc then
      return sub(row, 1, at - 1) .. sub(row, at + 2 + length) .. string.rep('\0', bytes), true
    end
    at = at + 2 + length
  end
  return row, false
end

-- First what names the pages, then what leads to them.
local name, most, size, bytes, width, data = unpack(names)
local segments, half = segments_of(name, state[1], most)
local added = 0
for at = 1, #data, 4 do
  local key, first, entry = key_of(name, data[at], segments, half), data[at + 1], data[at + 3]
  local row = row_of(key, first, data[at + 2], size, bytes)
  local rest, found = without(row, sub(entry, 3, 2 + DOC), bytes)
  local new = sub(entry .. rest, 1, bytes)
  if new ~= row then redis.call('SETRANGE', key, first, new) end
  if not found then added = added + 1 end
end
has_added(added, state[2], name, segments, half, most, size, width)
local named = {}
for at = 1, #wanted, 3 do
  named[#named + 1] = row_of(key_of(name, wanted[at], segments, half), wanted[at + 1], wanted[at + 2], size, bytes)
end

local out = {}
for i, t in ipairs(tables) do
  local name, most, size, bytes, width, data = unpack(t)
  local segments, half = segments_of(name, state[2 * i + 1], most)
  local keys, answers, added, double = {}, {}, 0, half * 2
  for at = 1, #data, 4 do
    local segment, first, last, entry = data[at] % double, data[at + 1], data[at + 2], data[at + 3]
    if segment >= segments then segment = segment - half end
    local key = keys[segment]
    if not key then
      key = TAG .. name .. ':' .. segment
      keys[segment] = key
    end
    local row = row_of(key, first, last, size, bytes)
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
  has_added(added, state[2 * i + 2], name, segments, half, most, size, width)
end
out[#out + 1] = table.concat(named)
if #changed > 0 then redis.call('HSET', STATE, unpack(changed)) end
return out
