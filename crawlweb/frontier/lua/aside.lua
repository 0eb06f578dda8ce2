-- Keys outside the partitions: one of another type is not ours, and is moved aside by name (in partitions: common.lua).

local QUARANTINED_MOST = 1000

local function move_aside(key)
  local TAG, name = string.match(key, '^(.-}:)(.*)$')
  local aside = TAG .. 'foreign:' .. string.format('%d', server_ms()) .. ':' .. name
  local text = 'key\t' .. aside .. '\t' .. redis.call('TYPE', key)['ok']
  redis.call('RENAME', key, aside)
  if redis.call('TYPE', TAG .. 'quarantine')['ok'] ~= 'list' then redis.call('DEL', TAG .. 'quarantine') end
  redis.call('LPUSH', TAG .. 'quarantine', text)
  redis.call('LTRIM', TAG .. 'quarantine', 0, QUARANTINED_MOST - 1)
end

local function on(key, command, ...)
  local r = redis.pcall(command, key, ...)
  if type(r) == 'table' and r.err then
    if string.sub(r.err, 1, 9) ~= 'WRONGTYPE' then error(r.err) end
    move_aside(key)
    r = redis.call(command, key, ...)
  end
  return r
end
