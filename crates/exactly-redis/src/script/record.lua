-- The record under KEYS[1] and the server's clock: put in front of every script. No script touches another key, so
-- each runs on a cluster.
--
-- A record is a hash. Integers are decimal text, times are milliseconds, all else is kept byte for byte.
--
--   fingerprint operation key created_at principal    from the first use on; no principal: a global scope
--   token attempt begun_by                            of the latest attempt
--   lease lease_until on_lost                         while in flight
--   outcome expires_at                                once done; expires_at may be 'never'
--
-- Every time and duration is below 2^53, up to which Lua's numbers are exact.

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- Lua would write a large number as 4.5e+15.
local function integer(number)
  return string.format('%.0f', number)
end

-- Waiters poll too, so a user who may not publish loses speed and nothing else. By then the record is written, and an
-- error would say that it is not.
local function announce(channel, hint)
  redis.pcall('PUBLISH', channel, hint)
end
