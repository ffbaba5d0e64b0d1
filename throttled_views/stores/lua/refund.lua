-- Give charges back, each to its key, as far as the key still counts it.
--
-- KEYS     the keys, one for each charge
-- ARGV[1]  the clock in microseconds; -2^53 asks the server's
-- ARGV[2]  specs: nine doubles for each charge
-- ARGV[3]  when each was charged, in microseconds: doubles
local now, spare_ms = clock(ARGV[1])
for i = 1, #KEYS do
  -- One after the other: a server's stack has no room for the specs of many charges.
  local S, s = { struct.unpack('<ddddddddd', ARGV[2], i * 72 - 71) }, 1
  local kind = kinds[S[s]]
  local stored = redis.call('GET', KEYS[i])
  local state = stored and kind.parse(stored)
  if state then
    kind.heal(state, now)
    kind.adopt(state, s, S)
    state = kind.settle(state, now, s, S)
    kind.refund(state, now, s, S, (struct.unpack('<d', ARGV[3], i * 8 - 7)))
    state = kind.settle(state, now, s, S) -- never above full
    local problem = store(KEYS[i], stored, kind, state, now, spare_ms)
    if problem then return redis.error_reply(problem) end
  end
end
