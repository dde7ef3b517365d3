local token, channel, hint, begun_by = unpack(ARGV, 1, 4)
local owner, maker, done = unpack(redis.call('HMGET', KEYS[1], 'token', 'begun_by', 'expires_at'))
if not owner then
  return 1
end
-- A begin whose answer nobody got gives back what it made itself, unless another begin of the same call has found it.
if owner ~= token or done or (begun_by and begun_by ~= maker) then
  return 0
end
redis.call('DEL', KEYS[1])
announce(channel, hint)
return 1
