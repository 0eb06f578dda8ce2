-- Page records, and when their pages are due. Uses common, cold.
--
-- rec:<bucket>     hash: first 8 bytes of the URL key → record (pages.py), 24 to 48 in one; `x`: it is long, and stands in rec:long
-- due:<hour>       list: keys of pages that are due in this hour since 1970, while its day is not far
-- later:<day>      list: the same of days to come. A long queue (cold.lua): in its chunks the record follows its key, and is in no bucket
-- soon:<span>      list: of the hour that has come, by span of 5 min
-- ctr fields: rb buckets, recs records; duh, dud, dus: first hour, day and span whose keys have not been taken out (due.lua)
--
-- Lists name keys, and the record decides: a page is due when its record's `next_at` has come; where that is 0, it is in a queue or never due.
-- So a page whose record has changed needs to be taken out of no list. A list's key stands there before the record says so.
-- Buckets grow as those of the exact set do (exact.lua).

local page_get, page_put, page_drop, page_times, page_due, page_list, due_cursors
do
  local PAGES_A_BUCKET = 24            -- mean number beyond which a bucket is split: then they hold 24 to 48
  local PAGE_BYTES = 1000              -- a longer value makes a hash table of a bucket (hash-max-listpack-value 1024)
  local HEAD_BYTES = 18                -- before the URL in a record (pages.py)
  local SPAN_MS, HOUR, DAY = 300000, 3600000, 86400000
  local AHEAD_MS = 25 * HOUR           -- a day's list is spread over its hours so long before it begins: a page due in a day is in no such list
  local LATER_PART = 60                -- a list of a day to come is long earlier than a queue, by this factor
  local SKEW_S = 86400                 -- a record fetched further in the future is not ours
  local n, top, pages, hours, days, spans, are_new
  begins[#begins + 1] = function() n, are_new = nil, nil end

  local function bucket_key(bucket) return TAG .. 'rec:' .. bucket end
  local function long_key() return bucket_key('long') end

  local function open()
    if n then return end
    local f = redis.call('HMGET', CTR, 'rb', 'recs', 'duh', 'dud', 'dus')
    n, top, pages = math.max(1, sane(f[1], 2 ^ 40) or 1), 1, sane(f[2], 2 ^ 53) or 0
    while top < n do top = top * 2 end
    hours, days, spans = sane(f[3], now / HOUR + 1), sane(f[4], (now + AHEAD_MS) / DAY + 1), sane(f[5], now / SPAN_MS)
    if not (hours and days and spans) then
      hours, days, spans, are_new = math.floor(now / HOUR), math.floor(now / DAY), math.floor(now / SPAN_MS), true
    end
  end

  local function bucket_of(key, limit)
    local b4, b5, b6, b7, b8 = string.byte(key, 4, 8)
    return (b4 * 2 ^ 32 + b5 * 2 ^ 24 + b6 * 65536 + b7 * 256 + b8) % limit
  end

  local function key_of(key)
    open()
    local bucket = bucket_of(key, top)
    return bucket_key(bucket >= n and bucket - top / 2 or bucket)
  end

  local function split()
    local wider = n == top and top * 2 or top
    local from, moved, keys = bucket_key(n - wider / 2), {}, {}
    local values = on(from, 'HGETALL')
    for i = 1, #values, 2 do
      if #values[i] == 8 and bucket_of(values[i], wider) == n then
        moved[#moved + 1], moved[#moved + 2], keys[#keys + 1] = values[i], values[i + 1], values[i]
      end
    end
    in_thousands(moved, function(...) on(bucket_key(n), 'HSET', ...) end)
    redis.call('HSET', CTR, 'rb', string.format('%d', n + 1))
    in_thousands(keys, function(...) redis.call('HDEL', from, ...) end)
    n, top = n + 1, wider
  end

  -- Seconds that a record was fetched and is due at; nil for what is not ours.
  page_times = function(text)
    if not text or #text <= HEAD_BYTES then return nil end
    local a, b, c, d, e, f, g, h, priority = string.byte(text, 1, 9)
    local fetched = ((a * 256 + b) * 256 + c) * 256 + d
    if priority > 9 or fetched > now / 1000 + SKEW_S then return nil end
    return fetched, ((e * 256 + f) * 256 + g) * 256 + h
  end

  -- The record, if there is one; the second result: what stands in the bucket.
  page_get = function(key)
    if #key ~= 8 then return nil end
    local text = on(key_of(key), 'HGET', key)
    if text == 'x' then return on(long_key(), 'HGET', key) or nil, text end
    return text or nil, text
  end

  -- `before`: what stands in the bucket.
  page_put = function(key, text, before)
    if #text > PAGE_BYTES then
      on(long_key(), 'HSET', key, text)
      text = 'x'
    end
    if on(key_of(key), 'HSET', key, text) == 1 then
      pages = pages + 1
      count('recs')
      if pages > PAGES_A_BUCKET * n then split() end
    elseif before == 'x' and text ~= 'x' then
      on(long_key(), 'HDEL', key)
    end
  end

  page_drop = function(key, before)
    if before == 'x' then on(long_key(), 'HDEL', key) end
    local gone = on(key_of(key), 'HDEL', key)
    pages = pages - gone
    count('recs', -gone)
  end

  -- The list that the key of a page due at a second is put into; the second result: it is of a day to come.
  page_list = function(at)
    open()
    at = at * 1000
    local hour, day = math.floor(at / HOUR), math.floor(at / DAY)
    if hour <= math.floor(now / HOUR) then return TAG .. 'soon:' .. math.max(math.floor(at / SPAN_MS), spans), false end
    if day > math.floor((now + AHEAD_MS) / DAY) then return TAG .. 'later:' .. day, true end
    return TAG .. 'due:' .. hour, false
  end

  page_due = function(key, at)
    local list, is_later = page_list(at)
    if are_new then redis.call('HSET', CTR, 'duh', hours, 'dud', days, 'dus', spans) end
    are_new = false
    if not is_later then
      on(list, 'RPUSH', key)
      return
    end
    local q = string.sub(list, #TAG + 1)
    if append(q, key) >= long / LATER_PART then chore(q) end
  end

  -- First hour, day and span whose keys have not been taken out, and the last ones that have come. Sets the first three if they are given.
  due_cursors = function(new_hours, new_days, new_spans)
    open()
    if new_hours then redis.call('HSET', CTR, 'duh', new_hours, 'dud', new_days, 'dus', new_spans) end
    return hours, days, spans, math.floor(now / HOUR), math.floor((now + AHEAD_MS) / DAY), math.floor(now / SPAN_MS) - 1
  end
end

-- A page was fetched. `again`: it was told before, and what is as new is there already; else it is news, whatever the worker's clock says.
local function keep_page(key, text, again)
  local old, before = page_get(key)
  local fetched, at = page_times(text)
  local old_fetched, old_at = page_times(old)
  if not fetched or (again and old_fetched and old_fetched >= fetched) then return end
  if at > 0 and not (old_at and old_at > 0 and page_list(old_at) == page_list(at)) then page_due(key, at) end
  page_put(key, text, before)
end
