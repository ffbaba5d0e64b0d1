-- The sliding window of two counters, as algorithms/windows.py has it, name by name.
--
-- Numbers of a spec, from `s`: 2 | 1 capacity | 2 period | 3 what the request costs.
kinds[2] = {
  width = 3,
  cost = 3, -- where in a spec

  parse = function(value)
    if #value ~= 33 or value:byte() ~= 115 then return nil end -- s
    local start, used, before, period = struct.unpack('<dddd', value, 2)
    return { start = start, used = used, before = before, period = period }
  end,

  -- Pull windows from the future, of a clock that was set back, to now's; tell if so.
  heal = function(state, now)
    local start = now - now % state.period
    if state.start <= start then return false end
    state.start = start
    return true
  end,

  -- Move `state` to the window of `now`, by its own period.
  roll = function(state, now)
    local period = state.period
    local start = now - now % period
    if state.start < start then
      state.before = state.start == start - period and state.used or 0
      state.start, state.used = start, 0
    end
  end,

  -- Carry `state` over to another period: what counts now, rounded up, is this window's.
  rebase = function(state, now, s, S)
    local share, rest = muldiv(state.before, state.period - (now - state.start),
      state.period)
    if rest > 0 then share = share + 1 end
    local used = math.min(state.used + share, 1099511627775)
    return { start = now - now % S[s + 2], used = used, before = 0, period = S[s + 2] }
  end,

  settle = function(state, now, s, S)
    local period = S[s + 2]
    if not state then
      return { start = now - now % period, used = 0, before = 0, period = period }
    end
    kinds[2].roll(state, now)
    if state.period ~= period then return kinds[2].rebase(state, now, s, S) end
    return state
  end,

  has_room = function(state, now, s, S)
    local room = S[s + 1] - state.used - S[s + 3]
    if S[s + 3] == 0 then return true end
    if room < 0 or state.before == 0 then return room >= 0 end
    local period = state.period
    local share, rest = muldiv(state.before, period - (now - state.start), period)
    return share < room or (share == room and rest == 0)
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
    elseif at < state.start and at >= state.start - state.period then
      state.before = math.max(0, state.before - S[s + 3])
    end
  end,

  answer = function(state, now, s, S)
    return now - state.start, state.used, state.before
  end,

  value = function(state)
    local windows = state.used > 0 and 2 or state.before > 0 and 1 or 0
    return struct.pack('<Bdddd', 115, state.start, state.used, state.before,
      state.period), windows > 0 and state.start + windows * state.period or 0
  end,
}
