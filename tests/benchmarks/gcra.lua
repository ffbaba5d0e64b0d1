-- The least that decides by GCRA: one key, and floats as they come.
--
-- KEYS[1]  theoretical arrival time, microseconds
-- ARGV     microseconds for one request; requests in a burst; requests to charge
--
-- Returns {admitted (1|0), microseconds until all is back}.

local interval, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local arrival = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now)
local later = arrival + interval * cost
if later - now > interval * burst then
  return { 0, arrival - now }
end
redis.call('SET', KEYS[1], string.format('%.0f', later), 'PX', math.ceil((later - now) / 1000))
return { 1, later - now }
