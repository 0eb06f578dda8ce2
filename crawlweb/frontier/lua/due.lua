-- due: pages whose time has come go into their hosts' queues; no seen-set is asked.
-- uses: time common pack host cold place records
--
-- ARGV[3]  keys looked at, at the most
-- Returns  msgpack [pages queued, keys that counted no more, 1: there is more to do at once]
-- Holds    a page is queued once for each `next_at` of its record: it stands in its queue before that is 0. A day's keys are spread over its
--          hours a day before it begins, an hour's over its spans when it begins; a page is due up to 5 min late, never early

local LISTS_MOST = 500               -- looked at in a call: most are empty after a long rest

local old = answered('u')
if old ~= nil then return old or redis.error_reply('STALE') end
refuse_when_full()
local most, queued, stale, lists = num(ARGV[3]), 0, 0, LISTS_MOST
local hours, days, spans, hour, day, span = due_cursors()

local DIGITS = '0123456789abcdefghijklmnopqrstuvwxyz'

-- Host and entry of a record; nil for what is not ours.
local function entry_of(text)
  local priority, depth, _, _, _, has, name_bytes, host_bytes, hi, lo = string.byte(text, 9, 18)
  local url, apart = string.sub(text, 19, 18 + hi * 256 + lo), name_bytes == 255
  local from = apart and 0 or name_bytes
  local host = string.sub(url, from + 1, from + host_bytes)
  if #host ~= host_bytes or host_bytes == 0 or #url ~= hi * 256 + lo or string.find(url, '\t', 1, true) then return nil end
  local is_http, rest = has % 2 == 1, string.sub(url, from + host_bytes + 1)
  if apart then
    url = (is_http and 'http://' or 'https://') .. rest
  elseif string.sub(rest, 1, 1) == '/' and from == 0 then
    url = (is_http and '-' or '') .. rest
  elseif string.sub(rest, 1, 1) == '/' and string.sub(url, 1, from) == 'www.' then
    url = (is_http and '*' or '+') .. rest
  else
    url = (is_http and 'http://' or 'https://') .. url
  end
  local high = math.floor(depth / 36)
  local deep = (high > 0 and string.sub(DIGITS, high + 1, high + 1) or '') .. string.sub(DIGITS, depth % 36 + 1, depth % 36 + 1)
  return host, string.format('%d00\t%s\t%s\t\t{"a":1}', priority, deep, url)
end

-- A key of a list whose time has come.
local function take(item)
  local key, text = string.sub(item, 1, 8), string.sub(item, 9)
  local record, before = page_get(key)
  if text ~= '' then
    local back, here = page_times(text), page_times(record)
    if back and not (here and here >= back) then
      page_put(key, text, before)
      record, before = text, text
    end
  end
  local _, at = page_times(record)
  if not at or at == 0 then
    stale = stale + 1
  elseif at * 1000 <= now then
    local host, entry = entry_of(record)
    if host then
      place_new(host, glance(host), {}, entry)
      count('enq')
      queued = queued + 1
    else
      quarantine('rec', record)
    end
    page_put(key, string.sub(record, 1, 4) .. '\0\0\0\0' .. string.sub(record, 9), before)
  elseif select(2, page_list(at)) then
    stale = stale + 1
  else
    page_due(key, at)
  end
end

-- Empties a list; false if there is more in it, or on disk. `queue`: its name, if it is a long queue.
local function empty(key, queue)
  lists = lists - 1
  if lists < 0 then return false end
  while most > 0 do
    local some = on(key, 'LRANGE', 0, math.min(most, 100) - 1)
    if #some == 0 then
      local more, is_cold = false, false
      if queue then more, is_cold = thaw(queue) end
      if not more then return not is_cold end
    end
    for _, item in ipairs(some) do take(item) end
    if #some > 0 then redis.call('LTRIM', key, #some, -1) end
    most = most - #some
  end
  return false
end

while spans <= span and empty(TAG .. 'soon:' .. spans) do spans = spans + 1 end
while days <= day and empty(TAG .. 'later:' .. days, 'later:' .. days) do days = days + 1 end
local is_cold = days <= day and most > 0 and lists >= 0
while hours <= hour and empty(TAG .. 'due:' .. hours) do hours = hours + 1 end
due_cursors(hours, days, spans)
local more = most <= 0 or lists < 0 or (not is_cold and days <= day) or hours <= hour or spans <= span
finish()
return answer('u', cmsgpack.pack({queued, stale, more and 1 or 0}))
