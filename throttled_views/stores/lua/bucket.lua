-- The token bucket, as algorithms/bucket.py has it, name by name.
--
-- A state is the instant at which the bucket was empty: `us` microseconds and `part` of
-- `scale` parts of one, beside the numbers it was written for. A bucket with turns has a
-- capacity below zero, and the microseconds of `delay`; others have none.
--
-- Numbers of a spec, from `s`: 0 | 1 scale | 2 token | 3 capacity, below zero if there
-- are turns | 4, 5 time to full, with the delay: microseconds, rounded up, and the parts
-- above | 6, 7 what the request costs: whole microseconds and parts | 8 the same in tokens.

-- Return the time to full of what `state` was written for: microseconds, and parts more.
local function full_of(state)
  local us, part = muldiv(math.abs(state.capacity), state.token, state.scale)
  return us + (state.delay or 0), part
end

-- Return the delay of a spec, nil if it has none.
local function delay_of(s, S)
  if S[s + 3] >= 0 then return nil end
  local us, part = muldiv(-S[s + 3], S[s + 2], S[s + 1])
  return S[s + 4] - us - (part > 0 and 1 or 0)
end

-- Return how many whole tokens there are in `us` and less `part`; it may be below zero.
local function tokens_in(us, part, scale, token)
  local tokens, rest = muldiv(math.abs(us), scale, token)
  if us < 0 then tokens, rest = -tokens, -rest end
  if rest < part then tokens = tokens - math.ceil((part - rest) / token) end
  return tokens
end

kinds[0] = {
  width = 2,
  cost = 8, -- where in a spec

  parse = function(value)
    if #value == 49 and value:byte() == 116 then -- t: with turns
      local us, part, scale, token, capacity, delay = struct.unpack('<dddddd', value, 2)
      return { us = us, part = part, scale = scale, token = token, capacity = capacity,
        delay = delay }
    end
    if #value ~= 41 or value:byte() ~= 98 then return nil end -- b
    local us, part, scale, token, capacity = struct.unpack('<ddddd', value, 2)
    return { us = us, part = part, scale = scale, token = token, capacity = capacity }
  end,

  -- Pull a state from the future, of a clock that was set back, to `now`; tell if it was.
  heal = function(state, now)
    if state.us < now or (state.us == now and state.part == 0) then return false end
    state.us, state.part = now, 0
    return true
  end,

  -- Tell whether the bucket was full at `now` under the quota it was written for.
  is_whole = function(state, now)
    local us, part = full_of(state)
    local spare = now - state.us - us
    -- The parts are less than two microseconds.
    return spare > 1 or (spare >= 0 and spare * state.scale >= state.part + part)
  end,

  -- Carry `state` over to another quota. What it holds stays, in whole tokens.
  rebase = function(state, now, s, S)
    if kinds[0].is_whole(state, now) then return nil end
    state = copy(state)
    local held, delay = now - state.us - (state.delay or 0), delay_of(s, S)
    state.capacity, state.delay = S[s + 3], delay
    if state.scale == S[s + 1] and state.token == S[s + 2] then
      state.us = now - held - (delay or 0)
    else
      local tokens = tokens_in(held, state.part, state.scale, state.token)
      local us, part = muldiv(math.abs(tokens), S[s + 2], S[s + 1])
      state.us, state.part = now + us, part
      if tokens > 0 then
        state.us, state.part = now - us, 0
        if part > 0 then
          state.us, state.part = state.us - 1, S[s + 1] - part
        end
      end
      state.us = state.us - (delay or 0)
      state.scale, state.token = S[s + 1], S[s + 2]
    end
    kinds[0].heal(state, now) -- no bucket holds less than nothing
    return state
  end,

  -- Bring `state` to where it can be at `now`; nil is a full bucket.
  settle = function(state, now, s, S)
    local oldest, parts = now - S[s + 4], S[s + 5]
    if state and (state.scale ~= S[s + 1] or state.token ~= S[s + 2]
        or state.capacity ~= S[s + 3]
        or (state.delay and state.delay ~= delay_of(s, S))) then
      state = kinds[0].rebase(state, now, s, S)
    end
    if not state then
      return { us = oldest, part = parts, scale = S[s + 1], token = S[s + 2],
        capacity = S[s + 3], delay = delay_of(s, S) }
    end
    local us, part = state.us, state.part
    if us < oldest or (us == oldest and part < parts) then
      state.us, state.part = oldest, parts
    end
    return state
  end,

  -- Tell whether a settled bucket holds what the request costs.
  has_room = function(state, now, s, S)
    local us, part = state.us + S[s + 6], state.part + S[s + 7]
    if part >= state.scale then us, part = us + 1, part - state.scale end
    return us < now or (us == now and part == 0)
  end,

  charge = function(state, now, s, S)
    state.us, state.part = state.us + S[s + 6], state.part + S[s + 7]
    if state.part >= state.scale then
      state.us, state.part = state.us + 1, state.part - state.scale
    end
  end,

  -- Let the spec be of the quota that `state` was written for.
  adopt = function(state, s, S)
    local us, part = full_of(state)
    S[s + 4], S[s + 5] = us, 0
    if part > 0 then S[s + 4], S[s + 5] = us + 1, state.scale - part end
    if state.scale ~= S[s + 1] or state.token ~= S[s + 2] then
      S[s + 6], S[s + 7] = muldiv(S[s + 8], state.token, state.scale)
    end
    S[s + 1], S[s + 2], S[s + 3] = state.scale, state.token, state.capacity
  end,

  refund = function(state, now, s, S, at)
    -- While others wait, who were told their turns, nothing comes back: who came next
    -- would get one of those.
    local held = now - state.us - (state.delay or 0)
    if held < 0 or (held == 0 and state.part > 0 and state.delay) then return end
    -- What was charged a whole time to full ago has come back by itself.
    local us, part = muldiv(math.abs(state.capacity), state.token, state.scale)
    if now - at >= us + (part > 0 and 1 or 0) then return end
    state.us, state.part = state.us - S[s + 6], state.part - S[s + 7]
    if state.part < 0 then
      state.us, state.part = state.us - 1, state.part + state.scale
    end
  end,

  -- Return what tells where the key stands: time since empty, and parts less.
  answer = function(state, now, s, S)
    return now - state.us, state.part
  end,

  -- Return the value to store, and when it is as good as none, rounded up.
  value = function(state)
    if state.delay then
      local us, part = full_of(state)
      return struct.pack('<Bdddddd', 116, state.us, state.part, state.scale, state.token,
        state.capacity, state.delay),
        state.us + us + math.ceil((state.part + part) / state.scale)
    end
    local us, part = muldiv(state.capacity, state.token, state.scale)
    local whole_at = state.us + us + math.ceil((state.part + part) / state.scale)
    return struct.pack('<Bddddd', 98, state.us, state.part, state.scale, state.token,
      state.capacity), whole_at
  end,
}
