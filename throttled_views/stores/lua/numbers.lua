-- Whole numbers. All that a script touches stay below 2^53, where a double is exact;
-- only a product may be larger, and is made bit by bit then.

-- Return floor(a * b / c) and the remainder; a, b, c and the quotient are below 2^52.
local function muldiv(a, b, c)
  local product = a * b
  if product < 9007199254740992 then
    return math.floor(product / c), product % c
  end
  local quotient, rest = 0, 0
  local whole, part, bit = math.floor(a / c), a % c, 4503599627370496
  while bit >= 1 do
    quotient, rest = quotient + quotient, rest + rest
    if rest >= c then
      quotient, rest = quotient + 1, rest - c
    end
    if b >= bit then
      b, quotient, rest = b - bit, quotient + whole, rest + part
      if rest >= c then
        quotient, rest = quotient + 1, rest - c
      end
    end
    bit = bit / 2
  end
  return quotient, rest
end

-- Return the clock in microseconds, and how long a key is kept too long, in
-- milliseconds: a clock of a test may stand still while the server's goes on.
local function clock(argument)
  local now = tonumber(argument)
  if now ~= -9007199254740992 then return now, 60000 end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2], 1
end

-- Return a state that can be changed while `state` stays.
local function copy(state)
  local twin = {}
  for name, value in pairs(state) do twin[name] = value end
  return twin
end

-- Store a state as long as it matters, or nothing if it is as good as that; `was` is what
-- is stored so far. Return the error if it could not be.
local function store(key, was, kind, state, now, spare_ms)
  local value, whole_at = kind.value(state)
  if whole_at > now then
    return redis.pcall('SET', key, value, 'PX',
      math.floor((whole_at - now) / 1000) + spare_ms).err
  end
  if was then redis.call('DEL', key) end
end

-- Return numbers as the client reads them: eight bytes each.
local function packed(numbers)
  return struct.pack('<' .. string.rep('i8', #numbers), unpack(numbers))
end

-- What each kind has: `settle`, `rebase`, `refund` and `whole_at` (with the value) are the
-- kernel's. For speed, `take` is in two parts, `has_room` and `charge`, and `tell` is left
-- to Python, which is given an `answer` of `width` numbers, four at most. `parse`, `heal` and `adopt`
-- read what is stored.
local kinds = {}
