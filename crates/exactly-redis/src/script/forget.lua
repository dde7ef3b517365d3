local token, channel, hint = unpack(ARGV, 1, 3)
local owner, done = unpack(redis.call('HMGET', KEYS[1], 'token', 'expires_at'))
if not owner then
  return 1
end
if owner ~= token or not done then
  return 0
end
redis.call('DEL', KEYS[1])
announce(channel, hint)
return 1
