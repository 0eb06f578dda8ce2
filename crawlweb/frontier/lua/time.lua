local num = tonumber

-- The time of the server in ms; tests put their own in place of this function.
local function server_ms()
  local t = redis.call('TIME')
  return num(t[1]) * 1000 + math.floor(num(t[2]) / 1000)
end
