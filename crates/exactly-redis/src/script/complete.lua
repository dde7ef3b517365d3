local token, outcome, keep, channel, hint = unpack(ARGV, 1, 5)
local owner, done = unpack(redis.call('HMGET', KEYS[1], 'token', 'expires_at'))
if owner ~= token then
  return 0
end
if done then
  return redis.call('HGET', KEYS[1], 'outcome') == outcome and 1 or 0
end

local expires_at = 'never'
if keep ~= 'forever' then
  expires_at = integer(now_ms() + tonumber(keep))
end
-- Redis refuses memory to a script only before its first write, and PERSIST is one that takes none. The effect has
-- happened: refusing its outcome because memory is full would turn it into doubt.
redis.call('PERSIST', KEYS[1])
redis.call('HSET', KEYS[1], 'outcome', outcome, 'expires_at', expires_at)
redis.call('HDEL', KEYS[1], 'lease', 'lease_until', 'on_lost', 'begun_by')
if expires_at ~= 'never' then
  redis.call('PEXPIREAT', KEYS[1], expires_at)
end
announce(channel, hint)
return 1
