-- The sliding log, as algorithms/log.py has it, name by name.
--
-- A state is what counts, and the hits, the oldest first: packed pairs of a time and a
-- count. It is cut and grown as a string, which is much cheaper than a table.
--
-- Numbers of a spec, from `s`: 3 | 1 capacity | 2 period | 3 what the request costs.
kinds[3] = {
  width = 4,
  cost = 3, -- where in a spec

  parse = function(value)
    if #value < 33 or #value % 16 ~= 1 or value:byte() ~= 108 then return nil end -- l
    local period, used = struct.unpack('<dd', value, 2)
    return { period = period, used = used, hits = value:sub(18) }
  end,

  -- Pull hits from the future, of a clock that was set back, to `now`; tell if any was.
  heal = function(state, now)
    local hits = state.hits
    local ahead, last = 0, #hits
    while last > 0 do
      local at, count = struct.unpack('<dd', hits, last - 15)
      if at <= now then break end
      ahead, last = ahead + count, last - 16
    end
    if ahead == 0 then return false end
    if last > 0 then
      local at, count = struct.unpack('<dd', hits, last - 15)
      if at == now then ahead, last = ahead + count, last - 16 end
    end
    state.hits = hits:sub(1, last) .. struct.pack('<dd', now, ahead)
    return true
  end,

  -- Drop the hits that no longer count.
  roll = function(state, now, period)
    local hits, used, first = state.hits, state.used, 1
    while first < #hits do
      local at, count = struct.unpack('<dd', hits, first)
      if at + period > now then break end
      used, first = used - count, first + 16
    end
    state.hits, state.used = first > 1 and hits:sub(first) or hits, used
  end,

  -- Carry `state` over to another period: what counts by both of them stays.
  rebase = function(state, now, s, S)
    state = copy(state)
    kinds[3].roll(state, now, math.min(state.period, S[s + 2]))
    state.period = S[s + 2]
    return state
  end,

  settle = function(state, now, s, S)
    local period = S[s + 2]
    if not state then return { period = period, used = 0, hits = '' } end
    if state.period ~= period then return kinds[3].rebase(state, now, s, S) end
    kinds[3].roll(state, now, period)
    return state
  end,

  has_room = function(state, now, s, S)
    return state.used + S[s + 3] <= S[s + 1] or S[s + 3] == 0
  end,

  charge = function(state, now, s, S)
    local hits, count = state.hits, S[s + 3]
    if count == 0 then return end -- no hit counts nothing
    state.used = state.used + count
    if #hits > 0 then
      local at, known = struct.unpack('<dd', hits, #hits - 15)
      if at == now then hits, count = hits:sub(1, -17), count + known end
    end
    state.hits = hits .. struct.pack('<dd', now, count)
  end,

  -- Let the spec be of the quota that `state` was written for.
  adopt = function(state, s, S)
    S[s + 2] = state.period
  end,

  refund = function(state, now, s, S, at)
    local hits = state.hits
    for first = 1, #hits, 16 do
      local when, count = struct.unpack('<dd', hits, first)
      if when == at then
        local left = math.max(0, count - S[s + 3])
        state.used = state.used - count + left
        state.hits = hits:sub(1, first - 1)
          .. (left > 0 and struct.pack('<dd', at, left) or '') .. hits:sub(first + 16)
        return
      end
    end
  end,

  -- What counts; when the oldest and the newest hit stop counting; and the hit after
  -- whose end the request has room. In microseconds before now, or 0.
  answer = function(state, now, s, S)
    local hits, oldest, newest, enough = state.hits, 0, 0, 0
    if #hits > 0 then
      oldest = now - struct.unpack('<d', hits)
      newest = now - struct.unpack('<d', hits, #hits - 15)
      local short, first = state.used + S[s + 3] - S[s + 1], 1
      while short > 0 and first < #hits do
        local at, count = struct.unpack('<dd', hits, first)
        short, first, enough = short - count, first + 16, now - at
      end
    end
    return state.used, oldest, newest, enough
  end,

  value = function(state)
    local hits = state.hits
    local whole_at = #hits > 0 and struct.unpack('<d', hits, #hits - 15) + state.period
    return struct.pack('<Bdd', 108, state.period, state.used) .. hits, whole_at or 0
  end,
}
