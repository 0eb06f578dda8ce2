-- renew: leases that are still worked on last longer.
-- uses: time common
--
-- ARGV[3]  ms from now    ARGV[4...]  tokens
-- Returns  a letter for each: k renewed, g gone

pass_when_full()
local expiry = string.format('%d', now + num(ARGV[3]))
local out = {}
for i = 4, #ARGV do
  if on(TAG .. 'leased', 'HEXISTS', ARGV[i]) == 1 then
    on(TAG .. 'leases', 'ZADD', 'XX', expiry, ARGV[i])
    out[#out + 1] = 'k'
  else
    out[#out + 1] = 'g'
  end
end
finish()
return table.concat(out)
