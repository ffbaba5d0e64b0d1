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
-- If some could not be stored, an array of that and why.
local now, spare_ms = clock(ARGV[1])
local look = ARGV[2] == '1'
local S = { struct.unpack('<' .. string.rep('d', #ARGV[3] / 8), ARGV[3]) }
local total = #ARGV[4] / 2
local ops = { struct.unpack('<' .. string.rep('H', total), ARGV[4]) }
local values = redis.call('MGET', unpack(KEYS))
-- By number of a key: the state with all that was charged so far and its kind; the same
-- as the request at hand sees it; and what is to be stored.
local states, kind_of, seen, dirty = {}, {}, {}, {}

-- Return the number of the key that the limit at `i` charges, and where its spec is.
local function limit_at(i)
  return ops[i] + 1, ops[i + 1] * 9 + 1
end

-- Return where key `k` stands so far, as the kind has it; nil if it has no state.
local function state_of(k, number)
  if states[k] or not values[k] then
    return kind_of[k] == number and states[k] or nil -- else by another algorithm
  end
  local kind = kinds[number]
  local state = kind.parse(values[k])
  if state then
    -- Written at once, so that it is healed by a refusal too.
    if kind.heal(state, now) and not look then
      store(KEYS[k], values[k], kind, state, now, spare_ms)
    end
    states[k], kind_of[k] = state, number
  end
  return state
end

-- Charge the limits from `first` to `last`, which have room.
local function charge(first, last)
  for i = first, last, 2 do
    local k, s = limit_at(i)
    local kind = kinds[S[s]]
    if S[s + kind.cost] > 0 then -- what only looks leaves the key as it is
      kind.charge(seen[k], now, s, S)
      states[k], kind_of[k], dirty[k] = seen[k], S[s], true
    end
  end
end

-- Tell whether all keys of the limits from `first` to `last` are as they were seen.
local function are_as_seen(first, last)
  for i = first, last, 2 do
    local k = limit_at(i)
    if states[k] and states[k] ~= seen[k] then return false end
  end
  return true
end

local out, filled, at = { now }, 1, 1
while at <= total do
  local first, last = at + 1, at + 2 * ops[at]
  local verdict, admitted = filled + 1, true
  filled = verdict
  for i = first, last, 2 do
    local k, s = limit_at(i)
    local kind = kinds[S[s]]
    -- By another quota it is a copy: if this request is refused, nothing has changed.
    local state = kind.settle(state_of(k, S[s]), now, s, S)
    seen[k] = state
    if not kind.has_room(state, now, s, S) then admitted = false end
    out[filled + 1], out[filled + 2], out[filled + 3], out[filled + 4] =
      kind.answer(state, now, s, S)
    filled = filled + kind.width
  end
  if admitted then
    out[verdict] = 1
    if not look then charge(first, last) end
  else
    out[verdict] = are_as_seen(first, last) and 0 or 3
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
at, filled = 1, 1
while at <= total do
  local first, last = at + 1, at + 2 * ops[at]
  local verdict = filled + 1
  filled = verdict
  for i = first, last, 2 do
    local k, s = limit_at(i)
    if failed[k] and out[verdict] == 1 then out[verdict] = 2 end
    filled = filled + kinds[S[s]].width
  end
  at = last + 1
end
return { packed(out), why }
