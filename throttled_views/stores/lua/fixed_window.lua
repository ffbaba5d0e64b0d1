-- The fixed window, as algorithms/windows.py has it, name by name.
--
-- Numbers of a spec, from `s`: 1 | 1 capacity | 2 period | 3 what the request costs.
kinds[1] = {
  width = 2,
  cost = 3, -- where in a spec

  parse = function(value)
    if #value ~= 25 or value:byte() ~= 102 then return nil end -- f
    local start, used, period = struct.unpack('<ddd', value, 2)
    return { start = start, used = used, period = period }
  end,

  -- Pull a window from the future, of a clock that was set back, to now's; tell if it was.
  heal = function(state, now)
    local start = now - now % state.period
    if state.start <= start then return false end
    state.start = start
    return true
  end,

  -- Carry `state` over to another period: what counts in its window counts in this one.
  rebase = function(state, now, s, S)
    if state.start + state.period <= now then return nil end
    return { start = now - now % S[s + 2], used = state.used, period = S[s + 2] }
  end,

  settle = function(state, now, s, S)
    local period = S[s + 2]
    local start = now - now % period
    if state and state.period ~= period then
      state = kinds[1].rebase(state, now, s, S)
    end
    if not state or state.start < start then
      return { start = start, used = 0, period = period }
    end
    return state
  end,

  has_room = function(state, now, s, S)
    return state.used + S[s + 3] <= S[s + 1] or S[s + 3] == 0
  end,

  charge = function(state, now, s, S)
    state.used = state.used + S[s + 3]
  end,

  -- Let the spec be of the quota that `state` was written for.
  adopt = function(state, s, S)
    S[s + 2] = state.period
  end,

  refund = function(state, now, s, S, at)
    if at >= state.start and at < state.start + state.period then
      state.used = math.max(0, state.used - S[s + 3])
    end
  end,

  answer = function(state, now, s, S)
    return now - state.start, state.used
  end,

  value = function(state)
    return struct.pack('<Bddd', 102, state.start, state.used, state.period),
      state.used > 0 and state.start + state.period or 0
  end,
}
