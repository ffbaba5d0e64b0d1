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

local kinds = {}
