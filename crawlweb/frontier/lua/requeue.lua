-- requeue: dead letters back into the frontier, as if they were new; their origin gets another chance.
-- uses: time common pack host cold place trouble
--
-- ARGV[3]  most dead letters looked at, oldest first    ARGV[4] reason, '' for any    ARGV[5] host, '' for any
-- Returns  number requeued. One that does not match goes to the other end of the list, so as many looks as there are letters see all.
-- Holds    a letter is placed before it leaves the list

pass_when_full()
local old = answered('q')
if old ~= nil then return num(old) or redis.error_reply('STALE') end
local dead, reason, only = TAG .. 'dead', ARGV[4], ARGV[5]
local moved = 0
for _ = 1, math.min(num(ARGV[3]), on(dead, 'LLEN')) do
  local text = redis.call('LINDEX', dead, -1)
  local host, why, entry = string.match(text, '^%d+\t([^\t]+)\t([^\t]*)\t(.*)$')
  local kind = why and string.match(why, '^(.-): ') or why
  if host and is_entry(entry) and (reason == '' or kind == reason) and (only == '' or host == only) then
    entry = string.sub(entry, 1, 1) .. '00' .. string.sub(entry, 4)
    local h = look(host)
    take_up(host, h)
    if h.x then on(TAG .. 'host:' .. host, 'HDEL', 'x', 'xr', 'h') end
    local origin = origin_of(host, entry)
    if h.b and h.b[origin] then
      h.b[origin] = on(wait_list(host, origin), 'LLEN') > 0 and {} or nil
      save(host, h.b)
    end
    place_new(host, {h.s, h.k or '9', h.n}, {}, entry)
    if not h.s or h.s == 'w' then stow_again(host) end
    count('enq')
    moved = moved + 1
    redis.call('RPOP', dead)
  elseif not host or not is_entry(entry) then
    quarantine('dead', text)
    redis.call('RPOP', dead)
  else
    redis.call('RPOPLPUSH', dead, dead)
  end
end
finish()
return num(answer('q', moved))
