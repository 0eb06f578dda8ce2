-- hold: after the server of the partition changed: which leases of a worker it knows. Those last longer. Where it lost one whose request is under way, the
-- host rests until that has ended.
-- uses: time common pack host cold place
--
-- ARGV[3]  ms from now that leases last    ARGV[4] msgpack [[token, host, ms that its request may still take (0: there is none)], ...]
-- ARGV[5]  run id of the server ('': not known)    ARGV[6] ms that nobody leases from now on, unless that was begun (lease)
-- Returns  a letter for each: k kept, g gone
-- Holds    a host's next-allowed time never moves back

pass_when_full()
if ARGV[5] ~= '' and ARGV[5] ~= c[7] then
  redis.call('HSET', CTR, 'run', ARGV[5], 'calm', string.format('%d', now + num(ARGV[6])))
end
local rows, out = cmsgpack.unpack(ARGV[4]), {}
local expiry = string.format('%d', now + num(ARGV[3]))
for i, row in ipairs(rows) do
  local token, host, ms = row[1], row[2], row[3]
  if on(TAG .. 'leased', 'HEXISTS', token) == 1 then
    on(TAG .. 'leases', 'ZADD', expiry, token)
    out[i] = 'k'
  else
    out[i] = 'g'
    if ms > 0 then
      local h = look(host)
      take_up(host, h)
      on(TAG .. 'host:' .. host, 'HSET', 'n', string.format('%d', math.max(h.next, now + ms)))
      if not h.s or h.s == 'w' then stow_again(host) end
    end
  end
end
finish()
return table.concat(out)
