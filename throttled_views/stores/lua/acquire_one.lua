-- Decide one request of one limit, as acquire.lua does: a server that is not busy gets
-- little else, and what many requests need would take it half as long again.
--
-- KEYS[1]  the key
-- ARGV[1]  the clock in microseconds; -2^53 asks the server's
-- ARGV[2]  the spec: nine doubles, as its kind has them
--
-- Returns what acquire.lua does.
local now, spare_ms = clock(ARGV[1])
local S = { struct.unpack('<ddddddddd', ARGV[2]) }
local kind = kinds[S[1]]
local value = redis.call('MGET', KEYS[1])[1] -- what is no string is none
local stored = value and kind.parse(value)
if stored and kind.heal(stored, now) then
  store(KEYS[1], value, kind, stored, now, spare_ms)
end
local state = kind.settle(stored, now, 1, S)
local verdict, problem = 0, nil
local a, b, c, d = kind.answer(state, now, 1, S)
if kind.has_room(state, now, 1, S) then
  if S[1 + kind.cost] > 0 then -- what only looks leaves the key as it is
    kind.charge(state, now, 1, S)
    problem = store(KEYS[1], value, kind, state, now, spare_ms)
  end
  verdict = problem and 2 or 1
elseif stored and state ~= stored then
  verdict = 3
end
local out = packed({ now, verdict, a, b, c, d })
return problem and { out, problem } or out
