-- peek: what is known of a host, for who wants to see it. Changes nothing.
-- uses: time common pack
--
-- ARGV[3]  host
-- Returns  its fields (host.lua): name, value, ...

local host = ARGV[3]
local values = redis.pcall('HGETALL', TAG .. 'host:' .. host)
if values.err then values = {} end
for i = 1, #values, 2 do
  if values[i] == 's' then return values end
end
local text = open_records() and redis.pcall('HGET', key_of(host), host)
if type(text) ~= 'string' then return values end
local s, k, serial, body = parse_record(text)
if not s then return values end
for _, value in ipairs(fields_of(body) or {}) do values[#values + 1] = type(value) == 'number' and string.format('%d', value) or value end
if s == 'w' then
  for _, value in ipairs({'s', s, 'k', k, 't', serial}) do values[#values + 1] = value end
end
return values
