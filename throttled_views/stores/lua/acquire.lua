-- Decide a batch of requests: each is charged all of its limits, or none of them.
--
-- KEYS     the distinct keys of the batch
-- ARGV[1]  the clock in microseconds; -2^53 asks the server's
-- ARGV[2]  1 to look only: nothing is charged
-- ARGV[3]  specs: nine doubles each, as the kind that comes first has them
-- ARGV[4]  for each request the number of its limits, then for each of them the number
--          of its key and of its spec, from 0: unsigned shorts
--
-- Returns numbers, packed: the clock; then for each request 1 if it was admitted, 0 if not,
-- 2 if it could not be stored, 3 if not and a key of it is not stored as it was seen, as
-- by another quota, and for each of its limits what the kind answers, before the charge.
-- If some could not be stored, an array of that and why. It is one loop and no functions:
-- those would cost a batch three hundredths of its time.
local now, spare_ms = clock(ARGV[1])
local look = ARGV[2] == '1'
local S = { struct.unpack('<' .. string.rep('d', #ARGV[3] / 8), ARGV[3]) }
local total = #ARGV[4] / 2
local ops = { struct.unpack('<' .. string.rep('H', total), ARGV[4]) }
local values = redis.call('MGET', unpack(KEYS))
-- By number of a key: the state with all that was charged so far and its kind; the same
-- as the request at hand sees it; and what is to be stored.
local states, kind_of, seen, dirty = {}, {}, {}, {}
local out, o, at = { now }, 2, 1

while at <= total do
  local last, verdict, admitted, refused = at + 2 * ops[at], o, 1, 0
  o = o + 1
  for i = at + 1, last, 2 do
    local k, s = ops[i] + 1, ops[i + 1] * 9 + 1
    local number = S[s]
    local kind, state = kinds[number], states[k]
    if not state and values[k] then
      state = kind.parse(values[k])
      if state then
        -- Written at once, so that it is healed by a refusal too.
        if kind.heal(state, now) and not look then
          store(KEYS[k], values[k], kind, state, now, spare_ms)
        end
        states[k], kind_of[k] = state, number
      end
    elseif kind_of[k] ~= number then
      state = nil -- by another algorithm: it begins anew
    end
    -- By another quota it is a copy: if this request is refused, nothing has changed.
    state = kind.settle(state, now, s, S)
    seen[k] = state
    if states[k] and state ~= states[k] then refused = 3 end
    if not kind.has_room(state, now, s, S) then admitted = 0 end
    out[o], out[o + 1], out[o + 2], out[o + 3] = kind.answer(state, now, s, S)
    o = o + kind.width
  end
  out[verdict] = admitted == 1 and 1 or refused
  if admitted == 1 and not look then
    for i = at + 1, last, 2 do
      local k, s = ops[i] + 1, ops[i + 1] * 9 + 1
      if S[s + kinds[S[s]].cost] > 0 then -- what only looks leaves the key as it is
        kinds[S[s]].charge(seen[k], now, s, S)
        states[k], kind_of[k], dirty[k] = seen[k], S[s], true
      end
    end
  end
  at = last + 1
end
if look then return packed(out) end

local failed, why
for k in pairs(dirty) do
  local problem =
    store(KEYS[k], values[k], kinds[kind_of[k]], states[k], now, spare_ms)
  if problem then
    failed, why = failed or {}, problem
    failed[k] = true
  end
end
if not failed then return packed(out) end

-- Some could not be stored: those who were charged by them were not.
at, o = 1, 2
while at <= total do
  local last, verdict = at + 2 * ops[at], o
  o = o + 1
  for i = at + 1, last, 2 do
    if failed[ops[i] + 1] and out[verdict] == 1 then out[verdict] = 2 end
    o = o + kinds[S[ops[i + 1] * 9 + 1]].width
  end
  at = last + 1
end
return { packed(out), why }
